//! salvage: everything of a sound volume, nearly everything of a damaged one, and nothing outside.

use crate::support::{Bench, at, hectare};
use hectare_oracle::{
    KernelMount, Tree, What, assert_clean, assert_same, combos, debugfs, debugfs_write, is_root, mke2fs,
    skip, skip_part, walk,
};
use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Contents, each different.
fn content(nr: u32) -> Vec<u8> {
    (0..3000 + nr % 900).flat_map(|word| (word ^ (nr << 16)).to_le_bytes()).collect()
}

/// A volume by mke2fs with `dir/inner/NR` and `NR`, 40 files.
fn numbered(arguments: &[&str], size: &str) -> Result<Bench, hectare_oracle::Skip> {
    let bench = Bench::empty();
    let source = bench.local("source");
    fs::create_dir_all(source.join("dir/inner")).unwrap();
    for nr in 0..20 {
        fs::write(source.join(format!("dir/inner/{nr}")), content(nr)).unwrap();
        fs::write(source.join((nr + 20).to_string()), content(nr + 20)).unwrap();
    }
    let from = [arguments, &["-d", text(&source)]].concat();
    mke2fs(&from, &bench.image, size)?;
    Ok(bench)
}

macro_rules! numbered {
    ($name:expr, $arguments:expr) => {
        match numbered($arguments, "64M") {
            Ok(bench) => bench,
            Err(reason) => skip!($name, reason),
        }
    };
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => found.extend(files(&entry.path())),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

/// How many of the 40 contents are below a directory.
fn whole(folder: &Path) -> usize {
    let found: HashSet<Vec<u8>> = files(folder).iter().map(|file| fs::read(file).unwrap()).collect();
    (0..40).filter(|nr| found.contains(&content(*nr))).count()
}

fn write(image: &Path, at: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(image).unwrap().write_all_at(bytes, at).unwrap();
}

/// The first block of a file or directory, by debugfs.
fn first_block(image: &Path, path: &str) -> u64 {
    let said = debugfs(image, &[&format!("blocks {path}")]).unwrap();
    let numbers = said.lines().filter(|line| !line.contains("debugfs")).flat_map(str::split_whitespace);
    numbers.filter_map(|word| word.parse().ok()).next().unwrap()
}

/// The first table of blocks of a file with an old map, by debugfs.
fn first_table(image: &Path, path: &str) -> u64 {
    let stat = debugfs(image, &[&format!("stat {path}")]).unwrap();
    let table = stat.split("(IND):").nth(1).and_then(|rest| rest.split([',', '\n', ' ']).next());
    table.and_then(|number| number.parse().ok()).unwrap()
}

/// Salvages into a new directory, with what is doubtful.
#[track_caller]
fn salvaged(bench: &Bench, more: &[&str]) -> (PathBuf, String) {
    let out = bench.local("out");
    let _ = fs::remove_dir_all(&out);
    let ran = hectare(&[&["salvage", bench.image(), "-o", text(&out)], more].concat());
    assert!(matches!(ran.code, Some(0 | 1)), "{}: {:?}\n{}", ran.line, ran.code, ran.err);
    (out, ran.err)
}

#[test]
fn a_sound_volume_comes_out_as_cp_copies_it() {
    for combo in combos() {
        let name = format!("cli salvage, {}", combo.name);
        let bench = match Bench::filled(combo.name, Tree::Links) {
            Ok(bench) => bench,
            Err(reason) => {
                skip_part!(name, reason);
                continue;
            }
        };
        let copy = bench.local("copy");
        hectare(&["cp", "-a", &bench.at("/."), text(&copy)]);
        let out = bench.local("out");
        let ran = hectare(&["salvage", bench.image(), "-o", text(&out)]);
        assert_eq!(ran.code, Some(0), "{}: {}", combo.name, ran.err);
        if copy.exists() {
            assert_same(&walk(&out), &walk(&copy), What { owners: is_root(), ..What::all() });
        }
    }
}

#[test]
fn a_volume_comes_out_without_superblocks_descriptors_or_names() {
    for arguments in
        [&["-t", "ext4", "-b", "4096"][..], &["-t", "ext2", "-b", "1024"], &["-t", "ext3", "-b", "4096"]]
    {
        let bench = numbered!("salvage::without_superblocks", arguments);
        let (out, said) = salvaged(&bench, &[]);
        assert_eq!((whole(&out), said.contains("doubtful:")), (40, false), "{said}");
        let fresh = fs::read(&bench.image).unwrap();
        // The first superblock; all descriptors beside it.
        write(&bench.image, 1024, &[0; 1024]);
        let (out, said) = salvaged(&bench, &[]);
        if arguments.contains(&"1024") {
            assert_eq!(whole(&out), 40, "{said}");
        }
        fs::write(&bench.image, &fresh).unwrap();
        let size = if arguments.contains(&"1024") { 1024 } else { 4096 };
        write(&bench.image, if size == 1024 { 2048 } else { 4096 }, &vec![0xa5; size]);
        let (out, said) = salvaged(&bench, &[]);
        assert_eq!(whole(&out), 40, "{arguments:?}: {said}");
        fs::write(&bench.image, &fresh).unwrap();
        // The names of the root directory, then those of another one as well.
        let size = u64::try_from(size).unwrap();
        write(&bench.image, first_block(&bench.image, "/") * size, &[0; 1024]);
        let (out, said) = salvaged(&bench, &[]);
        assert_eq!(whole(&out), 40, "{said}");
        let lost = out.join("lost+found");
        let dir = fs::read_dir(&lost).unwrap().map(|entry| entry.unwrap().path().join("inner/7"));
        assert!(dir.into_iter().any(|file| file.exists()), "names below a lost name stay: {said}");
        assert!(said.contains("no name leads to it"), "{said}");
    }
}

#[test]
fn a_directory_whose_inode_is_lost_keeps_its_names() {
    for arguments in [&["-t", "ext4", "-b", "4096"][..], &["-t", "ext2", "-b", "1024"]] {
        let bench = numbered!("salvage::a_directory_whose_inode_is_lost", arguments);
        if let Err(reason) = debugfs_write(&bench.image, &["clri dir/inner"]) {
            skip!("salvage::a_directory_whose_inode_is_lost", reason);
        }
        let (out, said) = salvaged(&bench, &[]);
        assert_eq!(whole(&out), 40, "{said}");
        assert!(fs::read(out.join("dir/inner/7")).unwrap() == content(7), "{said}");
        assert!(said.contains("its inode is lost"), "{said}");
    }
}

#[test]
fn hostile_names_stay_inside() {
    let bench = numbered!("salvage::hostile_names", &["-t", "ext2", "-b", "1024"]);
    // `..` as a name of a directory, and slashes, in the block of the root.
    let place = first_block(&bench.image, "/") * 1024;
    let mut block = vec![0; 1024];
    fs::File::open(&bench.image).unwrap().read_exact_at(&mut block, place).unwrap();
    for (from, to) in [(&b"20"[..], &b".."[..]), (b"21", b"/x"), (b"22", b"\0x"), (b"23", b"24")] {
        let at = block.windows(2).position(|window| window == from).unwrap();
        block[at..at + 2].copy_from_slice(to);
    }
    write(&bench.image, place, &block);
    let before: Vec<PathBuf> =
        fs::read_dir(bench.folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
    let (out, said) = salvaged(&bench, &[]);
    assert_eq!(whole(&out), 40, "{said}");
    let after: Vec<PathBuf> = fs::read_dir(bench.folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(after.len(), before.len() + 1, "{after:?}");
    assert!(said.contains("its name was"), "{said}");
}

#[test]
fn an_interrupted_run_is_continued() {
    let bench = numbered!("salvage::an_interrupted_run", &["-t", "ext4"]);
    let (out, _) = salvaged(&bench, &[]);
    let refused = hectare(&["salvage", bench.image(), "-o", text(&out)]);
    assert!(refused.err.contains("--resume"), "{}", refused.err);
    let inode = |name: &str| fs::metadata(out.join(name)).unwrap().ino();
    fs::remove_file(out.join("dir/inner/3")).unwrap();
    OpenOptions::new().write(true).open(out.join("25")).unwrap().set_len(100).unwrap();
    let (kept, begun) = (fs::metadata(out.join("26")).unwrap().ctime_nsec(), inode("25"));
    hectare(&["salvage", bench.image(), "-o", text(&out), "--resume"]).ok();
    assert_eq!(whole(&out), 40);
    assert_eq!((fs::metadata(out.join("26")).unwrap().ctime_nsec(), inode("25")), (kept, begun));
}

#[test]
fn an_archive_and_an_image_have_the_same() {
    let bench = numbered!("salvage::an_archive_and_an_image", &["-t", "ext4"]);
    let (archive, image) = (bench.local("all.tar"), bench.local("new.img"));
    hectare(&["salvage", bench.image(), "-o", &format!("tar:{}", text(&archive))]).ok();
    let unpacked = bench.local("unpacked");
    fs::create_dir(&unpacked).unwrap();
    let tar = std::process::Command::new("tar").args(["-xf", text(&archive), "-C", text(&unpacked)]).status();
    assert!(tar.unwrap().success());
    assert_eq!(whole(&unpacked), 40);
    hectare(&["salvage", bench.image(), "-o", text(&image)]).ok();
    assert_clean(&image).unwrap();
    let copy = bench.local("copy");
    hectare(&["cp", "-a", &at(&image, "/."), text(&copy)]);
    assert_eq!(whole(&copy), 40);
    let refused = hectare(&["salvage", bench.image(), "-o", bench.image()]);
    assert!(refused.refused().contains("it is the image that is read"));
}

#[test]
fn the_report_names_what_is_doubtful() {
    let bench = numbered!("salvage::the_report", &["-t", "ext4", "-b", "4096"]);
    let report = bench.local("report.json");
    // One byte of an inode is corrected; its checksum and more are not.
    let said = debugfs(&bench.image, &["imap /30", "imap /31"]).unwrap();
    let places: Vec<u64> = said
        .lines()
        .filter_map(|line| line.split_once("located at block ")?.1.split_once(", offset 0x"))
        .map(|(block, offset)| {
            block.parse::<u64>().unwrap() * 4096 + u64::from_str_radix(offset.trim(), 16).unwrap()
        })
        .collect();
    write(&bench.image, places[0] + 8, &[0x77]);
    write(&bench.image, places[1] + 8, &[0x77; 6]);
    let (out, _) = salvaged(&bench, &["--report", text(&report)]);
    assert_eq!(whole(&out), 40);
    let report: serde_json::Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    let doubts = |path: &str| {
        let all = report["doubtful"].as_array().unwrap();
        all.iter().find(|doubtful| doubtful["path"] == path).unwrap()["doubts"][0]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(doubts("30").contains("corrected"), "{report}");
    assert!(doubts("31").contains("checksum"), "{report}");
    assert_eq!(report["doubtful"].as_array().unwrap().len(), 2, "{report}");
}

/// Who puts files into a volume and removes them.
#[derive(Clone, Copy, PartialEq, Debug)]
enum By {
    Kernel,
    /// With `data=journal`.
    KernelJournalling,
    Mount,
    Commands,
}

/// Contents whose maps are larger than an inode in a volume with blocks of 1 KiB: long ones, and holes.
fn mapped_apart(nr: u32) -> Vec<u8> {
    let mut bytes = [content(nr), content(nr + 1000)].concat();
    if nr % 2 == 1 {
        bytes.chunks_mut(1024).skip(1).step_by(2).for_each(|hole| hole.fill(0));
    }
    bytes
}

/// Syncs the volume that is mounted at `top`: other tests mind a sync of all that the machine has.
fn sync(top: &Path) {
    rustix::fs::syncfs(fs::File::open(top).unwrap()).unwrap();
}

/// Writes `gone/NR`, holes as holes, and removes them all; `Err` if it can't be done here.
fn come_and_go(bench: &Bench, by: By) -> Result<(), hectare_oracle::Skip> {
    let fill = |top: &Path| {
        fs::create_dir(top.join("gone")).unwrap();
        for nr in 0..40 {
            let bytes = mapped_apart(nr);
            let file = fs::File::create(top.join(format!("gone/{nr}"))).unwrap();
            for (at, part) in (0..).zip(bytes.chunks(1024)).filter(|(_, part)| part.iter().any(|b| *b != 0)) {
                file.write_all_at(part, at * 1024).unwrap();
            }
            file.set_len(hectare_units::u64_of(bytes.len())).unwrap();
        }
    };
    let both = |top: &Path| {
        fill(top);
        sync(top);
        fs::remove_dir_all(top.join("gone")).unwrap();
    };
    match by {
        By::Kernel | By::KernelJournalling => {
            let options = if by == By::Kernel { "" } else { "data=journal" };
            let mount = KernelMount::new(&bench.image, options)?;
            both(mount.path());
            mount.unmount();
        }
        By::Mount => {
            let dir = bench.local("mounted");
            fs::create_dir(&dir).unwrap();
            hectare(&["mount", bench.image(), text(&dir)]).ok();
            both(&dir);
            hectare(&["umount", text(&dir)]).ok();
        }
        By::Commands => {
            fill(&bench.local(""));
            hectare(&["cp", "-r", text(&bench.local("gone")), &bench.at("/")]).ok();
            hectare(&["rm", "-r", &bench.at("/gone")]).ok();
        }
    }
    Ok(())
}

#[test]
fn regression_removed_files_come_back_with_their_maps() {
    for kind in ["ext3", "ext4"] {
        for by in [By::Kernel, By::KernelJournalling, By::Mount, By::Commands] {
            let name = format!("salvage, removed from {kind} by {by:?}");
            if by != By::Commands && !(is_root() && Path::new("/dev/fuse").exists()) {
                skip_part!(name, "mounting needs root and /dev/fuse");
                continue;
            }
            let bench = Bench::empty();
            if let Err(reason) = mke2fs(&["-t", kind, "-b", "1024"], &bench.image, "64M") {
                skip!("salvage::removed_files_come_back", reason);
            }
            if let Err(reason) = come_and_go(&bench, by) {
                skip_part!(name, reason);
                continue;
            }
            let (out, said) = salvaged(&bench, &["--deleted"]);
            let found: HashSet<Vec<u8>> =
                files(&out.join("deleted")).iter().map(|file| fs::read(file).unwrap()).collect();
            let lost: Vec<u32> = (0..40).filter(|nr| !found.contains(&mapped_apart(*nr))).collect();
            assert_eq!(lost, [0; 0], "{kind}, {by:?}\n{said}");
            assert!(!out.join("gone").exists());
        }
    }
}

/// A content of several blocks, of which some begin with the magic number of the journal's own blocks.
fn like_the_log(nr: u32) -> Vec<u8> {
    let mut bytes = content(nr);
    bytes.chunks_mut(4096).step_by(2).for_each(|block| block[..4].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98]));
    bytes
}

/// Makes an ext4 volume whose kernel journals data, and has it do something.
fn journalling(bench: &Bench, block: &str, work: impl FnOnce(&Path)) -> Result<(), hectare_oracle::Skip> {
    mke2fs(&["-t", "ext4", "-b", block, "-J", "size=16"], &bench.image, "96M")?;
    let mount = KernelMount::new(&bench.image, "data=journal")?;
    work(mount.path());
    mount.unmount();
    Ok(())
}

#[test]
fn removed_content_that_only_the_log_has_comes_back() {
    for block in ["1024", "4096"] {
        let name = format!("salvage, removed, data=journal, {block}");
        let bench = Bench::empty();
        let made = journalling(&bench, block, |top| {
            fs::create_dir(top.join("gone")).unwrap();
            for nr in 0..40 {
                fs::write(top.join(format!("gone/{nr}")), like_the_log(nr)).unwrap();
            }
            sync(top);
            fs::remove_dir_all(top.join("gone")).unwrap();
        });
        if let Err(reason) = made {
            skip_part!(name, reason);
            continue;
        }
        // Nothing of it lies at its place: whatever is there that is content by its looks is none.
        let mut bytes = fs::read(&bench.image).unwrap();
        let log = journal_blocks(&bench.image);
        let size = block.parse::<usize>().unwrap();
        for (nr, place) in bytes.chunks_mut(size).enumerate() {
            if !log.contains(&nr) && place.starts_with(&[0xc0, 0x3b, 0x39, 0x98]) {
                place.fill(0xee);
            }
        }
        fs::write(&bench.image, bytes).unwrap();
        let (out, said) = salvaged(&bench, &["--deleted"]);
        let found: HashSet<Vec<u8>> =
            files(&out.join("deleted")).iter().map(|file| fs::read(file).unwrap()).collect();
        let lost: Vec<u32> = (0..40).filter(|nr| !found.contains(&like_the_log(*nr))).collect();
        assert_eq!(lost, [0; 0], "{name}\n{said}");
    }
}

/// The blocks of the journal.
fn journal_blocks(image: &Path) -> HashSet<usize> {
    let said = debugfs(image, &["blocks <8>"]).unwrap();
    let lines = said.lines().filter(|line| !line.contains("debugfs"));
    lines.flat_map(str::split_whitespace).filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn newest_content_that_only_the_log_has_comes_out() {
    let bench = Bench::empty();
    let copy = bench.local("crashed.img");
    let made = journalling(&bench, "4096", |top| {
        for nr in 0..20 {
            fs::write(top.join(nr.to_string()), content(nr + 20)).unwrap();
        }
        sync(top);
        // Written over: the older content is at its place, or in the log as well.
        for nr in 0..20 {
            let file = OpenOptions::new().write(true).open(top.join(nr.to_string())).unwrap();
            file.write_all_at(&like_the_log(nr), 0).unwrap();
            file.set_len(hectare_units::u64_of(like_the_log(nr).len())).unwrap();
            file.sync_all().unwrap();
        }
        // As after a power cut.
        fs::copy(&bench.image, &copy).unwrap();
    });
    if let Err(reason) = made {
        skip!("salvage::newest_content_that_only_the_log_has", reason);
    }
    let out = bench.local("out");
    let ran = hectare(&["salvage", text(&copy), "-o", text(&out)]);
    let wrong: Vec<u32> =
        (0..20).filter(|nr| fs::read(out.join(nr.to_string())).unwrap() != like_the_log(*nr)).collect();
    assert_eq!(wrong, [0; 0], "{}", ran.err);
    // Without the log it is older, or there is nothing: so the log is what has it.
    let _ = fs::remove_dir_all(&out);
    hectare(&["salvage", text(&copy), "-o", text(&out), "--no-journal"]);
    let newest = |nr: &u32| fs::read(out.join(nr.to_string())).is_ok_and(|found| found == like_the_log(*nr));
    assert!((0..20).filter(newest).count() < 20);
}

/// In a volume that logs metadata only, blocks of directories that became content of files are in the log.
#[test]
fn old_metadata_in_the_log_is_not_content_of_a_removed_file() {
    let bench = Bench::empty();
    if let Err(reason) = mke2fs(&["-t", "ext4", "-b", "1024", "-J", "size=4"], &bench.image, "16M") {
        skip!("salvage::old_metadata_in_the_log", reason);
    }
    let mount = match KernelMount::new(&bench.image, "") {
        Ok(mount) => mount,
        Err(reason) => skip!("salvage::old_metadata_in_the_log", reason),
    };
    let top = mount.path();
    for round in 0..3 {
        for dir in 0..30 {
            let dir = top.join(format!("dir{dir}"));
            fs::create_dir(&dir).unwrap();
            (0..20).for_each(|nr| fs::write(dir.join(format!("{nr:0180}")), "").unwrap());
        }
        sync(top);
        (0..30).for_each(|dir| fs::remove_dir_all(top.join(format!("dir{dir}"))).unwrap());
        sync(top);
        // Files take the blocks of the directories.
        (0..200).for_each(|nr| fs::write(top.join(format!("{round}-{nr}")), content(nr % 40)).unwrap());
        sync(top);
        (0..200).for_each(|nr| fs::remove_file(top.join(format!("{round}-{nr}"))).unwrap());
        sync(top);
    }
    (0..200).for_each(|nr| fs::write(top.join(format!("kept{nr}")), content(nr + 300)).unwrap());
    sync(top);
    (0..200).for_each(|nr| fs::remove_file(top.join(format!("kept{nr}"))).unwrap());
    mount.unmount();
    let (out, said) = salvaged(&bench, &["--deleted"]);
    // Nobody used the blocks of the last files again: not one has anything else for its content.
    let found: HashSet<Vec<u8>> =
        files(&out.join("deleted")).iter().map(|file| fs::read(file).unwrap()).collect();
    let lost: Vec<u32> = (0..200).filter(|nr| !found.contains(&content(nr + 300))).collect();
    assert_eq!(lost, [0; 0], "{said}");
}

#[test]
fn what_an_image_claims_without_end_is_left_out_by_name() {
    let bench = Bench::empty();
    let source = bench.local("source");
    fs::create_dir(&source).unwrap();
    (0..40_u8).for_each(|nr| fs::write(source.join(nr.to_string()), vec![nr; 5000]).unwrap());
    for nr in 0..2000 {
        fs::write(source.join(format!("empty{nr}")), "").unwrap();
    }
    let arguments = ["-t", "ext2", "-b", "1024", "-I", "128", "-N", "4000", "-d", text(&source)];
    if let Err(reason) = mke2fs(&arguments, &bench.image, "10M") {
        skip!("salvage::what_an_image_claims_without_end", reason);
    }
    // All empty files become files of 12 blocks, the same for all; together more than twice the volume.
    let mut bytes = fs::read(&bench.image).unwrap();
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (per_group, blocks) = (word(&bytes, 1024 + 0x28), word(&bytes, 1024 + 4));
    let groups = (blocks - 1).div_ceil(word(&bytes, 1024 + 0x20));
    let first: u32 = first_block(&bench.image, "/7").try_into().unwrap();
    let mut hostile = 0;
    for group in 0..groups {
        let table = word(&bytes, 2048 + hectare_units::usize_of(group) * 32 + 8);
        for slot in 0..per_group {
            let at = hectare_units::usize_of(table * 1024 + slot * 128);
            let is_empty_file = bytes[at + 1] >> 4 == 8 && word(&bytes, at + 4) == 0 && word(&bytes, at) != 0;
            if is_empty_file && group * per_group + slot > 11 {
                bytes[at + 4..at + 8].copy_from_slice(&(12 * 1024_u32).to_le_bytes());
                bytes[at + 28..at + 32].copy_from_slice(&24_u32.to_le_bytes());
                for step in 0..12 {
                    let number = at + 40 + hectare_units::usize_of(step) * 4;
                    bytes[number..number + 4].copy_from_slice(&(first + step).to_le_bytes());
                }
                hostile += 1;
            }
        }
    }
    assert!(hostile >= 2000, "{hostile}");
    fs::write(&bench.image, &bytes).unwrap();
    let report = bench.local("report.json");
    let out = bench.local("out");
    let ran = hectare(&["salvage", bench.image(), "-o", text(&out), "--report", text(&report)]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let copied: u64 = files(&out).iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!(copied <= 2 * hectare_units::u64_of(bytes.len()), "{copied} bytes");
    let report: serde_json::Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    let left_out = report["doubtful"].as_array().unwrap().iter().filter(|file| {
        let doubts = file["doubts"].as_array().unwrap();
        doubts.iter().any(|doubt| doubt.as_str().unwrap().contains("are left out"))
    });
    let left_out: Vec<_> = left_out.map(|file| file["path"].as_str().unwrap()).collect();
    assert!(left_out.len() > 100, "{}", left_out.len());
    // They are named, and are not there; all the others are.
    for path in &left_out {
        assert!(!out.join(path).exists(), "{path}");
        assert!(ran.err.contains(&format!("/{path}: ")), "{path}");
    }
    let all = files(&out).len();
    assert_eq!(all + left_out.len(), 2040, "{all}");
    // Those that claim least are not left out for those that claim most.
    for nr in 0..40_u8 {
        assert!(fs::read(out.join(nr.to_string())).unwrap() == vec![nr; 5000], "{nr}");
    }
    // The same goes for an archive.
    let archive = bench.local("all.tar");
    let ran = hectare(&["salvage", bench.image(), "-o", &format!("tar:{}", text(&archive))]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(fs::metadata(&archive).unwrap().len() <= 3 * hectare_units::u64_of(bytes.len()));
    assert!(ran.err.contains(left_out[0]), "{}", ran.err);
}

#[test]
fn a_block_that_one_file_names_again_and_again_comes_out_once() {
    let bench = Bench::empty();
    let (source, path) = (bench.local("source"), "large");
    fs::create_dir(&source).unwrap();
    fs::write(source.join(path), [content(7), content(8), content(9)].concat()).unwrap();
    (0..20).for_each(|nr| fs::write(source.join(nr.to_string()), content(nr)).unwrap());
    if let Err(reason) = mke2fs(&["-t", "ext2", "-b", "1024", "-d", text(&source)], &bench.image, "16M") {
        skip!("salvage::a_block_that_one_file_names_again", reason);
    }
    let said = debugfs(&bench.image, &[&format!("blocks {path}")]).unwrap();
    let numbers: Vec<u32> = said
        .lines()
        .filter(|line| !line.contains("debugfs"))
        .flat_map(str::split_whitespace)
        .filter_map(|word| word.parse().ok())
        .collect();
    // The table of blocks comes after the twelve that the inode names: all of its numbers become one.
    let table = first_table(&bench.image, path);
    let all: Vec<u8> = std::iter::repeat_n(numbers[0].to_le_bytes(), 256).flatten().collect();
    write(&bench.image, table * 1024, &all);
    let (out, said) = salvaged(&bench, &[]);
    let file = fs::metadata(out.join(path)).unwrap();
    assert_eq!(file.len(), fs::metadata(source.join(path)).unwrap().len());
    assert!(file.blocks() * 512 <= 16 << 10, "{} blocks", file.blocks());
    assert!(said.contains("are named more than once"), "{said}");
    assert_eq!(whole(&out), 20, "{said}");
}

#[test]
fn regression_lost_tables_and_wrong_sizes_of_old_maps_were_no_doubt() {
    const NAME: &str = "salvage::regression_lost_tables_and_wrong_sizes";
    let fresh = || numbered(&["-t", "ext2", "-b", "1024"], "64M");
    let (lost, short) = match fresh().and_then(|lost| Ok((lost, fresh()?))) {
        Ok(both) => both,
        Err(reason) => skip!(NAME, reason),
    };
    let file = lost.local("large");
    fs::write(&file, [7; 30_000]).unwrap();
    hectare(&["cp", text(&file), &lost.at("/")]).ok();
    let (_, said) = salvaged(&lost, &[]);
    assert!(said.contains(" 0 are doubtful"), "{said}");
    write(&lost.image, first_table(&lost.image, "large") * 1024, &[0; 1024]);
    let (_, said) = salvaged(&lost, &[]);
    assert!(
        said.contains("/large: doubtful: it counts 62 sectors of 512 bytes, and 26 were found"),
        "{said}"
    );
    debugfs_write(&short.image, &["set_inode_field 25 size 100"]).unwrap();
    let (_, said) = salvaged(&short, &[]);
    assert!(said.contains("/25: doubtful: its size is 100 bytes, and its blocks end at 12288"), "{said}");
}

#[test]
fn regression_a_damaged_value_of_an_attribute_came_out_as_sound() {
    const NAME: &str = "salvage::regression_a_damaged_value_of_an_attribute";
    let bench = numbered!(NAME, &["-t", "ext4", "-b", "1024", "-O", "ea_inode"]);
    hectare(&["xattr", "set", "user.long", &"v".repeat(3000), &bench.at("/25")]).ok();
    let is_holder = |nr: &String| {
        let stat = debugfs(&bench.image, &[&format!("stat {nr}")]).unwrap();
        stat.contains("Flags: 0x280000") // EXTENTS and EA_INODE
    };
    let holder = (11..100).map(|nr| format!("<{nr}>")).find(is_holder).unwrap();
    let (_, said) = salvaged(&bench, &[]);
    assert!(said.contains(" 0 are doubtful"), "{said}");
    write(&bench.image, first_block(&bench.image, &holder) * 1024, b"w");
    let (_, said) = salvaged(&bench, &[]);
    assert!(said.contains("attribute user.long: ") && said.contains("the hash of its 3000 bytes"), "{said}");
}

#[test]
fn regression_a_report_replaced_the_volume_that_was_read() {
    let bench = numbered!("salvage::regression_a_report_replaced", &["-t", "ext4"]);
    let before = fs::read(&bench.image).unwrap();
    let out = bench.local("out");
    let ran = hectare(&["salvage", bench.image(), "-o", text(&out), "--report", bench.image()]);
    assert!(ran.refused().contains("it is the image that is read"));
    assert!(fs::read(&bench.image).unwrap() == before && !out.exists());
}

#[test]
fn regression_a_report_replaced_what_was_salvaged() {
    let bench = numbered!("salvage::regression_a_report_replaced_what", &["-t", "ext4"]);
    let out = bench.local("out.img");
    let beside = bench.local("./../").join(bench.folder.path().file_name().unwrap()).join("out.img");
    for report in [&out, &beside] {
        let ran = hectare(&["salvage", bench.image(), "-o", text(&out), "--report", text(report)]);
        assert!(ran.misused().contains("that is the output"), "{}", ran.err);
    }
    hectare(&["salvage", bench.image(), "-o", text(&out), "--report", "/dev/null"]).ok();
    assert_clean(&out).unwrap();
    let report = bench.local("report.json");
    hectare(&["salvage", bench.image(), "-o", text(&bench.local("dir")), "--report", text(&report)]).ok();
    assert!(fs::read(&report).unwrap().starts_with(b"{"));
}

#[test]
fn regression_a_volume_that_ends_in_its_first_block_panicked() {
    let bench = numbered!("salvage::regression_a_volume_that_ends", &["-t", "ext4", "-b", "4096"]);
    for len in [4095, 2560, 2048] {
        OpenOptions::new().write(true).open(&bench.image).unwrap().set_len(len).unwrap();
        let (out, _) = salvaged(&bench, &[]);
        assert_eq!(whole(&out), 0);
    }
}

/// The second name of what an archive can't have was a link to an entry that was not there.
#[test]
fn regression_an_archive_linked_to_what_was_left_out() {
    let bench = Bench::empty();
    let (source, out) = (bench.local("source"), bench.local("out"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&out).unwrap();
    drop(std::os::unix::net::UnixListener::bind(source.join("a")).unwrap());
    fs::hard_link(source.join("a"), source.join("b")).unwrap();
    fs::write(source.join("c"), "c").unwrap();
    fs::hard_link(source.join("c"), source.join("d")).unwrap();
    hectare(&["mkfs", "-q", bench.image(), "8M"]).ok();
    hectare(&["cp", "-a", text(&source), &bench.at("/")]).ok();
    let archive = bench.local("out.tar");
    let ran = hectare(&["salvage", bench.image(), "-o", &format!("tar:{}", text(&archive))]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert_eq!(ran.err.matches("a socket can't be in an archive").count(), 2, "{}", ran.err);
    let mut tar = match hectare_oracle::tool::need("tar") {
        Ok(tar) => tar,
        Err(reason) => skip!("salvage::regression_an_archive_linked_to_what_was_left_out", reason),
    };
    let _ = hectare_oracle::tool::run(tar.arg("-C").arg(&out).arg("-xf").arg(&archive)).expect_success();
    let inode = |name: &str| fs::metadata(out.join("source").join(name)).unwrap().ino();
    assert_eq!(inode("c"), inode("d"));
}
