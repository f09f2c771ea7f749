//! What a copy may do to the host: an image's files get no privileges there, and a process that changes a
//! directory at the same time leads neither `cp` nor `build` out of it.

use crate::support::{Bench, Ran, hectare};
use hectare_oracle::tool::{Said, need, run};
use hectare_oracle::{Skip, is_root, skip};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, XattrFlags, makedev, mknodat, renameat_with, setxattr};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

const NOBODY: u32 = 65534;
const CAPABILITY: &str = "security.capability";

/// An image with every kind of file that has privileges on a host.
fn powerful() -> Result<Bench, Skip> {
    if !is_root() {
        return Err(Skip::new("it needs root"));
    }
    let bench = Bench::empty();
    let source = bench.local("source");
    fs::create_dir(&source).unwrap();
    for (name, mode, owner) in [
        ("user", 0o4755, 0),
        ("group", 0o2755, 0),
        ("own", 0o4755, NOBODY),
        ("plain", 0o640, NOBODY),
        ("able", 0o755, 0),
    ] {
        let file = source.join(name);
        fs::write(&file, name).unwrap();
        chown(&file, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir(source.join("dir")).unwrap();
    fs::set_permissions(source.join("dir"), fs::Permissions::from_mode(0o3777)).unwrap();
    // Version 2, effective, CAP_NET_RAW permitted (linux/capability.h).
    let capability = [&[1u8, 0, 0, 2][..], &[0, 0x20, 0, 0], &[0; 12]].concat();
    setxattr(source.join("able"), CAPABILITY, &capability, XattrFlags::empty()).unwrap();
    let mode = Mode::from_raw_mode(0o666);
    mknodat(CWD, source.join("null"), FileType::CharacterDevice, mode, makedev(1, 3)).unwrap();
    mknodat(CWD, source.join("loop"), FileType::BlockDevice, mode, makedev(7, 200)).unwrap();
    hectare(&["build", "--from", source.to_str().unwrap(), bench.image()]).ok();
    Ok(bench)
}

fn mode_of(path: impl AsRef<Path>) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn is_able(path: &Path) -> bool {
    rustix::fs::getxattr(path, CAPABILITY, &mut [0u8; 64][..]).is_ok()
}

/// Runs the binary as an ordinary user with home directory `home`.
fn by_nobody(bench: &Bench, words: &[&str]) -> Result<Said, Skip> {
    let program = bench.local("hectare");
    if !program.exists() {
        crate::support::copy_binary(&program);
        fs::create_dir(bench.local("home")).unwrap();
        chown(bench.local("home"), Some(NOBODY), Some(NOBODY)).unwrap();
        fs::set_permissions(bench.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&bench.image, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let id = NOBODY.to_string();
    let mut setpriv = need("setpriv")?;
    setpriv.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]);
    Ok(run(setpriv.arg(program).args(words).current_dir(bench.local("home"))))
}

#[test]
fn regression_a_program_written_over_another_has_not_its_capabilities() {
    let bench = match powerful() {
        Ok(bench) => bench,
        Err(reason) => skip!("cli copy_trust::regression_a_program_written_over_another", reason),
    };
    let able = format!("{}:/able", bench.image());
    assert!(hectare(&["xattr", "list", &able]).ok().text().contains(CAPABILITY));
    fs::write(bench.local("new"), "another program").unwrap();
    hectare(&["cp", bench.local("new").to_str().unwrap(), &able]).ok();
    assert_eq!(hectare(&["cat", &able]).ok().text(), "another program");
    assert!(!hectare(&["xattr", "list", &able]).ok().text().contains(CAPABILITY));
}

#[test]
fn regression_an_image_makes_no_set_id_programs_of_the_user_who_copies_it() {
    const NAME: &str = "cli copy_trust::regression_an_image_makes_no_set_id_programs";
    let bench = match powerful() {
        Ok(bench) => bench,
        Err(reason) => skip!(NAME, reason),
    };
    for how in ["-rp", "-a"] {
        let to = format!("out{how}");
        let said = match by_nobody(&bench, &["cp", how, &bench.at("/"), &to]) {
            Ok(said) => said,
            Err(reason) => skip!(NAME, reason),
        };
        let out = bench.local("home").join(to);
        let modes = ["user", "group", "own", "plain", "able", "dir"].map(|name| mode_of(out.join(name)));
        assert_eq!(modes, [0o755, 0o755, 0o755, 0o640, 0o755, 0o1777], "{how}");
        assert!(!is_able(&out.join("able")) && !out.join("null").exists(), "{how}");
        assert!(said.stderr.contains("5 files are without their set-ID bits"), "{}", said.stderr);
    }
}

#[test]
fn regression_root_gets_devices_and_set_id_programs_only_for_the_asking() {
    const NAME: &str = "cli copy_trust::regression_root_gets_devices_only_for_the_asking";
    let bench = match powerful() {
        Ok(bench) => bench,
        Err(reason) => skip!(NAME, reason),
    };
    let copied = |words: &[&str]| -> (PathBuf, Ran) {
        let out = bench.local(&format!("out{}", words.concat()));
        let from = bench.at("/");
        let ran = hectare(&[&["cp"], words, &[&from, out.to_str().unwrap()]].concat());
        (out, ran)
    };
    for words in [&["-r"][..], &["-rp"], &["-r", "--devices"], &["-rp", "--devices"]] {
        let (out, ran) = copied(words);
        let devices = words.len() == 2;
        assert_eq!(ran.code, Some(i32::from(!devices)), "{words:?} {}", ran.err);
        for name in ["null", "loop"] {
            let made = fs::symlink_metadata(out.join(name))
                .is_ok_and(|meta| meta.file_type().is_char_device() || meta.file_type().is_block_device());
            assert_eq!(made, devices, "{words:?} {name}");
            assert_eq!(ran.err.contains(&format!("/{name}: it is a device, which only")), !devices);
        }
        for name in ["user", "group", "own", "dir"] {
            assert_eq!(mode_of(out.join(name)) & 0o6000, 0, "{words:?} {name}");
        }
        assert!(!is_able(&out.join("able")), "{words:?}");
    }
    let (out, ran) = copied(&["-a"]);
    let _ = ran.ok();
    let modes = ["user", "group", "own", "dir"].map(|name| mode_of(out.join(name)));
    assert_eq!(modes, [0o4755, 0o2755, 0o4755, 0o3777]);
    assert!(is_able(&out.join("able")) && out.join("null").exists());
    assert_eq!(fs::metadata(out.join("null")).unwrap().rdev(), makedev(1, 3));
}

/// Ends an attack, also when the test fails.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` this many times while `attack` runs repeatedly, with pauses that let some rounds through.
fn while_attacked(attack: impl Fn() + Send + Sync, rounds: u32, mut work: impl FnMut(u32)) {
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(&stopped);
        scope.spawn(|| {
            while !stopped.load(Ordering::Relaxed) {
                for _ in 0..64 {
                    attack();
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for round in 0..rounds {
            work(round);
        }
    });
}

/// Swaps the two, and counts the swaps; at times one of them is missing.
fn exchange(one: &Path, other: &Path, swaps: &AtomicU32) {
    if renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).is_ok() {
        swaps.fetch_add(1, Ordering::Relaxed);
    }
}

/// A directory `in` whose subdirectory `g` alternates with a link to `outside`.
fn contested(bench: &Bench) -> (PathBuf, PathBuf, PathBuf) {
    let (folder, outside, link) = (bench.local("in"), bench.local("outside"), bench.local("link"));
    for (at, content) in [(folder.join("g"), "decoyy"), (outside.clone(), "secret")] {
        fs::create_dir_all(at.join("sub")).unwrap();
        fs::write(at.join("sub/f"), content).unwrap();
    }
    symlink(&outside, &link).unwrap();
    (folder, outside, link)
}

#[test]
fn who_swaps_directories_for_links_puts_nothing_from_outside_into_an_image() {
    let bench = Bench::empty();
    let (folder, _, link) = contested(&bench);
    let contested = folder.join("g");
    let swaps = AtomicU32::new(0);
    while_attacked(
        || exchange(&link, &contested, &swaps),
        24,
        |round| {
            let (from, image) = (folder.to_str().unwrap(), bench.image());
            let made = if round % 2 == 0 {
                hectare(&["build", "-F", "--from", from, image])
            } else {
                hectare(&["mkfs", "-q", "-F", image, "4M"]).ok();
                hectare(&["cp", "-a", &format!("{from}/."), &bench.at("/")])
            };
            let found = hectare(&["cat", &bench.at("/g/sub/f")]);
            assert!(found.code != Some(0) || found.text() == "decoyy", "{}", made.line);
        },
    );
    assert!(swaps.into_inner() > 0, "nothing was swapped");
}

#[test]
fn who_swaps_directories_for_links_gets_nothing_put_outside() {
    let bench = Bench::empty();
    let (source, outside, link) = (bench.local("source"), bench.local("outside"), bench.local("link"));
    // Hard links refer back to directories that are finished, long after others could access them.
    fs::create_dir_all(source.join("g/sub")).unwrap();
    for n in 0..40 {
        fs::write(source.join(format!("g/sub/f{n}")), "from the image").unwrap();
        fs::hard_link(source.join(format!("g/sub/f{n}")), source.join(format!("z{n}"))).unwrap();
    }
    hectare(&["build", "--from", source.to_str().unwrap(), bench.image()]).ok();
    fs::create_dir_all(outside.join("sub")).unwrap();
    for n in 0..40 {
        fs::write(outside.join(format!("sub/f{n}")), "secret").unwrap();
    }
    let before = mode_of(&outside);
    symlink(&outside, &link).unwrap();
    let out = bench.local("out");
    let contested = out.join("g");
    let swaps = AtomicU32::new(0);
    while_attacked(
        || exchange(&link, &contested, &swaps),
        15,
        |_| {
            let _ = hectare(&["cp", "-a", &bench.at("/"), out.to_str().unwrap()]);
            for n in 0..40 {
                let linked = fs::read(out.join(format!("z{n}")));
                assert!(linked.is_err() || linked.unwrap() == b"from the image", "z{n} is from outside");
                assert_eq!(fs::read(outside.join(format!("sub/f{n}"))).unwrap(), b"secret");
            }
            assert_eq!((mode_of(&outside), fs::read_dir(outside.join("sub")).unwrap().count()), (before, 40));
            // Whichever of the two it is now, the next round begins with neither.
            while out.exists() && fs::remove_dir_all(&out).is_err() {}
            let _ = fs::remove_dir_all(&link).or_else(|_| fs::remove_file(&link));
            symlink(&outside, &link).unwrap();
        },
    );
    assert!(swaps.into_inner() > 0, "nothing was swapped");
}

#[test]
fn regression_a_link_in_place_of_a_pipe_does_not_get_the_modes_of_the_pipe_through() {
    let bench = Bench::empty();
    let (source, victim) = (bench.local("source"), bench.local("victim"));
    fs::create_dir(&source).unwrap();
    for n in 0..300 {
        let path = source.join(format!("p{n}"));
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o777), 0).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    hectare(&["build", "--from", source.to_str().unwrap(), bench.image()]).ok();
    fs::write(&victim, "secret").unwrap();
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
    let out = bench.local("out");
    fs::create_dir(&out).unwrap();
    let link = bench.local("link");
    while_attacked(
        || {
            for n in 0..300 {
                let _ = symlink(&victim, &link);
                let pipe = out.join(format!("p{n}"));
                if fs::symlink_metadata(&pipe).is_ok_and(|meta| meta.file_type().is_fifo()) {
                    let _ = fs::rename(&link, pipe);
                }
            }
        },
        8,
        |_| {
            let _ = hectare(&["cp", "-a", &bench.at("/."), out.to_str().unwrap()]);
            assert_eq!(mode_of(&victim), 0o600);
        },
    );
}

/// Runs the binary with at most this many descriptors.
fn with_descriptors(most: u32, words: &[&str]) -> (Option<i32>, String) {
    let script = format!("ulimit -n {most} && exec \"$0\" \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_hectare")])
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn regression_a_deep_tree_is_copied_with_few_descriptors() {
    const DEPTH: usize = 1200;
    let bench = Bench::empty();
    let source = bench.local("source");
    fs::create_dir(&source).unwrap();
    let mut at = rustix::fs::open(&source, rustix::fs::OFlags::PATH, Mode::empty()).unwrap();
    for _ in 0..DEPTH {
        rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "d", rustix::fs::OFlags::PATH, Mode::empty()).unwrap();
    }
    drop(at);
    hectare(&["mkfs", "-q", "-b", "1024", bench.image(), "16M"]).ok();
    let out = bench.local("out");
    for words in [
        &["cp", "-a", &format!("{}/.", source.display()), &bench.at("/")][..],
        &["cp", "-a", &bench.at("/"), out.to_str().unwrap()],
        &["build", "-F", "--from", out.to_str().unwrap(), bench.image()],
    ] {
        let (code, said) = with_descriptors(100, words);
        assert_eq!(code, Some(0), "{words:?}: {said:.300}");
    }
    let listed = hectare(&["build", "--json", "-F", "--from", out.to_str().unwrap(), bench.image()]).ok();
    assert_eq!(listed.json()["directories"], DEPTH + 2, "with the root and lost+found");
}

