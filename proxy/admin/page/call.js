// One call, opened: what was asked, what is known, what can be decided, what has happened to it so far.

import * as api from "./api.js";
import { DecisionForm, choices } from "./decide.js";
import { badge, clock, count, el, facts, fill, shown, size, stateWord, when } from "./dom.js";

const pretty = (value) => shown(typeof value === "string" ? value : JSON.stringify(value, null, 2));
const moment = (text) => el("time", { datetime: text, title: text }, `${text.replace("T", " ").slice(0, 19)} UTC`);
const block = (text) => el("pre", { tabindex: "0" }, shown(text));

const LEAD = {
  in_doubt: "It was sent, and nobody knows whether it happened. It is held: semel does not send it again by itself.",
  awaiting_approval: "The rule asks for a person before this is sent. Nothing was sent yet.",
  done: "It happened, and its answer is on record. Identical calls get that answer.",
  released: "Nothing stands: it was not sent, or it is known that it did nothing. The next identical call is sent.",
  pending: "It is on its way. There is nothing to decide.",
  denied: "It was refused. Nothing was sent.",
};

export class CallView {
  constructor(id, { news, changed }) {
    this.id = id;
    this.news = news;
    this.changed = changed;
    this.parts = Object.fromEntries(["head", "asked", "known", "decision", "history"].map((name) => [name, el("div", { class: `part part-${name}` })]));
    this.said = {};
    this.form = null;
    this.node = el("article", { class: "opened call" }, ...Object.values(this.parts));
  }

  async refresh() {
    this.update(await api.call(this.id));
  }

  update(detail) {
    const { call } = detail;
    this.#draw("head", [call.state, call.tool, call.version, call.replays], () => this.#head(call));
    this.#draw("known", [detail.doubt, detail.answer, detail.damage, call.state, call.version], () => this.#known(detail));
    this.#draw("asked", [detail.request, call.args, call.state], () => this.#asked(detail));
    this.#draw("history", detail.events, () => this.#history(detail.events));
    this.#decision(detail);
  }

  focusDecision() {
    this.form?.focus();
  }

