// What waits for a person: calls in doubt, calls awaiting approval, runs held because they left their record.

import * as api from "./api.js";
import { el } from "./dom.js";
import { Section, callEntry, runEntry } from "./lists.js";

const MOST = 200;
// Which runs are held is known from each run alone. Those that changed are looked at, those held before, and
// a few of the others in turn.
const RUNS = 100;
const IN_TURN = 4;

export class Inbox {
  constructor() {
    this.doubts = new Section("In doubt", "No call is in doubt. A call comes here when it was sent and its answer was lost: a broken connection, a timeout, a 5xx, a crash of the proxy.");
    this.waiting = new Section("Waiting for approval", "No call waits. One comes here when its rule says approval, before anything is sent.");
    this.held = new Section("Held by divergence", "No run is held. One comes here when a restarted agent asks for something else than its record holds.");
    this.node = el("div", {}, this.doubts.node, this.waiting.node, this.held.node);
    this.counts = { doubts: 0, waiting: 0, held: 0 };
    this.known = new Map();
    this.turn = 0;
  }

  mark(href) {
    for (const section of [this.doubts, this.waiting, this.held]) section.mark(href);
  }

  async refresh() {
    const [doubts, waiting, held] = await Promise.all([
      api.calls({ state: "in_doubt", limit: MOST }),
      api.calls({ state: "awaiting_approval", limit: MOST }),
      this.#held(),
    ]);
    const show = (section, page) => section.show(page.calls.map((call) => callEntry(call, "inbox", { tell: "" })), { more: page.next !== null });
    show(this.doubts, doubts);
    show(this.waiting, waiting);
    this.held.show(held.map(({ run, diverged }) => runEntry(run, "inbox", diverged)));
    // There is no more to show here: what is decided makes room.
    this.doubts.more.hidden = this.waiting.more.hidden = true;
    this.counts = { doubts: doubts.calls.length, waiting: waiting.calls.length, held: held.length };
  }

  diverged(name) {
    return this.known.get(name)?.diverged ?? 0;
  }

  async #held() {
    const { runs } = await api.runs({ limit: RUNS });
    const open = runs.filter((run) => run.state !== "expired");
    const names = new Set(open.map((run) => run.run));
    for (const name of this.known.keys()) if (!names.has(name)) this.known.delete(name);
    const stamp = (run) => `${run.version} ${run.active_at} ${run.last_seq}`;
    const look = open.filter((run) => this.known.get(run.run)?.stamp !== stamp(run) || this.known.get(run.run).diverged > 0);
    for (let number = 0; number < Math.min(IN_TURN, open.length); number += 1) {
      this.turn = (this.turn + 1) % open.length;
      if (!look.includes(open[this.turn])) look.push(open[this.turn]);
    }
    await Promise.all(look.map(async (run) => {
      try {
        const { diverged } = await api.run(run.run);
        this.known.set(run.run, { stamp: stamp(run), diverged });
      } catch (error) {
        // A name that several tenants have, or a run that went meanwhile: not a reason to show nothing.
        if (!(error instanceof api.Refused) || ![400, 404].includes(error.status)) throw error;
        this.known.set(run.run, { stamp: stamp(run), diverged: 0 });
      }
    }));
    return open.map((run) => ({ run, diverged: this.diverged(run.run) })).filter((one) => one.diverged > 0);
  }
}
