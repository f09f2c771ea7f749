//! Descriptor blocks: name the volume blocks that the log blocks behind them are copies of.
//!
//! A descriptor is a header and a row of *tags*, one per copy, the last one marked. The first tag is followed
//! by a UUID; the others say that it is theirs too.
//!
//! Hazards: a tag has 8 to 16 bytes by the journal's features. The second generation of checksums made tags
//! two bytes longer than their content, and all implementations kept that. The row of a damaged block may
//! lack its mark: it then ends where no further tag fits.

use super::log::{BlockType, Checksum, HEADER_LEN, LogFormat, MAGIC, UUID_LEN};
use hectare_units::{BlockNr, TxnId, high32, join32, low16, low32};

const FLAG_ESCAPE: u16 = 0x1;
const FLAG_SAME_UUID: u16 = 0x2;
const FLAG_LAST_TAG: u16 = 0x8;

/// Whether a block must be escaped in the log, since it starts with the journal's magic number.
#[must_use]
pub fn needs_escape(data: &[u8]) -> bool {
    data.starts_with(&MAGIC.to_be_bytes())
}

/// One tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// The block of the volume; unchecked.
    pub block: BlockNr,
    /// Whether the copy's first word was zeroed and is the magic number in truth.
    pub escaped: bool,
    /// The checksum of the copy: 32 bits, 16 bits, or 0, by the generation.
    pub checksum: u32,
}

impl LogFormat {
    /// Bytes of a tag, without the UUID behind the first.
    const fn tag_len(&self) -> usize {
        match (self.checksum, self.wide) {
            (Checksum::V3, _) => 16,
            (Checksum::V2, true) => 14,
            (Checksum::V2, false) => 10,
            (Checksum::V1 | Checksum::None, true) => 12,
            (Checksum::V1 | Checksum::None, false) => 8,
        }
    }

    /// How many tags fit into a descriptor, at least 1.
    #[must_use]
    pub const fn tags_per_descriptor(&self) -> usize {
        (self.block_size.len() - HEADER_LEN - UUID_LEN - self.tail_len()) / self.tag_len()
    }

    /// A descriptor of copies of these blocks, given as they are in the volume (not escaped). The caller
    /// writes the copies behind it in the same order, with the first word of those that
    /// [need it](needs_escape) zeroed.
    ///
    /// # Panics
    /// If there are no blocks, more than [`tags_per_descriptor`](Self::tags_per_descriptor), or one whose
    /// number does not fit the journal.
    #[must_use]
    pub fn descriptor(&self, sequence: TxnId, blocks: &[(BlockNr, &[u8])]) -> Vec<u8> {
        assert!((1..=self.tags_per_descriptor()).contains(&blocks.len()), "{} tags", blocks.len());
        let mut block = self.block(BlockType::Descriptor, sequence);
        let mut at = HEADER_LEN;
        for (i, (nr, data)) in blocks.iter().enumerate() {
            assert!(self.wide || high32(nr.get()) == 0, "block {nr} in a journal of 32-bit numbers");
            let mut flags = if needs_escape(data) { FLAG_ESCAPE } else { 0 };
            flags |= if i > 0 { FLAG_SAME_UUID } else { 0 };
            flags |= if i + 1 == blocks.len() { FLAG_LAST_TAG } else { 0 };
            let tag = self.render_tag(*nr, flags, self.checksum_as_logged(sequence, data));
            block[at..at + self.tag_len()].copy_from_slice(&tag[..self.tag_len()]);
            at += self.tag_len();
            if i == 0 {
                block[at..at + UUID_LEN].copy_from_slice(&self.uuid);
                at += UUID_LEN;
            }
        }
        self.seal(&mut block);
        block
    }

    fn render_tag(&self, nr: BlockNr, flags: u16, checksum: u32) -> [u8; 16] {
        let (low, high) = (low32(nr.get()).to_be_bytes(), high32(nr.get()).to_be_bytes());
        let mut tag = [0; 16];
        tag[0..4].copy_from_slice(&low);
        tag[6..8].copy_from_slice(&flags.to_be_bytes());
        tag[8..12].copy_from_slice(&high);
        match self.checksum {
            Checksum::None | Checksum::V1 => {}
            Checksum::V2 => tag[4..6].copy_from_slice(&low16(checksum.into()).to_be_bytes()),
            Checksum::V3 => tag[12..16].copy_from_slice(&checksum.to_be_bytes()),
        }
        tag
    }

    /// The checksum of a block given as it is in the volume, once it is escaped.
    fn checksum_as_logged(&self, sequence: TxnId, data: &[u8]) -> u32 {
        let seed = self.seed().then(&sequence.get().to_be_bytes());
        if needs_escape(data) { seed.then(&[0; 4]).checksum(&data[4..]) } else { seed.checksum(data) }
    }

