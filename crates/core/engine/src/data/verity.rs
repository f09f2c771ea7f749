//! Files that fs-verity seals: reads them with verification, and seals files.
//!
//! What is behind the end of such a file, and how its blocks are hashed, is in [`hectare_ext4::verity`]. A
//! read is verified only if the volume was opened so ([`OpenOptions::verify`](crate::OpenOptions)): each
//! block that it touches, up to the root of the tree. What verifies nothing is the descriptor itself: compare
//! the file's digest with one that is trusted.
//!
//! Sealing writes the tree and the descriptor behind the end, where nothing reads them, and then sets the
//! flag. In between the file is an orphan to be truncated to its size, so that a crash leaves it as it was.
//!
//! Hazard: sealing holds the hashes of all blocks in memory, the 128th part of the file.

use crate::data::{checks, device, read, truncate, writeback};
use crate::error::{Error, Result};
use crate::space::map::MapRef;
use crate::space::map_edit::{INODE_CREDITS, MAP_CREDITS, MapMut};
use crate::space::piece::Use;
use crate::space::reserve;
use crate::state::Core;
use crate::stores::fs_errors::Watched;
use crate::stores::inode_cache::CachedInode;
use crate::stores::orphans::ORPHAN_CREDITS;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::extent;
use hectare_ext4::feature::RoCompat;
use hectare_ext4::inode::InodeFlags;
use hectare_ext4::verity::{self, Algorithm, Builder, DESCRIPTOR_MAX, Descriptor, Params, Shape};
use hectare_units::{Bytes, LogicalBlock, index_of, low32, memory, u64_of, usize_of};
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes read at a time where all of a file is hashed.
const STEP: u64 = 1 << 20;

/// A sealed file: its descriptor, and where its tree lies.
struct Sealed {
    descriptor: Descriptor,
    shape: Shape,
    start: u64,
}

/// Copies bytes of a file out as [`read::read_locked`] does, verified if it is sealed and the volume
/// verifies. The caller holds the operation lock.
pub(crate) fn read_locked(core: &Core, inode: &CachedInode, at: u64, out: &mut [u8]) -> Result<usize> {
    if core.state.options.verify && inode.get().flags.contains(InodeFlags::VERITY) {
        return read_verified(core, inode, at, out);
    }
    read::read_locked(core, inode, at, out)
}

/// The hash of a sealed file's blocks, and its digest.
pub(crate) fn digest(core: &Core, inode: &CachedInode) -> Result<(Algorithm, Vec<u8>)> {
    let _operation = inode.lock().read();
    let sealed = Sealed::of(core, inode)?;
    Ok((sealed.descriptor.params.algorithm, sealed.descriptor.digest()))
}

/// Verifies all of a sealed file.
pub(crate) fn verify(core: &Core, inode: &CachedInode) -> Result<()> {
    let _operation = inode.lock().read();
    let size = inode.get().size;
    let mut buffer = memory::filled(0, index_of(STEP.min(size)))?;
    Sealed::of(core, inode)?;
    let mut at = 0;
    while at < size {
        at += u64_of(read_verified(core, inode, at, &mut buffer)?);
    }
    Ok(())
}

fn read_verified(core: &Core, inode: &CachedInode, at: u64, out: &mut [u8]) -> Result<usize> {
    let size = inode.get().size;
    let len = index_of(size.saturating_sub(at).min(u64_of(out.len())));
    if len == 0 {
        return Ok(0);
    }
    let sealed = Sealed::of(core, inode)?;
    let block = u64_of(sealed.descriptor.params.block_size());
    let (from, to) = (at - at % block, (at + u64_of(len)).next_multiple_of(block).min(size));
    let mut bytes = memory::filled(0, index_of(to - from))?;
    read::read_mapped(core, inode, from, &mut bytes)?;
    let mut known = HashMap::new();
    for (index, content) in (from / block..).zip(bytes.chunks(index_of(block))) {
        // No corruption of the volume: its metadata is sound.
        sealed.check(core, inode, index, content, &mut known)?;
    }
    out[..len].copy_from_slice(&bytes[index_of(at - from)..][..len]);
    Ok(len)
}

