// From nothing to the first result: start, compile the module, run one trivial cell, exit.
import { compile, perform } from './vm.mjs';

// The prelude comes as source: with one cell to run, making its bytecode first would cost a second VM.
const { value } = await perform({ module: await compile() }, { source: 'return 1+1', prelude: 'source' });
if (value !== 2) throw new Error(`returned ${value}`);
// Not waiting for V8's background compilation: the result is out.
process.stdout.write('ok\n', () => process.exit(0));
