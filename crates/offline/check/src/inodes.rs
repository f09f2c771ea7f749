//! Every inode: its fields, its map, its attributes; and what the later steps need to know of it.

use crate::context::Scan;
use crate::context::attributes::InodeAttributes;
use crate::context::claims::FileClusters;
use crate::context::inodes::Info;
use crate::progress::Step;
use crate::raw_inode::RawInode;
use crate::report::{Error, What};
use crate::threads::{Queue, each};
use hectare_ext4::error::Place;
use hectare_ext4::feature::{Compat, Incompat, RoCompat};
use hectare_ext4::group::GroupFlags;
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_units::{BlockNr, Bytes, GroupNr, InodeNr, low32, u64_of, usize_of};

/// Bytes of an inode table read at once.
const CHUNK: u32 = 1 << 16;

/// The numbers that are reserved for quota files, and none.
const QUOTA_HOMES: [u32; 3] = [0, 3, 4];

/// What an inode is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    BadBlocks,
    Root,
    Journal,
    /// The superblock names it as the journal, without the feature: one that was taken away may be left so.
    LeftJournal,
    Resize,
    OrphanFile,
    /// Quota files.
    Hidden,
    /// A reserved number without a use here.
    Reserved,
    Plain,
}

impl Scan<'_> {
    /// Looks at every inode that may be in use. False if one thread is to do it.
    pub(crate) fn scan_inodes(&mut self) -> Result<bool, Error> {
        if !self.scan_all_tables()? {
            return Ok(false);
        }
        self.directories.sort_unstable_by_key(|directory| directory.nr);
        for (number, directory) in (1..).zip(&self.directories) {
            self.inodes.change(directory.nr, |info| info.directory = number);
        }
        self.require_special_inodes();
        Ok(true)
    }

    /// Scans the inode tables of all groups. False if several threads have found something.
    fn scan_all_tables(&mut self) -> Result<bool, Error> {
        let groups = Queue::new(self.groups.len());
        let mut others = Vec::new();
        for _ in self.volume.options.other_threads() {
            others.push(self.part()?);
        }
        let before = self.report.extent();
        each(&mut *self, others.iter_mut(), &|scan| scan.scan_tables(&groups))?;
        let silent = !self.volume.options.has_others() || self.report.extent() == before;
        Ok(silent && others.into_iter().all(|part| self.absorb(part)))
    }

    /// Scans the tables of groups while there are any. Several threads stop when one has found something.
    fn scan_tables(&mut self, groups: &Queue) -> Result<(), Error> {
        let geometry = self.volume.geometry();
        let (size, per_group) = (geometry.inode_size, geometry.inodes_per_group);
        let mut chunk = vec![0; usize_of(CHUNK.min(size.saturating_mul(per_group)).max(size))];
        let (before, has_others) = (self.report.extent(), self.volume.options.has_others());
        while let Some(nr) = groups.next() {
            self.scan_table(GroupNr::new(low32(u64_of(nr))), &mut chunk)?;
            (self.volume.watch)(Step::Inodes, u64_of(nr) + 1, u64_of(self.groups.len()));
            if has_others && self.report.extent() != before {
                groups.stop();
            }
        }
        Ok(())
    }

    fn scan_table(&mut self, nr: GroupNr, chunk: &mut [u8]) -> Result<(), Error> {
        let geometry = self.volume.geometry();
        let (size, per_group) = (geometry.inode_size, geometry.inodes_per_group);
        let Some(desc) = self.groups.get(nr.index()) else { return Ok(()) };
        let shared = self.shared_tables.binary_search(&nr).is_ok();
        if shared || self.group_flag(desc, GroupFlags::INODE_UNINIT) {
            return Ok(());
        }
        let lazy = self.volume.sb.features().group_checksums();
        let unused = desc.itable_unused.min(per_group);
        let count = per_group - if lazy { unused } else { 0 };
        // A count that does not count.
        let (unused_from, mut past) = (per_group - unused, 0);
        let start = desc.inode_table.offset(geometry.block_size);
        let mut index = 0;
        while index < count {
            let some = (count - index).min(CHUNK / size).max(1);
            let bytes = &mut chunk[..usize_of(some * size)];
            let at = start + Bytes::new(u64::from(index) * u64::from(size));
            self.volume.device.read_at(at, bytes)?;
            for (i, slot) in (0..some).zip(bytes.chunks_exact(usize_of(size))) {
                let inode = geometry.inode_at(nr, index + i);
                if let Some(slot) = RawInode::new(slot) {
                    past += u32::from(!lazy && slot.links() > 0 && index + i >= unused_from);
                    self.inode(inode, slot)?;
                }
            }
            index += some;
        }
        if past > 0 {
            let reason = format!("it counts {unused} unused inodes without checksums, and {past} are in use");
            self.tell(What::GroupDescriptor, Place::Group(nr), reason);
        }
        Ok(())
    }

    fn role(&self, nr: InodeNr) -> Role {
        let sb = &self.volume.sb;
        let raw = sb.raw();
        let quotas = [raw.s_usr_quota_inum.get(), raw.s_grp_quota_inum.get(), raw.s_prj_quota_inum.get()];
        let features = sb.features();
        match nr.get() {
            1 => Role::BadBlocks,
            2 => Role::Root,
            n if sb.journal_inode() == Some(nr) && n != 0 => Role::Journal,
            n if n == raw.s_journal_inum.get() && !features.compat.contains(Compat::HAS_JOURNAL) => {
                Role::LeftJournal
            }
            7 if features.compat.contains(Compat::RESIZE_INODE) => Role::Resize,
            n if features.compat.contains(Compat::ORPHAN_FILE) && n == raw.s_orphan_file_inum.get() => {
                Role::OrphanFile
            }
            n if features.ro_compat.contains(RoCompat::QUOTA) && quotas.contains(&n) => Role::Hidden,
            _ if nr < sb.first_inode() => Role::Reserved,
            _ => Role::Plain,
        }
    }

    fn inode(&mut self, nr: InodeNr, slot: RawInode<'_>) -> Result<(), Error> {
        let role = self.role(nr);
        let blank = slot.mode() == 0 && slot.links() == 0;
        if blank && matches!(role, Role::Plain | Role::Reserved) && slot.is_blank() {
            self.note_reserved(nr, role);
            return Ok(());
        }
        let seed = self.volume.sb.seed();
        if let Some((found, expected)) = seed.and_then(|seed| slot.wrong_checksum(nr, seed)) {
            let reason = format!("its checksum is {found:#010x}, its content gives {expected:#010x}");
            self.tell_inode(nr, reason);
        }
        if role == Role::Reserved && !slot.is_fit_for_nothing(nr, &self.volume.sb) {
            self.tell_inode(nr, "a reserved inode is in use, and has no use");
        }
        if role == Role::BadBlocks && slot.is_odd_bad_blocks(&self.volume.sb) {
            self.tell_inode(nr, "the list of bad blocks has fields that it can't have");
        }
        let orphan = self.orphans.contains(nr);
        let has_links = slot.links() > 0;
        let unread = role == Role::Reserved && slot.mode() == 0;
        let ended = slot.dtime();
        if !has_links && !orphan && (1..self.listed_dtime_end()).contains(&ended) {
            self.tell(
                What::Orphans,
                Place::Inode(nr),
                "its time of deletion is a link of a lost orphan list",
            );
        }
        if unread {
            self.note_reserved(nr, role);
            return Ok(());
        }
        if !has_links && !orphan && slot.mode() != 0 && slot.dtime() == 0 && role != Role::BadBlocks {
            self.tell_inode(nr, "it has no links, but no time of deletion either");
        }
        if has_links && !orphan && slot.dtime() != 0 {
            self.tell_inode(nr, "it has links and a time of deletion");
        }
        self.note_reserved(nr, role);
        let lives = has_links || (orphan && slot.mode() != 0);
        if !lives && matches!(role, Role::Plain | Role::Reserved) {
            return Ok(());
        }
        self.note(nr, slot, role);
        self.used_inode(nr, slot, role)
    }

    /// The first deletion time that can't be an inode number of the orphan list; 0 where the volume's own
    /// times are so early that the two can't be distinguished.
    fn listed_dtime_end(&self) -> u32 {
        let raw = self.volume.sb.raw();
        let inodes = raw.s_inodes_count.get();
        let made = raw.s_mkfs_time.get();
        let early = raw.s_wtime.get() < inodes || (made != 0 && made < inodes);
        if early { 0 } else { inodes }
    }

    /// Reserved inodes are always in use.
    fn note_reserved(&mut self, nr: InodeNr, role: Role) {
        if role != Role::Plain {
            self.inodes.put(nr, Info { nameless: role != Role::Root, ..Info::default() });
        }
    }

    fn note(&mut self, nr: InodeNr, slot: RawInode<'_>, role: Role) {
        // The journal that tune2fs gives to a mounted volume is a file with a name.
        let is_visible =
            matches!(role, Role::Journal | Role::LeftJournal) && nr >= self.volume.sb.first_inode();
        let is_special = !matches!(role, Role::Plain | Role::Root);
        let info = Info {
            kind: slot.kind(),
            links: slot.links(),
            nameless: is_special && !is_visible,
            encrypted: slot.flags().contains(InodeFlags::ENCRYPT),
            ..Info::default()
        };
        self.inodes.put(nr, info);
    }

    fn used_inode(&mut self, nr: InodeNr, slot: RawInode<'_>, role: Role) -> Result<(), Error> {
        self.check_fields(nr, slot);
        self.check_translator(nr, slot);
        let found = self.check_attributes(nr, slot)?;
        if slot.kind().is_none() && slot.mode() != 0 {
            self.tell_inode(nr, format!("its mode {:#o} is of no known kind", slot.mode()));
        }
        match (role, slot.kind()) {
            (Role::BadBlocks, _) => self.check_bad_blocks(nr, slot),
            (Role::Resize, Some(Kind::File)) => self.check_resize_inode(nr, slot),
            (Role::Root, Some(Kind::Directory)) => self.check_directory_inode(nr, slot, &found),
            (Role::Journal | Role::LeftJournal, Some(Kind::File)) => self.check_journal(nr, slot),
            (Role::OrphanFile, Some(Kind::File)) => self.check_orphan_file(nr, slot),
            (Role::Root, _) => {
                self.tell_inode(nr, "the root is no directory");
                Ok(())
            }
            (Role::LeftJournal, _) => Ok(()),
            (Role::Resize | Role::Journal | Role::OrphanFile | Role::Hidden, None | Some(_))
                if slot.kind() != Some(Kind::File) =>
            {
                self.tell_inode(nr, format!("its mode is {:#o}, not that of a regular file", slot.mode()));
                Ok(())
            }
            (Role::Hidden, Some(_)) => self.note_quota_file(nr, slot),
            (_, Some(Kind::Directory)) => self.check_directory_inode(nr, slot, &found),
            (_, Some(Kind::File)) => self.check_file(nr, slot, &found),
            (_, Some(Kind::Symlink)) => self.check_symlink(nr, slot, &found),
            (_, Some(_)) => {
                self.check_special_file(nr, slot, &found);
                Ok(())
            }
            (_, None) => Ok(()),
        }
    }

    /// Fields that mean the same in every kind of inode.
    fn check_fields(&mut self, nr: InodeNr, slot: RawInode<'_>) {
        let features = *self.volume.sb.features();
        let raw = slot.raw;
        if raw.i_obso_faddr.get() != 0 {
            self.tell_inode(nr, "its obsolete fragment address is not zero");
        }
        if raw.i_blocks_high.get() != 0 && !features.ro_compat.contains(RoCompat::HUGE_FILE) {
            self.tell_inode(nr, "its block count needs the feature huge_file");
        }
        if raw.i_file_acl_high.get() != 0 && !features.incompat.contains(Incompat::BIT64) {
            self.tell_inode(nr, "its attribute block needs the feature 64bit");
        }
        let room = self.volume.geometry().inode_size - 128;
        let extra = slot.extra_isize();
        if room > 0 && extra != 0 && (extra < 4 || u32::from(extra) > room || !extra.is_multiple_of(4)) {
            self.tell_inode(nr, format!("its extra size is {extra}"));
        }
        if slot.has_late_time() {
            self.late_times.add(nr);
        }
        self.check_flags(nr, slot);
    }

    /// The block that an inode of the Hurd may have beside its map, which does not count as one of it.
    fn check_translator(&mut self, nr: InodeNr, slot: RawInode<'_>) {
        let block = slot.translator(&self.volume.sb);
        if block == 0 {
            return;
        }
        if self.volume.holds(block) {
            self.claim_block(nr, BlockNr::new(block), &mut FileClusters::default());
        } else {
            self.tell_inode(nr, format!("its translator lies at block {block}"));
        }
    }

    fn check_flags(&mut self, nr: InodeNr, slot: RawInode<'_>) {
        let (features, flags) = (*self.volume.sb.features(), slot.flags());
        if flags.contains(InodeFlags::INDEX)
            && (slot.kind() != Some(Kind::Directory) || !features.compat.contains(Compat::DIR_INDEX))
        {
            self.tell_inode(nr, "it is marked as indexed, but can have no index");
        }
        let folds = slot.kind() == Some(Kind::Directory) && features.incompat.contains(Incompat::CASEFOLD);
        if flags.contains(InodeFlags::CASEFOLD) && !folds {
            self.tell_inode(nr, "it is marked as casefolded, but can't be");
        }
        if flags.contains(InodeFlags::IMAGIC) && !features.compat.contains(Compat::IMAGIC_INODES) {
            self.tell_inode(nr, "it is marked as magic, which the volume does not have");
        }
        if flags.contains(InodeFlags::EXTENTS) && !features.incompat.contains(Incompat::EXTENTS) {
            self.tell_inode(nr, "it is mapped by extents, which the volume does not have");
        }
        let has_blocks = slot.block().iter().any(|byte| *byte != 0);
        let outside = !flags.intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA);
        let mapped = matches!(slot.kind(), Some(Kind::File | Kind::Directory)) && has_blocks && outside;
        if mapped && features.ro_compat.contains(RoCompat::BIGALLOC) && nr >= self.volume.sb.first_inode() {
            self.tell_inode(nr, "it has a block map, which a volume with bigalloc can't have");
        }
        if flags.contains(InodeFlags::INLINE_DATA) {
            if !features.incompat.contains(Incompat::INLINE_DATA) {
                self.tell_inode(nr, "its data are inside, which the volume does not have");
            } else if flags.intersects(InodeFlags::EXTENTS | InodeFlags::INDEX) {
                self.tell_inode(nr, "its data are inside and outside");
            }
        }
    }

    fn check_file(&mut self, nr: InodeNr, slot: RawInode<'_>, found: &InodeAttributes) -> Result<(), Error> {
        if slot.flags().contains(InodeFlags::INLINE_DATA) {
            self.check_inline_size(nr, slot, found);
            self.check_block_count(nr, slot, found, 0);
            return Ok(());
        }
        let mapped = self.map_file(nr, slot)?;
        self.check_block_count(nr, slot, found, mapped.held.clusters);
        if !self.orphans.contains(nr) && !slot.flags().contains(InodeFlags::VERITY) {
            self.check_written_end(nr, slot, mapped.written_end);
        }
        self.check_size_max(nr, slot);
        self.check_large(nr, slot);
        Ok(())
    }

    /// Devices, pipes and sockets have no content.
    fn check_special_file(&mut self, nr: InodeNr, slot: RawInode<'_>, found: &InodeAttributes) {
        if slot.flags().intersects(InodeFlags::EXTENTS | InodeFlags::INDEX | InodeFlags::INLINE_DATA) {
            self.tell_inode(nr, "a device, pipe or socket has no map");
        }
        if slot.flags().intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
            self.tell_inode(nr, "a device, pipe or socket is immutable or append-only");
        }
        if slot.size() != 0 {
            self.tell_inode(nr, format!("a device, pipe or socket has a size of {}", slot.size()));
        }
        self.check_block_count(nr, slot, found, 0);
    }

    /// The list of bad blocks is an indirect map; its blocks have no other owner.
    fn check_bad_blocks(&mut self, nr: InodeNr, slot: RawInode<'_>) -> Result<(), Error> {
        if slot.block().iter().any(|byte| *byte != 0) {
            self.report.leave("whether the blocks in the list of bad blocks are bad");
            self.map(nr, slot, false)?;
        }
        Ok(())
    }

    /// Numbers of quota files that the volume does not have. One that is reserved for such a file, or not in
    /// use, does no harm.
    fn check_stray_quotas(&mut self) {
        let raw = self.volume.sb.raw();
        let named = [raw.s_usr_quota_inum.get(), raw.s_grp_quota_inum.get(), raw.s_prj_quota_inum.get()];
        if self.volume.sb.features().ro_compat.contains(RoCompat::QUOTA) {
            return;
        }
        for nr in named.into_iter().filter(|nr| !QUOTA_HOMES.contains(nr)) {
            if self.inodes.get(nr).is_some_and(|info| info.kind.is_some()) {
                let reason = format!("it names inode {nr} as a quota file, without the feature quota");
                self.tell(What::Superblock, Place::Volume, reason);
            }
        }
    }

    /// Without the feature, the number of a journal is 0, or that of one that is left.
    fn check_left_journal(&mut self) {
        let nr = self.volume.sb.raw().s_journal_inum.get();
        let is_file = self.inodes.get(nr).is_some_and(|info| info.kind == Some(Kind::File) && info.links > 0);
        if nr != 0 && !self.volume.sb.features().compat.contains(Compat::HAS_JOURNAL) && !is_file {
            let reason = format!(
                "it names inode {nr} as its journal, without the feature has_journal, and that is no file"
            );
            self.tell(What::Journal, Place::Volume, reason);
        }
    }

    /// The inodes that every volume, or this one by its features, must have.
    fn require_special_inodes(&mut self) {
        let used = |scan: &Self, nr: u32| scan.inodes.get(nr).is_some_and(|info| info.kind.is_some());
        if !used(self, InodeNr::ROOT.get()) {
            self.tell(What::Tree, Place::Inode(InodeNr::ROOT), "there is no root directory");
            self.note_unread(InodeNr::ROOT);
        }
        if let Some(nr) = self.volume.sb.journal_inode()
            && !used(self, nr.get())
        {
            self.tell(What::Journal, Place::Inode(nr), "there is no such inode");
            self.note_unread(nr);
        }
        let stray = self.volume.sb.raw().s_orphan_file_inum.get();
        if !self.volume.sb.features().compat.contains(Compat::ORPHAN_FILE) && used(self, stray) {
            let reason =
                format!("it names inode {stray} as the orphan file, without the feature orphan_file");
            self.tell(What::Superblock, Place::Volume, reason);
        }
        self.check_stray_quotas();
        self.check_left_journal();
        for nr in self.orphans.listed() {
            if self.inodes.get(nr.get()).is_none() {
                self.tell(What::Orphans, Place::Inode(nr), "it is listed as an orphan, but not in use");
                self.note_unread(nr);
            }
        }
    }
}
