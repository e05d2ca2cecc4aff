// What every part of the dashboard writes with: elements, and numbers as people read them. What comes from outside goes into
// the page as text, never as markup: names, URLs and reasons come from strangers.

/** Make an element with properties and children; `data-*` and `aria-*` become attributes. */
export function make(tag, properties = {}, ...children) {
  const one = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-")) one.setAttribute(name, value);
    else one[name] = value;
  }
  one.append(...children);
  return one;
}

/** Set a text only if it has changed, so that selections and screen readers are not disturbed. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Numbers for people

export const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
export const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
export const count = (n) => (n === null || n === undefined ? "–" : n < 100000 ? whole.format(n) : short.format(n));

export const some = (n, what) => `${count(n)} ${what}${n === 1 ? "" : "s"}`;

export function rate(n) {
  if (n === null || n === undefined) return "–";
  if (n === 0) return "0";
  return n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : Number(n.toPrecision(2)).toString();
}

export function seconds(s) {
  if (s === null || s === undefined) return "–";
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${(s / 3600).toFixed(1)} h`;
  return `${whole.format(s / 86400)} days`;
}

/** How long the work takes: 0 without work, null while nothing goes out. */
export const eta = (s) => (s === 0 ? "–" : s === null ? "never" : seconds(s));

export function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  for (; n >= 1000 && unit < units.length - 1; unit++) n /= 1000;
  return `${n >= 100 || unit === 0 ? n.toFixed(0) : n.toFixed(1)} ${units[unit]}`;
}

/** The reason for a rate, without its beginning where that is as usual. */
export const cause = (reason) => reason.replace(/^by size([;,] )?/, "");

/** A moment by the clock of this browser, with its zone; with the date, unless it is today. */
export function clock(time) {
  const moment = new Date(time);
  const today = moment.toDateString() === new Date().toDateString();
  const date = today ? { second: "2-digit" } : { year: "numeric", month: "short", day: "numeric" };
  return moment.toLocaleString([], { ...date, hour: "2-digit", minute: "2-digit", timeZoneName: "short" });
}

/** A link to a stranger's page, or its text if that is not a URL that a browser should follow. */
export function link(url, text = url) {
  return /^https?:\/\//i.test(url)
    ? make("a", { href: url, target: "_blank", rel: "noopener noreferrer", textContent: text })
    : document.createTextNode(text);
}
