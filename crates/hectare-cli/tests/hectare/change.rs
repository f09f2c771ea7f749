//! mkdir, mv, rm, ln, chmod, chown, xattr: the kernel and e2fsck agree with the result.

use crate::look::name_of;
use crate::support::{Bench, hectare, hectare_fed};
use hectare_oracle::{Entry, KernelMount, Kind, Skip, Tree, skip, walk};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// What the kernel sees in the image.
fn seen(bench: &Bench) -> Result<Vec<Entry>, Skip> {
    let mount = KernelMount::read_only(&bench.image, "")?;
    let entries = walk(mount.path());
    mount.unmount();
    Ok(entries)
}

fn find<'a>(entries: &'a [Entry], path: &str) -> Option<&'a Entry> {
    entries.iter().find(|entry| entry.path == path.as_bytes())
}

#[test]
fn every_change_is_what_the_kernel_then_sees() {
    let bench = match Bench::filled("ext4", Tree::Ordinary) {
        Ok(bench) => bench,
        Err(reason) => skip!("cli change::every_change", reason),
    };
    let file = bench.local("file");
    std::fs::write(&file, "seven b").unwrap();
    let file = file.to_str().unwrap();
    bench.changed(&["mkdir", &bench.at("/new")]);
    bench.changed(&["mkdir", "-p", "-m", "2750", &bench.at("/new/a/b"), &bench.at("/new")]);
    bench.changed(&["cp", file, &bench.at("/new/one")]);
    bench.changed(&["cp", file, &bench.at("/new/a/")]);
    bench.changed(&["ln", &bench.at("/new/one"), &bench.at("/new/two")]);
    bench.changed(&["ln", "-s", "../one", &bench.at("/new/a/link")]);
    bench.changed(&["mv", &bench.at("/new/two"), &bench.at("/new/a/b")]);
    bench.changed(&["mv", &bench.at("/new/a/file"), &bench.at("/new/a/renamed")]);
    bench.changed(&["chmod", "640", &bench.at("/new/a/link")]);
    bench.changed(&["chmod", "-R", "F:a-x,D:g+w", &bench.at("/new/a")]);
    bench.changed(&["chown", "-R", "12:70000", &bench.at("/new/a")]);
    bench.changed(&["xattr", "set", "user.color", "0x00ff10", &bench.at("/new/one")]);
    bench.changed(&["xattr", "set", "user.gone", "x", &bench.at("/new/one")]);
    bench.changed(&["xattr", "rm", "user.gone", &bench.at("/new/one")]);
    assert_eq!(
        hectare(&["xattr", "get", "-x", "user.color", &bench.at("/new/one")]).ok().text(),
        "0x00ff10\n"
    );
    let entries = match seen(&bench) {
        Ok(entries) => entries,
        Err(reason) => skip!("cli change::every_change, the kernel", reason),
    };
    let one = find(&entries, "new/one").unwrap();
    assert_eq!((one.mode, one.nlink, one.size), (0o640, 2, 7));
    assert_eq!(one.xattrs.get(&b"user.color"[..]).unwrap(), &[0, 0xff, 0x10]);
    assert!(!one.xattrs.contains_key(&b"user.gone"[..]));
    let two = find(&entries, "new/a/b/two").unwrap();
    assert_eq!((two.inode, two.uid, two.gid), (one.inode, 12, 70000));
    assert_eq!(find(&entries, "new/a/b").unwrap().mode, 0o2770);
    let link = find(&entries, "new/a/link").unwrap();
    assert_eq!((link.kind, &*link.target, link.uid), (Kind::Symlink, &b"../one"[..], 12));
    assert!(find(&entries, "new/a/renamed").is_some() && find(&entries, "new/a/file").is_none());

    let before = entries.len();
    bench.changed(&["rm", "-r", &bench.at("/new")]);
    bench.changed(&["rm", "-f", &bench.at("/not/there")]);
    assert_eq!(seen(&bench).unwrap().len(), before - 7);
}

#[test]
fn everything_can_be_removed() {
    for tree in [Tree::ManyFiles, Tree::Deep, Tree::Names, Tree::Fragmented, Tree::Attributes, Tree::Links] {
        let bench = match Bench::filled("ext4", tree) {
            Ok(bench) => bench,
            Err(reason) => skip!("cli change::everything_can_be_removed", reason),
        };
        let listed = hectare(&["ls", "-a", "--json", &bench.at("/")]).ok().json();
        let names = listed.as_array().unwrap().iter().map(|entry| name_of(&entry["name"]));
        for name in names.filter(|name| name != b"lost+found") {
            let place = [bench.at("/").as_bytes(), &name].concat();
            hectare(&[OsStr::new("rm"), OsStr::new("-r"), OsStr::from_bytes(&place)]).ok();
        }
        hectare_oracle::assert_clean(&bench.image).unwrap();
        assert_eq!(hectare(&["ls", "-a", &bench.at("/")]).ok().text(), ".\n..\nlost+found\n");
    }
}

