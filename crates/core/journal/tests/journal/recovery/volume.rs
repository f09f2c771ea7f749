//! A volume in memory with its journal, recovered by us and by e2fsck, and the two compared.

use hectare_device::{Device, MemoryDevice};
use hectare_ext4::checksum::crc32c;
use hectare_ext4::feature::{Incompat, RoCompat};
use hectare_ext4::raw;
use hectare_journal::format::JournalSuperblock;
use hectare_journal::recovery::{self, LogMap, LogRun, Recovery, RecoveryError};
use hectare_oracle::{Skip, scratch, tool};
use hectare_units::{BlockNr, BlockSize, Blocks, Bytes, LogicalBlock, index_of};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use zerocopy::{FromBytes, IntoBytes};

const SUPERBLOCK: Range<usize> = 1024..2048;

/// Fields of the ext4 superblock that e2fsck changes on its own account when it has replayed a journal: that
/// it looked, when, that the flag `needs_recovery` is gone, and the sums over the groups (which the kernel
/// brings up to date only now and then).
const FIELDS_OF_E2FSCK: [&str; 12] = [
    "s_free_blocks_count_lo",
    "s_free_blocks_count_hi",
    "s_free_inodes_count",
    "s_state",
    "s_wtime",
    "s_wtime_hi",
    "s_mtime",
    "s_mnt_count",
    "s_lastcheck",
    "s_feature_incompat",
    "s_kbytes_written",
    "s_checksum",
];

/// Fields of a group's descriptor (offset and length) that e2fsck changes where no inode of the group is in
/// use: `bg_flags`, `bg_itable_unused_lo` and `_hi`, and so `bg_checksum`.
const DESCRIPTOR_FIELDS_OF_E2FSCK: [(usize, usize); 4] = [(0x12, 2), (0x1c, 2), (0x32, 2), (0x1e, 2)];

/// An image and where its journal lies.
#[derive(Clone)]
pub(crate) struct Volume {
    pub(crate) bytes: Vec<u8>,
    pub(crate) map: LogMap,
}

impl Volume {
    /// Reads an image file; the journal's map comes from debugfs.
    pub(crate) fn read(image: &Path) -> Result<Self, Skip> {
        let bytes = fs::read(image).unwrap();
        let stat = hectare_oracle::debugfs(image, &["stat <8>"])?;
        let runs: Vec<LogRun> = stat.split_whitespace().filter_map(run).collect();
        let map = LogMap::internal(block_size(&bytes), runs, Bytes::of(bytes.len())).unwrap();
        Ok(Self { bytes, map })
    }

    pub(crate) fn block_size(&self) -> BlockSize {
        self.map.block_size()
    }

    pub(crate) fn blocks(&self) -> Blocks {
        Blocks::new(superblock(&self.bytes).s_blocks_count_lo.get().into())
    }

    pub(crate) fn journal_superblock(&self) -> JournalSuperblock {
        JournalSuperblock::parse(&self.bytes[index_of(self.map.superblock_offset().get())..]).unwrap()
    }

    pub(crate) fn set_journal_superblock(&mut self, superblock: &JournalSuperblock) {
        let at = index_of(self.map.superblock_offset().get());
        self.bytes[at..at + 1024].copy_from_slice(&superblock.render());
    }

    /// Says in the ext4 superblock whether the journal is to be replayed.
    pub(crate) fn set_needs_recovery(&mut self, needed: bool) {
        let mut raw = superblock(&self.bytes);
        let mut incompat = Incompat::from_bits_retain(raw.s_feature_incompat.get());
        incompat.set(Incompat::RECOVER, needed);
        raw.s_feature_incompat.set(incompat.bits());
        if RoCompat::from_bits_retain(raw.s_feature_ro_compat.get()).contains(RoCompat::METADATA_CSUM) {
            raw.s_checksum.set(crc32c(!0, &raw.as_bytes()[..1020]));
        }
        self.bytes[SUPERBLOCK].copy_from_slice(raw.as_bytes());
    }

    /// Sets the counts of free blocks and inodes in the ext4 superblock to the sums over the groups, as
    /// opening a volume does: the kernel logs the groups' counts, but not always the sums.
    pub(crate) fn sum_up(&mut self) {
        let (mut blocks, mut inodes) = (0, 0);
        for at in self.descriptors() {
            let half = |field: usize| {
                u32::from(u16::from_le_bytes(self.bytes[at + field..][..2].try_into().unwrap()))
            };
            blocks += half(0x0c);
            inodes += half(0x0e);
        }
        let mut raw = superblock(&self.bytes);
        raw.s_free_blocks_count_lo.set(blocks);
        raw.s_free_inodes_count.set(inodes);
        self.bytes[SUPERBLOCK].copy_from_slice(raw.as_bytes());
        self.set_needs_recovery(false); // for the checksum
    }

    /// Where the group descriptors lie in the image.
    fn descriptors(&self) -> impl Iterator<Item = usize> + use<> {
        let raw = superblock(&self.bytes);
        let groups = raw.s_blocks_count_lo.get().div_ceil(raw.s_blocks_per_group.get());
        let len = usize::from(raw.s_desc_size.get()).max(32);
        let table = self.range(BlockNr::new(u64::from(raw.s_first_data_block.get()) + 1)).start;
        (0..usize::try_from(groups).unwrap()).map(move |group| table + group * len)
    }

    /// Where a log block lies in the image.
    pub(crate) fn log_range(&self, at: LogicalBlock) -> Range<usize> {
        let (nr, _) = self.map.locate(at).unwrap();
        self.range(nr)
    }

    /// Where a block lies in the image.
    pub(crate) fn range(&self, nr: BlockNr) -> Range<usize> {
        let at = index_of(nr.offset(self.block_size()).get());
        at..at + self.block_size().len()
    }

