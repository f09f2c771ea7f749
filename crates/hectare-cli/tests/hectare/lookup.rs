//! find and du: what GNU's find and du say of the same volume, mounted by the kernel.

use crate::support::{Bench, hectare};
use hectare_oracle::{KernelMount, Skip, Tree, skip};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The lines that a program of the host prints about the mounted volume, with the mount point cut off.
fn of_host(folder: &Path, program: &str, words: &[&str]) -> BTreeSet<String> {
    let output = Command::new(program).args(words).current_dir(folder).env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(str::to_owned).collect()
}

fn lines(words: &[&str]) -> BTreeSet<String> {
    let ran = hectare(words).ok();
    String::from_utf8_lossy(&ran.out).lines().map(str::to_owned).collect()
}

#[test]
fn what_is_found_and_its_size_is_what_the_hosts_programs_say() {
    if let Err(reason) = compare() {
        skip!("cli lookup::what_is_found_and_its_size", reason);
    }
}

fn compare() -> Result<(), Skip> {
    let bench = Bench::filled("ext4", Tree::Ordinary)?;
    let mount = KernelMount::read_only(&bench.image, "")?;
    let root = bench.at("/");
    for (ours, theirs) in [
        (&[][..], &[][..]),
        (&["--type", "f"], &["-type", "f"]),
        (&["--type", "d,l"], &["(", "-type", "d", "-o", "-type", "l", ")"]),
        (&["--name", "*1*"], &["-name", "*1*"]),
        (&["--iname", "*A*"], &["-iname", "*A*"]),
        (&["--larger", "5000"], &["-type", "f", "-size", "+5000c"]),
        (&["--smaller", "100"], &["-type", "f", "-size", "-100c"]),
        (&["--empty"], &["-empty"]),
        (&["--linked"], &["!", "-type", "d", "-links", "+1"]),
        (&["--perm", "111"], &["-perm", "-111"]),
        (&["--newer", "@0", "--max-depth", "1"], &["-maxdepth", "1", "-newermt", "@0"]),
        (&["--older", "2000-01-01T00:00:00Z"], &["!", "-newermt", "2000-01-01T00:00:00Z"]),
        (&["--min-depth", "2"], &["-mindepth", "2"]),
        (&["--path", "/*/*"], &["-path", "./*/*"]),
    ] {
        let found = lines(&[&["find", &root], ours].concat());
        let expected: BTreeSet<String> = of_host(mount.path(), "find", &[&["."], theirs].concat())
            .iter()
            .map(|path| if path == "." { "/".to_owned() } else { path[1..].to_owned() })
            .collect();
        assert_eq!(found, expected, "{ours:?}");
    }
    for (ours, theirs) in
        [(&[][..], &["-k"][..]), (&["-a"], &["-ka"]), (&["-d", "1"], &["-kd1"]), (&["-s"], &["-ks"])]
    {
        // Which of its names a file counts at depends on the order of the walk: sums of directories may differ.
        let sum = |lines: &BTreeSet<String>, root: &str| -> (usize, Option<String>) {
            let of_root = lines.iter().find_map(|line| line.strip_suffix(&format!("\t{root}")));
            (lines.len(), of_root.map(str::to_owned))
        };
        let ours = lines(&[&["du", &root], ours].concat());
        let theirs = of_host(mount.path(), "du", &[theirs, &["."]].concat());
        assert_eq!(sum(&ours, "/"), sum(&theirs, "."));
    }
    mount.unmount();
    Ok(())
}

#[test]
fn owners_of_blocks_and_inodes_are_found_by_number() {
    let bench = Bench::empty();
    let image = bench.image.to_str().unwrap();
    hectare(&["mkfs", "-q", "-b", "4096", image, "16M"]).ok();
    let file = bench.local("file");
    std::fs::write(&file, vec![7; 50_000]).unwrap();
    hectare(&["mkdir", &bench.at("/dir")]).ok();
    hectare(&["cp", file.to_str().unwrap(), &bench.at("/dir/file")]).ok();
    let entry = &hectare(&["find", "--json", &bench.at("/"), "--name", "file"]).ok().json()[0];
    assert_eq!((entry["path"].as_str(), entry["size"].as_u64()), (Some("/dir/file"), Some(50_000)));
    let inode = entry["inode"].to_string();
    assert_eq!(hectare(&["find", &bench.at("/"), "--inode", &inode]).ok().text(), "/dir/file\n");
    let place = match hectare_oracle::debugfs(&bench.image, &["bmap /dir/file 3"]) {
        Ok(said) => said.lines().last().unwrap().trim().to_owned(),
        Err(reason) => skip!("cli lookup::owners_of_blocks", reason),
    };
    assert_eq!(hectare(&["find", &bench.at("/"), "--block", &place]).ok().text(), "/dir/file\n");
    assert_eq!(hectare(&["find", "-0", &bench.at("/dir"), "--type", "d"]).ok().text(), "/dir\0");
    assert!(hectare(&["find", &bench.at("/"), "--type", "x"]).misused().contains("f, d, l"));
    assert!(hectare(&["find", &bench.at("/none")]).refused().contains("no such file"));
}

/// The sums of a walk shifted by one at a directory with a second name: all that came after it was lost.
#[test]
fn regression_a_directory_met_twice_shifted_all_sums() {
    let bench = Bench::empty();
    hectare(&["mkfs", "-q", bench.image(), "16M"]).ok();
    let file = bench.local("file");
    std::fs::write(&file, vec![7; 1_000_000]).unwrap();
    hectare(&["mkdir", &bench.at("/a"), &bench.at("/b")]).ok();
    for place in ["/a/f", "/zz"] {
        hectare(&["cp", file.to_str().unwrap(), &bench.at(place)]).ok();
    }
    if let Err(reason) = hectare_oracle::debugfs_write(&bench.image, &["link a b/again"]) {
        skip!("cli lookup::regression_a_directory_met_twice", reason);
    }
    let ran = hectare(&["du", "-scb", &bench.at("/")]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let total = ran.text().lines().last().unwrap().strip_suffix("\ttotal").unwrap();
    assert!(total.parse::<u64>().unwrap() > 2_000_000, "{total}");
}
