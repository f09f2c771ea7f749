//! The extended attributes of what was found, as far as they are sound.

use crate::map;
use crate::node::NodeId;
use crate::plausible::Judged;
use crate::salvage::Salvage;
use hectare_ext4::Place;
use hectare_ext4::acl;
use hectare_ext4::inode::Inode;
use hectare_ext4::xattr::{self, Area, Attr, Value};
use hectare_units::{InodeNr, index_of};
use std::sync::atomic::Ordering::Relaxed;

/// The longest value that is read from an inode of its own: the longest that Linux takes.
const VALUE_MAX: u64 = 1 << 16;

/// What a value counts as at least, in bytes.
const SECTOR: u64 = 512;

impl Salvage {
    /// The extended attributes: full names, and values as programs see them. Those that are damaged are left
    /// out, with a doubt.
    #[must_use]
    pub fn xattrs(&self, node: NodeId) -> Vec<(Vec<u8>, Vec<u8>)> {
        let NodeId(at) = node;
        let slot = self.tree.nodes[at].slot;
        let judged = slot.and_then(|slot| self.volume.inode_at(slot, self.number(at)));
        let Some(Judged { inode, is_proved, .. }) = judged else { return Vec::new() };
        let place = Place::Inode(self.number(at));
        let inner = Area::in_inode(inode.xattr_area(), place).unwrap_or_else(|corrupt| {
            self.doubt(at, format!("attributes in its inode: {}", corrupt.reason));
            None
        });
        let block = inode.file_acl.map(|nr| (nr, self.volume.block(nr)));
        let outer = block.as_ref().and_then(|(nr, block)| {
            let verified = self.volume.sb.seed().map_or(Ok(()), |seed| xattr::verify(block, seed, *nr));
            // What is damaged anyway may name any block.
            let area = verified.and_then(|()| Area::in_block(block, Place::Block(*nr)));
            area.map_err(|corrupt| self.doubt(at, format!("its attribute block: {}", corrupt.reason))).ok()
        });
        let attrs = xattr::collect(inner, outer);
        let mut known = Vec::with_capacity(attrs.len());
        for attr in attrs {
            let Some(full) = attr.name.full() else { continue };
            if attr.name == xattr::Name::inline_data() {
                continue;
            }
            let value = self.value(&attr, (self.number(at), &inode)).and_then(|value| {
                let shown = acl::to_shown(&attr.name, &value, place);
                shown.map(|value| value.into_owned()).map_err(|corrupt| corrupt.reason.into_owned())
            });
            match value {
                Ok(value) => known.push((full, value)),
                Err(reason) => {
                    let name = String::from_utf8_lossy(&full);
                    self.doubt(at, format!("attribute {name}: {reason}"));
                }
            }
        }
        if !is_proved && self.volume.sb.seed().is_some() && !known.is_empty() {
            self.doubt(at, "its attributes lie in a damaged inode".into());
        }
        known
    }

    fn value(&self, attr: &Attr, owner: (InodeNr, &Inode)) -> Result<Vec<u8>, String> {
        match &attr.value {
            Value::Inline(bytes) => Ok(bytes.clone()),
            Value::Inode { inode, size, hash } => {
                let lost = || "its value is lost".to_owned();
                let holder = self.volume.inode(*inode).ok_or_else(lost)?.inode;
                xattr::check_holder(&holder, *inode, *size).map_err(|corrupt| corrupt.to_string())?;
                let value = self.content_of(*inode, &holder).ok_or_else(lost)?;
                self.verify(attr, *hash, (*inode, &holder), &value, owner)?;
                Ok(value)
            }
        }
    }

    /// Compares a value with the hashes of its holder and its entry, which those by Lustre do not have.
    fn verify(
        &self,
        attr: &Attr,
        hash: u32,
        (nr, holder): (InodeNr, &Inode),
        value: &[u8],
        (owner, data): (InodeNr, &Inode),
    ) -> Result<(), String> {
        if xattr::is_lustre(holder, hash, owner, data.generation) {
            return Ok(());
        }
        let entry = (attr.name.suffix(), hash);
        xattr::check_value(holder, nr, entry, value, &self.volume.sb).map_err(|corrupt| corrupt.to_string())
    }

    fn content_of(&self, nr: InodeNr, holder: &Inode) -> Option<Vec<u8>> {
        let size = holder.size;
        if size > VALUE_MAX {
            return None;
        }
        // Many files may name one value: all together are read no more often than the device is long.
        let spent = self.value_room.fetch_update(Relaxed, Relaxed, |room| room.checked_sub(size.max(SECTOR)));
        if spent.is_err() {
            return None;
        }
        let mut budget = self.volume.blocks_there();
        let mapped = map::map(&self.volume, nr, holder, &mut budget);
        let shift = self.volume.geometry().block_size.shift();
        let mut value = vec![0; index_of(size)];
        for extent in mapped.extents.iter().filter(|extent| !extent.unwritten) {
            let start = u64::from(extent.logical.get()) << shift;
            let end = (extent.end() << shift).min(size);
            if start < end {
                let place = extent.physical.get() << shift;
                let lost = self.volume.source.read(place, &mut value[index_of(start)..index_of(end)]);
                if !lost.is_empty() {
                    return None;
                }
            }
        }
        Some(value)
    }
}
