/* SPDX-License-Identifier: MIT */
/* What the panel at the side says: of an entry, a function, a path, a stretch away, a line of output, the crash. */
const PARENTS_MAX = 60, SLOWEST = 12;

function list(rows) {
  const element = make('dl');
  for (const [name, value] of rows) {
    if (value === undefined || value === null || value === '') continue;
    element.append(make('dt', name), make('dd', null, typeof value === 'object' ? value : String(value)));
  }
  return element;
}

function link(text, action) {
  const button = make('button', text);
  button.type = 'button';
  button.className = 'link';
  button.addEventListener('click', action);
  return button;
}

/* The entry of the next depth up that an entry lies in; -1: it is not here. */
function parentOf(data, entry) {
  const {columns, tracks} = data, row = tracks[columns.track[entry]].rows[columns.depth[entry] - 1];
  if (!row) return -1;
  const at = firstFrom(columns.begin, row, columns.begin[entry] + 0.5) - 1, end = columns.begin[entry] + columns.length[entry];
  return at >= 0 && columns.begin[row[at]] + columns.length[row[at]] >= end ? row[at] : -1;
}

/* The entries that lie directly in it, as places of a list. */
function childrenOf(data, entry) {
  const {columns, tracks} = data, row = tracks[columns.track[entry]].rows[columns.depth[entry] + 1] || new Uint32Array(0);
  const begin = columns.begin[entry], end = begin + columns.length[entry];
  let low = firstFrom(columns.begin, row, begin), high = firstFrom(columns.begin, row, end + 0.5);
  while (low < high && parentOf(data, row[low]) !== entry) low++;
  while (high > low && parentOf(data, row[high - 1]) !== entry) high--;
  return {row, low, high};
}

function entryDoubts(data, entry) {
  const {more} = data.columns, lines = [];
  if (more[entry] & UNCERTAIN) lines.push('Events were lost while it was open: its end is uncertain.');
  if (more[entry] & BEFORE) lines.push('It was open when the recording, or the piece, began: it is longer than it seems.');
  if ((more[entry] & 31) === END.open && !(more[entry] & IS_RUN)) lines.push('It was still open where the trace ends: it may have lasted longer.');
  return lines;
}

function entryRows(page, entry) {
  const {columns, about, tracks} = page.data, kind = columns.more[entry] & 31, isRun = (columns.more[entry] & IS_RUN) !== 0;
  const track = tracks[columns.track[entry]], thread = track.thread, fn = about.functions[columns.fn[entry]];
  const values = isRun ? {} : thread.values.get(columns.ordinal[entry]) || {};
  const isCall = isRun || kind < END.orphan, clock = columns.length[entry];
  return [['calls', isRun ? `${count(columns.calls[entry])}, each shorter than ${duration(about.bound_ns)}` :
    kind === END.point && columns.calls[entry] !== 1 ? `stands for ${count(columns.calls[entry])} (sampled)` : ''],
  ['longest', isRun ? clean(fn[FN.name]) : ''],
  ['module', clean(fn[FN.module])],
  ['source', fn[FN.file] ? clean(fn[FN.file]) + (fn[FN.line] ? ':' + fn[FN.line] : '') : ''],
  ['thread', `${clean(thread.name || 'thread')} ${thread.tid}, process ${thread.pid}` + (track.lane !== 0 ? `, stack ${track.lane}` : '')],
  ['from', moment(columns.begin[entry])],
  ['to', isCall ? moment(columns.begin[entry] + clock) : ''],
  ['on the clock', isCall ? duration(clock) : ''],
  ['duration', isCall ? `${duration(columns.own[entry])} (${about.time})` : ''],
  ['self', isCall && !isRun ? duration(columns.self[entry]) : ''],
  ['off processor', isCall ? (about.off_is_bound ? 'not known of single calls' : duration(columns.off[entry])) : ''],
  ['depth', columns.depth[entry]],
  ['end', isRun ? '' : about.ends[kind] || 'not known'],
  ['arguments', values.arguments === undefined ? '' : make('pre', clean(values.arguments))],
  ['result', values.result === undefined ? '' : make('pre', clean(values.result.replace(/^ = /, '')))]];
}

function tellEntry(page, entry) {
  const {data} = page, {columns, about} = data, panel = get('details');
  const isRun = (columns.more[entry] & IS_RUN) !== 0, name = clean(about.functions[columns.fn[entry]][FN.name]);
  panel.replaceChildren(make('h2', isRun ? 'Short calls, together' : name), list(entryRows(page, entry)));
  for (const line of entryDoubts(data, entry)) panel.append(make('p', line));
  const parents = make('ol');
  let parent = parentOf(data, entry), last = entry, shown = 0;
  for (; parent >= 0 && shown < PARENTS_MAX; shown++) {
    const number = parent;
    parents.append(make('li', null, link(page.nameOf(columns.fn[number]), () => page.select(number))));
    last = parent;
    parent = parentOf(data, parent);
  }
  panel.append(make('h3', 'Called from'), parents);
  if (parent >= 0) panel.append(make('p', `and ${count(columns.depth[last])} more`));
  else if (columns.depth[last] !== 0) panel.append(make('p', 'Its caller is not in this page (a filter, or it is not known).'));
  else if (shown === 0) panel.append(make('p', 'Nothing: it is the outermost call that is known.'));
  const {row, low, high} = childrenOf(data, entry);
  let calls = 0;
  for (let i = low; i < high; i++) calls += columns.calls[row[i]];
  if (calls !== 0 && !isRun) panel.append(make('p', `${count(calls)} call${calls === 1 ? '' : 's'} directly in it, or together with those inside short ones.`));
  const sum = page.table.sums.find(item => item.numbers.includes(columns.fn[entry]));
  panel.append(make('h3', 'Function'), link(clean(about.functions[columns.fn[entry]][FN.name]), () => page.tellFunction(sum)));
}

