//! Texts of groups: sound ones, those of other kinds of volumes, and those that lie.

#![allow(clippy::unwrap_used)] // all of this is tests

use super::*;

const HEAD: &str = "vg { id = \"a-b\" seqno = 3 format = \"lvm2\" status = [\"READ\", \"WRITE\"] \
                    extent_size = 8192 physical_volumes { \
                    pv0 { id = \"p-0\" device = \"/dev/x\" pe_start = 2048 pe_count = 100 } \
                    pv1 { id = \"p-1\" pe_start = 2048 pe_count = 100 flags = [\"MISSING\"] } \
                    } logical_volumes {";

/// A group with these logical volumes.
fn group(volumes: &str) -> Result<Group, String> {
    Group::parse(&format!("{HEAD}{volumes} }} }} version = 1"))
}

fn volume(name: &str, status: &str, segments: &[&str]) -> String {
    let count = segments.len();
    let list: String =
        segments.iter().enumerate().map(|(n, text)| format!("segment{} {{ {text} }} ", n + 1)).collect();
    format!("{name} {{ id = \"x\" status = [{status}] segment_count = {count} {list} }} ")
}

fn linear(first: u64, count: u64, on: &str, at: u64) -> String {
    format!(
        "start_extent = {first} extent_count = {count} type = \"striped\" stripe_count = 1 \
         stripes = [\"{on}\", {at}]"
    )
}

const SEEN: &str = "\"READ\", \"WRITE\", \"VISIBLE\"";

#[test]
fn a_group_is_read() {
    let (one, two) = (linear(0, 5, "pv0", 0), linear(5, 5, "pv1", 7));
    let found = group(&volume("root", SEEN, &[&one, &two])).unwrap();
    assert_eq!((found.name.as_str(), found.id.as_str(), found.seqno, found.extent), ("vg", "ab", 3, 8192));
    let root = &found.logical["root"];
    assert_eq!(
        (root.extents, &root.kind, root.is_writable, root.has_snapshots),
        (10, &Kind::Plain, true, false)
    );
    assert_eq!(root.segments[1].stripes, [("pv1".to_owned(), 7)]);
    assert!(found.physical["pv1"].is_missing && !found.physical["pv0"].is_missing);
}

#[test]
fn a_group_that_several_machines_have_is_known() {
    let with = |more: &str| {
        let text = HEAD.replacen("seqno = 3", &format!("seqno = 3 {more}"), 1) + " } }";
        Group::parse(&text).unwrap().is_shared
    };
    assert!(with("lock_type = \"sanlock\"") && with("lock_type = \"dlm\""));
    assert!(!with("lock_type = \"none\"") && !with(""));
}

#[test]
fn what_is_not_plain_is_named() {
    let of = |kind: &str| format!("start_extent = 0 extent_count = 5 type = \"{kind}\"");
    for (kind, said) in [
        ("thin", "it is thin"),
        ("thin-pool", "a pool of thin"),
        ("raid1", "a RAID (raid1)"),
        ("raid5_ls+RESHAPE", "a RAID"),
        ("mirror", "a mirror"),
        ("cache", "cached"),
        ("snapshot", "a snapshot"),
        ("error", "type error"),
        ("never-seen", "the type never-seen"),
    ] {
        let found = group(&volume("x", SEEN, &[&of(kind)])).unwrap();
        assert!(matches!(&found.logical["x"].kind, Kind::Other(what) if what.contains(said)), "{kind}");
    }
    let hidden = group(&volume("x", "\"READ\"", &[&linear(0, 5, "pv0", 0)])).unwrap();
    assert!(matches!(&hidden.logical["x"].kind, Kind::Other(what) if what.contains("a part of another")));
    assert!(!hidden.logical["x"].is_writable);
    let moved = volume("x", SEEN, &[&linear(0, 5, "pvmove0", 0)]) + &volume("pvmove0", "", &[&of("mirror")]);
    let moved = group(&moved).unwrap();
    assert!(matches!(&moved.logical["x"].kind, Kind::Other(what) if what.contains("pvmove0")));
}

