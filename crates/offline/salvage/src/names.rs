//! Reads the names in directories, and in blocks of directories that nobody owns any more.
//!
//! A block of a damaged directory gives every name that its records still lead to. A block is read for one
//! directory only: for the first that its checksum is right for, else for the first that claims it; so that
//! directories which share blocks can't multiply names.

use crate::survey::{Node, Survey};
use crate::volume::Volume;
use crate::watch::{Step, Watch};
use hectare_ext4::Place;
use hectare_ext4::dir::{self, FileType, Format, Survivor};
use hectare_ext4::inline::Inline;
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_ext4::xattr::{self, Area, Value};
use hectare_units::{BlockNr, Bytes, InodeNr, index_of, u64_of};
use std::collections::{HashMap, HashSet};

/// Bytes read at once when blocks are scanned.
const STEP: u64 = 1 << 20;

/// A name that leads to a node.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) parent: usize,
    pub(crate) child: usize,
    pub(crate) name: Box<[u8]>,
}

/// A name whose inode is lost.
#[derive(Clone, Debug)]
pub(crate) struct Dangling {
    pub(crate) parent: usize,
    pub(crate) inode: InodeNr,
    pub(crate) name: Box<[u8]>,
    pub(crate) is_directory: bool,
}

/// All names.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) entries: Vec<Entry>,
    pub(crate) dangling: Vec<Dangling>,
    /// What `..` says, by directory.
    pub(crate) above: HashMap<usize, InodeNr>,
    /// Names that were removed, by the inode they led to; only if they are wanted.
    pub(crate) removed: HashMap<InodeNr, (Option<usize>, Box<[u8]>)>,
    /// Directories whose inodes are lost, by number.
    pub(crate) lost: HashMap<InodeNr, usize>,
    wants_removed: bool,
    read: HashSet<BlockNr>,
}

/// Whether a name's type and an inode's kind agree.
fn agree(file_type: FileType, kind: Kind) -> bool {
    match file_type {
        FileType::Unknown => true,
        FileType::Regular => kind == Kind::File,
        FileType::Directory => kind == Kind::Directory,
        FileType::CharDevice => kind == Kind::CharDevice,
        FileType::BlockDevice => kind == Kind::BlockDevice,
        FileType::Fifo => kind == Kind::Fifo,
        FileType::Socket => kind == Kind::Socket,
        FileType::Symlink => kind == Kind::Symlink,
    }
}

/// Reads all directories that have inodes.
pub(crate) fn read(volume: &Volume, survey: &mut Survey, wants_removed: bool, watch: &dyn Watch) -> Names {
    let mut names = Names { wants_removed, ..Names::default() };
    let dirs = std::mem::take(&mut survey.dirs);
    let all = u64_of(dirs.len());
    // A block counts for a directory whose checksum it has, before it counts for another.
    for only_proved in [true, false] {
        for (nr, dir) in dirs.iter().enumerate() {
            watch.advance(Step::Names, u64_of(nr), all);
            let mut reader = Reader { volume, survey, names: &mut names, node: dir.node };
            if dir.judged.inode.is_inline() {
                if only_proved {
                    reader.inline(&dir.judged.inode);
                }
                continue;
            }
            reader.blocks(dir, only_proved);
        }
    }
    names
}

struct Reader<'a> {
    volume: &'a Volume,
    survey: &'a mut Survey,
    names: &'a mut Names,
    node: usize,
}

