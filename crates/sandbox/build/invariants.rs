//! Checks on the module what snapshots rely on: linear memory is the whole state. And what deadlines rely on: every loop
//! but one checks the stop flag.

use wasmparser::{Operator, OperatorsReader, Parser, Payload};

use crate::Result;

const IMPORTS: [&str; 5] = ["call", "lookup", "output", "take", "url"];

pub(crate) fn check(module: &[u8]) -> Result<()> {
    let mut imports = Vec::new();
    let mut mutable_globals = 0;
    let mut unchecked_loops = 0;
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import?;
                    imports.push(format!("{}.{}", import.module, import.name));
                }
            }
            Payload::GlobalSection(section) => {
                for global in section {
                    mutable_globals += usize::from(global?.ty.mutable);
                }
            }
            Payload::CodeSectionEntry(body) => {
                let mut operators = body.get_operators_reader()?;
                while !operators.eof() {
                    let operator = operators.read()?;
                    refuse_table_mutation(&operator)?;
                    if matches!(operator, Operator::Loop { .. }) {
                        unchecked_loops += usize::from(!begins_with_check(operators.clone())?);
                    }
                }
            }
            _ => {}
        }
    }
    imports.sort();
    let expected = IMPORTS.map(|name| format!("cellmate.{name}"));
    if imports != expected {
        return Err(format!("the guest imports {imports:?}, but may only import {expected:?}").into());
    }
    if mutable_globals != 1 {
        return Err(
            format!("the guest has {mutable_globals} mutable globals, only the stack pointer may be one").into()
        );
    }
    if unchecked_loops != 1 {
        return Err(format!(
            "{unchecked_loops} loops of the guest cannot be stopped, only one may be: see stop_checks.rs"
        )
        .into());
    }
    Ok(())
}

fn begins_with_check(mut operators: OperatorsReader<'_>) -> Result<bool> {
    Ok(matches!(operators.read()?, Operator::I32Const { value: 0 })
        && matches!(operators.read()?, Operator::I32Load { .. })
        && matches!(operators.read()?, Operator::If { .. })
        && matches!(operators.read()?, Operator::Unreachable))
}

fn refuse_table_mutation(operator: &Operator<'_>) -> Result<()> {
    match operator {
        Operator::TableSet { .. }
        | Operator::TableGrow { .. }
        | Operator::TableFill { .. }
        | Operator::TableCopy { .. }
        | Operator::TableInit { .. } => Err("the guest changes a table, which snapshots do not contain".into()),
        _ => Ok(()),
    }
}
