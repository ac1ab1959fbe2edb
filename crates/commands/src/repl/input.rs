//! Where cells come from: a prompt with line editing on a terminal, or the lines of standard input.
//!
//! A thread of its own reads, and only when asked: between two reads the terminal belongs to the questions of approvals.

use std::io::{self, BufRead, IsTerminal, Read};
use std::sync::{Arc, mpsc};
use std::thread;

use contract::limits::MAX_SOURCE_BYTES;
use parking_lot::Mutex;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{ColorMode, CompletionType, Config, Context, Editor, Helper};
use sandbox::TypedCell;
use tokio::sync::oneshot;

use super::complete::Names;
use super::dot;
use super::history::HistoryFile;
use crate::render;

const PROMPT: &str = "> ";

/// What was read.
#[derive(Debug)]
pub(super) enum ReplInput {
    /// A cell or a dot command.
    Text(String),
    /// Ctrl-C at the prompt.
    Interrupted,
    /// Ctrl-D at the prompt, or the end of standard input.
    End,
    Failed(String),
}

/// The thread that reads.
#[derive(Debug)]
pub(super) struct Input {
    requests: mpsc::Sender<oneshot::Sender<ReplInput>>,
}

/// Whether there is a person to prompt: standard input and output are terminals.
pub(super) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

impl Input {
    /// Starts to read. A prompt completes the names, which may change while it is used.
    pub(super) fn start(names: Arc<Mutex<Names>>, history: HistoryFile) -> io::Result<Self> {
        let (requests, asked) = mpsc::channel::<oneshot::Sender<ReplInput>>();
        let mut source = if is_interactive() {
            Source::Prompt(Box::new(Prompt::new(names, history).map_err(io::Error::other)?))
        } else {
            Source::Lines
        };
        thread::Builder::new().name("repl-input".to_owned()).spawn(move || {
            for answer in asked {
                // Sending fails only if the command has ended.
                drop(answer.send(source.next()));
            }
        })?;
        Ok(Self { requests })
    }

    pub(super) async fn next(&self) -> ReplInput {
        let (answer, typed) = oneshot::channel();
        if self.requests.send(answer).is_err() {
            return ReplInput::End;
        }
        typed.await.unwrap_or(ReplInput::End)
    }
}

enum Source {
    Prompt(Box<Prompt>),
    Lines,
}

impl Source {
    fn next(&mut self) -> ReplInput {
        match self {
            Self::Prompt(prompt) => prompt.next(),
            Self::Lines => match next_cell(&mut io::stdin().lock()) {
                Ok(Some(text)) => ReplInput::Text(text),
                Ok(None) => ReplInput::End,
                Err(error) => ReplInput::Failed(format!("cannot read standard input: {error}")),
            },
        }
    }
}

/// Reads lines up to the end of a cell or a dot command, as a prompt would. Blank lines between cells are skipped.
fn next_cell(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut text = String::new();
    loop {
        let read = from.take(MAX_SOURCE_BYTES as u64 + 1).read_line(&mut text)?;
        if text.len() > MAX_SOURCE_BYTES {
            return Err(io::Error::other(format!("a cell has more than {MAX_SOURCE_BYTES} bytes")));
        }
        if read == 0 {
            return Ok((!text.trim().is_empty()).then_some(text));
        }
        if text.trim().is_empty() {
            text.clear();
        } else if is_whole(&text) {
            return Ok(Some(text));
        }
    }
}

/// Whether a typed text is to be run, also if that only shows what is wrong with it.
fn is_whole(text: &str) -> bool {
    text.trim().is_empty() || dot::parse(text).is_some() || TypedCell::judge(text) != TypedCell::Unfinished
}

/// A prompt with line editing.
struct Prompt {
    editor: Editor<PromptHelper, MemHistory>,
    history: HistoryFile,
}

impl Prompt {
    fn new(names: Arc<Mutex<Names>>, history: HistoryFile) -> rustyline::Result<Self> {
        // The prompt has no colour, so nothing has to be decided about it.
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .color_mode(ColorMode::Disabled)
            .history_ignore_space(true)
            .build();
        let entries = MemHistory::with_config(&config);
        let mut editor = Editor::with_history(config, entries)?;
        editor.set_helper(Some(PromptHelper { names }));
        match history.load() {
            Ok(entries) => {
                for entry in entries {
                    editor.add_history_entry(entry)?;
                }
            }
            Err(error) => render::note(&format!("cellmate: cannot read the history of prompts: {error}")),
        }
        Ok(Self { editor, history })
    }

    fn next(&mut self) -> ReplInput {
        loop {
            return match self.editor.readline(PROMPT) {
                Ok(text) if text.trim().is_empty() => continue,
                Ok(text) => {
                    // A text that begins with a blank is not kept, as in shells.
                    if self.editor.add_history_entry(text.as_str()).unwrap_or(false)
                        && let Err(error) = self.history.add(&text)
                    {
                        tracing::warn!(%error, "cannot write the history of prompts");
                    }
                    ReplInput::Text(text)
                }
                Err(ReadlineError::Interrupted) => ReplInput::Interrupted,
                Err(ReadlineError::Eof) => ReplInput::End,
                // The size of the terminal changed.
                Err(ReadlineError::Signal(_)) => continue,
                Err(error) => ReplInput::Failed(format!("cannot read from the terminal: {error}")),
            };
        }
    }
}

struct PromptHelper {
    names: Arc<Mutex<Names>>,
}

impl Completer for PromptHelper {
    type Candidate = String;

    fn complete(&self, line: &str, cursor: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.names.lock().complete(line, cursor))
    }
}

impl Validator for PromptHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if is_whole(context.input()) { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Hinter for PromptHelper {
    type Hint = String;
}

impl Highlighter for PromptHelper {}

impl Helper for PromptHelper {}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use contract::limits::MAX_SOURCE_BYTES;

    use super::next_cell;

    fn cells(text: &str) -> Vec<String> {
        let mut from = BufReader::new(text.as_bytes());
        std::iter::from_fn(|| next_cell(&mut from).unwrap()).collect()
    }

    #[test]
    fn a_cell_is_a_line_and_continues_while_brackets_are_open() {
        let text = "1 + 1\n\n  \nf(\n\n  2)\n.tools x\n`a\nb`\nconst a =\n  1";
        assert_eq!(cells(text), ["1 + 1\n", "f(\n\n  2)\n", ".tools x\n", "`a\nb`\n", "const a =\n  1"]);
        assert_eq!(cells("f("), ["f("], "what is unfinished at the end is run, and fails");
        assert_eq!(cells(" \n\n"), Vec::<String>::new());
    }

    #[test]
    fn a_cell_that_is_too_long_is_not_cut() {
        let long = format!("`{}`", "x".repeat(MAX_SOURCE_BYTES));
        for text in [long.clone(), format!("[\n{long}]\n")] {
            assert!(next_cell(&mut BufReader::new(text.as_bytes())).is_err());
        }
    }
}
