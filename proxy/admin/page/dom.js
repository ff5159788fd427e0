// Elements made by calls, texts as text nodes: nothing that was recorded is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

function build(node, given, children) {
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** `el("p", {class: "x", on: {click}}, "text", node)`. Attributes come from this page, never from the record,
 *  but for those that hold plain text (title, datetime). */
export const el = (tag, given = {}, ...children) => build(document.createElement(tag), given, children);

export const svg = (tag, given = {}, ...children) => build(document.createElementNS(SVG, tag), given, children);

export const byId = (id) => document.getElementById(id);

export const fill = (node, ...children) => {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
};

export const count = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;

const STATES = {
  in_doubt: "in doubt",
  awaiting_approval: "waiting",
  done: "done",
  released: "released",
  pending: "pending",
  denied: "denied",
  open: "open",
  complete: "complete",
  expired: "expired",
  diverged: "diverged",
  forgotten: "forgotten",
};

export const stateWord = (state) => STATES[state] ?? String(state);

export function badge(state) {
  const known = Object.hasOwn(STATES, state) ? state : "unknown";
  return el("span", { class: `badge is-${known}` }, stateWord(state));
}

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"]];

export function span(seconds) {
  for (const [size, name] of UNITS) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${name}`;
  }
  return `${Math.max(0, Math.floor(seconds))} s`;
}

function ago(moment) {
  const seconds = (Date.now() - Date.parse(moment)) / 1000;
  return seconds < 5 ? "just now" : seconds > 30 * 86400 ? moment.slice(0, 10) : `${span(seconds)} ago`;
}

/** How long ago, by this machine's clock; the whole moment is in the title. */
export function when(moment) {
  if (!moment) return el("span", { class: "faint" }, "not known");
  return el("time", { class: "ago", datetime: moment, title: moment }, ago(moment));
}

/** What says how long ago goes on saying it. */
export function age() {
  for (const one of document.querySelectorAll("time.ago")) {
    const words = ago(one.getAttribute("datetime"));
    if (one.textContent !== words) one.textContent = words;
  }
}

/** The moment itself, in the reader's time zone, to the millisecond where it matters in what order. */
export function clock(moment) {
  if (!moment) return el("span", { class: "faint" }, "–");
  const at = new Date(moment);
  const two = (number) => String(number).padStart(2, "0");
  const words = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
  const today = at.toDateString() === new Date().toDateString();
  return el("time", { datetime: moment, title: moment }, today ? words : `${moment.slice(0, 10)} ${words.slice(0, 8)}`);
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "";
  if (bytes < 1024) return `${bytes} B`;
  return bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

/** Name and value, the empty ones left out. */
export function facts(...pairs) {
  return el("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

/** Large texts are cut: the whole is a download away. */
export const LONGEST_SHOWN = 20000;
export const shown = (text) => (text.length > LONGEST_SHOWN ? `${text.slice(0, LONGEST_SHOWN)}\n… (${text.length} characters)` : text);
