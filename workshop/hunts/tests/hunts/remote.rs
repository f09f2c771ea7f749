//! Some runs on servers that fail; `cargo hunt remote` makes more.

use hectare_hunts::remote::{Fault, Oracle, Outcome, run};
use std::sync::Arc;

/// e2fsck as an oracle beside the checker; it has no objection where it is not installed.
fn e2fsck(bytes: &[u8]) -> Result<(), String> {
    let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    std::fs::write(file.path(), bytes).map_err(|error| error.to_string())?;
    match hectare_oracle::fsck::e2fsck(file.path()) {
        Ok(report) if !report.is_sound() => Err(report.output),
        _ => Ok(()),
    }
}

/// The log also says that the volume has errors, and has fast commits: a repair gave these up.
#[test]
fn regression_fast_commits_of_a_volume_with_errors_are_replayed() {
    for seed in [1084, 1264] {
        let outcome = run(seed, Some(Arc::new(e2fsck))).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(outcome.fault, Fault::Errors);
    }
}

#[test]
fn nothing_acknowledged_is_lost_on_servers_that_fail() {
    let oracle: Arc<Oracle> = Arc::new(e2fsck);
    let outcomes: Vec<Outcome> = (0..10)
        .map(|seed| run(seed, Some(Arc::clone(&oracle))).unwrap_or_else(|error| panic!("{error}")))
        .collect();
    for fault in Fault::ALL {
        assert!(outcomes.iter().any(|outcome| outcome.fault == fault), "{fault:?} was not tried");
    }
    let of = |fault| outcomes.iter().filter(move |outcome| outcome.fault == fault);
    for fault in [Fault::Cut, Fault::Killed] {
        assert!(of(fault).all(|outcome| !outcome.ended), "{fault:?}: {outcomes:?}");
    }
    assert!(of(Fault::Cut).all(|outcome| outcome.reconnects > 0), "{outcomes:?}");
    // A server is killed at some moment, which may be behind the program's last request.
    assert!(of(Fault::Killed).any(|outcome| outcome.reconnects > 0), "{outcomes:?}");
    assert!(outcomes.iter().map(|outcome| outcome.promises).sum::<u64>() > 250, "{outcomes:?}");
}