function tellFunction(page, sum) {
  const {columns} = page.data, panel = get('details'), wanted = new Set(sum.numbers), slowest = [];
  for (let i = 0; i < columns.count; i++) {
    if (!wanted.has(columns.fn[i]) || columns.more[i] & IS_RUN) continue;
    if (slowest.length === SLOWEST && columns.own[i] <= columns.own[slowest[SLOWEST - 1]]) continue;
    slowest.push(i);
    slowest.sort((a, b) => columns.own[b] - columns.own[a]);
    slowest.length = Math.min(slowest.length, SLOWEST);
  }
  panel.replaceChildren(make('h2', clean(sum.name)), list([['module', clean(sum.module)], ['source', sum.file ? clean(sum.file) + (sum.line ? ':' + sum.line : '') : ''],
    ['calls', count(sum.calls)], ['estimated', sum.sampled ? `${count(sum.sampled)} of them: they were sampled` : ''],
    ['only counted', sum.counted ? `${count(sum.counted)} of them, without their time` : ''], ['not seen', sum.wasOut ? 'for some time (--budget)' : ''],
    ...sum.timed ? [['total', duration(sum.total)], ['self', duration(sum.self)], ['off processor', page.data.about.off_is_bound ? 'a bound only' : duration(sum.off)],
      ['average', duration(sum.average)], ['shortest', duration(sum.least)], ['longest', duration(sum.most)]] : [['time', 'not recorded']]]));
  const calls = make('ol');
  for (const entry of slowest) calls.append(make('li', null, link(`${duration(columns.own[entry])} at ${moment(columns.begin[entry])}`, () => { page.view = 'time'; page.select(entry); })));
  panel.append(make('h3', 'Its longest calls'), slowest.length !== 0 ? calls : make('p', 'All are too short for an entry of their own.'));
}

function tellPath(page, number) {
  const {paths} = page.data, path = paths[number], panel = get('details'), callers = make('ol');
  for (let at = path.parent; at >= 0; at = paths[at].parent) callers.append(make('li', clean(paths[at].name)));
  panel.replaceChildren(make('h2', clean(path.name)), list([['calls', count(path.self.calls)], ['total', duration(path.total.time)], ['self', duration(path.self.time)],
    ['off, total', duration(path.total.off)], ['off, self', duration(path.self.off)]]), make('h3', 'Path, from the callee on'), callers);
}

function tellOutput(page, number) {
  const [ns, pid, tid, fd, text, isCut] = page.data.about.output[number], panel = get('details');
  const lines = text.split('\n').map(clean).join('\n');
  panel.replaceChildren(make('h2', fd === 2 ? 'Standard error' : 'Standard output'), list([['at', moment(ns)], ['thread', `${tid}, process ${pid}`]]), make('pre', lines));
  if (isCut) panel.append(make('p', 'Not all of what was written was kept.'));
}

/* The crash comes from a file as it is: what is no list has nothing in it. */
const items = value => Array.isArray(value) ? value.filter(item => item !== null && typeof item === 'object') : [];

function tellCrash(page, {ns, pid, crash}) {
  const panel = get('details'), head = make('h2', `${clean(crash.name || 'signal')}${crash.meaning ? ': ' + clean(crash.meaning) : ''}`);
  head.className = 'bad';
  panel.replaceChildren(head, list([['at', moment(ns)], ['process', pid], ['thread', crash.tid], ['address', crash.address && clean(crash.address)]]));
  for (const thread of items(crash.threads)) {
    const frames = make('ol'), calls = make('ol');
    for (const frame of items(thread.backtrace))
      frames.append(make('li', clean(frame.function || frame.pc || '?') + (frame.file ? ` at ${clean(frame.file)}:${clean(frame.line)}` : '')));
    for (const call of items(thread.last_calls)) calls.append(make('li', `${clean(call.name || '?')}${pid === page.data.about.processes[0].pid ? ' at ' + moment(Number(call.time_ns) || 0) : ''}${call.open ? ', not ended' : ''}`));
    panel.append(make('h3', `Thread ${clean(thread.thread_name || '')} ${clean(thread.tid)}`), frames);
    if (calls.children.length !== 0) panel.append(make('h3', 'Last calls'), calls);
  }
}
