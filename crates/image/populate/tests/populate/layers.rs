//! Several sources, one over the other.

use crate::common::*;
use hectare_populate::{NodeId, Source, Tree};
use std::fs;
use std::path::Path;

fn paths(tree: &Tree) -> Vec<String> {
    describe(tree).into_keys().skip(1).collect()
}

/// Files to their own name as content; `name/` makes a directory.
fn fill(at: &Path, names: &[&str]) {
    fs::create_dir_all(at).unwrap();
    for name in names {
        match name.strip_suffix('/') {
            Some(dir) => fs::create_dir_all(at.join(dir)).unwrap(),
            None => write(at.join(name), format!("{} of {}", name, at.file_name().unwrap().display())),
        }
    }
}

/// The same layers as directories, and as archives with their entries in both orders.
fn every_way(layers: &[&[&str]], check: impl Fn(&Tree)) {
    let dir = tempfile::tempdir().unwrap();
    let mut folders: Vec<Source> = Vec::new();
    for (i, names) in layers.iter().enumerate() {
        let at = dir.path().join(format!("layer{i}"));
        fill(&at, names);
        folders.push(folder(&at));
    }
    check(&build(folders));
    for reversed in [false, true] {
        let mut archives = Vec::new();
        for (i, names) in layers.iter().enumerate() {
            let mut tar = Archive::default();
            let mut names = names.to_vec();
            if reversed {
                names.reverse();
            }
            for name in names {
                match name.strip_suffix('/') {
                    Some(dir) => tar.entry(b'5', dir, "", &[]),
                    None => tar.file(name, format!("{name} of layer{i}").as_bytes()),
                };
            }
            archives.extend(tar.finish());
        }
        check(&build(archives));
    }
}

#[test]
fn later_sources_replace_and_merge() {
    every_way(&[&["a", "d/x", "d/y", "f/in", "g"], &["a", "d/x", "f", "g/in"]], |tree| {
        assert_eq!(paths(tree), ["/a", "/d", "/d/x", "/d/y", "/f", "/g", "/g/in"]);
        let all = describe(tree);
        assert_eq!(all["/a"].content, b"a of layer1");
        assert_eq!(all["/d/x"].content, b"d/x of layer1");
        assert_eq!(all["/d/y"].content, b"d/y of layer0");
        assert_eq!(all["/f"].content, b"f of layer1");
    });
}

#[test]
fn a_whiteout_removes_from_the_layers_below_only() {
    every_way(&[&["a", "b", "d/x", "e/x"], &[".wh.a", ".wh.b", "b", ".wh.d", ".wh.e", "e/new"]], |tree| {
        assert_eq!(paths(tree), ["/b", "/e", "/e/new"]);
        assert_eq!(describe(tree)["/b"].content, b"b of layer1");
    });
}

#[test]
fn an_opaque_directory_hides_everything_below() {
    every_way(
        &[&["d/x", "d/sub/y", "d/sub/deep/z", "k"], &["d/sub/new", "d/.wh..wh..opq", "d/own"], &["d/x"]],
        |tree| {
            assert_eq!(paths(tree), ["/d", "/d/own", "/d/sub", "/d/sub/new", "/d/x", "/k"]);
            assert_eq!(describe(tree)["/d/x"].content, b"d/x of layer2");
        },
    );
}

#[test]
fn what_a_whiteout_removed_can_come_back() {
    every_way(&[&["d/x"], &[".wh.d"], &["d/y"]], |tree| assert_eq!(paths(tree), ["/d", "/d/y"]));
}

#[test]
fn whiteouts_of_the_first_source_are_dropped() {
    every_way(&[&["a", ".wh.a", ".wh..wh..opq", ".wh..wh.plnk/"], &["b"]], |tree| {
        assert_eq!(paths(tree), ["/a", "/b"]);
    });
}

#[test]
fn with_one_source_whiteouts_are_files() {
    every_way(&[&["a", ".wh.a"]], |tree| assert_eq!(paths(tree), ["/.wh.a", "/a"]));
}

