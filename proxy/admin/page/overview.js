// What stands in the record as a whole: shown where nothing is opened.

import { count, el, fill, size, span } from "./dom.js";
import { bars } from "./picture.js";

const MOST_BARS = 8;
const TOLD = [
  ["in_doubt", "in doubt"], ["awaiting_approval", "waiting"], ["pending", "pending"], ["done", "done"], ["released", "released"], ["denied", "denied"],
];

/** By tool: sends against replays, of the calls that are looked at. */
export function byTool(calls) {
  const rows = new Map();
  for (const call of calls) {
    const name = `${call.upstream} · ${call.tool}`;
    const row = rows.get(name) ?? { name, executed: 0, replayed: 0 };
    row.executed += call.sends;
    row.replayed += call.replays;
    rows.set(name, row);
  }
  return [...rows.values()].filter((row) => row.executed + row.replayed).sort((a, b) => b.executed + b.replayed - a.executed - a.replayed);
}

export class Overview {
  constructor() {
    this.node = el("article", { class: "overview" });
    this.said = "";
  }

  update(stats, calls) {
    const rows = calls ? byTool(calls) : [];
    const said = JSON.stringify([stats.calls, Math.floor((stats.oldest_in_doubt_seconds ?? 0) / 60), stats.store_bytes, rows]);
    if (said === this.said) return;
    this.said = said;
    const sum = (name) => rows.reduce((total, row) => total + row[name], 0);
    fill(this.node,
      el("h2", { class: "heading", tabindex: "-1" }, "The record"),
      el("ul", { class: "totals" }, TOLD.map(([state, words]) => el("li", { class: stats.calls[state] ? `is-${state}` : "is-none" },
        el("strong", {}, String(stats.calls[state])), el("span", {}, words)))),
      el("p", { class: "faint" },
        stats.oldest_in_doubt_seconds === null ? "Nothing is in doubt." : `The oldest doubt is ${span(stats.oldest_in_doubt_seconds)} old.`,
        ` Store: ${stats.store}, ${size(stats.store_bytes)}. Counted over the whole store, all tenants together.`),
      rows.length ? [
        el("h3", {}, "Replayed against executed"),
        el("p", { class: "faint" }, `Of the latest ${count(calls.length, "call")}: `,
          el("span", { class: "key" }, el("span", { class: "swatch executed" }), `${sum("executed")} executed`), " ",
          el("span", { class: "key" }, el("span", { class: "swatch replayed" }), `${sum("replayed")} replayed, not sent again`)),
        bars(rows.slice(0, MOST_BARS)),
      ] : el("div", { class: "empty" },
        el("p", {}, "No calls are recorded yet. Point an agent at semel, and what it asks appears here:"),
        el("pre", {}, "semel run -- python agent.py")));
  }
}
