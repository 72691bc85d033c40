/* SPDX-License-Identifier: MIT */
/*
 * The time line. Rows from the top: the ruler; what the program wrote, and its crash; then for each track a head with the
 * thread's name and its stretches off the processor, and a row for each depth. What is narrower than a pixel is drawn
 * with its neighbours as one bar, so the work of a picture is bounded by its pixels and not by the trace.
 */
const SIZE = {ruler: 22, output: 18, head: 18, row: 17, gap: 8};
const AWAY = {1: 'preempted', 2: 'blocked', 3: 'waits for room (contrail)', 4: 'held (contrail)', 5: 'off the processor'};

/* The first place of a list whose entry begins at `ns` or later. */
function firstFrom(begins, row, ns, low = 0) {
  let high = row.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (begins[row[middle]] < ns) low = middle + 1; else high = middle;
  }
  return low;
}

class Timeline {
  constructor(page, canvas) {
    this.page = page;
    this.canvas = canvas;
    this.context = canvas.getContext('2d');
    this.from = 0;
    this.to = 1;
    this.top = 0;
    this.folded = new Set();
    this.drawn = {};
    this.listen();
  }
  start() {
    const {columns, about, threads} = this.page.data;
    let begin = Infinity, end = 0;
    for (let i = 0; i < columns.count; i++) {
      if (columns.begin[i] < begin) begin = columns.begin[i];
      if (columns.begin[i] + columns.length[i] > end) end = columns.begin[i] + columns.length[i];
    }
    for (const line of about.output) { begin = Math.min(begin, line[0]); end = Math.max(end, line[0]); }
    for (const crash of about.crashes) if (crash.in_range) end = Math.max(end, crash.ns);
    for (const thread of threads) for (const away of columns.count === 0 ? thread.away : []) { begin = Math.min(begin, away.begin); end = Math.max(end, away.end); }
    this.begin = begin < end ? begin : 0;
    this.end = Math.max(end, this.begin + 1);
    this.whole();
  }
  whole() {
    const room = (this.end - this.begin) * 0.01;
    this.show(this.begin - room, this.end + room);
  }
  show(from, to) {
    const least = 20, most = (this.end - this.begin) * 1.2 + least; /* nanoseconds */
    const length = Math.min(Math.max(to - from, least), most), middle = (from + to) / 2;
    this.from = Math.min(Math.max(middle - length / 2, this.begin - length * 0.9), this.end - length * 0.1);
    this.to = this.from + length;
    this.page.changed();
  }
  zoom(factor, at = (this.from + this.to) / 2) {
    const length = (this.to - this.from) * factor, share = (at - this.from) / (this.to - this.from);
    this.show(at - length * share, at + length * (1 - share));
  }
  pan(share) {
    const step = (this.to - this.from) * share;
    this.show(this.from + step, this.to + step);
  }
  scroll(pixels) {
    this.top = Math.max(0, Math.min(this.top + pixels, this.height() - this.canvas.clientHeight + 40));
    this.page.changed();
  }
  hasOutput() {
    return this.page.data.about.output.length !== 0 || this.page.data.about.crashes.length !== 0;
  }
  bar() {
    return SIZE.ruler + (this.hasOutput() ? SIZE.output : 0);
  }
  trackHeight(track) {
    return SIZE.head + (this.folded.has(track.number) ? 0 : track.depths * SIZE.row) + SIZE.gap;
  }
  height() {
    return this.page.data.tracks.reduce((sum, track) => sum + this.trackHeight(track), this.bar());
  }
  topOf(wanted) {
    let y = this.bar();
    for (const track of this.page.data.tracks) {
      if (track === wanted) break;
      y += this.trackHeight(track);
    }
    return y;
  }
  x(ns) {
    return (ns - this.from) * this.scale;
  }
  /* Has the entry in sight. */
  reveal(entry) {
    const {columns, tracks} = this.page.data, track = tracks[columns.track[entry]];
    this.folded.delete(track.number);
    const y = this.topOf(track) + SIZE.head + columns.depth[entry] * SIZE.row, height = this.canvas.clientHeight || 600;
    if (y - this.top < this.bar() + SIZE.head || y - this.top > height - 3 * SIZE.row) this.top = Math.max(0, y - height / 2);
    const begin = columns.begin[entry], end = begin + columns.length[entry], length = this.to - this.from;
    if (end < this.from || begin > this.to || end - begin > length || (end - begin) / length < 0.01) {
      const around = Math.max((end - begin) * 4, 200);
      this.show((begin + end - around) / 2, (begin + end + around) / 2);
    }
  }
  draw() {
    const canvas = this.canvas, ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    if (width === 0 || height === 0) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    this.width = width;
    this.scale = width / (this.to - this.from);
    this.drawn = {single: 0, runs: 0, runCalls: 0, merged: 0, rows: 0, away: 0, outputs: 0, hits: 0};
    const g = this.context, colours = this.page.colours;
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.fillStyle = colours.back;
    g.fillRect(0, 0, width, height);
    g.font = '12px ui-monospace, monospace';
    g.textBaseline = 'middle';
    this.character = g.measureText('m').width;
    let y = this.bar() - this.top;
    for (const track of this.page.data.tracks) {
      const size = this.trackHeight(track);
      if (y + size > 0 && y < height) this.drawTrack(track, y, height);
      y += size;
    }
    this.drawBar(height);
  }
  label(text, x, width, y, colour) {
    const room = Math.floor((width - 4) / this.character);
    if (room < 2) return;
    this.context.fillStyle = colour;
    this.context.fillText(text.length <= room ? text : text.slice(0, room - 1) + '\u2026', x + 3, y);
  }
  drawTrack(track, y, height) {
    const g = this.context, colours = this.page.colours, thread = track.thread, isFolded = this.folded.has(track.number);
    g.fillStyle = colours.raised;
    g.fillRect(0, y, this.width, SIZE.head);
    if (track.lane === 0) this.drawAway(thread, y);
    const lost = thread.lost !== 0 ? `, ${count(thread.lost)} events lost` : '';
    const stack = track.lane !== 0 ? `, stack ${track.lane}` : '';
    const text = `${isFolded ? '\u25b8' : '\u25be'} ${clean(thread.name || 'thread')} ${thread.tid}` +
      (this.page.data.about.processes.length > 1 ? ` of process ${thread.pid}` : '') + stack + lost;
    const width = Math.min(this.width, (text.length + 2) * this.character);
    g.fillStyle = colours.raised;
    g.fillRect(0, y, width, SIZE.head);
    this.label(text, 0, this.width, y + SIZE.head / 2, colours.text);
    for (const {ns, events} of track.lane === 0 ? thread.lostAt : []) {
      const x = this.x(ns);
      if (x < -200 || x > this.width) continue;
      g.fillStyle = colours.bad;
      g.fillRect(x, y, 2, this.trackHeight(track));
      this.label(`\u25b2 ${count(events)} events lost`, x, 400, y + SIZE.head / 2, colours.bad);
    }
    if (isFolded) return;
    for (let depth = 0; depth < track.depths; depth++) {
      const at = y + SIZE.head + depth * SIZE.row;
      if (at + SIZE.row > this.bar() && at < height) this.drawRow(track.rows[depth], at);
    }
  }
  /* Each reason has a pattern of its own, and its word where there is room. */
  drawAway(thread, y) {
    const g = this.context, list = thread.away, colours = this.page.colours;
    let low = 0, high = list.length;
    while (low < high) { const middle = (low + high) >>> 1; if (list[middle].end < this.from) low = middle + 1; else high = middle; }
    let last = -1;
    for (let i = Math.max(0, low - 8); i < list.length && list[i].begin < this.to; i++) {
      const x = Math.max(0, this.x(list[i].begin)), width = Math.max(1, Math.min(this.width, this.x(list[i].end)) - x);
      if (x + width <= last) continue;
      g.fillStyle = colours.patterns[list[i].reason] || colours.patterns[2];
      g.fillRect(x, y + 2, width, SIZE.head - 4);
      const word = AWAY[list[i].reason] || 'away';
      if (width > (word.length + 2) * this.character) {
        g.fillStyle = colours.back;
        g.fillRect(x + width / 2 - word.length * this.character / 2 - 2, y + 2, word.length * this.character + 4, SIZE.head - 4);
        this.label(word, x + width / 2 - word.length * this.character / 2 - 3, width, y + SIZE.head / 2, colours.text);
      }
      this.drawn.away++;
      last = Math.max(last, x + 0.5);
    }
  }
  drawRow(row, y) {
    const {columns} = this.page.data, begins = columns.begin, lengths = columns.length, from = this.from, to = this.to;
    const g = this.context, colours = this.page.colours, pixel = 1 / this.scale;
    this.drawn.rows++;
    let at = firstFrom(begins, row, from);
    if (at > 0 && begins[row[at - 1]] + lengths[row[at - 1]] > from) at--;
    while (at < row.length) {
      const entry = row[at], begin = begins[entry];
      if (begin > to) break;
      const width = lengths[entry] * this.scale;
      if (width >= 1 || (width > 0 && at + 1 < row.length && begins[row[at + 1]] > begin + pixel)) {
        this.drawEntry(entry, Math.max(-2, this.x(begin)), y, Math.min(this.x(begin + lengths[entry]), this.width + 2));
        at++;
        continue;
      }
      let next = Math.max(at + 1, firstFrom(begins, row, begin + pixel, at));
      if (next > at + 1 && lengths[row[next - 1]] >= pixel) next--; /* only the last one can be longer than the pixel */
      if (next === at + 1) {
        this.drawEntry(entry, this.x(begin), y, this.x(begin) + 1);
      } else {
        const isHit = this.page.hits !== null && this.hitsIn(row, at, next) !== 0;
        g.fillStyle = isHit ? colours.mark : colours.dim;
        g.fillRect(this.x(begin), y + 1, 1, SIZE.row - 2);
        this.drawn.merged += next - at;
      }
      at = next;
    }
  }
  /* How many of those places of a row match the search. */
  hitsIn(row, from, to) {
    const before = this.page.hitsBefore, at = row.byteOffset / row.BYTES_PER_ELEMENT, hits = before[at + to] - before[at + from];
    this.drawn.hits += hits;
    return hits;
  }
  drawEntry(entry, x, y, end) {
    const {columns} = this.page.data, g = this.context, colours = this.page.colours, more = columns.more[entry];
    const isRun = (more & IS_RUN) !== 0, kind = more & 31, width = Math.max(1, end - x), name = this.page.nameOf(columns.fn[entry]);
    const isHit = this.page.hits !== null && this.page.hits[columns.fn[entry]] === 1;
    if (isRun) { this.drawn.runs++; this.drawn.runCalls += columns.calls[entry]; } else this.drawn.single++;
    g.globalAlpha = this.page.hits !== null && !isHit ? 0.35 : 1;
    g.fillStyle = isRun ? colours.patterns.run : colours.fill(name);
    g.fillRect(x, y + 1, width - (width > 3 ? 0.5 : 0), SIZE.row - 2);
    if (width > 3) {
      g.fillStyle = colours.line;
      g.fillRect(x, y + 1, 0.5, SIZE.row - 2);
    }
    if (kind >= 14 && kind <= END.open && width > 6) { /* not ended: the right edge is torn */
      g.fillStyle = colours.back;
      for (let i = 0; i < 4; i++) g.fillRect(x + width - 4, y + 2 + i * 4, 4, 2);
    }
    if (kind === END.point || kind === END.orphan) {
      g.fillStyle = colours.text;
      g.fillRect(x, y + 1, 1.5, SIZE.row - 2);
      g.fillRect(x - 2, y + SIZE.row / 2 - 2, 5, 4);
    }
    g.globalAlpha = 1;
    if (width > 3 * this.character) {
      const sign = (more & UNCERTAIN ? '? ' : '') + (more & BEFORE ? '\u2026 ' : '');
      const text = isRun ? `\u00d7${count(columns.calls[entry])} ${name}` : sign + name;
      if (isRun) { /* letters do not lie on a pattern */
        g.fillStyle = colours.back;
        g.fillRect(x + 2, y + 3, Math.min(width - 4, (text.length + 1) * this.character), SIZE.row - 6);
      }
      this.label(text, Math.max(0, x), x + width - Math.max(0, x), y + SIZE.row / 2 + 0.5, colours.text);
    }
    if (isHit) {
      this.drawn.hits++;
      g.fillStyle = colours.mark;
      g.fillRect(x, y + SIZE.row - 3, width, 2.5);
    }
    if (entry === this.page.selected) {
      g.strokeStyle = colours.strong;
      g.lineWidth = 2;
      g.strokeRect(x, y + 1, Math.max(2, width - 1), SIZE.row - 2);
    }
  }
  drawBar(height) {
    const g = this.context, colours = this.page.colours, {about} = this.page.data, length = this.to - this.from;
    g.fillStyle = colours.back;
    g.fillRect(0, 0, this.width, this.bar());
    const rough = length / Math.max(2, this.width / 130), power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(1, [1, 2, 5, 10].find(n => n * power >= rough) * power);
    for (let ns = Math.ceil(this.from / step) * step; ns < this.to; ns += step) {
      g.fillStyle = colours.line;
      g.fillRect(this.x(ns), 0, 1, SIZE.ruler);
      const digits = Math.max(0, Math.min(9, 9 - Math.floor(Math.log10(step))));
      this.label((ns / 1e9).toFixed(digits) + ' s', this.x(ns), 200, SIZE.ruler / 2, colours.dim);
    }
    if (this.hasOutput()) this.drawOutput(about.output, SIZE.ruler);
    for (const crash of about.crashes) {
      crash.flag = null;
      if (!crash.in_range) continue;
      const x = Math.min(this.x(crash.ns), this.width + 10), word = clean(crash.crash.name || 'crash');
      if (x < 0 || x > this.width) continue;
      g.fillStyle = colours.bad;
      g.fillRect(x - 1, SIZE.ruler, 2, height);
      const room = (word.length + 3) * this.character, left = Math.min(x, this.width - room);
      crash.flag = {left, room};
      g.fillRect(left, SIZE.ruler, room, SIZE.output);
      this.label('\u2716 ' + word, left, room + 6, SIZE.ruler + SIZE.output / 2, colours.back);
    }
    g.fillStyle = colours.line;
    g.fillRect(0, this.bar() - 1, this.width, 1);
  }
  drawOutput(list, y) {
    const g = this.context, colours = this.page.colours;
    let low = 0, high = list.length;
    while (low < high) { const middle = (low + high) >>> 1; if (list[middle][0] < this.from) low = middle + 1; else high = middle; }
    for (let i = low, last = -1e9; i < list.length && list[i][0] <= this.to; i++) {
      const [ns, , , fd, text] = list[i], x = this.x(ns), next = i + 1 < list.length ? this.x(list[i + 1][0]) : this.width;
      this.drawn.outputs++;
      if (x < last + 1) continue;
      g.fillStyle = fd === 2 ? colours.bad : colours.text;
      g.fillRect(x, y + 1, 1.5, SIZE.output - 3);
      this.label((fd === 2 ? 'err ' : 'out ') + clean(text.split('\n')[0]), x, next - x, y + SIZE.output / 2, fd === 2 ? colours.bad : colours.text);
      last = x;
    }
  }
  /* What is at a place of the canvas: {entry}, {track}, {output} or nothing. */
  at(x, y) {
    const {columns, tracks, about} = this.page.data, ns = this.from + x / this.scale, slack = 3 / this.scale;
    if (y < this.bar()) {
      if (y < SIZE.ruler) return {};
      for (const crash of about.crashes) if (crash.flag && x >= crash.flag.left && x < crash.flag.left + crash.flag.room) return {crash};
      let best = -1;
      about.output.forEach((line, i) => { if (line[0] <= ns + slack) best = i; });
      return best >= 0 ? {output: best} : {};
    }
    let top = this.bar() - this.top;
    for (const track of tracks) {
      const size = this.trackHeight(track);
      if (y >= top && y < top + size) {
        const depth = Math.floor((y - top - SIZE.head) / SIZE.row), row = track.rows[depth];
        if (y < top + SIZE.head) return {track, away: track.thread.away.find(away => away.begin <= ns && ns <= away.end)};
        if (!row || this.folded.has(track.number)) return {};
        const place = firstFrom(columns.begin, row, ns + slack) - 1, entry = row[place];
        return place >= 0 && columns.begin[entry] + columns.length[entry] >= ns - slack ? {entry} : {};
      }
      top += size;
    }
    return {};
  }
  listen() {
    const canvas = this.canvas;
    let down = null;
    canvas.addEventListener('pointerdown', event => {
      down = {x: event.offsetX, y: event.offsetY, from: this.from, to: this.to, top: this.top, moved: false};
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', event => {
      if (!down) return;
      const x = event.offsetX - down.x, y = event.offsetY - down.y;
      down.moved = down.moved || Math.abs(x) + Math.abs(y) > 4;
      if (!down.moved) return;
      this.top = down.top;
      this.scroll(-y);
      this.show(down.from - x / this.scale, down.to - x / this.scale);
    });
    canvas.addEventListener('pointerup', event => {
      const wasClick = down && !down.moved;
      down = null;
      if (!wasClick) return;
      const found = this.at(event.offsetX, event.offsetY);
      if (found.entry !== undefined) this.page.select(found.entry);
      else if (found.away) this.page.tellAway(found.track.thread, found.away);
      else if (found.track) {
        if (!this.folded.delete(found.track.number)) this.folded.add(found.track.number);
        this.page.changed();
      } else if (found.output !== undefined) this.page.tellOutput(found.output);
      else if (found.crash) this.page.tellCrash(found.crash);
    });
    canvas.addEventListener('dblclick', event => {
      const {entry} = this.at(event.offsetX, event.offsetY), {columns} = this.page.data;
      if (entry !== undefined) this.show(columns.begin[entry] - columns.length[entry] * 0.05, columns.begin[entry] + columns.length[entry] * 1.05);
    });
    canvas.addEventListener('wheel', event => {
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) this.zoom(1.0015 ** event.deltaY, this.from + event.offsetX / this.scale);
      else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan((event.deltaX || event.deltaY) / this.width);
      else this.scroll(event.deltaY);
    }, {passive: false});
  }
}