impl Reader<'_> {
    fn doubt(&mut self, what: String) {
        if let Some(node) = self.survey.nodes.get_mut(self.node)
            && node.doubts.len() < 16
        {
            node.doubts.push(what);
        }
    }

    fn blocks(&mut self, dir: &crate::survey::Dir, only_proved: bool) {
        let inode = &dir.judged.inode;
        let Some(nr) = self.survey.nodes.get(self.node).and_then(|node| node.nr) else { return };
        let seed = inode.seed(nr, &self.volume.sb);
        let indexed = inode.flags.contains(InodeFlags::INDEX);
        let end = inode.size.div_ceil(self.volume.geometry().block_size.bytes().get());
        for extent in dir.extents.iter().filter(|extent| !extent.unwritten) {
            for step in 0..extent.len {
                let Some(logical) = extent.logical.checked_add(step) else { break };
                let Some(at) = extent.block_of(logical) else { break };
                if u64::from(logical.get()) >= end || at.get() >= self.volume.blocks_there() {
                    break;
                }
                if self.names.read.contains(&at) {
                    continue;
                }
                let mut block = self.volume.block(at);
                let format = Format { checksums: true, ..self.volume.format };
                let place = Place::FileBlock(nr, logical);
                let mut verified = dir::verify_block(&block, &format, seed, logical, indexed, place);
                if let Some(seed) = seed
                    && verified.is_err()
                    && dir::mend_leaf(&mut block, &format, seed)
                {
                    verified = Ok(());
                    self.doubt(format!("one byte of its block {logical} was wrong, and is corrected"));
                }
                if only_proved && seed.is_some() && verified.is_err() {
                    continue;
                }
                self.names.read.insert(at);
                let is_sound = verified.is_ok() && is_tiled(&block, &self.volume.format);
                if !is_sound {
                    let reason = verified.err().map_or("its records are broken".into(), |error| error.reason);
                    self.doubt(format!("names in its block {logical} may be lost: {reason}"));
                }
                for found in dir::surviving(&block, &self.volume.format) {
                    self.take(&found, is_sound);
                }
            }
        }
    }

    fn inline(&mut self, inode: &hectare_ext4::inode::Inode) {
        let Some(nr) = self.survey.nodes.get(self.node).and_then(|node| node.nr) else { return };
        let place = Place::Inode(nr);
        let data = inline_tail(inode, place);
        let inline = match Inline::new(&inode.block, data.as_deref(), Bytes::new(inode.size), place) {
            Ok(inline) => inline,
            Err(corrupt) => return self.doubt(corrupt.reason.into_owned()),
        };
        if let Ok(parent) = inline.parent() {
            self.names.above.insert(self.node, parent);
        }
        for entry in inline.dir_entries() {
            match entry {
                Ok(entry) => {
                    let file_type = FileType::from_code(entry.file_type);
                    let (inode, name) = (entry.inode, entry.name);
                    self.take(&Survivor { inode, file_type, name, hidden: false }, true);
                }
                Err(corrupt) => self.doubt(corrupt.reason.into_owned()),
            }
        }
    }

    fn take(&mut self, found: &Survivor<'_>, is_sound: bool) {
        let Survivor { inode, file_type, name, hidden } = *found;
        if found.name == b".." && !hidden {
            self.names.above.entry(self.node).or_insert(inode);
            return;
        }
        if matches!(name, b"." | b"..") {
            return;
        }
        if hidden && is_sound {
            if self.names.wants_removed {
                self.names.removed.insert(inode, (Some(self.node), name.into()));
            }
            return;
        }
        let is_directory = file_type == FileType::Directory;
        let Some(child) = self.survey.find(inode) else {
            if !hidden && inode.get() <= self.volume.geometry().inodes_count() {
                let dangling = Dangling { parent: self.node, inode, name: name.into(), is_directory };
                self.names.dangling.push(dangling);
            }
            return;
        };
        let node = &mut self.survey.nodes[child];
        if !agree(file_type, node.kind) {
            if hidden {
                return;
            }
            node.doubts.push("its kind is not what its name says".into());
        }
        if child != self.node {
            self.names.entries.push(Entry { parent: self.node, child, name: name.into() });
        }
    }
}

/// Whether the records of a block follow one another without a gap.
fn is_tiled(block: &[u8], format: &Format) -> bool {
    let leaf = dir::leaf::Leaf::parse(block, format, Place::Volume);
    leaf.is_ok_and(|leaf| leaf.records().all(|record| record.is_ok()))
}

/// The value of the attribute that continues inline content.
pub(crate) fn inline_tail(inode: &hectare_ext4::inode::Inode, place: Place) -> Option<Vec<u8>> {
    let area = Area::in_inode(inode.xattr_area(), place).ok().flatten()?;
    let attrs = xattr::collect(Some(area), None);
    match &xattr::find(&attrs, &xattr::Name::inline_data())?.value {
        Value::Inline(bytes) => Some(bytes.clone()),
        Value::Inode { .. } => None,
    }
}