/// The store of a snapshot is a plain visible volume, and holds something else than the snapshot.
#[test]
fn stores_of_snapshots_are_no_volumes() {
    let all = |key: &str| {
        let snapshot = format!(
            "start_extent = 0 extent_count = 5 type = \"snapshot\" chunk_size = 8 origin = \"root\" \
             {key} = \"snap\""
        );
        let volumes = volume("root", SEEN, &[&linear(0, 5, "pv0", 0)])
            + &volume("snap", SEEN, &[&linear(0, 5, "pv0", 5)])
            + &volume("snapshot0", SEEN, &[&snapshot]);
        group(&volumes).unwrap()
    };
    let usual = all("cow_store");
    assert!(matches!(&usual.logical["snap"].kind, Kind::Other(what) if what == "it is a snapshot"));
    assert!(usual.logical["root"].kind == Kind::Plain && usual.logical["root"].has_snapshots);
    let merging = all("merging_store");
    assert!(matches!(&merging.logical["root"].kind, Kind::Other(what) if what.contains("merged")));
    assert!(matches!(&merging.logical["snap"].kind, Kind::Other(_)));
}

#[test]
fn numbers_that_lie_are_refused() {
    let long = |text: &str| volume("x", SEEN, &[text]);
    for (volumes, said) in [
        (long(&linear(1, 5, "pv0", 0)), "does not begin where"),
        (long(&linear(0, 0, "pv0", 0)), "or is empty"),
        (long(&linear(0, 5, "pv0", 96)), "beyond the end of pv0"),
        (long(&linear(0, u64::MAX / 2, "pv0", u64::MAX / 2 - 5)), "beyond the end of pv0"),
        (long(&linear(0, 5, "pv7", 0)), "pv7, which is not there"),
        (volume("x", SEEN, &[&linear(0, 5, "pv0", 0), &linear(4, 5, "pv0", 5)]), "does not begin where"),
        (
            long(&linear(0, 5, "pv0", 0)) + &volume("y", "", &[&linear(0, 5, "pv0", 4)]),
            "x and y share extents",
        ),
        (volume("x", SEEN, &[&linear(0, 5, "pv0", 0), &linear(5, 5, "pv0", 3)]), "x and x share extents"),
        ("x { segment_count = 99999999999 }".to_owned(), "more segments than can be"),
        ("x { segment_count = 1000000 }".to_owned(), "no segment 1"),
        ("x { status = [] }".to_owned(), "no count of segments"),
        ("\"x\" { }".to_owned(), "a name"),
        ("-x { segment_count = 0 }".to_owned(), "a name that LVM2 does not take"),
        (
            long(
                "start_extent = 0 extent_count = 5 type = \"striped\" stripe_count = 2 stripe_size = 8 \
                  stripes = [\"pv0\", 0, \"pv0\", 50]",
            ),
            "not equally long",
        ),
        (
            long(
                "start_extent = 0 extent_count = 4 type = \"striped\" stripe_count = 2 stripe_size = 3 \
                  stripes = [\"pv0\", 0, \"pv0\", 50]",
            ),
            "length of its chunks",
        ),
        (
            long("start_extent = 0 extent_count = 4 type = \"striped\" stripe_count = 1 stripes = [\"pv0\"]"),
            "no pairs",
        ),
    ] {
        let error = group(&volumes).unwrap_err();
        assert!(error.contains(said), "{volumes}: {error}");
    }
    for (text, said) in [
        ("", "no volume group"),
        ("a { } b { }", "one volume group"),
        ("a { extent_size = 0 }", "length of an extent"),
        ("a { extent_size = 8192 seqno = 1 }", "no id"),
        ("a { extent_size = 8192 seqno = 1 id = \"x\" physical_volumes { p { } } }", "p lacks something"),
    ] {
        let error = Group::parse(text).unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
    }
}