/// Of two names of one file rename(2) keeps both, and mv(1) removes the first.
#[test]
fn regression_mv_kept_both_names_of_a_file() {
    let bench = match Bench::fresh("ext4") {
        Ok(bench) => bench,
        Err(reason) => skip!("cli change::regression_mv_kept_both_names", reason),
    };
    let (a, b, d) = (bench.at("/a"), bench.at("/b"), bench.at("/d"));
    hectare_fed(&["cp", "-", &a], "text").ok();
    hectare(&["mkdir", &d]).ok();
    hectare(&["ln", &a, &b]).ok();
    hectare(&["ln", &a, &bench.at("/d/a")]).ok();
    let root = bench.at("/");
    bench.changed(&["mv", &b, &a]);
    assert_eq!(hectare(&["ls", &root]).ok().text(), "a\nd\nlost+found\n");
    assert!(hectare(&["mv", &a, &a]).refused().ends_with(":/a: source and destination are the same file"));
    assert!(
        hectare(&["mv", &a, &bench.at("/./a")])
            .refused()
            .ends_with(":/a: source and destination are the same file")
    );
    bench.changed(&["mv", &a, &d]);
    assert_eq!(hectare(&["ls", &root, &d]).ok().text().matches("a\n").count(), 1);
    assert_eq!(hectare(&["cat", &bench.at("/d/a")]).ok().text(), "text");
    hectare_oracle::assert_clean(&bench.image).unwrap();
}

/// A link that leads nowhere is listed itself, and `touch -h` makes no file, as the usual programs do.
#[test]
fn regression_links_that_lead_nowhere_are_listed() {
    let bench = match Bench::fresh("ext4") {
        Ok(bench) => bench,
        Err(reason) => skip!("cli change::regression_links_that_lead_nowhere", reason),
    };
    let (link, none) = (bench.at("/link"), bench.at("/none"));
    hectare(&["ln", "-s", "nowhere", &link]).ok();
    assert_eq!(hectare(&["ls", &link]).ok().text(), "/link\n");
    assert!(hectare(&["ls", &none]).refused().ends_with(":/none: no such file or directory"));
    assert!(hectare(&["touch", "-h", &none]).refused().ends_with(":/none: no such file or directory"));
    hectare(&["touch", "-h", "-c", &none]).ok();
    hectare(&["touch", "-h", "-d", "@5", &link]).ok();
    assert_eq!(hectare(&["ls", &bench.at("/")]).ok().text(), "link\nlost+found\n");
}

#[test]
fn mv_replaces_refuses_and_exchanges() {
    let bench = match Bench::fresh("ext4") {
        Ok(bench) => bench,
        Err(reason) => skip!("cli change::mv_replaces", reason),
    };
    for name in ["a", "b"] {
        let file = bench.local(name);
        std::fs::write(&file, name).unwrap();
        hectare(&["cp", file.to_str().unwrap(), &bench.at("/")]).ok();
    }
    let (a, b) = (bench.at("/a"), bench.at("/b"));
    bench.changed(&["mv", "--exchange", &a, &b]);
    assert_eq!(hectare(&["cat", &a, &b]).ok().text(), "ba");
    assert!(hectare(&["mv", "-n", &a, &b]).refused().ends_with(":/b: the file exists already"));
    bench.changed(&["mv", &a, &b]);
    assert_eq!(hectare(&["cat", &b]).ok().text(), "b");
    let missing = hectare(&["mv", &a, &b]);
    assert!(missing.refused().ends_with(":/a: no such file or directory"));
    hectare(&["mkdir", "-p", &bench.at("/d/e")]).ok();
    let into = hectare(&["mv", &bench.at("/d"), &bench.at("/d/e")]);
    assert!(into.refused().contains("into itself"), "{}", into.err);
    hectare_oracle::assert_clean(&bench.image).unwrap();
}

#[test]
fn regression_a_name_and_a_slash_removes_no_file() {
    let bench = Bench::empty();
    let at = |name: &str| format!("{}:/{name}", bench.image());
    hectare(&["mkfs", bench.image(), "4M"]).ok();
    hectare(&["touch", &at("file")]).ok();
    hectare(&["mkdir", &at("dir")]).ok();
    hectare(&["ln", "-s", "dir", &at("link")]).ok();
    for words in [&["rm"][..], &["rm", "-r"], &["rm", "-rf"]] {
        for name in ["file/", "link/"] {
            let ran = hectare(&[words, &[&at(name)]].concat());
            assert!(ran.refused().contains("not a directory"), "{}", ran.err);
        }
    }
    hectare(&["rm", "-r", &at("dir/")]).ok();
    let left = hectare(&["ls", &at("")]).ok().text().to_owned();
    assert_eq!(left.split_whitespace().collect::<Vec<_>>(), ["file", "link", "lost+found"]);
}

