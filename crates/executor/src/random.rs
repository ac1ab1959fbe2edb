//! Names nobody can guess.

/// 128 random bits, in hex.
pub fn random_name() -> Result<String, getrandom::Error> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)?;
    Ok(random.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
}
