// Where rows are, from top to bottom.

/** How high a box, and a row that is folded up, is. */
export const BOX = 18;
export const FOLDED = 22;
const PADDING = 4;

/** How many rows are open at first. */
const OPEN_AT_FIRST = 12;

/**
 * @typedef {object} Placed
 * @property {number} row
 * @property {number} y
 * @property {number} height
 * @property {boolean} isOpen
 * @property {object} of the row of the meta data
 */

export class Layout {
  constructor() {
    /** @type {Placed[]} */
    this.rows = [];
    this.height = 0;
    /** @type {Map<string, boolean>} what somebody has opened or closed, by what the rows are */
    this.chosen = new Map();
  }

  static key(row) {
    return `${row.kind}:${row.stream}:${row.name}`;
  }

  /** @param {object} meta */
  place(meta) {
    const busiest = [...meta.rows].sort((a, b) => b.slices - a.slices).slice(0, OPEN_AT_FIRST);
    const open = new Set(busiest.map((row) => row.row));
    let y = 0;
    this.rows = meta.rows.map((row) => {
      const isOpen = this.chosen.get(Layout.key(row)) ?? open.has(row.row);
      const height = isOpen ? Math.max(FOLDED, (row.depths - row.base) * BOX + PADDING) : FOLDED;
      const placed = { row: row.row, y, height, isOpen, of: row };
      y += height;
      return placed;
    });
    this.height = y;
  }

  /** Opens or closes a row. */
  toggle(placed) {
    this.chosen.set(Layout.key(placed.of), !placed.isOpen);
  }

  /** The rows of which something is between these. @returns {Placed[]} */
  between(top, bottom) {
    let [low, high] = [0, this.rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle].y + this.rows[middle].height <= top) low = middle + 1;
      else high = middle;
    }
    let end = low;
    while (end < this.rows.length && this.rows[end].y < bottom) end += 1;
    return this.rows.slice(low, end);
  }

  /** The row with this number. */
  get(row) {
    return this.rows.find((placed) => placed.row === row);
  }
}
