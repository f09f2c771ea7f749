//! What lies in inodes beside their maps, and what the volume's features say of it: content inside, attributes,
//! and attributes whose values lie in inodes of their own.

use crate::names::assert_minded;
use crate::structures::{Case, survey};
use hectare_oracle::skip;
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
