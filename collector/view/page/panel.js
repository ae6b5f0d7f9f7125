// What the chosen part of the time comes to.

import * as api from '/api.js';
import { callTree, grow } from '/calltree.js';
import { complain, make } from '/dom.js';
import { Flame } from '/flame.js';
import { count, duration, fileName, percent } from '/format.js';
import { arrowsOf, describeGap, describeSpan } from '/span.js';
import { saveTable, table } from '/table.js';

/** The tabs, in the order of their keys. */
export const TABS = [['top', 'Top'], ['flame', 'Flame graph'], ['tree', 'Call tree'], ['calls', 'Callers and callees'], ['span', 'Span']];

/** What stands below a table with functions that were turned down. */
const DOWN = 'Calls that were counted and not followed are in «Calls», and in no time but «In all», which is an estimate. ≥: there were '
  + 'others that nobody counted; ≤: of calls, when they were is not known, and of own times, they contain what was not followed.';

/** All calls: those that were followed, and those that were only counted. */
const callsOf = (row) => row.calls ?? row.count;
const isUntimed = (row) => row.untimed !== undefined && row.untimed === row.count;

/** About how long all calls of a function took that were not all followed. */
function inAll(row) {
  if (!row.down) return '';
  if (row.estimated_total_ns === null || isUntimed(row)) return '–';
  const error = row.estimated_total_error_ns === null ? '?' : Math.ceil(row.estimated_total_error_ns * 100 / Math.max(1, row.estimated_total_ns));
  return make('span', { title: 'an estimate, from the calls that were followed' }, `${row.was_off ? '≥ ' : ''}~${duration(row.estimated_total_ns)} ± ${error} %`);
}

const COLUMNS = (told) => [
  { key: 'function', title: 'Function', isText: true, value: (row) => row.function, show: (row) => make('span', {},
    make('button', { type: 'button', class: 'link', title: row.source ?? '', onclick: () => told.chose({ fn: row.function, tab: 'calls' }) }, row.function),
    row.down ? make('span', { class: 'badge', title: 'the agent turned it down, or left out what was brief: times are of the calls that were followed' },
      `${count(row.counted + row.brief)} counted, not followed${row.was_off ? ', and others not counted' : ''}`) : null) },
  { key: 'module', title: 'Module', isText: true, value: (row) => row.module, show: (row) => make('span', { title: row.module ?? '' }, fileName(row.module)) },
  { key: 'count', title: 'Calls', value: callsOf, show: (row) => [row.bound, count(callsOf(row))].filter(Boolean).join(' ') },
  { key: 'followed', title: 'Followed', isOfParts: true, value: (row) => (row.down && !row.has_others ? row.count / row.calls : null), show: (row) => (
    row.down && !row.has_others ? `${row.was_off ? '≤ ' : ''}${percent(row.count / row.calls)}` : '') },
  { key: 'total_ns', title: 'Total', value: (row) => row.total_ns, show: (row) => (isUntimed(row) ? '–' : duration(row.total_ns)) },
  { key: 'in_all_ns', title: 'In all', isOfParts: true, value: (row) => row.estimated_total_ns ?? null, show: (row) => inAll(row) },
  { key: 'brief_ns', title: 'Brief', isOfParts: true, value: (row) => row.brief_ns ?? 0, show: (row) => (row.brief ? duration(row.brief_ns) : '') },
  { key: 'self_ns', title: 'Self', value: (row) => row.self_ns, show: (row) => `${row.self_has_turned_down ? '≤ ' : ''}${duration(row.self_ns)}` },
  { key: 'mean_ns', title: 'Mean', value: (row) => row.total_ns / Math.max(1, row.count), show: (row) => (isUntimed(row) ? '–' : duration(row.total_ns / Math.max(1, row.count))) },
  { key: 'max_ns', title: 'Longest', value: (row) => row.max_ns, show: (row) => duration(row.max_ns) },
  { key: 'unsure_ns', title: 'Unsure', value: (row) => row.unsure_ns, show: (row) => (row.unsure_ns ? make('span', { title: 'it ran itself, or something that is missing' }, duration(row.unsure_ns)) : '') },
  { key: 'source', title: 'Source', isText: true, value: (row) => row.source },
];

