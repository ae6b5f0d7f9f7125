// The keys.

import { find, make } from '/dom.js';

const KEYS = [
  ['W S', 'zoom in, out (Shift: faster); Ctrl+wheel zooms at the pointer'],
  ['A D', 'move left, right; Shift+drag, Shift+wheel and two fingers, too'],
  ['drag', 'choose a part of the time: the tables below are of it'],
  ['click', 'choose a span or a gap; a folded box opens; double click fits it'],
  ['F', 'fit what is chosen, or all; 0 fits all'],
  ['R', 'choose the time of the chosen span'],
  ['. ,', 'next span of the same row and depth, the one before'],
  ['/', 'find a function: Enter the next call, Shift+Enter the one before, also on the timeline'],
  ['L', 'follow the end of a session that runs, or stop that'],
  ['P', 'save the chosen part of the time, or all of it, as a Perfetto trace'],
  ['1 … 5', 'Top, Flame graph, Call tree, Callers and callees, Span'],
  ['Esc', 'choose nothing; leave the search'],
  ['?', 'this'],
];

const SIGNS = [
  ['stripes in red', 'events are missing there: click them for the cause'],
  ['lines below', 'several calls that are too narrow to be drawn: zoom in'],
  ['stripes in a box', 'it waits, and does not run'],
  ['dots at the end', 'the end is missing (red), or it has not ended'],
  ['red on top', 'an exception or a jump left it'],
];

/** Shows them. */
export function help() {
  const dialog = find('help');
  if (dialog.open) {
    dialog.close();
    return;
  }
  const rows = (list, tag) => list.map(([key, text]) => make('tr', {}, make('td', {}, make(tag, {}, key)), make('td', {}, text)));
  dialog.replaceChildren(
    make('h2', {}, 'Keys'), make('table', {}, make('tbody', {}, ...rows(KEYS, 'kbd'))),
    make('h2', {}, 'Signs'), make('table', {}, make('tbody', {}, ...rows(SIGNS, 'span'))),
    make('form', { method: 'dialog', class: 'tools' }, make('button', { autofocus: true }, 'Close')));
  dialog.showModal();
}
