// Pictures of the record, made by calls: the steps of a run by attempt, and what was replayed against what was
// executed. Each has its words beside it for those who do not see it.

import { count, el, stateWord, svg } from "./dom.js";

export const MOST_STEPS = 400;
const MOST_ATTEMPTS = 30;
const CELL = 22;
const GAP = 4;
const TOP = 22;

const known = ["in_doubt", "awaiting_approval", "done", "released", "pending", "denied"];

/** What an attempt had to do with a step. */
function part(step, attempt) {
  if (!step.asked_by.includes(attempt)) return null;
  return step.attempt === attempt && !step.inherited ? "made" : "given";
}

function cell(step, attempt, x, y) {
  const how = part(step, attempt);
  const inset = step.safe ? 5 : 0;
  const side = CELL - 2 * inset;
  const state = known.includes(step.state) ? step.state : "forgotten";
  const kind = how === null ? "cell not-asked" : `cell ${how} is-${state}`;
  const words = how === null ? "not asked" : how === "made" ? "executed" : "from the record";
  return svg("rect", { class: kind, x: x + inset, y: y + inset, width: side, height: side, rx: 3 },
    svg("title", {}, `Step ${step.seq}: ${step.tool}, ${stateWord(step.state ?? "forgotten")}. ${attempt || "without attempt"}: ${words}`));
}

/** Attempts below each other, steps beside each other: what each start of the agent made, and what it was
 *  given from the record. */
export function timeline(run) {
  const steps = run.steps.slice(-MOST_STEPS);
  const attempts = run.attempts.slice(-MOST_ATTEMPTS).map((attempt) => attempt.name);
  const label = Math.min(150, 16 + 7 * Math.max(2, ...attempts.map((name) => Math.min(18, name.length))));
  const width = label + steps.length * (CELL + GAP) + GAP;
  const height = TOP + attempts.length * (CELL + GAP) + GAP;
  const picture = svg("svg", {
    class: "timeline", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${count(attempts.length, "attempt")}, ${count(steps.length, "step")}: the table below says the same in words`,
  });
  const every = steps.length > 30 ? 10 : steps.length > 12 ? 5 : 1;
  steps.forEach((step, at) => {
    const x = label + at * (CELL + GAP);
    if (at === 0 || step.seq % every === 0) {
      picture.append(svg("text", { class: "axis", x: x + CELL / 2, y: 14, "text-anchor": "middle" }, String(step.seq)));
    }
    attempts.forEach((attempt, row) => picture.append(cell(step, attempt, x, TOP + row * (CELL + GAP))));
  });
  attempts.forEach((attempt, row) => {
    const name = attempt || "(none)";
    picture.append(svg("text", { class: "name", x: 0, y: TOP + row * (CELL + GAP) + CELL / 2 + 4 },
      name.length > 18 ? `${name.slice(0, 17)}…` : name, svg("title", {}, name)));
  });
  const cut = run.steps.length > steps.length || run.attempts.length > attempts.length;
  return el("figure", { class: "picture" },
    el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Timeline, scrolls sideways" }, picture),
    el("figcaption", {},
      key("made is-done", "executed"), key("given is-done", "from the record"), key("made is-in_doubt", "in doubt"),
      key("not-asked", "not asked"), el("span", { class: "faint" }, "large: with effects, small: safe"),
      cut ? el("span", {}, `the latest of ${count(run.steps.length, "step")} and ${count(run.attempts.length, "attempt")}`) : null));
}

function key(kind, words) {
  return el("span", { class: "key" },
    svg("svg", { width: 12, height: 12, "aria-hidden": "true" }, svg("rect", { class: `cell ${kind}`, x: 1, y: 1, width: 10, height: 10, rx: 2 })), words);
}

const BAR = 100;

/** `rows`: {name, executed, replayed}, each with at least one of both. */
export function bars(rows) {
  const most = Math.max(1, ...rows.map((row) => row.executed + row.replayed));
  return el("ul", { class: "bars" }, rows.map((row) => {
    const made = (BAR * row.executed) / most;
    const given = (BAR * row.replayed) / most;
    return el("li", {},
      el("span", { class: "bar-name", title: row.name }, row.name),
      svg("svg", { class: "bar-picture", viewBox: `0 0 ${BAR} 10`, preserveAspectRatio: "none", role: "img",
        "aria-label": `${row.executed} executed, ${row.replayed} replayed` },
      svg("rect", { class: "bar-executed", x: 0, y: 0, width: made, height: 10 }),
      svg("rect", { class: "bar-replayed", x: made, y: 0, width: given, height: 10 })),
      el("span", { class: "bar-figures", "aria-hidden": "true" }, `${row.executed} · ${row.replayed}`));
  }));
}
