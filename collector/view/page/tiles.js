// What was fetched of the rows: tiles of 1,024 steps, where a step is a power of two of nanoseconds and tiles begin at multiples of
// their width. So what is folded together does not change while one moves about, and tiles can be kept.

import { boxes } from '/api.js';

/** How many steps a tile has. */
const STEPS = 1024;

/** How many boxes are kept, how many are asked for at a time, and of how many rows. */
const MOST_BOXES = 1_500_000;
const AT_ONCE = 4;
const ROWS_AT_ONCE = 48;

/** The step for so many nanoseconds in a pixel, as a power of two. */
export const levelFor = (nsPerPixel) => Math.max(0, Math.floor(Math.log2(Math.max(1, nsPerPixel))));

/** How wide a tile of a level is. */
export const widthOf = (level) => STEPS * 2 ** level;

/**
 * @typedef {object} Tile
 * @property {import('/api.js').Boxes|null} boxes
 * @property {object|null} meta what the numbers in it are of
 * @property {number} generation
 * @property {number} used
 * @property {boolean} isLoading
 */

export class Tiles {
  /**
   * @param {string} session
   * @param {() => void} changed told when there is something new
   * @param {(error: Error) => void} failed
   */
  constructor(session, changed, failed) {
    this.session = session;
    this.changed = changed;
    this.failed = failed;
    /** @type {Map<string, Tile>} */
    this.tiles = new Map();
    /** @type {Map<number, object>} what numbers mean, by generation */
    this.metas = new Map();
    this.generation = 0;
    this.wanted = [];
    this.running = 0;
    this.kept = 0;
    this.clock = 0;
    this.abort = new AbortController();
  }

  /** Takes what numbers mean from now on. Older tiles are drawn until newer ones are there. */
  setMeta(meta) {
    const key = (rows) => rows.map((row) => `${row.kind}${row.stream}${row.name}`);
    const last = this.metas.get(this.generation);
    if (last) {
      const now = key(meta.rows);
      // Rows have other numbers now.
      if (key(last.rows).some((row, at) => row !== now[at])) this.clear();
    }
    this.metas.set(meta.generation, meta);
    this.generation = meta.generation;
    for (const generation of this.metas.keys()) if (this.metas.size > 8 && generation !== meta.generation) this.metas.delete(generation);
  }

  clear() {
    this.tiles.clear();
    this.kept = 0;
  }

  close() {
    this.abort.abort();
    this.wanted = [];
  }

  /** Whether something is on its way. */
  isBusy() {
    return this.running > 0 || this.wanted.length > 0;
  }

  /** Says what is visible: fetches that, and as much again on both sides. @param {number[]} rows */
  want(rows, from, to, level) {
    const width = widthOf(level);
    const [first, last] = [Math.max(0, Math.floor(from / width)), Math.max(0, Math.floor(to / width))];
    const places = [];
    for (let at = first; at <= last; at += 1) places.push(at);
    if (first > 0) places.push(first - 1);
    places.push(last + 1);
    this.wanted = [];
    for (const at of places) {
      const missing = rows.filter((row) => {
        const tile = this.tiles.get(`${row}:${level}:${at}`);
        if (tile) tile.used = this.clock;
        return !tile || (!tile.isLoading && tile.generation !== this.generation);
      });
      for (let part = 0; part < missing.length; part += ROWS_AT_ONCE) {
        this.wanted.push({ level, at, rows: missing.slice(part, part + ROWS_AT_ONCE) });
      }
    }
    this.clock += 1;
    this.fetch();
  }

  fetch() {
    while (this.running < AT_ONCE && this.wanted.length) {
      const { level, at, rows } = this.wanted.shift();
      const needed = rows.filter((row) => !this.tiles.get(`${row}:${level}:${at}`)?.isLoading);
      if (!needed.length) continue;
      this.running += 1;
      for (const row of needed) {
        const key = `${row}:${level}:${at}`;
        const tile = this.tiles.get(key) ?? { boxes: null, meta: null, generation: 0, used: this.clock, isLoading: true };
        tile.isLoading = true;
        this.tiles.set(key, tile);
      }
      this.load(level, at, needed).finally(() => {
        this.running -= 1;
        this.fetch();
        this.changed();
      });
    }
  }

  async load(level, at, rows) {
    const width = widthOf(level);
    const parameters = { rows: rows.join(','), from: at * width, to: (at + 1) * width, step: 2 ** level };
    const keys = rows.map((row) => `${row}:${level}:${at}`);
    try {
      const answer = await boxes(this.session, parameters, this.abort.signal);
      const meta = this.metas.get(answer.generation);
      for (const one of answer.rows) {
        const tile = this.tiles.get(`${one.row}:${level}:${at}`);
        if (!tile) continue;
        tile.isLoading = false;
        // What it means is not known yet: what was there stays until it is.
        if (!meta) continue;
        this.kept += one.count - (tile.boxes?.count ?? 0);
        Object.assign(tile, { boxes: one, meta, generation: answer.generation });
      }
      this.forget();
    } catch (error) {
      for (const key of keys) {
        const tile = this.tiles.get(key);
        // It is asked for again with the next generation, or when it is forgotten.
        if (tile) Object.assign(tile, { isLoading: false, generation: this.generation });
      }
      if (error.name !== 'AbortError') this.failed(error);
    }
  }

  /** Forgets what was not seen for longest. */
  forget() {
    if (this.kept <= MOST_BOXES) return;
    const oldest = [...this.tiles].filter(([, tile]) => !tile.isLoading).sort(([, a], [, b]) => a.used - b.used);
    for (const [key, tile] of oldest) {
      if (this.kept <= MOST_BOXES * 0.7) break;
      this.kept -= tile.boxes?.count ?? 0;
      this.tiles.delete(key);
    }
  }

  /**
   * What there is to draw of a row in a part of the time: tiles of this level, and where those are missing coarser or finer ones,
   * each with the part of the time that it is to be drawn for.
   * @returns {{tile: Tile, from: number, to: number}[]}
   */
  of(row, from, to, level) {
    const found = [];
    const width = widthOf(level);
    for (let at = Math.max(0, Math.floor(from / width)); at * width < to; at += 1) {
      const [start, end] = [at * width, (at + 1) * width];
      const tile = this.ready(row, level, at);
      if (tile) found.push({ tile, from: start, to: end });
      else this.instead(row, level, at, start, end, found);
    }
    return found;
  }

  instead(row, level, at, start, end, found) {
    for (let up = 1; up <= 24; up += 1) {
      const tile = this.ready(row, level + up, Math.floor(at / 2 ** up));
      if (tile) {
        const last = found[found.length - 1];
        if (last?.tile === tile) last.to = end;
        else found.push({ tile, from: start, to: end });
        return;
      }
    }
    for (let down = 1; down <= Math.min(3, level); down += 1) {
      const width = widthOf(level - down);
      const before = found.length;
      for (let part = 0; part < 2 ** down; part += 1) {
        const place = at * 2 ** down + part;
        const tile = this.ready(row, level - down, place);
        if (tile) found.push({ tile, from: place * width, to: (place + 1) * width });
      }
      if (found.length > before) return;
    }
  }

  ready(row, level, at) {
    const tile = this.tiles.get(`${row}:${level}:${at}`);
    return tile?.boxes ? tile : null;
  }
}
