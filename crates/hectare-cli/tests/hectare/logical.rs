//! `--lv` and `--pv`: logical volumes of groups that LVM2's own tools made on loop devices.
//!
//! The tools run with `--driverloaded n`: no kernel with a device mapper is needed, and nothing is activated.
//! Where a volume lies is compared with what `lvs` says in the tests of `hectare-lvm`.

use crate::mount::bench;
use crate::support::hectare;
use hectare_oracle::loops::{Access, LoopDevice};
use hectare_oracle::tool::need;
use hectare_oracle::{Skip, assert_clean, skip};
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;

/// Runs a tool of LVM2 that sees these devices only.
fn lvm(devices: &[&str], words: &[&str]) -> Result<(), Skip> {
    let filter: String = devices.iter().map(|name| format!("\"a|^{name}$|\",")).collect();
    let config = format!(
        "devices {{ filter=[{filter}\"r|.*|\"] use_devicesfile=0 scan_lvs=0 }} \
         backup {{ backup=0 archive=0 }} \
         global {{ use_lvmpolld=0 use_lvmlockd=0 }} activation {{ monitoring=0 udev_sync=0 }}"
    );
    let mut command = need(words[0])?;
    let output =
        command.args(["--driverloaded", "n", "--config", &config]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    Ok(())
}

/// A file of that many MiB.
fn file(path: &Path, mib: u64) -> String {
    File::create(path).unwrap().set_len(mib << 20).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Two files of 64 MiB with a group `vg`: `root` on the first, `far` on the second, `wide` in stripes on both.
fn group(folder: &Path) -> Result<[String; 2], Skip> {
    let files = [file(&folder.join("one"), 64), file(&folder.join("two"), 64)];
    let loops = [0, 1].map(|n| LoopDevice::new(files[n].as_ref(), Access::ReadWrite));
    let [one, two] = loops;
    let (one, two) = (one?, two?);
    let names = [one.path().to_str().unwrap(), two.path().to_str().unwrap()];
    lvm(&names, &["vgcreate", "-y", "vg", names[0], names[1]])?;
    let make = ["lvcreate", "-an", "-Zn", "-Wn", "-y"];
    lvm(&names, &[&make[..], &["-L", "24M", "-n", "root", "vg", names[0]]].concat())?;
    lvm(&names, &[&make[..], &["-L", "12M", "-n", "far", "vg", names[1]]].concat())?;
    lvm(&names, &[&make[..], &["-i", "2", "-I", "64k", "-L", "24M", "-n", "wide", "vg"]].concat())?;
    Ok(files)
}

#[test]
fn volumes_of_a_group_are_named_or_found() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = match group(folder.path()) {
        Ok(files) => files,
        Err(reason) => skip!("logical::volumes_of_a_group_are_named_or_found", reason),
    };
    let none = hectare(&["ls", &format!("{one}:/")]);
    assert!(
        none.refused().contains("--lv vg/far (12 MiB, it can't be used as it is), --lv vg/root (24 MiB, no")
    );
    hectare(&["mkfs", "-q", "--lv", "vg/root", &one]).ok();
    let found = hectare(&["ls", &format!("{one}:/")]).ok();
    assert!(
        found.err.contains("note: logical volume vg/root is used, the only one with an ext volume"),
        "{}",
        found.err
    );
    let data = folder.path().join("data");
    fs::write(&data, vec![7; 3_000_000]).unwrap();
    let data = data.to_str().unwrap();
    hectare(&["cp", "--lv", "vg/root", data, &format!("{one}:/data")]).ok();
    assert!(hectare(&["cat", "--lv", "vg/root", &format!("{one}:/data")]).ok().out == vec![7; 3_000_000]);
    hectare(&["check", "--lv", "vg/root", &one]).ok();
    // One that lies elsewhere says where.
    let missing = hectare(&["mkfs", "-q", "--lv", "vg/wide", &one]);
    assert!(missing.refused().contains("which is not given: add it with --pv FILE"), "{}", missing.err);
    hectare(&["mkfs", "-q", "--lv", "vg/wide", "--pv", &two, &one]).ok();
    let both = ["--lv", "vg/wide", "--pv", two.as_str()];
    hectare(&[&["cp"][..], &both, &[data, &format!("{one}:/data")]].concat()).ok();
    hectare(&[&["check"][..], &both, &[&one]].concat()).ok();
    // From one to the other, and the second physical volume named as the image.
    let copied = ["cp", "--from-lv", "vg/wide", "--lv", "vg/root", "--pv", &two];
    hectare(&[&copied[..], &[&format!("{one}:/data"), &format!("{one}:/copied")]].concat()).ok();
    assert!(hectare(&["ls", "--lv", "vg/wide", "--pv", &one, &two]).ok().text().contains("data"));
    let raw = folder.path().join("raw");
    let raw = raw.to_str().unwrap();
    hectare(&[&["convert"][..], &both, &[&one, raw]].concat()).ok();
    assert_clean(Path::new(raw)).unwrap();
    let listed = hectare(&["ls", "--pv", &two, &one]);
    assert!(
        listed.refused().contains("--lv vg/root (24 MiB, ext), --lv vg/wide (24 MiB, ext)"),
        "{}",
        listed.err
    );
    assert!(
        hectare(&["identify", "--lv", "vg/root", &one]).ok().text().contains("hectare ls -l --lv=vg/root ")
    );
    assert!(hectare(&["ls", "--lv", "vg/no", &one]).refused().contains("vg/far, vg/root, vg/wide"));
    assert!(hectare(&["ls", "--lv", "root", &one]).misused().contains("VG/LV"));
    assert!(hectare(&["ls", "--lv", "vg/root", data]).refused().contains("is no physical volume"));
    assert!(hectare(&["resize", "--lv", "vg/root", &one, "48M"]).refused().contains("vg/root"));
    let larger = hectare(&["mkfs", "-F", "--lv", "vg/root", &one, "48M"]);
    assert!(larger.refused().contains("48M") || larger.err.contains("50331648"), "{}", larger.err);
}

#[test]
fn a_volume_in_a_partition_is_named_found_and_mounted() {
    const NAME: &str = "logical::a_volume_in_a_partition_is_named_found_and_mounted";
    let mut bench = bench!(NAME);
    let folder = tempfile::tempdir().unwrap();
    let ready = group(folder.path()).and_then(|files| need("sfdisk").map(|sfdisk| (files, sfdisk)));
    let ([one, _], mut sfdisk) = match ready {
        Ok(ready) => ready,
        Err(reason) => skip!(NAME, reason),
    };
    hectare(&["mkfs", "-q", "--lv", "vg/root", &one]).ok();
    bench.image = folder.path().join("disk");
    let disk = file(&bench.image, 70);
    let mut child = sfdisk
        .args(["--quiet", "--no-reread", "--no-tell-kernel", &disk])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"label: gpt\nsize=1MiB\nsize=64MiB\n")
        .unwrap();
    assert!(child.wait().unwrap().success());
    let target = File::options().write(true).open(&disk).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&target, &fs::read(&one).unwrap(), 2 << 20).unwrap();
    let found = hectare(&["ls", &format!("{disk}:/")]).ok();
    assert!(found.err.contains("logical volume vg/root is used"), "{}", found.err);
    let named = ["--partition", "2", "--lv", "vg/root"];
    hectare(&[&["mkdir"][..], &named, &[&format!("{disk}:/made")]].concat()).ok();
    hectare(&[&["mount"][..], &named, &bench.words(&[])].concat()).ok();
    assert!(bench.dir.join("made").is_dir());
    fs::write(bench.dir.join("f"), vec![9; 1 << 20]).unwrap();
    bench.umount();
    assert!(hectare(&[&["cat"][..], &named, &[&format!("{disk}:/f")]].concat()).ok().out == vec![9; 1 << 20]);
    hectare(&[&["check"][..], &named, &[&disk]].concat()).ok();
    // Found, it is resized within its length as well; beyond that it is refused by name.
    hectare_oracle::until(|| hectare(&["check", &disk]).code == Some(0));
    let len = fs::metadata(&disk).unwrap().len();
    let shrunk = hectare(&["resize", "--json", &disk, "16M"]).ok().json();
    let bytes = shrunk["blocks"].as_u64().unwrap() * shrunk["block_size"].as_u64().unwrap();
    assert_eq!((bytes, &shrunk["uncut"]), (16 << 20, &serde_json::Value::Null));
    let refused = hectare(&["resize", &disk, "48M"]);
    assert!(refused.code == Some(1) && refused.err.contains("lvresize"), "{}", refused.err);
    hectare(&["resize", &disk]).ok();
    assert_eq!(fs::metadata(&disk).unwrap().len(), len);
    hectare(&["check", &disk]).ok();
}

#[test]
fn a_volume_on_two_files_is_mounted() {
    const NAME: &str = "logical::a_volume_on_two_files_is_mounted";
    let mut bench = bench!(NAME);
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = match group(folder.path()) {
        Ok(files) => files,
        Err(reason) => skip!(NAME, reason),
    };
    let named = ["--lv", "vg/wide", "--pv", two.as_str()];
    hectare(&[&["mkfs", "-q"][..], &named, &[&one]].concat()).ok();
    bench.image = one.clone().into();
    hectare(&[&["mount"][..], &named, &bench.words(&[])].concat()).ok();
    fs::write(bench.dir.join("f"), vec![9; 1 << 20]).unwrap();
    assert!(hectare(&["ls", "--lv", "vg/far", &two]).refused().contains("is using it"), "both are locked");
    bench.umount();
    assert!(hectare(&[&["cat"][..], &named, &[&format!("{one}:/f")]].concat()).ok().out == vec![9; 1 << 20]);
    hectare(&[&["check"][..], &named, &[&one]].concat()).ok();
}