export class Panel {
  /**
   * @param {HTMLElement} place
   * @param {string} session
   * @param {import('/address.js').State} state
   * @param {{chose: (change: object, isQuiet?: boolean) => void, go: (span: object) => void, arrows: (arrows: object[]) => void, span: (span: object|null) => void}} told
   */
  constructor(place, session, state, told) {
    this.session = session;
    this.state = state;
    this.told = told;
    this.meta = null;
    this.turn = 0;
    this.said = make('span', { class: 'dim', role: 'status' });
    this.filter = make('input', { type: 'search', placeholder: 'Filter', 'aria-label': 'Filter functions', value: state.filter, oninput: () => {
      told.chose({ filter: this.filter.value }, true);
      this.draw();
    } });
    this.csv = make('button', { type: 'button', title: 'Save the table', onclick: () => saveTable(COLUMNS(told), this.ordered ?? [], `${session}-top.csv`) }, 'CSV');
    this.tabs = TABS.map(([key, title], at) => make('button', {
      type: 'button', role: 'tab', id: `tab-${key}`, 'aria-controls': 'sheet', 'aria-selected': 'false', title: `${title} ( ${at + 1} )`, onclick: () => told.chose({ tab: key }),
    }, title));
    this.sheet = make('div', { id: 'sheet', role: 'tabpanel', tabindex: 0 });
    place.append(make('div', { id: 'tabs' }, make('div', { role: 'tablist', 'aria-label': 'What is shown' }, ...this.tabs), this.said, this.filter, this.csv), this.sheet);
    /** Whether the table is of the last seconds of a session that runs. */
    this.isHot = false;
    this.resizing = new ResizeObserver(() => this.flame?.draw());
    this.resizing.observe(this.sheet);
  }

  close() {
    this.turn += 1;
    this.isClosed = true;
    this.resizing.disconnect();
    clearInterval(this.beat);
    clearTimeout(this.later);
  }

  /** Has the table show what ran in the last seconds, again and again, or not any more. */
  setHot(isHot) {
    if (this.isHot === isHot || this.isClosed) return;
    this.isHot = isHot;
    clearInterval(this.beat);
    const isShown = () => this.state.tab === 'top' && !this.state.range && !document.hidden;
    if (isHot) this.beat = setInterval(() => isShown() && !api.isBusy() && this.refresh(), 1000);
    this.refresh();
  }

  /** The part of the time that is shown: what is chosen, or all of it. */
  range() {
    return this.state.range ?? this.recent ?? null;
  }

  /** Shows what is chosen now. Answers that come too late are left. */
  async refresh() {
    if (!this.meta && !(this.isHot && this.state.tab === 'top')) return;
    this.turn += 1;
    const { turn, state } = this;
    TABS.forEach(([key], at) => {
      const isChosen = state.tab === key;
      this.tabs[at].setAttribute('aria-selected', String(isChosen));
      this.tabs[at].tabIndex = isChosen ? 0 : -1;
      if (isChosen) this.sheet.setAttribute('aria-labelledby', `tab-${key}`);
    });
    this.filter.hidden = this.csv.hidden = state.tab !== 'top';
    const range = this.range();
    this.said.textContent = state.tab === 'span' ? '' : state.range ? `${duration(range[1] - range[0])} chosen` : range ? `the last ${duration(range[1] - range[0])}` : 'all of it';
    const parameters = range ? { from: Math.round(range[0]), to: Math.max(Math.round(range[0]) + 1, Math.round(range[1])) } : {};
    try {
      await this.load(turn, parameters);
    } catch (error) {
      // What was there stays while nobody answers, which is said elsewhere.
      if (turn === this.turn && error.status !== 0) this.say(error.message);
    }
  }

