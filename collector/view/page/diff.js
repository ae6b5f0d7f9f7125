// Two sessions side by side.

import * as api from '/api.js';
import { make } from '/dom.js';
import { count, duration, percent } from '/format.js';
import { saveTable, table } from '/table.js';

const side = (row, key, what) => row[key]?.[what] ?? null;
const shown = (value, how) => (value === null ? '–' : how(value));
const signed = (value, how) => `${value > 0 ? '+' : value < 0 ? '−' : ''}${how(Math.abs(value))}`;

function columns(sort) {
  const what = ['total_ns', 'self_ns', 'count', 'max_ns'].includes(sort) ? sort : 'total_ns';
  const how = what === 'count' ? count : duration;
  const apart = (row) => (side(row, 'b', what) ?? 0) - (side(row, 'a', what) ?? 0);
  return [
    { key: 'function', title: 'Function', isText: true, value: (row) => row.function },
    { key: 'module', title: 'Module', isText: true, value: (row) => row.module },
    { key: 'a_count', title: 'Calls A', value: (row) => side(row, 'a', 'count'), show: (row) => shown(side(row, 'a', 'count'), count) },
    { key: 'b_count', title: 'Calls B', value: (row) => side(row, 'b', 'count'), show: (row) => shown(side(row, 'b', 'count'), count) },
    { key: 'a', title: 'A', value: (row) => side(row, 'a', what), show: (row) => shown(side(row, 'a', what), how) },
    { key: 'b', title: 'B', value: (row) => side(row, 'b', what), show: (row) => shown(side(row, 'b', what), how) },
    { key: 'difference', title: 'B − A', value: apart, show: (row) => signed(apart(row), how) },
    { key: 'apart', title: 'Apart', value: (row) => Math.abs(apart(row)), show: (row) => {
      const before = side(row, 'a', what);
      if (!row.a) return 'only in B';
      if (!row.b) return 'only in A';
      return before ? signed(apart(row) / before, percent) : '';
    } },
  ];
}

export class Diff {
  /** @param {HTMLElement} place @param {import('/address.js').State} state @param {{change: (change: object) => void, failed: (error: Error) => void}} told */
  constructor(place, state, told) {
    this.state = state;
    this.told = told;
    this.what = 'total_ns';
    this.order = 'apart';
    this.pickers = make('div', { class: 'tools' });
    this.sheet = make('div');
    place.append(this.pickers, this.sheet);
    this.open().catch(told.failed);
  }

  close() {
    this.isClosed = true;
  }

  async open() {
    const { sessions } = await api.sessions();
    const pick = (label, chosen, key) => {
      const options = sessions.map(({ name, program }) => make('option', { value: name, selected: name === chosen }, `${name} ${program ?? ''}`));
      const select = make('select', { 'aria-label': label, onchange: () => this.told.change({ [key]: select.value }) },
        make('option', { value: '', selected: !chosen }, '…'), ...options);
      return make('label', {}, `${label} `, select);
    };
    const whats = [['total_ns', 'Total'], ['self_ns', 'Self'], ['count', 'Calls'], ['max_ns', 'Longest']];
    const what = make('select', { 'aria-label': 'Compare by', onchange: () => {
      this.what = what.value;
      this.load().catch(this.told.failed);
    } }, ...whats.map(([value, title]) => make('option', { value }, title)));
    this.pickers.replaceChildren(
      make('strong', {}, 'Differences'), pick('A', this.state.session, 'session'), pick('B', this.state.other, 'other'), what,
      make('button', { type: 'button', onclick: () => saveTable(columns(this.what), this.ordered ?? [], 'differences.csv') }, 'CSV'));
    await this.load();
  }

  async load() {
    const { session, other } = this.state;
    if (!session || !other) {
      this.sheet.replaceChildren(make('p', { class: 'padded dim' }, 'Choose two sessions.'));
      return;
    }
    this.answer = await api.diff(session, other, this.what.replace('_ns', ''));
    this.draw();
  }

  draw() {
    if (this.isClosed || !this.answer) return;
    const { element, ordered } = table({
      columns: columns(this.what), rows: this.answer.rows, sort: this.order, label: 'Differences',
      sorted: (order) => {
        this.order = order;
        this.draw();
      },
    });
    this.ordered = ordered;
    const cut = this.answer.of > this.answer.rows.length ? make('p', { class: 'dim padded' }, `${count(this.answer.rows.length)} of ${count(this.answer.of)} functions, those that are most apart`) : null;
    const warnings = this.answer.warnings.map((text) => make('p', { class: 'padded loss' }, text));
    this.sheet.replaceChildren(...warnings, element, ...(cut ? [cut] : []));
  }
}
