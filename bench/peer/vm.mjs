// The adapter to quickjs-wasi: one `Cell` is one fresh QuickJS instance that runs one source text.
// It uses only the package's public API, in the fastest way that it offers.
import { readFileSync } from 'node:fs';
import { zstdCompressSync, zstdDecompressSync, constants } from 'node:zlib';
import { CompileFlags, QuickJS } from 'quickjs-wasi';

// The promises' resolvers stay inside the guest, as in OpenClaw's controller, so that a snapshot carries them.
// Pending calls leave, and replies arrive, in one JSON string per suspension: one crossing for a whole Promise.all.
const PRELUDE = `(() => {
  const { parse, stringify } = JSON, waiting = new Map();
  let calls = [], output = [], last = 0;
  const call = (id, input) => new Promise((resolve, reject) => {
    waiting.set(++last, [resolve, reject]);
    calls.push([last, String(id), input === undefined ? {} : input]);
  });
  const hide = (name, value) => Object.defineProperty(globalThis, name, { value });
  hide('tools', Object.freeze({ call }));
  hide('text', value => { output.push({ type: 'text', text: typeof value === 'string' ? value : stringify(value) }); });
  hide('json', value => { output.push({ type: 'json', value: value === undefined ? null : parse(stringify(value)) }); });
  hide('__take', () => { const taken = stringify(calls); calls = []; return taken; });
  hide('__deliver', replies => {
    for (const [number, ok, value] of parse(replies)) {
      const [resolve, reject] = waiting.get(number);
      waiting.delete(number);
      ok ? resolve(value) : reject(new Error(value));
    }
  });
})()`;

const DEADLINE_MS = 10_000;

/** How the prelude is loaded into an instance; the first is the fastest as measured, and the default. */
export const PRELUDES = ['bytecode', 'source', 'snapshot'];

export const compile = () =>
  WebAssembly.compile(readFileSync(new URL(import.meta.resolve('quickjs-wasi/quickjs.wasm'))));

/** The data that every cell starts from, created once per process; posting it to workers does not copy the image. */
export async function prepare() {
  const module = await compile();
  using vm = await QuickJS.create(module);
  const bytecode = vm.compile(PRELUDE, 'prelude.js', 0, CompileFlags.STRIP_SOURCE | CompileFlags.STRIP_DEBUG);
  vm.evalBytecode(bytecode).dispose();
  const snapshot = vm.snapshot();
  const memory = new Uint8Array(new SharedArrayBuffer(snapshot.memory.length));
  memory.set(snapshot.memory);
  return { module, bytecode, snapshot: { ...snapshot, memory } };
}

/** One instance. `calls()` is null when the cell has settled; otherwise answer them with `deliver`. */
export class Cell {
  interrupted = false;
  #deadline = performance.now() + DEADLINE_MS;
  #vm;
  #promise;
  #take;
  #deliver;

  static async create(kit, prelude = PRELUDES[0]) {
    const cell = new Cell();
    const options = cell.#options(kit);
    cell.#vm = await (prelude === 'snapshot' ? QuickJS.restore(kit.snapshot, options) : QuickJS.create(options));
    if (prelude === 'bytecode') cell.#vm.evalBytecode(kit.bytecode).dispose();
    if (prelude === 'source') cell.#vm.evalCode(PRELUDE, 'prelude.js').dispose();
    return cell;
  }

  static async restore(kit, bytes, compress) {
    const cell = new Cell();
    const snapshot = QuickJS.deserializeSnapshot(compress === 'zstd' ? zstdDecompressSync(bytes) : bytes);
    cell.#vm = await QuickJS.restore(snapshot, cell.#options(kit));
    cell.#promise = cell.#vm.global.getProp('__cell');
    return cell;
  }

  // OpenClaw's limits. Cellmate is measured with its limits, too, so neither side is timed without them.
  #options(kit) {
    const interruptHandler = () => (this.interrupted = performance.now() > this.#deadline);
    return { wasm: kit.module, memoryLimit: 64 << 20, timezoneOffset: 0, interruptHandler };
  }

  run(source, deadlineMs = DEADLINE_MS) {
    this.#deadline = performance.now() + deadlineMs;
    this.#promise = this.#vm.evalCode(`globalThis.__cell=(async()=>{${source}\n})()`, 'cell.js');
    this.#vm.executePendingJobs();
  }

  calls() {
    if (this.#promise.promiseState !== 0) return null;
    this.#take ??= this.#vm.global.getProp('__take');
    return this.#vm.callFunction(this.#take, this.#vm.undefined).consume(calls => calls.toString());
  }

  deliver(replies) {
    this.#deliver ??= this.#vm.global.getProp('__deliver');
    this.#vm.newString(replies).consume(text => this.#vm.callFunction(this.#deliver, this.#vm.undefined, text).dispose());
    this.#vm.executePendingJobs();
  }

  async value() {
    const { value, error } = await this.#vm.resolvePromise(this.#promise);
    if (error) throw new Error(error.toString());
    return this.#vm.dump(value);
  }

  suspend(compress) {
    const bytes = QuickJS.serializeSnapshot(this.#vm.snapshot());
    if (compress !== 'zstd') return bytes;
    return new Uint8Array(zstdCompressSync(bytes, { params: { [constants.ZSTD_c_compressionLevel]: 1 } }));
  }

  dispose() {
    this.#vm.dispose();
  }
}

/** Runs one job from start to settled (or suspended) cell; `answer` maps a batch of calls to its replies. */
export async function perform(kit, job, answer, started) {
  const cell = job.bytes ? await Cell.restore(kit, job.bytes, job.compress) : await Cell.create(kit, job.prelude);
  try {
    started?.();
    if (!job.bytes) cell.run(job.source, job.deadlineMs);
    if (job.suspend) {
      const from = performance.now();
      const calls = cell.calls();
      const bytes = cell.suspend(job.compress);
      return { bytes, calls, snapshotUs: (performance.now() - from) * 1000 };
    }
    // A restored cell made its calls before it was suspended; the host has kept them and delivers their replies.
    if (job.replies) cell.deliver(job.replies);
    for (let calls; (calls = cell.calls()) !== null; ) {
      if (calls === '[]') throw new Error('the cell waits for nothing');
      cell.deliver(await answer(calls));
    }
    return { value: await cell.value() };
  } catch (error) {
    throw Object.assign(error, { interrupted: cell.interrupted });
  } finally {
    cell.dispose();
  }
}
