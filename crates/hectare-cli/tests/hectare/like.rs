//! `hectare build --like`: a rebuild differs where the content does.

use crate::support::{Bench, hectare};
use hectare_oracle::mount::Access;
use hectare_oracle::tool::{need, run};
use hectare_oracle::{
    KernelMount, LoopDevice, Scale, Skip, Tree, What, assert_clean, assert_same, skip, skip_part, source,
    walk,
};
use std::fs;
use std::path::Path;

fn text(bench: &Bench, name: &str) -> String {
    bench.local(name).to_str().unwrap().to_owned()
}

/// Builds from a tree, like another image if one is named; returns the blocks that differ.
fn build(bench: &Bench, from: &Path, image: &str, like: Option<&str>) -> u64 {
    let (from, to) = (from.to_str().unwrap(), text(bench, image));
    let mut words = vec!["build", "--json", "--from", from, &to];
    let old = like.map(|like| text(bench, like));
    if let Some(old) = &old {
        words.extend(["--like", old]);
    }
    let said = hectare(&words).ok().json();
    assert_clean(&bench.local(image)).unwrap();
    said["changed_blocks"].as_u64().unwrap_or(u64::MAX)
}

fn check(bench: &Bench, image: &str, from: &Path) -> Result<(), Skip> {
    let mount = KernelMount::read_only(&bench.local(image), "")?;
    let below = |mut all: Vec<hectare_oracle::Entry>| {
        all.retain(|entry| entry.path != b"lost+found" && !entry.path.is_empty());
        all
    };
    assert_same(&below(walk(mount.path())), &below(walk(from)), What::all());
    Ok(())
}

/// A tree of many files, some in extents of their own.
fn tree(folder: &Path) {
    for dir in 0..20 {
        let dir = folder.join(format!("dir{dir:02}"));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..100_usize {
            fs::write(dir.join(format!("file{file:03}")), vec![b'a'; file * 150]).unwrap();
        }
    }
    std::os::unix::fs::symlink("x".repeat(200), folder.join("link")).unwrap();
}

#[test]
fn a_rebuild_without_a_change_is_the_same_and_with_one_differs_there() {
    let bench = Bench::empty();
    let from = bench.local("tree");
    tree(&from);
    build(&bench, &from, "one.img", None);
    assert_eq!(build(&bench, &from, "same.img", Some("one.img")), 0);
    assert!(fs::read(bench.local("one.img")).unwrap() == fs::read(bench.local("same.img")).unwrap());
    fs::write(from.join("dir03/file050"), vec![b'b'; 20_500]).unwrap();
    let changed = build(&bench, &from, "two.img", Some("one.img"));
    assert!((1..100).contains(&changed), "{changed}");
    if let Err(reason) = check(&bench, "two.img", &from) {
        skip_part!("cli like::a_rebuild, kernel", reason);
    }
}

#[test]
fn what_is_gone_new_or_larger_finds_its_place() {
    let bench = Bench::empty();
    let from = bench.local("tree");
    tree(&from);
    build(&bench, &from, "0.img", None);
    let checked = || -> Result<(), Skip> {
        // Names of the new ones come before, between and after the old ones.
        fs::remove_dir_all(from.join("dir05")).unwrap();
        fs::create_dir(from.join("aaa")).unwrap();
        fs::write(from.join("aaa/new"), vec![1; 700_000]).unwrap();
        fs::hard_link(from.join("dir00/file099"), from.join("dir06/link")).unwrap();
        fs::remove_file(from.join("dir07/file010")).unwrap();
        fs::create_dir(from.join("dir07/file010")).unwrap();
        assert!(build(&bench, &from, "1.img", Some("0.img")) < 400);
        check(&bench, "1.img", &from)?;
        // More than the old volume has room for: several times its size, and more inodes.
        fs::write(from.join("dir06/huge"), vec![2; 60 << 20]).unwrap();
        for file in 0..3000 {
            fs::write(from.join(format!("aaa/{file}")), "x").unwrap();
        }
        build(&bench, &from, "2.img", Some("1.img"));
        check(&bench, "2.img", &from)?;
        // And back.
        fs::remove_file(from.join("dir06/huge")).unwrap();
        build(&bench, &from, "3.img", Some("2.img"));
        check(&bench, "3.img", &from)
    };
    if let Err(reason) = checked() {
        skip!("cli like::what_is_gone", reason);
    }
}

#[test]
fn volumes_of_others_are_models_too() {
    let bench = Bench::empty();
    let checked = || -> Result<(), Skip> {
        for awkward in [Tree::Links, Tree::Attributes, Tree::Fragmented, Tree::Ordinary, Tree::Sparse] {
            let from = source(awkward, &Scale::SMALL)?;
            let (old, new) = (text(&bench, "old.img"), text(&bench, "new.img"));
            for format in ["ext4", "ext2"] {
                let mut mke2fs = need("mke2fs")?;
                mke2fs.args([
                    "-q",
                    "-F",
                    "-t",
                    format,
                    "-b",
                    "4096",
                    "-d",
                    from.to_str().unwrap(),
                    &old,
                    "64M",
                ]);
                let _made = run(&mut mke2fs).expect_success();
                let from = from.to_str().unwrap();
                hectare(&["build", "-F", "-t", format, "--from", from, "--like", &old, &new]).ok();
                assert_clean(&bench.local("new.img")).unwrap();
                check(&bench, "new.img", Path::new(from))?;
            }
        }
        Ok(())
    };
    if let Err(reason) = checked() {
        skip!("cli like::volumes_of_others", reason);
    }
}

