//! Loads the quota files of a volume, and counts anew what they are about.
//!
//! All records are read when a volume is opened for writing, before anything is written: so a file that can't
//! be used is found then, and no operation has to read one. Where changes were made without counting (replayed
//! fast commits), and on request, all is counted anew: then every inode in use is read.
//!
//! What it is not: a check. Sums that are wrong stay wrong by the same amount; `hectare check` finds them.

use crate::error::{Error, Result};
use crate::options::OpenOptions;
use crate::space::quota;
use crate::state::Core;
use crate::stores::quotas::{Amount, Book, Counted, Owners, Quotas};
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::inode::{InodeFlags, Kind as FileKind};
use hectare_ext4::quota::{Info, Kind};
use hectare_units::InodeNr;
use std::collections::{BTreeMap, BTreeSet};

/// The inodes that the format has for the files of users and groups.
const USER_INODE: u32 = 3;
const GROUP_INODE: u32 = 4;

/// Reads the quota files of a volume; `None` if it has none.
///
/// # Errors
/// [`Error::Corrupt`] or [`Error::Unsupported`] with the file and what is wrong with it.
pub(crate) fn load(core: &Core) -> Result<Option<Quotas>> {
    let mut books = Vec::new();
    for kind in Kind::ALL {
        if let Some(nr) = core.state.sb.quota_inode(kind) {
            books.push(load_book(core, kind, nr)?);
        }
    }
    let options = &core.state.options;
    Ok((!books.is_empty()).then(|| Quotas::new(books, &core.state.sb, options.fixed_time)))
}

fn load_book(core: &Core, kind: Kind, nr: InodeNr) -> Result<Book> {
    check_number(core, kind, nr)?;
    let inode = core.state.inode(nr)?;
    let data = inode.get();
    let unusual = InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT | InodeFlags::VERITY;
    if data.kind() != Some(FileKind::File) || data.flags.intersects(unusual) {
        return Err(Corrupt::new(kind.structure(), Place::Inode(nr), "it is no plain file").into());
    }
    let pieces = quota::pieces_of(&core.state, kind, nr, &data)?;
    let file = quota::file(&core.state, kind, nr, &data);
    let info = Info::read(&file)?;
    let mut book = Book::new(kind, nr, info, pieces, enforces(&core.state.options, kind));
    hectare_ext4::quota::for_each(&file, &info, &mut |id, slot, record| {
        book.load(id, slot, record);
        Ok(())
    })?;
    Ok(book)
}

fn enforces(options: &OpenOptions, kind: Kind) -> bool {
    options.quota_limits.contains(&kind)
}

/// Returns an error for a file in a place where the format has none.
fn check_number(core: &Core, kind: Kind, nr: InodeNr) -> Result<()> {
    let fits = match kind {
        Kind::User => nr.get() == USER_INODE,
        Kind::Group => nr.get() == GROUP_INODE,
        Kind::Project => nr >= core.state.sb.first_inode(),
    };
    if fits && core.state.groups.inode_in_use(nr)? {
        return Ok(());
    }
    let what = format!("{} can't be inode {nr}", kind.structure());
    Err(Corrupt::new("the superblock", Place::Volume, what).into())
}

/// Counts all inodes, and corrects what the quotas say. Called before anything else changes them.
///
/// # Errors
/// If an inode in use can't be read, and those of [`quota::prepare`].
pub(crate) fn recount(core: &Core, quotas: &Quotas) -> Result<()> {
    let mut sums: BTreeMap<(Kind, u32), Amount> = BTreeMap::new();
    let geometry = core.state.geometry();
    for nr in (1..=geometry.inodes_count()).map(InodeNr::new) {
        if !quotas.counts(nr) || !core.state.groups.inode_in_use(nr)? {
            continue;
        }
        let (inode, _) = core.state.read_slot(nr)?;
        if inode.flags.contains(InodeFlags::EA_INODE) {
            continue; // it counts with the files that have its value
        }
        let values = core.state.counted_values(nr, &inode)?;
        for kind in Kind::ALL {
            let sum = sums.entry((kind, Owners::of(&inode).get(kind))).or_default();
            sum.space = sum.space.saturating_add(Counted::of(&inode).space());
            sum.inodes += 1 + values;
        }
    }
    for kind in quotas.kinds().iter().copied() {
        let known = quotas.records(kind).into_iter().map(|(id, _)| id);
        let used = sums.keys().filter(|(of, _)| *of == kind).map(|(_, id)| *id);
        let ids: BTreeSet<u32> = known.chain(used).collect();
        let now = quotas.now();
        quotas.with(kind, |book| {
            for id in ids {
                let sum = sums.get(&(kind, id)).copied().unwrap_or_default();
                book.change(id, now, |used| *used = sum);
            }
        });
    }
    quota::place_waiting(core)
}

/// The error of a change of quotas on a volume that has none.
pub(crate) fn missing(kind: Kind) -> Error {
    Error::Unsupported(format!("the volume has no {kind} quotas (feature 'quota')"))
}
