// An agent with the TypeScript SDK: `node ts_agent.mjs SDK URL`. SDK is the folder of the package. It hears
// its calls in one line, [[tool, arguments, patience in ms], …], and says what each came to in a line.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [sdk, url] = process.argv.slice(2);
const from = (file) => import(pathToFileURL(`${sdk}/dist/esm/client/${file}`));
const { Client } = await from("index.js");
const { StreamableHTTPClientTransport } = await from("streamableHttp.js");

const client = new Client({ name: "agent", version: "1" }, { capabilities: {} });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
for await (const line of createInterface({ input: process.stdin })) {
  for (const [name, args, timeout] of JSON.parse(line)) {
    try {
      const result = await client.callTool({ name, arguments: args }, undefined, { timeout });
      console.log(JSON.stringify(result.content[0].text));
    } catch (error) {
      console.log(JSON.stringify({ code: error.code, data: error.data }));
    }
  }
}
await client.close();
