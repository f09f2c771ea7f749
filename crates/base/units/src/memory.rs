//! Vectors whose length an image decides: memory is requested, and a refusal is an error.
//!
//! What is read from disk is bounded where it is parsed, but a bound can be large (a volume of exabytes has
//! tables of gigabytes), and the system or a limit may refuse. The standard library would then abort the
//! process.
//!
//! Hazard: a system that overcommits grants memory it does not have. Only a limit (`RLIMIT_DATA`) makes the
//! refusal certain.

use std::fmt;

/// The system refused memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfMemory {
    /// Bytes that were asked for at once.
    pub bytes: u64,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this needs {} MiB of memory at once, which the system refuses",
            self.bytes.div_ceil(1 << 20)
        )
    }
}

impl std::error::Error for OutOfMemory {}

/// Makes room for `more` items.
///
/// # Errors
/// [`OutOfMemory`] if there is none.
pub fn reserve<T>(items: &mut Vec<T>, more: usize) -> Result<(), OutOfMemory> {
    // A vector that grows asks for twice as much as it had, if that is more.
    let count = items.len().saturating_add(more).max(items.capacity().saturating_mul(2));
    let bytes = crate::u64_of(count.saturating_mul(size_of::<T>()));
    items.try_reserve(more).map_err(|_| OutOfMemory { bytes })
}

/// `count` copies of an item.
///
/// # Errors
/// [`OutOfMemory`] if there is no room for them.
pub fn filled<T: Clone>(item: T, count: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut items = Vec::new();
    let bytes = crate::u64_of(count.saturating_mul(size_of::<T>()));
    items.try_reserve_exact(count).map_err(|_| OutOfMemory { bytes })?;
    items.resize(count, item);
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_is_an_error_that_says_how_much() {
        assert_eq!(filled(7_u16, 3), Ok(vec![7; 3]));
        let refused = filled(0_u64, 1 << 59).unwrap_err();
        assert_eq!(refused.bytes, 1 << 62);
        assert!(refused.to_string().starts_with("this needs 4398046511104 MiB of memory at once"));
        let mut items = vec![1_u8; 10];
        assert_eq!(reserve(&mut items, 5), Ok(()));
        assert_eq!(reserve(&mut items, 1 << 62), Err(OutOfMemory { bytes: (1 << 62) + 10 }));
    }
}
