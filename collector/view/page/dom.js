// Elements. Texts become text nodes, and never markup.

/**
 * Makes an element.
 * @param {string} tag
 * @param {Object<string, any>} [properties] attributes; `on…` are listeners, `class` and `dataset` as they are
 * @param {...(Node|string|number|null|undefined|false)} children
 */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key === 'dataset') Object.assign(element.dataset, value);
    else element.setAttribute(key, value === true ? '' : String(value));
  }
  element.append(...children.filter((one) => one !== null && one !== undefined && one !== false).map(asNode));
  return element;
}

function asNode(one) {
  return one instanceof Node ? one : document.createTextNode(String(one));
}

/** The element with this id. */
export const find = (id) => document.getElementById(id);

/** Says something to those who do not see. */
export function announce(text) {
  find('announce').textContent = text;
}

/** Shows what is wrong, or only what goes on, or nothing. */
export function complain(text, isNote = false) {
  const message = find('message');
  message.className = isNote ? 'note' : '';
  message.textContent = text ?? '';
  message.hidden = !text;
}

/** Shows some lines beside the pointer, or nothing. */
export function tip(text, x = 0, y = 0) {
  const element = find('tip');
  element.hidden = !text;
  if (!text) return;
  element.textContent = text;
  const { width, height } = element.getBoundingClientRect();
  element.style.left = `${Math.max(0, Math.min(x + 14, innerWidth - width - 4))}px`;
  element.style.top = `${Math.max(0, y + 18 + height > innerHeight ? y - height - 8 : y + 18)}px`;
}

/** Has the browser save something under a name. */
export function save(blob, name) {
  const address = URL.createObjectURL(blob);
  make('a', { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
