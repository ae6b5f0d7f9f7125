// Draws rows on a canvas.

import { colourOf, stripes, theme } from '/colour.js';
import { count, duration, niceStep, time } from '/format.js';
import { BOX } from '/layout.js';

/** What is known of a box beside its place. */
export const CUT = 1, OPEN = 2, EXCEPTION = 4, WAIT = 8;

/** The narrowest that a box and a gap are drawn. */
const THINNEST = 1;
const THINNEST_GAP = 3;

const FONT = '11px ui-monospace, "DejaVu Sans Mono", monospace';

/**
 * A box as it is drawn.
 * @typedef {object} Drawn
 * @property {number} row
 * @property {number} depth
 * @property {string} name
 * @property {number} x
 * @property {number} y
 * @property {number} width
 * @property {number} start
 * @property {number} end
 * @property {number} count how many are folded together
 * @property {number} flags
 * @property {number} what
 * @property {object} meta
 */

/**
 * Goes through what is visible.
 * @param {object} scene what is visible: `window`, `width`, `height`, `top`, `layout`, `tiles`, `level`, `rows`
 * @param {(drawn: Drawn) => void} take is given the same object again and again
 * @param {{row: number, depth: number}} [only]
 */
export function visit(scene, take, only) {
  const { window: [from, to], width, top, height } = scene;
  const scale = width / (to - from);
  const drawn = {};
  for (const placed of scene.layout.between(top, top + height)) {
    if (only && placed.row !== only.row) continue;
    const y = placed.y - top;
    const parts = scene.tiles.of(placed.row, from, to, scene.level);
    parts.forEach(({ tile, from: partFrom, to: partTo }, at) => {
      const { boxes, meta } = tile;
      const names = meta.functions.name;
      for (let index = 0; index < boxes.count; index += 1) {
        const place = boxes.place[index];
        const depth = place & 0xffffff;
        if (only ? depth !== only.depth : !placed.isOpen && depth > placed.of.base) continue;
        const boxY = y + (depth - placed.of.base) * BOX + 2;
        if (boxY + BOX < 0 || boxY > height) continue;
        const start = boxes.from + boxes.start[index];
        // What goes over the border of a tile is in both: the first that is drawn has it.
        if (start >= partTo || (start < partFrom && at > 0)) continue;
        const end = start + boxes.length[index];
        if (end < partFrom || end < from || start > to) continue;
        const x = (start - from) * scale;
        drawn.x = Math.max(x, -2);
        drawn.width = Math.max(THINNEST, Math.min((end - from) * scale, width + 2) - drawn.x);
        drawn.row = placed.row;
        drawn.depth = depth;
        drawn.y = boxY;
        drawn.start = start;
        drawn.end = end;
        drawn.what = boxes.what[index];
        drawn.name = names[drawn.what] ?? '?';
        drawn.count = boxes.times[index];
        drawn.busy = boxes.busy[index];
        drawn.flags = place >>> 24;
        drawn.meta = meta;
        take(drawn);
      }
    });
  }
}

/** Goes through the gaps that are visible: `take({gap, index, row, x, y, width, height})`. */
export function visitGaps(scene, take) {
  const { window: [from, to], width, top, height, gaps } = scene;
  const scale = width / (to - from);
  for (const placed of scene.layout.between(top, top + height)) {
    let last = -Infinity;
    for (const index of gaps.get(placed.row) ?? []) {
      const [, start, end] = scene.meta.gaps[index];
      if (end < from || start > to) continue;
      const x = Math.max((start - from) * scale, -THINNEST_GAP);
      const right = Math.min((end - from) * scale, width + THINNEST_GAP);
      const wide = Math.max(THINNEST_GAP, right - x);
      // Of many in one place one is enough.
      if (x + wide <= last) continue;
      last = x + wide;
      take({ gap: scene.meta.gaps[index], index, row: placed.row, x, y: placed.y - top, width: wide, height: placed.height });
    }
  }
}

export class Painter {
  /** @param {HTMLCanvasElement} canvas @param {HTMLCanvasElement} axis */
  constructor(canvas, axis) {
    this.canvas = canvas;
    this.axis = axis;
    this.context = canvas.getContext('2d');
    this.pen = axis.getContext('2d');
    this.restyle();
  }

  /** Reads the colours of the page again. */
  restyle() {
    this.theme = theme();
    this.waiting = stripes(this.context, this.theme.isDark ? '#ffffff55' : '#00000044', true);
    this.missing = stripes(this.context, this.theme.loss, false);
  }

