// The incumbent of the benchmark of whole runs: the code mode of one OpenClaw version, in a long-lived process.
//
//   node openclaw.mjs PACKAGE EXECUTOR
//
// PACKAGE is a dependency of openclaw/package.json; EXECUTOR is `quickjs` or `node` (`quickjs` only before 2026.9).
// One JSON request a line on stdin, one JSON answer a line on stdout, or `{ error }`.
//
//   run         cell: trivial | sequential_16 | parallel_16; n samples (10); seed (1), the first of the n numbers put
//               into the sources; warmup (0) unmeasured runs. Answers `samples_us`, and `waits`: how many calls of
//               `wait` one run took
//   concurrent  lanes (24), seconds (2), seed. Trivial cells in that many lanes. Answers `cells_per_s`
//
// A sample is one `exec` tool call, with the `wait` calls that it needs, until the result is complete and checked.
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { registerHooks } from 'node:module';
import { createInterface } from 'node:readline';
import { fileURLToPath, pathToFileURL } from 'node:url';

// stdout carries answers only; the package's own log lines go to stderr.
const write = process.stdout.write.bind(process.stdout);
process.stdout.write = process.stderr.write.bind(process.stderr);
const say = answer => write(`${JSON.stringify(answer)}\n`);

const [name, executor] = process.argv.slice(2);
const root = new URL(`openclaw/node_modules/${name}/`, import.meta.url);
const { version } = JSON.parse(readFileSync(new URL('package.json', root)));

// Both sides have two tools that immediately return their input.
const tool = name => ({
  name, label: name, description: 'Returns its input.', parameters: { type: 'object' },
  execute: async (_id, input) => ({ content: [{ type: 'text', text: JSON.stringify(input) }], details: input }),
});
const tools = [tool('bench_read'), tool('bench_write')];

// Only the time limit differs from the defaults, so that a busy machine makes samples long instead of failing the run.
const config = { tools: { codeMode: { enabled: true, timeoutMs: 60_000, ...(executor === 'node' ? {} : { executor }) } } };
const identity = { config, runtimeConfig: config, agentId: 'main', sessionId: 'bench', sessionKey: 'bench', runId: 'bench' };

/** 2026.9: the package exports a function that puts tools behind `exec` and `wait`. A tool is a global function. */
async function open(url) {
  const { createAgentHarnessToolSurfaceRuntime } = await import(url);
  const surface = createAgentHarnessToolSurfaceRuntime({
    ...identity, modelToolsEnabled: true, forceCodeModeControls: true, modelProvider: 'bench', modelId: 'bench',
  });
  return { controls: surface.compactTools(tools).tools, call: input => `(await bench_read(${input})).i` };
}

/** 2026.6: the functions are in a bundle that does not export them; a load hook adds the export in memory. */
async function openUnexported() {
  const dist = new URL('dist/', root);
  const holds = file => readFileSync(new URL(file, dist), 'utf8').includes('\nfunction createCodeModeTools(');
  const bundle = readdirSync(dist).find(file => /^selection-.*\.js$/.test(file) && holds(file));
  if (!bundle) throw new Error(`no bundle of ${name} ${version} has createCodeModeTools`);
  const url = new URL(bundle, dist).href;
  registerHooks({
    load(at, context, next) {
      const loaded = next(at, context);
      if (at === url) loaded.source = `${loaded.source}\nexport { createCodeModeTools, applyCodeModeCatalog };`;
      return loaded;
    },
  });
  const { createCodeModeTools, applyCodeModeCatalog } = await import(url);
  const catalogRef = {};
  const { tools: controls } =
    applyCodeModeCatalog({ ...identity, catalogRef, tools: [...createCodeModeTools({ ...identity, catalogRef }), ...tools] });
  return { controls, call: input => `(await tools.call('openclaw:core:bench_read', ${input})).result.details.i` };
}

const exported = fileURLToPath(new URL('dist/plugin-sdk/agent-harness-tool-runtime.js', root));
if (!existsSync(exported) && executor !== 'quickjs') throw new Error(`${name} has no executor \`${executor}\``);
const { controls, call } = existsSync(exported) ? await open(pathToFileURL(exported)) : await openUnexported();
const control = name => controls.find(tool => tool.name === name) ?? (() => { throw new Error(`there is no \`${name}\``); })();
const [exec, wait] = [control('exec'), control('wait')];

// Every source has a number of its own, so that nothing can be reused from an earlier run.
const CELLS = {
  trivial: k => ({ source: `return ${k}`, expect: k }),
  sequential_16: k => ({
    source: `let n = ${k}; for (let i = 0; i < 16; i++) n += ${call('{ i: 1 }')}; return n`,
    expect: k + 16,
  }),
  parallel_16: k => ({
    source: `const all = await Promise.all(Array.from({ length: 16 }, async (_, i) => ${call('{ i }')})); `
      + `return all.reduce((sum, i) => sum + i, ${k})`,
    expect: k + 120,
  }),
};

let calls = 0;

/** Runs a cell to its end and returns its time and how often `wait` was called. */
async function complete(cell, k) {
  const { source, expect } = CELLS[cell](k);
  const from = performance.now();
  let { details: result } = await exec.execute(`call_${++calls}`, { code: source });
  let waits = 0;
  for (; result.status === 'waiting'; waits++) {
    ({ details: result } = await wait.execute(`call_${++calls}`, { runId: result.runId }));
  }
  const us = (performance.now() - from) * 1000;
  if (result.status !== 'completed' || result.value !== expect) {
    throw new Error(`${cell} ended with ${JSON.stringify(result)}, not with ${expect}`);
  }
  return { us, waits };
}

const WARMUP_SEED = 1_000_000_000;

const ops = {
  async run({ cell, n = 10, seed = 1, warmup = 0 }) {
    for (let i = 0; i < warmup; i++) await complete(cell, WARMUP_SEED + i);
    const runs = [];
    for (let i = 0; i < n; i++) runs.push(await complete(cell, seed + i));
    return { samples_us: runs.map(run => run.us), waits: Math.max(...runs.map(run => run.waits)) };
  },

  async concurrent({ lanes = 24, seconds = 2, seed = 1 }) {
    let k = seed, count = 0;
    const from = performance.now();
    const lane = async () => {
      do {
        await complete('trivial', k++);
        count++;
      } while (performance.now() < from + seconds * 1000);
    };
    await Promise.all(Array.from({ length: lanes }, lane));
    return { cells_per_s: (count * 1000) / (performance.now() - from) };
  },
};

// A kind of cell that does not work here ends the process before anything is measured.
for (const cell of Object.keys(CELLS)) await complete(cell, WARMUP_SEED);
say({ ready: true, node: process.version, version, executor, start_ms: performance.now() });

for await (const line of createInterface({ input: process.stdin })) {
  try {
    const request = JSON.parse(line);
    const op = ops[request.op];
    if (!op) throw new Error(`unknown op \`${request.op}\``);
    say({ op: request.op, ...(await op(request)) });
  } catch (error) {
    say({ error: String(error.message) });
  }
}
// Otherwise warm workers keep the process alive.
process.exit(0);
