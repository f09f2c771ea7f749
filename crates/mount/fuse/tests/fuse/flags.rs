//! Flags, projects and generations of inodes, and what flags forbid. Set through the mount by the usual
//! tools, checked with the kernel's own ext4.

use crate::support::{MIB, Mount, mounted, needed};
use hectare_oracle::tool::run;
use hectare_oracle::{KernelMount, skip, skip_part, tool, until};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

const EPERM: i32 = Errno::PERM.raw_os_error();

fn chattr(mount: &Mount, arguments: &[&str]) {
    let mut chattr = tool("chattr").expect("it was there a moment ago");
    let _ = run(chattr.args(arguments).current_dir(&mount.dir)).expect_success();
}

/// The output of `lsattr` for everything below a directory; of `lost+found` only the kernel's volumes are
/// certain.
fn lsattr(dir: &Path, flags: &str) -> String {
    let mut lsattr = tool("lsattr").expect("it was there a moment ago");
    let said = run(lsattr.args([flags, "."]).current_dir(dir)).expect_success().stdout;
    let mut lines: Vec<&str> = said.lines().filter(|line| line.contains("./")).collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn refused<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// Unmounts; the kernel's ext4 shows the same flags, projects and generations.
fn judge_flags(mut mount: Mount, name: &str, flags: &str) {
    let seen = lsattr(&mount.dir, flags);
    mount.detach();
    match KernelMount::read_only(&mount.image, "") {
        Ok(kernel) => assert_eq!(lsattr(kernel.path(), flags), seen),
        Err(reason) => skip_part!(name, reason),
    }
    mount.attach("");
    assert_eq!(lsattr(&mount.dir, flags), seen, "they are still there");
    mount.judge(name);
}

#[test]
fn immutable_and_append_only_files_refuse_what_they_should() {
    const NAME: &str = "flags::immutable_and_append_only_files_refuse_what_they_should";
    drop(needed!(NAME, "chattr"));
    let mount = mounted!(NAME, 64 * MIB, "");
    for name in ["immutable", "append", "free"] {
        fs::write(mount.path(name), "begin\n").unwrap();
    }
    fs::create_dir(mount.path("closed")).unwrap();
    fs::write(mount.path("closed/in"), "").unwrap();
    chattr(&mount, &["+i", "immutable", "closed"]);
    chattr(&mount, &["+a", "append"]);
    let open = |name: &str| fs::File::options().write(true).open(mount.path(name));
    assert_eq!(refused(open("immutable")), Some(EPERM));
    assert_eq!(refused(fs::remove_file(mount.path("immutable"))), Some(EPERM));
    assert_eq!(refused(fs::rename(mount.path("immutable"), mount.path("x"))), Some(EPERM));
    assert_eq!(refused(fs::hard_link(mount.path("immutable"), mount.path("x"))), Some(EPERM));
    let permissions = fs::metadata(mount.path("free")).unwrap().permissions();
    assert_eq!(refused(fs::set_permissions(mount.path("immutable"), permissions)), Some(EPERM));
    assert_eq!(refused(fs::write(mount.path("closed/new"), "")), Some(EPERM));
    assert_eq!(refused(fs::remove_file(mount.path("closed/in"))), Some(EPERM));
    fs::write(mount.path("closed/in"), "a file's content is its own").unwrap();

    assert_eq!(refused(open("append")), Some(EPERM));
    let mut append = fs::File::options().append(true).open(mount.path("append")).unwrap();
    append.write_all(b"more\n").unwrap();
    assert_eq!(refused(append.set_len(1)), Some(EPERM));
    drop(append);
    assert_eq!(fs::read(mount.path("append")).unwrap(), b"begin\nmore\n");
    assert_eq!(refused(fs::remove_file(mount.path("append"))), Some(EPERM));

    // A file that is open when it becomes immutable.
    let held = open("free").unwrap();
    chattr(&mount, &["+i", "free"]);
    assert_eq!(refused(held.set_len(0)), Some(EPERM));
    drop(held);
    chattr(&mount, &["-i", "free"]);
    fs::write(mount.path("free"), "again").unwrap();
    judge_flags(mount, NAME, "-R");
}

/// The kernel's cache sends whole pages, so that appending looked like overwriting.
#[test]
fn regression_what_is_appended_to_an_append_only_file_arrives() {
    const NAME: &str = "flags::regression_what_is_appended_to_an_append_only_file_arrives";
    drop(needed!(NAME, "chattr"));
    for options in ["", "writeback", "nodelalloc", "data=journal"] {
        let mut mount = mounted!(NAME, 64 * MIB, options);
        fs::write(mount.path("log"), "begin\n").unwrap();
        chattr(&mount, &["+a", "log"]);
        let mut expected = String::from("begin\n");
        for n in 0..300 {
            let mut log = fs::File::options().append(true).open(mount.path("log")).unwrap();
            let line = format!("line {n} with some text behind it\n");
            log.write_all(line.as_bytes()).unwrap();
            if n % 7 == 0 {
                log.sync_data().unwrap();
            }
            expected += &line;
        }
        mount.detach();
        mount.attach("");
        assert_eq!(fs::read_to_string(mount.path("log")).unwrap(), expected, "{options}");
        mount.judge(NAME);
    }
}

/// Who could only append opened it for that, and wrote elsewhere afterwards: what comes from the kernel's
/// cache is not checked.
#[test]
fn regression_who_may_append_overwrites_nothing() {
    const NAME: &str = "flags::regression_who_may_append_overwrites_nothing";
    drop(needed!(NAME, "chattr"));
    for options in ["", "writeback"] {
        let mut mount = mounted!(NAME, 64 * MIB, options);
        fs::write(mount.path("log"), "begin\n").unwrap();
        let old = std::time::UNIX_EPOCH + Duration::from_secs(978_307_200);
        fs::File::options().write(true).open(mount.path("log")).unwrap().set_modified(old).unwrap();
        chattr(&mount, &["+a", "log"]);
        let mut log = fs::File::options().append(true).open(mount.path("log")).unwrap();
        log.write_all(b"more\n").unwrap();
        // ext4 refuses this step already; FUSE's kernel does not know the flag.
        rustix::fs::fcntl_setfl(&log, OFlags::empty()).unwrap();
        assert_eq!(refused(log.write_at(b"OTHER", 0)), Some(EPERM), "{options}");
        log.write_at(b"end\n", 11).unwrap();
        log.sync_all().unwrap();
        drop(log);
        mount.detach();
        mount.attach("");
        assert_eq!(fs::read_to_string(mount.path("log")).unwrap(), "begin\nmore\nend\n", "{options}");
        let written = fs::metadata(mount.path("log")).unwrap().modified().unwrap();
        assert!(written > old, "{options}: the time of what was appended");
        mount.judge(NAME);
    }
}

/// That a name did not exist was kept, for the spelling that had been asked for.
#[test]
fn regression_a_directory_that_begins_to_fold_case_finds_what_was_absent() {
    const NAME: &str = "flags::regression_a_directory_that_begins_to_fold_case_finds_what_was_absent";
    drop(needed!(NAME, "chattr"));
    let mount = match Mount::by_mke2fs(&["-t", "ext4", "-O", "casefold"], "64M", "") {
        Ok(mount) => mount,
        Err(reason) => skip!(NAME, reason),
    };
    fs::create_dir(mount.path("d")).unwrap();
    assert!(!mount.path("d/FOO").exists());
    chattr(&mount, &["+F", "d"]);
    fs::write(mount.path("d/foo"), "text").unwrap();
    assert_eq!(fs::read_to_string(mount.path("d/FOO")).unwrap(), "text");
    mount.judge(NAME);
}

#[test]
fn regression_bytes_gathered_before_a_file_became_immutable_arrive() {
    const NAME: &str = "flags::regression_bytes_gathered_before_a_file_became_immutable_arrive";
    drop(needed!(NAME, "chattr"));
    let mut mount = mounted!(NAME, 64 * MIB, "");
    fs::write(mount.path("f"), vec![3; 300_000]).unwrap();
    chattr(&mount, &["+i", "f"]);
    mount.detach();
    mount.attach("");
    assert!(fs::read(mount.path("f")).unwrap() == vec![3; 300_000]);
    mount.judge(NAME);
}

#[test]
fn flags_that_only_mark_are_kept_and_inherited() {
    const NAME: &str = "flags::flags_that_only_mark_are_kept_and_inherited";
    drop(needed!(NAME, "chattr"));
    let mount = mounted!(NAME, 64 * MIB, "strictatime");
    for (name, flags) in [("A", "+A"), ("d", "+d"), ("S", "+S"), ("s", "+s"), ("u", "+u")] {
        fs::write(mount.path(name), "text").unwrap();
        chattr(&mount, &[flags, name]);
    }
    fs::write(mount.path("j"), "text").unwrap();
    if capabilities(None).unwrap().effective.contains(CapabilitySet::SYS_RESOURCE) {
        chattr(&mount, &["+j", "j"]);
    } else {
        let mut chattr = tool("chattr").expect("it was there a moment ago");
        assert!(
            !run(chattr.args(["+j", "j"]).current_dir(&mount.dir)).succeeded(),
            "as on the kernel's ext4"
        );
    }
    fs::create_dir(mount.path("top")).unwrap();
    chattr(&mount, &["+TdAD", "top"]);
    fs::create_dir(mount.path("top/below")).unwrap();
    fs::write(mount.path("top/file"), "text").unwrap();
    let shown = lsattr(&mount.dir, "-R");
    assert!(shown.lines().any(|line| line.ends_with(" ./top/file") && line.contains("dA")), "{shown}");
    judge_flags(mount, NAME, "-R");
}

#[test]
fn an_unprivileged_user_can_not_make_files_immutable() {
    const NAME: &str = "flags::an_unprivileged_user_can_not_make_files_immutable";
    drop(needed!(NAME, "chattr"));
    drop(needed!(NAME, "setpriv"));
    let mount = mounted!(NAME, 64 * MIB, "allow_other");
    fs::write(mount.path("f"), "text").unwrap();
    std::os::unix::fs::chown(mount.path("f"), Some(1000), Some(1000)).unwrap();
    let as_user = ["--reuid", "1000", "--regid", "1000", "--clear-groups", "chattr"];
    let user = |flags: &str| {
        let mut setpriv = tool("setpriv").expect("it was there a moment ago");
        run(setpriv.args(as_user).args([flags, "f"]).current_dir(&mount.dir))
    };
    assert!(!user("+i").succeeded());
    assert!(!user("+a").succeeded());
    assert!(user("+d").succeeded(), "this one is the owner's to set");
    judge_flags(mount, NAME, "-R");
}

#[test]
fn projects_are_set_shown_and_inherited() {
    const NAME: &str = "flags::projects_are_set_shown_and_inherited";
    drop(needed!(NAME, "chattr"));
    let mount = match Mount::by_mke2fs(&["-t", "ext4", "-O", "project"], "64M", "") {
        Ok(mount) => mount,
        Err(reason) => skip!(NAME, reason),
    };
    fs::create_dir(mount.path("d")).unwrap();
    fs::write(mount.path("f"), "text").unwrap();
    chattr(&mount, &["-p", "4000000000", "f"]);
    chattr(&mount, &["-p", "7", "+P", "d"]);
    fs::write(mount.path("d/in"), "text").unwrap();
    let shown = lsattr(&mount.dir, "-Rp");
    let project = |path: &str| {
        let line = shown.lines().find(|line| line.ends_with(path)).unwrap();
        line.split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(
        (project(" ./f"), project(" ./d"), project(" ./d/in")),
        ("4000000000".into(), "7".into(), "7".into())
    );
    let away = fs::rename(mount.path("f"), mount.path("d/f"));
    assert_eq!(refused(away), Some(Errno::XDEV.raw_os_error()), "into another project");
    judge_flags(mount, NAME, "-Rp");
}

#[test]
fn generations_tell_files_of_one_number_apart() {
    const NAME: &str = "flags::generations_tell_files_of_one_number_apart";
    drop(needed!(NAME, "lsattr"));
    let mount = mounted!(NAME, 64 * MIB, "");
    for n in 0..20 {
        fs::write(mount.path(&format!("f{n}")), "text").unwrap();
    }
    judge_flags(mount, NAME, "-Rv");
}

#[test]
fn reading_a_file_marked_so_leaves_its_time_of_access() {
    const NAME: &str = "flags::reading_a_file_marked_so_leaves_its_time_of_access";
    drop(needed!(NAME, "chattr"));
    let mut mount = mounted!(NAME, 64 * MIB, "");
    for name in ["marked", "plain"] {
        fs::write(mount.path(name), "text").unwrap();
    }
    chattr(&mount, &["+A", "marked"]);
    let accessed = |mount: &Mount, name: &str| {
        let found = fs::metadata(mount.path(name)).unwrap();
        (found.atime(), found.atime_nsec())
    };
    let before = ["marked", "plain"].map(|name| accessed(&mount, name));
    mount.detach();
    mount.attach("strictatime");
    std::thread::sleep(Duration::from_millis(20));
    for name in ["marked", "plain"] {
        assert_eq!(fs::read(mount.path(name)).unwrap(), b"text");
    }
    assert_eq!(accessed(&mount, "marked"), before[0]);
    assert!(accessed(&mount, "plain") > before[1]);
    mount.judge(NAME);
}

/// Setting times to the present is permitted with write access, also to append-only files.
#[test]
fn regression_append_only_files_are_touched() {
    const NAME: &str = "flags::regression_append_only_files_are_touched";
    drop(needed!(NAME, "chattr"));
    for options in ["", "writeback"] {
        let mut mount = mounted!(NAME, 64 * MIB, options);
        for name in ["append", "immutable"] {
            fs::write(mount.path(name), "text").unwrap();
        }
        chattr(&mount, &["+a", "append"]);
        chattr(&mount, &["+i", "immutable"]);
        let touch = |mount: &Mount, arguments: &[&str]| {
            let mut touch = tool("touch").expect("it is there");
            run(touch.args(arguments).current_dir(&mount.dir)).succeeded()
        };
        let modified = |mount: &Mount| {
            let found = fs::metadata(mount.path("append")).unwrap();
            (found.mtime(), found.mtime_nsec())
        };
        let before = modified(&mount);
        std::thread::sleep(Duration::from_millis(20));
        assert!(touch(&mount, &["append"]), "{options}");
        assert!(!touch(&mount, &["-d", "@1000000000", "append"]), "{options}");
        assert!(!touch(&mount, &["immutable"]), "{options}");
        // A kernel that buffers writes can't be distinguished from a program here; nothing comes of it.
        let _ = touch(&mount, &["-m", "-d", "@4000000000", "append"]);
        mount.detach();
        mount.attach("");
        assert!(modified(&mount) > before && modified(&mount).0 < 4_000_000_000, "{options}");
        mount.judge(NAME);
    }
}

#[test]
fn regression_the_kernel_hears_that_flags_change_the_time_of_change() {
    const NAME: &str = "flags::regression_the_kernel_hears_that_flags_change_the_time_of_change";
    drop(needed!(NAME, "chattr"));
    // For files, a kernel that buffers writes keeps the time itself.
    for (options, is_file) in [("writeback", false), ("", false), ("", true)] {
        let mount = mounted!(NAME, 64 * MIB, options);
        let path = mount.path("it");
        if is_file { fs::write(&path, "text") } else { fs::create_dir(&path) }.unwrap();
        let changed = || {
            let found = fs::metadata(&path).unwrap();
            (found.ctime(), found.ctime_nsec())
        };
        let before = changed();
        std::thread::sleep(Duration::from_millis(20));
        chattr(&mount, &["+d", "it"]);
        assert!(changed() > before, "{options}, {is_file}");
        mount.judge(NAME);
    }
}

/// A file with the number of one that is gone is another file.
#[test]
fn a_number_that_is_used_again_has_another_generation() {
    const NAME: &str = "flags::a_number_that_is_used_again_has_another_generation";
    drop(needed!(NAME, "lsattr"));
    let mount = mounted!(NAME, 64 * MIB, "");
    let generation = |name: &str| {
        let mut lsattr = tool("lsattr").expect("it was there a moment ago");
        let said = run(lsattr.args(["-v", name]).current_dir(&mount.dir)).expect_success().stdout;
        said.split_whitespace().next().unwrap().parse::<u32>().unwrap()
    };
    fs::write(mount.path("gone"), "text").unwrap();
    let number = fs::metadata(mount.path("gone")).unwrap().ino();
    let first = generation("gone");
    fs::remove_file(mount.path("gone")).unwrap();
    // The number is free when the kernel has sent `FORGET` for the file.
    let mut made = 0;
    until(|| {
        made += 1;
        fs::write(mount.path(&format!("f{made}")), "text").unwrap();
        fs::metadata(mount.path(&format!("f{made}"))).unwrap().ino() == number
    });
    assert_ne!(generation(&format!("f{made}")), first);
    judge_flags(mount, NAME, "-Rv");
}
