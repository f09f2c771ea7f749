//! Makes space where there is none: commits, so that freed space becomes free, and places buffered bytes.
//!
//! Hazard: called with nothing locked but operation locks, and without a handle.

use crate::data::writeback;
use crate::error::Result;
use crate::state::Core;
use crate::state::sync::Seen;

/// Runs an operation, and again after a commit if the volume was full but space is pending. The operation
/// must not hold a lock when it returns.
pub(crate) fn retry<T>(core: &Core, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
    let seen = core.seen();
    let result = match operation() {
        Err(error) if core.may_lack_space(&error) && reclaim(core, seen)? => operation(),
        result => result,
    };
    core.relieve()?;
    result
}

/// Commits, so that freed space becomes free, and places buffered bytes, which returns excess claims.
/// Returns whether a retry may succeed: something was pending, or has become free since `seen`.
pub(crate) fn reclaim(core: &Core, seen: Seen) -> Result<bool> {
    let placed = writeback::place_for_space(core);
    if core.state.allocator.counts().pending.is_zero() {
        core.state.discards.wait();
        return Ok(placed || core.seen() != seen);
    }
    core.commit()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpenOptions;
    use crate::error::Error;
    use crate::open::assemble::tests::unformatted;

    #[test]
    fn an_operation_is_tried_again_only_if_space_has_become_free() {
        let core = unformatted(OpenOptions::default());
        let tries = |frees: bool| {
            let mut tries = 0;
            let result: Result<()> = retry(&core, || {
                tries += 1;
                if frees {
                    core.state.discards.with(|| ());
                }
                Err(Error::NoSpace)
            });
            assert!(matches!(result, Err(Error::NoSpace)), "{result:?}");
            tries
        };
        assert_eq!((tries(false), tries(true)), (1, 2));
        let other = retry(&core, || Err::<(), _>(Error::NotFound));
        assert!(matches!(other, Err(Error::NotFound)));
    }
}
