//! Random ids and jitter.

use wire::Wire;

/// The letters of ids. Providers and clients accept them in every place.
const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// The letters of an id without its prefix: more than 120 bits.
const ID_LETTERS: usize = 24;

/// Returns an unguessable text for an id.
pub(crate) fn id() -> Result<String, getrandom::Error> {
    let mut text = String::with_capacity(ID_LETTERS);
    let mut random = [0; 64];
    while text.len() < ID_LETTERS {
        executor::fill_random(&mut random)?;
        // Values above the last multiple of 36 would make some letters more likely.
        let letters = random.iter().filter(|byte| **byte < 252).filter_map(|byte| LETTERS.get(usize::from(byte % 36)));
        text.extend(letters.take(ID_LETTERS - text.len()).map(|letter| char::from(*letter)));
    }
    Ok(text)
}

/// Returns the id of a call that a client is asked to make.
pub(crate) fn call_id(wire: Wire) -> Result<String, getrandom::Error> {
    let prefix = match wire {
        Wire::Chat | Wire::Responses => "call_",
        Wire::Messages => "toolu_",
    };
    Ok(format!("{prefix}{}", id()?))
}

/// Returns a number from 0 to 1 for the pause before a repeated request.
pub(crate) fn jitter() -> f64 {
    let mut random = [0; 2];
    match executor::fill_random(&mut random) {
        Ok(()) => f64::from(u16::from_le_bytes(random)) / f64::from(u16::MAX),
        Err(_) => 0.5,
    }
}

#[cfg(test)]
mod tests {
    use wire::Wire;

    use super::{call_id, id, jitter};

    #[test]
    fn ids_are_short_and_differ() {
        let (one, two) = (call_id(Wire::Messages).unwrap(), call_id(Wire::Chat).unwrap());
        assert!(one.starts_with("toolu_") && two.starts_with("call_") && one.len() <= 30 && two.len() <= 30);
        assert_ne!(id().unwrap(), id().unwrap());
        assert!(id().unwrap().bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
        assert!((0.0..=1.0).contains(&jitter()));
    }
}
