//! The QuickJS source as published, with the changes listed here.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;

/// Replacements, as pairs of old and new text. Each old text must occur exactly once; otherwise the version has changed
/// and the replacements need a review.
const CHANGES: [(&str, &str); 1] = [READ_OF_A_PROPERTY];

/// QuickJS records positions of names and calls, but not of `.x`: reading a property of `undefined` was reported at the
/// last name or call, or at the first column of its function.
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

/// Writes the engine's largest file with the changes applied.
pub(crate) fn write(published: &Path, out: &Path) -> Result<PathBuf> {
    let mut text = fs::read_to_string(published)?;
    for (before, after) in CHANGES {
        if text.matches(before).count() != 1 {
            return Err(format!("a change to QuickJS no longer applies to its version: {before}").into());
        }
        text = text.replace(before, after);
    }
    let changed = out.join("quickjs.c");
    fs::write(&changed, text)?;
    Ok(changed)
}