#[test]
fn a_model_that_can_t_be_one_is_refused() {
    let bench = Bench::empty();
    let from = bench.local("tree");
    fs::create_dir(&from).unwrap();
    let (from, old, new) = (text(&bench, "tree"), text(&bench, "old.img"), text(&bench, "new.img"));
    let like = |words: &[&str]| hectare(&[&["build", "--from", &from, "--like", &old, &new], words].concat());
    hectare(&["mkfs", "-q", "-b", "1024", &old, "8M"]).ok();
    assert!(like(&[]).refused().contains("blocks of 1024, and the new one would have 4096"));
    hectare(&["mkfs", "-q", "-F", "-b", "4096", "-O", "bigalloc", &old, "64M"]).ok();
    assert!(like(&[]).refused().contains("bigalloc"));
    fs::write(&old, "no volume").unwrap();
    assert!(like(&[]).refused().contains("old.img"));
    fs::remove_file(&old).unwrap();
    assert!(like(&[]).refused().contains("old.img"));
    assert!(like(&["--size", "1G"]).misused().contains("--like"));
    assert!(!bench.local("new.img").exists());
}

#[test]
fn the_content_of_an_image_is_a_source() {
    let bench = Bench::empty();
    let from = bench.local("tree");
    tree(&from);
    let checked = || -> Result<(), Skip> {
        build(&bench, &from, "old.img", None);
        let old = text(&bench, "old.img");
        build(&bench, Path::new(&old), "new.img", None);
        check(&bench, "new.img", &from)?;
        build(&bench, Path::new(&format!("{old}:/dir03")), "part.img", None);
        check(&bench, "part.img", &from.join("dir03"))
    };
    if let Err(reason) = checked() {
        skip!("cli like::the_content_of_an_image", reason);
    }
}

#[test]
fn an_image_that_can_t_be_read_whole_is_no_source() {
    let bench = Bench::empty();
    let from = bench.local("tree");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("a"), vec![1; 5000]).unwrap();
    fs::write(from.join("b"), vec![2; 5000]).unwrap();
    build(&bench, &from, "old.img", None);
    // The magic of the extent tree of a file.
    let stat = hectare(&["stat", "--json", &format!("{}:/b", text(&bench, "old.img"))]).ok().json();
    let nr = stat[0]["inode"].as_u64().unwrap();
    let mut bytes = fs::read(bench.local("old.img")).unwrap();
    let table = bytes.windows(2).enumerate().filter(|(_, two)| *two == [0x0a, 0xf3]).map(|(at, _)| at);
    let roots: Vec<usize> = table.filter(|at| at % 256 == 40).collect();
    let last = *roots.last().unwrap_or_else(|| panic!("inode {nr} has an extent tree"));
    bytes[last] = 0;
    fs::write(bench.local("old.img"), bytes).unwrap();
    let (old, new) = (text(&bench, "old.img"), text(&bench, "new.img"));
    let ran = hectare(&["build", "--from", &old, &new]);
    assert!(ran.refused().contains("old.img:/b"), "{}", ran.err);
    assert!(!bench.local("new.img").exists());
}

#[test]
fn regression_a_pipe_with_an_archive_is_opened_once() {
    let bench = Bench::empty();
    let script = "mkfifo pipe; mkdir d; echo x > d/f; tar -cf whole.tar d
        cat whole.tar > pipe & \"$0\" build --from pipe one.img && wait $! && \"$0\" ls one.img:/d";
    let mut timed = match need("timeout") {
        Ok(timed) => timed,
        Err(reason) => skip!("cli like::regression_a_pipe", reason),
    };
    timed.args(["60", "sh", "-ec", script, env!("CARGO_BIN_EXE_hectare")]).current_dir(bench.folder.path());
    let said = run(&mut timed).expect_success();
    assert_eq!(said.stdout.trim(), "f");
}

#[test]
fn regression_a_device_is_no_target_of_a_rebuild() {
    let bench = Bench::empty();
    let from = bench.local("tree");
    fs::create_dir(&from).unwrap();
    build(&bench, &from, "old.img", None);
    fs::File::create(bench.local("disk")).unwrap().set_len(64 << 20).unwrap();
    let device = match LoopDevice::new(&bench.local("disk"), Access::ReadWrite) {
        Ok(device) => device,
        Err(reason) => skip!("cli like::regression_a_device", reason),
    };
    let (old, path) = (text(&bench, "old.img"), device.path().to_str().unwrap().to_owned());
    let ran = hectare(&["build", "-F", "--from", from.to_str().unwrap(), "--like", &old, &path]);
    assert!(ran.refused().contains("--like makes images in files only"), "{}", ran.err);
}

#[test]
fn regression_mke2fs_does_not_unpack_a_container_image() {
    let bench = Bench::empty();
    let from = bench.local("tree");
    fs::create_dir(&from).unwrap();
    build(&bench, &from, "old.img", None);
    let (old, layout, image) = (text(&bench, "old.img"), text(&bench, "layout"), text(&bench, "new.img"));
    hectare(&["export", &old, "-o", &format!("oci:{layout}")]).ok();
    hectare(&["build", "--verify-only", "--from", &layout]).ok();
    let ran = hectare(&["mke2fs", "-q", "-d", &layout, &image, "64M"]);
    assert!(ran.code == Some(1) && ran.err.contains("it is a container image"), "{}", ran.err);
    assert!(!bench.local("new.img").exists());
}
