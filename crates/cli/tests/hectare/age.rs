//! age: the volume becomes what was asked for, and what can't be is refused.

use crate::support::{Bench, hectare};
use hectare_oracle::{assert_clean, skip};

#[test]
fn a_made_volume_is_aged_and_says_what_was_reached() {
    let bench = Bench::empty();
    hectare(&["mkfs", "-q", bench.image(), "8G"]).ok();
    let ran = hectare(&["age", "--fill", "90", "--mean", "64K", "--seed", "3", "--json", bench.image()]).ok();
    if let Err(reason) = assert_clean(&bench.image) {
        skip!("cli age::a_made_volume", reason);
    }
    let (reached, free) =
        (&ran.json()["reached"], hectare(&["freefrag", "--json", bench.image()]).ok().json());
    assert_eq!(reached["extents"], free["extents"]);
    assert!((reached["fill"].as_f64().unwrap() - 90.0).abs() < 0.2, "{reached}");
    assert!((reached["mean"].as_f64().unwrap() - 65_536.0).abs() < 1_300.0, "{reached}");
    let again = hectare(&["age", "--fill", "95", "--mean", "64K", bench.image()]);
    assert!(again.refused().contains("aged before"), "{}", again.err);
}

#[test]
fn what_cannot_be_is_refused() {
    let bench = Bench::empty();
    hectare(&["mkfs", "-q", "-b", "4096", bench.image(), "64M"]).ok();
    let ran = hectare(&["age", "--fill", "1", "--mean", "64K", bench.image()]);
    assert!(ran.refused().contains("fuller than 1 %"), "{}", ran.err);
    let ran = hectare(&["age", "--fill", "50", "--mean", "1K", bench.image()]);
    assert!(ran.refused().contains("shorter than a cluster"), "{}", ran.err);
    assert_eq!(hectare(&["age", "--fill", "50", "--mean", "x", bench.image()]).code, Some(2));
}
