// The list of sessions.

import * as api from '/api.js';
import { make } from '/dom.js';
import { bytes, count, day, duration, fileName, percent, rate } from '/format.js';

export class Sessions {
  /** @param {HTMLElement} place @param {{compare: (a: string, b: string) => void, failed: (error: Error) => void}} told */
  constructor(place, told) {
    this.told = told;
    this.chosen = [];
    this.button = make('button', { type: 'button', disabled: true, onclick: () => this.compare() }, 'Compare');
    this.head = make('p', { class: 'dim' });
    this.body = make('tbody');
    const titles = [
      ['', 'Compare'], ['Session'], ['Program'], ['State'], ['Start (UTC)'], ['Lasted', null, 1], ['Threads', null, 1], ['Events', null, 1],
      ['Rate', null, 1], ['Missing', null, 1], ['Size', null, 1],
    ];
    const head = titles.map(([title, label, isNumber]) => make('th', { scope: 'col', class: isNumber ? 'number' : null, 'aria-label': label }, title));
    this.table = make('table', { 'aria-label': 'Sessions' }, make('thead', {}, make('tr', {}, ...head)), this.body);
    place.append(make('div', { class: 'tools' }, make('strong', {}, 'Sessions'), this.button, this.head), this.table);
    this.refresh();
  }

  close() {
    this.isClosed = true;
  }

  async refresh() {
    if (this.isLoading) return;
    this.isLoading = true;
    try {
      const list = await api.sessions();
      if (!this.isClosed) this.show(list);
    } catch (error) {
      this.told.failed(error);
    } finally {
      this.isLoading = false;
    }
  }

  show(list) {
    const focused = document.activeElement?.dataset?.session;
    this.head.textContent = list.sessions.length ? `${list.sessions.length} in ${list.dir}` : `There is no session in ${list.dir} yet.`;
    this.body.replaceChildren(...list.sessions.map((session) => this.line(session)));
    this.chosen = this.chosen.filter((name) => list.sessions.some((session) => session.name === name));
    this.button.disabled = this.chosen.length !== 2;
    if (focused) [...this.body.querySelectorAll('a')].find((link) => link.dataset.session === focused)?.focus();
  }

  line(session) {
    const { name } = session;
    const causes = session.causes.map(([cause, missing]) => `${cause} ${count(missing)}`).join(', ');
    const part = session.missing / Math.max(1, session.missing + session.events);
    const check = make('input', { type: 'checkbox', 'aria-label': `Compare ${name}`, onchange: (event) => this.mark(name, event.target.checked) });
    check.checked = this.chosen.includes(name);
    const link = make('a', { href: `#/s/${encodeURIComponent(name)}`, dataset: { session: name } }, name);
    const indent = make('td', { class: 'whole' }, link, session.born ? make('span', { class: 'dim' }, ` ${session.born}`) : null);
    indent.style.paddingLeft = `${8 + Math.min(session.level, 20) * 18}px`;
    const program = make('td', { class: 'clip', title: [session.program, ...(session.arguments ?? [])].join(' ') },
      fileName(session.program) || 'unknown',
      make('span', { class: 'dim' }, ` ${(session.arguments ?? []).slice(1, 5).join(' ')}${session.pid ? ` (pid ${session.pid} on ${session.machine})` : ''}`));
    return make('tr', {},
      make('td', {}, check), indent, program,
      make('td', { class: 'whole', title: session.wrong }, session.state === 'running' ? '● running' : session.state, session.wrong ? make('span', { class: 'loss' }, ' damaged') : null),
      make('td', { class: 'whole' }, day(session.start_unix_ns)),
      make('td', { class: 'number' }, session.lasted_ns ? duration(session.lasted_ns) : ''),
      make('td', { class: 'number' }, count(session.threads)),
      make('td', { class: 'number' }, count(session.events)),
      make('td', { class: 'number' }, session.rate ? rate(session.rate) : ''),
      make('td', { class: session.missing ? 'number loss' : 'number' },
        session.missing ? `${count(session.missing)} (${percent(part)}) ${causes}` : session.finished ? 'nothing' : ''),
      make('td', { class: 'number' }, bytes(session.bytes)));
  }

  mark(name, isChosen) {
    this.chosen = this.chosen.filter((one) => one !== name);
    if (isChosen) this.chosen.push(name);
    this.button.disabled = this.chosen.length !== 2;
  }

  compare() {
    this.told.compare(...this.chosen);
  }
}
