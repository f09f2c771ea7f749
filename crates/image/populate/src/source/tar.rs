//! A tar archive as a layer: its headers are indexed, its data stays where it is.
//!
//! Understood: the old form (V7), ustar, GNU (long names, sparse, base-256 numbers) and pax (every standard
//! record, extended attributes as written by GNU tar, star and libarchive, ACLs with numeric ids, sparse maps
//! 0.0, 0.1 and 1.0, global records). Owners are taken by number; names of users and groups are not looked
//! up, because an image's users are not this machine's.
//!
//! As in unpacking: leading `/` and `./` are dropped, a later entry replaces an earlier one of its name, a
//! missing parent becomes a default directory, and symbolic links among the parents are followed inside the
//! image ([`place`]). Refused by name rather than guessed: `..`, a parent that is not a directory, a hard
//! link to nothing, unknown entry types, an archive that ends inside an entry, that holds nothing, or that
//! another one follows; and what is no archive of files at all ([`foreign`]). An archive that ends where its
//! end mark should be is taken, with a warning.
//!
//! Hazard: everything here is untrusted. Offsets are checked against the length of the archive before they
//! are kept or read, what is held in memory is bounded by bytes really present, and nothing recurses.

mod acl;
mod cursor;
mod encoding;
mod entries;
pub(super) mod foreign;
mod header;
mod members;
mod pax;
pub(super) mod place;
mod sparse;
mod whiteouts;

use super::builder::{Builder, Draft, DraftData, DraftKind};
use super::visible::Dir;
use crate::error::Error;
use crate::handle::SourceHandle;
use crate::time::Timestamp;
use crate::tree::{Meta, NodeId, Xattr};
use cursor::Cursor;
use entries::{Entries, Entry};
use foreign::DESCRIPTION_MAX;
use header::{BLOCK_LEN, Header};
use hectare_ext4::acl::Acl;
use hectare_units::{NO_OWNER, low16, u64_of};
pub(crate) use members::Members;
use pax::Pax;
use place::{Missing, Stop, Way};
use sparse::SparseMap;
use std::collections::HashMap;
use whiteouts::{Whiteouts, first_in};

/// The longest path that is taken: Linux's `PATH_MAX` without its final NUL.
const PATH_MAX: usize = 4095;
const ACL_ACCESS: &str = "system.posix_acl_access";
const ACL_DEFAULT: &str = "system.posix_acl_default";

/// Whether the first bytes of something long are an archive's.
pub(crate) fn begins_an_archive(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|block| Header::new(block).checksum_matches())
}

/// A cursor in the archive of a source; `None` for a directory.
fn cursor(source: &SourceHandle) -> Result<Option<Cursor>, Error> {
    let SourceHandle::Archive { file, range, .. } = source else { return Ok(None) };
    let shown = source.shown(&[]);
    let file = file.try_clone().map_err(|cause| Error::io(shown.clone(), "read", cause))?;
    Ok(Some(Cursor::new(file, range.clone(), shown)))
}

/// The first name in an archive, if it begins with one; `.` is passed over.
pub(crate) fn first_name(source: &SourceHandle) -> Option<Vec<u8>> {
    let mut entries = Entries::new(cursor(source).ok()??);
    let mut name = || clean(&entries.next().ok()??.name).ok();
    name().and_then(|first| if first.is_empty() { name() } else { Some(first) })
}

/// The regular files in an archive; none in a directory.
pub(crate) fn members(source: &SourceHandle) -> Result<Option<Members>, Error> {
    cursor(source)?.map(Members::list).transpose()
}

