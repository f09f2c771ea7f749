//! `identify`, and that the commands it names work.

use crate::support::hectare;
use hectare_oracle::tool::{need, run, run_with_input};
use hectare_oracle::{mke2fs, skip};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A disk of 64 MiB with a GPT whose second partition, from 20 MiB on, holds a volume of 16 MiB.
fn disk(name: &str) -> Result<PathBuf, hectare_oracle::Skip> {
    let path = hectare_oracle::scratch::fresh(name);
    File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let script = "label: gpt\nstart=1MiB, size=8MiB, name=\"boot\"\nstart=20MiB, size=16MiB\n";
    let _ = run_with_input(
        need("sfdisk")?.args(["--quiet", "--no-reread", "--no-tell-kernel"]).arg(&path),
        script,
    )
    .expect_success();
    let part = hectare_oracle::scratch::fresh("identify-part");
    mke2fs(&["-t", "ext4", "-b", "1024", "-L", "inside"], &part, "16M")?;
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&fs::read(&part).unwrap(), 20 << 20).unwrap();
    fs::remove_file(part).unwrap();
    Ok(path)
}

/// Runs what a line `next: hectare ...` says.
fn follow(next: &str) {
    let words: Vec<&str> = next.split(' ').collect();
    assert_eq!(words[0], "hectare", "{next}");
    assert!(hectare(&words[1..]).ok().text().contains("lost+found"), "{next}");
}

#[test]
fn a_disk_is_shown_with_its_volumes_and_the_next_command_works() {
    let path = match disk("identify-disk") {
        Ok(path) => path,
        Err(reason) => skip!("identify::a_disk_is_shown", reason),
    };
    let image = path.to_str().unwrap();
    let text = hectare(&["identify", image]).ok().text().to_owned();
    for line in [
        format!("{image}: a GPT partition table, 64.00 MiB"),
        "    1: 8.00 MiB from byte 1048576 (Linux data, named boot): nothing that is known".to_owned(),
        "    2: 16.00 MiB from byte 20971520 (Linux data): an ext4 file system".to_owned(),
        "        label: inside".to_owned(),
        "        state: clean".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let json = hectare(&["identify", "--json", "--search", image]).ok().json();
    let part = &json["partitions"][1];
    assert_eq!(part["start"], 20 << 20);
    follow(part["next"].as_str().unwrap());
    let found = &json["search"]["volumes"];
    assert_eq!((found.as_array().unwrap().len(), &found[0]["start"]), (1, &part["start"]));
    follow(found[0]["next"].as_str().unwrap());
    // The same through --partition.
    let json = hectare(&["identify", "--json", "--search", "--partition", "2", image]).ok().json();
    assert_eq!(json["content"], "an ext4 file system");
    follow(json["next"].as_str().unwrap());
    follow(json["search"]["volumes"][0]["next"].as_str().unwrap());
    fs::remove_file(path).unwrap();
}

#[test]
fn copies_in_the_journal_are_no_volumes() {
    let path = match disk("identify-strays") {
        Ok(path) => path,
        Err(reason) => skip!("identify::copies_in_the_journal", reason),
    };
    let image = path.to_str().unwrap();
    for name in ["a", "b", "c"] {
        hectare(&["mkdir", "--partition", "2", &format!("{image}:/{name}")]).ok();
    }
    let found = hectare(&["identify", "--json", "--search", image]).ok().json()["search"].clone();
    assert_eq!(found["volumes"].as_array().unwrap().len(), 1, "{found}");
    assert!(found["volumes"][0]["strays"].as_u64().unwrap() >= 3, "{found}");
    assert_eq!(found["left_out"], 0);
    fs::remove_file(path).unwrap();
}

#[test]
fn a_lost_volume_is_found_and_opens_by_the_copy_that_is_named() {
    let path = match disk("identify-lost") {
        Ok(path) => path,
        Err(reason) => skip!("identify::a_lost_volume", reason),
    };
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&vec![0; 1 << 20], 0).unwrap();
    file.write_all_at(&vec![0; 1 << 20], 63 << 20).unwrap();
    file.write_all_at(&[0; 4096], 20 << 20).unwrap();
    let image = path.to_str().unwrap();
    let text = hectare(&["identify", "--search", image]).ok().text().to_owned();
    assert!(text.contains("16.00 MiB from byte 20971520"), "{text}");
    assert!(text.contains("the first superblock is lost"), "{text}");
    let next = "next: hectare salvage --superblock 8193 --offset 20971520 ";
    assert!(text.contains(next), "{text}");
    let json = hectare(&["identify", "--search", "--json", image]).ok().json();
    salvage(json["search"]["volumes"][0]["next"].as_str().unwrap());
    let alone = hectare_oracle::scratch::fresh("identify-alone");
    fs::write(&alone, &fs::read(&path).unwrap()[20 << 20..36 << 20]).unwrap();
    let said = run(need("e2fsck").unwrap().args(["-fn", "-b", "8193", "-B", "1024"]).arg(&alone));
    assert!(said.stdout.contains("inside: "), "{}", said.report());
    fs::remove_file(path).unwrap();
    fs::remove_file(alone).unwrap();
}

