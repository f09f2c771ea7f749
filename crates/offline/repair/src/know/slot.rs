//! An inode's slot of the inode table, to be changed field by field: whatever it holds, it can be read and
//! written back.

use hectare_check::RawInode;
use hectare_ext4::inode::{BASE_SIZE, BLOCK_BYTES, InodeFlags, Kind};
use hectare_ext4::raw;
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{Bytes, InodeNr, high32, low16, low32};
use zerocopy::FromBytes;

/// Offset of the high half of the checksum.
const CHECKSUM_HI: usize = 0x82;

/// A slot.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) nr: InodeNr,
    /// Where it lies.
    pub(crate) at: Bytes,
    pub(crate) bytes: Vec<u8>,
}

impl Slot {
    /// What it says.
    pub(crate) fn view(&self) -> RawInode<'_> {
        RawInode::new(&self.bytes).expect("a slot is at least an inode long")
    }

    /// Its fields, to be changed.
    pub(crate) fn raw(&mut self) -> &mut raw::Inode {
        raw::Inode::mut_from_prefix(&mut self.bytes).expect("a slot is at least an inode long").0
    }

    pub(crate) fn kind(&self) -> Option<Kind> {
        self.view().kind()
    }

    pub(crate) fn flags(&self) -> InodeFlags {
        self.view().flags()
    }

    pub(crate) fn has(&self, flag: InodeFlags) -> bool {
        self.flags().intersects(flag)
    }

    pub(crate) fn set_flag(&mut self, flag: InodeFlags, on: bool) {
        let mut flags = self.flags();
        flags.set(flag, on);
        self.raw().i_flags = flags.bits().into();
    }

    pub(crate) fn set_size(&mut self, size: u64) {
        self.raw().i_size_lo = low32(size).into();
        self.raw().i_size_high = high32(size).into();
    }

    pub(crate) fn block(&self) -> [u8; BLOCK_BYTES] {
        *self.view().block()
    }

    /// Whether it is a symbolic link whose target is inside.
    pub(crate) fn is_fast_symlink(&self) -> bool {
        self.kind() == Some(Kind::Symlink)
            && self.view().size() < 60
            && !self.has(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA)
    }

    pub(crate) fn set_acl(&mut self, block: u64) {
        self.raw().i_file_acl_lo = low32(block).into();
        self.raw().i_file_acl_high = low16(u64::from(high32(block))).into();
    }

    /// Where attributes may lie: behind the extra fields.
    pub(crate) fn attribute_area(&mut self) -> &mut [u8] {
        let extra = usize::from(self.view().extra_isize());
        let len = self.bytes.len();
        if extra == 0 { &mut [] } else { &mut self.bytes[(BASE_SIZE + extra).min(len)..] }
    }

    /// Bytes of extra fields in use.
    pub(crate) fn set_extra_isize(&mut self, extra: u16) {
        if let Some(field) = self.bytes.get_mut(BASE_SIZE..BASE_SIZE + 2) {
            field.copy_from_slice(&extra.to_le_bytes());
        }
    }

    /// Makes it an inode that was never used.
    pub(crate) fn clear(&mut self) {
        self.bytes.fill(0);
    }

    /// Makes its checksum right, where the volume has any.
    pub(crate) fn seal(&mut self, sb: &SuperBlock) {
        let Some(seed) = sb.seed() else { return };
        let Some((_, expected)) = self.view().wrong_checksum(self.nr, seed) else { return };
        let wide = self.bytes.len() > BASE_SIZE && self.view().extra_isize() >= 4;
        self.raw().i_checksum_lo = low16(u64::from(expected)).into();
        if wide {
            self.bytes[CHECKSUM_HI..CHECKSUM_HI + 2]
                .copy_from_slice(&low16(u64::from(expected >> 16)).to_le_bytes());
        }
    }
}