/// Adds everything in the archive of the current layer.
pub(crate) fn read(builder: &mut Builder<'_>) -> Result<(), Error> {
    let Some(mut cursor) = cursor(builder.source())? else { return Ok(()) };
    if cursor.is_empty() && builder.is_image_layer() {
        return Ok(());
    }
    let name = builder.shown(&[]).as_bytes().to_vec();
    let first = match cursor.require(cursor.start() + BLOCK_LEN, "") {
        Ok(()) => Some(cursor.header(cursor.start())?),
        Err(_) => None,
    };
    if first.as_ref().is_none_or(|header| !header.checksum_matches()) {
        let may_be = first.is_none_or(|header| header.is_end());
        foreign::refuse(&name, may_be, &cursor)?;
    }
    let entries = Entries::new(cursor);
    let mut reader = Reader { builder, entries, last_parent: None, left_out: HashMap::new() };
    reader.run()?;
    match reader.builder.is_image_layer() {
        true => Ok(()),
        false => reader.refuse_container_image(),
    }
}

struct Reader<'b, 'o> {
    builder: &'b mut Builder<'o>,
    entries: Entries,
    /// The directory that the last entry went into: the next one mostly goes there too.
    last_parent: Option<(Vec<u8>, Dir)>,
    /// What is left out, kept for hard links to it that are not.
    left_out: HashMap<Vec<u8>, NodeId>,
}

/// The kind of an entry, before its data has been read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    File,
    OldSparse,
    HardLink,
    Symlink,
    CharDevice,
    BlockDevice,
    Directory,
    /// A directory with a list of names as its data (GNU incremental archives).
    DumpDirectory,
    Fifo,
    /// The archive's label.
    Label,
}

/// The data of an entry.
struct Data {
    kind: Type,
    /// Where it starts in the archive.
    at: u64,
    /// The size of the file.
    size: u64,
    segments: Option<Vec<(u64, u64)>>,
}

impl Reader<'_, '_> {
    fn run(&mut self) -> Result<(), Error> {
        if self.builder.honours_whiteouts() && !self.builder.entries.is_empty() {
            self.hide()?;
        }
        while let Some(entry) = self.entries.next()? {
            Error::unless(&self.builder.options.cancel)?;
            self.entry(entry)?;
        }
        let may_be_empty = self.builder.options.allow_empty || self.builder.is_image_layer();
        if self.entries.count() == 0 && !may_be_empty {
            return Err(self.entries.fault("the archive holds nothing: if that is right, use --allow-empty"));
        }
        if !self.entries.has_end_mark() {
            let text = "the archive has no end mark; it ends between two entries, and what may have followed \
                        is lost";
            self.builder.warn(&[], text);
        }
        if self.entries.has_more() {
            let text = "bytes that are not zero follow the end mark of the archive, and were not read";
            self.builder.warn(&[], text);
        }
        Ok(())
    }

    /// Hides what the whiteouts of this layer name.
    fn hide(&mut self) -> Result<(), Error> {
        let mut whiteouts = Whiteouts::default();
        while let Some(mut entry) = self.entries.next()? {
            Error::unless(&self.builder.options.cancel)?;
            let kind = self.data(&mut entry)?.kind;
            // What is wrong with a path is reported when the entry is read again.
            let Ok(path) = clean(&entry.name) else { continue };
            match (first_in(&path), kind) {
                (_, Type::Label) | (Some((.., false)), _) => {}
                (Some((.., true)), _) => whiteouts.add(path),
                (None, Type::Directory | Type::DumpDirectory) => whiteouts.lies_on_the_way(path, None),
                (None, Type::Symlink) => whiteouts.lies_on_the_way(path, Some(entry.target)),
                (None, _) => {}
            }
        }
        whiteouts.apply(self.builder);
        self.entries.restart();
        Ok(())
    }

