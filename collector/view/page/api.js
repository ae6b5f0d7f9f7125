// Asks the server.

/** Why there is no answer. */
export class Refused extends Error {
  /** @param {number} status @param {string} words @param {number|null} [progress] */
  constructor(status, words, progress = null) {
    super(words);
    this.status = status;
    this.progress = progress;
  }
}

/** What is said while nobody answers. */
export const GONE = 'The server does not answer: it has ended, or the connection to it is broken. What is shown is what it said last; this page goes on when it is back.';

let busy = 0;
const waiting = new Set();

/** Whether something is being asked for. */
export const isBusy = () => busy > 0;

async function ask(address, options) {
  busy += 1;
  try {
    const response = await fetch(address, { credentials: 'same-origin', cache: 'no-store', ...options }).catch((error) => {
      // What was given up is no fault of the server.
      throw error.name === 'AbortError' ? error : new Refused(0, GONE);
    });
    if (response.ok) return await (options?.binary ? response.arrayBuffer() : response.json());
    const said = await response.json().catch(() => ({}));
    throw new Refused(response.status, said.error ?? `the server says ${response.status}`, said.progress ?? null);
  } finally {
    busy -= 1;
    if (!busy) [...waiting].forEach((resolve) => resolve());
  }
}

/** Resolves when nothing is being asked for. */
export function quiet() {
  if (!busy) return Promise.resolve();
  return new Promise((resolve) => {
    const done = () => {
      waiting.delete(done);
      resolve();
    };
    waiting.add(done);
  });
}

const query = (parameters) => {
  const given = Object.entries(parameters ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== '');
  return given.length ? `?${new URLSearchParams(given.map(([key, value]) => [key, String(value)]))}` : '';
};

/** Shows the token, and gets a cookie for it. */
export const enter = (token) => ask('/api/enter', { headers: { 'x-spoor-token': token } });

/** The sessions. */
export const sessions = () => ask('/api/sessions');

/** Functions of two sessions. */
export const diff = (a, b, sort, isAll, told) => patient(() => ask(`/api/diff${query({ a, b, sort, all: isAll ? 1 : null, limit: 2000 })}`), told);

/** Asks about a session. @param {string} session @param {string} what @param {object} [parameters] @param {object} [options] */
export function about(session, what, parameters, options) {
  return ask(`/api/s/${encodeURIComponent(session)}/${what}${query(parameters)}`, options);
}

/** Where a part of a session is as a Perfetto trace. @param {string} session @param {[number, number]|null} range */
export function perfetto(session, range) {
  const [from, to] = range ?? [null, null];
  return `/api/s/${encodeURIComponent(session)}/perfetto${query({ from, to })}`;
}

/** Asks again while something is being made. @template T @param {() => Promise<T>} asked @returns {Promise<T>} */
export async function patient(asked, told = () => {}) {
  for (;;) {
    try {
      return await asked();
    } catch (error) {
      if (!(error instanceof Refused) || error.progress === null) throw error;
      told(error.progress);
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
  }
}

/**
 * Boxes of a row, in columns. See `boxes.rs` for the bytes.
 * @typedef {object} Boxes
 * @property {number} row
 * @property {number} from
 * @property {number} count
 * @property {Float64Array} start since `from`
 * @property {Float64Array} length
 * @property {Float64Array} busy
 * @property {Uint32Array} what
 * @property {Uint32Array} node
 * @property {Uint32Array} times
 * @property {Uint32Array} place depth, and flags above bit 24
 */

/** @returns {Promise<{generation: number, rows: Boxes[]}>} */
export async function boxes(session, parameters, signal) {
  const buffer = await about(session, 'boxes', parameters, { binary: true, signal });
  const head = new DataView(buffer);
  if (head.getUint32(0, true) !== 0x31425053) throw new Refused(0, 'the server and the page are of different versions');
  const count = head.getUint32(4, true);
  const from = head.getFloat64(16, true);
  let at = 32 + count * 8;
  const rows = [];
  for (let index = 0; index < count; index += 1) {
    const row = head.getUint32(32 + index * 8, true);
    const length = head.getUint32(36 + index * 8, true);
    const column = (Kind) => {
      const values = new Kind(buffer, at, length);
      at += values.byteLength;
      return values;
    };
    const [start, long, busyTime] = [column(Float64Array), column(Float64Array), column(Float64Array)];
    const [what, node, times, place] = [column(Uint32Array), column(Uint32Array), column(Uint32Array), column(Uint32Array)];
    rows.push({ row, from, count: length, start, length: long, busy: busyTime, what, node, times, place });
  }
  return { generation: head.getUint32(8, true), rows };
}
