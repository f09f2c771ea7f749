//! Hostile archives: any bytes give a tree or an error, soon.

use crate::common::*;
use hectare_populate::{Kind, Options, Tree};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// One of everything that an archive can hold.
fn seed() -> Vec<u8> {
    let mut tar = Archive::default();
    tar.pax('g', &[("comment", b"x"), ("mtime", b"1.5")]);
    tar.entry(b'5', "d/", "", &[]).file("d/f", &[b'x'; 700]).entry(b'1', "d/h", "d/f", &[]);
    tar.pax(
        'x',
        &[
            ("path", b"p/q"),
            ("SCHILY.xattr.user.a", b"v"),
            ("SCHILY.acl.access", b"user::r--,group::r--,other::r--"),
        ],
    );
    tar.file("short", b"pax");
    tar.entry(b'L', "././@LongLink", "", &[b'l'; 120]).file("cut", b"").entry(
        b'K',
        "././@LongLink",
        "",
        b"target",
    );
    tar.entry(b'2', "s", "", &[]).entry(b'3', "c", "", &[]).entry(b'6', "p", "", &[]);
    tar.pax('x', &[("GNU.sparse.major", b"1"), ("GNU.sparse.minor", b"0"), ("GNU.sparse.realsize", b"9000")]);
    let mut map = b"2\n0\n5\n8192\n5\n".to_vec();
    map.resize(512, 0);
    map.extend_from_slice(b"helloworld");
    tar.file("sparse1", &map);
    tar.pax('x', &[("GNU.sparse.size", b"9000"), ("GNU.sparse.map", b"0,5,8192,5")]);
    tar.file("sparse0", b"helloworld");
    tar.old_sparse("sparse-old", &[(0, 5), (8192, 5)], 9000, b"helloworld");
    tar.finish();
    tar.bytes
}

/// Reads an archive and everything in it as far as it goes.
fn read(bytes: Vec<u8>) -> bool {
    let Ok(tree) = Tree::build(vec![stream(bytes)], &Options::default()) else { return false };
    let mut opener = tree.opener();
    for id in tree.ids() {
        let _ = (tree.path(id), tree.meta(id), tree.xattrs(id), tree.children(id).count());
        if let Kind::File { size } = tree.kind(id) {
            let content = opener.open(id).unwrap();
            let mut reached = 0;
            for segment in tree.segments(id) {
                assert!(segment.at.get() >= reached && segment.len.get() > 0);
                reached = segment.at.get() + segment.len.get();
                let len = usize::try_from(segment.len.get()).unwrap();
                content.read_exact_at(&mut vec![0; len], segment.source).unwrap();
            }
            assert!(reached <= size.get());
        }
    }
    let _ = tree.totals();
    true
}

#[test]
fn the_seed_is_read() {
    assert!(read(seed()));
    let all = describe(&build(vec![stream(seed())]));
    for name in ["/sparse1", "/sparse0", "/sparse-old"] {
        assert_eq!(all[name].data, [(0, 5), (8192, 5)], "{name}");
        assert_eq!(all[name].content.len(), 9000, "{name}");
        assert_eq!(&all[name].content[8192..8197], b"world", "{name}");
    }
}

#[test]
fn every_truncation_is_an_error_or_between_entries_a_warning() {
    let seed = seed();
    let mut between = BTreeSet::new();
    // Everything but the end mark, of which one block is enough.
    for len in 0..=seed.len() - 1024 {
        if let Ok(tree) = Tree::build(vec![stream(seed[..len].to_vec())], &Options::default()) {
            assert!(tree.warnings().len() == 1, "{len}: {:?}", tree.warnings());
            assert!(tree.warnings()[0].contains("no end mark"), "{:?}", tree.warnings());
            let whole = len.next_multiple_of(512);
            assert!(seed[len..whole].iter().all(|byte| *byte == 0), "{len}: more than padding is lost");
            between.insert(whole);
        }
    }
    assert_eq!(between.len(), 11, "as many as there are entries");
}

#[test]
fn regression_a_path_of_millions_of_names_is_refused() {
    let build = |path: &[u8]| {
        let mut tar = Archive::default();
        tar.pax('x', &[("path", path)]).entry(b'5', "x", "", &[]);
        Tree::build(tar.finish(), &Options::default())
    };
    let longest = "a/".repeat(2047) + "a";
    assert_eq!(build(longest.as_bytes()).unwrap().len(), 2049);
    let error = build("a/".repeat(3_000_000).as_bytes()).unwrap_err().to_string();
    assert!(error.contains("a path of more than 4095 bytes"), "{error:.200}");
}

#[test]
fn regression_directories_that_are_only_implied_have_a_bound() {
    let mut tar = Archive::default();
    for n in 0..20 {
        let path = format!("{n}/") + &"a/".repeat(2000) + "f";
        tar.pax('x', &[("path", path.as_bytes())]).file("x", b"");
    }
    let error = fails(tar.finish());
    assert!(error.contains("too many directories are implied"), "{error:.200}");
}

