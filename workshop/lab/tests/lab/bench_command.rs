//! bench: workloads on images and directories, their reports, and refusals.

use crate::support::{Bench, digest, hectare};
use hectare_oracle::skip;

#[test]
fn a_run_is_a_table_and_json_and_a_page() {
    let bench = match Bench::fresh("ext4") {
        Ok(bench) => bench,
        Err(reason) => skip!("cli bench::a_run", reason),
    };
    let (folder, page, run) = (bench.local("dir"), bench.local("out.html"), bench.local("run.json"));
    std::fs::create_dir(&folder).unwrap();
    let (engine, folder) = (format!("engine:{}", bench.image()), folder.to_str().unwrap().to_owned());
    let words =
        ["bench", "small-files", "--on", &engine, "--on", &folder, "--threads", "1,3", "--files", "20"];
    let ran = hectare(&words).ok();
    assert_eq!(ran.err, "");
    let lines: Vec<&str> = ran.text().lines().collect();
    assert_eq!(lines[0], "small-files: 20 files of 64 KiB (files)");
    assert_eq!((lines.len(), lines[2].starts_with("engine hybrid ")), (6, true), "{}", ran.text());

    let ran = hectare(&[&words[..], &["--json", "--html", page.to_str().unwrap()]].concat()).ok();
    let json = ran.json();
    let runs = json["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 4);
    for (run, threads) in runs.iter().zip([1, 3, 1, 3]) {
        assert_eq!((&run["threads"], &run["measure"]["operations"]), (&threads.into(), &20.into()));
    }
    assert_eq!(runs[1]["inspection"]["files"]["bytes"], 20 * 65_536);
    assert!(std::fs::read_to_string(&page).unwrap().ends_with("</html>\n"));
    hectare_oracle::assert_clean(&bench.image).unwrap();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    assert!(hectare(&["ls", &bench.at("/")]).ok().text().starts_with("lost+found\n"));

    std::fs::write(&run, &ran.out).unwrap();
    let run = run.to_str().unwrap();
    let both = hectare(&["bench", "report", run, run, "--html", page.to_str().unwrap()]).ok();
    assert!(both.text().contains("engine hybrid #2"), "{}", both.text());
    let nothing = hectare(&["bench", "inspect", bench.image(), run]);
    assert!(nothing.refused().contains("left its files"), "{}", nothing.err);
}

#[test]
fn a_bare_file_is_set_beside_the_engine_and_goes() {
    let bench = match Bench::fresh("ext4") {
        Ok(bench) => bench,
        Err(reason) => skip!("cli bench::a_bare_file", reason),
    };
    let raw = bench.local("raw");
    let (engine, bare) = (format!("engine:{}", bench.image()), format!("raw:{}", raw.display()));
    let small = ["--files", "2", "--size", "256K", "--seconds", "0.05", "--threads", "3"];
    let words = ["bench", "random-overwrite", "--on", &engine, "--on", &bare];
    let ran = hectare(&[&words[..], &small[..]].concat()).ok();
    let lines: Vec<&str> = ran.text().lines().collect();
    assert_eq!(lines[0], "random-overwrite: 4 KiB, 50 % reads, 2 files of 256 KiB (requests)");
    assert!(lines[2].starts_with("engine hybrid ") && lines[3].starts_with("raw "), "{}", ran.text());
    assert!(!raw.exists());
    let words = ["bench", "fsync-append", "--on", &engine, "--seconds", "0.05", "--json"];
    let json = hectare(&words).ok().json();
    assert!(json["runs"][0]["measure"]["sync_latency"]["p99_ns"].as_u64().unwrap() > 0, "{json}");
    hectare_oracle::assert_clean(&bench.image).unwrap();
}

#[test]
fn files_stay_where_they_are_the_result() {
    let bench = match Bench::fresh("ext4") {
        Ok(bench) => bench,
        Err(reason) => skip!("cli bench::files_stay", reason),
    };
    let engine = format!("engine:{}", bench.image());
    let words = ["bench", "four-sizes", "--scale", "0.01", "--on", &engine, "--policy", "mballoc,best-fit"];
    let ran = hectare(&[&words[..], &["--keep", "--stats", "--label", "x"]].concat()).ok();
    assert!(ran.err.contains("files left in /bench-four-sizes"), "{}", ran.err);
    let listed = hectare(&["ls", &bench.at("/bench-four-sizes")]).ok();
    assert_eq!(listed.text().lines().count(), 32);
    let again = hectare(&words[..6]);
    assert!(again.refused().contains("--replace"), "{}", again.err);
    hectare(&[&words[..6], &["--replace", "--remove"]].concat()).ok();
    assert!(!hectare(&["ls", &bench.at("/")]).ok().text().contains("bench"));
    hectare_oracle::assert_clean(&bench.image).unwrap();
}

#[test]
fn policies_are_compared_on_fresh_copies() {
    let bench = Bench::empty();
    hectare(&["mkfs", "-q", bench.image(), "4G"]).ok();
    let before = digest(&bench.image);
    let engine = format!("engine:{}", bench.image());
    let words = ["bench", "streams", "--size", "100M", "--on", &engine, "--json"];
    let json = hectare(&[&words[..], &["--policy", "mballoc,mballoc,first-fit"]].concat()).ok().json();
    let runs = json["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    // The same policy on the same bytes gives the same counts.
    assert_eq!(
        runs[0]["allocator"]["counts"]["groups_scanned"],
        runs[1]["allocator"]["counts"]["groups_scanned"]
    );
    assert_eq!(runs[0]["inspection"], runs[1]["inspection"]);
    for run in runs {
        assert_eq!((&run["target"], &run["folder"]), (&bench.image().into(), &serde_json::Value::Null));
    }
    hectare(&[&words[..], &["--fresh"]].concat()).ok();
    let missing = ["bench", "streams", "--fresh", "--size", "64G", "--on", &engine];
    let full = hectare(&missing);
    assert!(full.refused().contains("disk.img: too small for this"), "{}", full.err);
    let names = std::fs::read_dir(bench.folder.path()).unwrap().count();
    assert_eq!((digest(&bench.image), names), (before, 1), "the image is as it was, and alone");
    hectare(&[&words[..], &["--policy", "mballoc,first-fit", "--in-place"]].concat()).ok();
    assert_ne!(digest(&bench.image), before);
}

#[test]
fn jobs_can_be_processes_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let words = ["bench", "fallocate2", "--processes", "1,3", "--seconds", "0.1", "--on", place, "--json"];
    let json = hectare(&words).ok().json();
    for (run, processes) in json["runs"].as_array().unwrap().iter().zip([1, 3]) {
        assert_eq!(run["variant"], "8 KiB steps to 1 MiB, in one directory, processes");
        let each = run["measure"]["per_thread"].as_array().unwrap();
        assert_eq!((each.len(), &run["threads"]), (processes, &processes.into()));
        let all: u64 = each.iter().map(|one| one.as_u64().unwrap()).sum();
        assert!(each.iter().all(|one| one.as_u64() > Some(0)), "{run}");
        assert_eq!(run["measure"]["operations"], all);
        assert!(run["wall_seconds"].as_f64().unwrap() > 0.0, "{run}");
    }
    assert_eq!(std::fs::read_dir(place).unwrap().count(), 0);
    let engine = hectare(&["bench", "fallocate2", "--processes", "2", "--on", "engine:none"]);
    assert!(engine.code == Some(2) && engine.err.contains("an image has one process"), "{}", engine.err);
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_written() {
    let bench = Bench::empty();
    std::fs::write(&bench.image, vec![3; 1 << 20]).unwrap();
    let before = digest(&bench.image);
    let engine = format!("engine:{}", bench.image());
    let refused = hectare(&["bench", "fallocate2", "--on", &engine]);
    assert!(refused.refused().contains("ext4 volume"), "{}", refused.err);
    let folder = bench.folder.path().to_str().unwrap();
    let usage: [&[&str]; 21] = [
        &["fallocate2"],
        &["fallocate2", "--on", "engine:"],
        &["fallocate2", "--on", folder, "--threads", "0"],
        &["fallocate2", "--on", folder, "--seconds", "-1"],
        &["fallocate2", "--on", folder, "--policy", "hybrid"],
        &["fallocate2", "--on", folder, "--fresh"],
        &["fallocate2", "--on", &engine, "--fresh", "--in-place"],
        &["fallocate2", "--on", &engine, "--policy", "next-fit"],
        &["fallocate2", "--on", &engine, "--policy", "mballoc,-bst-avail"],
        &["fallocate2", "--on", &engine, "--tunable", "mb_max_scan=1"],
        &["fallocate2", "--on", &engine, "--tunable", "mb_order2_req=65"],
        &["fallocate2", "--on", &engine, "--classes", "8M,128K"],
        &["fallocate2", "--on", folder, "--classes", "128K"],
        &["small-files", "--on", folder, "--html", &engine],
        &["four-sizes", "--on", folder, "--scale", "2"],
        &["streams", "--on", folder, "--mixed"],
        &["random-overwrite", "--on", "raw:"],
        &["random-overwrite", "--on", folder, "--ramp", "-1"],
        &["fallocate2", "--on", folder, "--threads", "2", "--processes", "2"],
        &["random-overwrite", "--on", folder, "--reads", "101"],
        &["fsync-append", "--on", folder, "--append", "0"],
    ];
    for words in usage {
        let ran = hectare(&[&["bench"], words].concat());
        assert_eq!(ran.code, Some(2), "{}\n{}", ran.line, ran.err);
    }
    let raw = format!("raw:{}", bench.image());
    let there = hectare(&["bench", "random-overwrite", "--on", &raw]);
    assert!(there.refused().contains("--replace"), "{}", there.err);
    let unread = hectare(&["bench", "report", bench.image()]);
    assert!(unread.refused().contains("not what bench --json prints"), "{}", unread.err);
    assert_eq!(digest(&bench.image), before);
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
}
