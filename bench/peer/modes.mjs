// The three ways in which a host can run quickjs-wasi, each as `run(job) -> result`, and the tool that cells call.
import { SHARE_ENV, Worker } from 'node:worker_threads';
import { perform } from './vm.mjs';

const tools = { echo: async input => input };

/** Answers the calls of one suspension on the main thread; calls and replies are JSON text. */
export async function answer(calls) {
  const replies = JSON.parse(calls).map(async ([number, id, input]) => [number, true, await tools[id](input)]);
  return JSON.stringify(await Promise.all(replies));
}

/** A worker thread. A measurement can observe calls with `onCall` and the start of the cell with `onStart`. */
export class Thread {
  #jobs = [];
  #worker;

  constructor(kit, job) {
    const bytes = job?.bytes;
    this.#worker = new Worker(new URL('worker.mjs', import.meta.url), {
      workerData: { kit, job },
      transferList: bytes ? [bytes.buffer] : [],
      env: SHARE_ENV,
    });
    this.#worker.on('message', message => this.#receive(message));
    this.#worker.on('error', error => this.#jobs.shift()?.reject(error));
  }

  async #receive({ calls, started, result, error, interrupted }) {
    if (calls) {
      this.#jobs[0].onCall?.();
      this.#worker.postMessage({ replies: await answer(calls) });
    } else if (started) this.#jobs[0].onStart?.();
    else if (result) this.#jobs.shift().resolve(result);
    else this.#jobs.shift().reject(Object.assign(new Error(error), { interrupted }));
  }

  /** The outcome of the next job in order: the job that the thread was created with, or the one posted just before. */
  outcome(watch) {
    return new Promise((resolve, reject) => this.#jobs.push({ resolve, reject, ...watch }));
  }

  run(job, watch) {
    this.#worker.postMessage({ job }, job.bytes ? [job.bytes.buffer] : []);
    return this.outcome(watch);
  }

  close() {
    return this.#worker.terminate();
  }
}

/** `modes[name](job, watch)` runs a job to its result; the instance is disposed when it resolves. */
export function openModes(kit) {
  const warm = [];
  const thread = number => (warm[number] ??= new Thread(kit));
  return {
    thread,
    inprocess: (job, watch) => perform(kit, job, calls => { watch?.onCall?.(); return answer(calls); }),
    warm: (job, watch) => thread(0).run(job, watch),
    worker: async (job, watch) => {
      const fresh = new Thread(kit, job);
      try {
        return await fresh.outcome(watch);
      } finally {
        await fresh.close();
      }
    },
  };
}
