// semel's API as promises. What it refuses is a Refused with the problem's own words; when nobody answers it
// is an Unreachable. Addresses are relative: the page works wherever it is served.

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `The proxy answered ${status}.`);
    this.status = status;
    this.name = String(problem.type ?? "").replace("urn:semel:", "") || "unknown";
    this.title = problem.title ?? "";
    this.members = problem;
  }
}

export class Unreachable extends Error {}

const PATIENCE = 15000;

async function ask(method, path, body) {
  const options = { method, headers: { Accept: "application/json" }, signal: AbortSignal.timeout(PATIENCE), redirect: "error", referrerPolicy: "same-origin" };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  let text;
  try {
    answer = await fetch(path, options);
    text = await answer.text();
  } catch (error) {
    throw new Unreachable(String(error));
  }
  let said = null;
  try {
    said = JSON.parse(text);
  } catch {
    if (answer.ok) throw new Unreachable("The answer is not JSON.");
  }
  if (!answer.ok) throw new Refused(answer.status, said ?? {});
  return said;
}

function query(given) {
  const said = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) if (value !== "" && value !== null && value !== undefined) said.set(name, value);
  const text = said.toString();
  return text ? `?${text}` : "";
}

const one = (name) => encodeURIComponent(name);

export const session = () => ask("GET", "session");
export const signIn = (token) => ask("POST", "session", { token });
export const stillHere = () => ask("POST", "session", {});
export const signOut = () => ask("DELETE", "session");

export const calls = (wanted) => ask("GET", `calls${query(wanted)}`);
export const call = (id) => ask("GET", `calls/${one(id)}`);
export const bodyAddress = (id) => `calls/${one(id)}/body`;
export const decide = (id, what, said) => ask("POST", `calls/${one(id)}/${what}`, said);

export const runs = (wanted) => ask("GET", `runs${query(wanted)}`);
export const run = (name) => ask("GET", `runs/${one(name)}`);
export const exportAddress = (name) => `runs/${one(name)}/export`;
export const allow = (name, reason) => ask("POST", `runs/${one(name)}/allow`, { reason });

export const stats = () => ask("GET", "stats");
