// Numbers for people.

const UNITS = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];

/** How long something took. @param {number} ns */
export function duration(ns) {
  const size = Math.abs(ns);
  const [factor, unit] = UNITS.find(([factor]) => size >= factor) ?? UNITS[3];
  // Cut and not rounded, like what commands print.
  return factor === 1 ? `${Math.round(ns)} ns` : `${(Math.trunc(ns / (factor / 1000)) / 1000).toFixed(3)} ${unit}`;
}

/** When something was, in seconds, to the digit that differs with `step`. */
export function time(ns, step = 1) {
  const digits = Math.min(9, Math.max(0, Math.ceil(9 - Math.log10(Math.max(1, step)))));
  const whole = Math.floor(ns / 1e9);
  // Seconds and their parts apart: together they have more digits than are exact.
  let part = Math.round((ns - whole * 1e9) / 10 ** (9 - digits));
  const carry = part >= 10 ** digits ? 1 : 0;
  if (carry) part = 0;
  const text = digits ? `.${String(part).padStart(digits, '0').replace(/(\d{3})(?=\d)/g, '$1\u2009')}` : '';
  return `${whole + carry}${text} s`;
}

/** A number with its thousands apart. */
export function count(number) {
  return Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, ',');
}

/** A size. */
export function bytes(size) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  for (; size >= 1024 && at < units.length - 1; at += 1) size /= 1024;
  return `${at ? size.toFixed(1) : size} ${units[at]}`;
}

/** Events for each second. */
export function rate(perSecond) {
  if (perSecond >= 1e6) return `${(perSecond / 1e6).toFixed(2)} M/s`;
  if (perSecond >= 1e3) return `${(perSecond / 1e3).toFixed(1)} k/s`;
  return `${Math.round(perSecond)}/s`;
}

/** A part in percent. */
export function percent(part) {
  return `${(part * 100).toFixed(part < 0.001 && part > 0 ? 3 : 1)} %`;
}

/** A day and time of the clock on the wall. */
export function day(unixNs) {
  return unixNs ? new Date(unixNs / 1e6).toISOString().replace('T', ' ').slice(0, 19) : '';
}

/** The last part of a path. */
export const fileName = (path) => (path ?? '').split('/').pop();

/** A step between marks on an axis: 1, 2 or 5 and zeros, and at least this. */
export function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return Math.max(1, [1, 2, 5, 10].find((one) => one * power >= least) * power);
}

/** Text of a table for other programs: RFC 4180. @param {(string|number)[][]} rows */
export function csv(rows) {
  const field = (value) => {
    const text = String(value ?? '');
    // A spreadsheet would calculate what begins so.
    const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return rows.map((row) => row.map(field).join(',')).join('\r\n') + '\r\n';
}
