//! cp: trees are the same after a copy in and out, by the kernel and by a walk of the host.

use crate::support::{Bench, at, hectare, hectare_fed};
use hectare_oracle::compare::Times;
use hectare_oracle::{
    Combo, KernelMount, Scale, Tree, What, assert_clean, assert_same, combos, filled, is_root, skip,
    skip_part, source, walk,
};
use std::path::Path;
use std::process::Stdio;

/// The content of a directory, for `cp -a`.
fn inner(folder: &Path) -> String {
    format!("{}/.", folder.display())
}

#[test]
fn every_tree_goes_in_as_the_kernel_then_sees_it() {
    for tree in Tree::ALL {
        let name = format!("cli copy in, {}", tree.name());
        let folder = match source(tree, &Scale::SMALL) {
            Ok(folder) => folder,
            Err(reason) => {
                skip_part!(name, reason);
                continue;
            }
        };
        let bench = match Bench::fresh("ext4") {
            Ok(bench) => bench,
            Err(reason) => skip!("cli copy::every_tree_goes_in", reason),
        };
        hectare(&["cp", "-a", &inner(&folder), &bench.at("/")]).ok();
        assert_clean(&bench.image).unwrap();
        let mount = match KernelMount::read_only(&bench.image, "") {
            Ok(mount) => mount,
            Err(reason) => {
                skip_part!(name, reason);
                continue;
            }
        };
        let found = walk(mount.path());
        mount.unmount();
        assert_same(&found, &walk(&folder), What::all());
    }
}

#[test]
fn every_tree_comes_out_as_the_kernel_saw_it() {
    for tree in Tree::ALL {
        if tree.needs_root() && !is_root() {
            skip_part!(format!("cli copy out, {}", tree.name()), "needs root");
            continue;
        }
        let filled = match filled(&Combo::named("ext4"), tree, &Scale::SMALL) {
            Ok(filled) => filled,
            Err(reason) => {
                skip_part!(format!("cli copy out, {}", tree.name()), reason);
                continue;
            }
        };
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("out");
        hectare(&["cp", "-a", &at(filled.image(), "/"), to.to_str().unwrap()]).ok();
        let mut found = walk(&to);
        let mut expected = filled.entries().to_vec();
        let owners = is_root();
        if !owners {
            // What only root may set is not compared, and privileges are not copied.
            found.iter_mut().for_each(|entry| entry.xattrs.clear());
            expected.iter_mut().for_each(|entry| entry.mode &= 0o1777);
        }
        // The host's file system may not support every time that the format does.
        assert_same(&found, &expected, What { owners, xattrs: owners, ..What::all() });
    }
}

/// What is refused by name until the full matrix of writes is there.
const READ_ONLY: [&str; 4] =
    ["is not supported", "can't be written yet", "but not changed yet", "ignores case"];

#[test]
fn every_combination_takes_a_tree_or_refuses_by_name() {
    let folder = match source(Tree::Ordinary, &Scale::SMALL) {
        Ok(folder) => folder,
        Err(reason) => skip!("cli copy::every_combination", reason),
    };
    let mut taken = 0;
    for combo in combos() {
        let bench = match Bench::fresh(combo.name) {
            Ok(bench) => bench,
            Err(reason) => skip!("cli copy::every_combination", reason),
        };
        let ran = hectare(&["cp", "-a", &inner(&folder), &bench.at("/")]);
        assert_clean(&bench.image).unwrap();
        if ran.code == Some(1) {
            assert!(READ_ONLY.iter().any(|part| ran.refused().contains(part)), "{}: {}", combo.name, ran.err);
            continue;
        }
        let (_, to) = (ran.ok(), bench.local("out"));
        hectare(&["cp", "-a", &bench.at("/."), to.to_str().unwrap()]).ok();
        let mtimes = if combo.inode_size == 128 { Times::Seconds } else { Times::Exact };
        let holes = Some(u64::from(combo.block_size).max(4096));
        assert_same(&walk(&to), &walk(&folder), What { mtimes, holes, owners: is_root(), ..What::all() });
        taken += 1;
    }
    assert!(taken >= 25, "only {taken}");
}

#[test]
fn a_tree_goes_from_image_to_image() {
    let (from, to) = match (Bench::filled("ext4", Tree::Sparse), Bench::fresh("ext4-1k")) {
        (Ok(from), Ok(to)) => (from, to),
        (Err(reason), _) | (_, Err(reason)) => skip!("cli copy::a_tree_goes_from_image_to_image", reason),
    };
    hectare(&["cp", "-a", &from.at("/."), &to.at("/")]).ok();
    assert_clean(&to.image).unwrap();
    let outs = (from.local("out"), to.local("out"));
    hectare(&["cp", "-a", &from.at("/"), outs.0.to_str().unwrap()]).ok();
    hectare(&["cp", "-a", &to.at("/"), outs.1.to_str().unwrap()]).ok();
    assert_same(&walk(&outs.1), &walk(&outs.0), What { owners: is_root(), ..What::all() });
}

