//! Judges a slot of an inode table: an inode that was in use, and what about it is doubtful.
//!
//! A right checksum is proof. Without one (a volume without checksums, or a slot that is damaged) every field
//! has to be possible: a table that was overwritten must not come out as thousands of files. A field that
//! nothing else depends on (the attribute block, the extra fields) may be wrong by itself.

use hectare_ext4::Place;
use hectare_ext4::error::Corrupt;
use hectare_ext4::extent::{Node, TreeGeometry};
use hectare_ext4::geometry::Geometry;
use hectare_ext4::inode::{BASE_SIZE, Inode, InodeFlags, Kind};
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{BlockNr, InodeNr};

/// The longest file that any volume with blocks of 4 KiB holds; longer ones are not believed without proof.
pub(crate) const SIZE_MAX: u64 = 1 << 44;
/// Offsets in a slot of what may be wrong by itself.
const ACL_LOW: usize = 0x68;
const ACL_HIGH: usize = 0x76;

/// What a slot holds.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) inode: Inode,
    /// Whether its checksum is right.
    pub(crate) is_proved: bool,
    pub(crate) doubt: Option<String>,
}

/// The inode in a slot that holds one, in use or removed; `None` if it holds none.
pub(crate) fn judge(slot: &[u8], nr: InodeNr, sb: &SuperBlock) -> Option<Judged> {
    if slot.iter().all(|byte| *byte == 0) {
        return None;
    }
    match Inode::parse(slot, nr, sb) {
        Ok(inode) => {
            let is_proved = sb.seed().is_some();
            let possible = is_proved || is_possible(&inode, nr, sb.geometry());
            (inode.mode != 0 && possible).then_some(Judged { inode, is_proved, doubt: None })
        }
        Err(corrupt) => {
            let mended = Inode::mended(slot, nr, sb).and_then(|slot| Inode::parse(&slot, nr, sb).ok());
            let proved = mended.map(|inode| Judged {
                inode,
                is_proved: true,
                doubt: Some("one byte of its inode was wrong, and is corrected by the checksum".into()),
            });
            proved.or_else(|| believed(slot, nr, sb, &corrupt))
        }
    }
}

/// The inode of a slot that breaks the format, without what breaks it.
fn believed(slot: &[u8], nr: InodeNr, sb: &SuperBlock, corrupt: &Corrupt) -> Option<Judged> {
    let mut slot = slot.to_vec();
    let parsed = Inode::parse_unsealed(&slot, nr, sb).or_else(|_| {
        let acl = [ACL_LOW..ACL_LOW + 4, ACL_HIGH..ACL_HIGH + 2];
        for field in acl {
            slot.get_mut(field).into_iter().for_each(|field| field.fill(0));
        }
        Inode::parse_unsealed(&slot, nr, sb)
    });
    let parsed = parsed.or_else(|_| {
        // The extra fields, with the attributes behind them.
        slot.get_mut(BASE_SIZE..BASE_SIZE + 2).into_iter().for_each(|field| field.fill(0));
        Inode::parse_unsealed(&slot, nr, sb)
    });
    let inode = parsed.ok()?;
    let doubt = Some(corrupt.reason.to_string());
    is_possible(&inode, nr, sb.geometry()).then_some(Judged { inode, is_proved: false, doubt })
}

/// Whether all fields are possible.
fn is_possible(inode: &Inode, nr: InodeNr, geometry: &Geometry) -> bool {
    let Some(kind) = inode.kind() else { return false };
    let block = geometry.block_size.bytes().get();
    let volume = geometry.bytes().get();
    let size = match kind {
        // What is too long for its blocks is cut where it is read.
        Kind::File => true,
        Kind::Directory => inode.size <= volume && (inode.is_inline() || inode.size.is_multiple_of(block)),
        Kind::Symlink => (1..=block).contains(&inode.size),
        Kind::CharDevice | Kind::BlockDevice | Kind::Fifo | Kind::Socket => inode.size <= block,
    };
    let space = inode.sectors / 8 <= volume / 512 * 8;
    let links = inode.links <= 65_000;
    size && space && links && has_possible_map(inode, nr, geometry)
}

fn has_possible_map(inode: &Inode, nr: InodeNr, geometry: &Geometry) -> bool {
    if inode.is_fast_symlink() {
        let len = hectare_units::index_of(inode.size.min(60));
        return inode.block[..len].iter().all(|byte| *byte != 0);
    }
    if !inode.is_mapped() {
        return true;
    }
    let tree = TreeGeometry::of(geometry, nr);
    if inode.flags.contains(InodeFlags::EXTENTS) {
        return Node::open_alone(&inode.block, Place::Inode(nr), &tree).is_ok_and(|node| node.max() <= 4);
    }
    let numbers = inode.block.chunks_exact(4).filter_map(<[u8]>::first_chunk);
    let wrong = numbers.filter(|number| {
        let number = u32::from_le_bytes(**number);
        number != 0 && !tree.holds(BlockNr::new(number.into()), 1)
    });
    wrong.count() <= 2
}

/// Whether an inode is in use: one that was removed has a time of that, and no links.
pub(crate) fn is_live(inode: &Inode) -> bool {
    inode.links > 0 && inode.dtime == 0
}

impl Judged {
    /// Whether it is in use, or may be: where no checksum proves it, one of the two signs of removal may be
    /// damage.
    pub(crate) fn may_live(&self) -> bool {
        let has_content = self.inode.sectors > 0 && self.inode.size > 0;
        is_live(&self.inode)
            || !self.is_proved && (self.inode.links > 0 || self.inode.dtime == 0 && has_content)
    }
}
