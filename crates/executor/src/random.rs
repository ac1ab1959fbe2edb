//! Random bytes and unguessable names.

/// Fills the buffer with random bytes, from the system or from a simulation.
pub fn fill(random: &mut [u8]) -> Result<(), getrandom::Error> {
    if fault::fill_random(random) { Ok(()) } else { getrandom::fill(random) }
}

/// Returns 128 random bits as hex.
pub fn random_name() -> Result<String, getrandom::Error> {
    let mut random = [0; 16];
    fill(&mut random)?;
    Ok(random.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
}
