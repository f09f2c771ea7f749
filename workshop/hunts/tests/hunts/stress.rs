//! Stress programs on a mount: a short version of `cargo hunt stress`.

use hectare_hunts::kill_test::Ended;
use hectare_hunts::stress::{Kind, Stress};
use hectare_oracle::{hunt, scratch, skip, skip_part};
use std::time::Duration;

/// Mapped by extents and by blocks.
const KINDS: [&str; 2] = ["ext4", "ext3-1k"];

#[test]
fn what_stress_programs_leave_is_sound_and_read_alike_by_the_kernel() {
    const NAME: &str = "stress::what_stress_programs_leave";
    let folder = scratch::fresh("stress");
    std::fs::create_dir(&folder).unwrap();
    let program = &crate::program();
    // `cargo hunt stress` installs it there.
    let fsx = program.ancestors().nth(2).map(|target| target.join("tools/bin/fsx"));
    let stress = match Stress::new(program, &folder, fsx.as_deref().filter(|fsx| fsx.exists())) {
        Ok(stress) => stress,
        Err(reason) => skip!(NAME, reason),
    };
    for name in KINDS {
        let figures = match stress.run(
            Kind::named(name).unwrap(),
            hunt::seed("stress") % 1_000_000,
            Duration::from_secs(2),
        ) {
            Ok(figures) => figures,
            Err(Ended::Skip(reason)) => return skip_part!(format!("{NAME}, {name}"), reason),
            Err(Ended::Failed(what)) => panic!("{name}: {what}"),
        };
        eprintln!("{name}: {figures:?}");
        assert!(figures.exercised > 0 && figures.crew > 0 && figures.entries > 100, "{figures:?}");
        for reason in figures.left_out {
            skip_part!(format!("{NAME}, {name}"), reason);
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
