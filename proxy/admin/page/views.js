// All calls and all runs, newest first, and what a search leaves of them.

import * as api from "./api.js";
import { el, stateWord } from "./dom.js";
import { Section, callEntry, runEntry, unreadableEntry } from "./lists.js";

const PAGE = 50;
const LARGEST = 1000;
const SEARCHED = 200;
const STATES = ["in_doubt", "awaiting_approval", "pending", "done", "released", "denied"];
const RUN = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}$/;

const NO_CALLS = "No calls are recorded yet. Put semel before an agent (semel run -- CMD) and its calls appear here.";
const NO_RUNS = "No runs are recorded yet. An agent that is started with semel run, or that calls /@RUN+ATTEMPT/…, makes one.";

const holds = (text, ...fields) => fields.some((field) => String(field ?? "").toLowerCase().includes(text.toLowerCase()));

export class CallList {
  constructor() {
    this.text = "";
    this.limit = PAGE;
    this.state = el("select", { id: "state-filter", on: { change: () => this.#again() } },
      el("option", { value: "" }, "all states"), STATES.map((state) => el("option", { value: state }, stateWord(state))));
    this.section = new Section("", NO_CALLS, { open: () => { this.limit = Math.min(LARGEST, this.limit + PAGE); this.#again(); } });
    this.node = el("div", {}, el("div", { class: "filter" }, el("h2", {}, "Calls"), el("label", { class: "unseen", for: "state-filter" }, "State"), this.state), this.section.node);
  }

  mark(href) {
    this.section.mark(href);
  }

  search(text) {
    this.text = text;
    this.limit = PAGE;
  }

  async refresh() {
    const { text } = this;
    const state = this.state.value;
    const page = text ? await this.#found(text, state) : await api.calls({ state, limit: this.limit });
    if (text !== this.text) return;
    const entries = [...page.unreadable.map(unreadableEntry), ...page.calls.map((call) => callEntry(call, "calls"))];
    this.section.show(entries, {
      more: page.next !== null && this.limit < LARGEST,
      empty: text ? `Nothing found for “${text}”. A call is found by its id, by the exact name of its run, tool or upstream, or by a part of them among the latest ${SEARCHED}.` : state ? `No call is ${stateWord(state)}.` : NO_CALLS,
    });
  }

  /** By exact name in the whole record, by a part among the latest. */
  async #found(text, state) {
    const asked = [
      api.calls({ state, limit: SEARCHED }),
      api.calls({ state, tool: text, limit: this.limit }),
      api.calls({ state, upstream: text, limit: this.limit }),
    ];
    if (RUN.test(text)) asked.push(api.calls({ state, run: text, limit: this.limit }));
    const [latest, ...exact] = await Promise.all(asked);
    const found = new Map();
    for (const page of exact) for (const call of page.calls) found.set(call.id, call);
    for (const call of latest.calls) if (holds(text, call.id, call.run, call.tool, call.upstream, call.rule)) found.set(call.id, call);
    const calls = [...found.values()].sort((a, b) => String(b.created_at).localeCompare(String(a.created_at)));
    return { calls, unreadable: [], next: exact.find((page) => page.next !== null)?.next ?? null };
  }

  #again() {
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  }
}

export class RunList {
  constructor() {
    this.text = "";
    this.limit = PAGE;
    this.section = new Section("", NO_RUNS, { open: () => { this.limit = Math.min(LARGEST, this.limit + PAGE); window.dispatchEvent(new HashChangeEvent("hashchange")); } });
    this.node = el("div", {}, el("div", { class: "filter" }, el("h2", {}, "Runs")), this.section.node);
  }

  mark(href) {
    this.section.mark(href);
  }

  search(text) {
    this.text = text;
  }

  async refresh() {
    const page = await api.runs({ limit: this.text ? SEARCHED : this.limit });
    const runs = this.text ? page.runs.filter((run) => holds(this.text, run.run, run.latest_attempt)) : page.runs;
    this.section.show(runs.map((run) => runEntry(run, "runs")), {
      more: page.next !== null && !this.text && this.limit < LARGEST,
      empty: this.text ? `No run among the latest ${SEARCHED} has “${this.text}” in its name.` : NO_RUNS,
    });
  }
}
