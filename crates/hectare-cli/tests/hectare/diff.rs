//! diff: every aspect of a file is compared, and nothing else.

use crate::support::{Bench, hectare};
use hectare_oracle::tool::{need, run};
use hectare_oracle::{Skip, Tree, skip};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Two images that were equal until one was changed with these commands; `{}` is the image.
fn changed(commands: &[&str]) -> (Bench, PathBuf) {
    let bench = Bench::empty();
    let source = bench.local("source");
    fs::create_dir_all(source.join("d")).unwrap();
    fs::write(source.join("d/f"), vec![7; 10_000]).unwrap();
    fs::write(source.join("g"), "g").unwrap();
    fs::hard_link(source.join("g"), source.join("h")).unwrap();
    symlink("g", source.join("l")).unwrap();
    hectare(&["build", "--free", "1M", "--from", source.to_str().unwrap(), bench.image()]).ok();
    let new = bench.local("new.img");
    fs::copy(&bench.image, &new).unwrap();
    for command in commands {
        let words = command.replace("{}", new.to_str().unwrap());
        hectare(&words.split(' ').collect::<Vec<_>>()).ok();
    }
    (bench, new)
}

/// The lines of a comparison that ignores times.
#[track_caller]
fn differences(old: &Path, new: &Path) -> Vec<String> {
    let ran = hectare(&["diff", "--ignore-times", old.to_str().unwrap(), new.to_str().unwrap()]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(i32::from(!ran.out.is_empty())), ""));
    ran.text().lines().map(str::to_owned).collect()
}

#[test]
fn every_aspect_is_reported() {
    let cases: [(&[&str], &[&str]); 12] = [
        (&[], &[]),
        (&["chmod 0600 {}:/g"], &["~ g: mode 0644 -> 0600", "~ h: mode 0644 -> 0600"]),
        (&["chown 5:6 {}:/d/f"], &["~ d/f: uid 0 -> 5, gid 0 -> 6"]),
        (&["xattr set user.a 1 {}:/d"], &["~ d: xattr user.a added"]),
        (&["rm -r {}:/d"], &["- d", "- d/f"]),
        (&["mkdir -p {}:/e/x"], &["+ e", "+ e/x"]),
        (&["rm {}:/l", "ln -s h {}:/l"], &["~ l: target g -> h"]),
        (&["rm {}:/l", "mkdir {}:/l", "mkdir {}:/l/m"], &["~ l: symbolic link -> directory", "+ l/m"]),
        (&["rm -r {}:/d", "ln {}:/g {}:/d"], &["~ d: directory -> regular file", "- d/f"]),
        (&["mv {}:/d/f {}:/d/e"], &["+ d/e", "- d/f"]),
        // The first name of the file with two is gone: those that are left are as they were.
        (&["rm {}:/g"], &["- g"]),
        (&["rm {}:/h", "cp -p {}:/g {}:/h"], &["~ h: hard link to g -> a file of its own"]),
    ];
    for (commands, expected) in cases {
        let (bench, new) = changed(commands);
        assert_eq!(differences(&bench.image, &new), expected, "{commands:?}");
    }
}

#[test]
fn content_is_compared_byte_by_byte_and_holes_are_zeros() {
    let (bench, new) = changed(&[]);
    let file = bench.local("f");
    let put = |content: &[u8]| {
        fs::write(&file, content).unwrap();
        let to = format!("{}:/d/f", new.display());
        hectare(&["cp", file.to_str().unwrap(), &to]).ok();
        differences(&bench.image, &new)
    };
    let mut content = vec![7; 10_000];
    assert!(put(&content).is_empty());
    content[9_999] = 8;
    assert_eq!(put(&content), ["~ d/f: content differs at byte 9999"]);
    assert_eq!(put(&content[..9_999]), ["~ d/f: size 10000 -> 9999, content differs at byte 9999"]);
    content[0] = 8;
    assert_eq!(put(&content), ["~ d/f: content differs at byte 0"]);

    let (old, hole) = (bench.local("zeros"), bench.local("hole"));
    fs::write(&old, vec![0; 3 << 20]).unwrap();
    fs::File::create(&hole).unwrap().set_len(3 << 20).unwrap();
    let images = [bench.local("a.img"), bench.local("b.img")];
    for (image, from) in images.iter().zip([&old, &hole]) {
        hectare(&["mkfs", "-q", image.to_str().unwrap(), "8M"]).ok();
        hectare(&["cp", from.to_str().unwrap(), &format!("{}:/f", image.display())]).ok();
    }
    assert!(differences(&images[0], &images[1]).is_empty());
}

