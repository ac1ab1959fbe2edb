//! Colour of output: whether a stream gets it, by the usual rules, and the few styles that commands use.

use std::io::IsTerminal;
use std::sync::OnceLock;

use clap::{Args, ValueEnum};
use contract::text;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ColorArguments {
    /// When to use colour. `auto`: on a terminal, unless $NO_COLOR is set or $TERM is `dumb`; $CLICOLOR_FORCE and
    /// $FORCE_COLOR force it.
    #[arg(long = "color", value_enum, value_name = "WHEN", default_value_t = ColorChoice::Auto, global = true,
          hide_default_value = true, hide_possible_values = true)]
    color: ColorChoice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ColorChoice {
    Auto,
    Always,
    Never,
}

/// The environment variables that decide about colour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Environment {
    no_color: Option<String>,
    clicolor: Option<String>,
    clicolor_force: Option<String>,
    force_color: Option<String>,
    term: Option<String>,
}

impl Environment {
    fn here() -> Self {
        let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Self {
            no_color: variable("NO_COLOR"),
            clicolor: variable("CLICOLOR"),
            clicolor_force: variable("CLICOLOR_FORCE"),
            force_color: variable("FORCE_COLOR"),
            term: variable("TERM"),
        }
    }
}

/// Whether a stream gets colour.
fn is_colored(choice: ColorChoice, environment: &Environment, is_terminal: bool) -> bool {
    let is_set = |variable: &Option<String>| variable.as_ref().is_some_and(|value| !value.is_empty());
    let is_on = |variable: &Option<String>| is_set(variable) && variable.as_deref() != Some("0");
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto if is_set(&environment.no_color) => false,
        ColorChoice::Auto if is_on(&environment.clicolor_force) || is_on(&environment.force_color) => true,
        ColorChoice::Auto => {
            let is_off = environment.clicolor.as_deref() == Some("0") || environment.term.as_deref() == Some("dumb");
            is_terminal && !is_off
        }
    }
}

/// Whether standard output and standard error get colour. Without it, neither does.
static COLORED: OnceLock<(bool, bool)> = OnceLock::new();

/// Decides about colour, once for the process.
pub(crate) fn init(arguments: ColorArguments) {
    let environment = Environment::here();
    let colored = |is_terminal| is_colored(arguments.color, &environment, is_terminal);
    // A second initialisation happens in no command.
    COLORED.set((colored(std::io::stdout().is_terminal()), colored(std::io::stderr().is_terminal()))).ok();
}

/// A stream that text is printed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

impl Stream {
    fn is_colored(self) -> bool {
        let (out, err) = COLORED.get().copied().unwrap_or_default();
        match self {
            Self::Out => out,
            Self::Err => err,
        }
    }
}

/// What a piece of text is, which decides how it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Heading,
    Good,
    Bad,
    Warning,
    Dim,
}

impl Style {
    /// Returns the parameters of the escape sequence that switches the style on.
    fn code(self) -> &'static str {
        match self {
            Self::Heading => "1",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Warning => "33",
            Self::Dim => "2",
        }
    }
}

/// Returns the text without characters that could control a terminal, in this style if the stream gets colour.
pub(crate) fn paint(text: &str, style: Style, stream: Stream) -> String {
    painted(&text::plain(text, usize::MAX), style, stream.is_colored())
}

fn painted(safe: &str, style: Style, colored: bool) -> String {
    if colored && !safe.is_empty() { format!("\u{1b}[{}m{safe}\u{1b}[0m", style.code()) } else { safe.to_owned() }
}

/// Paints lines of a diff by their first character. The text must be safe to print.
pub(crate) fn paint_diff(diff: &str, stream: Stream) -> String {
    let safe = text::plain(diff, usize::MAX);
    let line = |line: &str| {
        let style = match line.as_bytes() {
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => Some(Style::Heading),
            [b'+', ..] => Some(Style::Good),
            [b'-', ..] => Some(Style::Bad),
            [b'@', ..] => Some(Style::Dim),
            _ => None,
        };
        let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
        let body = style.map_or_else(|| body.to_owned(), |style| painted(body, style, stream.is_colored()));
        format!("{body}{end}")
    };
    safe.split_inclusive('\n').map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::{ColorChoice, Environment, Style, is_colored, painted};

    #[test]
    fn colour_follows_the_usual_rules() {
        let set = |value: &str| Some(value.to_owned());
        let plain = Environment::default();
        let no_color = Environment { no_color: set("1"), ..plain.clone() };
        let forced = Environment { clicolor_force: set("1"), ..plain.clone() };
        let dumb = Environment { term: set("dumb"), ..plain.clone() };
        let cases = [
            (ColorChoice::Auto, plain.clone(), true, true),
            (ColorChoice::Auto, plain.clone(), false, false),
            (ColorChoice::Always, no_color.clone(), false, true),
            (ColorChoice::Never, forced.clone(), true, false),
            (ColorChoice::Auto, no_color.clone(), true, false),
            // An empty $NO_COLOR counts as not set.
            (ColorChoice::Auto, Environment { no_color: set(""), ..plain.clone() }, true, true),
            (ColorChoice::Auto, forced.clone(), false, true),
            (ColorChoice::Auto, Environment { force_color: set("3"), ..plain.clone() }, false, true),
            (ColorChoice::Auto, Environment { force_color: set("0"), ..plain.clone() }, false, false),
            (ColorChoice::Auto, Environment { no_color: set("1"), ..forced }, true, false),
            (ColorChoice::Auto, Environment { clicolor: set("0"), ..plain }, true, false),
            (ColorChoice::Auto, dumb, true, false),
        ];
        for (choice, environment, is_terminal, expected) in cases {
            assert_eq!(is_colored(choice, &environment, is_terminal), expected, "{choice:?} {environment:?}");
        }
    }

    #[test]
    fn text_is_painted_only_if_the_stream_gets_colour() {
        assert_eq!(painted("ok", Style::Good, true), "\u{1b}[32mok\u{1b}[0m");
        assert_eq!(painted("ok", Style::Good, false), "ok");
        assert_eq!(painted("", Style::Good, true), "");
    }
}
