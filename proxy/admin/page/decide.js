// What can be decided in which state, and the form in which a person does it: a choice, a reason, one button.
// The form outlives refreshes: what somebody types stays. It decides on the version that it was opened with;
// when the record has moved on it says so, and goes on only when the person says that they have looked.

import { Refused, Unreachable } from "./api.js";
import { el, fill, stateWord } from "./dom.js";

const executed = {
  id: "executed", what: "resolve", said: { as: "executed" }, answer: true, button: "Settle as executed",
  title: "It happened", about: "Nothing is sent again. Identical calls get the answer you give below; without one they hear that it happened and its answer is not known.",
};
const notExecuted = {
  id: "not-executed", what: "resolve", said: { as: "not_executed" }, button: "Settle as not executed", grave: true,
  title: "It did not happen", about: "The next identical call is sent. If it did happen after all, it happens twice.",
};
const probe = {
  id: "probe", what: "probe", said: {}, button: "Probe now",
  title: "Ask the upstream", about: "The rule knows how to find out. The probe is made now; if it cannot tell, the call stays in doubt.",
};
const approve = {
  id: "approve", what: "approve", said: {}, button: "Approve once", placeholder: "Why may it?",
  title: "Approve", about: "Exactly the request shown here goes through once, when the agent makes it again. Anything else is asked anew.",
};
const deny = {
  id: "deny", what: "deny", said: {}, button: "Deny", placeholder: "Why not?",
  title: "Deny", about: "The call is refused. Nothing is sent.",
};
const forget = {
  id: "forget", what: "forget", said: {}, button: "Forget", grave: true, placeholder: "Why may it happen again?",
  title: "Forget", about: "The next identical call is sent as if it were the first.",
};

const over = (call) => call.expires_at !== null && Date.parse(call.expires_at) <= Date.now();

/** Every decision that the present state allows, in the order of harm. */
export function choices(detail) {
  const { call } = detail;
  if (call.state === "in_doubt") return detail.settled_by === "probe" ? [probe, executed, notExecuted] : [executed, notExecuted];
  if (call.state === "awaiting_approval") return [approve, deny];
  if (["done", "released", "denied"].includes(call.state) && !over(call)) return [forget];
  return [];
}

const why = (error) => {
  if (error instanceof Unreachable) return "The proxy did not answer: whether the decision was written is not known. Wait until the page has connected again and look at the state before you decide.";
  return error.message;
};

let forms = 0;

export class DecisionForm {
  /** `send(choice, said)` carries it out; `decided` is told what came of it. */
  constructor({ options, version, state, send, decided }) {
    this.options = options;
    this.version = version;
    this.state = state;
    this.send = send;
    this.decided = decided;
    this.present = null;
    this.busy = false;
    this.id = `decision-${(forms += 1)}`;
    this.#build();
  }

