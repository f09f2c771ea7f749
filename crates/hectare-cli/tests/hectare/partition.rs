//! `--partition` and `--offset` on disks that sfdisk partitioned, against the kernel's loop partitions.

use crate::mount::bench;
use crate::support::hectare;
use hectare_oracle::loops::{Access, LoopDevice};
use hectare_oracle::{assert_clean, skip};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const LEN: u64 = 96 << 20;

/// A disk with a table.
fn disk(name: &str, script: &str) -> Result<PathBuf, hectare_oracle::Skip> {
    let path = hectare_oracle::scratch::fresh(name);
    File::create(&path).unwrap().set_len(LEN).unwrap();
    let mut sfdisk = hectare_oracle::tool::need("sfdisk")?;
    let mut child = sfdisk
        .args(["--quiet", "--no-reread", "--no-tell-kernel"])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    Ok(path)
}

const GPT: &str = "label: gpt\nsize=8MiB\nsize=24MiB\nstart=60MiB, size=16MiB\n";
const DOS: &str = "label: dos\nd1 : size=8MiB, type=83\nd2 : size=16MiB, type=83\nd3 : size=60MiB, type=5\n\
                   d5 : size=12MiB, type=83\nd6 : size=20MiB, type=83\n";

/// What the kernel reports of the partitions of a disk: number, first byte, length.
fn by_kernel(disk: &Path) -> Result<Vec<(u32, u64, u64)>, hectare_oracle::Skip> {
    let looped = LoopDevice::new(disk, Access::ReadOnly)?;
    // Partitions of a loop device appear when the kernel is asked to look.
    let _ = Command::new("partx").arg("--add").arg(looped.path()).output();
    let name = looped.path().file_name().unwrap().to_str().unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/sys/block/{name}")).unwrap() {
        let path = entry.unwrap().path();
        let number = |file: &str| fs::read_to_string(path.join(file)).ok()?.trim().parse::<u64>().ok();
        if let Some(partition) = number("partition") {
            let (start, size) = (number("start").unwrap(), number("size").unwrap());
            found.push((u32::try_from(partition).unwrap(), start * 512, size * 512));
        }
    }
    let _ = Command::new("partx").arg("--delete").arg(looped.path()).output();
    found.sort_unstable();
    Ok(found)
}

