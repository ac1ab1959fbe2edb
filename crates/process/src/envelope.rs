//! Determines the kind of a JSON-RPC message without parsing it.

use serde_json::Value;

/// The parts of a JSON-RPC message that determine its recipient. Each is the text of a JSON value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    id: Option<&'a [u8]>,
    method: Option<&'a [u8]>,
}

/// The maximum length of an id, which is a number or a short string.
const MAX_ID_BYTES: usize = 1 << 10;

impl<'a> Envelope<'a> {
    /// Scans the keys of the outermost object in linear time, without recursion or allocation. Returns `None` if the
    /// text is not an object; it does not check that the inner JSON is valid. If a key occurs twice, the last one
    /// counts, as in the parser.
    pub fn scan(text: &'a [u8]) -> Option<Self> {
        let mut scanner = Scanner { text, at: 0 };
        let mut found = Self::default();
        scanner.skip_blanks();
        scanner.expect(b'{')?;
        scanner.skip_blanks();
        if scanner.peek() == Some(b'}') {
            return Some(found);
        }
        loop {
            scanner.skip_blanks();
            let key = scanner.string()?;
            scanner.skip_blanks();
            scanner.expect(b':')?;
            scanner.skip_blanks();
            let value = scanner.value()?;
            match key {
                br#""id""# => found.id = Some(value),
                br#""method""# => found.method = Some(value),
                _ => {}
            }
            scanner.skip_blanks();
            match scanner.next()? {
                b',' => {}
                b'}' => return Some(found),
                _ => return None,
            }
        }
    }

    pub fn has_method(&self) -> bool {
        self.method.is_some()
    }

    pub fn is_method(&self, name: &str) -> bool {
        let quoted = self.method.and_then(|method| method.strip_prefix(b"\"")?.strip_suffix(b"\""));
        quoted == Some(name.as_bytes())
    }

    /// Returns the id, or `None` if it is missing, `null`, or not a number or short string.
    pub fn id(&self) -> Option<Value> {
        let id = self.id.filter(|id| id.len() <= MAX_ID_BYTES)?;
        let id: Value = serde_json::from_slice(id).ok()?;
        (id.is_string() || id.is_number()).then_some(id)
    }

    /// Returns true if the message has an id, even an invalid one.
    pub fn has_id(&self) -> bool {
        self.id.is_some_and(|id| id != b"null")
    }

    /// Returns the id of the request that this message answers. Request ids are numbers, but some servers return them
    /// as strings.
    pub fn response_id(&self) -> Option<i64> {
        if self.has_method() {
            return None;
        }
        response_id(&self.id()?)
    }
}

/// See [`Envelope::response_id`].
pub fn response_id(id: &Value) -> Option<i64> {
    id.as_i64().or_else(|| id.as_str().and_then(|text| text.parse().ok()))
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        (self.next()? == wanted).then_some(())
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Scans a string, including its quotation marks.
    fn string(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        self.expect(b'"')?;
        loop {
            match self.next()? {
                b'"' => return self.text.get(start..self.at),
                b'\\' => {
                    self.next()?;
                }
                _ => {}
            }
        }
    }

    fn value(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        match self.peek()? {
            b'"' => return self.string(),
            b'{' | b'[' => self.nested()?,
            _ => {
                while self.peek().is_some_and(|byte| !matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r'))
                {
                    self.at += 1;
                }
            }
        }
        self.text.get(start..self.at)
    }

    /// Skips to the end of the array or object that starts here.
    fn nested(&mut self) -> Option<()> {
        let mut open = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => open += 1,
                b'}' | b']' => open -= 1,
                _ => {}
            }
            self.at += 1;
            if open == 0 {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Envelope;

    #[test]
    fn a_scan_finds_what_the_parser_finds() {
        let texts = [
            r#"{}"#,
            r#" { "id" : 7 , "result" : {"id": 1, "method": "x"} } "#,
            r#"{"jsonrpc":"2.0","method":"ping","id":"a\"b"}"#,
            r#"{"result":{"a":"}{]["},"id":-3}"#,
            r#"{"id":1,"id":2,"result":[[],{}]}"#,
            r#"{"id":null,"method":"notifications/message"}"#,
            r#"{"method":"m","params":{"text":"\\\"}"},"id":"9"}"#,
        ];
        for text in texts {
            let found = Envelope::scan(text.as_bytes()).unwrap();
            let parsed: Value = serde_json::from_str(text).unwrap();
            assert_eq!(found.has_method(), parsed.get("method").is_some(), "{text}");
            assert_eq!(found.id().unwrap_or_default(), parsed["id"], "{text}");
            let method = parsed["method"].as_str().unwrap_or("no method");
            assert_eq!(found.is_method(method), found.has_method(), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_not_an_object_has_no_envelope_and_invalid_ids_are_none() {
        for text in
            ["", "7", "[1]", "hello", "{", "{\"id\"", "{\"id\":", "{\"id\":1", "{id:1}", "{\"a\":[1}", "{\"id\":1]"]
        {
            let scanned = Envelope::scan(text.as_bytes());
            assert!(scanned.is_none(), "{text} {scanned:?}");
        }
        let id = |text: &str| Envelope::scan(text.as_bytes()).unwrap().response_id();
        assert_eq!(id(r#"{"id":"12","result":1}"#), Some(12));
        for text in
            [r#"{"id":[1]}"#, r#"{"id":1e300}"#, r#"{"id":null}"#, r#"{"\u0069d":1}"#, r#"{"id":1,"method":"a"}"#]
        {
            assert_eq!(id(text), None, "{text}");
        }
        let long = json!({"id": "1".repeat(2_000)}).to_string();
        assert_eq!(Envelope::scan(long.as_bytes()).unwrap().id(), None);
    }
}
