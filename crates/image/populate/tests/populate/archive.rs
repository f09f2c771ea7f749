//! Archives as sources: GNU tar's archive of a directory gives the same tree as the directory.

use crate::common::*;
use hectare_oracle::{is_root, skip, skip_part};
use hectare_populate::{Excludes, Options, Source, Timestamp, Tree};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Creates a directory with one of everything at `at`; returns whether it has extended attributes, too.
fn prepare(at: &Path) -> bool {
    everything(at);
    if is_root() {
        everything_of_root(at);
    } else {
        skip_part!("populate archive::prepare", "devices, owners and trusted attributes (not root)");
    }
    let has = xattrs_of_user(at);
    if !has {
        skip_part!(
            "populate archive::prepare",
            "user attributes and ACLs (not supported here, or no setfacl)"
        );
    }
    has
}

/// Removes from descriptions what a format can't hold.
fn reduce(all: &mut BTreeMap<String, Described>, nanoseconds: bool, attributes: bool, holes: bool) {
    for node in all.values_mut() {
        if !nanoseconds {
            node.mtime.nanoseconds = 0;
        }
        if !attributes {
            node.xattrs.clear();
        }
        if !holes {
            node.data.clear();
        }
    }
}

fn compare(mut expected: BTreeMap<String, Described>, tree: &Tree, reduced: (bool, bool, bool)) {
    let mut found = describe(tree);
    for all in [&mut expected, &mut found] {
        reduce(all, reduced.0, reduced.1, reduced.2);
    }
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (path, node) in &expected {
        assert!(found[path] == *node, "{path}: {:?}\nexpected {node:?}", found[path]);
    }
}

