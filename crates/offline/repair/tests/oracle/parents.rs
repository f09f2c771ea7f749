//! Which of several names of a directory is kept, and what it says of its parent itself.

use crate::names::{assert_minded, inode, made, patch, record};
use crate::structures::{Case, survey};
use crate::trial::e2fsck;
use hectare_oracle::skip;

/// Where a record has its name, and where `..` lies in its block.
const NAME: usize = 8;
const DOT_DOT: usize = 12;

/// A directory with two names keeps that which lies in the first block.
#[test]
fn regression_a_directory_keeps_its_first_name() {
    for (first, second) in [("f1", "a/b"), ("a/f2", "c"), ("f1", "c/e")] {
        let requests = ["mkdir a", "mkdir a/b", "mkdir c", "mkdir c/e", "mknod f1 p", "cd a", "mknod f2 p"];
        let case = match made(&["-t", "ext4", "-b", "1024"], "8M", &requests) {
            Ok(case) => case,
            Err(reason) => skip!("repair parents::regression_a_directory_keeps_its_first_name", reason),
        };
        let nr = inode(&case.survey(), &format!("/{second}")).unwrap();
        let name = first.rsplit('/').next().unwrap();
        patch(&case, |bytes| {
            let at = record(bytes, name);
            bytes[at..at + 4].copy_from_slice(&nr.to_le_bytes());
        });
        assert_minded(&case, first);
        let (repaired, after) = case.repaired(first);
        assert_eq!(survey(&after).paths, survey(&case.e2fsck().1).paths, "{first}: {:?}", repaired.mends);
    }
}

/// `/g/p/c`, with a file, where the blocks of `c` and `q` lie before those of `g` and `p`.
fn nested(features: &str) -> Result<Case, hectare_oracle::Skip> {
    let requests = [
        "mkdir c",
        "mkdir q",
        "mkdir g",
        "mkdir g/p",
        "ln c g/p/c",
        "unlink c",
        "cd q",
        "mknod x p",
        "cd /g/p/c",
        "mknod y p",
    ];
    let case = made(&["-t", "ext4", "-b", "1024", "-O", features], "8M", &requests)?;
    let parent = inode(&case.survey(), "/g/p").unwrap();
    let block = case.block_of("g/p/c") * 1024;
    patch(&case, |bytes| bytes[block + DOT_DOT..block + DOT_DOT + 4].copy_from_slice(&parent.to_le_bytes()));
    e2fsck("-fy", &case.image);
    assert_eq!(e2fsck("-fn", &case.image).code, Some(0));
    assert!(block < case.block_of("g") * 1024);
    Ok(case)
}

/// Likewise where a directory lies below one that is newer, and so are its blocks.
#[test]
fn regression_a_moved_directory_keeps_its_first_name() {
    for (features, path) in
        [("dir_index", "/g/p"), ("^dir_index", "/g/p"), ("dir_index", "/g/p/c"), ("^dir_index", "/g/p/c")]
    {
        let case = match nested(features) {
            Ok(case) => case,
            Err(reason) => skip!("repair parents::regression_a_moved_directory", reason),
        };
        let nr = inode(&case.survey(), path).unwrap();
        let block = case.block_of("q") * 1024;
        patch(&case, |bytes| {
            let at = block + record(&bytes[block..], "x");
            bytes[at..at + 4].copy_from_slice(&nr.to_le_bytes());
        });
        let place = format!("{features}, {path}");
        assert_minded(&case, &place);
        let (repaired, after) = case.repaired(&place);
        assert_eq!(survey(&after).paths, survey(&case.e2fsck().1).paths, "{place}: {:?}", repaired.mends);
    }
}

/// The second record of a directory is its `..`, whatever its name is: it was a name of the parent, and the
/// tree was taken apart.
#[test]
fn regression_a_dot_dot_of_another_name_is_no_entry() {
    for features in ["dir_index", "^dir_index"] {
        let case = match nested(features) {
            Ok(case) => case,
            Err(reason) => skip!("repair parents::regression_a_dot_dot_of_another_name", reason),
        };
        let (before, whole) = (case.survey(), case.bytes());
        let block = case.block_of("g/p/c") * 1024;
        for (offset, byte) in [(8, b'n'), (9, b'n'), (9, b'/'), (6, 3), (6, 0)] {
            std::fs::write(&case.image, &whole).unwrap();
            patch(&case, |bytes| bytes[block + DOT_DOT + offset] = byte);
            let place = format!("{features}, byte {offset}: {byte}");
            assert_minded(&case, &place);
            let (repaired, after) = case.repaired(&place);
            assert_eq!(survey(&after), before, "{place}: {:?}", repaired.mends);
            assert_eq!(survey(&case.e2fsck().1), before, "{place}");
        }
    }
}

/// A directory below another is not its parent, where its `..` names one that has it.
#[test]
fn regression_a_directory_is_not_put_below_its_own() {
    let case = match nested("dir_index") {
        Ok(case) => case,
        Err(reason) => skip!("repair parents::regression_a_directory_is_not_put_below", reason),
    };
    let before = case.survey();
    let (parent, pipe) = (inode(&before, "/g/p").unwrap(), inode(&before, "/g/p/c/y").unwrap());
    let block = case.block_of("g/p/c") * 1024;
    patch(&case, |bytes| {
        let at = block + record(&bytes[block..], "y");
        bytes[at..at + 4].copy_from_slice(&parent.to_le_bytes());
    });
    assert_minded(&case, "below its own");
    let (repaired, after) = case.repaired("below its own");
    let mut expected = before.paths;
    expected.remove(&(b"/g/p/c/y".to_vec(), pipe));
    expected.insert((format!("/lost+found/#{pipe}").into_bytes(), pipe));
    assert_eq!(survey(&after).paths, expected, "{:?}", repaired.mends);
}

/// What is removed does not decide the parent: a stray `.` that lies before the directory's name.
#[test]
fn regression_an_entry_that_goes_is_no_name_of_a_directory() {
    for features in ["dir_index", "^dir_index"] {
        let case = match nested(features) {
            Ok(case) => case,
            Err(reason) => skip!("repair parents::regression_an_entry_that_goes", reason),
        };
        let parent = inode(&case.survey(), "/g/p").unwrap();
        let block = case.block_of("q") * 1024;
        patch(&case, |bytes| {
            let at = block + record(&bytes[block..], "x");
            bytes[at..at + 4].copy_from_slice(&parent.to_le_bytes());
            bytes[at + NAME] = b'.';
        });
        assert_minded(&case, features);
        let (repaired, after) = case.repaired(features);
        assert_eq!(inode(&survey(&after), "/g/p"), Some(parent), "{features}: {:?}", repaired.mends);
        assert_eq!(survey(&after).paths, survey(&case.e2fsck().1).paths, "{features}: {:?}", repaired.mends);
    }
}
