//! Which volumes may be written.

use crate::error::{Error, Result};
use crate::options::OpenOptions;
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::superblock::{STATE_ERROR, STATE_VALID, SuperBlock};

/// Returns an error, by name, for writing to a volume whose state does not allow it. A journal to be replayed
/// first is no reason.
pub(crate) fn check_writable(sb: &SuperBlock, options: &OpenOptions) -> Result<()> {
    let mut features = *sb.features();
    features.incompat.remove(Incompat::RECOVER);
    features.check_write()?;
    let refuse = |what: &str| Err(Error::NeedsRepair(what.to_owned()));
    if sb.state() & STATE_ERROR != 0 && !options.with_errors {
        return refuse("the volume is marked as having errors");
    }
    if let Some(fault) = sb.faults().into_iter().next().or_else(|| sb.extra_isize_fault()) {
        return refuse(&format!("the superblock is broken, {fault}"));
    }
    if sb.has_stray_journal_device() {
        return refuse("the superblock is broken, it names a journal inside and one outside");
    }
    // Without a journal, "not clean" means that an earlier writer was interrupted. With one it means nothing.
    if sb.state() & STATE_VALID == 0 && !sb.features().compat.contains(Compat::HAS_JOURNAL) {
        return refuse("the volume was not cleanly closed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::assemble::tests::planned;

    #[test]
    fn a_volume_with_errors_is_refused_and_an_unclean_one_without_a_journal() {
        let opened = |state, with_errors| {
            let mut sb = planned();
            sb.set_state(state);
            let options = OpenOptions { with_errors, ..OpenOptions::default() };
            check_writable(&sb, &options).map_err(|error| error.to_string())
        };
        let with_state = |state| opened(state, false);
        assert_eq!((with_state(STATE_VALID), with_state(0)), (Ok(()), Ok(())), "it has a journal");
        let refused = with_state(STATE_VALID | STATE_ERROR).expect_err("it has errors");
        assert!(refused.contains("e2fsck -fy"), "{refused}");
        assert_eq!(opened(STATE_VALID | STATE_ERROR, true), Ok(()), "a repair mends them");
    }
}
