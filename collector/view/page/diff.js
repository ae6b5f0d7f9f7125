// Two sessions side by side.

import * as api from '/api.js';
import { make } from '/dom.js';
import { count, duration, percent } from '/format.js';
import { saveTable, table } from '/table.js';

const signed = (value, how) => `${value > 0 ? '+' : value < 0 ? '−' : ''}${how(Math.abs(value))}`;

/** What is compared, as the server calls it. */
const MEASURES = [['total', 'Total'], ['self', 'Self'], ['calls', 'Calls']];

function columns(what) {
  const [how, unit] = what === 'calls' ? [count, ''] : [duration, '_ns'];
  const number = (key, name, side) => (row) => (row.only_in && row.only_in !== side ? null : row[`${name}_${key}`]);
  const cell = (key, title, value, show) => ({ key, title, value, show: (row) => (value(row) === null ? '–' : show(value(row))) });
  const change = (row) => row[`${what}_change${unit}`];
  const error = (row) => row[`${what}_error${unit}`];
  const calls = what === 'calls' ? [] : [cell('calls_a', 'Calls A', number('a', 'calls', 'A'), count), cell('calls_b', 'Calls B', number('b', 'calls', 'B'), count)];
  return [
    { key: 'function', title: 'Function', isText: true, value: (row) => row.function },
    { key: 'module', title: 'Module', isText: true, value: (row) => row.module },
    ...calls,
    cell('a', 'A', number(`a${unit}`, what, 'A'), how),
    cell('b', 'B', number(`b${unit}`, what, 'B'), how),
    { key: 'change', title: 'B − A', value: change, show: (row) => signed(change(row), how) },
    { key: 'error', title: '±', value: error, show: (row) => (error(row) === null ? '?' : how(error(row))) },
    // Where nobody knows by how much it may be off, it comes last.
    { key: 'apart', title: 'Apart', value: (row) => (error(row) === null ? null : Math.abs(change(row))), show: (row) => {
      if (row.only_in) return `only in ${row.only_in}`;
      const before = row[`${what}_a${unit}`];
      return `${before ? signed(change(row) / before, percent) : ''}${row.within_noise ? ' noise' : ''}`;
    } },
  ];
}

export class Diff {
  /** @param {HTMLElement} place @param {import('/address.js').State} state @param {{change: (change: object) => void, failed: (error: Error) => void}} told */
  constructor(place, state, told) {
    this.state = state;
    this.told = told;
    this.what = 'total';
    this.isAll = false;
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
    const again = () => this.load().catch(this.told.failed);
    const what = make('select', { 'aria-label': 'Compare by', onchange: () => {
      this.what = what.value;
      again();
    } }, ...MEASURES.map(([value, title]) => make('option', { value }, title)));
    const all = make('input', { type: 'checkbox', onchange: () => {
      this.isAll = all.checked;
      again();
    } });
    this.pickers.replaceChildren(
      make('strong', {}, 'Differences'), pick('A', this.state.session, 'session'), pick('B', this.state.other, 'other'), what,
      make('label', { title: 'Those, too, that do not differ, or no more than single calls do' }, all, ' with noise'),
      make('button', { type: 'button', onclick: () => saveTable(columns(this.what), this.ordered ?? [], 'differences.csv') }, 'CSV'));
    await this.load();
  }

  async load() {
    const { session, other } = this.state;
    if (!session || !other) {
      this.sheet.replaceChildren(make('p', { class: 'padded dim' }, 'Choose two sessions.'));
      return;
    }
    this.turn = (this.turn ?? 0) + 1;
    const { turn } = this;
    const isLate = () => this.isClosed || turn !== this.turn;
    const answer = await api.diff(session, other, this.what, this.isAll, (progress) => {
      if (isLate()) throw new DOMException('nobody wants it any more', 'AbortError');
      this.sheet.replaceChildren(make('p', { class: 'padded dim', role: 'status' }, `Both sessions are being read: ${progress} %`));
    });
    if (isLate()) return;
    this.answer = answer;
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
    const { of, differ, rows } = this.answer;
    const said = [`${count(of)} functions compared`];
    if (differ < of) said.push(`${count(of - differ)} of them do not differ, or no more than single calls do`);
    if (rows.length < differ) said.push(`the ${count(rows.length)} that differ most are shown`);
    const foot = make('p', { class: 'dim padded' }, said.join('; '));
    const warnings = this.answer.warnings.map((text) => make('p', { class: 'padded loss' }, text));
    this.sheet.replaceChildren(...warnings, element, foot);
  }
}
