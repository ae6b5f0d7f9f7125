// A tree of calls that opens where one wants it to.

import { make } from '/dom.js';
import { count, duration, percent } from '/format.js';

/**
 * @typedef {object} Node
 * @property {number} what
 * @property {number} count
 * @property {number} total
 * @property {number} self
 * @property {Node[]} children those that took most first
 * @property {Node|null} parent
 */

/** Makes a tree of what the server says. @returns {{roots: Node[], total: number}} */
export function grow({ nodes }) {
  const all = nodes.map(([, what, calls, total, self]) => ({ what, count: calls, total, self, children: [], parent: null }));
  const roots = [];
  nodes.forEach(([parent], at) => {
    if (parent === null) roots.push(all[at]);
    else {
      all[at].parent = all[parent];
      all[parent].children.push(all[at]);
    }
  });
  const order = (list) => list.sort((a, b) => b.total - a.total);
  all.forEach((node) => order(node.children));
  order(roots);
  return { roots, total: roots.reduce((sum, node) => sum + node.total, 0) };
}

/**
 * Shows a tree.
 * @param {{roots: Node[], total: number}} tree
 * @param {object} meta what numbers mean
 * @param {string} label
 * @param {(name: string) => void} chose
 */
export function callTree(tree, meta, label, chose) {
  const element = make('div', { class: 'tree', role: 'tree', 'aria-label': label });
  const lines = new Map();

  const line = (node, level) => {
    const name = meta.functions.name[node.what] ?? '?';
    const twist = make('span', { class: 'twist', 'aria-hidden': 'true' }, node.children.length ? '▸' : '');
    const isDown = meta.functions.down.includes(node.what);
    const text = make('span', { class: 'label' }, twist, name, isDown ? make('span', { class: 'badge' }, 'counted, not followed') : null);
    text.style.paddingLeft = `${Math.min(level, 60) * 12}px`;
    const item = make('div', {
      role: 'treeitem', tabindex: -1, 'aria-level': level + 1, 'aria-expanded': node.children.length ? 'false' : null,
      title: `${count(node.count)} calls, ${duration(node.self)} itself`,
    }, make('span', { class: 'times' }, `${duration(node.total)}  ${percent(node.total / Math.max(1, tree.total))}  ${count(node.count)} ×`), text);
    item.addEventListener('click', () => (node.children.length ? toggle(node) : item.focus()));
    item.addEventListener('dblclick', () => chose(name));
    lines.set(node, { item, level, twist, isOpen: false });
    return item;
  };

  const open = (node) => {
    const { item, level, twist } = lines.get(node);
    if (lines.get(node).isOpen || !node.children.length) return;
    lines.get(node).isOpen = true;
    item.setAttribute('aria-expanded', 'true');
    twist.textContent = '▾';
    item.after(...node.children.map((child) => line(child, level + 1)));
  };

  const close = (node) => {
    const known = lines.get(node);
    if (!known.isOpen) return;
    known.isOpen = false;
    known.item.setAttribute('aria-expanded', 'false');
    known.twist.textContent = '▸';
    for (const child of node.children) {
      close(child);
      lines.get(child).item.remove();
      lines.delete(child);
    }
  };

  const toggle = (node) => {
    if (lines.get(node).isOpen) close(node);
    else open(node);
    lines.get(node).item.focus();
  };

  element.addEventListener('keydown', (event) => {
    const found = [...lines].find(([, { item }]) => item === document.activeElement);
    if (!found) return;
    const [node, { item, isOpen }] = found;
    const actions = {
      ArrowDown: () => item.nextElementSibling?.focus(),
      ArrowUp: () => item.previousElementSibling?.focus(),
      ArrowRight: () => (isOpen ? item.nextElementSibling?.focus() : open(node)),
      ArrowLeft: () => (isOpen ? close(node) : node.parent && lines.get(node.parent)?.item.focus()),
      Enter: () => chose(meta.functions.name[node.what] ?? '?'),
    };
    if (!actions[event.code]) return;
    actions[event.code]();
    event.preventDefault();
    event.stopPropagation();
  });

  element.append(...tree.roots.map((node) => line(node, 0)));
  // The way to where most of the time went.
  for (let node = tree.roots[0], depth = 0; node && depth < 8; [node] = node.children, depth += 1) open(node);
  element.firstElementChild?.setAttribute('tabindex', '0');
  if (!tree.roots.length) element.append(make('p', { class: 'padded dim' }, 'Nothing ran then.'));
  return element;
}
