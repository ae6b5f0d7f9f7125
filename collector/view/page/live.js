// Hears of what changes.

/** @typedef {{list: number, session: {generation: number|null, end: number|null, events: number, missing: number, rate: number, finished: boolean, progress: number|null, gone?: string}|null}} Change */

/** A connection over which the server tells that something has changed. What it is, the page asks for. */
export class Live {
  /** @param {string|null} session @param {(change: Change) => void} told */
  constructor(session, told) {
    this.source = new EventSource(`/api/live${session ? `?session=${encodeURIComponent(session)}` : ''}`);
    this.source.onmessage = (event) => told(JSON.parse(event.data));
  }

  close() {
    this.source.close();
  }
}
