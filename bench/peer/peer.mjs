// The peer of the benchmark, a long-lived process: one JSON request a line on stdin, one JSON answer a line on stdout.
//
// Every request: `op`; `mode` is `inprocess`, `warm` (default) or `worker`; `n` samples (100); `seed` (1), the first of
// the n numbers put into the sources; `warmup` overrides the unmeasured runs before the first request of its kind.
// Every answer: `op`, `mode`, `samples_us`, or `{ error }`. A sample ends when its result is checked and its VM disposed.
//
//   trivial         prelude: bytecode (default, fastest) | source | snapshot
//   cpu             cell: fib | json | sort | string | regex | map | float
//   nested_seq      µs per call, 200 in a cell; `calls_us` excludes the start of the VM
//   nested_wide     as nested_seq, with 12 rounds of 16 concurrent calls
//   suspend         payload: trivial (default) | 5mb; compress: none (default) | zstd. Answers `bytes`, and
//                   `snapshot_us`: the part after the cell has reached its call
//   restore         payload, compress: from those bytes and the reply to the result
//   suspended_1000  n (1000), payload, compress. Answers `n`, `total_bytes`, `rss_growth_bytes`
//   throughput      workers (1), in_flight (4) per worker, seconds (2). Answers `cells_per_s`
//   loop            sources: [text], deadline_ms (100), grace_ms (2000). Answers `results`, one per source:
//                   `{ stopped_by: interrupt | kill | error | itself, overshoot_ms, detail? }`
//
// The texts are in cells.json, with what they return: `expect`, plus the number in `__K__` where `plus_k` is set.
import { createInterface } from 'node:readline';
import { readFileSync } from 'node:fs';
import { checkOptions, openOps } from './ops.mjs';
import { PRELUDES, prepare } from './vm.mjs';

const say = answer => process.stdout.write(`${JSON.stringify(answer)}\n`);

const ops = openOps(await prepare());
const { version } = JSON.parse(readFileSync(new URL(import.meta.resolve('quickjs-wasi/package.json'))));
say({ ready: true, node: process.version, quickjs_wasi: version, prelude: PRELUDES[0], start_ms: performance.now() });

for await (const line of createInterface({ input: process.stdin })) {
  try {
    const request = { mode: 'warm', seed: 1, ...JSON.parse(line) };
    const op = ops[request.op];
    if (!op) throw new Error(`unknown op \`${request.op}\``);
    checkOptions(request);
    say({ op: request.op, mode: request.mode, ...(await op(request)) });
  } catch (error) {
    say({ error: String(error.message) });
  }
}
// Otherwise warm workers keep the process alive.
process.exit(0);