/// What a directory of the host gives all that is made in it let others read what they could not.
#[test]
fn regression_a_copy_out_had_the_acl_of_its_directory() {
    const DEFAULT: &str = "system.posix_acl_default";
    let bench = Bench::empty();
    hectare(&["mkfs", "-q", bench.image(), "8M"]).ok();
    let (file, out) = (bench.local("secret"), bench.local("out"));
    fs::write(&file, "secret").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    fs::create_dir(&out).unwrap();
    hectare(&["mkdir", &bench.at("/d")]).ok();
    hectare(&["cp", "-a", file.to_str().unwrap(), &bench.at("/d/secret")]).ok();
    // Version 2: user::rwx, user:1000:rwx, group::r-x, mask::rwx, other::---.
    let entry = |tag: u16, perm: u16, id: u32| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    let entries =
        [entry(1, 7, none), entry(2, 7, 1000), entry(4, 5, none), entry(16, 7, none), entry(32, 0, none)];
    let acl = [&2u32.to_le_bytes()[..], &entries.concat()].concat();
    if let Err(error) = setxattr(&out, DEFAULT, &acl, XattrFlags::empty()) {
        skip!("copy_trust::regression_a_copy_out_had_the_acl", error);
    }
    // New, and over files that had got the ACL.
    for options in [&["cp", "-a"][..], &["cp", "-r"], &["cp", "-a"]] {
        hectare(&[options, &[&bench.at("/d"), out.to_str().unwrap()]].concat()).ok();
    }
    for (path, name) in
        [("d/secret", "system.posix_acl_access"), ("d", "system.posix_acl_access"), ("d", DEFAULT)]
    {
        let found = rustix::fs::getxattr(out.join(path), name, &mut [0_u8; 256]);
        assert_eq!(found.err(), Some(rustix::io::Errno::NODATA), "{path}: {name}");
    }
    assert_eq!(mode_of(out.join("d/secret")) & 0o777, 0o640);
    // One of its own stays.
    let path = bench.at("/d/secret");
    let own = [&2u32.to_le_bytes()[..], &entries[..4].concat(), &entry(32, 4, none)].concat();
    setxattr(&file, "system.posix_acl_access", &own, XattrFlags::empty()).unwrap();
    hectare(&["cp", "-a", file.to_str().unwrap(), &path]).ok();
    hectare(&["cp", "-a", &path, out.to_str().unwrap()]).ok();
    let mut found = [0_u8; 256];
    let len = rustix::fs::getxattr(out.join("secret"), "system.posix_acl_access", &mut found).unwrap();
    assert!(found[..len] == own);
}