    /// Refuses a container image, which is not a tree of files.
    fn refuse_container_image(&mut self) -> Result<(), Error> {
        let read = |builder: &Builder<'_>, name: &[u8]| {
            let (at, size) = builder.own_file(builder.root(), name)?;
            Some((at, size.min(DESCRIPTION_MAX)))
        };
        let names: [&[u8]; 4] = [b"oci-layout", b"index.json", b"manifest.json", b"version"];
        let mut texts = HashMap::new();
        for name in names {
            if let Some((at, len)) = read(self.builder, name) {
                texts.insert(name, self.entries.cursor.bytes(at, len, "a file")?);
            }
        }
        match foreign::container_image(|name| texts.get(name).cloned()) {
            Some(kind) => Err(foreign::is_container_image(self.builder.shown(&[]), kind)),
            None => Ok(()),
        }
    }

    /// Where the data of an entry lies; the entry behind it is next.
    fn data(&mut self, entry: &mut Entry) -> Result<Data, Error> {
        let kind = self.entry_type(&entry.header, &entry.name)?;
        let stored = self.entries.stored(entry)?;
        let Entry { header_at, header, pax, .. } = entry;
        let cursor = &mut self.entries.cursor;
        let start = *header_at + BLOCK_LEN;
        let map = match kind {
            Type::OldSparse => Some(SparseMap::old(header, cursor, *header_at, start, stored)?),
            Type::File => SparseMap::of_pax(&mut pax.sparse, cursor, *header_at, start, stored)?,
            _ => None,
        };
        // The map of form 1.0 is part of the stored bytes, the extensions of the old form come before them.
        let (at, end) = match &map {
            Some(map) => (map.data, map.end),
            None => (start, start.saturating_add(stored)),
        };
        self.entries.skip_to(end)?;
        let (size, segments) = map.map_or((stored, None), |map| (map.size, map.segments));
        Ok(Data { kind, at, size, segments })
    }

    fn entry(&mut self, mut entry: Entry) -> Result<(), Error> {
        let Data { kind, at, size, segments } = self.data(&mut entry)?;
        if kind == Type::Label {
            return Ok(());
        }
        let Entry { header_at, header, pax, name, target } = entry;
        let fault = |reader: &Self, reason| reader.entries.cursor.fault(header_at, reason);
        let path = clean(&name).map_err(|reason| self.builder.refused(&name, reason))?;
        if kind == Type::HardLink {
            return self.hard_link(&path, &target);
        }
        let mut meta = meta(&header, &pax).map_err(|reason| fault(self, reason))?;
        if kind == Type::Symlink {
            meta.mode = 0o777; // as if it were unpacked, whatever the archive says
        }
        let xattrs = self.xattrs(&path, pax, kind, &mut meta.mode)?;
        let device = || header.device().map_err(|reason| fault(self, reason));
        let kind = match kind {
            Type::Directory | Type::DumpDirectory => DraftKind::Directory,
            Type::Symlink => DraftKind::Symlink(target),
            Type::CharDevice => device().map(|(major, minor)| DraftKind::CharDevice(major, minor))?,
            Type::BlockDevice => device().map(|(major, minor)| DraftKind::BlockDevice(major, minor))?,
            Type::Fifo => DraftKind::Fifo,
            Type::File | Type::OldSparse | Type::HardLink | Type::Label => {
                DraftKind::File { size, data: DraftData::Archive { at }, segments }
            }
        };
        self.add(&path, Draft { kind, meta, xattrs })
    }

    fn entry_type(&self, header: &Header, name: &[u8]) -> Result<Type, Error> {
        Ok(match header.type_flag() {
            0 | b'0' | b'7' if name.ends_with(b"/") => Type::Directory,
            0 | b'0' | b'7' => Type::File,
            b'1' => Type::HardLink,
            b'2' => Type::Symlink,
            b'3' => Type::CharDevice,
            b'4' => Type::BlockDevice,
            b'5' => Type::Directory,
            b'6' => Type::Fifo,
            b'D' => Type::DumpDirectory,
            b'S' => Type::OldSparse,
            b'V' => Type::Label,
            b'M' => {
                return Err(self.builder.refused(name, "it continues from another volume of the archive"));
            }
            flag => {
                let reason = format!("its entry type '{}' is not known", flag.escape_ascii());
                return Err(self.builder.refused(name, reason));
            }
        })
    }

    /// The attributes of an entry. Setting an access ACL sets the mode, and one that says no more is not stored: as
    /// if the entry were unpacked.
    fn xattrs(&self, path: &[u8], pax: Pax, kind: Type, mode: &mut u16) -> Result<Vec<Xattr>, Error> {
        let mut xattrs = pax.xattrs;
        for (name, text) in [(ACL_ACCESS, pax.acl_access), (ACL_DEFAULT, pax.acl_default)] {
            // If the attribute itself is there, too, it has numbers instead of names.
            let Some(text) = text.filter(|_| !xattrs.contains_key(name.as_bytes())) else { continue };
            let value = acl::from_text(&text).map_err(|reason| self.builder.refused(path, reason))?;
            if kind == Type::Symlink || value.is_empty() {
                continue;
            }
            xattrs.insert(name.as_bytes().into(), value.into());
        }
        // What is no ACL is refused when it is stored.
        let access =
            xattrs.get(ACL_ACCESS.as_bytes()).and_then(|value| Acl::from_xattr(value).ok().flatten());
        if let Some(access) = access.filter(|_| kind != Type::Symlink) {
            *mode = access.apply_to(*mode);
            if access.to_mode().is_some() {
                xattrs.remove(ACL_ACCESS.as_bytes());
            }
        }
        Ok(xattrs.into_iter().map(|(name, value)| Xattr { name, value }).collect())
    }

    /// Adds a node at a clean path.
    fn add(&mut self, path: &[u8], draft: Draft) -> Result<(), Error> {
        let is_directory = matches!(draft.kind, DraftKind::Directory);
        if path.is_empty() {
            if !is_directory {
                return Err(self.builder.refused(b"./", "the root of an archive must be a directory"));
            }
            return self.builder.describe_directory(NodeId::ROOT, draft);
        }
        if self.is_left_out(path, is_directory) {
            if !is_directory {
                match self.builder.add_node(path, draft) {
                    Ok(node) => drop(self.left_out.insert(path.to_vec(), node)),
                    Err(error @ Error::TooLarge { .. }) => return Err(error),
                    // What an inode can't hold is no fault of what is left out; a hard link to it finds nothing.
                    Err(_) => {}
                }
            }
            return Ok(());
        }
        let (parent, name) = split(path);
        let dir = self.make_parents(parent)?;
        if let Some(old) = self.builder.lookup(dir, name)
            && (self.builder.target(old).is_some() || (self.builder.is_directory(old) && !is_directory))
        {
            self.last_parent = None; // paths may lead elsewhere now
        }
        self.builder.put(dir, name, path, draft)?;
        Ok(())
    }

    fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<(), Error> {
        if path.is_empty() {
            return Ok(());
        }
        if self.is_left_out(path, false) {
            let node = clean(target).ok().and_then(|target| self.linked(&target));
            self.left_out.extend(node.map(|node| (path.to_vec(), node)));
            return Ok(());
        }
        let target_path = clean(target).map_err(|reason| self.builder.refused(path, reason))?;
        let node = self.linked(&target_path);
        let shown = || crate::error::ShownPath::new(target);
        let Some(node) = node else {
            let reason = format!("it is a hard link to {}, which does not come before it", shown());
            return Err(self.builder.refused(path, reason));
        };
        if self.builder.is_directory(node) {
            let reason = format!("it is a hard link to the directory {}", shown());
            return Err(self.builder.refused(path, reason));
        }
        let (parent, name) = split(path);
        let dir = self.make_parents(parent)?;
        self.last_parent = None; // the name may have been a directory
        self.builder.link(dir, name, path, node)
    }

    /// Whether an entry is none of the tree: a whiteout, which was applied before, what lies below one
    /// (bookkeeping of union file systems), or what is excluded.
    fn is_left_out(&mut self, path: &[u8], is_directory: bool) -> bool {
        (self.builder.honours_whiteouts() && first_in(path).is_some()) || self.is_excluded(path, is_directory)
    }

    /// Whether an entry is excluded, by its path or by the path that links resolve it to.
    fn is_excluded(&mut self, path: &[u8], is_directory: bool) -> bool {
        let excludes = &self.builder.options.excludes;
        if excludes.is_empty() || excludes.covers(path, is_directory) {
            return !excludes.is_empty();
        }
        let (parent, name) = split(path);
        let Ok((_, Some(real))) = Way::new(self.builder, Missing::Pass).go(parent) else { return false };
        excludes.covers(&[&real, name].join(&b'/'), is_directory)
    }

    /// What a hard link to the path is another name of; a symbolic link at its end is not followed.
    fn linked(&mut self, path: &[u8]) -> Option<NodeId> {
        let (parent, name) = split(path);
        let way = Way::new(self.builder, Missing::Stop).go(parent).ok();
        let Some((dir, real)) = way.and_then(|(dir, real)| Some((dir?, real))) else {
            return self.left_out.get(path).copied();
        };
        if name.is_empty() {
            return Some(dir.node);
        }
        let Some(node) = self.builder.lookup(dir, name) else { return self.left_out.get(path).copied() };
        let names: Vec<&[u8]> = names(real.as_deref().unwrap_or(parent)).chain([name]).collect();
        self.builder.keep_path(node, &names.join(&b'/'));
        Some(node)
    }

    /// The directory at `path`, created with default metadata where there is none.
    fn make_parents(&mut self, path: &[u8]) -> Result<Dir, Error> {
        if let Some((known, dir)) = &self.last_parent
            && known == path
        {
            return Ok(*dir);
        }
        let reason = match Way::new(self.builder, Missing::Make).go(path) {
            Ok((Some(dir), _)) => {
                self.last_parent = Some((path.to_vec(), dir));
                return Ok(dir);
            }
            Err(Stop::Refused(error)) => return Err(error),
            Err(Stop::Circle) => "symbolic links lead in a circle there",
            Ok((None, _)) | Err(Stop::NoWay) => "it is not a directory",
        };
        Err(self.builder.refused(path, format!("entries lie below it, but {reason}")))
    }
}