    /// Whether a log block is the copy its tag was written for; true where tags have no checksums.
    #[must_use]
    pub fn verify_copy(&self, checksum: u32, sequence: TxnId, logged: &[u8]) -> bool {
        let seed = self.seed().then(&sequence.get().to_be_bytes());
        match self.checksum {
            Checksum::None | Checksum::V1 => true,
            Checksum::V2 => checksum == u32::from(low16(seed.checksum(logged).into())),
            Checksum::V3 => checksum == seed.checksum(logged),
        }
    }

    /// The tags of a descriptor, in order. There is always at least one, but a block shorter than
    /// [`block_size`](Self::block_size) may have none.
    #[must_use]
    pub fn tags<'a>(&self, block: &'a [u8]) -> Tags<'a> {
        let rest = self.content(block).get(HEADER_LEN..).unwrap_or_default();
        Tags { rest, format: *self }
    }
}

/// The tags of a descriptor.
#[derive(Clone, Debug)]
pub struct Tags<'a> {
    rest: &'a [u8],
    format: LogFormat,
}

impl Iterator for Tags<'_> {
    type Item = Tag;

    fn next(&mut self) -> Option<Tag> {
        let (bytes, rest) = self.rest.split_at_checked(self.format.tag_len())?;
        let word = |at: usize| bytes.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word));
        let half = |at: usize| bytes.get(at..)?.first_chunk().map(|half| u16::from_be_bytes(*half));
        let flags = half(6)?;
        let high = if self.format.wide { word(8)? } else { 0 };
        let checksum = match self.format.checksum {
            Checksum::None | Checksum::V1 => 0,
            Checksum::V2 => half(4)?.into(),
            Checksum::V3 => word(12)?,
        };
        let skipped = if flags & FLAG_SAME_UUID == 0 { UUID_LEN } else { 0 };
        let is_last = flags & FLAG_LAST_TAG != 0;
        self.rest = if is_last { &[] } else { rest.get(skipped..).unwrap_or_default() };
        let block = BlockNr::new(join32(word(0)?, high));
        Some(Tag { block, escaped: flags & FLAG_ESCAPE != 0, checksum })
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::tests::formats;
    use super::*;
    use hectare_units::{BlockSize, u64_of};
    use proptest::prelude::*;

    #[test]
    fn a_full_descriptor_says_what_was_put_in() {
        let formats = [BlockSize::KIB1, BlockSize::KIB4, BlockSize::KIB64].into_iter().flat_map(formats);
        for format in formats {
            let plain = vec![5; format.block_size.len()];
            let mut magic = plain.clone();
            magic[..4].copy_from_slice(&MAGIC.to_be_bytes());
            let data = |i: usize| if i.is_multiple_of(3) { &magic[..] } else { &plain[..] };
            let number = |i: usize| BlockNr::new(u64_of(i) * 1000 + if format.wide { 1 << 40 } else { 0 });
            let sequence = TxnId::new(u32::MAX);
            for count in [1, 2, format.tags_per_descriptor()] {
                let blocks: Vec<_> = (0..count).map(|i| (number(i), data(i))).collect();
                let block = format.descriptor(sequence, &blocks);
                assert!(format.verify_tail(&block));
                let tags: Vec<_> = format.tags(&block).collect();
                assert_eq!(tags.len(), count);
                for (i, tag) in tags.iter().enumerate() {
                    assert_eq!((tag.block, tag.escaped), (number(i), i.is_multiple_of(3)));
                    let mut logged = data(i).to_vec();
                    if tag.escaped {
                        logged[..4].fill(0);
                    }
                    assert!(format.verify_copy(tag.checksum, sequence, &logged));
                    logged[700] ^= 1;
                    let caught = !format.verify_copy(tag.checksum, sequence, &logged);
                    assert_eq!(caught, format.checksum.covers_blocks());
                }
            }
        }
    }

    #[test]
    fn a_flipped_bit_of_a_descriptor_shows_where_blocks_have_checksums() {
        for format in formats(BlockSize::KIB1) {
            let data = vec![1; 1024];
            let mut block = format.descriptor(TxnId::new(3), &[(BlockNr::new(9), &data)]);
            block[500] ^= 4;
            assert_eq!(format.verify_tail(&block), !format.checksum.covers_blocks());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_have_at_most_as_many_tags_as_fit(
            bytes in proptest::collection::vec(any::<u8>(), 0..1025),
        ) {
            for format in formats(BlockSize::KIB1) {
                prop_assert!(format.tags(&bytes).count() <= 1024 / format.tag_len());
                let _ = format.verify_tail(&bytes);
            }
        }
    }
}