#[test]
fn every_format_of_gnu_tar_gives_the_tree_of_the_folder() {
    if !tool("tar", &["--version"]) {
        skip!(
            "populate archive::every_format_of_gnu_tar_gives_the_tree_of_the_folder",
            "archives of GNU tar (no tar)"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    fs::create_dir(&from).unwrap();
    let attributes = prepare(&from);
    let expected = describe(&build(vec![folder(&from)]));
    let to = dir.path().join("archive.tar");
    let xattrs: [&[&str]; 2] = [
        &["--xattrs", "--xattrs-include=*"],
        &["--xattrs", "--xattrs-include=[!s]*", "--xattrs-include=security.*", "--acls"],
    ];
    type Case = (&'static [&'static str], (bool, bool, bool));
    let cases: &[Case] = &[
        (&["--format=gnu"], (false, false, false)),
        (&["--format=gnu", "--sparse"], (false, false, true)),
        (&["--format=gnu", "--incremental"], (false, false, false)),
        (&["--format=pax"], (true, false, false)),
        (&["--format=pax", "--sparse"], (true, false, true)),
        (&["--format=pax", "--sparse", "--sparse-version=0.0"], (true, false, true)),
        (&["--format=pax", "--sparse", "--sparse-version=0.1"], (true, false, true)),
        (&["--format=pax", "--label=a label"], (true, false, false)),
    ];
    for (flags, reduced) in cases {
        assert!(tar(&from, &to, flags), "{flags:?}");
        compare(expected.clone(), &build(vec![archive(&to)]), *reduced);
        if attributes && flags[0] == "--format=pax" {
            for more in xattrs {
                assert!(tar(&from, &to, &[flags, more].concat()), "{flags:?}");
                compare(expected.clone(), &build(vec![archive(&to)]), (true, true, reduced.2));
            }
        }
    }
}

#[test]
fn ustar_gives_the_tree_of_a_folder_that_it_can_hold() {
    if !tool("tar", &["--version"]) {
        skip!(
            "populate archive::ustar_gives_the_tree_of_a_folder_that_it_can_hold",
            "archives of GNU tar (no tar)"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    let long = (0..4).fold(from.clone(), |path, i| path.join(format!("{i}").repeat(40)));
    write(long.join("end"), "a path that needs the prefix");
    write(from.join("file"), "a short name");
    fs::hard_link(from.join("file"), from.join("linked")).unwrap();
    std::os::unix::fs::symlink("linked", from.join("link")).unwrap();
    times(&from);
    let expected = describe(&build(vec![folder(&from)]));
    let to = dir.path().join("archive.tar");
    for format in ["--format=ustar", "--format=v7"] {
        if format == "--format=v7" {
            fs::remove_dir_all(from.join("0".repeat(40))).unwrap();
            times(&from);
        }
        let expected =
            if format == "--format=v7" { describe(&build(vec![folder(&from)])) } else { expected.clone() };
        assert!(tar(&from, &to, &[format]));
        compare(expected, &build(vec![archive(&to)]), (false, false, false));
    }
}

#[test]
fn compressed_archives_and_streams_give_the_same_tree() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    fs::create_dir(&from).unwrap();
    everything(&from);
    let to = dir.path().join("archive.tar");
    if !tar(&from, &to, &["--format=pax", "--sparse"]) {
        skip!(
            "populate archive::compressed_archives_and_streams_give_the_same_tree",
            "archives of GNU tar (no tar)"
        );
    }
    let expected = describe(&build(vec![archive(&to)]));
    let plain = fs::read(&to).unwrap();
    let stream = |bytes: Vec<u8>| {
        vec![Source::Stream { name: "a stream".to_owned(), reader: Box::new(std::io::Cursor::new(bytes)) }]
    };
    assert!(describe(&build(stream(plain.clone()))) == expected, "plain stream");
    // Two pieces one after the other.
    let (first, second) = plain.split_at(plain.len() / 2);
    for program in ["gzip", "zstd", "xz", "bzip2"] {
        let mut compressed = Vec::new();
        for (i, part) in [first, second].into_iter().enumerate() {
            let path = dir.path().join(format!("part{i}"));
            let out = dir.path().join(format!("part{i}.compressed"));
            fs::write(&path, part).unwrap();
            let command = format!("{program} -c {} > {}", path.display(), out.display());
            if !tool("sh", &["-c", &command]) {
                skip!("populate archive::compressed_archives_and_streams_give_the_same_tree", program);
            }
            compressed.extend(fs::read(out).unwrap());
        }
        let file = dir.path().join("archive.compressed");
        fs::write(&file, &compressed).unwrap();
        assert!(describe(&build(vec![archive(&file)])) == expected, "{program} file");
        assert!(describe(&build(stream(compressed.clone()))) == expected, "{program} stream");
        compressed.truncate(compressed.len() - 20);
        let error = fails(stream(compressed.clone()));
        assert_eq!(error, "a stream: the compressed archive is truncated", "{program}");
    }
    let lz4 = fails(stream(b"\x04\x22\x4d\x18 and so on".to_vec()));
    assert!(lz4.contains("lz4 -dc"), "{lz4}");
}

#[test]
fn entries_are_taken_as_unpacking_would() {
    let mut tar = Archive::default();
    tar.file("/abs/./file", b"first").file("abs/file", b"second").file("x/y/z", b"implied");
    tar.entry(b'1', "hard", "abs/file", &[]).entry(b'5', "dir/", "", &[]).entry(b'0', "old-dir/", "", &[]);
    let tree = build(tar.finish());
    let all = describe(&tree);
    assert_eq!(
        all.keys().map(String::as_str).collect::<Vec<_>>(),
        ["", "/abs", "/abs/file", "/dir", "/hard", "/old-dir", "/x", "/x/y", "/x/y/z"]
    );
    assert_eq!(all["/hard"].content, b"second");
    assert_eq!(all["/hard"].links, 2);
    assert_eq!((all["/x"].mode, all["/x"].mtime), (0o755, Timestamp::at(0)));
    assert_eq!(all["/old-dir"].kind, "Directory");
}

#[test]
fn pax_records_say_what_headers_can_t() {
    let mut tar = Archive::default();
    tar.pax('g', &[("uid", b"99"), ("mtime", b"5.25")]);
    tar.pax('x', &[("path", b"a/\xffname"), ("gid", b"4000000000"), ("LIBARCHIVE.xattr.user.l%3d", b"AAEC")]);
    tar.file("short", b"x").file("plain", b"y");
    tar.pax(
        'x',
        &[("RHT.security.selinux", b"u:r:t"), ("SCHILY.xattr.btrfs.compression", b"zstd"), ("uid", b"")],
    );
    tar.file("third", b"");
    let tree = build(tar.finish());
    let all = describe(&tree);
    let first = &all["/a/\\xffname"];
    assert_eq!(
        (first.owner, first.mtime),
        ((99, 4_000_000_000), Timestamp { seconds: 5, nanoseconds: 250_000_000 })
    );
    assert_eq!(first.xattrs, [("user.l=".to_owned(), vec![0, 1, 2])]);
    assert_eq!(all["/plain"].owner, (99, 0));
    assert_eq!(all["/third"].owner, (0, 0));
    assert_eq!(all["/third"].xattrs, [("security.selinux".to_owned(), b"u:r:t\0".to_vec())]);
    assert_eq!(tree.left_out().collect::<Vec<_>>(), [(&b"btrfs.compression"[..], 1)]);
}

#[test]
fn a_hard_link_to_an_excluded_file_keeps_the_data() {
    let mut tar = Archive::default();
    tar.file("skip/me", b"data").entry(b'1', "keep", "skip/me", &[]);
    let mut excludes = Excludes::default();
    excludes.add(b"skip").unwrap();
    let tree = Tree::build(tar.finish(), &Options { excludes, ..Options::default() }).unwrap();
    let all = describe(&tree);
    assert_eq!((all.len(), &*all["/keep"].content, all["/keep"].links), (2, &b"data"[..], 1));
}

#[test]
fn what_can_t_be_taken_is_refused_by_name() {
    type Make = fn(&mut Archive) -> &mut Archive;
    let cases: &[(Make, &str)] = &[
        (|tar| tar.file("a/../b", b""), "a/../b: a path with .."),
        (
            |tar| tar.entry(b'1', "h", "nothing", &[]),
            "h: it is a hard link to nothing, which does not come before it",
        ),
        (
            |tar| tar.entry(b'5', "d", "", &[]).entry(b'1', "h", "d", &[]),
            "h: it is a hard link to the directory d",
        ),
        (|tar| tar.file("f", b"").file("f/g", b""), "f: entries lie below it, but it is not a directory"),
        (
            |tar| tar.entry(b'2', "l", "m", &[]).entry(b'2', "m", "l", &[]).file("l/g", b""),
            "l: entries lie below it, but symbolic links lead in a circle",
        ),
        (|tar| tar.entry(b'2', "l", "", &[]), "l: a symbolic link to nothing"),
        (|tar| tar.entry(b'M', "m", "", &[]), "m: it continues from another volume"),
        (|tar| tar.entry(b'q', "q", "", &[]), "q: its entry type 'q' is not known"),
        (|tar| tar.file(".", b""), "the root of an archive must be a directory"),
        (|tar| tar.pax('x', &[("path", &[b'n'; 256])]).file("x", b""), "a name longer than 255 bytes"),
        (|tar| tar.pax('x', &[("SCHILY.acl.access", b"user:joe:r--")]).file("x", b""), "its ACL names 'joe'"),
        (|tar| tar.pax('x', &[("uid", b"4294967295")]).file("x", b""), "its owner or group is 4294967295"),
        (
            |tar| tar.pax('x', &[("GNU.sparse.major", b"2")]).file("x", b""),
            "a sparse file of an unknown form",
        ),
    ];
    for (make, expected) in cases {
        let mut tar = Archive::default();
        make(&mut tar);
        let error = fails(tar.finish());
        assert!(error.contains(expected) && error.starts_with("test.tar:"), "{error}");
    }
}

#[test]
fn regression_a_device_that_an_inode_would_cut_is_refused() {
    for (major, minor, fits) in [(4095, 1_048_575, true), (4096, 1, false), (1, 1_048_576, false)] {
        let mut tar = Archive::default();
        tar.entry(b'3', "null", "", &[]);
        tar.bytes[329..337].copy_from_slice(format!("{major:07o}\0").as_bytes());
        tar.bytes[337..345].copy_from_slice(format!("{minor:07o}\0").as_bytes());
        Archive::checksum(&mut tar.bytes[..512]);
        let built = Tree::build(tar.finish(), &Options::default());
        let error = built.err().map(|error| error.to_string()).unwrap_or_default();
        let expected = format!("null: an inode has no room for the device {major}:{minor}");
        assert_eq!((error.is_empty(), error.contains(&expected)), (fits, !fits), "{error}");
    }
}

/// Archives made elsewhere say 0644; no link has such a mode that was unpacked.
#[test]
fn regression_links_have_the_mode_that_unpacking_gives_them() {
    let mut tar = Archive::default();
    tar.entry(b'2', "link", "to", &[]).file("file", b"");
    let all = describe(&build(tar.finish()));
    assert_eq!((all["/link"].mode, all["/file"].mode), (0o777, 0o644));
}

/// As tar and the kernel do: an access ACL is the mode as well, and one that says no more is only the mode.
#[test]
fn regression_an_acl_contradicted_the_mode_of_its_entry() {
    let mut tar = Archive::default();
    let more = b"user::rw-,user:1000:r--,group::r--,mask::r--,other::---";
    tar.pax('x', &[("SCHILY.acl.access", more)]).file("more", b"");
    tar.pax('x', &[("SCHILY.acl.access", b"user::rwx,group::r--,other::---")]).file("minimal", b"");
    let all = describe(&build(tar.finish()));
    assert_eq!((all["/more"].mode, all["/more"].xattrs.len()), (0o640, 1), "644 in the header");
    assert_eq!((all["/minimal"].mode, all["/minimal"].xattrs.len()), (0o740, 0));
    // The attribute itself says the same.
    let (_, value) = &all["/more"].xattrs[0];
    let mut tar = Archive::default();
    tar.pax('x', &[("SCHILY.xattr.system.posix_acl_access", value)]).file("more", b"");
    assert_eq!(describe(&build(tar.finish()))["/more"].mode, 0o640);
}

#[test]
fn truncated_and_foreign_bytes_are_told() {
    let mut tar = Archive::default();
    tar.file("a", &[b'x'; 2000]);
    let whole = tar.bytes.clone();
    for (len, expected) in [
        (300, "it ends at byte 300, inside a header"),
        (1000, "it ends at byte 1000, inside the data of a file"),
    ] {
        let error = fails(vec![stream(whole[..len].to_vec())]);
        assert!(error.contains(expected), "{error}");
    }
    for (bytes, expected) in
        [(b"#!/bin/sh\n".repeat(200), "it is not a tar archive"), (Vec::new(), "it is empty")]
    {
        let error = fails(vec![stream(bytes)]);
        assert!(error.contains(expected), "{error}");
    }
    let mut wrong = tar.bytes.clone();
    let at = wrong.len();
    tar.file("b", b"");
    wrong.extend_from_slice(&tar.bytes[at..]);
    wrong[at] ^= 1;
    let error = fails(vec![stream(wrong)]);
    assert!(error.contains(&format!("the checksum of a header is wrong (at byte {at} ")), "{error}");
    let dir = tempfile::tempdir().unwrap();
    assert!(fails(vec![archive(dir.path())]).contains("it is a directory"));
}

#[test]
fn an_archive_that_changes_after_the_scan_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tar");
    let mut tar = Archive::default();
    tar.file("f", &[b'x'; 3000]);
    tar.finish();
    fs::write(&path, &tar.bytes).unwrap();
    let tree = build(vec![archive(&path)]);
    let id = tree.ids().last().unwrap();
    let content = tree.opener().open(id).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1024).unwrap();
    let error = content.verify().unwrap_err().to_string();
    assert!(error.contains("a.tar: it became shorter"), "{error}");
}

