//! What lies in inodes beside their maps, and what the volume's features say of it: content inside, attributes,
//! and attributes whose values lie in inodes of their own.

use crate::names::{assert_minded, is_clean, made, patch};
use crate::structures::{Case, survey};
use crate::trial::e2fsck;
use hectare_oracle::{debugfs, dumpe2fs, skip};
use std::fs;

/// Content inside inodes, and the volume does not know of it: the feature is set, and nothing is lost.
#[test]
fn regression_content_inside_is_kept_without_the_feature() {
    for more in ["inline_data", "inline_data,^metadata_csum"] {
        let case = match Case::filled(&["-t", "ext4", "-b", "1024", "-O", more], "16M") {
            Ok(case) => case,
            Err(reason) => skip!("repair values::regression_content_inside_is_kept", reason),
        };
        let link = format!("symlink link {}", "x".repeat(80));
        let source = case.folder.path().join("source");
        fs::write(&source, "some text that does not fit the map alone, but the attribute as well: inside")
            .unwrap();
        case.change(&[&link, &format!("write {} inside", source.display()), "ea_set d3 user.a b"]);
        let before = case.survey();
        case.change(&["feature -inline_data"]);
        assert_minded(&case, more);
        let (repaired, after) = case.repaired(more);
        assert!(!repaired.loses(), "{more}: {:?}", repaired.mends);
        assert_eq!(survey(&after), before, "{more}");
    }
}

/// A flag says that the content is inside, where the root of a tree lies: that is what counts.
#[test]
fn regression_a_tree_of_extents_is_no_content() {
    for more in ["inline_data", "inline_data,^metadata_csum"] {
        let case = match Case::filled(&["-t", "ext4", "-b", "1024", "-O", more], "16M") {
            Ok(case) => case,
            Err(reason) => skip!("repair values::regression_a_tree_of_extents_is_no_content", reason),
        };
        let before = case.survey();
        case.change(&["sif f39 flags 0x10000000"]);
        assert_minded(&case, more);
        let (repaired, after) = case.repaired(more);
        assert!(!repaired.loses(), "{more}: {:?}", repaired.mends);
        assert_eq!(survey(&after), before, "{more}");
    }
}

/// A volume in which the value of `user.large` of f7 lies in an inode; and that inode.
fn with_value(name: &str) -> Result<(Case, u32, String), hectare_oracle::Skip> {
    let requests = ["write /dev/null f7", "write /dev/null f9", "mkdir d"];
    let case = made(&["-t", "ext4", "-b", "1024", "-O", "ea_inode"], "16M", &requests)?;
    let (source, value) = (case.folder.path().join("source"), "value".repeat(200));
    fs::write(&source, &value).unwrap();
    case.change(&[&format!("ea_set -f {} f7 user.large", source.display())]);
    e2fsck("-fy", &case.image);
    assert!(is_clean(&case), "{name}");
    let is_holder = |nr: &u32| {
        let stat = debugfs(&case.image, &[&format!("stat <{nr}>")]).unwrap_or_default();
        stat.contains("Flags: 0x280000") && stat.contains("Links: 1")
    };
    let holder = (12..120).find(is_holder).expect("an inode with the value");
    Ok((case, holder, value))
}

/// The value of `user.large` of f7.
fn value_of(case: &Case, bytes: &[u8]) -> String {
    let (image, out) = (case.folder.path().join("valued"), case.folder.path().join("out"));
    fs::write(&image, bytes).unwrap();
    debugfs(&image, &[&format!("ea_get -f {} f7 user.large", out.display())]).unwrap();
    fs::read_to_string(out).unwrap_or_default()
}

/// An inode that holds the value of an attribute, and whose flags do not say so.
#[test]
fn regression_an_inode_with_a_value_is_marked() {
    let (case, holder, value) = match with_value("flag") {
        Ok(made) => made,
        Err(reason) => skip!("repair values::regression_an_inode_with_a_value_is_marked", reason),
    };
    let before = case.survey();
    case.change(&[&format!("sif <{holder}> flags 0x80000")]);
    assert_minded(&case, "flag");
    let (repaired, after) = case.repaired("flag");
    assert!(!repaired.loses(), "{:?}", repaired.mends);
    assert_eq!(survey(&after), before);
    assert_eq!(value_of(&case, &after), value);
}

/// Values in inodes of a volume without the feature: e2fsck finds it sound, and sets it when it writes.
#[test]
fn regression_values_in_inodes_are_kept_without_the_feature() {
    let (case, _, value) = match with_value("feature") {
        Ok(made) => made,
        Err(reason) => skip!("repair values::regression_values_in_inodes_are_kept", reason),
    };
    let before = case.survey();
    case.change(&["feature -ea_inode"]);
    assert_eq!(e2fsck("-fn", &case.image).code, Some(0));
    assert!(is_clean(&case));
    let (repaired, after) = case.repaired("feature");
    assert!(!repaired.loses() && !repaired.mends.is_empty(), "{:?}", repaired.mends);
    assert_eq!(survey(&after), before);
    assert_eq!(value_of(&case, &after), value);
    fs::write(&case.image, &after).unwrap();
    assert!(dumpe2fs(&case.image).unwrap().has("ea_inode"));
}