fn copy_out(disk: &Path, at: u64, len: u64) -> PathBuf {
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    File::open(disk).unwrap().read_exact_at(&mut bytes, at).unwrap();
    let path = hectare_oracle::scratch::fresh("partition-alone");
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn every_command_works_inside_a_partition() {
    for (kind, script, numbers) in [("gpt", GPT, &[1, 2, 3][..]), ("dos", DOS, &[1, 2, 5, 6])] {
        let path = match disk(&format!("disk-{kind}"), script) {
            Ok(path) => path,
            Err(reason) => skip!("partition::every_command", reason),
        };
        let kernel = match by_kernel(&path) {
            Ok(found) => found,
            Err(reason) => skip!("partition::every_command", reason),
        };
        let data: Vec<_> = kernel.iter().filter(|(number, ..)| numbers.contains(number)).collect();
        assert_eq!(data.len(), numbers.len(), "{kernel:?}");
        let image = path.to_str().unwrap();
        let before = fs::read(&path).unwrap();
        for (number, ..) in &data {
            let n = number.to_string();
            hectare(&["mkfs", "--partition", &n, image]).ok();
            hectare(&["mkdir", "--partition", &n, &format!("{image}:/dir-{n}")]).ok();
        }
        for (number, start, len) in data {
            let (n, at) = (number.to_string(), start.to_string());
            for part in [["--partition", n.as_str()], ["--offset", at.as_str()]] {
                let listed = hectare(&["ls", part[0], part[1], image]).ok();
                assert!(listed.text().contains(&format!("dir-{n}")), "{kind} {n}: {}", listed.text());
                hectare(&["check", part[0], part[1], image]).ok();
                hectare(&["info", part[0], part[1], image]).ok();
            }
            let alone = copy_out(&path, *start, *len);
            if let Err(reason) = assert_clean(&alone) {
                skip!("partition::every_command", reason);
            }
            fs::remove_file(alone).unwrap();
        }
        // Nothing outside of them has changed.
        let after = fs::read(&path).unwrap();
        let mut at = 0;
        for (_, start, len) in kernel.iter().filter(|(number, ..)| numbers.contains(number)) {
            let [start, end] = [*start, start + len].map(|at| usize::try_from(at).unwrap());
            assert!(before[at..start] == after[at..start], "{kind}: {at}..{start}");
            at = end;
        }
        assert!(before[at..] == after[at..]);
        // From one partition of the disk to another.
        let (from, to) = (format!("{image}:/dir-1"), format!("{image}:/copied"));
        hectare(&["cp", "-r", "--from-partition", "1", "--partition", "2", &from, &to]).ok();
        assert!(hectare(&["ls", "--partition", "2", image]).ok().text().contains("copied"));
        assert!(!hectare(&["ls", "--partition", "1", image]).ok().text().contains("copied"));
        // The volume that is written, by another name for its part: it is known to be the same.
        let (_, start, len) = kernel.iter().find(|(number, ..)| *number == 1).unwrap();
        let (at, twice) = (start.to_string(), format!("{image}:/twice"));
        let copied = ["cp", "-r", "--from-offset", &at, "--partition", "1", &from];
        hectare(&[&copied[..], &[&twice]].concat()).ok();
        let inside = format!("{image}:/dir-1/inside");
        assert!(hectare(&[&copied[..], &[&inside]].concat()).refused().contains("into itself"));
        let alone = copy_out(&path, *start, *len);
        assert!(hectare(&["ls", alone.to_str().unwrap()]).ok().text().contains("twice"));
        if let Err(reason) = assert_clean(&alone) {
            skip!("partition::every_command", reason);
        }
        fs::remove_file(alone).unwrap();
        let refused = hectare(&["ls", "--partition", "9", image]);
        assert!(refused.refused().contains("has no partition 9: there are 1, 2,"), "{}", refused.err);
        fs::remove_file(path).unwrap();
    }
}

/// The others stay as they are while one is mounted and written to.
#[test]
fn a_partition_is_mounted_by_its_number() {
    const NAME: &str = "partition::a_partition_is_mounted_by_its_number";
    for (kind, script, number) in [("gpt", GPT, "2"), ("dos", DOS, "6")] {
        let mut bench = bench!(NAME);
        bench.image = match disk(&format!("disk-mounted-{kind}"), script) {
            Ok(path) => path,
            Err(reason) => skip!(NAME, reason),
        };
        let image = bench.image.to_str().unwrap();
        hectare(&["mkfs", "-q", "--partition", number, image]).ok();
        hectare(&["mkfs", "-q", "--partition", "1", image]).ok();
        let before = copy_out(&bench.image, 0, 9 << 20);
        hectare(&[&["mount", "--partition", number][..], &bench.words(&[])].concat()).ok();
        fs::write(bench.dir.join("f"), vec![7; 1 << 20]).unwrap();
        bench.umount();
        let found = hectare(&["cat", "--partition", number, &format!("{image}:/f")]).ok();
        assert!(found.out == vec![7; 1 << 20], "{kind}");
        let after = copy_out(&bench.image, 0, 9 << 20);
        assert!(
            fs::read(&before).unwrap() == fs::read(&after).unwrap(),
            "{kind}: the table, and partition 1"
        );
        let none = hectare(&[&["mount", "--partition", "9"][..], &bench.words(&[])].concat());
        assert!(none.refused().contains("has no partition 9"), "{}", none.err);
        for path in [&bench.image, &before, &after] {
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn a_damaged_gpt_is_read_from_its_copy() {
    let path = match disk("disk-damaged", GPT) {
        Ok(path) => path,
        Err(reason) => skip!("partition::a_damaged_gpt", reason),
    };
    let image = path.to_str().unwrap();
    hectare(&["mkfs", "--partition", "2", image]).ok();
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0xff], 512 + 40).unwrap();
    hectare(&["ls", "--partition", "2", image]).ok();
    file.write_all_at(&[0xff], LEN - 512 + 40).unwrap();
    let refused = hectare(&["ls", "--partition", "2", image]);
    assert!(refused.refused().contains("the checksum of its header is wrong"), "{}", refused.err);
    fs::remove_file(path).unwrap();
}

#[test]
fn a_part_is_refused_where_it_means_nothing() {
    let path = hectare_oracle::scratch::fresh("no-parts");
    File::create(&path).unwrap().set_len(8 << 20).unwrap();
    let image = path.to_str().unwrap();
    hectare(&["mkfs", image]).ok();
    let refused = hectare(&["ls", "--partition", "1", image]);
    assert!(refused.refused().contains("has no partition table"), "{}", refused.err);
    let refused = hectare(&["ls", "--offset", "1G", image]);
    assert_eq!(refused.code, Some(1), "{}", refused.err);
    assert_eq!(hectare(&["ls", "--partition", "1", "--offset", "4k", image]).code, Some(2));
    assert_eq!(hectare(&["ls", "--partition", "0", image]).code, Some(2));
    let refused = hectare(&["build", "--partition", "1", "--from", ".", "-F", image]);
    assert!(refused.refused().contains("has no partition table"), "{}", refused.err);
    fs::remove_file(path).unwrap();
}