#[test]
fn regression_a_hard_link_of_a_pax_archive_may_have_its_data() {
    for body in [&[0; 2048][..], b"text", &[b'x'; 700]] {
        let mut tar = Archive::default();
        tar.file("d1", body)
            .pax('x', &[("mtime", b"1.5")])
            .entry(b'1', "d2", "d1", body)
            .file("last", b"kept");
        let all = describe(&build(tar.finish()));
        assert_eq!((all["/d2"].names.len(), &*all["/last"].content), (2, &b"kept"[..]));
    }
}

#[test]
fn regression_nothing_behind_a_block_of_zeros_is_lost_in_silence() {
    // Before pax, a hard link had a size and no data: data that is there is no entry.
    let mut tar = Archive::default();
    tar.file("d1", b"x").entry(b'1', "d2", "d1", &[[0; 1024], [b'z'; 1024]].concat()).file("last", b"lost");
    assert!(fails(tar.finish()).contains("another archive follows"));
    let mut tar = Archive::default();
    tar.file("a", b"x").bytes.extend([0; 1024]);
    tar.bytes.extend([b'z'; 600]);
    let tree = build(vec![stream(tar.bytes)]);
    let warning = "test.tar: bytes that are not zero follow the end mark of the archive, and were not read";
    assert_eq!(tree.warnings(), [warning]);
}

