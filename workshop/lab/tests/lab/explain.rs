//! explain: the search of an aged image, and of a workload; explaining changes nothing.

use crate::support::{Bench, digest, hectare};
use serde_json::Value;

/// A volume of 512 MiB, most of it in use, its free space fragmented.
fn aged() -> Bench {
    let bench = Bench::empty();
    hectare(&["mkfs", bench.image(), "512M"]).ok();
    hectare(&["age", "--fill", "80", "--mean", "512K", bench.image()]).ok();
    bench
}

/// The lines of a pass.
fn passes<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.trim_start().starts_with(name)).collect()
}

#[test]
fn one_request_is_explained_by_each_policy_and_the_image_stays_as_it_is() {
    let bench = aged();
    let before = digest(&bench.image);
    let (page, picture) = (bench.local("why.html"), bench.local("why.svg"));
    let words = ["explain", bench.image(), "--want", "8M", "--asked", "64K"];
    let policies = ["--policy", "mballoc,mballoc,-best-avail,first-fit", "--tunable", "mb_optimize_scan=1"];
    let files = ["--html", page.to_str().unwrap(), "--svg", picture.to_str().unwrap()];
    let ran = hectare(&[&words[..], &policies, &files].concat()).ok();
    assert_eq!(ran.err, "");
    let text = ran.text();
    assert!(
        text.starts_with("policy mballoc mb_optimize_scan=1\nrequest 1: 64 KiB asked, goal length 8 MiB")
    );
    assert_eq!(passes(text, "policy ").len(), 4, "three, and the heading of the table: {text}");
    let trimmed = passes(text, "CR_BEST_AVAIL_LEN");
    assert_eq!(trimmed.len(), 3, "mballoc alone, 4, 2 and 1 MiB: {text}");
    assert!(
        trimmed[0].contains("4 MiB: 4 groups left out by the index (average run below 4 MiB) [0-3]"),
        "{text}"
    );
    assert!(passes(text, "CR_GOAL_LEN_SLOW")[0].contains("scanned"), "{text}");
    assert!(passes(text, "first fit")[0].contains("largest chunk below 4 MiB"), "{text}");
    assert_eq!(passes(text, "took group").len(), 3, "{text}");

    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert_eq!((page.matches("<svg").count(), page.matches("<section>").count()), (1, 4));
    let picture = std::fs::read_to_string(picture).unwrap();
    assert!(picture.starts_with("<svg ") && picture.contains("taken: 1, 1, 1"), "{picture}");

    let json = hectare(&[&words[..], &policies, &["--json"]].concat()).ok().json();
    let explanations = json.as_array().unwrap();
    assert_eq!((explanations.len(), &explanations[0]["shape"]["groups"]), (3, &4.into()));
    let request = &explanations[0]["requests"][0];
    assert_eq!((&request["asked"]["want"], &request["asked"]["asked"]), (&2048.into(), &16.into()));
    assert_eq!(request["answer"]["taken"]["by"], "CR_GOAL_LEN_SLOW");
    let whats: Vec<&Value> =
        request["events"].as_array().unwrap().iter().map(|event| &event["what"]).collect();
    assert!(whats.iter().any(|what| what["passed"]["why"] == "index"), "{json}");
    assert_eq!(digest(&bench.image), before);
}

#[test]
fn a_goal_is_a_block_or_where_a_file_goes_on() {
    let bench = aged();
    std::fs::write(bench.local("file"), vec![7; 300_000]).unwrap();
    hectare(&["cp", bench.local("file").to_str().unwrap(), &bench.at("/file")]).ok();
    let explain = |rest: &[&str]| {
        let words = ["explain", bench.image(), "--want", "1M"];
        hectare(&[&words[..], rest].concat()).ok().text().to_owned()
    };
    let block = explain(&["--goal", "70000", "--policy", "mballoc"]);
    assert!(block.contains("goal block 70000 in group 2, as the caller says"), "{block}");
    let behind = explain(&["--goal", "/file", "--policy", "mballoc"]);
    assert!(behind.contains("where the file continues") && behind.contains("for inode "), "{behind}");
    let home = explain(&["--goal", "/", "--policy", "mballoc"]);
    assert!(home.contains("in group 0"), "{home}");
    let appended = explain(&["--append", "--goal", "/file"]);
    assert!(appended.lines().last().unwrap().starts_with("in all "), "{appended}");
    let words = ["explain", bench.image(), "--want", "512M", "--least", "512M", "--verbose"];
    let all = hectare(&words).ok().text().to_owned();
    assert!(
        all.contains("no space: 512 MiB in one run are more than is free, or than a group holds"),
        "{all}"
    );
}

