//! age: the volume becomes as requested, and impossible requests are refused.

use crate::support::{Bench, digest, hectare};
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

#[test]
fn a_histogram_is_reached_and_taken_over_by_another_volume() {
    let bench = Bench::empty();
    let (like, printed, other) = (bench.local("like.img"), bench.local("like.txt"), bench.local("other.img"));
    for image in [&bench.image, &like, &other] {
        hectare(&["mkfs", "-q", image.to_str().unwrap(), "8G"]).ok();
    }
    let like = like.to_str().unwrap();
    let first = ["age", "--fill", "60", "--histogram", "2M-4M:85:3887K,4M-8M:10", "--json", like];
    let ran = hectare(&first).ok().json();
    let ranges = ran["ranges"].as_array().unwrap();
    assert_eq!((ranges.len(), ranges[0]["from"].as_u64()), (2, Some(2 << 20)));
    for range in ranges {
        let off = range["wanted"].as_f64().unwrap() - range["reached"].as_f64().unwrap();
        assert!(off.abs() < 1.0 && range["extents"].as_u64().unwrap() > 0, "{range}");
    }
    let free = hectare(&["freefrag", like]).ok();
    std::fs::write(&printed, &free.out).unwrap();
    let from_file = ["age", "--e2freefrag", printed.to_str().unwrap(), bench.image()];
    let ran = hectare(&from_file).ok();
    let row = ran.text().lines().find(|line| line.starts_with("2M-4M ")).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert!(words[1].starts_with("89.4") && words[3].starts_with("89."), "{row}");
    assert!(ran.text().contains("\nreached    60.0"), "{}", ran.text());
    let same = hectare(&["age", "--like", like, "--json", other.to_str().unwrap()]).ok().json();
    assert_eq!(same["wanted"], same["reached"], "{same}");
}

#[test]
fn a_histogram_that_makes_no_sense_changes_nothing() {
    let bench = Bench::empty();
    hectare(&["mkfs", "-q", "-b", "4096", bench.image(), "256M"]).ok();
    let before = digest(&bench.image);
    let text = bench.local("text");
    std::fs::write(&text, "Extent Size Range :\n").unwrap();
    let (text, image) = (text.to_str().unwrap(), bench.image());
    let refused: [(&[&str], &str); 6] = [
        (&["--fill", "50", "--histogram", "1K-8K:100"], "1K to 8K: a cluster has 4096 bytes"),
        (&["--fill", "50", "--histogram", "256M-512M:100"], "none inside a group is longer than"),
        (&["--fill", "99.9", "--histogram", "2M-4M:100"], "2M to 4M: "),
        (&["--fill", "1", "--histogram", "2M-4M:100"], "fuller than 1 %"),
        (&["--fill", "50", "--e2freefrag", text], "no histogram of free extents"),
        (&["--like", text], "text: "),
    ];
    for (words, reason) in refused {
        let ran = hectare(&[&["age"], words, &[image]].concat());
        assert!(ran.refused().contains(reason), "{}\n{}", ran.line, ran.err);
    }
    let usage: [(&[&str], &str); 6] = [
        (&["--fill", "50", "--histogram", "2M-4M:60,4M-8M:41"], "add up to 101.00 percent"),
        (&["--fill", "50", "--histogram", "2M-4M:10,3M-8M:10"], "overlap"),
        (&["--fill", "50", "--histogram", "2M:10"], "FROM-TO:PERCENT"),
        (&["--fill", "50", "--histogram", "2M-4M:10", "--mean", "4M"], "cannot be used with"),
        (&["--histogram", "2M-4M:100"], "--fill"),
        (&["--fill", "50"], "--histogram"),
    ];
    for (words, reason) in usage {
        let ran = hectare(&[&["age"], words, &[image]].concat());
        assert!(ran.code == Some(2) && ran.err.contains(reason), "{}\n{}", ran.line, ran.err);
    }
    assert_eq!(digest(&bench.image), before);
}
