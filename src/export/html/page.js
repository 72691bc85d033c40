/* SPDX-License-Identifier: MIT */
/* The page as a whole: views, search, keys, the address that keeps what is shown, and what is to be known of the trace. */
const VIEWS = ['time', 'flame', 'table'];
const KEYS = [['w, s', 'closer, further'], ['a, d', 'to the left, to the right'], ['arrows', 'of the selected call: the one before and after, its caller, the first in it'],
  ['Enter', 'the selected call fills the width'], ['0', 'everything'], ['/', 'search'], ['n, N', 'next and last call that matches'], ['Page up, down', 'scroll'],
  ['1, 2, 3', 'time line, flame graph, functions'], ['t', 'light, dark, as the system'], ['Escape', 'nothing selected, no search'], ['?', 'these keys'],
  ['wheel', 'scrolls; with Ctrl: closer, further; with Shift: left, right'], ['click', 'selects; on a thread: folds it; twice: fills the width']];

class Page {
  constructor(data) {
    this.data = data;
    this.view = 'time';
    this.selected = -1;
    this.query = '';
    this.match = null; /* of names; NULL: no search */
    this.hits = null; /* by function */
    this.hitsBefore = null; /* of all rows, one after the other: how many entries before a place match */
    this.shortNames = new Map(Object.entries(data.about.short_names || {}));
    this.names = data.about.functions.map(row => this.shown(row[FN.name]));
    this.timeline = new Timeline(this, get('timeline'));
    this.flame = new Flame(this, get('flamegraph'));
    this.table = new Table(this);
    this.isDue = false;
  }
  nameOf(fn) {
    return this.names[fn];
  }
  /* A name where there is little room; the details have it whole. */
  shown(name) {
    return clean(this.shortNames.get(name) || name);
  }
  start() {
    get('title').textContent = document.title = 'contrail: ' + clean(this.data.about.program);
    this.tellKnown();
    this.takeColours();
    this.table.start();
    this.timeline.start();
    this.listen();
    this.takeHash();
    this.draw();
  }
  /* ---- what is shown ---- */
  changed() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => { this.isDue = false; this.draw(); });
  }
  draw() {
    const began = performance.now(), root = document.documentElement.dataset;
    for (const view of VIEWS) get(view).hidden = view !== this.view;
    for (const button of get('tabs').children) button.setAttribute('aria-pressed', String(button.dataset.view === this.view));
    if (this.view === 'time') this.timeline.draw();
    else if (this.view === 'flame') this.flame.draw();
    else this.table.draw();
    const drawn = this.view === 'flame' ? this.flame.drawn : this.view === 'time' ? this.timeline.drawn : {};
    root.view = this.view;
    root.drawn = JSON.stringify(drawn);
    root.drawMs = (performance.now() - began).toFixed(1);
    this.keepHash();
  }
  takeColours() {
    const style = getComputedStyle(document.documentElement), of = name => style.getPropertyValue('--' + name).trim();
    const fills = new Map(), strength = of('fill-strength'), light = of('fill-light');
    const colours = {back: of('back'), raised: of('raised'), line: of('line'), text: of('text'), dim: of('dim'), strong: of('strong'), mark: of('mark'), bad: of('bad')};
    colours.fill = name => {
      const hue = hueOf(name);
      if (!fills.has(hue)) fills.set(hue, `hsl(${hue} ${strength} ${light})`);
      return fills.get(hue);
    };
    const pattern = draw => {
      const tile = make('canvas'), g = tile.getContext('2d');
      tile.width = tile.height = 8;
      g.fillStyle = colours.raised;
      g.fillRect(0, 0, 8, 8);
      g.strokeStyle = g.fillStyle = colours.dim;
      draw(g);
      return this.timeline.context.createPattern(tile, 'repeat');
    };
    const lines = (...all) => g => {
      g.beginPath();
      for (const [x, y, u, v] of all) { g.moveTo(x, y); g.lineTo(u, v); }
      g.stroke();
    };
    colours.patterns = {run: pattern(lines([0, 0, 0, 8], [4, 0, 4, 8])), 1: pattern(lines([0, 2, 8, 2], [0, 6, 8, 6])),
      2: pattern(lines([0, 8, 8, 0], [-2, 2, 2, -2], [6, 10, 10, 6])), 3: pattern(g => { g.fillRect(1, 1, 2, 2); g.fillRect(5, 5, 2, 2); }),
      4: pattern(lines([0, 0, 8, 8], [0, 8, 8, 0]))};
    this.colours = colours;
  }
  setTheme(theme) {
    if (theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    this.theme = theme;
    this.takeColours();
    this.changed();
  }
  /* ---- what is to be known ---- */
  tellKnown() {
    const {about} = this.data, known = [];
    const say = (number, text) => { if (number) known.push(count(number) + ' ' + text); };
    if (!about.is_complete) known.push('The recording has not ended in order, or is still under way.');
    if (about.has_range) known.push('This is a piece of the trace.');
    if (about.has_filter) known.push('A filter has chosen calls: what else they called, or were called from, is not here, but for the paths of the flame graph.');
    say(about.damaged, 'threads have a damaged file: what follows the damage is missing.');
    if (about.runs) known.push(`${count(about.in_runs)} calls shorter than ${duration(about.bound_ns)} have no entry of their own: they are together in ${count(about.runs)} runs (striped, with their number). The functions and the flame graph have all calls.`);
    say(about.too_deep, 'calls are too deep for the time line.');
    say(about.lost, 'events were lost by the recording.');
    say(about.open, 'calls had not ended: their right edge is torn.');
    say(about.uncertain, 'calls have an uncertain end, since events were lost: a ? is before their names.');
    say(about.before, 'calls were open before the begin: \u2026 is before their names.');
    say(about.points, 'entries are calls without an end (marks): only their begin is recorded, perhaps of one in so many.');
    say(about.orphans, 'returns have no call in the trace (marks).');
    say(about.counted, 'calls were only counted: they are in the functions, and not on the time line.');
    say(about.values_left_out, 'values of calls are left out: there were too many.');
    say(about.away_left_out, 'stretches off the processor are left out: there were too many.');
    say(about.output_left_out, 'writes of the program are left out: there were too many.');
    say(about.paths_folded, 'paths of the flame graph, the thinnest, are in frames named (other).');
    if (about.off_is_bound) known.push('Time off the processor is known as a bound only: it is not shown of calls.');
    known.push(...about.warnings.map(clean));
    for (const crash of about.crashes) known.push(`process ${crash.pid} was ended by ${clean(crash.crash.name || 'a signal')} at ${moment(crash.ns)}`);
    known.push(`Made by contrail ${clean(about.version)}; durations: ${about.time} time; times are since the begin of the recording.`);
    get('known').replaceChildren(...known.map(line => make('li', line)));
    const threads = about.threads.length;
    get('summary').textContent = `${count(about.calls)} calls of ${count(threads)} thread${threads === 1 ? '' : 's'}` +
      (about.runs ? `; ${count(about.in_runs)} short ones are together in ${count(about.runs)} runs` : '') + (about.lost ? `; ${count(about.lost)} events lost` : '') +
      (about.open ? `; ${count(about.open)} not ended` : '') + `; ${count(known.length)} things to know`;
  }
  select(entry) {
    this.selected = entry;
    if (entry >= 0) {
      this.timeline.reveal(entry);
      tellEntry(this, entry);
    } else get('details').replaceChildren(make('p', 'A click selects a call; ? shows the keys.'));
    this.changed();
  }
  tellFunction(sum) { tellFunction(this, sum); }
  tellPath(path) { tellPath(this, path); }
  tellOutput(number) { tellOutput(this, number); }
  tellCrash(crash) { tellCrash(this, crash); }
  tellAway(thread, away) {
    get('details').replaceChildren(make('h2', AWAY[away.reason] || 'away'), list([['thread', `${clean(thread.name || 'thread')} ${thread.tid}`], ['from', moment(away.begin)],
      ['to', moment(away.end)], ['for', duration(away.end - away.begin)]]));
  }
  /* ---- search ---- */
  search(query) {
    this.query = query;
    this.match = matcher(query);
    this.hits = null;
    let functions = 0, calls = 0;
    if (this.match !== null) {
      this.hits = Uint8Array.from(this.data.about.functions, row => this.match(row[FN.name]) ? 1 : 0);
      this.data.about.functions.forEach((row, i) => { if (this.hits[i]) { functions++; calls += row[FN.calls]; } });
      const {order, columns} = this.data, before = this.hitsBefore = new Uint32Array(order.length + 1);
      for (let i = 0; i < order.length; i++) before[i + 1] = before[i] + this.hits[columns.fn[order[i]]];
    }
    get('found').textContent = query === '' ? '' : this.match === null ? 'no such expression' : `${count(functions)} function${functions === 1 ? '' : 's'}, ${count(calls)} call${calls === 1 ? '' : 's'}`;
    this.changed();
  }
  /* The next entry that matches, in the order of time. */
  step(direction) {
    if (this.hits === null) return;
    const {columns} = this.data, hits = this.hits, here = this.selected;
    const at = here >= 0 ? columns.begin[here] : direction > 0 ? -Infinity : Infinity;
    let best = -1;
    for (let i = 0; i < columns.count; i++) {
      if (!hits[columns.fn[i]] || i === here) continue;
      const after = (columns.begin[i] - at) * direction || (i - here) * direction;
      if (after <= 0) continue;
      if (best < 0 || (columns.begin[i] - columns.begin[best]) * direction < 0 || (columns.begin[i] === columns.begin[best] && (i - best) * direction < 0)) best = i;
    }
    if (best >= 0) this.select(best);
  }
  /* ---- keys ---- */
  walk(key) {
    const {columns, tracks} = this.data, entry = this.selected;
    if (entry < 0) return false;
    const row = tracks[columns.track[entry]].rows[columns.depth[entry]], place = firstFrom(columns.begin, row, columns.begin[entry]);
    let at = row.indexOf(entry, place);
    at = at < 0 ? place : at;
    let next = -1;
    if (key === 'ArrowLeft') next = at > 0 ? row[at - 1] : -1;
    else if (key === 'ArrowRight') next = at + 1 < row.length ? row[at + 1] : -1;
    else if (key === 'ArrowUp') next = parentOf(this.data, entry);
    else {
      const {row: inside, low, high} = childrenOf(this.data, entry);
      next = low < high ? inside[low] : -1;
    }
    if (next >= 0) this.select(next);
    return true;
  }
  key(event) {
    const {timeline} = this, {columns} = this.data, key = event.key;
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.target === get('search')) {
      if (key === 'Escape') { get('search').value = ''; this.search(''); get('search').blur(); }
      if (key === 'Enter') { this.view = this.view === 'flame' || this.view === 'table' ? this.view : 'time'; if (this.view === 'time') this.step(event.shiftKey ? -1 : 1); }
      return;
    }
    if (event.target instanceof HTMLSelectElement || get('help').open) return;
    const isTime = this.view === 'time', actions = {w: () => timeline.zoom(0.7), s: () => timeline.zoom(1 / 0.7), a: () => timeline.pan(-0.15), d: () => timeline.pan(0.15),
      PageUp: () => timeline.scroll(-300), PageDown: () => timeline.scroll(300)};
    if (isTime && actions[key]) actions[key]();
    else if (isTime && key.startsWith('Arrow')) {
      if (!this.walk(key)) ({ArrowLeft: actions.a, ArrowRight: actions.d, ArrowUp: () => timeline.scroll(-60), ArrowDown: () => timeline.scroll(60)})[key]();
    } else if (isTime && key === 'Enter' && event.target.tagName !== 'BUTTON' && this.selected >= 0) {
      const begin = columns.begin[this.selected], length = columns.length[this.selected];
      timeline.show(begin - length * 0.05, begin + length * 1.05);
    } else if (key === '/') get('search').focus();
    else if (key === 'n' || key === 'N') this.step(key === 'n' ? 1 : -1);
    else if (key === '0') { timeline.whole(); this.flame.zoomed = -1; this.changed(); } else if ('123'.includes(key)) this.show(VIEWS[key - 1]);
    else if (key === 't') this.nextTheme();
    else if (key === 'Escape') { get('search').value = ''; this.search(''); this.select(-1); } else if (key === '?') this.help();
    else return;
    event.preventDefault();
  }
  show(view) {
    this.view = view;
    this.changed();
  }
  nextTheme() {
    const themes = ['auto', 'light', 'dark'];
    this.setTheme(themes[(themes.indexOf(this.theme || 'auto') + 1) % 3]);
  }
  help() {
    get('keylist').replaceChildren(...KEYS.flatMap(([key, what]) => [make('dt', key), make('dd', what)]));
    get('help').showModal();
  }
  listen() {
    document.addEventListener('keydown', event => this.key(event));
    for (const button of get('tabs').children) button.addEventListener('click', () => this.show(button.dataset.view));
    get('search').addEventListener('input', () => this.search(get('search').value));
    get('theme').addEventListener('click', () => this.nextTheme());
    get('keys').addEventListener('click', () => this.help());
    get('weight').addEventListener('change', () => { this.flame.weight = get('weight').value; this.changed(); });
    get('whole').addEventListener('click', () => { this.flame.zoomed = -1; this.changed(); });
    addEventListener('resize', () => this.changed());
    addEventListener('hashchange', () => { if (location.hash !== this.kept) { this.takeHash(); this.changed(); } });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { this.takeColours(); this.changed(); });
    new ResizeObserver(() => this.changed()).observe(document.querySelector('main'));
  }
  /* ---- the address ---- */
  keepHash() {
    const {timeline, flame, table} = this, kept = new URLSearchParams({view: this.view, from: Math.round(timeline.from), to: Math.round(timeline.to)});
    if (timeline.top) kept.set('top', Math.round(timeline.top));
    if (this.selected >= 0) kept.set('entry', this.selected);
    if (this.query) kept.set('search', this.query);
    if (this.theme && this.theme !== 'auto') kept.set('theme', this.theme);
    if (flame.zoomed >= 0) kept.set('path', flame.zoomed);
    if (flame.weight !== 'time') kept.set('weight', flame.weight);
    if (table.key !== 'self' || table.isUp) kept.set('sort', table.key + (table.isUp ? ' up' : ''));
    this.kept = '#' + kept;
    clearTimeout(this.keeping); /* a browser takes so many changes in a time */
    this.keeping = setTimeout(() => { if (location.hash !== this.kept) history.replaceState(null, '', this.kept); }, 150);
  }
  /* What an address says is not believed: what is not there, or makes no sense, is passed over. */
  takeHash() {
    const asked = new URLSearchParams(location.hash.slice(1)), {timeline, flame, table, data} = this;
    const number = name => asked.has(name) && Number.isFinite(Number(asked.get(name))) ? Number(asked.get(name)) : undefined;
    if (VIEWS.includes(asked.get('view'))) this.view = asked.get('view');
    if (['light', 'dark'].includes(asked.get('theme'))) this.setTheme(asked.get('theme'));
    get('search').value = asked.get('search') || '';
    this.search(get('search').value);
    const entry = number('entry'), path = number('path'), [key, up] = (asked.get('sort') || 'self').split(' ');
    this.select(Number.isInteger(entry) && entry >= 0 && entry < data.columns.count ? entry : -1);
    if (number('from') < number('to')) timeline.show(number('from'), number('to'));
    if (number('top') >= 0) timeline.top = number('top');
    flame.zoomed = Number.isInteger(path) && path >= 0 && path < data.paths.length ? path : -1;
    flame.weight = ['calls', 'off'].includes(asked.get('weight')) ? asked.get('weight') : 'time';
    get('weight').value = flame.weight;
    if (COLUMNS.some(column => column[0] === key)) table.key = key;
    table.isUp = up === 'up';
  }
}

async function begin() {
  const root = document.documentElement.dataset, began = performance.now();
  try {
    const page = new Page(await load());
    page.start();
    root.entries = page.data.columns.count;
    root.loadMs = Math.round(performance.now() - began);
    root.state = 'ready';
  } catch (error) {
    get('summary').textContent = 'This page cannot be shown: ' + error.message;
    get('summary').className = 'bad';
    root.state = 'failed';
    throw error;
  }
}
begin();
