//! Fast commits that the kernel wrote, read record by record as debugfs prints them.

use crate::recovery::kernel::left_by_the_kernel;
use hectare_journal::format::FastRecord;
use hectare_oracle::{debugfs, skip};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

fn work(root: &Path) {
    let folder = root.join("folder");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("gone"), "x").unwrap();
    File::open(&folder).unwrap().sync_all().unwrap();
    let _ = hectare_oracle::tool::run(hectare_oracle::tool("sync").unwrap().arg("-f").arg(root));
    for i in 0..5 {
        let mut file = File::create(folder.join(format!("file-{i}"))).unwrap();
        file.write_all(&vec![b'a'; 3000 * (i + 1)]).unwrap();
        file.sync_all().unwrap();
    }
    fs::hard_link(folder.join("file-1"), folder.join("linked")).unwrap();
    fs::remove_file(folder.join("gone")).unwrap();
    let file = File::options().write(true).open(folder.join("file-1")).unwrap();
    file.set_len(1000).unwrap();
    file.sync_all().unwrap();
}

/// A record in the words of debugfs' log dump.
fn as_printed(record: &FastRecord) -> String {
    match record {
        FastRecord::AddRange { inode, first, len, start, .. } => {
            format!("ADD_RANGE, inode {inode}, lblk {first}, pblk {start}, len {len}")
        }
        FastRecord::DelRange { inode, first, len } => {
            let first = first.get().cast_signed(); // so debugfs prints it
            format!("DEL_RANGE, inode {inode}, lblk {first}, len {len}")
        }
        FastRecord::Create(entry) => named("CREAT_DENTRY", entry),
        FastRecord::Link(entry) => named("ADD_ENTRY", entry),
        FastRecord::Unlink(entry) => named("DEL_ENTRY", entry),
        FastRecord::Inode { inode, .. } => format!("INODE, inode {inode}"),
    }
}

fn named(tag: &str, entry: &hectare_journal::format::FastEntry) -> String {
    let name = String::from_utf8_lossy(&entry.name);
    format!("{tag}, parent {}, ino {}, name \"{name}\"", entry.parent, entry.inode)
}

#[test]
fn fast_commits_of_the_kernel_are_read_as_debugfs_reads_them() {
    let test = "recovery::fast::fast_commits_of_the_kernel";
    let args = ["-b", "4096", "-O", "fast_commit", "-J", "size=8"];
    let volume = match left_by_the_kernel(&args, "", work, |recovery| recovery.fast_commits().len() >= 6) {
        Ok((volume, _)) => volume,
        Err(reason) => skip!(test, reason),
    };
    let recovery = volume.recovery().unwrap();
    let commits = recovery.fast_commits();
    let image = volume.save();
    let log = debugfs(&image, &["logdump -a"]).unwrap();
    fs::remove_file(image).unwrap();
    let lines = log.lines().filter_map(|line| line.strip_prefix("tag "));
    let of_commits = |line: &&str| !["HEAD", "TAIL", "PAD"].iter().any(|tag| line.starts_with(tag));
    // debugfs prints one byte of the next record behind a name.
    let cleaned = |line: &str| line.replace(|c: char| c.is_control(), "");
    let theirs: Vec<String> = lines.clone().filter(of_commits).map(cleaned).collect();
    let ours: Vec<String> = commits.iter().flat_map(|commit| &commit.records).map(as_printed).collect();
    assert_eq!(ours, theirs);
    assert_eq!(commits.len(), lines.filter(|line| line.starts_with("TAIL")).count());
}
