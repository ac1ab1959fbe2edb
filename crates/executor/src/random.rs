//! Names nobody can guess.

/// A simulation has its own chance.
pub fn fill(random: &mut [u8]) -> Result<(), getrandom::Error> {
    if fault::fill_random(random) { Ok(()) } else { getrandom::fill(random) }
}

/// 128 random bits, in hex.
pub fn random_name() -> Result<String, getrandom::Error> {
    let mut random = [0; 16];
    fill(&mut random)?;
    Ok(random.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
}
