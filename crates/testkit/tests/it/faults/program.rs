//! Random cells: calls of every kind, in groups, with yields between them.

/// A pseudo-random number generator that gives the same numbers for the same seed.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Slow,
    Read,
    Keyed,
    Task,
    Pick,
    Ask,
}

impl Kind {
    const ALL: [Self; 6] = [Self::Slow, Self::Read, Self::Keyed, Self::Task, Self::Pick, Self::Ask];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Read => "read",
            Self::Keyed => "keyed",
            Self::Task => "task",
            Self::Pick => "pick",
            Self::Ask => "ask",
        }
    }

    /// Whether its tool may be called again for the same call.
    pub(crate) fn may_be_repeated(self) -> bool {
        matches!(self, Self::Read | Self::Keyed)
    }

    /// Whether its outcome comes from outside.
    pub(crate) fn is_settled_externally(self) -> bool {
        matches!(self, Self::Task | Self::Pick)
    }

    fn tool(self) -> String {
        let source = if self == Self::Pick { "client" } else { "openclaw" };
        format!("{source}:ledger:{}", self.name())
    }
}

/// A cell and its calls. Each call has its index in the input, as `n`.
#[derive(Debug)]
pub(crate) struct Program {
    pub code: String,
    pub calls: Vec<Kind>,
    /// The texts that the cell adds to the session value `log` with conditional writes. The last one is also stored
    /// under `last`, without a condition.
    pub tokens: Vec<String>,
}

/// Functions for cells that use session values. `add` adds a text to the list `log`, and `put` stores a value and loads it
/// without waiting in between.
pub(crate) const VALUE_FUNCTIONS: &str = r#"
    const add = async (key, token) => {
      for (let tries = 0; tries < 100; tries++) {
        const now = await load(key, { version: true })
        const log = [...(now ? now.value : []), token]
        try {
          return await store(key, log, { ifVersion: now ? now.version : null })
        } catch (error) {
          if (error.code !== 'version_conflict') throw error
        }
      }
      throw new Error('the version always differs')
    }
    const put = async (key, value) => {
      const [stored, loaded] = await Promise.all([store(key, value), load(key, { version: true })])
      if (loaded.value !== value || loaded.version !== stored.version) {
        throw new Error(`stored ${value}, ${stored.version}; loaded ${loaded.value}, ${loaded.version}`)
      }
    }
"#;

impl Program {
    pub(crate) fn new(chance: &mut Chance) -> Self {
        let mut calls = Kind::ALL.to_vec();
        for _ in 0..chance.below(3) {
            calls.push(Kind::ALL[chance.below(Kind::ALL.len())]);
        }
        for place in (1..calls.len()).rev() {
            calls.swap(place, chance.below(place + 1));
        }
        let mut code = r#"
            const got = {}
            const make = (n, id, input) => tools.call(id, { n, ...input })
              .then(value => { got[n] = { value } }, error => { got[n] = { error: error.message } })
        "#
        .to_owned();
        code += VALUE_FUNCTIONS;
        let (mut at, mut yielded, mut tokens) = (0, false, Vec::new());
        while at < calls.len() {
            let token = format!("t{at}");
            code += &format!("await add('log', '{token}'); await put('last', '{token}')\n");
            tokens.push(token);
            let group = (1 + chance.below(4)).min(calls.len() - at);
            // A pending task blocks `exec` until its time limit; the limit of `wait` is shorter.
            if !yielded && calls[at..at + group].contains(&Kind::Task) {
                code += "await yield_control()\n";
                yielded = true;
            }
            let made = calls[at..at + group]
                .iter()
                .zip(at..)
                .map(|(kind, n)| format!("make({n}, '{}', {{ ms: {} }})", kind.tool(), chance.below(12)));
            let made: Vec<String> = made.collect();
            code += &format!("await Promise.all([{}])\n", made.join(", "));
            if chance.below(3) == 0 {
                code += "await yield_control()\n";
                yielded = true;
            }
            at += group;
        }
        code += "return got";
        Self { code, calls, tokens }
    }
}
