//! The findings of the fuzz targets, each as a test of its own.

use crate::common::{InMemory, close_clean, format_bytes, in_memory};
use hectare_engine::{Creation, Error, RenameMode};
use hectare_oracle::skip;

/// A volume of these features with a directory that holds the empty file `dir/file`.
fn with_a_file(test: &str, features: &str) -> Option<InMemory> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("dir")).unwrap();
    std::fs::write(folder.path().join("dir/file"), []).unwrap();
    let from = folder.path().to_str().unwrap();
    match format_bytes(&["-t", "ext4", "-b", "1024", "-O", features, "-d", from], "2M") {
        Ok(bytes) => Some(in_memory(&bytes)),
        Err(reason) => {
            skip::record(skip::Extent::Test, test, &reason.to_string());
            None
        }
    }
}

#[test]
fn a_directory_inside_its_inode_is_not_empty_because_it_has_no_blocks() {
    let Some(held) = with_a_file("fuzzed::inline", "^has_journal,inline_data") else { return };
    let v = &held.volume;
    assert!(matches!(v.remove_dir("dir"), Err(Error::NotEmpty)));
    // An empty directory of ours is not inline, so it can be moved, but not over one that holds something.
    v.create_dir("other", Creation::default()).unwrap();
    assert!(matches!(v.rename_path("other", "dir", RenameMode::Replace), Err(Error::NotEmpty)));
    v.metadata("dir/file").unwrap();
    close_clean(&held);
}
