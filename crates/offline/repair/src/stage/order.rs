//! In which order a repaired volume may be written, so that a power cut at any point leaves what another
//! repair can finish.
//!
//! - *Fresh first.* Clusters that nothing was in use of before take copies, new directories and new maps. The
//!   volume that is there does not notice. What a map leads to as to its own block counts as in use, even if
//!   that is no such block: it must not become one while the map is there.
//! - *Then what is changed in place.* By now whatever it leads to is there; an inode lies in one sector.
//! - *The superblocks last*: that of the journal, as it is needed for as long as the log may have to be
//!   replayed again, and behind it that of the volume, which says until then that the volume has errors.
//!
//! Hazard: on a volume without room for copies, a directory or a map is written over the old one; a power cut
//! then takes names or content, unless the undo file is there.

use hectare_check::Bits;
use hectare_device::Span;
use hectare_ext4::geometry::{Geometry, SUPERBLOCK_OFFSET};
use hectare_ext4::superblock::SIZE;
use hectare_units::{BlockNr, Bytes};
use std::fmt;

/// When a stretch of the volume may be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Fresh,
    InPlace,
    Journal,
    Last,
}

impl Phase {
    /// All, in their order.
    pub(crate) const ALL: [Self; 4] = [Self::Fresh, Self::InPlace, Self::Journal, Self::Last];
}

/// The order in which a repaired volume is to be written.
#[derive(Clone, Default)]
pub struct Order {
    held: Option<(Geometry, Bits)>,
    /// Where the journal's superblock lies, if the log was replayed.
    journal: Option<Bytes>,
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Order").field("journal", &self.journal).finish_non_exhaustive()
    }
}

impl Order {
    /// Remembers what is in use, and what else a map leads to, unless that is known already.
    pub(crate) fn note_held(&mut self, geometry: &Geometry, used: &Bits, foreign: &Bits) {
        self.held.get_or_insert_with(|| {
            let (mut held, mut next) = (used.clone(), 0);
            while let Some(cluster) = foreign.first_from(next) {
                held.claim(cluster..cluster + 1);
                next = cluster + 1;
            }
            (geometry.clone(), held)
        });
    }

    /// Remembers that the log was replayed.
    pub(crate) fn note_journal(&mut self, superblock: Bytes) {
        self.journal = Some(superblock);
    }

    /// Whether a cluster was in use before.
    pub(crate) fn holds(&self, cluster: u64) -> bool {
        self.held.as_ref().is_none_or(|(_, held)| held.contains(cluster))
    }

    /// The parts of a stretch that belong to a phase.
    pub(crate) fn parts(&self, span: Span, phase: Phase) -> Vec<Span> {
        let mut parts: Vec<Span> = Vec::new();
        for start in (0..span.len.get()).step_by(SIZE) {
            let at = span.at + Bytes::new(start);
            if self.phase_of(at) != phase {
                continue;
            }
            let len = Bytes::new(span.len.get() - start).min(Bytes::of(SIZE));
            match parts.last_mut() {
                Some(last) if last.at + last.len == at => last.len += len,
                _ => parts.push(Span::new(at, len)),
            }
        }
        parts
    }

    fn phase_of(&self, at: Bytes) -> Phase {
        if at == SUPERBLOCK_OFFSET {
            return Phase::Last;
        }
        if Some(at) == self.journal {
            return Phase::Journal;
        }
        let Some((geometry, held)) = &self.held else { return Phase::InPlace };
        let block = BlockNr::new(at.get() >> geometry.block_size.shift());
        let inside =
            block.get() > u64::from(geometry.first_data_block) && block.get() < geometry.blocks_count.get();
        if inside && !held.contains(geometry.cluster_of(block).get()) { Phase::Fresh } else { Phase::InPlace }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_knowledge_only_the_superblock_waits() {
        let order = Order::default();
        let span = Span::new(Bytes::ZERO, Bytes::new(4096));
        let spans = |list: &[(u64, u64)]| -> Vec<Span> {
            list.iter().map(|(at, len)| Span::new(Bytes::new(*at), Bytes::new(*len))).collect()
        };
        assert_eq!(order.parts(span, Phase::InPlace), spans(&[(0, 1024), (2048, 2048)]));
        assert_eq!(order.parts(span, Phase::Last), spans(&[(1024, 1024)]));
        assert!(order.parts(span, Phase::Fresh).is_empty());
    }
}
