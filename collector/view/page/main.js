// The page: what is shown, and how one gets there.

import * as address from '/address.js';
import * as api from '/api.js';
import { Diff } from '/diff.js';
import { complain, find, make } from '/dom.js';
import { count, fileName, rate, time } from '/format.js';
import { help } from '/help.js';
import { key } from '/input.js';
import { Live } from '/live.js';
import { Panel, TABS } from '/panel.js';
import { Sessions } from '/sessions.js';
import { Timeline } from '/timeline.js';

/** How much of a session that runs the tables are of, in ns. */
const RECENT = 5e9;

/** @type {import('/address.js').State} */
let state = address.empty();
/** @type {{close: () => void, [key: string]: any}|null} what fills the page */
let shown = null;
let live = null;
let isFollowing = false;
let saving = 0;

const failed = (error) => {
  if (error.name !== 'AbortError') complain(error.status === 401 ? 'This page knows no token: open the address that `collector view` printed.' : error.message);
};

// Addresses.

/** Keeps the address with what is shown. Every choice is a step back; moving about is none. */
function keep(isStep) {
  clearTimeout(saving);
  const hash = address.write(state);
  if (hash === location.hash) return;
  if (isStep) history.pushState(null, '', hash);
  else saving = setTimeout(() => history.replaceState(null, '', address.write(state)), 200);
}

function change(changes, isQuiet = false) {
  const before = { ...state };
  Object.assign(state, changes);
  keep(!isQuiet);
  if (state.view !== 'timeline') open();
  else if (!isQuiet) settle(before);
}

/** Has the timeline and the panel show what is chosen. */
function settle(before) {
  const { timeline, panel } = shown ?? {};
  if (!timeline) return;
  if (state.span !== before.span) {
    timeline.arrows = [];
    timeline.chosen = null;
  }
  if (state.gap !== null) {
    const gap = timeline.meta?.gaps[state.gap];
    timeline.chosen = gap ? { start: gap[1], end: gap[2] } : null;
  }
  timeline.draw();
  panel.refresh();
}

// What fills the page.

function open() {
  shown?.close();
  live?.close();
  shown = live = null;
  complain(null);
  setFollowing(false);
  find('main').replaceChildren();
  find('main').className = state.view;
  find('title').textContent = '';
  find('loss').hidden = true;
  for (const id of ['search', 'picture', 'perfetto', 'follow']) find(id).hidden = state.view !== 'timeline';
  if (state.view === 'timeline') openSession();
  else if (state.view === 'diff') shown = new Diff(find('main'), state, { change, failed });
  else {
    const sessions = new Sessions(find('main'), { failed, compare: (a, b) => change({ view: 'diff', session: a, other: b }) });
    shown = sessions;
    live = hear(null, () => sessions.refresh());
  }
  document.title = state.session ? `${state.session} – Spoor` : 'Spoor';
}

/** Listens to the server, and says when it is gone: that it is, or that it is another now, which knows another token. */
function hear(session, changed) {
  return new Live(session, {
    changed,
    lost: () => api.sessions().then(() => {}, failed),
    // Whatever was asked for meanwhile is not there.
    back: open,
  });
}

function openSession() {
  const main = find('main');
  const { session } = state;
  const stage = make('div');
  stage.style.cssText = 'flex: 1; min-height: 0; display: flex; flex-direction: column';
  const place = make('div', { id: 'panel' });
  const separator = separate(place);
  main.append(stage, separator, place);
  const timeline = new Timeline(stage, session, state, {
    failed, chose: change, moved: () => keep(false), navigated: () => setFollowing(false),
  });
  const panel = new Panel(place, session, state, {
    chose: change,
    arrows: (arrows) => {
      timeline.arrows = arrows;
      timeline.draw();
    },
    span: (span) => {
      timeline.chosen = span;
    },
    go: (span) => {
      change({ span: { row: span.row, start: span.start, depth: span.depth }, gap: null, tab: 'span' });
      timeline.reveal(span);
    },
  });
  const mine = { timeline, panel, close: () => {
    mine.isClosed = true;
    timeline.close();
    panel.close();
  } };
  shown = mine;
  const take = (meta) => {
    const isFirst = !mine.meta;
    const isAnywhere = !state.window && !state.range;
    mine.before = mine.meta?.range;
    mine.meta = panel.meta = meta;
    mine.title = [fileName(meta.program), meta.pid && `pid ${meta.pid}`, meta.machine && `on ${meta.machine}`, session].filter(Boolean).join(' ');
    tellTitle(mine);
    tellLoss(meta.missing);
    if (!meta.finished) complain(null);
    if (meta.cut) complain(`${count(meta.cut)} calls are not shown, or without their callers: they are too deep, or there are too many different stacks`);
    if (meta.wrong) complain(`The trace is damaged: ${meta.wrong}`);
    timeline.setMeta(meta);
    if (isFirst && !meta.finished && isAnywhere) setFollowing(true);
    else if (!isFollowing) panel.setHot(false);
    if (isFollowing) follow();
    else if (isFirst || !state.range) panel.refresh();
    if (isFirst && state.span) timeline.bring(state.span);
  };
  const load = async () => {
    const asked = async () => {
      const meta = await api.about(session, 'meta');
      if (!meta.ready) throw new api.Refused(503, 'it is being made', meta.progress);
      return meta;
    };
    const meta = await api.patient(asked, (progress) => {
      if (!mine.isClosed) complain(mine.meta ? null : `The overview of this session is being made: ${progress} %`, true);
    });
    if (mine.isClosed) return;
    complain(null);
    take(meta);
  };
  mine.loading = load().catch(failed);
  live = hear(session, (told) => {
    const now = told.session;
    if (!now || mine.isClosed) return;
    if (now.gone) {
      complain(now.gone);
      return;
    }
    mine.now = now;
    mine.wasRunning ||= !now.finished;
    find('follow').hidden = now.finished;
    if (now.finished && isFollowing) setFollowing(false);
    // What ran lately is known before the overview is.
    if (!now.finished && !mine.meta) panel.setHot(true);
    tellLoss(now.missing);
    tellTitle(mine);
    if (mine.meta && now.generation !== null && now.generation !== mine.meta.generation) mine.loading = load().catch(failed);
  });
}