  async load(turn, parameters) {
    const { state, meta } = this;
    const ask = (what, more = {}) => api.patient(() => api.about(this.session, what, { ...parameters, ...more }));
    const isLate = () => turn !== this.turn;
    const call = (name) => this.told.chose({ fn: name, tab: 'calls' });
    if (state.tab !== 'flame') this.flame = null;
    if (state.tab === 'flame' || state.tab === 'tree') {
      const answer = await ask('tree', { limit: 5000 });
      if (isLate()) return;
      if (answer.generation !== meta.generation && this.meta.generation !== answer.generation) return;
      const tree = grow(answer);
      if (state.tab === 'flame') this.flame = new Flame(this.sheet, tree, this.meta, call);
      else this.sheet.replaceChildren(callTree(tree, this.meta, 'Call tree', call));
    } else if (state.tab === 'calls') {
      if (!state.fn) {
        this.say('Choose a function: in the table, in the tree, or with / .');
        return;
      }
      const [callers, callees] = await Promise.all(['callers', 'callees'].map((what) => ask(what, { what: state.fn, limit: 1000 })));
      if (isLate()) return;
      const part = (title, answer) => make('section', {}, make('h3', { class: 'padded' }, title), callTree(grow(answer), this.meta, title, call));
      this.sheet.replaceChildren(make('div', { class: 'two' }, part(`Callers of ${state.fn}`, callers), part(`Callees of ${state.fn}`, callees)));
    } else if (state.tab === 'span') {
      await this.loadSpan(isLate);
    } else {
      const key = state.sort.replace(/^-/, '');
      const sort = { total_ns: 'total', self_ns: 'self', count: 'count', max_ns: 'max' }[key] ?? 'total';
      const isHot = this.isHot && !state.range;
      const answer = isHot ? await api.about(this.session, 'hot') : await ask('top', { sort, limit: 2000 });
      if (isLate()) return;
      if (isHot) this.said.textContent = `the last ${duration(answer.span_ns)}: ${count(answer.events)} events${answer.behind ? ', more than can be read' : ''}${answer.idle_ns > 3e9 && answer.ended === null ? `, nothing new for ${duration(answer.idle_ns)}` : ''}`;
      answer.isHot = isHot;
      this.answer = answer;
      this.draw();
      clearTimeout(this.later);
      // Estimates come when they are made.
      if ((answer.estimating ?? null) !== null) this.later = setTimeout(() => !isLate() && this.refresh(), 500);
    }
  }

  async loadSpan(isLate) {
    const { state } = this;
    if (state.gap !== null) {
      this.sheet.replaceChildren(describeGap(this.meta, state.gap));
      return;
    }
    if (!state.span) {
      this.say('Click a span or a gap.');
      return;
    }
    const span = await api.patient(() => api.about(this.session, 'span', state.span));
    if (isLate()) return;
    this.told.span(span);
    this.told.arrows(arrowsOf(span));
    this.sheet.replaceChildren(describeSpan(span, this.meta, { call: (name) => this.told.chose({ fn: name, tab: 'calls' }), go: this.told.go }));
  }

  /** Draws the table again, with what is there. */
  draw() {
    if (this.state.tab !== 'top' || !this.answer) return;
    const wanted = this.state.filter.toLowerCase();
    const fits = (row) => !wanted || row.function.toLowerCase().includes(wanted) || (row.module ?? '').toLowerCase().includes(wanted);
    const rows = this.answer.rows.filter(fits);
    const isUnsure = rows.some((row) => row.unsure_ns);
    const isAnyDown = rows.some((row) => row.down);
    const columns = COLUMNS(this.told).filter(({ key, isOfParts }) => (isUnsure || key !== 'unsure_ns') && (isAnyDown || !isOfParts)
      && !(this.answer.isHot && ['max_ns', 'source'].includes(key)));
    const { element, ordered } = table({
      columns, rows, sort: this.state.sort, label: 'Functions', sorted: (sort) => this.told.chose({ sort }),
      isChosen: (row) => row.function === this.state.fn,
    });
    this.ordered = ordered;
    const all = this.answer.of > this.answer.rows.length ? `${count(this.answer.rows.length)} of ${count(this.answer.of)} functions` : `${count(rows.length)} functions`;
    const top = this.sheet.scrollTop;
    const down = isAnyDown ? make('p', { class: 'dim padded' }, DOWN + (this.answer.estimating === null ? '' : ` These estimates are being made: ${this.answer.estimating} %.`)) : null;
    this.sheet.replaceChildren(element, ...(down ? [down] : []), make('p', { class: 'dim padded' }, all));
    this.sheet.scrollTop = top;
  }

  say(text) {
    complain(null);
    this.sheet.replaceChildren(make('p', { class: 'padded dim' }, text));
  }
}
