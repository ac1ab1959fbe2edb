//! Finds a C compiler that can emit wasm32, and a linker for its output.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, thread};

use crate::{Result, engine};

/// Any clang with the wasm32 backend, or the zig compiler in PyPI's `ziglang`.
pub(crate) struct Compiler {
    command: Vec<OsString>,
    target: &'static [&'static str],
}

const CLANG_TARGET: &[&str] = &["--target=wasm32-unknown-unknown"];
const ZIG_TARGET: &[&str] = &["-target", "wasm32-freestanding"];

/// The C stack, below the heap; `--stack-first` makes an overflow trap instead of corrupting memory.
const STACK_BYTES: u32 = 1 << 20;
const INITIAL_MEMORY_BYTES: u32 = 2 << 20;

const HELP: &str = "no C compiler on this machine can emit wasm32: install clang (for example `apt-get install clang` \
     or `brew install llvm`), or `pip install ziglang`, or set CELLMATE_CC";

impl Compiler {
    pub(crate) fn find() -> Result<Self> {
        if let Some(named) = env::var_os("CELLMATE_CC") {
            return Ok(Self { command: vec![named], target: CLANG_TARGET });
        }
        if let Some(clang) = clang_candidates().into_iter().find(emits_wasm) {
            return Ok(Self { command: vec![clang], target: CLANG_TARGET });
        }
        let zig: Vec<OsString> = ["python3", "-m", "ziglang", "cc"].map(OsString::from).to_vec();
        if succeeds(&zig, &["--version"]) {
            return Ok(Self { command: zig, target: ZIG_TARGET });
        }
        Err(HELP.into())
    }

    /// Returns the compiler's own description of its version.
    pub(crate) fn version(&self) -> Result<Vec<u8>> {
        let (program, leading) = self.command.split_first().ok_or(HELP)?;
        Ok(Command::new(program).args(leading).arg("--version").output()?.stdout)
    }

    /// Compiles QuickJS and the shim, and links them into one module.
    pub(crate) fn build(&self, quickjs: &Path, guest: &Path, out: &Path) -> Result<Vec<u8>> {
        let published = quickjs.join("quickjs");
        let mut units: Vec<PathBuf> =
            ["libregexp.c", "libunicode.c", "dtoa.c"].map(|file| published.join(file)).to_vec();
        units.push(engine::write(&published.join("quickjs.c"), out)?);
        units.push(quickjs.join("wasm-shim/shim.c"));
        units.push(guest.join("shim.c"));

        let objects = thread::scope(|scope| -> Result<Vec<PathBuf>> {
            let running: Vec<_> = units
                .iter()
                .enumerate()
                .map(|(number, unit)| {
                    let object = out.join(format!("{number}.o"));
                    scope.spawn(move || self.compile(unit, &object, quickjs, out).map_err(|e| e.to_string()))
                })
                .collect();
            running.into_iter().map(|unit| Ok(unit.join().map_err(|_| "compiling panicked")??)).collect()
        })?;
        link(&objects, quickjs, out)
    }

    fn compile(&self, unit: &Path, object: &Path, quickjs: &Path, out: &Path) -> Result<PathBuf> {
        let (program, leading) = self.command.split_first().ok_or(HELP)?;
        let mut command = Command::new(program);
        command
            .args(leading)
            .args(self.target)
            .args(["-nostdlib", "-isystem"])
            .arg(quickjs.join("vendor/wasi-libc/include"))
            .arg("-I")
            .arg(quickjs.join("quickjs"))
            .arg("-I")
            .arg(out)
            // Not `wasi`: with it, QuickJS compiles without a stack limit.
            .args(["-DEMSCRIPTEN=1", "-DFE_DOWNWARD=0", "-DFE_UPWARD=0", "-D_GNU_SOURCE", "-DNDEBUG"])
            .args(["-O2", "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections", "-w"])
            .args(["-mbulk-memory", "-msign-ext", "-mnontrapping-fptoint", "-mmutable-globals"])
            .arg("-c")
            .arg(unit)
            .arg("-o")
            .arg(object);
        run(command)?;
        Ok(object.to_owned())
    }
}

fn link(objects: &[PathBuf], quickjs: &Path, out: &Path) -> Result<Vec<u8>> {
    let module = out.join("guest.wasm");
    let mut command = rust_lld()?;
    command
        .args(["--no-entry", "--gc-sections", "--stack-first", "--strip-all", "-O2", "-z"])
        .arg(format!("stack-size={STACK_BYTES}"))
        .arg(format!("--initial-memory={INITIAL_MEMORY_BYTES}"))
        .arg("-o")
        .arg(&module)
        .args(objects)
        .arg(quickjs.join("vendor/wasi-libc/lib/libc.a"));
    run(command)?;
    Ok(fs::read(module)?)
}

/// The linker of the Rust toolchain; a distribution's rustc may lack it and have `wasm-ld`.
fn rust_lld() -> Result<Command> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let sysroot = Command::new(rustc).args(["--print", "sysroot"]).output()?.stdout;
    let lld =
        Path::new(String::from_utf8(sysroot)?.trim()).join("lib/rustlib").join(env::var("HOST")?).join("bin/rust-lld");
    if lld.exists() {
        let mut command = Command::new(lld);
        command.args(["-flavor", "wasm"]);
        return Ok(command);
    }
    Ok(Command::new("wasm-ld"))
}

fn clang_candidates() -> Vec<OsString> {
    let mut names: Vec<OsString> = vec!["clang".into()];
    names.extend((14..=24).rev().map(|version| OsString::from(format!("clang-{version}"))));
    names.push("/opt/homebrew/opt/llvm/bin/clang".into());
    names.push("/usr/local/opt/llvm/bin/clang".into());
    names
}

fn emits_wasm(clang: &OsString) -> bool {
    Command::new(clang)
        .arg("--print-targets")
        .output()
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("wasm32"))
}

fn succeeds(command: &[OsString], extra: &[&str]) -> bool {
    let Some((program, leading)) = command.split_first() else { return false };
    Command::new(program).args(leading).args(extra).output().is_ok_and(|output| output.status.success())
}

fn run(mut command: Command) -> Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(format!("{:?} failed: {reason}", command.get_program()).into())
}
