// The timeline: rows from top to bottom, time from left to right.

import * as api from '/api.js';
import { announce, make, save } from '/dom.js';
import { duration } from '/format.js';
import { listen } from '/input.js';
import { BOX, Layout } from '/layout.js';
import { Painter, visit, visitGaps } from '/painter.js';
import { Tiles, levelFor } from '/tiles.js';

/** How wide the names of the rows are. */
const GUTTER = 180;

/** The shortest time that is shown, in ns. */
const SHORTEST = 16;

export class Timeline {
  /**
   * @param {HTMLElement} place
   * @param {string} session
   * @param {import('/address.js').State} state
   * @param {{moved: () => void, chose: (change: object) => void, failed: (error: Error) => void}} told
   */
  constructor(place, session, state, told) {
    this.session = session;
    this.state = state;
    this.told = told;
    this.axis = make('canvas', { id: 'axis', 'aria-hidden': 'true' });
    this.canvas = make('canvas', { id: 'boxes', 'aria-hidden': 'true' });
    this.rows = make('div', { id: 'rows' }, this.canvas);
    this.scroll = make('div', { id: 'scroll', tabindex: 0, role: 'application', 'aria-label': 'Timeline: W, S, A and D move; ? lists all keys' }, this.rows);
    place.append(this.axis, this.scroll);
    this.canvas.style.marginLeft = `${GUTTER}px`;
    this.painter = new Painter(this.canvas, this.axis);
    this.layout = new Layout();
    this.tiles = new Tiles(session, () => this.draw(), told.failed);
    this.headers = new Map();
    this.meta = null;
    this.gaps = new Map();
    this.window = state.window ?? [0, 1];
    this.hovered = null;
    this.dragged = null;
    this.arrows = [];
    this.frames = 0;
    this.isDue = false;
    this.resizing = new ResizeObserver(() => this.draw());
    this.resizing.observe(this.scroll);
    this.scroll.addEventListener('scroll', () => this.draw());
    listen(this);
  }

  close() {
    this.resizing.disconnect();
    this.tiles.close();
    this.isClosed = true;
  }

  /** Takes what is known of the session: at first, and whenever it has grown. */
  setMeta(meta) {
    const isFirst = !this.meta;
    this.meta = meta;
    this.tiles.setMeta(meta);
    this.layout.place(meta);
    this.gaps.clear();
    meta.gaps.forEach(([row], index) => {
      if (!this.gaps.has(row)) this.gaps.set(row, []);
      this.gaps.get(row).push(index);
    });
    for (const list of this.gaps.values()) list.sort((a, b) => meta.gaps[a][1] - meta.gaps[b][1]);
    if (isFirst && !this.state.window) this.fitAll();
    this.draw();
  }

  // What is visible.

  get width() {
    return Math.max(50, this.scroll.clientWidth - GUTTER);
  }

  /** Shows this part of the time, or as near to it as there is something. */
  show(from, to) {
    const [first, last] = this.meta?.range ?? [0, to];
    const all = Math.max(last - first, SHORTEST);
    const span = Math.min(Math.max(to - from, SHORTEST), all * 1.2);
    const middle = (from + to) / 2;
    let start = Math.max(0, middle - span / 2);
    start = Math.max(Math.min(start, last + all * 0.1 - span * 0.2), Math.max(0, first - span * 0.8));
    this.window = [start, start + span];
    this.state.window = this.window.map(Math.round);
    if (this.state.window[0] === this.state.window[1]) this.state.window[1] += 1;
    this.draw();
    this.told.moved();
  }

  /** Makes the window so many times as wide, around a place between 0 and 1. */
  zoom(factor, at = 0.5) {
    const [from, to] = this.window;
    const span = Math.max((to - from) * factor, SHORTEST);
    const fixed = from + (to - from) * at;
    this.show(fixed - span * at, fixed - span * at + span);
  }

  /** Moves by a part of the window. */
  pan(part) {
    const [from, to] = this.window;
    const by = (to - from) * part;
    this.show(from + by, to + by);
  }

  /** Shows all of the session. */
  fitAll() {
    const [from, to] = this.meta.range;
    const room = (to - from) * 0.02;
    this.show(from - room, to + room);
  }

  /** Shows a part of the time with a little room around. */
  fit(from, to) {
    const room = Math.max((to - from) * 0.05, 1);
    this.show(from - room, to + room);
  }

