/* SPDX-License-Identifier: MIT */
/* The functions, one row for each of a module, over all processes; sums are of all calls, also of those in runs. */
const COLUMNS = [['name', 'Function'], ['module', 'Module'], ['calls', 'Calls'], ['total', 'Total'], ['self', 'Self'], ['off', 'Off'], ['average', 'Average'],
  ['least', 'Shortest'], ['most', 'Longest']];
const ROWS_MAX = 500;

/* How the calls of a function were seen, if not all one by one. */
const seen = sum => (sum.sampled ? '~' : '') + (sum.wasOut ? '>' : '') + (sum.counted ? '+' : '');

class Table {
  constructor(page) {
    this.page = page;
    this.key = 'self';
    this.isUp = false;
  }
  start() {
    const byName = new Map();
    this.page.data.about.functions.forEach((row, number) => {
      const key = JSON.stringify([row[FN.name], row[FN.module]]);
      let sum = byName.get(key);
      if (!sum) {
        sum = {name: row[FN.name], module: row[FN.module], file: row[FN.file], line: row[FN.line], numbers: [], calls: 0, total: 0, self: 0, off: 0, sampled: 0,
          counted: 0, wasOut: false, timed: false, least: Infinity, most: 0};
        byName.set(key, sum);
      }
      sum.numbers.push(number);
      for (const what of ['calls', 'total', 'self', 'off', 'sampled', 'counted']) sum[what] += row[FN[what]] || 0;
      sum.wasOut = sum.wasOut || row[FN.wasOut];
      if (row[FN.most] === null) return;
      sum.timed = true;
      sum.least = Math.min(sum.least, row[FN.least]);
      sum.most = Math.max(sum.most, row[FN.most]);
    });
    for (const sum of byName.values()) { /* of calls whose time is known */
      const calls = sum.calls - sum.sampled - sum.counted;
      sum.average = sum.timed && calls > 0 ? sum.total / calls : 0;
    }
    this.sums = [...byName.values()];
    const heads = make('tr');
    for (const [key, title] of COLUMNS) {
      const button = make('button', title), head = make('th', null, button);
      button.type = 'button';
      button.addEventListener('click', () => {
        this.isUp = this.key === key ? !this.isUp : key === 'name' || key === 'module';
        this.key = key;
        this.page.changed();
      });
      head.dataset.key = key;
      head.scope = 'col';
      if (key === 'name' || key === 'module') head.className = 'text';
      heads.append(head);
    }
    get('heads').append(heads);
  }
  draw() {
    const {page, key} = this, direction = this.isUp ? 1 : -1, isText = key === 'name' || key === 'module';
    const chosen = this.sums.filter(sum => page.match === null || page.match(sum.name));
    chosen.sort((a, b) => direction * (isText ? (a[key] < b[key] ? -1 : a[key] > b[key] ? 1 : 0) : a[key] - b[key]));
    const rows = chosen.slice(0, ROWS_MAX).map(sum => this.row(sum));
    get('rows').replaceChildren(...rows);
    for (const head of get('heads').firstChild.children) {
      const isKey = head.dataset.key === key;
      head.setAttribute('aria-sort', isKey ? (this.isUp ? 'ascending' : 'descending') : 'none');
      head.firstChild.textContent = COLUMNS.find(column => column[0] === head.dataset.key)[1] + (isKey ? (this.isUp ? ' \u25b2' : ' \u25bc') : '');
    }
    get('tablenote').textContent = `${count(chosen.length)} functions` + (page.match !== null ? ` of ${count(this.sums.length)} match` : '') +
      (chosen.length > ROWS_MAX ? `; the first ${ROWS_MAX} are shown: search for others` : '') +
      (chosen.some(sum => sum.sampled) ? '; calls with ~ are estimated: they were sampled' : '') +
      (chosen.some(sum => sum.wasOut) ? '; calls with > are not all: the function was not seen for some time (--budget)' : '') +
      (chosen.some(sum => sum.counted) ? '; calls with + were partly only counted, without their time (--budget)' : '') +
      (page.data.about.off_is_bound ? '; time off the processor is known as a bound only, and not shown of calls' : '');
  }
  row(sum) {
    const row = make('tr');
    for (const [key] of COLUMNS) {
      const isText = key === 'name' || key === 'module', cell = make('td');
      if (isText) cell.className = 'text';
      if (key === 'name') {
        const button = make('button', this.page.shown(sum.name));
        button.title = clean(sum.name);
        button.type = 'button';
        button.className = 'link';
        button.addEventListener('click', () => this.page.tellFunction(sum));
        cell.append(button);
      } else {
        cell.textContent = isText ? clean(sum.module) : key === 'calls' ? seen(sum) + count(sum.calls) : sum.timed ? duration(sum[key]) : '-';
      }
      row.append(cell);
    }
    return row;
  }
}
