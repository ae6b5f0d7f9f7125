// Tables that can be sorted and saved.

import { make, save } from '/dom.js';
import { csv } from '/format.js';

/** How many rows are shown: more are in what is saved. */
const MOST_SHOWN = 500;

/**
 * @typedef {object} Column
 * @property {string} key what it is sorted by, and its name in what is saved
 * @property {string} title
 * @property {boolean} [isText]
 * @property {(row: object) => (string|number|null)} value
 * @property {(row: object) => (Node|string)} [show]
 */

/**
 * A table.
 * @param {object} options
 * @param {Column[]} options.columns
 * @param {object[]} options.rows
 * @param {string} options.sort the key of the column that it is sorted by; `-` in front turns that round
 * @param {(sort: string) => void} options.sorted told when somebody wants another order
 * @param {string} options.label
 * @param {(row: object) => boolean} [options.isChosen]
 */
export function table({ columns, rows, sort, sorted, label, isChosen }) {
  const isTurned = sort.startsWith('-');
  const by = columns.find((column) => column.key === sort.replace(/^-/, '')) ?? columns[0];
  const order = (a, b) => {
    const [first, second] = [by.value(a), by.value(b)];
    // Numbers from the largest on, texts from A on; what is not there comes last.
    if (first === second) return 0;
    if (first === null || first === undefined) return 1;
    if (second === null || second === undefined) return -1;
    const result = by.isText ? String(first).localeCompare(String(second)) : second - first;
    return isTurned ? -result : result;
  };
  const ordered = [...rows].sort(order);
  const head = columns.map((column) => {
    const isBy = column === by;
    const isDown = isBy && Boolean(column.isText) === isTurned;
    const turn = () => sorted(isBy && !isTurned ? `-${column.key}` : column.key);
    return make('th', {
      scope: 'col', class: column.isText ? null : 'number', 'aria-sort': isBy ? (isDown ? 'descending' : 'ascending') : 'none',
    }, make('button', { type: 'button', onclick: turn, dataset: { key: column.key } }, `${column.title}${isBy ? (isDown ? ' ▾' : ' ▴') : ''}`));
  });
  const lines = ordered.slice(0, MOST_SHOWN).map((row) => make('tr', { 'aria-selected': isChosen?.(row) ? 'true' : null },
    ...columns.map((column) => make('td', { class: column.isText ? 'long' : 'number' },
      column.show ? column.show(row) : column.value(row) ?? ''))));
  const element = make('table', { 'aria-label': label }, make('thead', {}, make('tr', {}, ...head)), make('tbody', {}, ...lines));
  return { element, ordered };
}

/** Saves rows as a file. @param {Column[]} columns @param {object[]} rows @param {string} name */
export function saveTable(columns, rows, name) {
  const text = csv([columns.map((column) => column.key), ...rows.map((row) => columns.map((column) => column.value(row)))]);
  save(new Blob([text], { type: 'text/csv' }), name);
}
