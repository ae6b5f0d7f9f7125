// What is shown, as an address: `#/sessions`, `#/s/NAME?…`, `#/diff?…`.

/**
 * @typedef {object} State
 * @property {'sessions'|'timeline'|'diff'} view
 * @property {string|null} session
 * @property {[number, number]|null} window what is visible, in ns
 * @property {[number, number]|null} range what is chosen, in ns
 * @property {{row: number, start: number, depth: number}|null} span
 * @property {number|null} gap
 * @property {string} tab
 * @property {string} sort
 * @property {string} filter
 * @property {string|null} fn the name of the function whose callers and callees are shown
 * @property {string|null} other the other session of a comparison
 */

/** @returns {State} */
export function empty() {
  return {
    view: 'sessions', session: null, window: null, range: null, span: null, gap: null, tab: 'top', sort: 'total_ns',
    filter: '', fn: null, other: null,
  };
}

const pair = (text) => {
  const numbers = (text ?? '').split(',').map(Number);
  return numbers.length === 2 && numbers.every(Number.isSafeInteger) && numbers[0] < numbers[1] ? numbers : null;
};

/** Reads an address. @param {string} hash @returns {State} */
export function read(hash) {
  const state = empty();
  const [path, query] = hash.replace(/^#/, '').split('?');
  const parts = path.split('/').filter(Boolean);
  const asked = new URLSearchParams(query ?? '');
  if (parts[0] === 'diff') state.view = 'diff';
  if (parts[0] === 's' && parts[1]) {
    state.view = 'timeline';
    try {
      state.session = decodeURIComponent(parts[1]);
    } catch {
      state.view = 'sessions';
    }
  }
  if (state.view === 'diff') [state.session, state.other] = [asked.get('a'), asked.get('b')];
  state.window = pair(asked.get('window'));
  state.range = pair(asked.get('range'));
  const span = (asked.get('span') ?? '').split(',').map(Number);
  if (span.length === 3 && span.every(Number.isFinite)) [state.span] = [{ row: span[0], start: span[1], depth: span[2] }];
  const gap = Number(asked.get('gap') ?? NaN);
  if (Number.isInteger(gap)) state.gap = gap;
  state.tab = asked.get('tab') ?? state.tab;
  state.sort = asked.get('sort') ?? state.sort;
  state.filter = asked.get('filter') ?? '';
  state.fn = asked.get('fn');
  return state;
}

/** Writes it. @param {State} state */
export function write(state) {
  const asked = new URLSearchParams();
  if (state.view === 'sessions') return '#/sessions';
  if (state.view === 'diff') {
    if (state.session) asked.set('a', state.session);
    if (state.other) asked.set('b', state.other);
  } else {
    const whole = (numbers) => numbers.map((number) => Math.round(number)).join(',');
    if (state.window) asked.set('window', whole(state.window));
    if (state.range) asked.set('range', whole(state.range));
    if (state.span) asked.set('span', [state.span.row, state.span.start, state.span.depth].join(','));
    if (state.gap !== null) asked.set('gap', state.gap);
    if (state.tab !== 'top') asked.set('tab', state.tab);
    if (state.fn) asked.set('fn', state.fn);
  }
  if (state.sort !== 'total_ns') asked.set('sort', state.sort);
  if (state.filter) asked.set('filter', state.filter);
  const query = asked.toString().replaceAll('%2C', ',');
  const path = state.view === 'diff' ? '#/diff' : `#/s/${encodeURIComponent(state.session ?? '')}`;
  return query ? `${path}?${query}` : path;
}