/** What is shown, and of a session that runs how it is doing. */
function tellTitle({ title, now, wasRunning }) {
  // Its overview is made now and then, and ends before it does.
  const until = now?.end ? `, drawn until ${time(now.end, 1e8)}` : '';
  const running = now && !now.finished ? `${count(now.events)} events, ${rate(now.rate)}${until}` : null;
  const said = running ?? (wasRunning ? `it has ended, with ${count(now.events)} events` : null);
  find('title').textContent = [title ?? state.session, said].filter(Boolean).join(' – ');
}

function tellLoss(missing) {
  const loss = find('loss');
  loss.hidden = !missing;
  loss.textContent = missing ? `${count(missing)} events missing` : '';
}

/** What lies between the timeline and the panel, and can be moved. */
function separate(place) {
  const resize = (height) => {
    place.style.height = `${Math.max(80, Math.min(innerHeight - 160, height))}px`;
  };
  const separator = make('div', { id: 'separator', role: 'separator', tabindex: 0, 'aria-orientation': 'horizontal', 'aria-label': 'Height of the panel' });
  separator.addEventListener('pointerdown', (event) => separator.setPointerCapture(event.pointerId));
  separator.addEventListener('pointermove', (event) => {
    if (separator.hasPointerCapture(event.pointerId)) resize(innerHeight - event.clientY);
  });
  separator.addEventListener('keydown', (event) => {
    const by = { ArrowUp: 24, ArrowDown: -24 }[event.code];
    if (!by) return;
    resize(place.clientHeight + by);
    event.preventDefault();
    event.stopPropagation();
  });
  return separator;
}

// Following the end.

function setFollowing(isNow) {
  isFollowing = isNow;
  const button = find('follow');
  button.setAttribute('aria-pressed', String(isNow));
  button.textContent = isNow ? '● Live' : 'Resume live';
  shown?.panel?.setHot(isNow);
  if (isNow) follow();
  else if (shown?.panel) shown.panel.recent = null;
}

function follow() {
  const { timeline, panel, meta, before } = shown ?? {};
  if (!meta) return;
  const [first, end] = meta.range;
  const [from, to] = timeline.window;
  // Who saw all of it sees more and more, as long as that is not much.
  const wasAll = before && to - from >= before[1] - before[0];
  const least = wasAll ? Math.min(end - first, RECENT) : 0;
  const span = Math.min(Math.max(to - from, least), Math.max(end - first, 1) * 1.05);
  const wide = span >= end - first ? end - first : span;
  timeline.show(end - wide, end + wide * 0.02);
  panel.recent = [Math.max(first, end - RECENT), end];
  panel.refresh();
}

// Search.

let lastFound = null;

/** Goes to the next call of what is looked for. Tells whether there is one. */
async function search(forward) {
  const text = find('query').value;
  if (!text || !shown?.timeline) return false;
  const from = lastFound && lastFound.text === text ? lastFound.start : forward ? Math.max(0, Math.floor(shown.timeline.window[0]) - 1) : Math.ceil(shown.timeline.window[1]);
  const ask = (at) => api.patient(() => api.about(state.session, 'find', { q: text, from: at, forward: forward ? 1 : 0 }));
  try {
    setFollowing(false);
    let answer = await ask(from);
    let isRound = false;
    if (!answer.found && answer.functions) {
      answer = await ask(null);
      isRound = true;
    }
    const { found, functions } = answer;
    find('found').textContent = found ? `${count(functions)} functions${isRound ? ', from the other end' : ''}` : 'not found';
    if (!found) return false;
    lastFound = { text, start: found.start };
    change({ span: { row: found.row, start: found.start, depth: found.depth }, gap: null, tab: 'span', fn: found.name });
    shown.timeline.reveal(found);
    return true;
  } catch (error) {
    failed(error);
    return false;
  }
}

