//! Text of strangers for a person's eyes: nothing in it steers a terminal, hides, or turns letters round.

/// At most so many characters, `…` where more were. What cannot be seen is written as its number.
pub fn plain(text: &str, chars: usize) -> String {
    let mut plain = String::new();
    for letter in text.chars().take(chars) {
        match letter {
            '\n' | ' ' => plain.push(letter),
            '\t' => plain.push(' '),
            _ if letter.is_control() || is_hidden(letter) => {
                plain += &format!("\\u{{{:x}}}", u32::from(letter));
            }
            _ => plain.push(letter),
        }
    }
    if text.chars().nth(chars).is_some() {
        plain.push('…');
    }
    plain
}

/// Zero width, or changing the direction of what follows, or a tag nobody sees.
fn is_hidden(letter: char) -> bool {
    matches!(
        u32::from(letter),
        0xad | 0x61c | 0x180e | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfe00..=0xfe0f | 0xfeff
            | 0xfff9..=0xfffb | 0xe0000..=0xe0fff
    )
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn what_cannot_be_seen_is_shown_and_what_is_long_is_cut() {
        assert_eq!(plain("a\u{1b}[2Jb", 20), "a\\u{1b}[2Jb");
        assert_eq!(plain("pay \u{202e}eno", 20), "pay \\u{202e}eno");
        assert_eq!(plain("a\u{200b}b\nc\td", 20), "a\\u{200b}b\nc d");
        assert_eq!(plain("äöü", 2), "äö…");
    }
}
