/* SPDX-License-Identifier: MIT */
/*
 * The data of the page: the stream that html_stream.h describes, read into columns. An entry is a call of its own, or a
 * run of short ones; entries have numbers from 0 on. A track is a stack of a thread; it has a list of entries for each
 * depth, in the order of time.
 */
const PIECE = {spans: 1, away: 2, values: 3, paths: 4, lost: 5};
const END = {open: 16, orphan: 17, point: 18};
const IS_RUN = 128, UNCERTAIN = 32, BEFORE = 64;

class Reader {
  constructor(bytes, at, end) {
    this.bytes = bytes;
    this.at = at;
    this.end = end;
  }
  number() {
    const bytes = this.bytes;
    let byte = bytes[this.at++];
    if (byte < 128) return byte;
    let value = byte & 127, factor = 128;
    do {
      if (this.at >= this.end) throw new Error('the data of this page are damaged');
      byte = bytes[this.at++];
      value += (byte & 127) * factor;
      factor *= 128;
    } while (byte > 127);
    return value;
  }
  signed() {
    const value = this.number();
    if (value < 0x80000000) return (value >>> 1) ^ -(value & 1);
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }
  part() {
    const bytes = this.number(), part = new Reader(this.bytes, this.at, this.at + bytes);
    this.at += bytes;
    return part;
  }
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/', value = new Uint8Array(128);
  for (let i = 0; i < 64; i++) value[digits.charCodeAt(i)] = i;
  const length = text.length, pad = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0, bytes = new Uint8Array(length / 4 * 3);
  for (let i = 0, to = 0; i < length; i += 4) {
    const group = value[text.charCodeAt(i)] << 18 | value[text.charCodeAt(i + 1)] << 12 | value[text.charCodeAt(i + 2)] << 6 |
      value[text.charCodeAt(i + 3)];
    bytes[to++] = group >> 16;
    bytes[to++] = group >> 8;
    bytes[to++] = group;
  }
  return bytes.subarray(0, bytes.length - pad);
}

async function inflate(packed, size) {
  const reader = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate')).getReader();
  const bytes = new Uint8Array(size);
  let at = 0;
  for (;;) {
    const {done, value} = await reader.read();
    if (done) break;
    bytes.set(value, at);
    at += value.length;
  }
  if (at !== size) throw new Error('the data of this page are cut short');
  return bytes;
}

function makeColumns(count) {
  return {count, begin: new Float64Array(count), length: new Float64Array(count), own: new Float64Array(count),
    self: new Float64Array(count), off: new Float64Array(count), ordinal: new Float64Array(count), calls: new Uint32Array(count),
    fn: new Uint32Array(count), track: new Uint32Array(count), depth: new Uint16Array(count), more: new Uint8Array(count)};
}

/* Entries of a piece, from the number `to` on. */
function readSpans(piece, columns, to, trackOf) {
  const head = piece.part(), thread = head.number(), lane = head.number(), count = head.number();
  const [shape, fn, ends, length, own, inside, off, ordinals, more] = Array.from({length: 9}, () => piece.part());
  const track = trackOf(thread, lane), sums = track.inside;
  let depth = 0, end = 0, ordinal = 0;
  for (let i = to; i < to + count; i++) {
    const step = shape.number(), hasMore = step & 1, zigzag = Math.floor(step / 2);
    depth += (zigzag >>> 1) ^ -(zigzag & 1);
    end += ends.signed();
    ordinal += ordinals.signed();
    const clock = length.number(), duration = clock - own.signed();
    columns.fn[i] = fn.number();
    columns.begin[i] = end - clock;
    columns.length[i] = clock;
    columns.own[i] = duration;
    columns.self[i] = duration - ((sums[depth + 1] || 0) + inside.signed());
    columns.off[i] = off.number();
    columns.ordinal[i] = ordinal;
    columns.depth[i] = depth;
    columns.track[i] = track.number;
    columns.calls[i] = 1;
    if (hasMore) {
      const bits = more.number(), isRun = bits >= 256;
      columns.more[i] = (bits & 127) | (isRun ? IS_RUN : 0);
      if (isRun || (bits & 31) === END.point) columns.calls[i] = more.number();
    }
    sums[depth + 1] = 0;
    sums[depth] = (sums[depth] || 0) + duration;
    track.count++;
    if (depth + 1 > track.depths) track.depths = depth + 1;
  }
  return count;
}

function readAway(piece, threads) {
  const head = piece.part(), list = threads[head.number()].away, [ends, lengths, reasons] = [piece.part(), piece.part(), piece.part()];
  let end = 0;
  while (ends.at < ends.end) {
    end += ends.signed();
    const length = lengths.number();
    list.push({begin: end - length, end, reason: reasons.number()});
  }
}

