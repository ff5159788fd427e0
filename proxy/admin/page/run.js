// One run, opened: its attempts and steps, a picture of them, and the permission to leave the record.

import * as api from "./api.js";
import { DecisionForm } from "./decide.js";
import { badge, clock, count, el, facts, fill, span, when } from "./dom.js";
import { MOST_STEPS, timeline } from "./picture.js";

const MATTERS = ["done", "pending", "in_doubt", "awaiting_approval"];
const SEEN_EVENTS = 100;

/** The calls with effects that the latest attempt has not asked: those that `allow` retires. */
export function unasked(run) {
  const latest = run.attempts.at(-1)?.name;
  if (latest === undefined) return [];
  return run.steps.filter((step) => !step.safe && MATTERS.includes(step.state) && !step.retired && step.attempt !== latest && !step.asked_by.includes(latest));
}

const allowing = {
  id: "allow", button: "Allow the run to go on", placeholder: "Why is this what the agent should do?", title: "Let it leave its record",
  about: "The calls above are retired: they stay on record, and no longer hold the latest attempt. The agent has to ask again.",
};

export class RunView {
  constructor(name, { news, changed }) {
    this.name = name;
    this.news = news;
    this.changed = changed;
    this.parts = Object.fromEntries(["head", "held", "decision", "picture", "steps", "history"].map((part) => [part, el("div", { class: `part part-${part}` })]));
    this.said = {};
    this.form = null;
    this.node = el("article", { class: "opened" }, ...Object.values(this.parts));
  }

  async refresh() {
    this.update(await api.run(this.name));
  }

  focusDecision() {
    this.form?.focus();
  }

  update(run) {
    const { events, steps, attempts, ...rest } = run;
    this.#draw("head", [rest, attempts], () => this.#head(run));
    this.#draw("held", [run.diverged, events, steps], () => this.#held(run));
    this.#draw("picture", [steps, attempts], () => this.#picture(run));
    this.#draw("steps", steps, () => this.#steps(run));
    this.#draw("history", events, () => this.#history(events));
    this.#decision(run);
  }