  /** The time at a place on the canvas. */
  timeAt(x) {
    const [from, to] = this.window;
    return from + (to - from) * x / this.width;
  }

  scene() {
    return {
      window: this.window, width: this.width, height: this.scroll.clientHeight, top: this.scroll.scrollTop, gutter: GUTTER,
      layout: this.layout, tiles: this.tiles, level: this.level(), meta: this.meta, gaps: this.gaps, state: this.state,
      hovered: this.hovered, dragged: this.dragged, arrows: this.arrows,
    };
  }

  level() {
    const [from, to] = this.window;
    return levelFor((to - from) / this.width);
  }

  // What is drawn.

  /** Draws soon, once, however often this is called. */
  draw() {
    if (this.isDue || this.isClosed) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      if (!this.meta || this.isClosed) return;
      this.frames += 1;
      this.rows.style.height = `${Math.max(this.layout.height, this.scroll.clientHeight)}px`;
      const scene = this.scene();
      const visible = this.layout.between(scene.top, scene.top + scene.height);
      this.tiles.want(visible.map((placed) => placed.row), ...this.window, scene.level);
      this.painter.paint(scene);
      this.name(visible);
    });
  }

  /** The names of the rows, only of those that are visible. */
  name(visible) {
    const kept = new Set();
    for (const placed of visible) {
      const { of, isOpen } = placed;
      const key = `${placed.row}:${isOpen}:${of.name}`;
      kept.add(key);
      let element = this.headers.get(key);
      if (!element) {
        const turn = () => {
          this.layout.toggle(this.layout.get(placed.row) ?? placed);
          this.layout.place(this.meta);
          this.draw();
        };
        const missing = (this.gaps.get(placed.row) ?? []).reduce((sum, index) => sum + this.meta.gaps[index][3], 0);
        element = make('div', { class: 'row' },
          make('button', { type: 'button', 'aria-expanded': String(isOpen), 'aria-label': `${isOpen ? 'Close' : 'Open'} ${of.name}`, onclick: turn }, isOpen ? '▾' : '▸'),
          make('span', { class: 'name', title: `${of.name}${of.tid ? ` (tid ${of.tid})` : ''}, ${of.slices} spans` },
            of.kind === 'logical' ? `${of.name} spans` : of.name,
            of.tid ? make('span', { class: 'dim' }, ` ${of.tid}`) : null,
            missing ? make('span', { class: 'loss', title: 'events are missing' }, ` −${missing}`) : null));
        this.headers.set(key, element);
        this.rows.append(element);
      }
      element.style.top = `${placed.y}px`;
      element.style.height = `${placed.height}px`;
    }
    for (const [key, element] of this.headers) {
      if (kept.has(key)) continue;
      element.remove();
      this.headers.delete(key);
    }
  }

  /** What is drawn, for those who cannot see it. */
  drawn() {
    const list = [];
    if (!this.meta) return list;
    const scene = this.scene();
    visit(scene, ({ row, depth, name, x, y, width, start, end, count, flags }) => {
      list.push({ kind: 'box', row, depth, name, x, y, width, start, end, count, flags });
    });
    visitGaps(scene, ({ gap, index, row, x, y, width }) => {
      list.push({ kind: 'gap', row, depth: 0, name: gap[4], x, y, width, start: gap[1], end: gap[2], count: gap[3], index });
    });
    return list;
  }

  /** What is at a place on the canvas: a gap, or the box there, or the nearest that is too narrow to be hit. */
  at(x, y) {
    if (!this.meta) return null;
    const scene = this.scene();
    const [placed] = this.layout.between(y + scene.top, y + scene.top + 1);
    if (!placed) return null;
    let found = null;
    visitGaps(scene, (drawn) => {
      // Wide ones leave what is below them to be clicked.
      const high = drawn.width > 12 ? 5 : drawn.height;
      if (drawn.row === placed.row && x >= drawn.x && x <= drawn.x + drawn.width && y <= drawn.y + high) found = { ...drawn, isGap: true };
    });
    if (found) return found;
    const depth = placed.of.base + (placed.isOpen ? Math.floor((y + scene.top - placed.y - 2) / BOX) : 0);
    let best = 3;
    visit(scene, (drawn) => {
      const distance = x < drawn.x ? drawn.x - x : Math.max(0, x - drawn.x - drawn.width);
      if (distance < best) {
        best = distance;
        found = { ...drawn };
      }
    }, { row: placed.row, depth });
    return found;
  }

  // What is chosen.

  /** Chooses what was clicked. */
  choose(hit) {
    if (!hit) this.told.chose({ span: null, gap: null });
    else if (hit.isGap) this.told.chose({ gap: hit.index, span: null, tab: 'span' });
    else if (hit.count > 1) this.fit(hit.start, hit.end);
    else {
      announce(`${hit.name}, ${duration(hit.end - hit.start)}`);
      this.told.chose({ span: { row: hit.row, start: hit.start, depth: hit.depth }, gap: null, tab: 'span' });
    }
  }

  /** Brings a span into view. */
  reveal(span) {
    const [from, to] = this.window;
    const long = span.end - span.start;
    if (span.start < from || span.end > to || long < (to - from) / 200) {
      const room = Math.max(long * 4, SHORTEST);
      this.show(span.start - room, span.end + room);
    }
    this.bring(span);
  }

  /** Scrolls to the row of a span, and opens it. */
  bring(span) {
    const placed = this.layout.get(span.row);
    if (!placed) return;
    if (!placed.isOpen && span.depth > placed.of.base) {
      this.layout.toggle(placed);
      this.layout.place(this.meta);
    }
    const y = this.layout.get(span.row).y + (span.depth - placed.of.base) * BOX;
    const [top, height] = [this.scroll.scrollTop, this.scroll.clientHeight];
    this.rows.style.height = `${Math.max(this.layout.height, height)}px`;
    if (y < top || y + BOX > top + height) this.scroll.scrollTop = Math.max(0, y - height / 3);
    this.draw();
  }

  /** Goes to the next span of the same row and depth, or the one before. */
  async sibling(forward) {
    const { span } = this.state;
    if (!span) return;
    const level = Math.min(this.level(), 10);
    const all = [];
    visit(this.scene(), (drawn) => all.push({ ...drawn }), span);
    all.sort((a, b) => a.start - b.start);
    const next = forward ? all.find((one) => one.start > span.start) : all.findLast((one) => one.start < span.start);
    if (next && next.count === 1) {
      this.choose(next);
      this.reveal(next);
      return;
    }
    // None is visible that is not folded: those around it are asked for, in ever longer parts of the time.
    for (let width = 2 ** (level + 6), tries = 0; tries < 24; tries += 1, width *= 4) {
      const from = Math.max(0, Math.round(forward ? span.start : span.start - width));
      const parameters = { rows: span.row, from, to: Math.max(from + 1, Math.round(forward ? span.start + width : span.start)), step: Math.max(1, Math.ceil(width / 8192)) };
      const { rows: [boxes] } = await api.boxes(this.session, parameters);
      const found = [];
      for (let index = 0; index < boxes.count; index += 1) {
        const start = boxes.from + boxes.start[index];
        if ((boxes.place[index] & 0xffffff) !== span.depth || (forward ? start <= span.start : start >= span.start)) continue;
        found.push({ row: span.row, depth: span.depth, start, end: start + boxes.length[index], count: 1, name: this.meta.functions.name[boxes.what[index]] });
      }
      if (found.length) {
        found.sort((a, b) => a.start - b.start);
        const hit = forward ? found[0] : found[found.length - 1];
        this.choose(hit);
        this.reveal(hit);
        return;
      }
    }
  }

  /** Saves what is drawn as a picture. */
  async picture() {
    const ratio = devicePixelRatio || 1;
    const sheet = document.createElement('canvas');
    sheet.width = this.axis.width;
    sheet.height = this.axis.height + this.canvas.height;
    const pen = sheet.getContext('2d');
    const { theme } = this.painter;
    pen.fillStyle = theme.back;
    pen.fillRect(0, 0, sheet.width, sheet.height);
    pen.drawImage(this.axis, 0, 0);
    pen.drawImage(this.canvas, GUTTER * ratio, this.axis.height);
    pen.scale(ratio, ratio);
    pen.font = '12px system-ui, sans-serif';
    pen.fillStyle = theme.front;
    const top = this.scroll.scrollTop;
    for (const placed of this.layout.between(top, top + this.scroll.clientHeight)) {
      pen.fillText(placed.of.name.slice(0, 28), 6, Math.max(placed.y - top, 0) + 26 + 15);
    }
    const blob = await new Promise((resolve) => sheet.toBlob(resolve, 'image/png'));
    save(blob, `${this.session}.png`);
    return blob.size;
  }
}
