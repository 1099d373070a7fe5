// Small helpers for elements and numbers. All text goes through textContent.

const SVG = 'http://www.w3.org/2000/svg';

function fill(e, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) e.addEventListener(name.slice(2), value);
    else if (value === true) e.setAttribute(name, '');
    else if (value !== false && value !== undefined && value !== null) e.setAttribute(name, value);
  }
  e.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}

export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const $ = (selector) => document.querySelector(selector);

// si writes a number with three digits and a unit: 2.1 M.
export function si(n) {
  for (const [unit, size] of [['T', 1e12], ['G', 1e9], ['M', 1e6], ['k', 1e3]]) {
    if (n >= size * 0.9995) return (n / size).toPrecision(3).replace(/\.?0+$/, '') + ' ' + unit;
  }
  return String(Math.round(n)) + ' ';
}

export const hex = (n) => '0x' + n.toString(16);
export const grouped = (n) => Number(n).toLocaleString('en-US').replaceAll(',', ' ');

export function lasting(seconds) {
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
}

// options sets those of a select and keeps its value if there still is one.
export function options(select, list) {
  const have = [...select.options].map((o) => o.value + '\n' + o.text).join('\f');
  if (have === list.map(([v, t]) => v + '\n' + t).join('\f')) return;
  const value = select.value;
  select.replaceChildren(...list.map(([v, t]) => el('option', { value: v }, t)));
  if (list.some(([v]) => v === value)) select.value = value;
}