#[test]
fn a_hard_link_survives_the_removal_of_its_first_name() {
    let dir = tempfile::tempdir().unwrap();
    let (lower, upper) = (dir.path().join("lower"), dir.path().join("upper"));
    fill(&lower, &["a/first", "z/"]);
    fs::hard_link(lower.join("a/first"), lower.join("z/second")).unwrap();
    fill(&upper, &[".wh.a"]);
    let all = describe(&build(vec![folder(&lower), folder(&upper)]));
    assert_eq!((all.len(), all["/z/second"].links), (3, 1));
    assert_eq!(all["/z/second"].content, b"a/first of lower");
}

#[test]
fn a_hard_link_may_name_a_file_of_a_lower_layer() {
    let (mut lower, mut upper) = (Archive::default(), Archive::default());
    lower.file("f", b"data");
    upper.entry(b'1', "g", "f", &[]);
    let all = describe(&build([lower.finish(), upper.finish()].into_iter().flatten().collect()));
    assert_eq!((all["/f"].links, all["/g"].names.len()), (2, 2));
}

#[test]
fn the_last_source_describes_the_root() {
    let dir = tempfile::tempdir().unwrap();
    let (lower, upper) = (dir.path().join("lower"), dir.path().join("upper"));
    fill(&lower, &["x/"]);
    fill(&upper, &["x/"]);
    rustix::fs::chmod(&upper, rustix::fs::Mode::from_raw_mode(0o2711)).unwrap();
    rustix::fs::chmod(upper.join("x"), rustix::fs::Mode::from_raw_mode(0o700)).unwrap();
    let tree = build(vec![folder(&lower), folder(&upper)]);
    assert_eq!(tree.meta(NodeId::ROOT).mode, 0o2711);
    assert_eq!(describe(&tree)["/x"].mode, 0o700);
}

/// Layers of entries: a name and its content, or `name -> target`.
fn layers(layers: &[&[&str]]) -> Tree {
    build(sources(layers))
}

fn sources(layers: &[&[&str]]) -> Vec<Source> {
    let layer = |names: &&[&str]| {
        let mut tar = Archive::default();
        for name in *names {
            match (name.split_once(" -> "), name.split_once(" = "), name.strip_suffix('/')) {
                (Some((name, target)), _, _) => tar.entry(b'2', name, target, &[]),
                (_, Some((name, target)), _) => tar.entry(b'1', name, target, &[]),
                (_, _, Some(dir)) => tar.entry(b'5', dir, "", &[]),
                _ => tar.file(name, name.as_bytes()),
            };
        }
        tar.finish()
    };
    layers.iter().flat_map(layer).collect()
}

#[test]
fn regression_what_lies_below_a_link_of_a_lower_layer_goes_where_the_link_leads() {
    let lower: &[&str] =
        &["usr/lib/old", "lib -> usr/lib", "abs -> /usr/lib", "etc/up -> ../../../usr", "new -> made/later"];
    let tree = layers(&[
        lower,
        &["lib/a", "abs/b", "etc/up/lib/c", "new/d", "lib/sub/e", "lib/.wh.old", "h = lib/a"],
    ]);
    let all = describe(&tree);
    let paths: Vec<&str> = all.keys().map(|path| path.as_str()).skip(1).collect();
    assert_eq!(
        paths,
        [
            "/abs",
            "/etc",
            "/etc/up",
            "/h",
            "/lib",
            "/made",
            "/made/later",
            "/made/later/d",
            "/new",
            "/usr",
            "/usr/lib",
            "/usr/lib/a",
            "/usr/lib/b",
            "/usr/lib/c",
            "/usr/lib/sub",
            "/usr/lib/sub/e"
        ]
    );
    assert_eq!((&*all["/lib"].kind, all["/h"].names.len()), ("symlink to usr/lib", 2));
    assert_eq!(all["/usr/lib/c"].content, b"etc/up/lib/c");
}

#[test]
fn an_entry_replaces_a_link_and_does_not_follow_it() {
    let all = describe(&layers(&[&["usr/f", "l -> usr/f", "d -> usr"], &["l", "d/", "d/x"]]));
    assert_eq!((&*all["/l"].content, &*all["/usr/f"].content), (&b"l"[..], &b"usr/f"[..]));
    assert!(all["/d"].kind == "Directory" && all.contains_key("/d/x") && !all.contains_key("/usr/x"));
}

