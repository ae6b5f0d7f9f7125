// Hears of what changes.

/** @typedef {{list: number, session: {generation: number|null, end: number|null, events: number, missing: number, rate: number, finished: boolean, progress: number|null, gone?: string}|null}} Change */

/** After how long it is tried again to reach a server that is gone, in ms. */
const AGAIN = 1000;

/** A connection over which the server tells that something has changed. What it is, the page asks for. */
export class Live {
  /**
   * @param {string|null} session
   * @param {{changed: (change: Change) => void, lost: () => void, back: () => void}} told
   */
  constructor(session, told) {
    this.address = `/api/live${session ? `?session=${encodeURIComponent(session)}` : ''}`;
    this.told = told;
    this.isLost = false;
    this.connect();
  }

  connect() {
    const source = this.source = new EventSource(this.address);
    source.onopen = () => {
      if (this.isLost) this.told.back();
      this.isLost = false;
    };
    source.onmessage = (event) => this.told.changed(JSON.parse(event.data));
    source.onerror = () => {
      this.isLost = true;
      this.told.lost();
      // Browsers wait for long, and not at all where they were refused.
      source.close();
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.connect(), AGAIN);
    };
  }

  close() {
    clearTimeout(this.timer);
    this.source.close();
  }
}