  #draw(name, depends, draw) {
    const said = JSON.stringify(depends, (key, value) => (key === "age" ? undefined : value));
    if (this.said[name] === said) return;
    this.said[name] = said;
    fill(this.parts[name], draw());
  }

  #head(run) {
    const usd = (value) => (value === null ? null : `$${value}`);
    return [
      el("div", { class: "title" }, el("h2", { tabindex: "-1", class: "heading" }, run.run), badge(run.diverged ? "diverged" : run.state)),
      facts(
        ["Attempts", String(run.attempts.length)], ["Steps", String(run.last_seq)],
        ["Last active", when(run.active_at)],
        ["Fork of", run.parent ? el("a", { href: `#/runs/run/${run.parent.run}` }, `${run.parent.run} at step ${run.parent.at}`) : null],
        ["Spent", usd(run.spent_usd)], ["Saved", usd(run.saved_usd)],
        ["Time saved", run.saved_seconds ? `${run.saved_seconds} s` : null],
        ["Not recorded", run.passed.join(", ")], ["Unlisted hosts", run.unlisted.join(", ")],
        ["In doubt", run.in_doubt.length ? run.in_doubt.map((id, at) => [at ? ", " : "", el("a", { href: `#/inbox/call/${id}` }, id.slice(0, 8))]) : null],
        ["Export", run.state === "expired" ? null : el("a", { href: api.exportAddress(run.run), download: `${run.run}.jsonl` }, "JSON Lines")],
      ),
    ];
  }

  #held(run) {
    if (!run.diverged) return [];
    const latest = run.attempts.at(-1)?.name ?? "";
    const missing = unasked(run);
    const last = run.events.findLast((event) => event.event === "diverged");
    return [
      el("h3", {}, "Held: it left its record"),
      el("p", { class: "lead" }, `The attempt ${latest} asked for something with effects that is not in the record, while calls of the attempts before it stand there unasked. It may mean the same in other words; so nothing was sent.`),
      last ? el("p", { class: "reason" }, last.why) : null,
      missing.length ? [el("h4", {}, `Not asked by ${latest}`), el("ul", { class: "plain" }, missing.map((step) => el("li", {},
        el("a", { href: `#/runs/call/${step.call}` }, `Step ${step.seq}: ${step.tool}`), " ", badge(step.state))))] : null,
    ];
  }

  #picture(run) {
    if (!run.steps.length || !run.attempts.length) return [el("p", { class: "empty" }, "No steps are recorded in this run yet.")];
    return [el("h3", {}, "Timeline"), timeline(run)];
  }

  #steps(run) {
    if (!run.steps.length) return [];
    const steps = run.steps.slice(-MOST_STEPS);
    return [
      el("h3", {}, "Steps"),
      el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Steps, scrolls sideways" }, el("table", {},
        el("thead", {}, el("tr", {}, ["#", "Tool", "State", "Status", "Took", "Asked by"].map((name) => el("th", { scope: "col" }, name)))),
        el("tbody", {}, steps.map((step) => el("tr", {},
          el("td", { class: "figure" }, String(step.seq)),
          el("td", {}, step.state === null ? step.tool : el("a", { href: `#/runs/call/${step.call}` }, step.tool),
            el("span", { class: "faint" }, ` ${step.upstream}${step.inherited ? " · inherited" : ""}${step.retired ? " · retired" : ""}`)),
          el("td", {}, badge(step.state ?? "forgotten")),
          el("td", { class: "figure" }, step.status_code === null ? "" : String(step.status_code)),
          el("td", { class: "figure" }, step.seconds === null ? "" : step.seconds < 1 ? `${Math.round(step.seconds * 1000)} ms` : span(step.seconds)),
          el("td", {}, step.asked_by.map((name) => name || "(none)").join(", "))))))),
      steps.length < run.steps.length ? el("p", { class: "faint" }, `The latest ${steps.length} of ${run.steps.length}; the export has all.`) : null,
      el("h3", {}, "Attempts"),
      el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Attempts, scrolls sideways" }, el("table", {},
        el("thead", {}, el("tr", {}, ["Attempt", "Executed", "Replayed", "Joined", "Refused", "Last served"].map((name) => el("th", { scope: "col" }, name)))),
        el("tbody", {}, run.attempts.map((one) => el("tr", {},
          el("td", {}, one.name || "(none)"),
          [one.executed, one.replayed, one.joined, one.refused].map((number) => el("td", { class: "figure" }, String(number))),
          el("td", {}, when(one.last_at))))))),
    ];
  }

  #history(events) {
    if (!events.length) return [];
    return [el("h3", {}, "History"), el("ol", { class: "history" }, events.slice(-SEEN_EVENTS).map((event) => el("li", {},
      clock(event.at), el("div", {}, el("strong", {}, event.event), el("span", { class: "faint" }, ` · ${event.actor}`), el("p", {}, event.why)))))];
  }

  #decision(run) {
    const offered = run.diverged > 0 && run.state !== "expired";
    if (this.form?.touched) {
      if (!offered && !this.form.present) this.form.moved(run.version, run.state, "it is not held any more");
      return;
    }
    if (offered === Boolean(this.form)) return;
    this.form = null;
    if (!offered) return void fill(this.parts.decision);
    this.form = new DecisionForm({
      options: [allowing], version: null, state: run.state,
      send: (_, said) => api.allow(this.name, said.reason),
      decided: (result) => this.#decided(result),
    });
    fill(this.parts.decision, this.form.node);
  }

  async #decided(result) {
    this.form = null;
    fill(this.parts.decision);
    this.update(await api.run(this.name));
    if (!result) return this.focusDecision();
    const told = `Allowed: ${count(result.retired.length, "call")} retired. The agent may ask again.`;
    this.news(told);
    this.parts.decision.prepend(el("p", { class: "told" }, told));
    this.node.querySelector(".heading")?.focus();
    return this.changed();
  }
}

