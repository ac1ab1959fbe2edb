// A worker thread that runs cells. Their tools are on the main thread and are called by messages.
import { parentPort, workerData } from 'node:worker_threads';
import { perform } from './vm.mjs';

let wake;
const answer = calls => new Promise(resolve => { wake = resolve; parentPort.postMessage({ calls }); });

async function reply(job) {
  const started = job.deadlineMs && (() => parentPort.postMessage({ started: true }));
  try {
    const result = await perform(workerData.kit, job, answer, started);
    // The snapshot's bytes move to the main thread instead of being copied.
    parentPort.postMessage({ result }, result.bytes ? [result.bytes.buffer] : []);
  } catch (error) {
    parentPort.postMessage({ error: String(error.message), interrupted: error.interrupted });
  }
}

// One cell at a time, in order: the main thread pairs answers with jobs by their order.
let queue = Promise.resolve();
const accept = job => { queue = queue.then(() => reply(job)); };

parentPort.on('message', message => ('replies' in message ? wake(message.replies) : accept(message.job)));
if (workerData.job) accept(workerData.job);