  /** Fits a canvas to the pixels of the screen. */
  static fit(canvas, width, height) {
    const ratio = devicePixelRatio || 1;
    const [wide, high] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
    if (canvas.width !== wide || canvas.height !== high) {
      canvas.width = wide;
      canvas.height = high;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    canvas.getContext('2d').setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  paint(scene) {
    const { context, theme: colours } = this;
    const { width, height, top } = scene;
    Painter.fit(this.canvas, width, height);
    context.fillStyle = colours.back;
    context.fillRect(0, 0, width, height);
    context.font = FONT;
    context.textBaseline = 'middle';
    this.letter ??= context.measureText('M').width;
    context.fillStyle = colours.line;
    for (const placed of scene.layout.between(top, top + height)) context.fillRect(0, placed.y - top, width, 1);
    visit(scene, (drawn) => this.box(drawn, scene));
    visitGaps(scene, (drawn) => this.gap(drawn, scene));
    this.chosen(scene);
    this.arrows(scene);
    this.times(scene);
  }

  box(drawn, scene) {
    const { context, theme: colours } = this;
    const { x, y, width, name } = drawn;
    const wide = width > 2.5 ? width - 0.5 : width;
    const isFolded = drawn.count > 1;
    context.fillStyle = colourOf(name, colours.isDark);
    if (isFolded) context.globalAlpha = 0.6;
    context.fillRect(x, y, wide, BOX - 1);
    context.globalAlpha = 1;
    if (isFolded && width > 3) {
      // Like pages that lie on one another.
      context.fillStyle = colours.dim;
      for (let line = 0; line < 3; line += 1) context.fillRect(x, y + BOX - 3 - line * 3, wide, 1);
    }
    if (drawn.flags & WAIT) {
      context.fillStyle = this.waiting;
      context.fillRect(x, y, wide, BOX - 1);
    }
    if (drawn.flags & (CUT | OPEN) && width > 4) {
      // It has no end: nobody knows where it would be.
      context.fillStyle = drawn.flags & CUT ? colours.loss : colours.front;
      for (let at = 0; at < BOX - 1; at += 4) context.fillRect(x + wide - 2, y + at, 2, 2);
    }
    if (drawn.flags & EXCEPTION && width > 4) {
      context.fillStyle = colours.loss;
      context.fillRect(x, y, wide, 2);
    }
    if (scene.hovered === name) {
      context.strokeStyle = colours.front;
      context.lineWidth = 1;
      context.strokeRect(x + 0.5, y + 0.5, Math.max(wide - 1, 0.5), BOX - 2);
    }
    if (width > 24) {
      const left = Math.max(x, 0) + 3;
      const letters = Math.floor((x + width - left - 3) / this.letter);
      const text = isFolded ? `${count(drawn.count)} × ${name}` : name;
      if (letters > 1) {
        context.fillStyle = colours.front;
        context.fillText(text.length > letters ? `${text.slice(0, letters - 1)}…` : text, left, y + BOX / 2);
      }
    }
  }

  gap({ index, x, y, width, height }, scene) {
    const { context, theme: colours } = this;
    context.fillStyle = this.missing;
    // What may have run meanwhile stays readable.
    if (width > 12) context.globalAlpha = 0.45;
    context.fillRect(x, y + 1, width, height - 1);
    context.globalAlpha = 1;
    context.fillStyle = colours.loss;
    context.fillRect(x, y + 1, width, 2);
    if (scene.state.gap === index) {
      context.strokeStyle = colours.loss;
      context.lineWidth = 2;
      context.strokeRect(x - 1, y + 1, width + 2, height - 2);
    }
  }

  /** The span and the part of the time that are chosen. */
  chosen(scene) {
    const { context, theme: colours } = this;
    const { window: [from, to], width, height, state } = scene;
    const scale = width / (to - from);
    const range = scene.dragged ?? state.range;
    if (range) {
      const [left, right] = range.map((at) => (at - from) * scale);
      context.fillStyle = colours.mark;
      context.fillRect(left, 0, right - left, height);
      context.fillStyle = colours.accent;
      context.fillRect(left, 0, 1, height);
      context.fillRect(right, 0, 1, height);
    }
    if (state.span) {
      visit(scene, (drawn) => {
        if (drawn.start !== state.span.start) return;
        context.strokeStyle = colours.accent;
        context.lineWidth = 2;
        context.strokeRect(drawn.x, drawn.y, Math.max(2, drawn.width), BOX - 1);
      }, state.span);
    }
  }

  /** From what caused the span that is chosen. */
  arrows(scene) {
    const { context, theme: colours } = this;
    const { window: [from, to], width, top } = scene;
    const place = ({ row, at, depth }) => {
      const placed = scene.layout.get(row);
      if (!placed) return null;
      return [(at - from) * width / (to - from), placed.y - top + (placed.isOpen ? Math.max(depth - placed.of.base, 0) : 0) * BOX + BOX / 2];
    };
    for (const arrow of scene.arrows) {
      const [start, end] = [place(arrow.from), place(arrow.to)];
      if (!start || !end) continue;
      const bow = Math.max(20, Math.abs(end[0] - start[0]) / 3);
      context.strokeStyle = context.fillStyle = colours.accent;
      context.lineWidth = 1.5;
      context.beginPath();
      context.moveTo(...start);
      context.bezierCurveTo(start[0] + bow, start[1], end[0] - bow, end[1], ...end);
      context.stroke();
      context.beginPath();
      context.moveTo(...end);
      context.lineTo(end[0] - 7, end[1] - 4);
      context.lineTo(end[0] - 7, end[1] + 4);
      context.fill();
    }
  }

  /** The axis. */
  times(scene) {
    const { pen, theme: colours } = this;
    const { window: [from, to], width, gutter } = scene;
    Painter.fit(this.axis, width + gutter, 26);
    pen.fillStyle = colours.band;
    pen.fillRect(0, 0, width + gutter, 26);
    pen.font = FONT;
    pen.textBaseline = 'middle';
    const step = niceStep((to - from) / Math.max(1, width) * 130);
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
      const x = gutter + (at - from) * width / (to - from);
      pen.fillStyle = colours.dim;
      pen.fillRect(x, 18, 1, 8);
      pen.fillStyle = colours.front;
      pen.fillText(time(at, step), x + 3, 13);
    }
    pen.fillStyle = colours.band;
    pen.fillRect(0, 0, gutter, 26);
    pen.fillStyle = colours.dim;
    pen.fillText(duration(to - from), 6, 13);
  }
}
