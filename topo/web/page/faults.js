// Fault rules, and what changes a node.
import { $, el, grouped, options } from './dom.js';
import { call } from './api.js';

const kinds = { loss: '10%', drop: '', delay: '1ms', duplicate: '5%', reorder: '5%', corrupt: '1%', rate: '1Gbit', blackhole: '' };

// say shows what a command has answered, or what went wrong.
function say(text, wrong) {
  const p = $('#said');
  p.hidden = false;
  p.className = 'said' + (wrong ? ' wrong' : '');
  p.textContent = text;
}

let busy = 0;

// change sends a request that changes the rack, and shows the command that it has run.
export async function change(method, path, body) {
  busy++;
  try {
    const done = await call(method, path, body);
    say(`$ ${done.command}\n${done.output}${done.trouble ? `\nno ladder: ${done.trouble}` : ''}`, false);
    return done;
  } catch (e) {
    say(e.message, true);
    return null;
  } finally {
    busy--;
  }
}

export function draw(r, control) {
  const list = (r.faults || []).map((f) => el('div', { class: 'fault' }, el('b', {}, f.id), el('span', { class: 'text' }, f.text),
    el('span', { class: 'hits' }, `${grouped(f.hits)} hit${f.hits === 1 ? '' : 's'}`), el('span', { class: 'state ' + f.state }, f.state),
    control && f.state === 'active' ? el('button', { type: 'button', 'data-heal': f.id, onclick: (e) => { e.target.disabled = true; change('DELETE', '/faults/' + encodeURIComponent(f.id)); } }, 'Heal') : null));
  const focused = document.activeElement?.dataset?.heal;
  const place = $('#faultlist');
  place.replaceChildren(...(list.length > 0 ? list : [el('p', { class: 'about' }, 'No fault rule is in force.')]));
  if (focused) place.querySelector(`[data-heal="${CSS.escape(focused)}"]`)?.focus();
  $('#inject').hidden = !control;
  const hosts = r.nodes.filter((n) => n.role !== 'switch').map((n) => [n.name, n.name]);
  options($('#inject').elements.link, [...hosts, ['all', 'all']]);
}

// form prepares the form; recorded is called with the recording that an injection has made.
export function form(recorded, choose) {
  const f = $('#inject');
  options(f.elements.kind, Object.keys(kinds).map((k) => [k, k]));
  const amount = () => { f.elements.amount.value = kinds[f.elements.kind.value]; };
  f.elements.kind.addEventListener('change', amount);
  amount();
  f.elements.link.addEventListener('change', () => { if (f.elements.link.value !== 'all') choose(f.elements.link.value); });
  f.addEventListener('submit', async (e) => {
    e.preventDefault();
    const v = Object.fromEntries(new FormData(f));
    const button = f.querySelector('button');
    button.disabled = true;
    button.textContent = v.record ? 'Recording…' : 'Injecting…';
    const body = { kind: v.kind, link: v.link, dir: v.dir, next: Number(v.next), record: Boolean(v.record) };
    if (v.amount.trim()) body.amount = v.amount.trim();
    if (v.for.trim()) body.for = v.for.trim();
    if (v.opcode.trim()) body.opcodes = v.opcode.trim().split(/[\s,]+/);
    const done = await change('POST', '/faults', body);
    button.disabled = false;
    button.textContent = 'Inject';
    if (done?.recording) recorded(done.recording);
  });
}

// actions shows the buttons of a node.
export function actions(n, control) {
  const place = $('#actions');
  place.hidden = !control || !n;
  if (place.hidden || busy > 0) return;
  const act = (label, action) => el('button', { type: 'button', 'data-act': action, onclick: () => change('POST', `/nodes/${encodeURIComponent(n.name)}/actions`, { action }) }, label);
  const link = (label, state) => el('button', { type: 'button', 'data-act': 'link-' + state, onclick: () => change('POST', '/links/' + encodeURIComponent(n.name), { state }) }, label);
  const buttons = [n.state === 'crashed' ? act('Restart', 'restart') : act('Crash', 'crash'), n.state === 'hung' ? act('Resume', 'resume') : act('Hang', 'hang')];
  if (n.role !== 'switch') buttons.push(n.link === 'down' ? link('Restore link', 'up') : link('Cut link', 'down'));
  const text = n.name + buttons.map((b) => b.dataset.act).join();
  if (place.dataset.has === text) return; // the same buttons keep the focus
  place.dataset.has = text;
  place.replaceChildren(...buttons);
}