#[test]
fn regression_options_for_everything_count_for_a_root_that_no_source_describes() {
    let mut tar = Archive::default();
    tar.file("d/f", b"x");
    let modes = Some(hectare_populate::ModeChange::parse("D:0700").unwrap());
    let options = Options { owner: Some((5, 6)), modes, ..Options::default() };
    let all = describe(&Tree::build(tar.finish(), &options).unwrap());
    for path in ["", "/d"] {
        assert_eq!((all[path].mode, all[path].owner), (0o700, (5, 6)), "{path:?}");
    }
}

/// The access ACL of a node, and its mode.
fn acl_of(node: &Described) -> (u16, Vec<(hectare_ext4::acl::Tag, u8)>) {
    let value = &node.xattrs.iter().find(|(name, _)| name == "system.posix_acl_access").unwrap().1;
    let acl = hectare_ext4::acl::Acl::from_xattr(value).unwrap().unwrap();
    (node.mode, acl.entries().iter().map(|entry| (entry.tag, entry.perm)).collect())
}

#[test]
fn regression_a_mode_that_is_set_counts_for_the_access_acl() {
    use hectare_ext4::acl::Tag;
    let acl: &[(&str, &[u8])] =
        &[("SCHILY.acl.access", b"user::rw-,user:1000:rw-,group::r--,mask::rw-,other::r--")];
    let spec = |text: &str| vec![hectare_populate::Spec::parse(b"spec", text.as_bytes()).unwrap()];
    let expected =
        [(Tag::UserObj, 6), (Tag::User(1000), 6), (Tag::GroupObj, 4), (Tag::Mask, 4), (Tag::Other, 0)];
    for options in [
        Options { modes: Some(hectare_populate::ModeChange::parse("0640").unwrap()), ..Options::default() },
        Options { specs: spec("#mtree\n. mode=0640\n./f mode=0640\n"), ..Options::default() },
        Options { specs: spec(" 0 0 0640\nf 0 0 0640\n"), ..Options::default() },
    ] {
        let mut tar = Archive::default();
        tar.pax('x', acl).entry(b'5', "./", "", &[]).pax('x', acl).file("f", b"x");
        let all = describe(&Tree::build(tar.finish(), &options).unwrap());
        for path in ["", "/f"] {
            assert_eq!(acl_of(&all[path]), (0o640, expected.to_vec()), "{path:?}");
        }
    }
    let root =
        hectare_populate::Meta { mode: 0o600, ..build(Vec::new()).meta(hectare_populate::NodeId::ROOT) };
    let mut tar = Archive::default();
    tar.pax('x', acl).entry(b'5', "./", "", &[]).file("f", b"x");
    let all =
        describe(&Tree::build(tar.finish(), &Options { root: Some(root), ..Options::default() }).unwrap());
    assert_eq!(acl_of(&all[""]).1[3..], [(Tag::Mask, 0), (Tag::Other, 0)]);
}