fn meta(header: &Header, pax: &Pax) -> Result<Meta, &'static str> {
    let mtime = match pax.mtime {
        Some(time) => time,
        None => Timestamp::at(header.mtime()?),
    };
    let (uid, gid) = (pax.uid.map_or_else(|| header.uid(), Ok)?, pax.gid.map_or_else(|| header.gid(), Ok)?);
    if [uid, gid].contains(&NO_OWNER) {
        return Err("its owner or group is 4294967295, which Linux takes for none");
    }
    Ok(Meta {
        mode: low16(header.mode()? & 0o7777),
        uid,
        gid,
        atime: pax.atime.or(header.gnu_atime()).unwrap_or(mtime),
        mtime,
        ctime: pax.ctime.or(header.gnu_ctime()).unwrap_or(mtime),
        crtime: pax.crtime,
    })
}

/// A path without `/` at its ends, empty names and `.`; refuses `..`, NUL, and what is too long.
fn clean(path: &[u8]) -> Result<Vec<u8>, &'static str> {
    if path.len() > PATH_MAX {
        return Err("a path of more than 4095 bytes");
    }
    let mut clean = Vec::with_capacity(path.len());
    for name in names(path).filter(|name| *name != b".") {
        if name == b".." {
            return Err("a path with .. in it is not taken from an archive");
        }
        if name.contains(&0) {
            return Err("a path with a NUL byte");
        }
        if !clean.is_empty() {
            clean.push(b'/');
        }
        clean.extend_from_slice(name);
    }
    Ok(clean)
}

fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}

/// A clean path as its parent and its last name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// A length in memory as an offset.
fn offset(len: usize) -> u64 {
    u64_of(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned() {
        assert_eq!(clean(b"/./a//b/./c/"), Ok(b"a/b/c".to_vec()));
        assert_eq!(clean(b"./"), Ok(Vec::new()));
        assert_eq!(clean(b"a/...b"), Ok(b"a/...b".to_vec()));
        assert!(clean(b"a/../b").is_err());
        assert!(clean(b"a\0b").is_err());
    }
}
