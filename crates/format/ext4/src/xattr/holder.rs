//! The inode that holds a value (`ea_inode`): what its fields mean.
//!
//! It is a file without a name, flagged as what it is, with one link as long as any attribute uses it. Three
//! of its fields do not mean what they mean elsewhere: the seconds of the access time are the value's hash,
//! and the version (lower half) and the seconds of the change time (upper half) count the attributes that use
//! the value. An entry that lies in an attribute block is one user, however many inodes share the block.
//!
//! Hazard: an older format (Lustre's) has neither hash nor count. There the inode names its one user in the
//! seconds of its modification time and in its generation ([`is_lustre`]).

use super::inode_value_hash;
use crate::error::{Corrupt, Place};
use crate::extent;
use crate::feature::Incompat;
use crate::inode::{Inode, InodeFlags, Kind};
use crate::superblock::SuperBlock;
use crate::time::Timestamp;
use hectare_units::{InodeNr, high32, join32, low32, u64_of};

/// Where the extra word of the access time ends in the extra part.
const ATIME_EXTRA_END: u16 = 16;
/// Permissions, as the kernel gives them.
const PERMISSIONS: u16 = 0o600;

/// A new inode for a value that one attribute uses; it has no blocks yet, and its size is 0.
#[must_use]
pub fn new_holder(owner: &Inode, hash: u32, now: Timestamp, generation: u32, sb: &SuperBlock) -> Inode {
    let mut inode = Inode::new(Kind::File.mode_bits() | PERMISSIONS, now, generation, sb);
    (inode.uid, inode.gid) = (owner.uid, owner.gid);
    inode.flags = InodeFlags::EA_INODE;
    if sb.features().incompat.contains(Incompat::EXTENTS) {
        inode.flags |= InodeFlags::EXTENTS;
        extent::init_root(&mut inode.block);
    }
    inode.links = 1;
    inode.atime = stored_in(hash, &inode);
    set_users(&mut inode, 1);
    inode
}

/// The hash of the value that an inode holds, as stored.
#[must_use]
pub fn stored_hash(holder: &Inode) -> u32 {
    low32(holder.atime.seconds.cast_unsigned())
}

/// How many attributes use the value.
#[must_use]
pub fn users(holder: &Inode) -> u64 {
    join32(low32(holder.version), low32(holder.ctime.seconds.cast_unsigned()))
}

/// Sets how many attributes use the value.
pub fn set_users(holder: &mut Inode, users: u64) {
    holder.version = low32(users).into();
    holder.ctime = stored_in(high32(users), holder);
}

/// Whether an inode holds the value of one inode's attribute in Lustre's format; `hash` is the entry's.
#[must_use]
pub fn is_lustre(holder: &Inode, hash: u32, owner: InodeNr, owner_generation: u32) -> bool {
    hash != stored_hash(holder)
        && low32(holder.mtime.seconds.cast_unsigned()) == owner.get()
        && holder.generation == owner_generation
}

/// Checks that inode `nr` can be what an entry says: the holder of a value of `size` bytes.
///
/// # Errors
/// [`Corrupt`] names the inode and what is wrong with it.
pub fn check_holder(holder: &Inode, nr: InodeNr, size: u32) -> Result<(), Corrupt> {
    let bad = |what: String| Err(corrupt(nr, what));
    if !holder.flags.contains(InodeFlags::EA_INODE) || holder.kind() != Some(Kind::File) {
        return bad("an attribute names it, but it is not flagged as holding a value".into());
    }
    if holder.size != u64::from(size) {
        return bad(format!("it holds {} bytes where the attribute has {size}", holder.size));
    }
    if holder.file_acl.is_some()
        || holder.xattr_area().first_chunk() == Some(&super::raw::MAGIC.to_le_bytes())
    {
        return bad("it has attributes of its own".into());
    }
    Ok(())
}

