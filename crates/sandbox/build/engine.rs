//! QuickJS as we compile it: as it was published, but for the changes that are here.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;

/// What is replaced, by what. Each must be found once, or the version has changed and they must be looked at again.
const CHANGES: [(&str, &str); 1] = [READ_OF_A_PROPERTY];

/// QuickJS notes places of names and calls, and none for `.x`: what reads a property of `undefined` was told to be where
/// the last name or call was, or at the first column of its function.
const READ_OF_A_PROPERTY: (&str, &str) = (
    "\
                    emit_op(s, OP_get_field);
                    emit_atom(s, s->token.u.ident.atom);
                }
            }
            if (next_token(s))
                return -1;
        } else if (s->token.val == '[') {
",
    "\
                    emit_source_loc(s);
                    emit_op(s, OP_get_field);
                    emit_atom(s, s->token.u.ident.atom);
                }
            }
            if (next_token(s))
                return -1;
        } else if (s->token.val == '[') {
",
);

/// The engine's largest file with the changes in it.
pub(crate) fn write(published: &Path, out: &Path) -> Result<PathBuf> {
    let mut text = fs::read_to_string(published)?;
    for (before, after) in CHANGES {
        if text.matches(before).count() != 1 {
            return Err(format!("a change to QuickJS does not fit its version any more: {before}").into());
        }
        text = text.replace(before, after);
    }
    let changed = out.join("quickjs.c");
    fs::write(&changed, text)?;
    Ok(changed)
}
