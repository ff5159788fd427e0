// A function that happens once: the four requests of docs/local-tools.md. Node 20 or later, nothing else.
const base = `${process.env.SEMEL_URL ?? "http://127.0.0.1:8080"}/_semel/tools`;
const pause = (seconds: number) => new Promise((done) => setTimeout(done, 1000 * seconds));

async function post(path: string, body: string | undefined, more: Record<string, string> = {}) {
  const headers = { "Content-Type": "application/json", ...more };
  const answer = await fetch(base + path, { method: "POST", headers, body });
  return { status: answer.status, wait: Number(answer.headers.get("Retry-After")), said: await answer.json() };
}

export async function once(tool: string, args: object, run: () => Promise<unknown>): Promise<unknown> {
  // Begin. In a run a key says that all tries are one call; outside it would name the call.
  const key: Record<string, string> = process.env.SEMEL_RUN ? { "Idempotency-Key": crypto.randomUUID() } : {};
  const begin = () => post(`/${tool}`, JSON.stringify(args), key);
  let begun = await begin();
  for (; begun.said.type === "urn:semel:in-progress"; begun = await begin()) await pause(begun.wait);
  if (begun.status !== 200) throw new Error(`${begun.said.type}: ${begun.said.detail}`); // it has not run here
  const { execute, error } = begun.said;
  if (error) throw Object.assign(new Error(error.message), { name: error.type });
  if (!execute) return begun.said.result;
  if (!execute.call) return run(); // a rule says `pass`

  // Run it, with signs of life. A function that blocks the event loop gives none.
  const at = (word: string) => `/${tool}/${execute.call}/${word}?fence=${execute.fence}`;
  const beats = setInterval(() => post(at("heartbeat"), undefined).catch(() => {}), 800 * execute.heartbeat);
  let came: string, thrown: unknown;
  try {
    came = JSON.stringify({ result: (await run()) ?? null });
  } catch (failure) {
    const { name, message } = failure instanceof Error ? failure : new Error(String(failure));
    came = JSON.stringify({ error: { type: name, message } });
    thrown = failure ?? new Error("it threw nothing");
  }
  clearInterval(beats);

  // Complete, until semel has it.
  for (;;) {
    const told = await post(at("complete"), came).catch(() => undefined);
    if (told?.status === 200) break;
    if (told && told.status < 500) throw new Error(`it HAS run, and is not recorded: ${told.said.detail}`);
    await pause(1);
  }
  if (thrown) throw thrown;
  return JSON.parse(came).result; // as every later caller will see it
}