#[test]
fn regression_a_global_header_does_not_weigh_on_every_entry() {
    let value = vec![b'v'; 1000];
    let names: Vec<String> = (0..2000).map(|n| format!("SCHILY.xattr.user.{n}")).collect();
    let records: Vec<(&str, &[u8])> = names.iter().map(|name| (&**name, &*value)).collect();
    let mut tar = Archive::default();
    tar.pax('g', &records).file("f", b"");
    let error = fails(tar.finish());
    assert!(error.contains("a global header says more than 16 KiB"), "{error}");
    // What is accepted is cheap for many entries: here as much as is accepted, for a hundred thousand.
    let names: Vec<String> = (0..500).map(|n| format!("SCHILY.xattr.user.{n}")).collect();
    let records: Vec<(&str, &[u8])> = names.iter().map(|name| (&**name, &b"0123456789abcdef"[..])).collect();
    let mut tar = Archive::default();
    tar.pax('g', &records);
    for n in 0..20_000 {
        tar.file(&format!("f{n}"), b"");
    }
    let started = std::time::Instant::now();
    let tree = build(tar.finish());
    assert_eq!((tree.len(), tree.xattr_sets().len()), (20_001, 1));
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

#[test]
fn attributes_that_no_volume_holds_are_refused() {
    let long = vec![b'v'; (64 << 10) + 1];
    let mut tar = Archive::default();
    tar.pax('x', &[("SCHILY.xattr.user.a", &long)]).file("f", b"");
    assert!(fails(tar.finish()).contains("longer than 64 KiB"));
    let names: Vec<String> = (0..300).map(|n| format!("SCHILY.xattr.user.{n}")).collect();
    let records: Vec<(&str, &[u8])> = names.iter().map(|name| (&**name, &long[1..])).collect();
    let mut tar = Archive::default();
    tar.pax('x', &records).file("f", b"");
    assert!(fails(tar.finish()).contains("more than 16 MiB"));
}

#[test]
fn sources_unpack_to_no_more_than_is_allowed() {
    let mut tar = Archive::default();
    tar.file("zeros", &vec![0; 1 << 20]);
    let bytes = tar.finish().len();
    assert_eq!(bytes, 1);
    let allowed = |max| Options { max_size: Some(hectare_units::Bytes::new(max)), ..Options::default() };
    let whole = || vec![stream(tar.bytes.clone())];
    assert!(Tree::build(whole(), &allowed(2 << 20)).is_ok());
    let dir = tempfile::tempdir().unwrap();
    write(dir.path().join("zeros"), vec![0; 1 << 20]);
    for sources in [whole(), vec![folder(dir.path())]] {
        let error = Tree::build(sources, &allowed(1 << 19)).unwrap_err().to_string();
        assert!(error.contains("unpack to more than 524288 bytes"), "{error}");
    }
}

#[derive(Clone, Debug)]
enum Change {
    Set(usize, u8),
    Number(usize, u64),
    Remove(usize, usize),
    Repeat(usize, usize),
}

fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), Just(u64::MAX >> 1), any::<u64>(), 0u64..20_000]
}

fn change() -> impl Strategy<Value = Change> {
    let at = 0usize..20_000;
    prop_oneof![
        4 => (at.clone(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        2 => (at.clone(), any_number()).prop_map(|(at, n)| Change::Number(at, n)),
        1 => (at.clone(), 1usize..3).prop_map(|(at, n)| Change::Remove(at / 512 * 512, n * 512)),
        1 => (at, 1usize..3).prop_map(|(at, n)| Change::Repeat(at / 512 * 512, n * 512)),
    ]
}

/// Corrects the checksum of every block that looks like a header, so that changes get past it.
fn mend(bytes: &mut [u8]) {
    for block in bytes.chunks_exact_mut(512) {
        if &block[257..262] == b"ustar" {
            Archive::checksum(block);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn changed_archives_never_panic(changes in prop::collection::vec(change(), 1..6)) {
        let mut bytes = seed();
        for change in changes {
            let len = bytes.len();
            match change {
                Change::Set(at, byte) => bytes[at % len] = byte,
                Change::Number(at, number) => {
                    // Into the size field of a header: base-256 and octal.
                    let at = at % (len / 512) * 512 + 124;
                    let field = if number % 2 == 0 {
                        let mut field = [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                        field[4..].copy_from_slice(&number.to_be_bytes());
                        field.to_vec()
                    } else {
                        format!("{:011o}\0", number & 0xffff_ffff).into_bytes()
                    };
                    bytes[at..at + 12].copy_from_slice(&field);
                }
                Change::Remove(at, n) if at + n < len => { bytes.drain(at..at + n); }
                Change::Repeat(at, n) if at + n < len => {
                    let part = bytes[at..at + n].to_vec();
                    bytes.splice(at..at, part);
                }
                _ => {}
            }
        }
        mend(&mut bytes);
        read(bytes);
    }

    #[test]
    fn random_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 1..3000)) {
        read(bytes.clone());
        if bytes.len() > 512 {
            bytes[257..263].copy_from_slice(b"ustar\0");
            mend(&mut bytes);
            read(bytes);
        }
    }
}