#[test]
fn plain_copies_do_as_cp_does() {
    let bench = match Bench::fresh("ext4") {
        Ok(bench) => bench,
        Err(reason) => skip!("cli copy::plain_copies", reason),
    };
    let folder = bench.local("d");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("f"), "text").unwrap();
    std::os::unix::fs::symlink("f", folder.join("l")).unwrap();
    let (d, l) = (folder.to_str().unwrap().to_owned(), folder.join("l"));
    let refused = hectare(&["cp", &d, &bench.at("/")]);
    assert!(refused.refused().contains("cp -r"), "{}", refused.err);
    hectare(&["cp", l.to_str().unwrap(), &bench.at("/followed")]).ok();
    assert_eq!(hectare(&["stat", "--json", &bench.at("/followed")]).ok().json()[0]["kind"], "regular file");
    hectare(&["cp", "-r", &d, &bench.at("/copy")]).ok();
    hectare(&["cp", "-r", &d, &bench.at("/copy")]).ok();
    assert_eq!(hectare(&["ls", &bench.at("/copy")]).ok().text(), "d\nf\nl\n");
    assert_eq!(hectare(&["ls", &bench.at("/copy/d")]).ok().text(), "f\nl\n");
    assert_eq!(hectare(&["stat", "--json", &bench.at("/copy/d/l")]).ok().json()[0]["kind"], "symbolic link");
    std::fs::write(folder.join("f"), "longer text").unwrap();
    hectare(&["cp", folder.join("f").to_str().unwrap(), &bench.at("/copy/f")]).ok();
    assert_eq!(hectare(&["cat", &bench.at("/copy/f")]).ok().text(), "longer text");
    std::fs::write(folder.join("f"), "x").unwrap();
    hectare(&["cp", folder.join("f").to_str().unwrap(), &bench.at("/copy/f")]).ok();
    assert_eq!(hectare(&["cat", &bench.at("/copy/f")]).ok().text(), "x");
    let missing = hectare(&["cp", &bench.at("/copy/f"), &bench.at("/none/f")]);
    assert!(missing.refused().contains("no such file"), "{}", missing.err);
    let itself = hectare(&["cp", &bench.at("/copy/f"), &bench.at("/copy/f")]);
    assert!(itself.refused().contains("onto itself"), "{}", itself.err);
    let into = hectare(&["cp", "-r", &bench.at("/copy"), &bench.at("/copy")]);
    assert!(into.refused().contains("into itself"), "{}", into.err);
    assert_clean(&bench.image).unwrap();
}

#[test]
fn a_full_volume_says_so_and_stays_whole() {
    let bench = Bench::empty();
    if let Err(reason) = hectare_oracle::mke2fs(&["-t", "ext4"], &bench.image, "8M") {
        skip!("cli copy::a_full_volume", reason);
    }
    let big = bench.local("big");
    std::fs::write(&big, vec![7; 16 << 20]).unwrap();
    let ran = hectare(&["cp", big.to_str().unwrap(), &bench.at("/")]);
    assert!(ran.refused().ends_with(":/big: the volume is full"), "{}", ran.err);
    assert_clean(&bench.image).unwrap();
    bench.changed(&["rm", &bench.at("/big")]);
    let small = bench.local("small");
    std::fs::write(&small, "fits").unwrap();
    bench.changed(&["cp", small.to_str().unwrap(), &bench.at("/")]);
}

