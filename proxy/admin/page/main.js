// The page put together: where the reader is (the address behind #), what is asked every two seconds, what
// is said when semel cannot answer. Nothing that somebody types is lost to a refresh.

import * as api from "./api.js";
import { CallView } from "./call.js";
import { age, byId, count, el, fill } from "./dom.js";
import { Inbox } from "./inbox.js";
import { listen } from "./keys.js";
import { Overview } from "./overview.js";
import { RunView } from "./run.js";
import { CallList, RunList } from "./views.js";

const EVERY = 2000;
const LONGER = 5000;
const STILL_HERE = 5 * 60 * 1000;
const OVERVIEW_CALLS = 100;

const at = { view: "inbox", kind: "", id: "" };
const inbox = new Inbox();
const views = { inbox, calls: new CallList(), runs: new RunList() };
const overview = new Overview();
let opened = null;
let timer = 0;
let rounds = 0;
let signedIn = false;
let needsToken = false;
let lastRenewal = 0;
let refreshing = false;
let again = false;
let decided = false;

// ---- what is said ----

/** For those who listen: what was said last stays beside what comes. */
const news = (text) => {
  const said = byId("news");
  said.append(el("p", {}, text));
  while (said.children.length > 3) said.firstElementChild.remove();
};

const link = (kind, text) => {
  byId("link").className = `link is-${kind}`;
  byId("link-text").textContent = text;
};

function trouble(title, text) {
  const node = byId("trouble");
  if (node.dataset.said === title + text) return;
  node.dataset.said = title + text;
  fill(node, el("strong", {}, title), " ", text);
  node.hidden = title === "";
}

function failed(error) {
  if (error instanceof api.Unreachable) {
    link("away", "not reachable");
    return trouble("Not reachable, trying again.", "The proxy does not answer. What you see is what was known last; what you type is kept.");
  }
  if (!(error instanceof api.Refused)) throw error;
  if (error.status === 401) return askForToken("The session is over: sign in again. What you typed is kept.");
  link("away", "trouble");
  if (error.name === "store-unavailable") return trouble("The store does not answer.", "Nothing is lost and nothing is sent meanwhile; the page goes on when it is back. Look at the proxy's log, and at /readyz.");
  if (error.name === "forbidden") return trouble("Not allowed.", `${error.message}`);
  return trouble(`${error.title || "Refused"}.`, error.message);
}

// ---- where the reader is ----