#[test]
fn links_lead_nowhere_but_into_the_image() {
    let outside = tempfile::tempdir().unwrap();
    let target = format!("l -> {}", outside.path().display());
    let tree = layers(&[&[&target, "r -> ../../../../.."], &["l/in", "r/at-root"]]);
    let all = describe(&tree);
    assert!(all.contains_key(&format!("{}/in", outside.path().display())) && all.contains_key("/at-root"));
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn what_is_excluded_is_left_out_where_a_link_leads_too() {
    let (mut lower, mut upper) = (Archive::default(), Archive::default());
    lower.entry(b'2', "lib", "usr/lib", &[]).entry(b'2', "share", "usr/share", &[]);
    upper.file("lib/secret", b"").file("share/kept", b"");
    let mut excludes = hectare_populate::Excludes::default();
    excludes.add(b"/usr/lib/").unwrap();
    let options = hectare_populate::Options { excludes, ..hectare_populate::Options::default() };
    let sources = [lower.finish(), upper.finish()].into_iter().flatten().collect();
    let tree = Tree::build(sources, &options).unwrap();
    assert_eq!(paths(&tree), ["/lib", "/share", "/usr", "/usr/share", "/usr/share/kept"]);
}

/// What is in a tree that is not a directory: its path, and what it is.
fn leaves(tree: &Tree) -> Vec<(String, String)> {
    let all = describe(tree).into_iter().filter(|(_, node)| node.kind != "Directory");
    all.map(|(path, node)| {
        let content = String::from_utf8(node.content).unwrap();
        let what = if node.kind.starts_with("symlink") { node.kind } else { content };
        (path, what)
    })
    .collect()
}

/// The lower layers of the tests below: a link, a file and a directory that something hides.
const HIDDEN: &[&str] = &["usr/lib/keep", "d/e/lib -> /usr/lib", "d/e/secret", "d/e/sub/old"];

#[test]
fn regression_no_path_leads_through_what_an_opaque_directory_hides() {
    for marker in ["d/.wh..wh..opq", "d/e/.wh..wh..opq", "d/.wh.e", ".wh.d", ".wh..wh..opq"] {
        let kept = if marker == ".wh..wh..opq" { &[][..] } else { &["/usr/lib/keep"][..] };
        let expected = |new: &[&str]| {
            let mut all: Vec<String> = kept.iter().chain(new).map(|path| (*path).to_owned()).collect();
            all.sort();
            all
        };
        let found = |layers_above: &[&[&str]]| -> Vec<String> {
            let tree = layers(&[&[HIDDEN], layers_above].concat());
            leaves(&tree).into_iter().map(|(path, _)| path).collect()
        };
        let new = ["/d/e/lib/foo", "/d/e/sub/new"];
        let entries: &[&str] = &["d/e/lib/foo", "d/e/lib/.wh.keep", "d/e/sub/new"];
        // In a later layer, two layers later, and in the marker's own, before and after it.
        assert_eq!(found(&[&[marker], entries]), expected(&new), "{marker}");
        assert_eq!(found(&[&[marker], &["d/x"], entries]), expected(&["/d/x", new[0], new[1]]), "{marker}");
        assert_eq!(found(&[&[&[marker], entries].concat()]), expected(&new), "{marker}");
        assert_eq!(found(&[&[entries, &[marker]].concat()]), expected(&new), "{marker}");
    }
}

#[test]
fn regression_a_hidden_directory_does_not_describe_one_that_returns() {
    let (mut lower, mut upper, mut above) = (Archive::default(), Archive::default(), Archive::default());
    lower.pax('x', &[("uid", b"7"), ("SCHILY.xattr.user.a", b"1")]).entry(b'5', "p/z", "", &[]);
    upper.file("p/.wh..wh..opq", b"");
    above.file("p/z/g", b"");
    for layers in [vec![lower.finish(), upper.finish(), above.finish()], {
        let mut one = Archive::default();
        one.file("p/z/g", b"").file("p/.wh..wh..opq", b"");
        vec![lower.finish(), one.finish()]
    }] {
        let all = describe(&build(layers.into_iter().flatten().collect()));
        let z = &all["/p/z"];
        assert_eq!((z.mode, z.owner, &z.xattrs[..]), (0o755, (0, 0), &[][..]));
    }
}

#[test]
fn regression_a_hard_link_does_not_bring_back_what_is_hidden() {
    for marker in ["d/.wh..wh..opq", "d/e/.wh.secret", ".wh.d"] {
        let link = "h = d/e/secret";
        let stacks: [&[&[&str]]; 3] = [&[&[marker], &[link]], &[&[marker, link]], &[&[link, marker]]];
        for above in stacks {
            let error = fails(sources(&[&[&["d/e/secret"][..]], above].concat()));
            assert!(error.contains("hard link to d/e/secret, which does not come before it"), "{error}");
        }
    }
}

#[test]
fn a_whiteout_goes_by_the_path_that_its_own_layer_has() {
    let lower: &[&str] = &["usr/lib/x", "opt/lib/x", "lib -> usr/lib"];
    let kept = |upper: &[&str]| -> Vec<String> {
        let files = leaves(&layers(&[lower, upper])).into_iter().map(|(path, _)| path);
        files.filter(|path| path.ends_with("/x")).collect()
    };
    // Through the link below, in a directory in its place, and through a link in its place: in any order.
    assert_eq!(kept(&["lib/.wh.x"]), ["/opt/lib/x"]);
    for upper in [["lib/", "lib/.wh.x"], ["lib/.wh.x", "lib/"]] {
        assert_eq!(kept(&upper), ["/opt/lib/x", "/usr/lib/x"], "{upper:?}");
    }
    for upper in [["lib -> opt/lib", "lib/.wh.x"], ["lib/.wh.x", "lib -> opt/lib"]] {
        assert_eq!(kept(&upper), ["/usr/lib/x"], "{upper:?}");
    }
    for upper in [[".wh.lib", "lib/.wh.x"], ["lib/.wh.x", ".wh.lib"]] {
        assert_eq!(kept(&upper), ["/opt/lib/x", "/usr/lib/x"], "{upper:?}");
    }
}

#[test]
fn regression_bookkeeping_of_aufs_is_dropped_with_all_below_it() {
    let entries: &[&str] = &[
        ".wh..wh.plnk/",
        ".wh..wh.plnk/12.3",
        ".wh..wh.orph/",
        ".wh..wh.orph/gone",
        ".wh.was/",
        ".wh.was/in",
        ".wh..wh.aufs",
        "d/.wh.b = .wh..wh.aufs",
        "bin/a = .wh..wh.plnk/12.3",
        ".wh..wh.plnk/12.4 = bin/a",
        "bin/b = .wh..wh.plnk/12.4",
    ];
    let tree = layers(&[&["was", "d/a", "d/b"], entries]);
    assert_eq!(paths(&tree), ["/bin", "/bin/a", "/bin/b", "/d", "/d/a"]);
    assert_eq!(describe(&tree)["/bin/a"].names, ["/bin/a", "/bin/b"]);
    assert_eq!(describe(&tree)["/bin/b"].content, b".wh..wh.plnk/12.3");
}

#[test]
fn regression_a_link_of_a_later_layer_leaves_a_file_where_its_directory_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let lower = dir.path().join("lower");
    fill(&lower, &["b/file", "c/file"]);
    let above: &[&[&str]] =
        &[&["a/link = b/file", "z/link = c/file"], &["a/more = z/link", "b/.wh.file", ".wh.c"]];
    for layers in [&above[..1], above] {
        let tree = build([vec![folder(&lower)], sources(layers)].into_iter().flatten().collect());
        let all = describe(&tree);
        assert_eq!(all["/a/link"].content, b"b/file of lower");
        assert_eq!(all["/z/link"].content, b"c/file of lower");
        assert_eq!(layers.len() == 2, !all.contains_key("/b/file") && all.contains_key("/a/more"));
    }
    fs::remove_file(lower.join("c/file")).unwrap();
    let tree =
        build([vec![folder(&lower)], sources(&[&["a/link = b/file"]])].into_iter().flatten().collect());
    write(lower.join("b/file"), "longer than it was when it was read");
    let link = tree.find(b"a/link").unwrap();
    let error = tree.opener().open(link).unwrap().verify().unwrap_err().to_string();
    assert!(error.contains("lower/b/file: it grew"), "{error}");
}