impl Sealed {
    /// What lies behind the end of a file.
    fn of(core: &Core, inode: &CachedInode) -> Result<Self> {
        inode.check_alive()?;
        if !inode.get().flags.contains(InodeFlags::VERITY) {
            return Err(Error::Unsupported(format!("inode {} is not sealed by fs-verity", inode.nr())));
        }
        Self::find(core, inode).watched(&core.state.findings)
    }

    fn find(core: &Core, inode: &CachedInode) -> Result<Self> {
        let bad =
            |what: &'static str| Corrupt::new("the fs-verity descriptor", Place::Inode(inode.nr()), what);
        let block = core.state.geometry().block_size.bytes().get();
        let (size, end) = {
            let data = inode.get();
            if !data.flags.contains(InodeFlags::EXTENTS) || data.flags.contains(InodeFlags::ENCRYPT) {
                let what =
                    format!("inode {} is sealed by fs-verity, and encrypted or without extents", inode.nr());
                return Err(Error::Unsupported(what));
            }
            let map = MapRef { state: &core.state, nr: inode.nr(), inode: &data };
            (data.size, extent::last(&map)?.map_or(0, |last| last.end()) * block)
        };
        let start = verity::start(size).ok_or_else(|| bad("the file is too long"))?;
        let len_at = end.checked_sub(4).filter(|at| *at >= start).ok_or_else(|| bad("there is none"))?;
        let mut word = [0; 4];
        read::read_mapped(core, inode, len_at, &mut word)?;
        let len = u32::from_le_bytes(word);
        let at = len_at.checked_sub(len.into()).map(|at| at - at % block).filter(|at| *at >= start);
        let at = at.filter(|_| len <= DESCRIPTOR_MAX).ok_or_else(|| bad("its length is impossible"))?;
        let mut bytes = vec![0; usize_of(len)];
        read::read_mapped(core, inode, at, &mut bytes)?;
        let descriptor = Descriptor::parse(&bytes, inode.nr())?;
        if descriptor.size != size {
            return Err(bad("it is for a file of another size").into());
        }
        let shape = Shape::of(&descriptor.params, size);
        if shape.blocks * u64_of(descriptor.params.block_size()) > at - start {
            return Err(bad("it lies inside the tree").into());
        }
        Ok(Self { descriptor, shape, start })
    }

    /// Verifies a block of the content; `known` are the blocks of the tree that were verified.
    fn check(
        &self,
        core: &Core,
        inode: &CachedInode,
        index: u64,
        content: &[u8],
        known: &mut HashMap<u64, Vec<u8>>,
    ) -> Result<()> {
        let params = &self.descriptor.params;
        let (size, len) = (u64_of(params.block_size()), params.algorithm.hash_len());
        let block = LogicalBlock::new(low32((index * size) >> core.state.geometry().block_size.shift()));
        let bad = |what| Corrupt::new("the file", Place::FileBlock(inode.nr(), block), what);
        let (mut hash, mut at, mut new) = (params.hash(content), index, Vec::new());
        for level in 0..self.shape.levels() {
            let (nr, within, slot) = self.shape.place(level, at).ok_or_else(|| bad("it has no hash"))?;
            let verified = known.get(&nr);
            let node = match verified {
                Some(node) => node.clone(),
                None => {
                    let mut node = vec![0; params.block_size()];
                    read::read_mapped(core, inode, self.start + nr * size, &mut node)?;
                    node
                }
            };
            if node.get(slot * len..(slot + 1) * len) != Some(&hash) {
                let what = if level == 0 { NOT_AS_SEALED } else { TREE_NOT_AS_SEALED };
                return Err(bad(what).into());
            }
            if verified.is_some() {
                known.extend(new);
                return Ok(());
            }
            (hash, at) = (params.hash(&node), within);
            new.push((nr, node));
        }
        if hash != self.descriptor.root {
            let what = if self.shape.levels() == 0 { NOT_AS_SEALED } else { TREE_NOT_AS_SEALED };
            return Err(bad(what).into());
        }
        known.extend(new);
        Ok(())
    }
}

const NOT_AS_SEALED: &str = "it does not have the content that fs-verity sealed";
const TREE_NOT_AS_SEALED: &str = "the fs-verity tree above it does not match its root";