// Keys and buttons.

/** Has the browser save the chosen part of the time, or all of it: as it comes, and not in memory. */
function savePerfetto() {
  if (shown?.timeline) make('a', { href: api.perfetto(state.session, state.range), download: '' }).click();
}

function pressed(event) {
  const isTyping = event.target.matches?.('input, select, textarea');
  if (event.target.id === 'query') {
    if (event.code === 'Enter' || event.code === 'NumpadEnter') {
      event.preventDefault();
      // From there on keys move about, and Enter goes on.
      search(!event.shiftKey).then((isFound) => isFound && shown?.timeline?.scroll.focus({ preventScroll: true }));
    } else if (event.code === 'Escape') shown?.timeline?.scroll.focus();
    return;
  }
  if (isTyping || find('help').open || event.defaultPrevented) return;
  const { timeline } = shown ?? {};
  const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey;
  if (isPlain && (event.key === '?' || event.code === 'F1')) help();
  else if (isPlain && timeline && event.key === '/') find('query').focus();
  else if (isPlain && timeline && lastFound && event.code === 'Enter' && event.target === timeline.scroll) search(!event.shiftKey);
  else if (isPlain && timeline && event.code === 'KeyP') savePerfetto();
  else if (isPlain && timeline && event.code === 'KeyL' && !find('follow').hidden) setFollowing(!isFollowing);
  else if (isPlain && timeline && !event.shiftKey && /^Digit[1-5]$/.test(event.code)) change({ tab: TABS[Number(event.code.at(-1)) - 1][0] });
  else if (!timeline || !key(timeline, event)) return;
  event.preventDefault();
}

function paintAnew() {
  if (!shown?.timeline) return;
  shown.timeline.painter.restyle();
  shown.timeline.draw();
  shown.panel.flame?.draw();
}

function turnTheme() {
  const root = document.documentElement;
  const next = { '': 'dark', dark: 'light', light: '' }[root.dataset.theme ?? ''];
  if (next) root.dataset.theme = next;
  else delete root.dataset.theme;
  find('theme').textContent = `Theme${next ? `: ${next}` : ''}`;
  localStorage.setItem('theme', next);
  paintAnew();
}

function listen() {
  addEventListener('keydown', pressed);
  addEventListener('popstate', async () => {
    // An address with a token that was opened where the page was already.
    if (tokenHere() && !(await enter().catch(failed))) return;
    const [before, next] = [state, address.read(location.hash)];
    if (next.view !== before.view || next.session !== before.session || next.view === 'diff' || !shown?.timeline) {
      state = next;
      open();
      return;
    }
    // The same session, elsewhere.
    const old = { ...before };
    Object.assign(state, next);
    shown.panel.filter.value = state.filter;
    shown.timeline.window = [...(next.window ?? shown.meta?.range ?? shown.timeline.window)];
    settle(old);
  });
  find('search').addEventListener('submit', (event) => event.preventDefault());
  find('follow').addEventListener('click', () => setFollowing(!isFollowing));
  find('picture').addEventListener('click', () => shown?.timeline?.picture().catch(failed));
  find('perfetto').addEventListener('click', savePerfetto);
  find('theme').addEventListener('click', turnTheme);
  find('help-button').addEventListener('click', help);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', paintAnew);
  const chosen = localStorage.getItem('theme');
  if (chosen === 'dark' || chosen === 'light') document.documentElement.dataset.theme = chosen;
}

/** Resolves when nothing is being asked for or drawn. */
async function idle() {
  for (let calm = 0; calm < 2;) {
    await shown?.loading;
    await api.quiet();
    await new Promise((resolve) => setTimeout(() => requestAnimationFrame(() => resolve()), 20));
    calm = api.isBusy() || shown?.timeline?.isDue || shown?.timeline?.tiles.isBusy() ? 0 : calm + 1;
  }
}

/** The token in the address, if it has one. */
const tokenHere = () => new URLSearchParams(location.hash.replace(/^#/, '')).get('token');

/** Shows the token in the address to the server, and takes it out of there: it is in a cookie then. */
async function enter() {
  await api.enter(tokenHere());
  history.replaceState(null, '', '#/sessions');
  const { sessions } = await api.sessions();
  if (sessions.length === 1) history.replaceState(null, '', `#/s/${encodeURIComponent(sessions[0].name)}`);
  return true;
}

async function start() {
  listen();
  if (tokenHere()) await enter();
  state = address.read(location.hash);
  open();
}

const started = start().catch(failed);

window.spoor = {
  idle: () => started.then(idle),
  state: () => structuredClone(state),
  drawn: () => shown?.timeline?.drawn() ?? [],
  frames: () => shown?.timeline?.frames ?? 0,
};
