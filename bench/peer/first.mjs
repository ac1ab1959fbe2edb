// Measures start-up: start, compile the module, run one trivial cell, exit.
import { compile, perform } from './vm.mjs';

// The prelude is used as source: for one cell, compiling its bytecode first would cost a second VM.
const { value } = await perform({ module: await compile() }, { source: 'return 1+1', prelude: 'source' });
if (value !== 2) throw new Error(`returned ${value}`);
// Exit without waiting for V8's background compilation.
process.stdout.write('ok\n', () => process.exit(0));
