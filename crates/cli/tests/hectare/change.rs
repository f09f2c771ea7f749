//! mkdir, mv, rm, ln, chmod, chown, xattr: the kernel and e2fsck agree with the result.

use crate::look::name_of;
use crate::support::{Bench, hectare};
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