#[test]
fn regression_a_name_in_an_image_can_not_leave_the_target() {
    let bench = match Bench::fresh("no-csum") {
        Ok(bench) => bench,
        Err(reason) => skip!("cli copy::regression_a_name", reason),
    };
    let file = bench.local("f");
    std::fs::write(&file, "gotcha").unwrap();
    // The name is patched to one with slashes, which the checks of a volume without checksums do not see.
    hectare(&["cp", file.to_str().unwrap(), &bench.at("/qqqescaped")]).ok();
    let bytes = std::fs::read(&bench.image).unwrap();
    let places: Vec<usize> =
        (0..bytes.len() - 10).filter(|at| &bytes[*at..*at + 10] == b"qqqescaped").collect();
    let mut bytes = bytes;
    for place in places {
        bytes[place..place + 3].copy_from_slice(b"../");
    }
    std::fs::write(&bench.image, bytes).unwrap();
    let out = bench.local("out");
    let ran = hectare(&["cp", "-a", &bench.at("/"), out.to_str().unwrap()]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(!bench.local("escaped").exists() && !ran.hung);
}

/// `-` is standard input or output: what comes is one file, as long as it is; attributes that are there stay.
#[test]
fn a_stream_becomes_a_file_and_a_file_a_stream() {
    let bench = match Bench::fresh("ext4") {
        Ok(bench) => bench,
        Err(reason) => skip!("cli copy::a_stream_becomes_a_file", reason),
    };
    let (file, long) = (bench.at("/f"), "line of a stream\n".repeat(100_000));
    hectare_fed(&["cp", "-", &file], &long).ok();
    assert!(hectare(&["cp", &file, "-"]).ok().text() == long);
    hectare(&["chmod", "640", &file]).ok();
    hectare_fed(&["cp", "-", &file], "short").ok();
    assert_eq!(hectare(&["cat", &file]).ok().text(), "short");
    assert!(hectare(&["stat", &file]).ok().text().contains("640"));
    hectare_fed(&["cp", "-", &bench.at("/empty")], "").ok();
    assert_eq!(hectare(&["cp", &bench.at("/empty"), "-"]).ok().text(), "");
    hectare(&["mkdir", &bench.at("/d")]).ok();
    for (arguments, reason) in [
        (["cp", "-", &bench.at("/d")], "it is a directory"),
        (["cp", "-", &bench.at("/none/")], "no such file or directory"),
        (["cp", &bench.at("/d"), "-"], "it is a directory"),
    ] {
        let refused = hectare_fed(&arguments, "x");
        assert_eq!(refused.code, Some(1), "{arguments:?}: {}", refused.err);
        assert!(refused.err.to_lowercase().contains(reason), "{arguments:?}: {}", refused.err);
    }
    for arguments in [
        vec!["cp", "-", "-", &bench.at("/d")],
        vec!["cp", "-p", "-", &bench.at("/p")],
        vec!["cp", "-r", "-", &bench.at("/p")],
        vec!["cp", "-", "-"],
        vec!["cp", &file, &file, "-"],
        vec!["cp", "-a", &file, "-"],
        vec!["cp", "--devices", &file, "-"],
        vec!["cp", "--threads", "2", "-", &file],
    ] {
        assert_eq!(hectare_fed(&arguments, "x").code, Some(2), "{arguments:?}");
    }
    // What can't be read changes nothing.
    let folder = Stdio::from(std::fs::File::open(bench.folder.path()).unwrap());
    let failed = std::process::Command::new(env!("CARGO_BIN_EXE_hectare"))
        .args(["cp", "-", &file])
        .stdin(folder)
        .output()
        .unwrap();
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    assert_eq!(hectare(&["cat", &file]).ok().text(), "short");
    assert_ne!(hectare_fed(&["sh", bench.image.to_str().unwrap()], "cp - :/x\n").code, Some(0));
    assert_clean(&bench.image).unwrap();
}

/// A forgotten colon, or a file inside with the name of its image: the image was cut before it was read. What else
/// could take its name (a link, a device) replaced it.
#[test]
fn regression_a_copy_out_cut_the_image_that_it_read() {
    let bench = match Bench::fresh("ext4") {
        Ok(bench) => bench,
        Err(reason) => skip!("cli copy::regression_a_copy_out_cut_the_image", reason),
    };
    let own = bench.image.file_name().unwrap().to_str().unwrap();
    let folder = bench.image.parent().unwrap();
    let file = bench.local("f");
    std::fs::write(&file, "content").unwrap();
    for name in [format!("/{own}"), "/f".to_owned()] {
        hectare(&["cp", file.to_str().unwrap(), &bench.at(&name)]).ok();
    }
    let before = std::fs::read(&bench.image).unwrap();
    let stays = |arguments: &[&str]| {
        let ran = hectare(arguments);
        assert_eq!(ran.code, Some(1), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains("in use by this command"), "{arguments:?}: {}", ran.err);
        assert!(std::fs::read(&bench.image).unwrap() == before, "{arguments:?}");
    };
    let to = folder.to_str().unwrap();
    stays(&["cp", &bench.at("/f"), bench.image()]);
    stays(&["cp", &bench.at(&format!("/{own}")), to]);
    stays(&["cp", "-r", &bench.at("/."), to]);
    hectare(&["rm", &bench.at(&format!("/{own}"))]).ok();
    hectare(&["ln", "-s", "f", &bench.at(&format!("/{own}"))]).ok();
    let before = std::fs::read(&bench.image).unwrap();
    let ran = hectare(&["cp", "-a", &bench.at("/."), to]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(std::fs::read(&bench.image).unwrap() == before);
}

/// As root, `cp IMAGE:/f /dev/null` left a file there.
#[test]
fn regression_a_copy_out_replaced_what_is_no_file() {
    let bench = match Bench::fresh("ext4") {
        Ok(bench) => bench,
        Err(reason) => skip!("cli copy::regression_a_copy_out_replaced", reason),
    };
    let (file, pipe) = (bench.local("f"), bench.local("pipe"));
    std::fs::write(&file, "content").unwrap();
    hectare(&["cp", file.to_str().unwrap(), &bench.at("/pipe")]).ok();
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    let folder = bench.image.parent().unwrap().to_str().unwrap();
    for arguments in [["cp", &bench.at("/pipe"), pipe.to_str().unwrap()], ["cp", &bench.at("/pipe"), folder]]
    {
        let ran = hectare(&arguments);
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        assert!(ran.err.contains("no file replaces it"), "{}", ran.err);
        assert!(std::os::unix::fs::FileTypeExt::is_fifo(
            &std::fs::symlink_metadata(&pipe).unwrap().file_type()
        ));
    }
}

/// A bench with an empty volume, and a directory with files.
fn with_files(files: &[(&str, &str)]) -> Bench {
    let bench = Bench::empty();
    hectare(&["mkfs", "-q", bench.image(), "32M"]).ok();
    for (name, content) in files {
        let file = bench.local(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    }
    bench
}

/// Each source had a table of its own.
#[test]
fn regression_hard_links_between_sources_became_files() {
    use std::os::unix::fs::MetadataExt;
    let bench = with_files(&[("s/a", "a"), ("out/x", "")]);
    std::fs::hard_link(bench.local("s/a"), bench.local("s/b")).unwrap();
    let local = |name: &str| bench.local(name).to_str().unwrap().to_owned();
    let (root, out) = (bench.at("/"), local("out"));
    hectare(&["cp", "-a", &local("s/a"), &local("s/b"), &root]).ok();
    hectare(&["mkdir", &bench.at("/d")]).ok();
    hectare(&["cp", "-a", &bench.at("/a"), &bench.at("/b"), &bench.at("/d")]).ok();
    hectare(&["cp", "-a", &bench.at("/d/a"), &bench.at("/d/b"), &out]).ok();
    for dir in ["/", "/d/"] {
        let stat = [format!("{dir}a"), format!("{dir}b")].map(|path| bench.at(&path));
        let found = hectare(&["stat", "--json", &stat[0], &stat[1]]).ok().json();
        assert_eq!((&found[0]["inode"], &found[0]["links"]), (&found[1]["inode"], &2.into()), "{dir}");
    }
    let inode = |name: &str| std::fs::metadata(bench.local(name)).unwrap().ino();
    assert_eq!(inode("out/a"), inode("out/b"));
    // Of two images, files have the same numbers and nothing in common.
    let other = with_files(&[("s/a", "other")]);
    hectare(&["cp", "-a", other.local("s/a").to_str().unwrap(), &other.at("/c")]).ok();
    hectare(&["ln", &other.at("/c"), &other.at("/e")]).ok();
    hectare(&["cp", "-a", &bench.at("/a"), &other.at("/c"), &other.at("/e"), &out]).ok();
    assert_eq!(std::fs::read_to_string(bench.local("out/c")).unwrap(), "other");
    assert_eq!(inode("out/c"), inode("out/e"));
    assert_clean(&bench.image).unwrap();
}

#[test]
fn regression_the_copy_of_one_source_replaced_that_of_another() {
    let bench = with_files(&[("a/x", "a"), ("b/x", "b"), ("b/y", "y"), ("out/x", "there")]);
    let local = |name: &str| bench.local(name).to_str().unwrap().to_owned();
    let check = |ran: crate::support::Ran, content: &dyn Fn(&str) -> String| {
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        assert!(ran.err.contains("this command has made that file from another source"), "{}", ran.err);
        assert_eq!((content("x"), content("y")), ("a".to_owned(), "y".to_owned()));
    };
    let ran = hectare(&["cp", &local("a/x"), &local("b/x"), &local("b/y"), &bench.at("/")]);
    let inside =
        |dir: &str, name: &str| hectare(&["cat", &bench.at(&format!("{dir}{name}"))]).ok().text().to_owned();
    check(ran, &|name| inside("/", name));
    // In directories that are merged, too; what was there before is replaced as ever.
    hectare(&["mkdir", &bench.at("/m")]).ok();
    check(
        hectare(&["cp", "-r", &inner(&bench.local("a")), &inner(&bench.local("b")), &bench.at("/m")]),
        &|name| inside("/m/", name),
    );
    hectare(&["mkdir", &bench.at("/n")]).ok();
    hectare(&["cp", &local("b/x"), &bench.at("/n/")]).ok();
    let ran = hectare(&["cp", &bench.at("/x"), &bench.at("/y"), &bench.at("/n/x"), &local("out")]);
    check(ran, &|name| std::fs::read_to_string(bench.local("out").join(name)).unwrap());
}

#[test]
fn regression_an_attribute_that_does_not_fit_ended_the_copy_of_a_tree() {
    let bench = with_files(&[("s/a", "a"), ("s/b", "b"), ("s/c", "c"), ("s/d/e", "e")]);
    hectare(&["mkfs", "-q", "-F", "-b", "1024", bench.image(), "32M"]).ok();
    let value = vec![b'v'; 3000];
    for name in ["s/a", "s/d"] {
        let flags = rustix::fs::XattrFlags::empty();
        if let Err(error) = rustix::fs::setxattr(bench.local(name), "user.big", &value, flags) {
            skip!("cli copy::regression_an_attribute_that_does_not_fit", error);
        }
    }
    let ran = hectare(&["cp", "-a", bench.local("s").to_str().unwrap(), &bench.at("/")]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    for path in ["/s/a", "/s/d"] {
        let line = format!("{}: its attribute user.big is left out: ", bench.at(path));
        assert!(ran.err.contains(&line), "{}", ran.err);
    }
    for (path, content) in [("/s/a", "a"), ("/s/b", "b"), ("/s/c", "c"), ("/s/d/e", "e")] {
        assert_eq!(hectare(&["cat", &bench.at(path)]).ok().text(), content, "{path}");
    }
    assert_clean(&bench.image).unwrap();
}

/// Without the list that does not fit, the bits that were its mask let the group in.
#[test]
fn regression_an_access_list_that_was_left_out_let_the_group_in() {
    let bench = with_files(&[("s/a", "a")]);
    hectare(&["mkfs", "-q", "-F", "-b", "1024", bench.image(), "32M"]).ok();
    let entry = |tag: u16, permissions: u16, id: u32| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let users = (1..=150).flat_map(|id| entry(2, 6, 5000 + id));
    let mut list = [2_u32.to_le_bytes().to_vec(), entry(1, 6, u32::MAX)].concat();
    list.extend(users);
    list.extend([entry(4, 0, u32::MAX), entry(0x10, 6, u32::MAX), entry(0x20, 0, u32::MAX)].concat());
    let flags = rustix::fs::XattrFlags::empty();
    if let Err(error) = rustix::fs::setxattr(bench.local("s/a"), "system.posix_acl_access", &list, flags) {
        skip!("cli copy::regression_an_access_list_that_was_left_out", error);
    }
    assert_eq!(hectare(&["cp", "-a", bench.local("s").to_str().unwrap(), &bench.at("/")]).code, Some(1));
    assert!(hectare(&["ls", "-l", &bench.at("/s")]).ok().text().starts_with("-rw-------"));
}

#[test]
fn regression_a_directory_that_is_not_there_became_a_file() {
    let bench = with_files(&[("f", "f")]);
    hectare(&["cp", bench.local("f").to_str().unwrap(), &bench.at("/f")]).ok();
    hectare(&["mkdir", &bench.at("/d")]).ok();
    for name in ["new/", "new/.", "f/"] {
        let to = format!("{}/{name}", bench.folder.path().display());
        assert_eq!(hectare(&["cp", &bench.at("/f"), &to]).code, Some(1), "{name}");
        assert!(!bench.local("new").exists(), "{name}");
    }
    let to = format!("{}/new/", bench.folder.path().display());
    hectare(&["cp", "-r", &bench.at("/d"), &to]).ok();
    assert!(bench.local("new").is_dir());
}

/// The copy grew from what it read.
#[test]
fn regression_an_image_was_copied_into_itself() {
    let bench = with_files(&[("f", "f")]);
    let ran = hectare(&["cp", "-a", &inner(bench.folder.path()), &bench.at("/")]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("disk.img: it is the image that is copied into"), "{}", ran.err);
    assert_eq!(hectare(&["ls", &bench.at("/")]).ok().text(), "f\nlost+found\n");
    assert_clean(&bench.image).unwrap();
}
