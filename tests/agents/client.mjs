// SPDX-License-Identifier: MIT
// A whole session by the SDK's own client, which holds each structured answer against the tool's schema:
//   node client.mjs CONTRAIL PROGRAM
//   TOKEN=... node client.mjs http://127.0.0.1:PORT/mcp PROGRAM
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [contrail, program] = process.argv.slice(2);
const isHttp = contrail.startsWith("http:");
const transport = isHttp
  ? new StreamableHTTPClientTransport(new URL(contrail), { requestInit: { headers: { Authorization: `Bearer ${process.env.TOKEN}` } } })
  : new StdioClientTransport({ command: contrail, args: ["mcp"], env: process.env });
const client = new Client({ name: "sdk", version: "1.0.0" }, { capabilities: {} });
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const expect = (holds, text) => { if (!holds) throw new Error(text); };

async function call(name, args, options) {
  const result = await client.callTool({ name, arguments: args }, undefined, options);
  expect(!result.isError, `${name}: ${result.content[0].text}`);
  return result.structuredContent;
}

await client.connect(transport);
expect(client.getServerVersion().name === "contrail", "the server's name");
const { tools } = await client.listTools();
expect(tools.length === 8, `${tools.length} tools`);
const { session } = await call("launch", { program, patterns: [] });
const added = await call("trace", { action: "add", patterns: ["spin", "tick"] });
expect(added.hooked === 2, JSON.stringify(added));
await pause(300);
const live = await call("query", { sql: "SELECT name, calls FROM functions WHERE name = 'spin'" });
expect(live.rows[0][1] > 0 && live.uncertain.length > 0, JSON.stringify(live));
await call("trace", { action: "mark", name: "here" });
let told = 0;
const waited = await call("session", { action: "wait", session, wait_s: 1 }, { onprogress: () => { told += 1; } });
expect(waited.state === "recording" && told > 1, `${told} notes of progress`);
const stop = new AbortController();
const query = client.callTool({ name: "query", arguments: { sql:
  "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n" } }, undefined, { signal: stop.signal });
setTimeout(() => stop.abort("enough"), 200);
expect(await query.then(() => false, () => true), "an aborted query was answered");
const stopped = await call("session", { action: "stop", session });
expect(stopped.state === "done", JSON.stringify(stopped));
const done = await call("query", { trace: session, sql: "SELECT name, calls FROM functions WHERE name = 'spin'" });
expect(done.rows[0][1] >= live.rows[0][1], JSON.stringify(done));
const refused = await client.callTool({ name: "analyze", arguments: { view: "reprt" } });
expect(refused.isError && refused.content[0].text.includes("report"), JSON.stringify(refused));
const { resources } = await client.listResources();
for (const { uri } of resources) {
  expect((await client.readResource({ uri })).contents.length === 1, uri);
}
const { prompts } = await client.listPrompts();
expect((await client.getPrompt({ name: prompts[0].name, arguments: { program } })).messages.length === 1, "a prompt");
await client.ping();
if (isHttp) await transport.terminateSession();
await client.close();
console.log(`protocol ${transport.protocolVersion ?? ""} ${tools.length} tools, ${resources.length} resources, ${prompts.length} prompts`);