/// Runs what a line `next: hectare salvage ... -o DIRECTORY` says, and finds the volume's root.
fn salvage(next: &str) {
    let out = hectare_oracle::scratch::fresh("identify-salvaged");
    let place = out.to_str().unwrap();
    let words = next.split(' ').map(|word| if word == "DIRECTORY" { place } else { word });
    let words: Vec<&str> = words.collect();
    assert_eq!(words[..2], ["hectare", "salvage"], "{next}");
    let ran = hectare(&words[1..]);
    assert_eq!(ran.code, Some(1), "{next}: {}", ran.err);
    assert!(out.join("lost+found").is_dir(), "{next}: {}", ran.err);
    fs::remove_dir_all(out).unwrap();
}

#[test]
fn a_volume_without_its_first_superblock_is_named_by_a_copy() {
    for (damage, fault) in [(vec![0; 1024], "is lost"), (vec![0xff; 8], "its checksum is")] {
        for (block, copy) in [("1024", "8193"), ("4096", "32768")] {
            let path = hectare_oracle::scratch::fresh("identify-copy");
            if let Err(reason) = mke2fs(&["-t", "ext4", "-b", block, "-L", "named"], &path, "200M") {
                skip!("identify::a_volume_without_its_first_superblock", reason);
            }
            // The last bytes of the first superblock, or all of it.
            let at = if damage.len() == 1024 { 1024 } else { 2048 - 16 };
            File::options().write(true).open(&path).unwrap().write_all_at(&damage, at).unwrap();
            let image = path.to_str().unwrap();
            let json = hectare(&["identify", "--json", image]).ok().json();
            assert_eq!((&json["content"], &json["label"]), (&"an ext4 file system".into(), &"named".into()));
            let text = hectare(&["identify", image]).ok().text().to_owned();
            assert!(text.contains(fault), "{text}");
            assert!(text.contains(&format!("copy of the superblock: {copy}\n")), "{text}");
            salvage(json["next"].as_str().unwrap());
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn what_is_no_volume_is_named_by_every_command_that_opens_one() {
    let path = match disk("identify-named") {
        Ok(path) => path,
        Err(reason) => skip!("identify::what_is_no_volume", reason),
    };
    // A second volume, so that none is the only one.
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&0xef53_u16.to_le_bytes(), (1 << 20) + 1080).unwrap();
    let image = path.to_str().unwrap();
    let root = format!("{image}:/");
    for words in [
        &["ls", &root][..],
        &["tree", &root],
        &["info", image],
        &["check", image],
        &["freefrag", image],
        &["map", image, "-o", "/dev/null/x.svg"],
        &["explain", image, "--want", "1M"],
        &["export", image, "-o", "-"],
        &["diff", image, image],
        &["mkdir", &format!("{root}new")],
        &["quota", image],
        &["tune", image, "--label", "x"],
        &["resize", image, "min"],
        &["salvage", image, "-o", "/dev/null/x"],
        &["trim", image],
        &["defrag", "-n", &root],
        &["touch", &format!("{root}new")],
        &["df", image],
        &["du", &root],
        &["find", &root],
    ] {
        let ran = hectare(words);
        assert!(ran.code == Some(1) || (words[0] == "diff" && ran.code == Some(2)), "{words:?}: {}", ran.err);
        assert!(ran.err.contains("name a partition with --partition: 1 (8192 KiB"), "{words:?}: {}", ran.err);
    }
    // Nothing known: a search is what is left.
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    let error = hectare(&["ls", &root]);
    assert!(error.refused().contains("hectare identify --search"), "{}", error.err);
    fs::remove_file(path).unwrap();
}
