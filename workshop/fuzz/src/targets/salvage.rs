//! Fuzz target: bring everything out of a damaged volume. Names are fit for any directory, there are no
//! circles, ranges of files are in order, and nothing is written.
//!
//! The last byte of an input says how: with removed files, without the journal, with the device cut.

use crate::patch;
use hectare_device::MemoryDevice;
use hectare_salvage::{Kind, NodeId, Options, Salvage, Step, Watch};
use hectare_units::u64_of;
use std::collections::HashSet;
use std::sync::Arc;

/// Bytes that are read of each range: maps may name the same blocks any number of times.
const READ_MAX: u64 = 4096;

struct Bounded;

impl Watch for Bounded {
    fn advance(&self, _step: Step, done: u64, all: u64) {
        assert!(done <= all, "{done} of {all} are done");
    }
}

pub(super) fn target(bytes: &[u8]) {
    let (how, changes) = bytes.split_last().unwrap_or((&0, &[]));
    let patched = patch::decode(changes);
    let is_cut = how & 4 != 0;
    let len = if is_cut { patched.image.len() / 3 * 2 } else { patched.image.len() };
    let image = &patched.image[..len];
    let device = Arc::new(MemoryDevice::from_bytes(image));
    let options = Options { deleted: how & 1 != 0, no_journal: how & 2 != 0, ..Options::default() };
    match Salvage::survey(Arc::clone(&device) as _, &options, &Bounded) {
        Ok(salvage) => {
            let salvage = Arc::new(salvage);
            read_all(&salvage);
            let report = salvage.report();
            let is_whole = report.doubtful.is_empty() && report.unreadable.is_empty();
            assert!(
                is_whole || is_cut || options.no_journal || !patched.intact,
                "a volume by mke2fs ({}): {report:?}",
                patched.base.name
            );
        }
        Err(error) => {
            assert!(!patched.intact, "a volume by mke2fs ({}): {error}", patched.base.name);
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
    assert!(device.to_vec() == image, "reading has changed the volume");
}

fn read_all(salvage: &Arc<Salvage>) {
    let mut directories = HashSet::from([salvage.root()]);
    let mut waiting = vec![salvage.root()];
    while let Some(directory) = waiting.pop() {
        let mut names = HashSet::new();
        for (name, child) in salvage.children(directory) {
            assert!(!matches!(name, b"" | b"." | b"..") && name.len() <= 255, "{name:?}");
            assert!(!name.iter().any(|byte| matches!(byte, 0 | b'/')), "{name:?}");
            assert!(names.insert(name), "{name:?} comes twice");
            if look(salvage, child) == Kind::Directory {
                assert!(directories.insert(child), "a directory has two places");
                waiting.push(child);
            }
        }
    }
}

/// Reads some of everything that a node has.
fn look(salvage: &Arc<Salvage>, node: NodeId) -> Kind {
    let meta = salvage.metadata(node);
    let _ = salvage.xattrs(node);
    match meta.kind {
        Kind::File => {
            let file = salvage.open(node);
            let mut end = 0;
            for (start, len) in file.ranges() {
                assert!(start >= end && len > 0, "ranges out of order");
                end = start.checked_add(len).expect("a range ends below 2^64");
                assert!(end <= file.size(), "a range ends behind the file");
                let mut buffer = vec![0; hectare_units::index_of(len.min(READ_MAX))];
                assert_eq!(file.read_at(start, &mut buffer), buffer.len());
                assert_eq!(file.read_at(end - u64_of(buffer.len()), &mut buffer), buffer.len());
            }
            assert_eq!(file.read_at(file.size(), &mut [0]), 0, "read behind the end");
        }
        Kind::Symlink => drop(salvage.read_link(node)),
        _ => {}
    }
    meta.kind
}
