// The picture of the rack: hosts above and below the switch, a wire each.
import { $, svg, si } from './dom.js';

const H = 70, GAP = 14, BAR = 46, REACH = 44, STEP = 30;

let W = 176; // of a box: less on a narrow screen, so that two are beside each other

// wireWidth grows with the logarithm of the rate.
const wireWidth = (bits) => (bits < 1000 ? 2 : Math.min(9, 2 + Math.log10(bits / 1000)));

// draw draws the rack r; chosen is the name of the chosen node, choose is called with that of a click.
export function draw(r, chosen, choose) {
  const place = $('#picture');
  const width = Math.max(280, place.clientWidth);
  const hosts = r.nodes.filter((n) => n.role !== 'switch');
  const upper = hosts.filter((n) => n.role === 'compute');
  const lower = hosts.filter((n) => n.role !== 'compute');
  const room = width - 2 * GAP; // a wire may pass on the right of the last box
  W = Math.min(176, Math.floor((room - GAP) / 2));
  const most = Math.max(1, Math.floor((room + GAP) / (W + GAP)));
  const rows = (list) => Array.from({ length: Math.ceil(list.length / most) }, (_, i) => list.slice(i * most, (i + 1) * most));
  const above = rows(upper), below = rows(lower);
  const span = (n) => (n > 0 ? n * H + (n - 1) * STEP + REACH : 0);
  const bar = span(above.length);
  const height = bar + BAR + span(below.length);
  const wires = [], boxes = [];

  const side = (list, isAbove) => list.forEach((row, i) => {
    const left = (width - row.length * W - (row.length - 1) * GAP) / 2;
    // The last row above, and the first below, are beside the switch.
    const far = isAbove ? list.length - 1 - i : i;
    const y = isAbove ? i * (H + STEP) : bar + BAR + REACH + i * (H + STEP);
    row.forEach((n, k) => {
      const x = left + k * (W + GAP);
      wires.push(wire(n, x, y, isAbove, far, bar));
      boxes.push(box(n, x, y, n.name === chosen, choose));
    });
  });
  side(above, true);
  side(below, false);

  const sw = r.nodes.find((n) => n.role === 'switch');
  if (sw) boxes.push(switchBox(r, sw, bar, width, sw.name === chosen, choose));
  const focused = document.activeElement?.dataset?.node;
  place.replaceChildren(svg('svg', { viewBox: `0 0 ${width} ${height}`, height, role: 'group', 'aria-label': 'hosts and links of the rack' }, wires, boxes));
  if (focused) place.querySelector(`[data-node="${CSS.escape(focused)}"]`)?.focus();
}

function wire(n, x, y, isAbove, far, bar) {
  const busy = Math.max(n.upBitsPerSecond, n.downBitsPerSecond);
  const hit = n.dropsPerSecond > 0 || (n.faults || []).length > 0;
  const cut = n.link !== 'up';
  const end = isAbove ? bar : bar + BAR;
  const middle = x + W / 2;
  let path, tagged = isAbove ? y + H + REACH / 2 : y - REACH / 2;
  if (far === 0) {
    path = `M${middle} ${isAbove ? y + H : y}V${end}`;
  } else { // around the rows that are nearer to the switch, between two boxes
    const gutter = x + W + GAP / 2 - 3 + Math.min(far, 3) * 2;
    const turn = isAbove ? y + H + STEP / 2 : y - STEP / 2;
    tagged = turn;
    path = `M${middle} ${isAbove ? y + H : y}V${turn}H${gutter}V${end}`;
  }
  const line = svg('path', { d: path, class: 'wire' + (cut ? ' cut' : hit ? ' hit' : busy >= 1000 ? ' busy' : ''), 'stroke-width': wireWidth(busy) });
  line.style.strokeWidth = wireWidth(busy);
  if (!n.faults?.length) return line;
  const label = n.faults.length > 2 ? `${n.faults.length} faults` : n.faults.join(' ');
  const text = label.length > 14 ? label.slice(0, 13) + '…' : label;
  const w = 7 * text.length + 12, cy = tagged;
  return svg('g', {}, line, svg('g', { class: 'tag' }, svg('rect', { x: middle - w / 2, y: cy - 9, width: w, height: 18, rx: 9 }),
    svg('text', { x: middle, y: cy + 4, 'text-anchor': 'middle' }, text)));
}

