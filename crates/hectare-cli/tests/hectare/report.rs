//! info, freefrag, map: number for number as dumpe2fs and e2freefrag.

use crate::support::{Bench, hectare};
use hectare_oracle::{Combo, Scale, Tree, combos, filled, skip, skip_part, tool};
use std::path::Path;

/// The fields of a dump in order, white space between words made one.
fn fields(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().skip_while(|line| !line.starts_with("Filesystem volume name"));
    let lines = lines.take_while(|line| !line.is_empty() && !line.starts_with("MMP_block"));
    let pairs = lines.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split_once(':'));
    pairs
        .map(|(name, value)| (name.to_owned(), value.split_whitespace().collect::<Vec<_>>().join(" ")))
        // Lists of other volumes and blocks, which are no fields of this one.
        .filter(|(name, _)| name != "Bad blocks" && name != "Journal users")
        .collect()
}

/// Compares the fields of `info` with those of dumpe2fs, where dumpe2fs reads the image at all.
pub(crate) fn same_fields(image: &Path) -> Result<(), hectare_oracle::Skip> {
    let dump = tool::run(tool::need("dumpe2fs")?.arg("-h").arg(image));
    if !dump.succeeded() || !dump.stdout.contains("Filesystem volume name") {
        return Ok(());
    }
    let ran = hectare(&["info".as_ref(), image.as_os_str()]);
    let mut expected = fields(&dump.stdout);
    if ran.code == Some(1) {
        // What can't be opened has no journal to look at.
        let cut = expected.iter().position(|(name, _)| name == "Journal features").unwrap_or(expected.len());
        expected.truncate(cut);
    }
    assert_eq!(fields(ran.text()), expected, "{}: {}", image.display(), ran.err);
    Ok(())
}

/// The same lines and the same exit code, sound and broken.
#[test]
fn check_says_the_same_with_any_number_of_threads() {
    let bench = match Bench::fresh("ext4-1k") {
        Ok(bench) => bench,
        Err(reason) => skip!("report, check with threads", reason),
    };
    let said = |threads: &str| {
        let ran = hectare(&["check", "--threads", threads, bench.image()]);
        (ran.code, ran.text().to_owned(), ran.err)
    };
    let sound = said("1");
    assert_eq!(sound.0, Some(0));
    assert_eq!([said("2"), said("3")], [sound.clone(), sound]);
    // The root's link count, and with it the inode's checksum.
    let file = std::fs::File::options().write(true).open(bench.image()).unwrap();
    let mut bytes = std::fs::read(bench.image()).unwrap();
    let table = hectare_oracle::debugfs(Path::new(bench.image()), &["imap <2>"]).unwrap();
    let block = table.split("located at block ").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    let at = block.parse::<usize>().unwrap() * 1024 + 256 + 0x1a;
    bytes[at] += 1;
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes[at..=at], u64::try_from(at).unwrap()).unwrap();
    let broken = said("1");
    assert!(broken.0 == Some(1) && broken.1.contains("link count of inode 2"), "{broken:?}");
    assert_eq!([said("2"), said("3")], [broken.clone(), broken]);
    hectare(&["check", "--threads", "0", bench.image()]).misused();
}

#[test]
fn info_says_what_dumpe2fs_says() {
    for combo in combos() {
        let bench = match Bench::fresh(combo.name) {
            Ok(bench) => bench,
            Err(reason) => skip!("cli report::info_says", reason),
        };
        if let Err(reason) = same_fields(&bench.image) {
            skip!("cli report::info_says", reason);
        }
        hectare(&["info", bench.image()]).ok();
    }
}

