/* SPDX-License-Identifier: MIT */
/* Texts. What comes from the target is only ever text content or drawn, never markup. */
const get = id => document.getElementById(id);

/* Control characters, and those that turn the direction of a line, are shown as what they are: none of them. */
const clean = text => String(text).replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, '\ufffd');

function make(name, text, ...children) {
  const element = document.createElement(name);
  if (text !== undefined && text !== null) element.textContent = text;
  element.append(...children);
  return element;
}

const count = number => Math.round(number).toLocaleString('en-US');

function duration(ns) {
  const size = Math.abs(ns);
  if (size < 1e3) return Math.round(ns) + ' ns';
  const [factor, unit] = size < 1e6 ? [1e3, 'us'] : size < 1e9 ? [1e6, 'ms'] : [1e9, 's'], value = ns / factor;
  return (Math.abs(value) < 1000 ? value.toPrecision(4) : count(value)) + ' ' + unit;
}

/* A place on the clock: seconds, to the nanosecond. */
const moment = ns => (ns / 1e9).toFixed(9) + ' s';

/* Of a function, by its number. */
const FN = {name: 0, module: 1, file: 2, line: 3, pid: 4, calls: 5, total: 6, self: 7, off: 8, least: 9, most: 10, sampled: 11, counted: 12, wasOut: 13};

/* What a search asks of a name: text without regard to case, or an expression between slashes. */
function matcher(query) {
  if (query === '') return null;
  const expression = /^\/(.+)\/(i?)$/.exec(query);
  if (expression) {
    try {
      const wanted = new RegExp(expression[1], expression[2]);
      return name => wanted.test(name);
    } catch (error) {
      return null;
    }
  }
  const wanted = query.toLowerCase();
  return name => name.toLowerCase().includes(wanted);
}

const hues = new Map();
function hueOf(name) {
  let hue = hues.get(name);
  if (hue === undefined) {
    let hash = 2166136261;
    for (let i = 0; i < name.length && name[i] !== '('; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 16777619);
    hue = (hash >>> 0) % 360;
    hues.set(name, hue);
  }
  return hue;
}
