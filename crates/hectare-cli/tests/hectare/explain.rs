//! explain: of a mount. What it says of images is tested beside the program that ages them (`workshop/lab/tests`).

use crate::mount::{bench as mounted, durable};
use crate::support::hectare;

#[test]
fn a_mount_tells_what_its_requests_went_through() {
    let bench = mounted!("explain::a_mount");
    let dir = bench.dir.to_str().unwrap();
    hectare(&[&["mount", "--explain"], &bench.words(&[])[..]].concat()).ok();
    durable(&bench.dir.join("file"), &"x".repeat(100_000));
    let ran = hectare(&["explain", dir]).ok();
    assert!(ran.text().starts_with("policy hybrid"), "{}", ran.text());
    assert!(ran.text().contains("  took group "), "{}", ran.text());
    let json = hectare(&["explain", dir, "--json"]).ok().json();
    assert!(!json[0]["requests"].as_array().unwrap().is_empty(), "{json}");
    bench.unmount();
    hectare(&[&["mount"], &bench.words(&[])[..]].concat()).ok();
    let without = hectare(&["explain", dir]);
    assert!(without.refused().contains("not mounted with --explain"), "{}", without.err);
    bench.unmount();
}
