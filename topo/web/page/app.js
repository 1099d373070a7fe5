// The page: hands each state of the rack to its parts.
import { $, el, lasting, si } from './dom.js';
import { call, events, token } from './api.js';
import * as topology from './topology.js';
import * as chart from './chart.js';
import * as faults from './faults.js';
import * as ladder from './ladder.js';
import * as tables from './tables.js';

const asks = 2000; // milliseconds between two requests for queue pairs and counters
const mostPoints = 300;

// A button that is drawn anew between press and release would not be clicked: nothing is drawn meanwhile.
const longest = 2000; // milliseconds
let pressed = -Infinity;
addEventListener('pointerdown', (e) => { if (e.target.closest?.('button, .box')) pressed = performance.now(); }, true);
for (const end of ['pointerup', 'pointercancel']) {
  addEventListener(end, () => setTimeout(() => { pressed = -Infinity; draw(); }), true);
}

let rack = null, chosen = '', points = [];

function choose(name) {
  chosen = name;
  const link = $('#inject').elements.link;
  if ([...link.options].some((o) => o.value === name)) link.value = name;
  draw();
  ask();
}

function banner(text) {
  $('#banner').hidden = !text;
  $('#banner').textContent = text;
  document.body.classList.toggle('absent', Boolean(text));
}

function state(r) {
  $('#rack').textContent = r.name;
  $('#version').textContent = r.version;
  document.title = `${r.name}: ${r.present ? r.state : 'not up'} – rdmalab`;
  const may = r.control && token;
  $('#mode').replaceChildren(may ? 'control' : r.control ? 'read-only: the token is missing in the address' : 'read-only');
  if (!r.present) {
    banner(`${r.gone}. The page goes on when the rack is up.`);
    $('#summary').replaceChildren(el('span', { class: 'state' }, 'not up'));
    return;
  }
  banner('');
  const before = rack;
  rack = r;
    remember(r);
  const known = r.nodes.some((n) => n.name === chosen);
  if (!known) chosen = (r.nodes.find((n) => n.role === 'compute') || r.nodes[0]).name;
  draw();
  if (!known) choose(chosen);
  else if (!before) ask();
}

function remember(r) {
  if (points.length > 0 && points.at(-1).time >= r.time) return;
  const nodes = {};
  for (const n of r.nodes) if (n.role !== 'switch') nodes[n.name] = { up: n.upBitsPerSecond, down: n.downBitsPerSecond, drops: n.dropsPerSecond, resent: n.resentPerSecond };
  points.push({ time: r.time, nodes });
  if (points.length > mostPoints) points = points.slice(-mostPoints);
}

function draw() {
  if (!rack || document.hidden || performance.now() - pressed < longest) return;
  const r = rack, n = r.nodes.find((one) => one.name === chosen), may = r.control && token;
  $('#summary').replaceChildren(el('span', { class: 'state ' + r.state }, r.state), ` ${r.nodes.length - 1} hosts, switch program ${r.program}, for ${lasting(r.uptimeSeconds || 0)}` +
    (r.slow ? `, ${r.slow} times slower` : '') + (r.captures ? `, ${r.captures} capture${r.captures > 1 ? 's' : ''}` : ''));
  topology.draw(r, chosen, choose);
  faults.draw(r, may);
  faults.actions(n, may);
  ladder.draw(r);
  const select = $('#chosen');
  const names = r.nodes.map((one) => one.name);
  if ([...select.options].map((o) => o.value).join() !== names.join()) select.replaceChildren(...names.map((name) => el('option', { value: name }, name)));
  select.value = chosen;
  about(n);
  const isHost = n.role !== 'switch';
  $('#traffic').hidden = $('#trouble').hidden = !isHost;
  if (isHost) {
    const of = points.filter((p) => p.nodes[chosen]), times = of.map((p) => p.time);
    const series = (name, label, key) => ({ name, label, values: of.map((p) => p.nodes[chosen][key]) });
    chart.draw($('#traffic'), 'bits a second', 'b/s', times, [series('up', '↑ up', 'up'), series('down', '↓ down', 'down')]);
    chart.draw($('#trouble'), 'packets a second', '', times, [series('drops', '✕ dropped', 'drops'), series('again', '⟳ sent again', 'resent')]);
  }
  for (const e of document.querySelectorAll('h2 .of')) e.textContent = chosen;
}

function about(n) {
  const parts = [n.role];
  if (n.ipv4) parts.push(n.ipv4);
  if (n.link && n.link !== 'up') parts.push(`link ${n.link}`);
  if (n.role !== 'switch') parts.push(`${n.queuePairs} queue pair${n.queuePairs === 1 ? '' : 's'}${n.failedQueuePairs ? `, ${n.failedQueuePairs} failed` : ''}`, `${n.drops} dropped, ${n.resent} sent again in all`);
  if (n.clients) parts.push(`${n.clients} clients: ${si(n.operationsPerSecond || 0)}operations/s, 99 % within ${n.p99Microseconds || 0} µs`);
  for (const c of n.stores || []) parts.push(`${c.name} ${si(c.value).trim()}`);
  if (n.role === 'switch') for (const t of rack.tables || []) if (t.used) parts.push(`table ${t.name} ${t.used}/${t.max}`);
  if (n.role === 'switch') for (const c of rack.connections || []) parts.push(`connection ${c.name} ${c.state} ${c.inFlight}/${c.most} in flight`);
  $('#about').replaceChildren(el('span', { class: 'state ' + n.state }, n.state), ' ' + parts.join(' · '));
}

// visible has the sections that are on the screen: what is not seen is not asked for.
const visible = new Set();
const watch = new IntersectionObserver((entries) => {
  for (const e of entries) e.isIntersecting ? visible.add(e.target.id) : visible.delete(e.target.id);
  ask();
});

let asking = false;
async function ask() {
  if (!rack || asking || document.hidden || document.body.classList.contains('absent')) return;
  asking = true;
  const name = chosen, n = rack.nodes.find((one) => one.name === name);
  const part = async (id, path, show) => {
    if (!visible.has(id)) return;
    const place = $(`#${id} .scroll`);
    try {
      const answer = await call('GET', path);
      if (chosen === name) show(place, answer);
    } catch (e) {
      place.replaceChildren(el('p', { class: 'about' }, e.message));
    }
  };
  const at = '/nodes/' + encodeURIComponent(name);
  $('#qps').hidden = n?.role === 'switch';
  if (n?.role !== 'switch') await part('qps', at + '/qps', tables.queuePairs);
  await part('counters', at + '/counters', tables.counters);
  asking = false;
  if (chosen !== name) ask();
}

$('#chosen').addEventListener('change', (e) => choose(e.target.value));
document.addEventListener('visibilitychange', draw);
let resized;
addEventListener('resize', () => { clearTimeout(resized); resized = setTimeout(draw, 100); });
watch.observe($('#qps'));
watch.observe($('#counters'));
setInterval(ask, asks);
faults.form(ladder.show, choose);
ladder.form();
call('GET', '/history').then((list) => { points = [...list, ...points].sort((a, b) => a.time - b.time); draw(); }, () => {});
events(state, () => banner('rdmalab web does not answer. The page goes on when it does.'));
