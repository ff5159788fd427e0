// A Restate service of one handler: the effect in ctx.run, as the documentation has it.
// node service.mjs PORT MODE TARGET CONTROL
import * as restate from "@restatedev/restate-sdk";

// The SDK is written for Node 22; on Node 20 this one function is missing.
Promise.withResolvers ??= function () {
  let resolve, reject;
  const promise = new Promise((yes, no) => { resolve = yes; reject = no; });
  return { promise, resolve, reject };
};

const [port, mode, target, control] = process.argv.slice(2);
// By default Restate retries a failing run without end; with 1 it gives up at the first error.
const options = mode === "once" ? { maxRetryAttempts: 1 } : {};

async function post(ref, key) {
  const headers = { "content-type": "application/json", ...(key && { "idempotency-key": key }) };
  const reply = await fetch(target, { method: "POST", headers, body: JSON.stringify({ ref }) });
  if (!reply.ok) throw new Error(`status ${reply.status}`);
  return reply.json();
}

const tool = restate.service({
  name: "tool",
  handlers: {
    act: async (ctx, { ref }) => {
      const key = mode === "key" ? ctx.rand.uuidv4() : undefined; // the same in every attempt
      const answer = await ctx.run("act", () => post(ref, key), options);
      await fetch(`${control}/saved?ref=${ref}`); // the result is in the journal by now
      return answer;
    },
  },
});

await restate.serve({ services: [tool], port: Number(port) });
console.log(JSON.stringify({ ready: true }));
