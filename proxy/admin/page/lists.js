// A list that stays itself while it is refreshed: rows are known by their key, changed in place, and never
// made anew while somebody's focus is on one of them.

import { badge, count, el, fill, when } from "./dom.js";

export class Section {
  /** `empty`: what to say, and why, when there is nothing. */
  constructor(title, empty, { open = null } = {}) {
    this.title = title;
    this.rows = new Map();
    this.number = el("span", { class: "number" });
    this.items = el("ul", { class: "rows" });
    this.nothing = el("p", { class: "empty" }, empty);
    this.more = el("button", { class: "quiet more", type: "button", hidden: true }, "Show more");
    if (open) this.more.addEventListener("click", open);
    this.node = el("section", { class: "group" }, title ? el("h2", {}, title, " ", this.number) : null, this.items, this.nothing, this.more);
  }

  /** `entries`: {key, href, said, draw}. `said` is what the row depends on; it is drawn again if that changed. */
  show(entries, { more = false, empty = null } = {}) {
    const wanted = new Set(entries.map((entry) => entry.key));
    for (const [key, row] of this.rows) {
      if (wanted.has(key)) continue;
      // Focus must not fall out of the list: it goes to the neighbour.
      if (row.link === document.activeElement) (row.node.nextElementSibling ?? row.node.previousElementSibling)?.firstElementChild?.focus();
      row.node.remove();
      this.rows.delete(key);
    }
    let behind = null;
    for (const entry of entries) {
      const row = this.rows.get(entry.key) ?? this.#made(entry);
      const said = JSON.stringify(entry.said);
      if (row.said !== said) {
        row.said = said;
        fill(row.link, entry.draw());
      }
      const place = behind === null ? this.items.firstElementChild : behind.nextElementSibling;
      if (place !== row.node) this.items.insertBefore(row.node, place);
      behind = row.node;
    }
    if (empty !== null) fill(this.nothing, empty);
    this.number.textContent = entries.length ? String(entries.length) + (more ? "+" : "") : "";
    this.nothing.hidden = entries.length > 0;
    this.items.hidden = entries.length === 0;
    this.more.hidden = !more;
  }

  mark(href) {
    for (const { link } of this.rows.values()) {
      if (link.getAttribute("href") === href) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }

  #made(entry) {
    const link = el("a", { class: "row", href: entry.href });
    const row = { node: el("li", {}, link), link, said: null };
    this.rows.set(entry.key, row);
    return row;
  }
}

const asked = (args) => {
  if (!args) return "";
  const told = args.body ?? args.include ?? args.query ?? args.path ?? args.body_parts ?? (Object.keys(args).length ? args : "");
  const text = typeof told === "string" ? told : JSON.stringify(told);
  return text.length > 160 ? `${text.slice(0, 160)}…` : text;
};

export function callEntry(call, view, { tell = "state" } = {}) {
  const since = { in_doubt: call.sent_at, awaiting_approval: call.created_at }[call.state] ?? call.settled_at ?? call.created_at;
  return {
    key: call.id,
    href: `#/${view}/call/${call.id}`,
    said: [call.version, call.replays, call.state, tell],
    draw: () => [
      el("span", { class: "line" }, el("strong", {}, call.tool), tell === "state" ? badge(call.state) : null),
      el("code", { class: "excerpt" }, asked(call.args) || "no arguments"),
      el("span", { class: "line faint" },
        el("span", { class: "where" }, call.upstream, call.run ? ` · ${call.run}` : "", call.replays ? ` · replayed ${call.replays}×` : ""),
        when(since)),
    ],
  };
}

export function runEntry(run, view) {
  return {
    key: run.run,
    href: `#/${view}/run/${run.run}`,
    said: [run.version, run.active_at, run.state, run.attempts, run.last_seq, run.diverged],
    draw: () => [
      el("span", { class: "line" }, el("strong", {}, run.run), badge(run.diverged ? "diverged" : run.state)),
      el("span", { class: "line faint" },
        el("span", { class: "where" }, `${count(run.attempts, "attempt")} · ${count(run.last_seq, "step")}`,
          run.parent ? ` · fork of ${run.parent.run}` : ""),
        when(run.active_at)),
    ],
  };
}

export function unreadableEntry(one) {
  return {
    key: one.id,
    href: `#/calls/call/${one.id}`,
    said: one.why,
    draw: () => [el("span", { class: "line" }, el("strong", {}, "Cannot be read"), badge("unknown")), el("code", { class: "excerpt" }, one.why)],
  };
}