/// Checks the bytes of a value against the hash that its holder and the entry with this hash and suffix have,
/// unless checksums are ignored.
///
/// # Errors
/// [`Corrupt`] names the inode and both hashes.
pub fn check_value(
    holder: &Inode,
    nr: InodeNr,
    (suffix, hash): (&[u8], u32),
    value: &[u8],
    sb: &SuperBlock,
) -> Result<(), Corrupt> {
    if sb.ignores_checksums() {
        return Ok(());
    }
    let (found, expected) = (stored_hash(holder), inode_value_hash(sb.value_seed(), value));
    if found != expected {
        let what =
            format!("the hash of its {} bytes is {expected:#010x}, not {found:#010x}", u64_of(value.len()));
        return Err(corrupt(nr, what));
    }
    if !super::inode_value_matches(hash, suffix, value, sb.value_seed()) {
        return Err(corrupt(
            nr,
            format!("the attribute's hash {hash:#010x} is not that of its name and value"),
        ));
    }
    Ok(())
}

fn corrupt(nr: InodeNr, what: impl Into<std::borrow::Cow<'static, str>>) -> Corrupt {
    Corrupt::new("the attribute value", Place::Inode(nr), what)
}

/// A word in the seconds of a time: widened as the inode can store it, so that its lower half is exact.
fn stored_in(word: u32, inode: &Inode) -> Timestamp {
    let wide = inode.extra_isize >= ATIME_EXTRA_END;
    Timestamp::from_seconds(if wide { word.into() } else { word.cast_signed().into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::superblock;
    use hectare_units::usize_of;

    /// What is left of an inode after it was stored.
    fn stored(inode: &Inode, sb: &SuperBlock) -> Inode {
        let mut slot = vec![0; usize_of(sb.geometry().inode_size)];
        inode.render(&mut slot, InodeNr::new(20), sb);
        Inode::parse(&slot, InodeNr::new(20), sb).unwrap()
    }

    #[test]
    fn hash_and_count_survive_whatever_their_bits() {
        let sb = superblock();
        let owner = Inode::new(0o100_644, Timestamp::from_seconds(1), 1, &sb);
        for hash in [0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            for count in [1, 0xffff_ffff, 0x1_0000_0000, 0x8000_0000_0000_0001, u64::MAX] {
                let mut holder = new_holder(&owner, hash, Timestamp::from_seconds(77), 3, &sb);
                set_users(&mut holder, count);
                let read = stored(&holder, &sb);
                assert_eq!((stored_hash(&read), users(&read)), (hash, count));
                assert_eq!(read.mtime.seconds, 77);
            }
        }
    }

    #[test]
    fn what_holds_no_value_is_told_by_what_it_lacks() {
        let sb = superblock();
        let owner = Inode::new(0o100_644, Timestamp::from_seconds(1), 1, &sb);
        let mut holder = new_holder(&owner, 5, Timestamp::from_seconds(77), 3, &sb);
        holder.size = 9;
        let nr = InodeNr::new(20);
        assert!(check_holder(&holder, nr, 9).is_ok());
        let told = |holder: &Inode, size| check_holder(holder, nr, size).unwrap_err().to_string();
        assert!(told(&holder, 8).contains("it holds 9 bytes where the attribute has 8"));
        let mut plain = holder.clone();
        plain.flags.remove(InodeFlags::EA_INODE);
        assert!(told(&plain, 9).contains("not flagged"));
        holder.xattr_area_mut()[..4].copy_from_slice(&super::super::raw::MAGIC.to_le_bytes());
        assert!(told(&holder, 9).contains("attributes of its own"));
    }

    #[test]
    fn lustre_names_the_user_instead() {
        let sb = superblock();
        let owner = Inode::new(0o100_644, Timestamp::from_seconds(1), 41, &sb);
        let holder = new_holder(&owner, 5, Timestamp::from_seconds(77), 41, &sb);
        assert!(is_lustre(&holder, 6, InodeNr::new(77), 41));
        assert!(!is_lustre(&holder, 5, InodeNr::new(77), 41), "it has a hash");
        assert!(!is_lustre(&holder, 6, InodeNr::new(78), 41));
        assert!(!is_lustre(&holder, 6, InodeNr::new(77), 42));
    }
}