    pub(crate) fn recovery(&self) -> Result<Recovery, RecoveryError> {
        recovery::read(&MemoryDevice::from_bytes(&self.bytes), &self.map, self.blocks())
    }

    /// Recovers with our code and closes the journal.
    pub(crate) fn recover(&self) -> Result<(Self, Recovery), RecoveryError> {
        let device = MemoryDevice::from_bytes(&self.bytes);
        let recovery = recovery::read(&device, &self.map, self.blocks())?;
        for (nr, copy) in recovery.blocks() {
            assert!(copy.at < recovery.superblock().end() && nr.get() < self.blocks().get());
        }
        recovery.apply(&device, &device)?;
        recovery.apply(&device, &device)?; // a second time, as after a crash
        self.check_single_blocks(&recovery, &device);
        device.write_at(recovery.superblock_offset(), &recovery.clean_superblock()).unwrap();
        let mut recovered = Self { bytes: device.to_vec(), map: self.map.clone() };
        recovered.set_needs_recovery(false);
        assert!(!recovered.recovery().unwrap().needed());
        Ok((recovered, recovery))
    }

    /// What was applied is also what single blocks read as.
    fn check_single_blocks(&self, recovery: &Recovery, applied: &MemoryDevice) {
        let journal = MemoryDevice::from_bytes(&self.bytes);
        let (mut single, mut whole) = (vec![0; self.block_size().len()], vec![0; self.block_size().len()]);
        for nr in recovery.blocks().keys() {
            assert!(recovery.read_block(&journal, *nr, &mut single).unwrap());
            applied.read_at(nr.offset(self.block_size()), &mut whole).unwrap();
            assert!(single == whole, "block {nr}");
        }
        assert!(!recovery.read_block(&journal, BlockNr::new(1 << 40), &mut single).unwrap());
    }

    /// Has e2fsck replay the journal of a copy, and nothing more.
    pub(crate) fn recover_with_e2fsck(&self) -> Result<Self, Skip> {
        let image = self.save();
        let said = tool::run(tool::need("e2fsck")?.args(["-fy", "-E", "journal_only"]).arg(&image));
        assert!(said.exit.is_some_and(|exit| exit < 4), "{}", said.report());
        let bytes = fs::read(&image).unwrap();
        fs::remove_file(image).unwrap();
        Ok(Self { bytes, map: self.map.clone() })
    }

    /// Writes the image to a file, which the caller removes.
    pub(crate) fn save(&self) -> PathBuf {
        let image = scratch::fresh("recovery");
        fs::write(&image, &self.bytes).unwrap();
        image
    }
}

/// Recovers a copy by us and one by e2fsck and compares them: every byte of the image but for the fields
/// named above and the journal's superblock, whose sequence and start alone are compared.
#[track_caller]
pub(crate) fn assert_as_e2fsck(volume: &Volume) -> Result<(Volume, Recovery), Skip> {
    let theirs = volume.recover_with_e2fsck()?;
    let (ours, recovery) = volume.recover().unwrap();
    let (our_journal, their_journal) = (ours.journal_superblock(), theirs.journal_superblock());
    assert_eq!((our_journal.start(), their_journal.start()), (None, None));
    let size = volume.block_size().len();
    let (a, b) = (without_what_e2fsck_changes(&ours), without_what_e2fsck_changes(&theirs));
    for (i, (a, b)) in a.chunks(size).zip(b.chunks(size)).enumerate() {
        let at = a.iter().zip(b).position(|(a, b)| a != b);
        assert!(at.is_none(), "block {i} differs from byte {at:?} on");
    }
    for field in raw::SuperBlock::FIELDS.iter().filter(|field| !FIELDS_OF_E2FSCK.contains(&field.name)) {
        let of = |volume: &Volume| volume.bytes[SUPERBLOCK][field.offset..][..field.size].to_vec();
        assert_eq!(of(&ours), of(&theirs), "{} of the superblock", field.name);
    }
    Ok((ours, recovery))
}

/// The image with zeros for the superblocks and the fields named above.
fn without_what_e2fsck_changes(volume: &Volume) -> Vec<u8> {
    let mut bytes = volume.bytes.clone();
    let journal = index_of(volume.map.superblock_offset().get());
    bytes[SUPERBLOCK].fill(0);
    bytes[journal..journal + 1024].fill(0);
    let has_high = superblock(&volume.bytes).s_desc_size.get() > 32;
    for descriptor in volume.descriptors() {
        for (at, len) in DESCRIPTOR_FIELDS_OF_E2FSCK.into_iter().filter(|(at, _)| *at < 32 || has_high) {
            bytes[descriptor + at..][..len].fill(0);
        }
    }
    bytes
}

pub(crate) fn superblock(bytes: &[u8]) -> raw::SuperBlock {
    raw::SuperBlock::read_from_bytes(&bytes[SUPERBLOCK]).unwrap()
}

pub(crate) fn block_size(bytes: &[u8]) -> BlockSize {
    BlockSize::from_shift(superblock(bytes).s_log_block_size.get() + 10).unwrap()
}

/// A run as debugfs prints it: `(0-1023):500-1523,` or `(7):900,`; anything else is none.
fn run(word: &str) -> Option<LogRun> {
    let (file, device) = word.trim_end_matches(',').strip_prefix('(')?.split_once("):")?;
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some((first.parse::<u64>().ok()?, last.parse::<u64>().ok()?))
    };
    let ((first, last), (start, _)) = (range(file)?, range(device)?);
    Some(LogRun {
        first: LogicalBlock::new(u32::try_from(first).unwrap()),
        start: BlockNr::new(start),
        len: Blocks::new(last - first + 1),
    })
}
