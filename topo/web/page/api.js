// The API of this server, and the stream of the rack's state.

const KEY = 'rdmalab-token';

// token is that of the address, which the page takes out of it, or that of this tab from before.
export const token = (() => {
  const given = new URLSearchParams(location.hash.slice(1)).get('token');
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, '', location.pathname);
  }
  return given || sessionStorage.getItem(KEY) || '';
})();

export async function call(method, path, body) {
  const headers = {};
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (token && method !== 'GET') headers.Authorization = 'Bearer ' + token;
  let response;
  try {
    response = await fetch('/api/v1' + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Error('rdmalab web does not answer');
  }
  const answer = await response.json().catch(() => ({ error: response.statusText }));
  if (!response.ok) throw new Error(answer.error || response.statusText);
  return answer;
}

// events calls state with each state of the rack, and lost when the server does not answer any more.
export function events(state, lost) {
  const silent = 6000; // milliseconds after which no event means that something is wrong
  let timer;
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(lost, silent);
  };
  const open = () => {
    const source = new EventSource('/api/v1/events');
    source.addEventListener('rack', (e) => {
      wait();
      state(JSON.parse(e.data));
    });
    source.onerror = () => {
      lost();
      if (source.readyState === EventSource.CLOSED) setTimeout(open, 2000); // the browser has given up
    };
  };
  wait();
  open();
}