#[test]
fn info_of_odd_values_says_what_dumpe2fs_says() {
    let bench = match Bench::fresh("no-csum") {
        Ok(bench) => bench,
        Err(reason) => skip!("cli report::info_of_odd_values", reason),
    };
    for setting in [
        "kbytes_written 8191",
        "kbytes_written 8192",
        "kbytes_written 8388607",
        "kbytes_written 8589934591",
        "kbytes_written 8589934592",
        "creator_os 1",
        "creator_os 3",
        "errors 3",
        "checkinterval 5097661",
        "checkinterval 3600",
        "checkinterval 90061",
        "mtime 20500101120000",
        "def_hash_version 3",
        "default_mount_opts 0x0f6b",
        "last_orphan 13",
        "first_error_time 20200101",
        "first_error_func abc",
        "first_error_line 7",
        "first_error_ino 8",
        "first_error_block 9",
        "first_error_errcode 5",
        "error_count 3",
        "last_mounted /a/b",
        "mount_opts errors=panic",
        "volume_name 0123456789abcdef",
        "max_mnt_count 20",
        "def_resuid 4242",
        "journal_dev 5",
        "flags 6",
        "state 3",
        "min_extra_isize 0",
        "first_meta_bg 3",
        "backup_bgs[0] 3",
        "backup_bgs[1] 4",
        "feature_compat 0x8000003f",
    ] {
        if let Err(reason) = hectare_oracle::debugfs_write(&bench.image, &[&format!("ssv {setting}")]) {
            skip!("cli report::info_of_odd_values", reason);
        }
        same_fields(&bench.image).unwrap();
    }
}

/// The lines of each group, as both print them: checksums of descriptors and empty ends of lines aside.
fn group_lines(text: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| !line.starts_with("Group 0:"));
    let clean = |line: &str| match line.split_once(" csum 0x") {
        Some((head, tail)) if line.starts_with("Group ") => {
            format!("{head}{}", tail.get(4..).unwrap_or_default()).trim_end().to_owned()
        }
        _ => line.trim_end().to_owned(),
    };
    lines.map(clean).collect()
}

#[test]
fn groups_are_what_dumpe2fs_lists() {
    for combo in combos() {
        let filled = match filled(combo, Tree::Ordinary, &Scale::SMALL) {
            Ok(filled) => filled,
            Err(reason) => {
                skip_part!(format!("cli groups, {}", combo.name), reason);
                continue;
            }
        };
        let dump = tool::run(tool::need("dumpe2fs").unwrap().arg(filled.image())).expect_success();
        let ran = hectare(&["info".as_ref(), "--groups".as_ref(), filled.image().as_os_str()]).ok();
        let (ours, theirs) = (group_lines(ran.text()), group_lines(&dump.stdout));
        let bigalloc = combo.has("bigalloc");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            // There dumpe2fs ends a range with the first block of its last cluster, not with its last block.
            if bigalloc && ours.starts_with("  Free blocks:") && theirs.starts_with("  Free blocks:") {
                continue;
            }
            assert_eq!(ours, theirs, "{}", combo.name);
        }
        assert_eq!(ours.len(), theirs.len(), "{}", combo.name);
        let json =
            hectare(&["info".as_ref(), "--groups".as_ref(), "--json".as_ref(), filled.image().as_os_str()]);
        assert_eq!(
            json.ok().json()["groups"].as_array().unwrap().len(),
            ours.iter().filter(|l| l.starts_with("Group ")).count()
        );
    }
}

#[test]
fn freefrag_prints_what_e2freefrag_prints() {
    let trees = [Tree::Ordinary, Tree::Fragmented];
    let mut compared = 0;
    for combo in combos() {
        for tree in trees {
            let filled = match filled(combo, tree, &Scale::SMALL) {
                Ok(filled) => filled,
                Err(reason) => {
                    skip_part!(format!("cli freefrag, {}", combo.name), reason);
                    continue;
                }
            };
            for chunk in [None, Some("64"), Some("1024")] {
                compared += compare_freefrag(filled.image(), combo.name, chunk);
            }
        }
    }
    assert!(compared == 0 || compared >= 60, "only {compared}");
}

/// How many comparisons were made: 1, or 0 without the tool.
fn compare_freefrag(image: &Path, name: &str, chunk: Option<&str>) -> usize {
    let Ok(mut judge) = tool::need("e2freefrag") else {
        skip_part!(format!("cli freefrag, {name}"), "the tool e2freefrag is not installed");
        return 0;
    };
    let flags: Vec<&str> = chunk.map(|chunk| vec!["-c", chunk]).unwrap_or_default();
    let said = tool::run(judge.args(&flags).arg(image)).expect_success();
    let mut arguments = vec!["freefrag"];
    if name.starts_with("bigalloc") {
        arguments.push("--like-e2freefrag");
    }
    arguments.extend(&flags);
    arguments.push(image.to_str().unwrap());
    assert_eq!(hectare(&arguments).ok().text(), said.stdout, "{name} {flags:?}");
    1
}

