// A flame graph: what called is below what was called, and as wide as it took long.

import { make, tip } from '/dom.js';
import { colourOf, theme } from '/colour.js';
import { count, duration, percent } from '/format.js';
import { Painter } from '/painter.js';

const HIGH = 18;

export class Flame {
  /**
   * @param {HTMLElement} place
   * @param {{roots: import('/calltree.js').Node[], total: number}} tree
   * @param {object} meta
   * @param {(name: string) => void} chose
   */
  constructor(place, tree, meta, chose) {
    this.tree = tree;
    this.meta = meta;
    this.place = place;
    this.root = null;
    this.boxes = [];
    this.canvas = make('canvas', { id: 'flame', tabindex: 0, role: 'img', 'aria-label': 'Flame graph; the call tree has the same as text' });
    place.replaceChildren(this.canvas);
    this.canvas.addEventListener('click', (event) => {
      const hit = this.at(event);
      this.root = hit && hit.node !== this.root ? hit.node : null;
      this.draw();
    });
    this.canvas.addEventListener('dblclick', (event) => {
      const hit = this.at(event);
      if (hit) chose(this.name(hit.node));
    });
    this.canvas.addEventListener('keydown', (event) => {
      if (event.code !== 'Escape' || !this.root) return;
      this.root = this.root.parent;
      this.draw();
      event.stopPropagation();
    });
    this.canvas.addEventListener('pointermove', (event) => {
      const hit = this.at(event);
      const node = hit?.node;
      tip(node && [this.name(node), `${duration(node.total)} (${percent(node.total / Math.max(1, this.tree.total))}), ${duration(node.self)} itself`, `${count(node.count)} calls`].join('\n'), event.clientX, event.clientY);
    });
    this.canvas.addEventListener('pointerleave', () => tip(null));
    this.draw();
  }

  name(node) {
    return this.meta.functions.name[node.what] ?? '?';
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    return this.boxes.find((one) => x >= one.x && x < one.x + one.width && y >= one.y && y < one.y + HIGH) ?? null;
  }

  draw() {
    const width = Math.max(100, this.place.clientWidth - 2);
    this.boxes = [];
    const above = [];
    for (let node = this.root?.parent; node; node = node.parent) above.unshift(node);
    above.forEach((node, depth) => this.boxes.push({ node, x: 0, y: depth * HIGH, width, isAbove: true }));
    const lay = (nodes, x, scale, depth) => {
      for (const node of nodes) {
        const wide = node.total * scale;
        if (wide >= 0.7) {
          this.boxes.push({ node, x, y: depth * HIGH, width: wide });
          lay(node.children, x, scale, depth + 1);
        }
        x += wide;
      }
    };
    if (this.root) lay([this.root], 0, width / Math.max(1, this.root.total), above.length);
    else lay(this.tree.roots, 0, width / Math.max(1, this.tree.total), 0);
    const height = this.boxes.reduce((most, one) => Math.max(most, one.y + HIGH), HIGH) + 4;
    Painter.fit(this.canvas, width, height);
    const colours = theme();
    const pen = this.canvas.getContext('2d');
    pen.fillStyle = colours.back;
    pen.fillRect(0, 0, width, height);
    pen.font = '11px ui-monospace, "DejaVu Sans Mono", monospace';
    pen.textBaseline = 'middle';
    const letter = pen.measureText('M').width;
    for (const { node, x, y, width: wide, isAbove } of this.boxes) {
      const name = this.name(node);
      pen.fillStyle = colourOf(name, colours.isDark);
      pen.globalAlpha = isAbove ? 0.5 : 1;
      pen.fillRect(x, y, Math.max(0.6, wide - 0.6), HIGH - 1);
      pen.globalAlpha = 1;
      const letters = Math.floor((wide - 6) / letter);
      if (letters > 1) {
        pen.fillStyle = colours.front;
        pen.fillText(name.length > letters ? `${name.slice(0, letters - 1)}…` : name, x + 3, y + HIGH / 2);
      }
    }
  }
}
