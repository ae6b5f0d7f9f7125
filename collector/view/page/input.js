// Pointers and wheels on the timeline, and keys.

import { tip } from '/dom.js';
import { count, duration } from '/format.js';
import { CUT, EXCEPTION, OPEN, WAIT } from '/painter.js';

/** How far a pointer moves before that is no click. */
const STILL = 4;

/** What is said of what is under the pointer. */
function describe(hit) {
  if (hit.isGap) return `${count(hit.gap[3])} events are missing\n${hit.gap[4]}\n${duration(hit.gap[2] - hit.gap[1])}`;
  const marks = [[CUT, 'an end is missing'], [OPEN, 'has not ended'], [EXCEPTION, 'left by an exception'], [WAIT, 'waiting']];
  const said = marks.filter(([flag]) => hit.flags & flag).map(([, text]) => text);
  const functions = hit.meta.functions;
  if (functions.down.includes(hit.what)) said.push('counted, not followed at times');
  const head = hit.count > 1 ? `${count(hit.count)} calls, the longest of ${hit.name}` : hit.name;
  const long = hit.count > 1 ? `${duration(hit.busy)} of ${duration(hit.end - hit.start)}` : duration(hit.end - hit.start);
  return [head, long, ...said].join('\n');
}

/** Listens to pointers and wheels. @param {import('/timeline.js').Timeline} timeline */
export function listen(timeline) {
  const { canvas } = timeline;
  /** @type {Map<number, {x: number, y: number}>} */
  const pointers = new Map();
  let drag = null;
  let pinch = null;

  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  timeline.scroll.addEventListener('wheel', (event) => {
    const { x } = place(event);
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      timeline.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 200))), Math.max(0, Math.min(1, x / timeline.width)));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      timeline.pan((event.deltaX || event.deltaY) / timeline.width);
      timeline.told.navigated?.();
    }
  }, { passive: false });

  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    timeline.scroll.focus({ preventScroll: true });
    const at = place(event);
    pointers.set(event.pointerId, at);
    canvas.setPointerCapture(event.pointerId);
    if (pointers.size === 2) {
      const [a, b] = [...pointers.values()];
      pinch = { distance: Math.max(10, Math.abs(a.x - b.x)), window: [...timeline.window], middle: (a.x + b.x) / 2 };
      drag = null;
      timeline.dragged = null;
      return;
    }
    drag = { ...at, isPan: event.shiftKey || event.pointerType === 'touch', window: [...timeline.window], isMoved: false };
  });

  canvas.addEventListener('pointermove', (event) => {
    const at = place(event);
    if (pointers.has(event.pointerId)) pointers.set(event.pointerId, at);
    if (pinch && pointers.size === 2) {
      const [a, b] = [...pointers.values()];
      const factor = pinch.distance / Math.max(10, Math.abs(a.x - b.x));
      const [from, to] = pinch.window;
      const fixed = from + (to - from) * pinch.middle / timeline.width;
      const span = (to - from) * factor;
      const left = fixed - span * ((a.x + b.x) / 2) / timeline.width;
      timeline.show(left, left + span);
      return;
    }
    if (drag) {
      drag.isMoved ||= Math.abs(at.x - drag.x) > STILL || Math.abs(at.y - drag.y) > STILL * 3;
      if (!drag.isMoved) return;
      tip(null);
      if (drag.isPan) {
        const [from, to] = drag.window;
        const by = (drag.x - at.x) * (to - from) / timeline.width;
        timeline.show(from + by, to + by);
        timeline.told.navigated?.();
      } else {
        const ends = [timeline.timeAt(drag.x), timeline.timeAt(at.x)].map((time) => Math.max(0, Math.round(time)));
        timeline.dragged = ends.sort((a, b) => a - b);
        timeline.draw();
      }
      return;
    }
    const hit = timeline.at(at.x, at.y);
    const name = hit && !hit.isGap ? hit.name : null;
    if (name !== timeline.hovered) {
      timeline.hovered = name;
      timeline.draw();
    }
    tip(hit ? describe(hit) : null, event.clientX, event.clientY);
  });

  const end = (event) => {
    const was = drag;
    pointers.delete(event.pointerId);
    if (pointers.size < 2) pinch = null;
    drag = null;
    if (!was || event.type === 'pointercancel') return;
    if (!was.isMoved) {
      const { x, y } = place(event);
      timeline.choose(timeline.at(x, y));
    } else if (timeline.dragged) {
      const range = timeline.dragged;
      timeline.dragged = null;
      if (range[0] < range[1]) timeline.told.chose({ range });
      timeline.draw();
    }
  };
  canvas.addEventListener('pointerup', end);
  canvas.addEventListener('pointercancel', end);
  canvas.addEventListener('pointerleave', () => {
    tip(null);
    if (timeline.hovered !== null) {
      timeline.hovered = null;
      timeline.draw();
    }
  });
  canvas.addEventListener('dblclick', (event) => {
    const { x, y } = place(event);
    const hit = timeline.at(x, y);
    if (!hit) return;
    if (hit.isGap) timeline.fit(hit.gap[1], hit.gap[2]);
    else timeline.fit(hit.start, hit.end);
  });
}

/**
 * What a key does on the timeline, by its place on the keyboard and not by what is printed on it.
 * @param {import('/timeline.js').Timeline} timeline
 * @param {KeyboardEvent} event
 * @returns {boolean} whether it does something
 */
export function key(timeline, event) {
  const { state } = timeline;
  const far = event.shiftKey ? 4 : 1;
  const pan = (part) => {
    timeline.pan(part * far);
    timeline.told.navigated?.();
  };
  const actions = {
    KeyW: () => timeline.zoom(0.7 ** far),
    KeyS: () => timeline.zoom(1 / 0.7 ** far),
    Equal: () => timeline.zoom(0.7),
    Minus: () => timeline.zoom(1 / 0.7),
    KeyA: () => pan(-0.15),
    KeyD: () => pan(0.15),
    ArrowLeft: () => pan(-0.15),
    ArrowRight: () => pan(0.15),
    KeyF: () => {
      const chosen = timeline.chosen;
      if (chosen) timeline.fit(chosen.start, chosen.end);
      else if (state.range) timeline.fit(...state.range);
      else timeline.fitAll();
    },
    Digit0: () => timeline.fitAll(),
    KeyR: () => timeline.chosen && timeline.told.chose({ range: [timeline.chosen.start, Math.max(timeline.chosen.end, timeline.chosen.start + 1)] }),
    Period: () => timeline.sibling(true).catch(timeline.told.failed),
    Comma: () => timeline.sibling(false).catch(timeline.told.failed),
    Escape: () => timeline.told.chose({ span: null, gap: null, range: state.span || state.gap !== null ? state.range : null }),
  };
  if (event.ctrlKey || event.metaKey || event.altKey || !actions[event.code]) return false;
  actions[event.code]();
  return true;
}
