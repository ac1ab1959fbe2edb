//! Skips a token that oxc consumes as an arrow without checking it, so that it has no other meaning.

use super::{Kind, Scanned, Scanner};

impl Scanner<'_> {
    /// Skips the next token as oxc's tokenizer delimits it: a bracket opens and closes nothing, and code follows the
    /// start of a template.
    pub(in crate::source) fn swallow(&mut self) -> Scanned {
        if let Err(unsure) = self.skip_trivia() {
            return Scanned::Unsure(unsure);
        }
        let start = self.position;
        let Some(first) = self.byte(start) else { return Scanned::End };
        let found = match first {
            b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'/' => return self.token(Kind::Arrow, start + 1),
            b'`' => return self.template_start(),
            _ => self.next(),
        };
        match found {
            Scanned::Token(mut token) => {
                token.kind = Kind::Arrow;
                self.previous = Some(token);
                Scanned::Token(token)
            }
            // It is not known what the tokenizer does with an error, and where it continues.
            _ => Scanned::Unsure(start),
        }
    }

    /// Skips a template up to its end or its first substitution.
    fn template_start(&mut self) -> Scanned {
        let mut end = self.position + 1;
        loop {
            match self.byte(end) {
                None => return Scanned::Unsure(self.position),
                Some(b'\\') => end += 2,
                Some(b'`') => return self.token(Kind::Arrow, end + 1),
                Some(b'$') if self.byte(end + 1) == Some(b'{') => return self.token(Kind::Arrow, end + 2),
                Some(_) => end += 1,
            }
        }
    }
}
