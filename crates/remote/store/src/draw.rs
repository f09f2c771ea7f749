//! Random numbers that name sessions, logs and contents: each is drawn once.

/// A random number that none had before.
pub(crate) fn draw() -> u64 {
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    high ^ low.rotate_left(32)
}
