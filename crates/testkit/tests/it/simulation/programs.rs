//! Random cells: calls of every kind, in groups, with timers and yields between them.

use super::super::faults::program::{Chance, VALUE_FUNCTIONS};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Answers after a delay.
    Slow,
    /// Takes effect and then reports a failure.
    Fails,
    Read,
    Keyed,
    Task,
    Pick,
    Ask,
}

impl Kind {
    pub(super) const ALL: [Self; 7] =
        [Self::Slow, Self::Fails, Self::Read, Self::Keyed, Self::Task, Self::Pick, Self::Ask];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Fails => "fails",
            Self::Read => "read",
            Self::Keyed => "keyed",
            Self::Task => "task",
            Self::Pick => "pick",
            Self::Ask => "ask",
        }
    }

    pub(super) fn tool(self) -> String {
        let source = if self == Self::Pick { "client" } else { "openclaw" };
        format!("{source}:sim:{}", self.name())
    }

    /// Whether its tool may be called again for the same call.
    pub(super) fn may_be_repeated(self) -> bool {
        matches!(self, Self::Read | Self::Keyed)
    }

    /// Whether its outcome comes from outside.
    pub(super) fn is_settled_externally(self) -> bool {
        matches!(self, Self::Task | Self::Pick)
    }
}

/// A cell and its calls. Each call has its index in the input, as `n`.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub code: String,
    pub calls: Vec<Kind>,
    /// The texts that the cell adds to the session's list `log`. The last one is also stored under the cell's own key.
    pub tokens: Vec<String>,
}

impl Program {
    /// Creates the program of the cell with this name, which is the key of its own session value.
    pub(super) fn new(chance: &mut Chance, name: &str) -> Self {
        let count = 1 + chance.below(5);
        let calls: Vec<Kind> = (0..count).map(|_| Kind::ALL[chance.below(Kind::ALL.len())]).collect();
        let mut code = "const got = {}\n\
             const make = (n, id, input) => tools.call(id, { n, ...input })\n\
               .then(value => { got[n] = { value } }, error => { got[n] = { error: error.message } })\n"
            .to_owned();
        code += VALUE_FUNCTIONS;
        let (mut at, mut tokens) = (0, Vec::new());
        while at < calls.len() {
            if chance.below(2) == 0 {
                let token = format!("{name}:{at}");
                code += &format!("await add('log', '{token}'); await put('{name}', '{token}')\n");
                tokens.push(token);
            }
            if chance.below(4) == 0 {
                code += "await yield_control()\n";
            }
            if chance.below(6) == 0 {
                code += &format!("await new Promise(go => setTimeout(go, {}))\n", chance.below(400));
            }
            let group = (1 + chance.below(3)).min(calls.len() - at);
            let made = calls[at..at + group].iter().zip(at..).map(|(kind, n)| {
                let ms = [0, 0, 5, 40, 300, 4000][chance.below(6)];
                format!("make({n}, '{}', {{ ms: {ms} }})", kind.tool())
            });
            let made: Vec<String> = made.collect();
            code += &format!("await Promise.all([{}])\n", made.join(", "));
            at += group;
        }
        code += "return got";
        Self { code, calls, tokens }
    }
}