/// Looks for blocks of lost directories among those that nobody owns, and for names of nodes without any.
/// `each` is shown every block that holds something else.
pub(crate) fn scan(
    volume: &Volume,
    survey: &mut Survey,
    names: &mut Names,
    watch: &dyn Watch,
    each: &mut dyn FnMut(BlockNr, &[u8]),
) {
    let mut named: HashSet<usize> = names.entries.iter().map(|entry| entry.child).collect();
    let (first, end) = (u64::from(volume.geometry().first_data_block) + 1, volume.blocks_there());
    let gaps = survey.unowned(first, end);
    let all: u64 = gaps.iter().map(|gap| gap.end - gap.start).sum();
    let size = volume.geometry().block_size;
    let per_step = (STEP >> size.shift()).max(1);
    let (mut done, mut buffer) = (0, Vec::new());
    for gap in gaps {
        let mut at = gap.start;
        while at < gap.end {
            let count = (gap.end - at).min(per_step);
            buffer.resize(index_of(count << size.shift()), 0);
            volume.source.read(at << size.shift(), &mut buffer);
            for (nr, block) in (at..).zip(buffer.chunks_exact(size.len())) {
                // Most of what belongs to nobody was never written.
                if block[..16] == [0; 16] {
                    continue;
                }
                if !lost_block(volume, survey, names, &mut named, BlockNr::new(nr), block) {
                    each(BlockNr::new(nr), block);
                }
            }
            (at, done) = (at + count, done + count);
            watch.advance(Step::Scan, done, all);
        }
    }
}

/// Takes the names in a block, if it is one of a directory; false if it is not.
fn lost_block(
    volume: &Volume,
    survey: &mut Survey,
    names: &mut Names,
    named: &mut HashSet<usize>,
    at: BlockNr,
    block: &[u8],
) -> bool {
    if !is_tiled(block, &volume.format) {
        return false;
    }
    let found: Vec<_> =
        dir::surviving(block, &volume.format).into_iter().filter(|found| !found.hidden).collect();
    let dots = match &found[..] {
        [own, above, ..] if own.name == b"." && above.name == b".." => Some((own.inode, above.inode)),
        _ => None,
    };
    let is_name = |found: &&Survivor<'_>| !matches!(found.name, b"." | b"..");
    let mut children: Vec<(usize, &Survivor<'_>)> = Vec::new();
    for found in found.iter().filter(is_name) {
        let Some(child) = survey.find(found.inode) else {
            if names.wants_removed {
                let own = dots.and_then(|(own, _)| survey.find(own));
                names.removed.entry(found.inode).or_insert((own, found.name.into()));
            }
            continue;
        };
        if agree(found.file_type, survey.nodes[child].kind) && !named.contains(&child) {
            children.push((child, found));
        }
    }
    if children.is_empty() {
        return dots.is_some();
    }
    // Its first block says whose it is; of the others, those of its children that are directories do.
    let of_children = || children.iter().find_map(|(child, _)| names.above.get(child).copied());
    let own = dots.map(|(own, _)| own).or_else(of_children);
    let parent = own.and_then(|own| survey.find(own)).filter(|at| survey.nodes[*at].kind == Kind::Directory);
    let parent = parent.unwrap_or_else(|| lost_directory(survey, names, own, at));
    if let Some((_, above)) = dots {
        names.above.entry(parent).or_insert(above);
    }
    for (child, found) in children {
        named.insert(child);
        names.entries.push(Entry { parent, child, name: found.name.into() });
    }
    true
}

/// A directory of which only names are left.
fn lost_directory(survey: &mut Survey, names: &mut Names, nr: Option<InodeNr>, at: BlockNr) -> usize {
    if let Some(known) = nr.and_then(|nr| names.lost.get(&nr)) {
        return *known;
    }
    if let Some(nr) = nr {
        names.lost.insert(nr, survey.nodes.len());
    }
    survey.nodes.push(Node {
        nr,
        slot: None,
        kind: Kind::Directory,
        links: 0,
        first_block: at.get(),
        first_run: 0,
        blocks: 0,
        is_left_out: false,
        extents: None,
        is_removed: false,
        doubts: vec![format!("its inode is lost; its names were found in block {at}")],
    });
    survey.nodes.len() - 1
}

/// The number that names the place of something nameless.
pub(crate) fn nameless(node: &Node) -> Vec<u8> {
    match node.nr {
        Some(nr) => format!("#{nr}").into_bytes(),
        None => format!("#block-{}", node.first_block).into_bytes(),
    }
}