#[test]
fn regression_specifications_refuse_the_owner_that_stands_for_none() {
    for text in [
        "#mtree\n./a type=file uid=4294967295 gid=0 mode=0644\n",
        "#mtree\n./a type=file uid=0 gid=4294967295 mode=0644\n",
        "/a f 644 4294967295 0 - - - - -\n",
        "/a f 644 0 4294967295 - - - - -\n",
        "a 4294967295 0 0644\n",
        "a 0 4294967295 0644\n",
    ] {
        let error = hectare_populate::Spec::parse(b"spec", text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("4294967295"), "{error}");
    }
    let options = Options { owner: Some((7, u32::MAX)), ..Options::default() };
    let error = Tree::build(Vec::new(), &options).unwrap_err().to_string();
    assert!(error.contains("--owner \"7:4294967295\""), "{error}");
}

#[test]
fn regression_an_attribute_that_libarchive_wrote_twice_is_one() {
    for reversed in [false, true] {
        let mut records: Vec<(&str, &[u8])> = vec![
            ("LIBARCHIVE.xattr.user.a%20b", b"eA=="),
            ("SCHILY.xattr.user.a%20b", b"x"),
            ("SCHILY.xattr.user.c", b"y"),
        ];
        if reversed {
            records.reverse();
        }
        let mut tar = Archive::default();
        tar.pax('x', &records).file("f", b"x");
        let xattrs = describe(&build(tar.finish()))["/f"].xattrs.clone();
        assert_eq!(xattrs, [("user.a b".to_owned(), b"x".to_vec()), ("user.c".to_owned(), b"y".to_vec())]);
    }
}
