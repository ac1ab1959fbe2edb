#!/usr/bin/env node
// Runs the binary of the package for this machine.
"use strict";

const { constants } = require("node:os");

function find() {
  const name = `@cellmate/${process.platform}-${process.arch}`;
  try {
    return require.resolve(`${name}/bin/cellmate`);
  } catch {
    console.error(
      `cellmate: the package ${name} is not installed. Either there is no binary for this machine, or optional ` +
        "dependencies were omitted; install without --omit=optional.",
    );
    process.exit(1);
  }
}

const binary = find();
const args = process.argv.slice(2);
// Newer versions of Node can become the binary, so that no Node process stays behind a server.
if (typeof process.execve === "function") {
  process.execve(binary, [binary, ...args], process.env);
}
const child = require("node:child_process").spawn(binary, args, { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`cellmate: cannot run ${binary}: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