#[test]
fn times_count_unless_ignored_and_json_has_both_values() {
    let (bench, new) = changed(&["chmod 0600 {}:/d/f", "xattr set user.a 1 {}:/d/f", "mkdir {}:/e"]);
    let ran = hectare(&["diff", "--json", bench.image(), new.to_str().unwrap()]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), ""));
    let json = ran.json();
    assert_eq!((&json[0]["path"], &json[0]["changes"][0]["of"]), (&".".into(), &"mtime".into()));
    let expected = serde_json::json!([
        { "of": "mode", "old": "0644", "new": "0600" },
        { "of": "xattr", "name": "user.a", "old": null, "new": "31" },
    ]);
    assert_eq!((&json[1]["path"], &json[1]["changes"]), (&"d/f".into(), &expected));
    assert_eq!(json[2], serde_json::json!({ "path": "e", "what": "added", "kind": "directory" }));
    let same = hectare(&["diff", "--json", bench.image(), bench.image()]).ok();
    assert_eq!(same.json(), serde_json::json!([]));
}

#[test]
fn directories_of_one_image_are_compared() {
    let (_bench, new) = changed(&["mkdir {}:/e", "cp -a {}:/d/f {}:/e"]);
    let at = |path: &str| format!("{}:{path}", new.display());
    assert_eq!(differences(at("/d").as_ref(), at("/e").as_ref()), [""; 0]);
}

#[test]
fn a_comparison_that_fails_is_no_difference() {
    let (bench, new) = changed(&[]);
    let new = new.to_str().unwrap();
    for (old, reason) in [
        (bench.at("/none"), "disk.img:/none: no such file or directory"),
        (bench.at("/g"), "disk.img:/g: not a directory"),
        (bench.local("none.img").display().to_string(), "No such file or directory"),
    ] {
        let ran = hectare(&["diff", &old, new]);
        assert!(ran.misused().contains(reason), "{}", ran.err);
        let ran = hectare(&["diff", "--json", &old, new]);
        assert!(ran.misused().ends_with("\"exit\":2}"), "{}", ran.err);
    }
}

/// What two copies of a tree show, one by the kernel and one by this program.
#[test]
fn what_the_kernel_and_hectare_wrote_of_one_tree_is_the_same() {
    for tree in [Tree::Ordinary, Tree::Attributes, Tree::Links, Tree::Sparse, Tree::Devices, Tree::Times] {
        let (kernel, source) = match (Bench::filled("ext4", tree), hectare_oracle::source(tree, &SMALL)) {
            (Ok(kernel), Ok(source)) => (kernel, source),
            (Err(reason), _) | (_, Err(reason)) => {
                skip!("cli diff::what_the_kernel_and_hectare_wrote", reason)
            }
        };
        let built = kernel.local("built.img");
        hectare(&["build", "--from", source.to_str().unwrap(), built.to_str().unwrap()]).ok();
        let ran = hectare(&["diff", kernel.image(), built.to_str().unwrap()]);
        assert_eq!((ran.code, ran.text()), (Some(0), ""), "{}: {}", tree.name(), ran.err);
    }
}

const SMALL: hectare_oracle::Scale = hectare_oracle::Scale::SMALL;

#[test]
fn what_lost_and_found_holds_counts_and_an_empty_one_does_not() {
    let (bench, new) = changed(&["rm -r {}:/lost+found"]);
    assert_eq!(differences(&bench.image, &new), [""; 0]);
    let (bench, new) = changed(&["mkdir {}:/lost+found/found"]);
    assert_eq!(differences(&bench.image, &new), ["+ lost+found", "+ lost+found/found"]);
}

#[test]
fn both_are_found_in_the_same_partition() {
    let (bench, _) = changed(&[]);
    let disk = bench.local("whole.img");
    let made = || {
        fs::File::create(&disk).unwrap().set_len(16 << 20).unwrap();
        let table = "label: gpt\nstart=2048, size=20480\n";
        let mut sfdisk = need("sfdisk")?;
        let _ = hectare_oracle::tool::run_with_input(sfdisk.arg("--no-tell-kernel").arg(&disk), table)
            .expect_success();
        let mut dd = need("dd")?;
        let (from, to) = (format!("if={}", bench.image()), format!("of={}", disk.display()));
        let _ = run(dd.args([&from, &to, "bs=1M", "seek=1", "conv=notrunc"])).expect_success();
        Ok::<(), Skip>(())
    };
    if let Err(reason) = made() {
        skip!("cli diff::both_are_found", reason);
    }
    let disk = disk.to_str().unwrap();
    hectare(&["diff", "--partition", "1", disk, disk]).ok();
    // It is the only one.
    hectare(&["diff", disk, disk]).ok();
}
