// One span, or one gap, in words.

import { make } from '/dom.js';
import { count, duration, time } from '/format.js';
import { CUT, EXCEPTION, OPEN, WAIT } from '/painter.js';

const list = (pairs) => make('dl', {}, ...pairs.filter(([, value]) => value !== null && value !== undefined && value !== '')
  .flatMap(([key, value]) => [make('dt', {}, key), make('dd', {}, value)]));

/** A gap. @param {object} meta @param {number} index */
export function describeGap(meta, index) {
  const gap = meta.gaps[index];
  if (!gap) return make('p', { class: 'padded' }, 'There is no such gap any more.');
  const [row, from, to, missing, cause] = gap;
  return list([
    ['Missing', make('span', { class: 'loss' }, `${count(missing)} events`)],
    ['Cause', cause],
    ['Row', meta.rows[row]?.name ?? '?'],
    ['Last event before', time(from)],
    ['First event behind', time(to)],
    ['Between', duration(to - from)],
    ['So', 'What began or ended in between is not known: spans across it may be longer than what ran, and calls in it are in no number.'],
  ]);
}

/** A value of which only the name is known. */
function shown(key, value) {
  if (/^(created|resumed)_ns$/.test(key)) return time(value);
  if (key.endsWith('_ns') && typeof value === 'number') return duration(value);
  return Array.isArray(value) ? value.join(', ') : String(value);
}

/**
 * A span.
 * @param {object} span what the server says
 * @param {object} meta
 * @param {{call: (name: string) => void, go: (span: object) => void}} told
 */
export function describeSpan(span, meta, told) {
  const marks = [[CUT, 'events of it are missing'], [OPEN, 'it has not ended'], [EXCEPTION, 'an exception or a jump left it'], [WAIT, 'it waits']];
  const said = marks.filter(([flag]) => span.flags & flag).map(([, text]) => text).join(', ');
  const link = (name, act) => make('button', { type: 'button', class: 'link', onclick: act }, name);
  const stack = make('ol', {}, ...span.stack.map(([, name]) => make('li', {}, link(name, () => told.call(name)))));
  const facts = [
    ['Function', make('span', {}, link(span.name, () => told.call(span.name)), span.down ? make('span', { class: 'badge' }, 'counted, not followed') : null)],
    ['Symbol', span.symbol === span.name ? null : span.symbol],
    ['Module', span.module],
    ['Source', span.source],
    ['Kind', span.kind],
    ['Row', `${meta.rows[span.row]?.name ?? '?'}, depth ${span.depth}`],
    ['Start', time(span.start)],
    ['End', span.flags & OPEN ? 'it has not ended' : time(span.end)],
    ['Took', duration(span.end - span.start)],
    ['Marks', said],
    ['Note', span.down ? 'The agent turned this function down at times: then its calls were counted, and not followed' + (span.counted ? `: ${count(span.counted)} of them in the whole session.` : '.') : null],
  ];
  for (const [key, value] of Object.entries(span.more ?? {})) facts.push([key.replaceAll('_', ' ').replace(/ ns$/, ''), shown(key, value)]);
  if (span.registers) facts.push(['Registers at the call', make('code', {}, span.registers.map((pair) => pair.join(' ')).join(', '))]);
  if (span.words?.length) facts.push(['Stack at the call', make('code', {}, span.words.join(' '))]);
  for (const cause of span.causes ?? []) facts.push([cause.how ?? 'Caused by', link(`${cause.name} at ${time(cause.start)}`, () => told.go(cause))]);
  for (const effect of span.effects ?? []) facts.push([effect.how ?? 'Leads to', link(`${effect.name} at ${time(effect.start)}`, () => told.go(effect))]);
  facts.push(['Stack, outermost first', stack]);
  return list(facts);
}

/** Arrows from causes to the span. */
export function arrowsOf(span) {
  const here = { row: span.row, at: span.start, depth: span.depth };
  const there = ({ row, start, depth, at }) => ({ row, at: at ?? start, depth });
  return [
    ...(span.causes ?? []).map((cause) => ({ from: there(cause), to: here })),
    ...(span.effects ?? []).map((effect) => ({ from: here, to: there(effect) })),
  ];
}
