// The operations that the benchmark measures. Each takes its samples on the main thread and checks the results.
import { readFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Thread, answer, openModes } from './modes.mjs';
import { PRELUDES } from './vm.mjs';

const cells = JSON.parse(readFileSync(new URL('cells.json', import.meta.url)));

/** The cell `name` as a unique text, with the value that it must return. */
function text(name, k) {
  const cell = cells[name];
  if (!cell) throw new Error(`unknown cell \`${name}\``);
  return { source: cell.source.replaceAll('__K__', k), expect: cell.plus_k ? cell.expect + k : cell.expect };
}

function check(value, expect, name) {
  if (value !== expect) throw new Error(`${name} returned ${JSON.stringify(value)}, not ${JSON.stringify(expect)}`);
}

// A misspelt option must not silently measure something else.
const OPTIONS = {
  mode: ['inprocess', 'warm', 'worker'],
  prelude: PRELUDES,
  payload: ['trivial', '5mb'],
  compress: ['none', 'zstd'],
};

export function checkOptions(request) {
  for (const [name, allowed] of Object.entries(OPTIONS)) {
    if (name in request && !allowed.includes(request[name])) throw new Error(`unknown ${name} \`${request[name]}\``);
  }
}

const us = from => (performance.now() - from) * 1000;

// V8 recompiles hot wasm functions in the background; unmeasured runs let it finish before the first sample.
const WARMUP = { trivial: 100, nested_seq: 10, nested_wide: 10, suspend: 20, restore: 20, cpu: 2 };
const WARMUP_SEED = 1_000_000_000;

export function openOps(kit) {
  const modes = openModes(kit);
  const warmed = new Set();

  /** Runs `once(k)` n times; the first request of each kind is preceded by a warm-up. */
  async function repeat(request, once) {
    const { op, mode, cell, payload, prelude, compress, seed } = request;
    const kind = [op, mode, cell, payload, prelude, compress].join();
    const usual = mode === 'worker' || payload === '5mb' ? 2 : WARMUP[op];
    const warmup = request.warmup ?? (warmed.has(kind) ? 0 : usual);
    for (let i = 0; i < warmup; i++) await once(WARMUP_SEED + i);
    warmed.add(kind);
    const samples = [];
    for (let i = 0; i < (request.n ?? 100); i++) samples.push(await once(seed + i));
    return samples;
  }

  /** Time from request to checked result of the cell `name`, including the disposal of its instance. */
  async function complete(request, name) {
    const prelude = request.prelude ?? PRELUDES[0];
    const samples_us = await repeat(request, async k => {
      const { source, expect } = text(name, k);
      const from = performance.now();
      check((await modes[request.mode]({ source, prelude })).value, expect, name);
      return us(from);
    });
    return { samples_us, prelude };
  }

  /** Time per call: for the whole cell, and (`calls_us`) from its first call on, without the start of the instance. */
  async function nested(request, name, calls) {
    const pairs = await repeat(request, async k => {
      const { source, expect } = text(name, k);
      const from = performance.now();
      let first;
      const watch = { onCall: () => { first ??= performance.now(); } };
      check((await modes[request.mode]({ source }, watch)).value, expect, name);
      return [us(from) / calls, us(first) / calls];
    });
    return { samples_us: pairs.map(([whole]) => whole), calls_us: pairs.map(([, calls]) => calls) };
  }

  function suspended({ mode, payload = 'trivial', compress = 'none' }, k) {
    const { source, expect } = text(`suspend_${payload}`, k);
    const run = () => modes[mode]({ source, suspend: true, compress });
    return { run, expect };
  }

  async function suspend(request) {
    let bytes;
    const pairs = await repeat(request, async k => {
      const { run } = suspended(request, k);
      const from = performance.now();
      const result = await run();
      bytes = result.bytes.length;
      return [us(from), result.snapshotUs];
    });
    return { samples_us: pairs.map(([whole]) => whole), snapshot_us: pairs.map(([, part]) => part), bytes };
  }

  async function restore(request) {
    let length;
    const samples_us = await repeat(request, async k => {
      const { run, expect } = suspended(request, k);
      const { bytes, calls } = await run();
      const replies = await answer(calls);
      length = bytes.length;
      const from = performance.now();
      check((await modes[request.mode]({ bytes, replies, compress: request.compress })).value, expect, 'restore');
      return us(from);
    });
    return { samples_us, bytes: length };
  }

  async function suspended1000(request) {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc');
    const rss = async () => {
      // Twice, with a pause: a task frees buffers after the collection that found them unreachable.
      for (let i = 0; i < 2; i++) {
        collect();
        await new Promise(resolve => setTimeout(resolve, 100));
      }
      return process.memoryUsage.rss();
    };
    const n = request.n ?? 1000;
    const held = [];
    for (let i = 0; i < 20; i++) await suspended(request, WARMUP_SEED + i).run();
    const before = await rss();
    for (let i = 0; i < n; i++) held.push((await suspended(request, request.seed + i).run()).bytes);
    const rss_growth_bytes = (await rss()) - before;
    return { n, total_bytes: held.reduce((sum, bytes) => sum + bytes.length, 0), rss_growth_bytes };
  }

  /** Trivial cells per second. Several jobs in flight keep a thread from waiting for the main thread. */
  async function throughput({ workers = 1, in_flight = 4, seconds = 2, seed }) {
    let k = seed, count = 0, end = Infinity;
    async function lane(thread) {
      while (performance.now() < end) {
        const { source, expect } = text('trivial', k++);
        check((await thread.run({ source })).value, expect, 'trivial');
        count++;
      }
    }
    const lanes = Array.from({ length: workers * in_flight }, (_, i) => modes.thread(i % workers));
    const measure = async length => {
      const from = performance.now();
      [count, end] = [0, from + length];
      await Promise.all(lanes.map(lane));
      return (count * 1000) / (performance.now() - from);
    };
    await measure(300);
    return { workers, cells_per_s: await measure(seconds * 1000) };
  }

  /** Which endless cells the interrupt handler stops, and how late; the others are killed with their thread. */
  async function loop({ sources, deadline_ms = 100, grace_ms = 2000 }) {
    const results = [];
    for (const source of sources) {
      const thread = new Thread(kit, { source, deadlineMs: deadline_ms });
      const kill = Promise.withResolvers();
      let started, timer;
      const onStart = () => {
        started = performance.now();
        timer = setTimeout(() => kill.resolve(thread.close().then(() => ({ stopped_by: 'kill' }))), deadline_ms + grace_ms);
      };
      const ended = await Promise.race([kill.promise, thread.outcome({ onStart }).then(
        () => ({ stopped_by: 'itself' }),
        error => ({ stopped_by: error.interrupted ? 'interrupt' : 'error', detail: error.message }),
      )]);
      results.push({ ...ended, overshoot_ms: performance.now() - started - deadline_ms });
      clearTimeout(timer);
      await thread.close();
    }
    return { results };
  }

  return {
    trivial: request => complete(request, 'trivial'),
    cpu: request => complete(request, request.cell),
    nested_seq: request => nested(request, 'nested_seq', 200),
    nested_wide: request => nested(request, 'nested_wide', 192),
    suspend, restore, suspended_1000: suspended1000, throughput, loop,
  };
}