  /** Only what has changed is drawn anew: a selection, an opened fold, a place in the text stay. */
  #draw(name, depends, draw) {
    const said = JSON.stringify(depends);
    if (this.said[name] === said) return;
    this.said[name] = said;
    fill(this.parts[name], draw());
  }

  #head(call) {
    return [
      el("div", { class: "title" }, el("h2", { tabindex: "-1", class: "heading" }, call.tool), badge(call.state)),
      el("p", { class: "lead" }, LEAD[call.state] ?? ""),
      facts(
        ["Upstream", `${call.upstream} · rule ${call.rule}`],
        ["Run", call.run ? el("a", { href: `#/runs/run/${call.run}` }, call.attempt ? `${call.run} + ${call.attempt}` : call.run) : null],
        ["Sent", call.sends ? [`${count(call.sends, "time")}, last `, when(call.sent_at)] : "never"],
        ["Replayed", call.replays ? count(call.replays, "time") : null],
        ["Stands until", call.expires_at && call.size === null ? moment(call.expires_at) : null],
        ["Cost", call.cost_usd === null ? null : `$${call.cost_usd}`],
        ["Call", el("code", { class: "id" }, call.id)],
        ["Record", `version ${call.version}, fence ${call.fence}${call.safe ? ", safe" : ", with effects"}`],
      ),
    ];
  }

  #known(detail) {
    const { call, doubt, answer, damage } = detail;
    const told = [];
    if (doubt) {
      told.push(el("p", { class: "reason" }, doubt.reason),
        facts([call.state === "in_doubt" ? "In doubt since" : "Was in doubt since", when(doubt.since)], ["The upstream's status", doubt.upstream_status]),
        doubt.excerpt ? [el("h4", {}, "What the upstream said"), block(doubt.excerpt)] : null);
    }
    if (answer) {
      told.push(facts(["Status", answer.status_code ?? "not known"], ["Size", size(answer.size)], ["Recorded", when(answer.recorded_at)],
        ["Kept until", call.expires_at ? moment(call.expires_at) : null],
        ["Not available", answer.unavailable]),
      answer.unavailable ? null : el("p", {}, el("a", { href: api.bodyAddress(call.id), download: `call-${call.id}.body` }, "Download the recorded body")),
      this.#headers("Headers of the answer", answer.headers));
    }
    if (damage.length) told.push(el("div", { class: "notice" }, el("p", {}, "Some of this call cannot be read:"), el("ul", {}, damage.map((text) => el("li", {}, text)))));
    return told.length ? [el("h3", {}, "What is known"), ...told] : [];
  }

  #asked(detail) {
    const { call, request } = detail;
    const { args } = call;
    return [
      el("h3", {}, "What was asked"),
      request ? el("pre", { class: "target", tabindex: "0" }, el("strong", {}, request.method), ` ${shown(request.target)}`) : el("p", { class: "faint" }, "The request cannot be read."),
      call.state === "awaiting_approval" ? this.#permitted(request) : null,
      args && Object.keys(args).length ? Object.entries(args).map(([source, value]) => [el("h4", {}, source), el("pre", { tabindex: "0" }, pretty(value))])
        : el("p", { class: "faint" }, args ? "Without arguments." : "The arguments cannot be read."),
      call.state !== "awaiting_approval" && request?.body && args && !("body" in args)
        ? el("details", {}, el("summary", {}, "The whole body"), block(request.body)) : null,
      request ? this.#headers(`Headers of the request${request.body_size === null ? "" : `, body of ${size(request.body_size)}`}`, request.headers) : null,
    ];
  }

  /** What a permission covers is the whole body, also what does not name the call. */
  #permitted(request) {
    if (!request || request.body === "") return null;
    if (request.body === null) return el("p", { class: "notice" }, "Its body cannot be shown: it is no text, or too long. Whoever approves, approves it too.");
    return [el("h4", {}, "The body, all of which is approved"), block(request.body)];
  }

  #headers(title, headers) {
    if (!headers.length) return null;
    return el("details", {}, el("summary", {}, title),
      el("pre", { tabindex: "0" }, headers.map(([name, value]) => [el("span", { class: "header-name" }, `${name}: `), `${shown(value)}\n`])));
  }

  #history(events) {
    return [
      el("h3", {}, "History"),
      el("ol", { class: "history" }, events.map((event) => el("li", {},
        clock(event.at),
        el("div", {},
          el("strong", {}, event.event.replaceAll("_", " ")),
          el("span", { class: "faint" }, ` ${event.from ? `${stateWord(event.from)} → ` : ""}${event.to ? stateWord(event.to) : ""} · ${event.actor}`),
          event.why ? el("p", {}, event.why) : null)))),
    ];
  }

  #decision(detail) {
    const { call } = detail;
    const form = this.form;
    if (form && (form.version === call.version) && form.options.length) return;
    if (form?.touched) {
      if (form.present?.version !== call.version) form.moved(call.version, call.state);
      return;
    }
    this.#offer(detail);
  }

  #offer(detail) {
    const { call } = detail;
    const options = choices(detail);
    this.form = null;
    if (!options.length) return fill(this.parts.decision);
    this.form = new DecisionForm({
      options, version: call.version, state: call.state,
      send: (one, said) => api.decide(this.id, one.what, said),
      decided: (result, one) => this.#decided(result, one),
    });
    return fill(this.parts.decision, this.form.node);
  }

  /** `result` null: the person wants to decide on what stands there now. */
  async #decided(result, one) {
    this.form = null;
    const detail = result ?? await api.call(this.id);
    this.update(detail);
    if (result) {
      const told = `${one.title}: the call is ${stateWord(detail.call.state)} now.`;
      this.news(told);
      this.parts.decision.prepend(el("p", { class: "told" }, told));
      this.node.querySelector(".heading")?.focus();
      this.changed();
    } else {
      this.focusDecision();
    }
  }
}
