/* SPDX-License-Identifier: MIT */
/* The flame graph: the paths of all calls, callees below their callers, as wide as their weight. Recursion is one frame. */
class Flame {
  constructor(page, canvas) {
    this.page = page;
    this.canvas = canvas;
    this.context = canvas.getContext('2d');
    this.weight = 'time';
    this.zoomed = -1; /* a path; -1: all */
    this.top = 0;
    this.boxes = [];
    this.drawn = {frames: 0, thin: 0};
    canvas.addEventListener('click', event => {
      const path = this.at(event.offsetX, event.offsetY);
      if (path === undefined) return;
      this.zoomed = path === this.zoomed ? this.page.data.paths[path].parent : path;
      this.top = 0;
      this.page.tellPath(path);
      this.page.changed();
    });
    canvas.addEventListener('wheel', event => {
      event.preventDefault();
      this.top = Math.max(0, this.top + event.deltaY);
      this.page.changed();
    }, {passive: false});
  }
  total() {
    let sum = 0;
    for (const path of this.page.data.paths) if (path.depth === 0) sum += path.total[this.weight];
    return sum;
  }
  said(value) {
    return this.weight === 'calls' ? count(value) + ' calls' : duration(value);
  }
  at(x, y) {
    const box = this.boxes.find(box => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + SIZE.row);
    return box && box.path;
  }
  draw() {
    const canvas = this.canvas, ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    if (width === 0 || height === 0) return;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const g = this.context, colours = this.page.colours, {paths} = this.page.data;
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.fillStyle = colours.back;
    g.fillRect(0, 0, width, height);
    g.font = '12px ui-monospace, monospace';
    g.textBaseline = 'middle';
    this.character = g.measureText('m').width;
    this.boxes = [];
    this.drawn = {frames: 0, thin: 0};
    const above = [];
    for (let path = this.zoomed; path >= 0; path = paths[path].parent) above.unshift(path);
    const all = this.zoomed >= 0 ? paths[this.zoomed].total[this.weight] : this.total();
    if (all === 0) {
      g.fillStyle = colours.text;
      g.fillText(paths.length === 0 ? 'There are no calls.' : 'Nothing has this weight.', 10, 20);
      return;
    }
    for (const path of above) this.drawFrame(path, 0, width, paths[path].depth, true);
    this.drawBelow(width / all, height);
    get('flamenote').textContent = `${this.said(this.total())} in all; ${count(this.drawn.frames)} frames are drawn` +
      (this.drawn.thin !== 0 ? `, ${count(this.drawn.thin)} paths are too thin: a click on a frame widens it` : '');
  }
  drawBelow(scale, height) {
    const {paths} = this.page.data, first = this.zoomed + 1, base = this.zoomed >= 0 ? paths[this.zoomed].depth + 1 : 0, next = [];
    next[base] = 0;
    for (let i = first; i < paths.length && paths[i].depth >= base; i++) {
      const {depth} = paths[i], wide = paths[i].total[this.weight] * scale, x = next[depth] || 0;
      next[depth] = x + wide;
      next[depth + 1] = x;
      if (wide < 0.5) {
        if (paths[i].total[this.weight] !== 0) this.drawn.thin++;
      } else if ((depth + 1) * SIZE.row - this.top > 0 && depth * SIZE.row - this.top < height) this.drawFrame(i, x, wide, depth, false);
    }
  }
  drawFrame(path, x, width, depth, isAbove) {
    const g = this.context, colours = this.page.colours, name = this.page.shown(this.page.data.paths[path].name), y = depth * SIZE.row - this.top;
    const isHit = this.page.match !== null && this.page.match(this.page.data.paths[path].name);
    g.globalAlpha = (this.page.match !== null && !isHit) || isAbove ? 0.5 : 1;
    g.fillStyle = colours.fill(name);
    g.fillRect(x, y, width - (width > 2 ? 0.7 : 0), SIZE.row - 1);
    g.globalAlpha = 1;
    if (isHit) { g.fillStyle = colours.mark; g.fillRect(x, y + SIZE.row - 4, width, 3); }
    const room = Math.floor((width - 6) / this.character);
    if (room >= 2) {
      g.fillStyle = colours.text;
      g.fillText(name.length <= room ? name : name.slice(0, room - 1) + '\u2026', x + 3, y + SIZE.row / 2);
    }
    this.drawn.frames++;
    this.boxes.push({x, y, width, path});
  }
}