function readValues(piece, threads) {
  const values = threads[piece.number()].values, text = new TextDecoder();
  let ordinal = 0;
  while (piece.at < piece.end) {
    const head = piece.number(), isResult = head % 2 === 1, zigzag = Math.floor(head / 2);
    ordinal += zigzag % 2 === 0 ? zigzag / 2 : -(zigzag + 1) / 2;
    const bytes = piece.number(), value = text.decode(piece.bytes.subarray(piece.at, piece.at + bytes));
    piece.at += bytes;
    const known = values.get(ordinal) || {};
    known[isResult ? 'result' : 'arguments'] = value;
    values.set(ordinal, known);
  }
}

/* A list in which callees follow their caller, with the weights of each and of all below it. */
function readPaths(piece, names) {
  const paths = [];
  while (piece.at < piece.end) {
    const depth = piece.number(), name = names[piece.number()], time = piece.number(), off = piece.number(), calls = piece.number();
    paths.push({depth, name, self: {time, off, calls}, total: {time, off, calls}, parent: -1});
  }
  const open = [];
  paths.forEach((path, i) => {
    open.length = path.depth;
    if (path.depth > 0) path.parent = open[path.depth - 1];
    open.push(i);
  });
  for (let i = paths.length - 1; i >= 0; i--) {
    const parent = paths[paths[i].parent];
    if (parent) for (const weight of ['time', 'off', 'calls']) parent.total[weight] += paths[i].total[weight];
  }
  return paths;
}

/* The list of each depth. Calls of a stack do not overlap, so the order is that of their ends too. */
function makeRows(data) {
  const {columns, tracks} = data;
  const order = data.order = new Uint32Array(columns.count); /* all rows, one after the other: a row is a piece of it */
  let at = 0;
  for (const track of tracks) {
    const sizes = new Uint32Array(track.depths);
    track.rows = [];
    for (const [first, count] of track.pieces) for (let i = first; i < first + count; i++) sizes[columns.depth[i]]++;
    for (let depth = 0; depth < track.depths; depth++) {
      track.rows.push(order.subarray(at, at + sizes[depth]));
      at += sizes[depth];
    }
    sizes.fill(0);
    for (const [first, count] of track.pieces) for (let i = first; i < first + count; i++) {
      const depth = columns.depth[i];
      track.rows[depth][sizes[depth]++] = i;
    }
    for (const row of track.rows) {
      for (let i = 1; i < row.length; i++) if (columns.begin[row[i]] < columns.begin[row[i - 1]]) {
        row.sort((a, b) => columns.begin[a] - columns.begin[b]);
        break;
      }
    }
  }
}

function readStream(bytes, about) {
  const threads = about.threads.map((thread, number) => ({...thread, number, away: [], values: new Map(), lostAt: []}));
  const tracks = [], byKey = new Map(), spans = [];
  const data = {about, threads, tracks, paths: []};
  const trackOf = (thread, lane) => {
    const key = thread + '.' + lane;
    let track = byKey.get(key);
    if (!track) {
      track = {number: tracks.length, thread: threads[thread], lane, count: 0, depths: 0, rows: [], pieces: [], inside: []};
      byKey.set(key, track);
      tracks.push(track);
    }
    return track;
  };
  const stream = new Reader(bytes, 0, bytes.length);
  let count = 0;
  while (stream.at < stream.end) {
    const kind = stream.number(), piece = stream.part();
    if (kind === PIECE.spans) {
      const head = new Reader(bytes, piece.at, piece.end).part();
      const at = [head.number(), head.number(), head.number()];
      spans.push([piece, count, at[2], at[0], at[1]]);
      count += at[2];
    } else if (kind === PIECE.away) readAway(piece, threads);
    else if (kind === PIECE.values) readValues(piece, threads);
    else if (kind === PIECE.paths) data.paths = readPaths(piece, about.path_names);
    else if (kind === PIECE.lost) threads[piece.number()].lostAt.push({ns: piece.number(), events: piece.number()});
  }
  data.columns = makeColumns(count);
  spans.sort((a, b) => a[3] - b[3] || a[4] - b[4] || a[1] - b[1]); /* tracks in the order of threads and stacks */
  for (const [piece, first, length, thread, lane] of spans) {
    trackOf(thread, lane).pieces.push([first, length]);
    readSpans(piece, data.columns, first, trackOf);
  }
  for (const thread of threads) { /* one of which only its absence is known */
    if (thread.away.length !== 0) trackOf(thread.number, 0);
    thread.away.sort((a, b) => a.begin - b.begin);
  }
  makeRows(data);
  return data;
}

async function load() {
  const about = JSON.parse(document.getElementById('about').textContent), element = document.getElementById('data');
  const bytes = await inflate(fromBase64(element.textContent), about.raw_bytes);
  element.textContent = '';
  return readStream(bytes, about);
}
