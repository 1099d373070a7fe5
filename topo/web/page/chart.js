// Lines over the last minutes.
import { svg, si } from './dom.js';

const HEIGHT = 96, TOP = 16, FOOT = 16;

// draw draws series [{name, label, values}] over times in milliseconds.
export function draw(place, title, unit, times, series) {
  const width = Math.max(240, place.clientWidth), left = 4, right = width - 4;
  const most = Math.max(1, ...series.flatMap((s) => s.values));
  const end = times.at(-1) ?? Date.now(), span = 120000;
  const x = (t) => right - ((end - t) / span) * (right - left);
  const y = (v) => TOP + (1 - v / most) * (HEIGHT - TOP - FOOT);
  const path = (values) => {
    let d = '', pen = false;
    for (let i = 0; i < times.length; i++) {
      if (end - times[i] > span) continue;
      const gap = i > 0 && times[i] - times[i - 1] > 5000; // no reading in between
      d += `${pen && !gap ? 'L' : 'M'}${x(times[i]).toFixed(1)} ${y(values[i]).toFixed(1)}`;
      pen = true;
    }
    return d || 'M0 0';
  };
  let at = right;
  const keys = [...series].reverse().map((s) => {
    const text = svg('text', { x: at, y: 11, 'text-anchor': 'end', class: 'key-' + s.name }, s.label);
    at -= s.label.length * 6.4 + 14;
    return text;
  });
  place.replaceChildren(svg('svg', { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT, role: 'img', 'aria-label': `${title}: at most ${si(most)}${unit}`.trim() },
    svg('line', { class: 'axis', x1: left, x2: right, y1: y(0), y2: y(0) }), svg('line', { class: 'axis', x1: left, x2: right, y1: y(most), y2: y(most), 'stroke-dasharray': '2 4' }),
    svg('text', { x: left, y: 11 }, `${title}, at most ${si(most)}${unit}`.trim()), keys,
    series.map((s) => svg('path', { class: 'line-' + s.name, d: path(s.values) })),
    svg('text', { x: left, y: HEIGHT - 3 }, '2 minutes ago'), svg('text', { x: right, y: HEIGHT - 3, 'text-anchor': 'end' }, 'now')));
}
