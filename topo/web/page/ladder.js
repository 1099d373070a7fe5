// Recordings of packets, and their ladder.
import { $, el, grouped, options } from './dom.js';
import { call } from './api.js';

const pause = 2000; // milliseconds between two recordings of "again and again"

// show shows a recording, at the first packet that a fault or the switch has touched.
export function show(rec) {
  const text = rec.packets === 0 ? 'No packets came. ' : `${grouped(rec.packets)} packets, ${grouped(rec.touched)} of them touched by a fault or the switch` +
    (rec.skipped > 0 ? `; ${grouped(rec.skipped)} earlier ones are left out. ` : '. ');
  $('#recorded').replaceChildren(text, el('a', { href: rec.ladder, target: '_blank', rel: 'noopener' }, 'page'), ' · ', el('a', { href: rec.ladder + '?format=svg', target: '_blank', rel: 'noopener' }, 'picture'),
    ' · ', el('a', { href: rec.ladder + '?format=pcapng', download: `ladder-${rec.id}.pcapng` }, 'pcapng'));
  const frame = $('#frame');
  frame.hidden = rec.packets === 0;
  if (rec.packets > 0) frame.src = rec.ladder + (rec.first ? '#p' + rec.first : '');
}

export function draw(r) {
  options($('#record').elements.links, [['', 'all links'], ...r.nodes.filter((n) => n.role !== 'switch').map((n) => [n.name, n.name])]);
}

export function form() {
  const f = $('#record'), button = f.querySelector('button');
  let timer;
  const record = async () => {
    clearTimeout(timer);
    button.disabled = true;
    button.textContent = 'Recording…';
    const past = f.elements.when.value === 'past';
    const body = { touched: f.elements.touched.checked, past };
    if (!past) body.seconds = Number(f.elements.when.value);
    if (f.elements.links.value) body.links = [f.elements.links.value];
    try {
      show(await call('POST', '/ladders', body));
    } catch (e) {
      $('#recorded').textContent = e.message;
    }
    button.disabled = false;
    button.textContent = 'Record';
    if (f.elements.follow.checked) timer = setTimeout(record, document.hidden ? 10 * pause : pause);
  };
  f.addEventListener('submit', (e) => { e.preventDefault(); record(); });
  f.elements.follow.addEventListener('change', () => { clearTimeout(timer); if (f.elements.follow.checked) record(); });
}
