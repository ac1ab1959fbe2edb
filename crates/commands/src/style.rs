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

/// Whether text is printed in colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Coloring {
    #[default]
    Plain,
    Colored,
}

/// What a stream is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamTarget {
    Terminal,
    /// A file, a pipe or another program.
    Other,
}

impl StreamTarget {
    fn of(stream: &impl IsTerminal) -> Self {
        if stream.is_terminal() { Self::Terminal } else { Self::Other }
    }
}

/// Decides whether a stream gets colour.
fn coloring(choice: ColorChoice, environment: &Environment, target: StreamTarget) -> Coloring {
    let is_set = |variable: &Option<String>| variable.as_ref().is_some_and(|value| !value.is_empty());
    let is_on = |variable: &Option<String>| is_set(variable) && variable.as_deref() != Some("0");
    let is_off = environment.clicolor.as_deref() == Some("0") || environment.term.as_deref() == Some("dumb");
    match (choice, target) {
        (ColorChoice::Always, _) => Coloring::Colored,
        (ColorChoice::Never, _) => Coloring::Plain,
        (ColorChoice::Auto, _) if is_set(&environment.no_color) => Coloring::Plain,
        (ColorChoice::Auto, _) if is_on(&environment.clicolor_force) || is_on(&environment.force_color) => {
            Coloring::Colored
        }
        (ColorChoice::Auto, StreamTarget::Terminal) if !is_off => Coloring::Colored,
        (ColorChoice::Auto, _) => Coloring::Plain,
    }
}

/// The colouring of standard output and of standard error. Until it is set, both are plain.
static COLORING: OnceLock<(Coloring, Coloring)> = OnceLock::new();

/// Decides about colour, once for the process.
pub(crate) fn init(arguments: ColorArguments) {
    let environment = Environment::here();
    let coloring = |target| coloring(arguments.color, &environment, target);
    let both = (coloring(StreamTarget::of(&std::io::stdout())), coloring(StreamTarget::of(&std::io::stderr())));
    // A second initialisation happens in no command.
    COLORING.set(both).ok();
}

/// A stream that text is printed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

impl Stream {
    fn coloring(self) -> Coloring {
        let (out, err) = COLORING.get().copied().unwrap_or_default();
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
    painted(&text::plain(text, usize::MAX), style, stream.coloring())
}

fn painted(safe: &str, style: Style, coloring: Coloring) -> String {
    match coloring {
        Coloring::Colored if !safe.is_empty() => format!("\u{1b}[{}m{safe}\u{1b}[0m", style.code()),
        Coloring::Colored | Coloring::Plain => safe.to_owned(),
    }
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
        let body = style.map_or_else(|| body.to_owned(), |style| painted(body, style, stream.coloring()));
        format!("{body}{end}")
    };
    safe.split_inclusive('\n').map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::Coloring::{Colored, Plain};
    use super::StreamTarget::{Other, Terminal};
    use super::{ColorChoice, Environment, Style, coloring, painted};

    #[test]
    fn colour_follows_the_usual_rules() {
        let set = |value: &str| Some(value.to_owned());
        let plain = Environment::default();
        let no_color = Environment { no_color: set("1"), ..plain.clone() };
        let forced = Environment { clicolor_force: set("1"), ..plain.clone() };
        let dumb = Environment { term: set("dumb"), ..plain.clone() };
        let cases = [
            (ColorChoice::Auto, plain.clone(), Terminal, Colored),
            (ColorChoice::Auto, plain.clone(), Other, Plain),
            (ColorChoice::Always, no_color.clone(), Other, Colored),
            (ColorChoice::Never, forced.clone(), Terminal, Plain),
            (ColorChoice::Auto, no_color.clone(), Terminal, Plain),
            // An empty $NO_COLOR counts as not set.
            (ColorChoice::Auto, Environment { no_color: set(""), ..plain.clone() }, Terminal, Colored),
            (ColorChoice::Auto, forced.clone(), Other, Colored),
            (ColorChoice::Auto, Environment { force_color: set("3"), ..plain.clone() }, Other, Colored),
            (ColorChoice::Auto, Environment { force_color: set("0"), ..plain.clone() }, Other, Plain),
            (ColorChoice::Auto, Environment { no_color: set("1"), ..forced }, Terminal, Plain),
            (ColorChoice::Auto, Environment { clicolor: set("0"), ..plain }, Terminal, Plain),
            (ColorChoice::Auto, dumb, Terminal, Plain),
        ];
        for (choice, environment, target, expected) in cases {
            assert_eq!(coloring(choice, &environment, target), expected, "{choice:?} {environment:?}");
        }
    }

    #[test]
    fn text_is_painted_only_if_the_stream_gets_colour() {
        assert_eq!(painted("ok", Style::Good, Colored), "\u{1b}[32mok\u{1b}[0m");
        assert_eq!(painted("ok", Style::Good, Plain), "ok");
        assert_eq!(painted("", Style::Good, Colored), "");
    }
}
