//! Revoke blocks: block numbers of which copies in this and older transactions must not be replayed.
//!
//! A metadata block that was freed may be used for file data, which is not logged; without the record, replay
//! would write the old metadata over it.

use super::log::{BlockType, HEADER_LEN, LogFormat};
use hectare_units::{BlockNr, TxnId, high32, low32, u64_of, usize_of};

/// Bytes before the first number: the header and the length.
const FRONT_LEN: usize = HEADER_LEN + 4;

impl LogFormat {
    /// Bytes of a block number.
    const fn number_len(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// How many block numbers fit into a revoke block.
    #[must_use]
    pub const fn revokes_per_block(&self) -> usize {
        (self.block_size.len() - FRONT_LEN - self.tail_len()) / self.number_len()
    }

    /// A revoke block with these numbers.
    ///
    /// # Panics
    /// If there are more than [`revokes_per_block`](Self::revokes_per_block), or one does not fit the
    /// journal.
    #[must_use]
    pub fn revoke(&self, sequence: TxnId, blocks: &[BlockNr]) -> Vec<u8> {
        assert!(blocks.len() <= self.revokes_per_block(), "{} revoked blocks", blocks.len());
        let used = FRONT_LEN + blocks.len() * self.number_len();
        let mut block = self.block(BlockType::Revoke, sequence);
        block[HEADER_LEN..FRONT_LEN].copy_from_slice(&low32(u64_of(used)).to_be_bytes());
        for (number, nr) in block[FRONT_LEN..used].chunks_exact_mut(self.number_len()).zip(blocks) {
            if self.wide {
                number.copy_from_slice(&nr.get().to_be_bytes());
            } else {
                assert!(high32(nr.get()) == 0, "block {nr} in a journal of 32-bit numbers");
                number.copy_from_slice(&low32(nr.get()).to_be_bytes());
            }
        }
        self.seal(&mut block);
        block
    }

    /// The numbers in a revoke block; `None` if it claims more than fits.
    #[must_use]
    pub fn revoked<'a>(&self, block: &'a [u8]) -> Option<Revokes<'a>> {
        let used = block.get(HEADER_LEN..)?.first_chunk().map(|used| u32::from_be_bytes(*used))?;
        let content = self.content(block);
        let used = content.get(..usize_of(used))?;
        Some(Revokes { rest: used.get(FRONT_LEN..).unwrap_or_default(), wide: self.wide })
    }
}

/// The numbers in a revoke block.
#[derive(Clone, Debug)]
pub struct Revokes<'a> {
    rest: &'a [u8],
    wide: bool,
}

impl Iterator for Revokes<'_> {
    type Item = BlockNr;

    fn next(&mut self) -> Option<BlockNr> {
        if self.wide {
            let (number, rest) = self.rest.split_first_chunk()?;
            self.rest = rest;
            Some(BlockNr::new(u64::from_be_bytes(*number)))
        } else {
            let (number, rest) = self.rest.split_first_chunk()?;
            self.rest = rest;
            Some(BlockNr::new(u32::from_be_bytes(*number).into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::tests::formats;
    use super::*;
    use hectare_units::BlockSize;
    use proptest::prelude::*;

    #[test]
    fn a_revoke_block_says_what_was_put_in() {
        for format in [BlockSize::KIB1, BlockSize::KIB64].into_iter().flat_map(formats) {
            let most = format.revokes_per_block();
            for count in [0, 1, most] {
                let high = if format.wide { 7 << 32 } else { 0 };
                let blocks: Vec<_> = (0..count).map(|i| BlockNr::new(high + u64_of(i))).collect();
                let block = format.revoke(TxnId::new(3), &blocks);
                assert!(format.verify_tail(&block));
                assert_eq!(format.revoked(&block).unwrap().collect::<Vec<_>>(), blocks);
            }
        }
    }

    #[test]
    fn a_block_that_claims_more_than_fits_is_refused() {
        for format in formats(BlockSize::KIB1) {
            let mut block = format.revoke(TxnId::new(3), &[]);
            let most = low32(u64_of(1024 - format.tail_len()));
            block[12..16].copy_from_slice(&most.to_be_bytes());
            assert!(format.revoked(&block).is_some());
            block[12..16].copy_from_slice(&(most + 1).to_be_bytes());
            assert!(format.revoked(&block).is_none());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_have_as_many_numbers_as_fit(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..1025),
            used in 0..1100u32,
        ) {
            if let Some(field) = bytes.get_mut(12..16) {
                field.copy_from_slice(&used.to_be_bytes());
            }
            for format in formats(BlockSize::KIB1) {
                let count = format.revoked(&bytes).map_or(0, Iterator::count);
                prop_assert!(count <= format.revokes_per_block());
            }
        }
    }
}
