//! The tree: every directory hangs below the root, and every inode has a name; what has none gets one in
//! `lost+found`.

use crate::directories::names::Numbers;
use crate::error::Error;
use crate::know::known::Info;
use crate::know::slot::Slot;
use crate::know::stored::Stored;
use crate::know::work::Work;
use hectare_check::{Bits, What};
use hectare_ext4::error::Place;
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_units::InodeNr;
use std::collections::BTreeSet;

const LOST_FOUND: &[u8] = b"lost+found";

impl Work<'_> {
    /// Connects what is not.
    pub(crate) fn connect(&mut self) -> Result<(), Error> {
        let loops = self.cut_circles()?;
        let root = InodeNr::ROOT.get();
        let free = |nr: u32, info: &Info| {
            let alone = match info.kind {
                Kind::Directory => info.parent == 0,
                _ => info.refs == 0,
            };
            nr != root && !info.hidden && !info.holds_value && (alone || loops.contains(&nr))
        };
        let mut lost = self.inodes.chosen(free)?;
        if lost.is_empty() {
            return Ok(());
        }
        let home = self.lost_found(&mut lost)?.unwrap_or(InodeNr::ROOT);
        let left = self.put_into(home, lost)?;
        if home != InodeNr::ROOT && !left.is_empty() {
            self.put_into(InodeNr::ROOT, left)?;
        }
        Ok(())
    }

    /// Gives what has no name one in a directory; what there was no space for.
    fn put_into(&mut self, home: InodeNr, lost: Vec<u32>) -> Result<Vec<u32>, Error> {
        let directory = if home == InodeNr::ROOT { "/" } else { "lost+found/" };
        let Some(mut slot) = self.slot(home)? else { return Ok(lost) };
        let mut entries = self.read_directory(&slot)?.entries;
        let before = entries.len();
        let mut names: BTreeSet<Vec<u8>> = entries.iter().map(|entry| entry.name.clone()).collect();
        for nr in lost {
            let mut name = format!("#{nr}").into_bytes();
            while !names.insert(name.clone()) {
                name.push(b'~');
            }
            let Some(kind) = self.inodes.kind(nr)? else { continue };
            entries.push(Stored { name, inode: nr, file_type: self.type_code(Some(kind)), hash: None });
        }
        let parent = self.inodes.get(home.get())?.map_or(InodeNr::ROOT, |info| InodeNr::new(info.parent));
        let kept = self.write_directory(&mut slot, &entries, parent)?.max(before);
        for Stored { name, inode, .. } in &entries[before..kept] {
            let shown = String::from_utf8_lossy(name);
            self.lost(
                What::Tree,
                Place::Inode(InodeNr::new(*inode)),
                format!("it has no name: {directory}{shown}"),
            );
            self.inodes.change(*inode, |info| {
                info.refs = 1;
                if info.is_directory() {
                    info.parent = home.get();
                }
            })?;
            if self.inodes.kind(*inode)? == Some(Kind::Directory)
                && let Some(child) = self.slot(InodeNr::new(*inode))?
            {
                self.set_dot_dot(&child, home.get())?;
            }
        }
        Ok(entries[kept..].iter().map(|entry| entry.inode).collect())
    }

    /// An encrypted root takes no plain name, and nothing that is not encrypted as it is.
    fn uncover_root(&mut self, root: &mut Slot) -> Result<(), Error> {
        if !root.has(InodeFlags::ENCRYPT) {
            return Ok(());
        }
        let text = "it was encrypted, so lost+found can't be in it: flag cleared, its names stay as stored";
        self.lost(What::Tree, Place::Inode(InodeNr::ROOT), text);
        root.set_flag(InodeFlags::ENCRYPT, false);
        self.put_slot(root)
    }

    /// The directory `lost+found`, made if it is not there and there is space; to what is lost comes one that
    /// can't take names.
    fn lost_found(&mut self, lost: &mut Vec<u32>) -> Result<Option<InodeNr>, Error> {
        let Some(mut root) = self.slot(InodeNr::ROOT)? else { return Ok(None) };
        self.uncover_root(&mut root)?;
        let mut entries = self.read_directory(&root)?.entries;
        let mut encrypted = None;
        if let Some(entry) = entries.iter().find(|entry| self.is_lost_found(&root, entry)) {
            let known = self.inodes.get(entry.inode)?;
            if known.is_some_and(|info| info.is_directory() && info.parent == 2) {
                let nr = InodeNr::new(entry.inode);
                if !self.slot(nr)?.is_some_and(|slot| slot.has(InodeFlags::ENCRYPT)) {
                    return Ok(Some(nr));
                }
                encrypted = Some(nr);
            }
        }
        if !self.has_space() {
            return Ok(None);
        }
        let Some(mut slot) = self.take_inode()? else { return Ok(None) };
        if let Some(nr) = encrypted {
            self.lost(What::Tree, Place::Inode(nr), "it is an encrypted lost+found, which takes no names");
            entries.retain(|entry| !self.is_lost_found(&root, entry));
            self.inodes.change(nr.get(), |info| (info.refs, info.parent) = (0, 0))?;
            lost.push(nr.get());
        } else {
            self.rename_lost_found(&root, &mut entries);
        }
        self.make_directory(&mut slot, 0o700, InodeNr::ROOT)?;
        let inode = slot.nr.get();
        entries.push(Stored {
            name: LOST_FOUND.to_vec(),
            inode,
            file_type: self.type_code(Some(Kind::Directory)),
            hash: None,
        });
        self.inodes.change(inode, |info| info.refs = 1)?;
        if self.write_directory(&mut root, &entries, InodeNr::ROOT)? < entries.len() {
            self.unmake(slot)?;
            return Ok(None);
        }
        self.mended(What::Tree, Place::Inode(InodeNr::new(inode)), "lost+found is made");
        Ok(Some(InodeNr::new(inode)))
    }

    fn is_lost_found(&self, root: &Slot, entry: &Stored) -> bool {
        self.comparable(root, &entry.name) == self.comparable(root, LOST_FOUND)
    }

    /// Gives what has the name of lost+found, and is no directory, a name that is not there.
    fn rename_lost_found(&mut self, root: &Slot, entries: &mut [Stored]) {
        let Some(at) = entries.iter().position(|entry| self.is_lost_found(root, entry)) else { return };
        let taken = entries.iter().map(|entry| (self.comparable(root, &entry.name), entry.inode)).collect();
        let name = self.another_name(root, LOST_FOUND, &taken, &mut Numbers::new());
        let text = format!("lost+found is no directory: now {}", name.escape_ascii());
        self.lost(What::Tree, Place::Inode(InodeNr::ROOT), text);
        entries[at].name = name;
    }

    /// Ends a directory that was made, and that the root has no place for.
    fn unmake(&mut self, mut slot: Slot) -> Result<(), Error> {
        self.inodes.remove(slot.nr.get())?;
        slot.raw().i_links_count = 0.into();
        slot.raw().i_dtime = self.options.now.into();
        // What it holds is found to be free in the next round.
        self.put_slot(&mut slot)
    }

    /// Whether a cluster is free for a new directory.
    fn has_space(&mut self) -> bool {
        let free = self.take_cluster();
        free.into_iter().for_each(|cluster| self.release_cluster(cluster));
        free.is_some()
    }

    /// Cuts every circle of directories that name each other, and gives those that were cut off.
    fn cut_circles(&mut self) -> Result<BTreeSet<u32>, Error> {
        let parent = |work: &Self, nr: u32| -> Result<Option<u32>, Error> {
            let parent = work.inodes.get(nr)?.map(|info| info.parent);
            Ok(parent.filter(|parent| *parent != 0 && nr != InodeNr::ROOT.get()))
        };
        let mut done = Bits::new(u64::from(self.geometry().inodes_count()) + 1)?;
        let (mut cut, mut next) = (BTreeSet::new(), 0);
        while let Some((start, info)) = self.inodes.first_from(next)? {
            next = start.saturating_add(1);
            let mut walk = BTreeSet::new();
            let mut at = Some(start).filter(|_| info.is_directory());
            while let Some(nr) = at.filter(|nr| !done.contains(u64::from(*nr))) {
                if !walk.insert(nr) {
                    cut.insert(nr);
                    break;
                }
                at = parent(self, nr)?;
            }
            for nr in walk.into_iter().map(u64::from) {
                done.claim(nr..nr + 1);
            }
        }
        for nr in &cut {
            let Some(above) = parent(self, *nr)? else { continue };
            self.lost(What::Tree, Place::Inode(InodeNr::new(*nr)), "it lies below itself: cut off");
            let Some(mut slot) = self.slot(InodeNr::new(above))? else { continue };
            let mut entries = self.read_directory(&slot)?.entries;
            entries.retain(|entry| entry.inode != *nr);
            let grand = self.inodes.get(above)?.map_or(InodeNr::ROOT, |info| InodeNr::new(info.parent));
            self.write_directory(&mut slot, &entries, grand)?;
            self.inodes.change(*nr, |info| info.parent = 0)?;
        }
        Ok(cut)
    }
}
