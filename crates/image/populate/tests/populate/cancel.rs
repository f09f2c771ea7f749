//! Reading sources, cancelled at every checkpoint.

use crate::common::*;
use hectare_device::Cancel;
use hectare_populate::{Error, Options, Tree};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};

/// Cancels at the checkpoint of this number, from 0.
fn at(checkpoint: u64) -> Cancel {
    let passed = AtomicU64::new(0);
    Cancel::polling(move || passed.fetch_add(1, Ordering::Relaxed) >= checkpoint)
}

#[test]
fn sources_are_read_whole_or_the_tree_is_refused() {
    let folder_of = tempfile::tempdir().unwrap();
    for directory in 0..5 {
        for file in 0..3 {
            let at = folder_of.path().join(format!("d{directory}/f{file}"));
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::fs::write(at, "the same in all").unwrap();
        }
    }
    let mut archive = Archive::default();
    for file in 0..4 {
        archive.file(&format!("of-archive-{file}"), &[7; 200_000]);
    }
    archive.bytes.extend([0; 1024]);
    for threads in [1, 3] {
        let mut refused = 0;
        for checkpoint in 0.. {
            let options = Options {
                cancel: at(checkpoint),
                find_duplicates: true,
                threads: NonZeroUsize::new(threads).unwrap(),
                ..Options::default()
            };
            let sources = vec![folder(folder_of.path()), stream(archive.bytes.clone())];
            match Tree::build(sources, &options) {
                Err(Error::Cancelled) => refused += 1,
                Err(error) => panic!("{threads} threads, checkpoint {checkpoint}: {error}"),
                Ok(tree) => {
                    assert_eq!(tree.totals().files, 19);
                    break;
                }
            }
        }
        // Directories, files with a twin, entries and pieces of the archive.
        assert!(refused > 5 + 15 + 4 + 6, "{threads} threads: {refused} checkpoints");
    }
}
