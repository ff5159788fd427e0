// What waits for a person: calls in doubt, calls awaiting approval, runs held because they left their record.

import * as api from "./api.js";
import { el } from "./dom.js";
import { Section, callEntry, runEntry } from "./lists.js";

const MOST = 200;
// Of each run its history is read, so not in every round.
const RUNS = 100;
const SELDOM = 3;

export class Inbox {
  constructor() {
    this.doubts = new Section("In doubt", "No call is in doubt. A call comes here when it was sent and its answer was lost: a broken connection, a timeout, a 5xx, a crash of the proxy.");
    this.waiting = new Section("Waiting for approval", "No call waits. One comes here when its rule says approval, before anything is sent.");
    this.held = new Section("Held by divergence", "No run is held. One comes here when a restarted agent asks for something else than its record holds.");
    this.node = el("div", {}, this.doubts.node, this.waiting.node, this.held.node);
    this.counts = { doubts: 0, waiting: 0, held: 0 };
    this.runs = null;
  }

  mark(href) {
    for (const section of [this.doubts, this.waiting, this.held]) section.mark(href);
  }

  /** `anyway`: somebody has decided; look at everything. */
  async refresh(round, anyway = false) {
    const [doubts, waiting, runs] = await Promise.all([
      api.calls({ state: "in_doubt", limit: MOST }),
      api.calls({ state: "awaiting_approval", limit: MOST }),
      this.runs && !anyway && round % SELDOM ? this.runs : api.runs({ limit: RUNS }),
    ]);
    this.runs = runs;
    const held = runs.runs.filter((run) => run.diverged > 0);
    const show = (section, page) => section.show(page.calls.map((call) => callEntry(call, "inbox", { tell: "" })), { more: page.next !== null });
    show(this.doubts, doubts);
    show(this.waiting, waiting);
    this.held.show(held.map((run) => runEntry(run, "inbox")));
    // There is no more to show here: what is decided makes room.
    this.doubts.more.hidden = this.waiting.more.hidden = true;
    this.counts = { doubts: doubts.calls.length, waiting: waiting.calls.length, held: held.length };
  }
}