/// A name may lead to an inode with a value; its links are as many as its names then.
#[test]
fn regression_names_of_inodes_with_values() {
    let (case, holder, value) = match with_value("names") {
        Ok(made) => made,
        Err(reason) => skip!("repair values::regression_names_of_inodes_with_values", reason),
    };
    let whole = case.bytes();
    for (names, links, is_sound) in [(1, 1, true), (2, 2, true), (1, 2, false), (2, 1, false), (0, 2, false)]
    {
        let place = format!("{names} names, {links} links");
        fs::write(&case.image, &whole).unwrap();
        let link = |nr| format!("ln <{holder}> name{nr}");
        let mut requests: Vec<String> = (0..names).map(link).collect();
        requests.push(format!("sif <{holder}> links_count {links}"));
        case.change(&requests.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(e2fsck("-fn", &case.image).code == Some(0), is_sound, "{place}");
        assert_eq!(is_clean(&case), is_sound, "{place}");
        let before = case.survey();
        let (repaired, after) = case.repaired(&place);
        assert!(!repaired.loses(), "{place}: {:?}", repaired.mends);
        assert_eq!(survey(&after), before, "{place}");
        assert_eq!(value_of(&case, &after), value, "{place}");
    }
    // A flag that says so of a file that holds none.
    fs::write(&case.image, &whole).unwrap();
    case.change(&["sif f9 flags 0x280000"]);
    assert_eq!(e2fsck("-fn", &case.image).code, Some(0));
    assert!(is_clean(&case), "a flag without a value");
}

/// Attribute blocks of a volume without the feature.
#[test]
fn regression_attribute_blocks_are_kept_without_the_feature() {
    for args in [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext2", "-b", "1024"]] {
        let value = "v".repeat(600);
        let case = match Case::filled(args, "16M") {
            Ok(case) => case,
            Err(reason) => skip!("repair values::regression_attribute_blocks_are_kept", reason),
        };
        case.change(&[&format!("ea_set f7 user.large {value}"), "feature -ext_attr"]);
        assert_minded(&case, &format!("{args:?}"));
        let before = case.survey();
        let (repaired, after) = case.repaired(&format!("{args:?}"));
        assert!(!repaired.loses(), "{args:?}: {:?}", repaired.mends);
        assert_eq!(survey(&after), before, "{args:?}");
        assert_eq!(value_of(&case, &after), value, "{args:?}");
    }
}

/// An extent can't end at the very last number of a block.
#[test]
fn regression_an_extent_of_the_last_file_block_is_dropped() {
    let case = match made(&["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"], "8M", &["mkdir d"]) {
        Ok(case) => case,
        Err(reason) => skip!("repair values::regression_an_extent_of_the_last_file_block", reason),
    };
    let source = case.folder.path().join("source");
    fs::write(&source, [7; 3072]).unwrap();
    case.change(&[&format!("write {} f", source.display()), "punch f 1 1"]);
    // The third and fourth word of a leaf's entries: the second entry's file block.
    case.change(&["sif f block[6] 0xffffffff"]);
    assert_minded(&case, "last");
    let (repaired, after) = case.repaired("last");
    let found = survey(&after);
    assert!(found.errors == 0 && found.paths.iter().any(|(path, _)| path == b"/f"), "{:?}", repaired.mends);
}

/// What devices and pipes have behind their number means nothing.
#[test]
fn regression_words_behind_a_device_number_are_nothing() {
    let requests = ["mknod p p", "mknod c c 5 7", "sif p block[7] 2048", "sif c block[DIND] 5"];
    let case = match made(&["-t", "ext4", "-b", "1024"], "8M", &requests) {
        Ok(case) => case,
        Err(reason) => skip!("repair values::regression_words_behind_a_device_number", reason),
    };
    assert_eq!(e2fsck("-fn", &case.image).code, Some(0));
    assert!(is_clean(&case));
    case.change(&["sif p flags 0x10"]);
    assert_minded(&case, "immutable");
    case.repaired("immutable");
}

/// An entry in an inode with neither name nor value is nothing.
#[test]
fn regression_an_entry_without_anything_is_passed_over() {
    let case = match made(
        &["-t", "ext4", "-b", "1024", "-I", "256"],
        "8M",
        &["write /dev/null f", "ea_set f user.abcd v"],
    ) {
        Ok(case) => case,
        Err(reason) => skip!("repair values::regression_an_entry_without_anything", reason),
    };
    let whole = case.bytes();
    // In place of the name: the entry has only where a value might lie.
    patch(&case, |bytes| {
        let at = whole.windows(4).position(|four| four == b"abcd").unwrap() - 16;
        bytes[at..at + 20].fill(0);
        bytes[at + 2] = 0x55;
    });
    assert_eq!(e2fsck("-fn", &case.image).code, Some(0));
    assert!(is_clean(&case));
    assert!(case.repaired("nothing").0.mends.is_empty());
}