/// What is made in a directory with a default ACL, by us and by the kernel.
#[test]
fn regression_a_default_acl_takes_the_place_of_the_umask() {
    const NAME: &str = "cli change::regression_a_default_acl";
    let bench = Bench::empty();
    let at = |name: &str| format!("{}:/{name}", bench.image());
    hectare(&["mkfs", bench.image(), "8M"]).ok();
    let mount = match KernelMount::new(&bench.image, "") {
        Ok(mount) => mount,
        Err(reason) => skip!(NAME, reason),
    };
    let script = "set -e; umask 022; mkdir d; setfacl -d -m u:78:rwx,g::rwx d; \
                  mkdir d/k; touch d/kf; echo x > f; chmod 666 f; cp f d/kc; mkdir plain";
    let made = std::process::Command::new("sh").args(["-c", script]).current_dir(mount.path()).status();
    mount.unmount();
    if !made.is_ok_and(|status| status.success()) {
        skip!(NAME, Skip::new("setfacl is not installed"));
    }
    let source = bench.local("f");
    std::fs::write(&source, "x").unwrap();
    std::fs::set_permissions(&source, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    hectare(&["mkdir", &at("d/h"), &at("plain/h")]).ok();
    hectare(&["touch", &at("d/hf"), &at("plain/hf")]).ok();
    hectare(&["cp", source.to_str().unwrap(), &at("d/hc")]).ok();
    hectare(&["cp", source.to_str().unwrap(), &at("plain/hc")]).ok();
    let mode = |name: &str| hectare(&["ls", "-ld", &at(name)]).ok().text()[..10].to_owned();
    for (ours, kernel) in [("d/h", "d/k"), ("d/hf", "d/kf"), ("d/hc", "d/kc")] {
        assert_eq!(mode(ours), mode(kernel), "{ours}");
    }
    let plain = ["plain/h", "plain/hf", "plain/hc"].map(mode);
    assert_eq!(plain, ["drwxr-xr-x", "-rw-r--r--", "-rw-r--r--"]);
}

/// What has the name was removed before it was known whether the link could be made.
#[test]
fn regression_a_link_that_can_not_be_made_replaced_a_file() {
    let bench = Bench::empty();
    hectare(&["mkfs", "-q", bench.image(), "8M"]).ok();
    let file = bench.local("file");
    std::fs::write(&file, "content").unwrap();
    hectare(&["cp", file.to_str().unwrap(), &bench.at("/f")]).ok();
    hectare(&["mkdir", &bench.at("/dir")]).ok();
    let (dir, link, long) = (bench.at("/dir"), bench.at("/f"), "x".repeat(5000));
    for arguments in [["ln", "-f", &dir, &link], ["ln", "-sf", &long, &link]] {
        assert_eq!(hectare(&arguments).code, Some(1));
        assert_eq!(hectare(&["cat", &link]).ok().text(), "content");
    }
    hectare(&["ln", "-sf", "dir", &link]).ok();
    hectare(&["ln", "-f", &link, &bench.at("/other")]).ok();
    assert_eq!(hectare(&["ls", "-l", &bench.at("/")]).ok().text().matches("-> dir").count(), 2);
    assert_eq!(hectare(&["ls", &bench.at("/")]).ok().text(), "dir\nf\nlost+found\nother\n");
    hectare_oracle::assert_clean(&bench.image).unwrap();
}

#[test]
fn regression_a_file_given_away_kept_its_capabilities() {
    let bench = Bench::empty();
    hectare(&["mkfs", "-q", bench.image(), "8M"]).ok();
    let (file, program) = (bench.local("file"), bench.at("/program"));
    std::fs::write(&file, "content").unwrap();
    hectare(&["cp", file.to_str().unwrap(), &program]).ok();
    hectare(&["chmod", "6755", &program]).ok();
    let capability = "0x0100000200200000000000000000000000000000";
    hectare(&["xattr", "set", "security.capability", capability, &program]).ok();
    hectare(&["xattr", "set", "user.a", "b", &program]).ok();
    bench.changed(&["chown", "1000:1000", &program]);
    assert_eq!(hectare(&["xattr", "list", &program]).ok().text(), "user.a\n");
    assert_eq!(hectare(&["stat", "--json", &program]).ok().json()[0]["mode"], "0755");
}