/** Anybody may have written the address. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function read() {
  const [, view, kind, id] = location.hash.split("/");
  at.view = Object.hasOwn(views, view ?? "") ? view : "inbox";
  at.kind = ["call", "run"].includes(kind) ? kind : "";
  at.id = at.kind ? decoded(id ?? "") : "";
}

const here = () => `#/${at.view}${at.kind ? `/${at.kind}/${at.id}` : ""}`;

function show() {
  const before = document.activeElement;
  for (const name of Object.keys(views)) {
    if (name === at.view) byId(`view-${name}`).setAttribute("aria-current", "page");
    else byId(`view-${name}`).removeAttribute("aria-current");
  }
  const view = views[at.view];
  if (byId("list").firstElementChild !== view.node) fill(byId("list"), view.node);
  view.mark(here());
  document.body.classList.toggle("has-opened", at.kind !== "");
  const wanted = at.kind ? `${at.kind}/${at.id}` : "";
  if (opened?.wanted === wanted) return;
  if (!wanted) {
    opened = { wanted, view: null };
    fill(byId("detail"), overview.node);
    return;
  }
  const tools = { news, changed: () => { decided = true; refresh(); } };
  opened = { wanted, view: at.kind === "call" ? new CallView(at.id, tools) : new RunView(at.id, tools), fresh: true };
  const back = el("button", { class: "quiet back", type: "button", on: { click: close } }, "← Back to the list");
  fill(byId("detail"), back, el("div", { class: "loading" }, "Reading…"));
  byId("detail").scrollTop = 0;
  if (before?.closest?.(".list")) opened.from = before.getAttribute("href");
}

function go(view) {
  location.hash = `#/${view}`;
}

function close() {
  if (!at.kind) return;
  const from = opened?.from ?? here();
  location.hash = `#/${at.view}`;
  read();
  show();
  for (const row of byId("list").querySelectorAll("a.row")) if (row.getAttribute("href") === from) row.focus();
}

// ---- what is asked ----

async function readOpened() {
  const { view, fresh } = opened;
  if (!view) return;
  const mine = opened;
  try {
    // A run may be long: it is read again every third time.
    if (!fresh && view instanceof RunView && rounds % 3) return;
    await view.refresh();
  } catch (error) {
    if (!(error instanceof api.Refused) || error.status === 401 || error.status >= 500) throw error;
    if (mine !== opened || !fresh) return;
    fill(byId("detail").lastElementChild, el("p", { class: "empty" }, error.message));
    return;
  }
  if (mine !== opened || !fresh) return;
  opened.fresh = false;
  byId("detail").lastElementChild.replaceWith(view.node);
  view.node.querySelector(".heading")?.focus({ preventScroll: true });
}

async function readOverview() {
  const wantsCalls = rounds % 5 === 0 && opened?.view === null;
  const [stats, page] = await Promise.all([api.stats(), wantsCalls ? api.calls({ limit: OVERVIEW_CALLS }) : null]);
  if (page) overview.calls = page.calls;
  overview.update(stats, overview.calls);
}

let told = "";

async function round() {
  const mine = views[at.view];
  await Promise.all([
    inbox.refresh(rounds, decided),
    mine === inbox ? null : mine.refresh(),
    readOpened(),
    readOverview(),
  ]);
  mine.mark(here());
  const { doubts, waiting, held } = inbox.counts;
  const sum = doubts + waiting + held;
  byId("count-inbox").textContent = sum ? String(sum) : "";
  document.title = sum ? `(${sum}) semel` : "semel";
  const words = sum ? `${count(doubts, "call")} in doubt, ${waiting} waiting, ${count(held, "run")} held.` : "Nothing to decide.";
  if (told !== "" && told !== words) news(words);
  told = words;
}

async function refresh() {
  clearTimeout(timer);
  if (refreshing) {
    again = true;
    return;
  }
  refreshing = true;
  let pause = EVERY;
  age();
  try {
    if (needsToken && !signedIn) return;
    await round();
    rounds += 1;
    decided = again && decided;
    link("live", "live");
    trouble("", "");
  } catch (error) {
    pause = LONGER / 2;
    failed(error);
  } finally {
    refreshing = false;
    if (again) {
      again = false;
      pause = 0;
    }
    if (!document.hidden && !(needsToken && !signedIn)) timer = setTimeout(refresh, pause);
  }
}

// ---- who the reader is ----

function askForToken(why = "") {
  signedIn = false;
  needsToken = true;
  document.body.classList.add("signed-out");
  byId("desk").hidden = true;
  byId("door").hidden = false;
  byId("sign-out").hidden = true;
  byId("sign-in-wrong").textContent = why;
  byId("sign-in-wrong").hidden = why === "";
  link("out", "signed out");
  trouble("", "");
  byId("token").focus();
}

function enter(session) {
  signedIn = true;
  needsToken = session.auth;
  lastRenewal = Date.now();
  document.body.classList.remove("signed-out");
  byId("door").hidden = true;
  byId("desk").hidden = false;
  byId("sign-out").hidden = !session.auth;
  byId("sign-out").title = session.tenant ? `Signed in for the tenant ${session.tenant}` : "";
  read();
  show();
  refresh();
}

async function begin() {
  try {
    const session = await api.session();
    if (session.auth && !session.signed_in) askForToken();
    else enter(session);
  } catch (error) {
    failed(error);
    setTimeout(begin, EVERY);
  }
}

byId("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  const token = byId("token").value.trim();
  const wrong = byId("sign-in-wrong");
  const say = (text) => { wrong.textContent = text; wrong.hidden = false; byId("token").focus(); };
  if (!token) return say("Paste an operator's token.");
  try {
    const session = await api.signIn(token);
    byId("token").value = "";
    wrong.hidden = true;
    enter(session);
  } catch (error) {
    if (error instanceof api.Unreachable) return say("The proxy does not answer: try again when it runs.");
    if (error.status === 401) return say("This token is not known here: check it against auth.tokens in semel.yaml.");
    return say(error.message);
  }
  return undefined;
});

byId("sign-out").addEventListener("click", async () => {
  clearTimeout(timer);
  try {
    await api.signOut();
  } catch (error) {
    return failed(error);
  }
  opened = null;
  location.reload();
  return undefined;
});

/** Polling is not presence: only a person keeps a session alive. */
function present() {
  if (!signedIn || !needsToken || Date.now() - lastRenewal < STILL_HERE) return;
  lastRenewal = Date.now();
  api.stillHere().catch(failed);
}

for (const event of ["keydown", "pointerdown"]) document.addEventListener(event, present, { passive: true });
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else refresh();
});
window.addEventListener("hashchange", () => { read(); show(); refresh(); });
byId("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("query").value.trim();
  if (/^[0-9a-f]{32}$/i.test(text)) location.hash = `#/calls/call/${text.toLowerCase()}`;
  else byId("list").querySelector("a.row")?.focus();
});
byId("query").addEventListener("input", () => {
  const text = byId("query").value.trim();
  views.calls.search(text);
  views.runs.search(text);
  if (text && at.view === "inbox") location.hash = "#/calls";
  else refresh();
});
listen({ go, close, decide: () => opened?.view?.focusDecision() });
begin();