/// Seals a file: its content never changes again, and can be verified.
pub(crate) fn enable(core: &Core, inode: &Arc<CachedInode>, params: Params) -> Result<()> {
    let _operation = inode.lock().write();
    checks::check_content_writable(core, inode)?;
    check_sealable(core, inode, &params)?;
    writeback::place_locked(core, inode)?;
    reserve::discard_window(core, inode);
    let (size, block) = (inode.get().size, core.state.geometry().block_size);
    let start = verity::start(size).ok_or(Error::FileTooLarge)?;
    let (tree, descriptor) = hashed(core, inode, size, params)?;
    let bytes = verity::behind(&tree, &descriptor, block.len());
    checks::check_size(core, inode, start, u64_of(bytes.len()))?;
    let mut handle = core.start(INODE_CREDITS + ORPHAN_CREDITS)?;
    core.state.add_orphan(&mut handle, inode);
    handle.stop();
    // What was allocated behind the end already would be taken for the descriptor.
    let written = truncate::unmap(core, inode, size).and_then(|()| write_behind(core, inode, start, &bytes));
    if let Err(error) = written {
        truncate::finish_cut(core, inode)?;
        return Err(error);
    }
    let mut handle = core.start(INODE_CREDITS + ORPHAN_CREDITS)?;
    core.state.remove_orphan(&mut handle, inode.nr());
    let mut data = inode.edit(&mut handle, &core.state.inodes);
    data.flags |= InodeFlags::VERITY;
    data.ctime = core.state.now();
    drop(data);
    handle.stop();
    core.sync_if_asked(inode)
}

fn check_sealable(core: &Core, inode: &CachedInode, params: &Params) -> Result<()> {
    let nr = inode.nr();
    let block = core.state.geometry().block_size.len();
    let what = if !core.state.sb.features().ro_compat.contains(RoCompat::VERITY) {
        "the volume does not have fs-verity: add it with tune2fs -O verity, or make the volume with -O verity"
            .into()
    } else if params.block_size() > block {
        format!(
            "fs-verity can't hash blocks of {} bytes on a volume with blocks of {block}",
            params.block_size()
        )
    } else if !inode.get().flags.contains(InodeFlags::EXTENTS) {
        format!("inode {nr} has no extents, and can't be sealed by fs-verity")
    } else if core.state.journals_data(&inode.get()) {
        format!("inode {nr} has its content in the journal, and can't be sealed by fs-verity")
    } else if inode.get().links == 0 {
        format!("inode {nr} has no name, and can't be sealed by fs-verity")
    } else {
        return Ok(());
    };
    Err(Error::Unsupported(what))
}

fn hashed(core: &Core, inode: &CachedInode, size: u64, params: Params) -> Result<(Vec<u8>, Descriptor)> {
    let mut builder = Builder::new(params);
    let mut buffer = memory::filled(0, index_of(STEP.min(size)))?;
    let mut at = 0;
    while at < size {
        let now = &mut buffer[..index_of(STEP.min(size - at))];
        read::read_mapped(core, inode, at, now)?;
        builder.add(now);
        at += u64_of(now.len());
    }
    Ok(builder.finish())
}

/// Writes whole blocks behind the end of a file, without changing its size.
fn write_behind(core: &Core, inode: &Arc<CachedInode>, start: u64, bytes: &[u8]) -> Result<()> {
    let block = core.state.geometry().block_size;
    let first = LogicalBlock::containing(Bytes::new(start), block).ok_or(Error::FileTooLarge)?.get();
    let blocks = low32(u64_of(bytes.len() / block.len()));
    let mut done = 0;
    while done < blocks {
        let at = LogicalBlock::new(first + done);
        let piece = reserve::reserve_for(core, inode.nr(), &inode.get(), at, blocks - done, Use::Names)?;
        let len = usize_of(piece.extent.len) * block.len();
        let part = &bytes[usize_of(done) * block.len()..][..len];
        device::write_data(core, piece.extent.physical.offset(block), part)?;
        core.state.count_written(len);
        let mut handle = core.start(MAP_CREDITS)?;
        let mut data = inode.edit(&mut handle, &core.state.inodes);
        done +=
            MapMut { core, handle: &mut handle, nr: inode.nr(), inode: &mut data }.publish(piece, false)?;
    }
    Ok(())
}
