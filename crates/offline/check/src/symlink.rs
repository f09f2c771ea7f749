//! Symbolic links: the target inside the inode, in its attribute, or in one block.

use crate::context::Scan;
use crate::context::attributes::InodeAttributes;
use crate::raw_inode::RawInode;
use crate::report::Error;
use hectare_ext4::inode::{BLOCK_BYTES, InodeFlags};
use hectare_units::{InodeNr, u64_of};

impl Scan<'_> {
    /// Checks a symbolic link: the size is that of the target, which has no zero byte.
    pub(crate) fn check_symlink(
        &mut self,
        nr: InodeNr,
        slot: RawInode<'_>,
        found: &InodeAttributes,
    ) -> Result<(), Error> {
        let (size, flags) = (slot.size(), slot.flags());
        if size == 0 || flags.contains(InodeFlags::INDEX) {
            self.tell_inode(nr, "a symbolic link without a target");
            return Ok(());
        }
        if flags.contains(InodeFlags::INLINE_DATA) {
            self.check_inline_size(nr, slot, found);
            self.check_block_count(nr, slot, found, 0);
            return Ok(());
        }
        if size < u64_of(BLOCK_BYTES) && !flags.contains(InodeFlags::EXTENTS) {
            self.check_target(nr, slot, slot.block());
            self.check_block_count(nr, slot, found, 0);
            return Ok(());
        }
        let mapped = self.map(nr, slot, true)?;
        self.check_block_count(nr, slot, found, mapped.held.clusters);
        let mut block = self.buffer();
        if size < u64_of(BLOCK_BYTES) {
            self.tell_inode(nr, format!("a target of {size} bytes lies in the inode, not in a block"));
        }
        if mapped.end != 1 || mapped.unwritten || slot.has_more_than_one_entry() {
            self.tell_inode(nr, "the target of a symbolic link fills one block");
        } else if self.read_file_block(&mapped.runs, 0, &mut block)? {
            self.check_target(nr, slot, &block);
        }
        self.give_back(block);
        self.runs.truncate(mapped.runs.start);
        Ok(())
    }

    fn check_target(&mut self, nr: InodeNr, slot: RawInode<'_>, bytes: &[u8]) {
        let len = match slot.flags().contains(InodeFlags::ENCRYPT) {
            true => encrypted_len(bytes),
            false => bytes.iter().position(|byte| *byte == 0).map(u64_of),
        };
        if len != Some(slot.size()) {
            self.tell_inode(nr, format!("its size is {}, its target has another length", slot.size()));
        }
    }
}

/// The length of an encrypted target: two bytes that say how long the ciphertext is, and that. `None` if
/// there is none, or no room for it.
#[must_use]
pub fn encrypted_len(bytes: &[u8]) -> Option<u64> {
    let len = 2 + u64::from(u16::from_le_bytes(*bytes.first_chunk()?));
    (len > 2 && len < u64_of(bytes.len())).then_some(len)
}
