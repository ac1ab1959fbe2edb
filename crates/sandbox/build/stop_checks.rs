//! Inserts the checks by which the host can stop a cell.
//!
//! Every loop of the module begins with a check of the stop flag, a word in the guest's memory, and traps if it is set.
//! Wasmtime's epochs would do the same, but keep a deadline in a variable of every function: with them, computing cells
//! take 10 to 20 % longer. Two exceptions:
//!
//! - The loop that executes bytecode has no check, because it would be made for every instruction. There, QuickJS itself
//!   checks the flag at each jump and call (`POLL` in `engine.rs`).
//! - A function that can call itself, directly or through others, also has a check at its beginning, since recursion can
//!   take long without a loop. Calls through function pointers are not followed: such recursion passes either the
//!   function that executes bytecode, or loops.

use std::collections::BTreeSet;

use wasmparser::{ExternalKind, FunctionBody, Operator, Parser, Payload, TypeRef};

use crate::Result;

/// The function whose result is the address of the flag.
const EXPORT: &str = "stop_flag";

/// The loop that executes bytecode has a branch with more different targets than any other.
const MIN_INSTRUCTIONS: usize = 150;

mod opcode {
    pub(super) const UNREACHABLE: u8 = 0x00;
    pub(super) const IF: u8 = 0x04;
    pub(super) const END: u8 = 0x0b;
    pub(super) const LOAD: u8 = 0x28;
    pub(super) const LOAD_BYTE: u8 = 0x2d;
    pub(super) const CONST: u8 = 0x41;
}
const NO_RESULT: u8 = 0x40;
const CODE_SECTION: u8 = 10;

/// A function, as far as the checks depend on it.
struct Function<'a> {
    body: FunctionBody<'a>,
    /// Where its instructions begin.
    start: usize,
    /// Where the inside of each loop begins that needs a check.
    loops: Vec<usize>,
    /// The functions that it calls directly.
    calls: Vec<u32>,
    executes_bytecode: bool,
}

/// Returns the module with its checks.
pub(crate) fn insert(module: &[u8]) -> Result<Vec<u8>> {
    let mut imported = 0_u32;
    let mut flag_function = None;
    let mut functions = Vec::new();
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    imported += u32::from(matches!(import?.ty, TypeRef::Func(_)));
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export?;
                    if (export.name, export.kind) == (EXPORT, ExternalKind::Func) {
                        flag_function = Some(export.index);
                    }
                }
            }
            Payload::CodeSectionEntry(body) => functions.push(Function::of(body)?),
            _ => {}
        }
    }
    if functions.iter().filter(|function| function.executes_bytecode).count() != 1 {
        return Err("the loop that executes bytecode was not found, so the checks cannot be inserted".into());
    }
    let flag_function = flag_function.and_then(|index| functions.get(index.checked_sub(imported)? as usize));
    let flag = address(flag_function.ok_or("the guest has no function `stop_flag`")?)?;
    let recursive: Vec<bool> = (0..functions.len()).map(|number| calls_itself(&functions, imported, number)).collect();

    let mut code = leb128(functions.len() as u64);
    for (function, is_recursive) in functions.iter().zip(recursive) {
        let at_start = is_recursive && !function.executes_bytecode;
        let body = function.with_checks(module, flag, at_start);
        code.extend(leb128(body.len() as u64));
        code.extend(body);
    }
    with_code_section(module, &code)
}

impl<'a> Function<'a> {
    fn of(body: FunctionBody<'a>) -> Result<Self> {
        let mut operators = body.get_operators_reader()?;
        let start = operators.original_position();
        let (mut loops, mut calls, mut open, mut dispatch) = (Vec::new(), Vec::new(), Vec::new(), None);
        while !operators.eof() {
            match operators.read()? {
                Operator::Loop { .. } => {
                    open.push(Some(loops.len()));
                    loops.push(operators.original_position());
                }
                Operator::Block { .. } | Operator::If { .. } => open.push(None),
                Operator::End => drop(open.pop()),
                Operator::Call { function_index } => calls.push(function_index),
                Operator::BrTable { targets } => {
                    let targets = targets.targets().collect::<std::result::Result<BTreeSet<u32>, _>>()?;
                    if targets.len() >= MIN_INSTRUCTIONS {
                        dispatch = open.iter().rev().find_map(|block| *block);
                    }
                }
                _ => {}
            }
        }
        if let Some(dispatch) = dispatch {
            loops.remove(dispatch);
        }
        Ok(Self { body, start, loops, calls, executes_bytecode: dispatch.is_some() })
    }

    fn with_checks(&self, module: &[u8], flag: u32, at_start: bool) -> Vec<u8> {
        let range = self.body.range();
        let mut bytes = Vec::with_capacity(range.len() + 12 * self.loops.len());
        let mut from = range.start;
        let first = at_start.then_some((self.start, opcode::LOAD_BYTE));
        for (place, load) in first.into_iter().chain(self.loops.iter().map(|place| (*place, opcode::LOAD))) {
            bytes.extend_from_slice(module.get(from..place).unwrap_or_default());
            bytes.extend(check(flag, load));
            from = place;
        }
        bytes.extend_from_slice(module.get(from..range.end).unwrap_or_default());
        bytes
    }
}

/// Returns the instructions of a check. At the beginning of a function it loads a byte, in loops a word: a loop that
/// changes nothing in memory could otherwise use the value that was loaded before it, and never end.
fn check(flag: u32, load: u8) -> Vec<u8> {
    let alignment = if load == opcode::LOAD { 2 } else { 0 };
    let mut bytes = vec![opcode::CONST, 0, load, alignment];
    bytes.extend(leb128(u64::from(flag)));
    bytes.extend([opcode::IF, NO_RESULT, opcode::UNREACHABLE, opcode::END]);
    bytes
}

/// Returns the address that a function returns.
fn address(function: &Function<'_>) -> Result<u32> {
    match function.body.get_operators_reader()?.read()? {
        Operator::I32Const { value } if value > 0 && value % 4 == 0 => Ok(value.unsigned_abs()),
        other => Err(format!("`stop_flag` does not return an address, but begins with {other:?}").into()),
    }
}

fn calls_itself(functions: &[Function<'_>], imported: u32, number: usize) -> bool {
    let mut seen = vec![false; functions.len()];
    let mut left = vec![number];
    while let Some(function) = left.pop().and_then(|next| functions.get(next)) {
        for called in function.calls.iter().filter_map(|index| index.checked_sub(imported)) {
            let called = called as usize;
            if called == number {
                return true;
            }
            if seen.get_mut(called).is_some_and(|seen| !std::mem::replace(seen, true)) {
                left.push(called);
            }
        }
    }
    false
}

/// Returns the module with another code section.
fn with_code_section(module: &[u8], code: &[u8]) -> Result<Vec<u8>> {
    let mut changed = module.get(..8).ok_or("the module has no header")?.to_vec();
    for payload in Parser::new(0).parse_all(module) {
        let Some((id, range)) = payload?.as_section() else { continue };
        let content = if id == CODE_SECTION { code } else { module.get(range).unwrap_or_default() };
        changed.push(id);
        changed.extend(leb128(content.len() as u64));
        changed.extend_from_slice(content);
    }
    Ok(changed)
}

fn leb128(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        bytes.push(low | if number > 0 { 0x80 } else { 0 });
        if number == 0 {
            return bytes;
        }
    }
}
