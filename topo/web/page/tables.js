// Queue pairs and counters of a node.
import { el, hex, grouped } from './dom.js';

const shown = 200; // rows of a table

const head = (...names) => el('thead', {}, el('tr', {}, names.map((n) => el('th', { class: n.startsWith('#') ? 'n' : '' }, n.replace('#', '')))));

export function queuePairs(place, objects) {
  const list = objects.qps || [];
  if (list.length === 0) {
    place.replaceChildren(el('p', { class: 'about' }, 'none'));
    return;
  }
  const live = list.filter((q) => !q.gone), past = list.filter((q) => q.gone).reverse();
  const rows = [];
  for (const q of [...live, ...past].slice(0, shown)) {
    const rc = q.type === 'RC' && q.peerQpn;
    const owner = typeof q.owner === 'object' ? [q.owner.name, q.owner.pid].filter(Boolean).join('/') : '';
    const cell = (text) => el('td', {}, text), n = (text) => el('td', { class: 'n' }, text);
    rows.push(el('tr', { class: q.gone ? 'past' : '' }, cell(hex(q.qpn)), cell(q.type), cell(q.gone ? `(${q.state})` : q.state), cell(owner),
      cell(q.peerQpn ? `${q.peer} ${hex(q.peerQpn)}` : '–'), n(rc ? grouped(q.sendPsn) : '–'), n(rc ? `${q.inFlight}/${q.window}` : '–'),
      n(grouped(q.sendQueued)), n(grouped(q.recvQueued)), n(grouped(q.retransPkts)), n(grouped(q.totals?.healed ?? 0))));
    if (q.lastError) rows.push(el('tr', { class: 'why' }, el('td', {}), el('td', { colspan: 10 }, el('div', {}, q.lastError.text))));
  }
  const rest = list.length - shown;
  place.replaceChildren(el('table', {}, head('QPN', 'type', 'state', 'owner', 'peer', '#next PSN', '#in flight', '#sends', '#receives', '#sent again', '#healed'), el('tbody', {}, rows)),
    rest > 0 ? el('p', { class: 'about' }, `${rest} more are not shown`) : '');
}

let before = { name: '', at: 0, values: new Map() };

export function counters(place, answer) {
  const now = performance.now();
  const seconds = before.name === answer.name ? (now - before.at) / 1000 : 0;
  const rows = (answer.counters || []).filter((c) => c.value > 0).map((c) => {
    const was = before.values.get(c.name);
    const rate = seconds > 0 && was !== undefined && c.value >= was ? Math.round((c.value - was) / seconds) : 0;
    return el('tr', {}, el('td', {}, c.name), el('td', { class: 'n' }, grouped(c.value)), el('td', { class: 'n' }, rate ? grouped(rate) : ''), el('td', { class: 'wrap' }, c.help || ''));
  });
  before = { name: answer.name, at: now, values: new Map((answer.counters || []).map((c) => [c.name, c.value])) };
  place.replaceChildren(rows.length > 0 ? el('table', {}, head('counter', '#value', '#a second', 'meaning'), el('tbody', {}, rows)) : el('p', { class: 'about' }, 'all are 0'));
}
