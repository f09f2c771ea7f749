//! The formats on any bytes, for the fuzzer.

use crate::codec::seal;
use crate::manifest::{Manifest, Table};
use crate::note::Note;
use crate::patch;

/// Parses bytes as a manifest, and as what belongs to one: for the fuzzer. Returns how many slots there
/// were.
///
/// The checksum is made right first, or no change to an input would come past it.
///
/// # Panics
/// If what was parsed is written in another way than it was read, which is a defect.
#[must_use]
pub fn digest(bytes: &[u8]) -> usize {
    let mut sealed = bytes.get(..bytes.len().saturating_sub(8)).unwrap_or_default().to_vec();
    seal(&mut sealed);
    let mut slots = 0;
    for bytes in [bytes, &sealed] {
        if let Ok(parsed) = Manifest::parse(bytes) {
            let manifest = parsed.head();
            assert_eq!(manifest.encode(), bytes, "a manifest has one form");
            slots += manifest.tables.len() + manifest.patches.len();
        }
        let Ok(model) = Manifest::new([7; 16], 1 << 40, 1 << 22, 1) else { continue };
        slots += Table::parse(bytes, &model, 3).map_or(0, |table| table.chunks.len());
        slots += model.parse_list(bytes).map_or(0, |tables| tables.len());
        slots += patch::parse(bytes, &model).map_or(0, |records| records.len());
    }
    slots + usize::from(Note::parse(bytes).is_some())
}