#[test]
fn what_a_workload_and_a_copy_asked_for_is_told_in_the_end() {
    let bench = aged();
    let engine = format!("engine:{}", bench.image());
    let words =
        ["bench", "small-files", "--on", &engine, "--files", "20", "--policy", "mballoc", "--nodelalloc"];
    let ran = hectare(&[&words[..], &["--explain=2"]].concat()).ok();
    let text = ran.text();
    assert!(text.contains("policy mballoc: ") && text.contains("kept for a thread"), "{text}");
    assert_eq!(passes(text, "request ").len(), 2, "{text}");
    let json = hectare(&[&words[..], &["--explain", "--json"]].concat()).ok().json();
    let requests = json["runs"][0]["explanation"]["requests"].as_array().unwrap();
    assert!(requests.len() >= 20, "{}", requests.len());
    let without = hectare(&[&words[..], &["--json"]].concat()).ok().json();
    assert!(without["runs"][0].get("explanation").is_none());
    std::fs::write(bench.local("file"), vec![7; 300_000]).unwrap();
    let copied =
        hectare(&["cp", "--explain", bench.local("file").to_str().unwrap(), &bench.at("/file")]).ok();
    assert!(copied.text().contains("  took group "), "{}", copied.text());
    hectare_oracle::assert_clean(&bench.image).unwrap();
}

#[test]
fn what_makes_no_sense_is_refused() {
    let bench = aged();
    let before = digest(&bench.image);
    let folder = bench.folder.path().to_str().unwrap();
    let image = bench.image();
    let usage: [(&[&str], &str); 10] = [
        (&[image], "--want says how much"),
        (&[image, "--want", "0"], "at least a byte"),
        (&[image, "--want", "8M", "--asked", "9M"], "no more than --want"),
        (&[image, "--want", "8M", "--asked", "1M", "--least", "2M"], "no more than --asked"),
        (&[image, "--want", "8M", "--policy", "next-fit"], "there is no policy 'next-fit'"),
        (&[image, "--want", "8M", "--policy", "mballoc,-best-avial"], "'best-avail' is the nearest"),
        (&[image, "--want", "8M", "--tunable", "mb_max_scan=1"], "'mb_max_to_scan' is the nearest"),
        (&[image, "--want", "8M", "--append"], "--goal"),
        (&[image, "--want", "8M", "--svg", image], "ends in .svg"),
        (&[folder, "--want", "8M"], "give an image"),
    ];
    for (words, part) in usage {
        let ran = hectare(&[&["explain"], words].concat());
        assert_eq!(ran.code, Some(2), "{}\n{}", ran.line, ran.err);
        assert!(ran.err.contains(part), "{words:?}: {}", ran.err);
    }
    let refused: [(&[&str], &str); 5] = [
        (&[image, "--want", "8M", "--goal", "131072"], "which has blocks 0 to 131071"),
        (&[image, "--want", "8M", "--goal", "/nowhere"], "/nowhere: "),
        (&[image, "--want", "8M", "--goal", "-"], "/-: "),
        (&["missing.img", "--want", "8M"], "No such file"),
        (&[folder], "no image is mounted there"),
    ];
    for (words, part) in refused {
        let ran = hectare(&[&["explain"], words].concat());
        assert!(ran.refused().contains(part), "{words:?}: {}", ran.err);
    }
    assert_eq!(digest(&bench.image), before);
    let bench_without_engine = ["bench", "fallocate2", "--on", folder, "--explain"];
    assert_eq!(hectare(&bench_without_engine).code, Some(2));
    let out = hectare(&["cp", "--explain", &bench.at("/aged"), folder]);
    assert!(out.code == Some(2) && out.err.contains("--explain"), "{}", out.err);
}