#[test]
fn freefrag_of_bigalloc_adds_up_and_counts_the_runs_dumpe2fs_lists() {
    for name in ["bigalloc", "bigalloc-1k"] {
        let filled = match filled(&Combo::named(name), Tree::Fragmented, &Scale::SMALL) {
            Ok(filled) => filled,
            Err(reason) => skip!("cli report::freefrag_of_bigalloc", reason),
        };
        let json = hectare(&["freefrag".as_ref(), "--json".as_ref(), filled.image().as_os_str()]).ok().json();
        let bars = json["histogram"].as_array().unwrap();
        let sum: u64 = bars.iter().map(|bar| bar["blocks"].as_u64().unwrap()).sum();
        assert_eq!(Some(sum), json["free_blocks"].as_u64());
        let dump = hectare_oracle::dumpe2fs(filled.image()).unwrap();
        let ratio = dump.number("Cluster size") / dump.number("Block size");
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for line in dump.groups.iter().flat_map(|group| &group.lines) {
            let Some(list) = line.strip_prefix("Free blocks: ") else { continue };
            for range in list.split(", ").filter(|range| !range.is_empty()) {
                // dumpe2fs names clusters by their first block.
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let (first, end) = (first.parse().unwrap(), last.parse::<u64>().unwrap() + ratio);
                match runs.last_mut() {
                    Some(run) if run.1 == first => run.1 = end,
                    _ => runs.push((first, end)),
                }
            }
        }
        assert_eq!(json["extents"].as_u64(), Some(runs.len() as u64), "{name}");
    }
}

#[test]
fn maps_are_drawn_both_ways() {
    for (combo, tree) in
        [("ext4", Tree::Ordinary), ("bigalloc", Tree::Ordinary), ("small-groups", Tree::Fragmented)]
    {
        let bench = match Bench::filled(combo, tree) {
            Ok(bench) => bench,
            Err(reason) => skip!("cli report::maps_are_drawn", reason),
        };
        let (svg, png) = (bench.local("map.svg"), bench.local("map.png"));
        hectare(&["map", bench.image(), "-o", svg.to_str().unwrap()]).ok();
        hectare(&["map", bench.image(), "-o", png.to_str().unwrap()]).ok();
        let svg = std::fs::read_to_string(svg).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<g>").count(), svg.matches("</g>").count());
        assert_eq!(hectare(&["map", bench.image()]).ok().text(), svg);
        let reader =
            png::Decoder::new(std::io::Cursor::new(std::fs::read(png).unwrap())).read_info().unwrap();
        assert_eq!(reader.info().width, 2400);
        let cells = hectare(&["map", "--json", bench.image()]).ok().json();
        let sum = |name: &str| {
            cells.as_array().unwrap().iter().map(|cell| cell[name].as_u64().unwrap()).sum::<u64>()
        };
        let free = hectare(&["freefrag", "--json", bench.image()]).ok().json();
        assert_eq!(Some(sum("free")), free["free_blocks"].as_u64(), "{combo}");
        let first = hectare_oracle::dumpe2fs(&bench.image).unwrap().number("First block");
        assert_eq!(sum("blocks") + first, free["blocks"].as_u64().unwrap());
    }
}

/// Pictures were written through a link over the image that they are of.
#[test]
fn regression_a_picture_was_written_over_the_image() {
    let bench = Bench::empty();
    hectare(&["mkfs", "-q", bench.image(), "8M"]).ok();
    let before = crate::support::digest(&bench.image);
    let (link, page) = (bench.local("link.svg"), bench.local("link.html"));
    for link in [&link, &page] {
        std::os::unix::fs::symlink(&bench.image, link).unwrap();
    }
    let (link, page) = (link.to_str().unwrap(), page.to_str().unwrap());
    for arguments in [
        &["map", bench.image(), "-o", link][..],
        &["explain", "--want", "1M", bench.image(), "--svg", link],
        &["explain", "--want", "1M", bench.image(), "--html", page],
    ] {
        let ran = hectare(arguments);
        assert!(ran.refused().contains("stays as it is"), "{}", ran.err);
        assert_eq!(crate::support::digest(&bench.image), before, "{arguments:?}");
    }
    let other = bench.local("other.svg");
    std::fs::write(&other, vec![b'x'; 1 << 20]).unwrap();
    hectare(&["map", bench.image(), "-o", other.to_str().unwrap()]).ok();
    assert!(std::fs::read(&other).unwrap().ends_with(b"</svg>\n"));
}
