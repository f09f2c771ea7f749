//! salvage --resume: whatever moment it is killed at, what comes out in the end is what an uninterrupted run
//! gives.

use crate::BINARY;
use crate::support::{Bench, hectare};
use hectare_oracle::{What, assert_same, hunt, is_root, mke2fs, skip, walk};
use hectare_units::random;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A tree with files of all sizes, several names, links, attributes and times.
fn make_source(source: &Path) {
    for nr in 0..300_u32 {
        let dir = source.join(format!("d{}/s{}", nr / 100, nr / 20));
        fs::create_dir_all(&dir).unwrap();
        let len = [0, 40, 3000, 20_000, 150_000][hectare_units::usize_of(nr % 5)];
        let word = nr.to_le_bytes();
        let content: Vec<u8> = word.iter().copied().cycle().take(len).collect();
        fs::write(dir.join(format!("f{nr}")), content).unwrap();
        if nr % 25 == 0 {
            fs::hard_link(dir.join(format!("f{nr}")), source.join(format!("again{nr}"))).unwrap();
            symlink(format!("f{nr}"), dir.join(format!("link{nr}"))).unwrap();
        }
        if nr % 40 == 3 {
            let _ = rustix::fs::setxattr(
                dir.join(format!("f{nr}")),
                "user.note",
                &word,
                rustix::fs::XattrFlags::empty(),
            );
        }
    }
    fs::write(source.join("large"), vec![9; 12 << 20]).unwrap();
}

/// Starts a run, and kills it after a time; whether it had ended before.
fn killed_after(arguments: &[&str], time: Duration) -> bool {
    let mut child = Command::new(BINARY)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    sleep(time);
    let had_ended = child.try_wait().unwrap().is_some();
    child.kill().unwrap();
    child.wait().unwrap();
    had_ended
}

#[test]
fn runs_that_are_killed_at_any_time_give_the_same_in_the_end() {
    let name = "salvage::runs_that_are_killed";
    let bench = Bench::empty();
    let source = bench.local("source");
    make_source(&source);
    if let Err(reason) = mke2fs(&["-t", "ext4", "-d", source.to_str().unwrap()], &bench.image, "96M") {
        skip!(name, reason);
    }
    let (whole, out) = (bench.local("whole"), bench.local("out"));
    let (whole_text, out_text) = (whole.to_str().unwrap(), out.to_str().unwrap());
    hectare(&["salvage", bench.image(), "-o", whole_text]).ok();
    let began = Instant::now();
    fs::remove_dir_all(&whole).unwrap();
    hectare(&["salvage", bench.image(), "-o", whole_text]).ok();
    // The longest that a run is left alone, in microseconds: it follows how fast the machine is.
    let mut limit = u64::try_from(began.elapsed().as_micros()).unwrap();
    let expected = walk(&whole);
    let what = What { owners: is_root(), ..What::all() };
    let is_long = hunt::long(format!("{name}, 300 of them"));
    let mut state = hunt::seed(name);
    let mut below = |end: u64| {
        state = state.wrapping_add(random::STEP);
        random::mixed(state) % end.max(1)
    };
    let (mut early, runs) = (0, if is_long { 300 } else { 30 });
    for run in 0..runs {
        let _ = fs::remove_dir_all(&out);
        // Killed up to three times, then left alone.
        let kills = 1 + below(3);
        for kill in 0..kills {
            let time = Duration::from_micros(below(limit));
            let first = ["salvage", bench.image(), "-o", out_text];
            let had_ended = match kill {
                0 => killed_after(&first, time),
                _ => killed_after(&["salvage", bench.image(), "-o", out_text, "--resume"], time),
            };
            limit = if had_ended { limit - limit / 4 } else { limit + limit / 16 };
            early += u32::from(!had_ended);
        }
        let ended = hectare(&["salvage", bench.image(), "-o", out_text, "--resume"]);
        assert_eq!(ended.code, Some(0), "run {run}: {}", ended.err);
        assert_same(&walk(&out), &expected, what);
    }
    assert!(early >= runs / 2, "only {early} of {runs} were killed before they had ended");
}
