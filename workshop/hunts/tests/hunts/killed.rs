//! `SIGKILL` to the server of a mount, in the middle of work: a short version of `cargo hunt killed`.

use hectare_hunts::durability::Checked;
use hectare_hunts::kill_test::{Ended, Killed};
use hectare_oracle::hunt;
use hectare_oracle::scratch;
use hectare_oracle::skip;

#[test]
fn what_was_synced_survives_the_death_of_the_server() {
    const NAME: &str = "killed::what_was_synced_survives_the_death_of_the_server";
    let folder = scratch::fresh("killed");
    std::fs::create_dir(&folder).unwrap();
    let program = &crate::program();
    let mut killed = match Killed::new(program, &folder, hunt::seed("killed") % 1_000_000) {
        Ok(killed) => killed,
        Err(Ended::Skip(reason)) => skip!(NAME, reason),
        Err(Ended::Failed(what)) => panic!("{what}"),
    };
    let mut all = Checked::default();
    // In a busy moment a server may die before anything was synced.
    for nr in 0..20 {
        if nr >= 5 && all.names > 0 && all.records > 0 {
            break;
        }
        let round = killed.round().unwrap_or_else(|ended| panic!("{ended}"));
        eprintln!("{round:?}");
        all += round.checked;
    }
    assert!(all.names > 0 && all.records > 0, "it was about something: {all:?}");
    drop(killed);
    std::fs::remove_dir_all(&folder).unwrap();
}