  /** Somebody has begun: then nothing is taken away from under their hands. */
  get touched() {
    const typed = [this.reason, this.status, this.body, this.kind].some((input) => input && input.value !== "");
    return this.busy || typed || (this.options.length > 1 && this.#chosen() !== null);
  }

  /** The record stands at another version than the one that is decided on. */
  moved(version, state, what = `it is ${stateWord(state)} now, version ${version}`) {
    this.present = { version, state };
    fill(this.notice,
      el("p", {}, el("strong", {}, "The record has changed"), ` since you began: ${what}. Nothing was decided here.`),
      el("button", { type: "button", class: "quiet", on: { click: () => this.decided(null) } }, "Decide on the present state"));
    this.notice.hidden = false;
  }

  focus() {
    (this.node.querySelector("input[type=radio]:checked") ?? this.node.querySelector("input[type=radio]") ?? this.reason).focus();
  }

  #build() {
    const many = this.options.length > 1;
    this.notice = el("div", { class: "notice", role: "alert", hidden: true });
    this.wrong = el("p", { class: "wrong", role: "alert", hidden: true });
    this.reason = el("input", { id: `${this.id}-reason`, type: "text", required: true, maxlength: 2000, autocomplete: "off",
      placeholder: many ? "How do you know?" : this.options[0].placeholder, "aria-describedby": `${this.id}-hint` });
    this.button = el("button", { class: "main", type: "submit" }, many ? "Choose first" : this.options[0].button);
    this.extra = this.#answerFields();
    this.node = el("form", { class: "decision", novalidate: true, "aria-label": "Decision", on: { submit: (event) => this.#submit(event) } },
      el("h3", {}, this.options.includes(executed) ? "What do you know?" : many ? "Your decision" : this.options[0].title),
      this.notice,
      many ? el("fieldset", {}, el("legend", { class: "unseen" }, "Decision"), this.options.map((one) => this.#radio(one)))
        : el("p", { class: "hint" }, this.options[0].about),
      el("label", { for: `${this.id}-reason` }, "Reason"),
      this.reason,
      el("p", { class: "hint", id: `${this.id}-hint` }, "Kept in the history, with the time and who decided."),
      this.wrong,
      this.button);
    this.#chosenChanged();
  }

  #radio(one) {
    const id = `${this.id}-${one.id}`;
    return el("div", { class: "choice" },
      el("input", { type: "radio", name: `${this.id}-choice`, id, value: one.id, "aria-describedby": `${id}-about`, on: { change: () => this.#chosenChanged() } }),
      el("label", { for: id }, one.title),
      el("p", { id: `${id}-about`, class: "hint" }, one.about),
      one.answer ? this.extra : null);
  }

  #answerFields() {
    if (!this.options.some((one) => one.answer)) return null;
    const field = (name, title, input) => {
      input.id = `${this.id}-${name}`;
      return [el("label", { for: input.id }, title), input];
    };
    this.status = el("input", { type: "number", min: 200, max: 599, step: 1, inputmode: "numeric", placeholder: "200" });
    this.body = el("textarea", { rows: 4, spellcheck: "false", placeholder: "Left empty: the answer stays unknown" });
    this.kind = el("input", { type: "text", maxlength: 200, autocomplete: "off", placeholder: "found from the body" });
    return el("details", { class: "answer", hidden: true },
      el("summary", {}, "The answer, if you know it"),
      el("div", { class: "pair" }, el("div", {}, field("status", "Status", this.status)), el("div", {}, field("kind", "Content-Type", this.kind))),
      field("body", "Body", this.body));
  }

  #chosen() {
    if (this.options.length === 1) return this.options[0];
    const checked = this.node.querySelector("input[type=radio]:checked");
    return checked ? this.options.find((one) => one.id === checked.value) : null;
  }

  #chosenChanged() {
    const one = this.#chosen();
    this.button.textContent = one ? one.button : "Choose first";
    this.button.classList.toggle("grave", Boolean(one?.grave));
    this.button.classList.toggle("idle", one === null);
    if (one?.placeholder) this.reason.placeholder = one.placeholder;
    if (this.extra) this.extra.hidden = !one?.answer;
  }

  #say(text, input = null) {
    this.wrong.textContent = text;
    this.wrong.hidden = text === "";
    if (input) input.focus();
  }

  #said(one) {
    const said = { ...one.said, reason: this.reason.value.trim() };
    if (this.version !== null) said.version = this.version;
    if (!one.answer) return said;
    if (this.status.value !== "") said.status = Number(this.status.value);
    if (this.body.value !== "") {
      said.body = this.body.value;
      if (this.kind.value !== "") said.content_type = this.kind.value.trim();
    }
    return said;
  }

  async #submit(event) {
    event.preventDefault();
    if (this.busy) return;
    const one = this.#chosen();
    if (one === null) return this.#say("Choose what you know first.", this.node.querySelector("input[type=radio]"));
    if (this.reason.value.trim() === "") return this.#say("Say why: a decision without a reason is not taken.", this.reason);
    this.#say("");
    this.busy = this.button.disabled = true;
    try {
      const result = await this.send(one, this.#said(one));
      this.busy = false;
      this.decided(result, one);
    } catch (error) {
      this.busy = this.button.disabled = false;
      this.#failed(error);
    }
  }

  #failed(error) {
    const { state, version } = error instanceof Refused ? error.members : {};
    if (error.status === 409 && version !== undefined) this.moved(version, state);
    else this.#say(why(error));
  }
}