const shortened = (s, n) => (s.length > n ? s.slice(0, n - 1) + '…' : s);

function clickable(node, isChosen, isUp, label, choose, ...children) {
  return svg('g', {
    class: 'box' + (isChosen ? ' chosen' : '') + (isUp ? ' isup' : ''), role: 'button', tabindex: 0, 'data-node': node, 'aria-label': label, 'aria-pressed': isChosen,
    onclick: () => choose(node),
    onkeydown: (e) => { if (e.key === 'Enter' || e.key === ' ') { e.preventDefault(); choose(node); } },
  }, children);
}

function box(n, x, y, isChosen, choose) {
  const at = (dx, dy, cls, text, anchor) => svg('text', { x: x + dx, y: y + dy, class: cls, 'text-anchor': anchor || 'start' }, text);
  const trouble = [];
  if (n.dropsPerSecond > 0) trouble.push(svg('tspan', { class: 'drops' }, `✕ ${si(n.dropsPerSecond).trim()}  `));
  if (n.resentPerSecond > 0) trouble.push(svg('tspan', { class: 'again' }, `⟳ ${si(n.resentPerSecond).trim()}`));
  const last = trouble.length > 0 ? svg('text', { x: x + 10, y: y + 62 }, trouble)
    : at(10, 62, 'dim', n.operationsPerSecond ? `${si(n.operationsPerSecond).trim()} operations/s` : n.queuePairs ? `${n.queuePairs} queue pair${n.queuePairs > 1 ? 's' : ''}` : 'idle');
  const up = n.state === 'up';
  return clickable(n.name, isChosen, up, `${n.name}, ${n.role}, ${n.state}`, choose,
    svg('rect', { x, y, width: W, height: H, rx: 7 }), svg('circle', { cx: x + 14, cy: y + 15, r: 4 }),
    at(24, 19, 'name', shortened(n.name, 15)), at(W - 8, 19, up ? 'dim' : 'bad', shortened(up ? n.role : n.state, 11), 'end'),
    at(10, 40, 'up', `↑ ${si(n.upBitsPerSecond)}b/s`), at(W / 2 + 1, 40, 'down', `↓ ${si(n.downBitsPerSecond)}b/s`), last,
    svg('title', {}, `${n.name}${n.ipv4 ? ' ' + n.ipv4 : ''}: ${n.upPacketsPerSecond} packets/s up, ${n.downPacketsPerSecond} down`));
}

function switchBox(r, sw, y, width, isChosen, choose) {
  const up = sw.state === 'up';
  const w = width - 4, x = 2; // as wide as all wires
  const counters = (r.counters || []).filter((c) => c.value > 0 && c.name !== 'flooded').slice(0, Math.floor(w / 220));
  return clickable(sw.name, isChosen, up, `switch, ${sw.state}`, choose,
    svg('rect', { x, y: y + 1, width: w, height: BAR - 2, rx: 9 }), svg('circle', { cx: x + 18, cy: y + BAR / 2, r: 4 }),
    svg('text', { x: x + 30, y: y + BAR / 2 + 4 }, svg('tspan', { class: 'name' }, `switch `), svg('tspan', { class: up ? 'dim' : 'bad' }, up ? r.program : sw.state)),
    svg('text', { x: x + w - 14, y: y + BAR / 2 + 4, 'text-anchor': 'end', class: 'dim' },
      r.partition ? `partition: ${r.partition.map((g) => g.join(' ')).join(' | ')}`.slice(0, Math.floor(w / 8)) : counters.map((c) => `${c.name} ${si(c.value).trim()}`).join('   ')));
}
