// Colours of functions: by the hash of their names, so that they stay the same from trace to trace. Hues differ also for those
// who see few of them (blue, yellow, and what lies between in lightness); red is for what is missing.

const HUES = [[205, 70], [42, 85], [168, 45], [228, 60], [56, 70], [322, 42], [190, 55], [268, 40]];
const LIGHT = [66, 74, 82];
const DARK = [30, 37, 44];

const known = new Map();

/** A number that differs with the text. @param {string} text */
export function hash(text) {
  let value = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) value = Math.imul(value ^ text.charCodeAt(at), 0x01000193);
  value ^= value >>> 15;
  return Math.imul(value, 0x2c1b3c6d) >>> 0;
}

/** The colour of a function. @param {string} name @param {boolean} isDark */
export function colourOf(name, isDark) {
  const key = isDark ? `d${name}` : `l${name}`;
  let colour = known.get(key);
  if (!colour) {
    const number = hash(name);
    const [hue, saturation] = HUES[number % HUES.length];
    const lightness = (isDark ? DARK : LIGHT)[(number >>> 8) % 3];
    colour = `hsl(${hue} ${isDark ? saturation * 0.8 : saturation}% ${lightness}%)`;
    if (known.size > 100_000) known.clear();
    known.set(key, colour);
  }
  return colour;
}

/** Whether the page is dark now. */
export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}

/** A pattern of stripes. @param {CanvasRenderingContext2D} context @param {string} colour @param {boolean} isDown */
export function stripes(context, colour, isDown) {
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = 8;
  const pen = canvas.getContext('2d');
  pen.strokeStyle = colour;
  pen.lineWidth = 2;
  for (const shift of [-8, 0, 8]) {
    pen.moveTo(shift, isDown ? 0 : 8);
    pen.lineTo(shift + 8, isDown ? 8 : 0);
  }
  pen.stroke();
  return context.createPattern(canvas, 'repeat');
}

/** The colours of the page. */
export function theme() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  return {
    back: get('--back'), front: get('--front'), dim: get('--dim'), line: get('--line'), band: get('--band'),
    accent: get('--accent'), loss: get('--loss'), mark: get('--mark'), isDark: isDark(),
  };
}
