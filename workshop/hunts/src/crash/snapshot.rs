//! Reads the state of a volume after a crash.

use super::expect::ThreadFiles;
use super::tree::{Entry, EntryKind, digest};
use hectare_engine::{Kind, Metadata, Volume};
use hectare_units::{InodeNr, index_of, u64_of};
use std::collections::{BTreeMap, HashMap};

/// No workload makes larger files.
const SIZE_MAX: u64 = 2 << 20;

/// Reads everything below a directory of the root, including that.
pub(super) fn look(volume: &Volume, top: &str) -> Result<ThreadFiles, String> {
    let mut looker = Looker { volume, inodes: HashMap::new(), found: ThreadFiles::default() };
    let nr = volume.resolve(top, false).map_err(|error| format!("{top}: {error}"))?;
    let mut directories = looker.enter(top.to_owned(), nr)?.into_iter().collect::<Vec<_>>();
    while let Some((path, nr)) = directories.pop() {
        for entry in volume.list(nr).map_err(|error| format!("{path}: {error}"))? {
            let name = String::from_utf8_lossy(&entry.name);
            directories.extend(looker.enter(format!("{path}/{name}"), entry.inode)?);
        }
    }
    Ok(looker.found)
}

/// The content of a file.
pub(super) fn content(volume: &Volume, nr: InodeNr) -> Result<Vec<u8>, String> {
    let file = volume.open_inode(nr).map_err(|error| error.to_string())?;
    let size = file.metadata().map_err(|error| error.to_string())?.size;
    if size > SIZE_MAX {
        return Err(format!("it has {size} bytes, which nobody gave it"));
    }
    let mut content = vec![0; index_of(size)];
    let mut done = 0;
    while done < content.len() {
        match file.read_at(u64_of(done), &mut content[done..]).map_err(|error| error.to_string())? {
            0 => return Err(format!("it ends at byte {done} of {size}")),
            n => done += n,
        }
    }
    Ok(content)
}

struct Looker<'a> {
    volume: &'a Volume,
    inodes: HashMap<u32, InodeNr>,
    found: ThreadFiles,
}

impl Looker<'_> {
    /// Notes the file at a path; returns it if it is a directory.
    fn enter(&mut self, path: String, nr: InodeNr) -> Result<Option<(String, InodeNr)>, String> {
        let at = |error: String| format!("{path}: {error}");
        let metadata = self.volume.stat(nr).map_err(|error| at(error.to_string()))?;
        let id = metadata.uid;
        if *self.inodes.entry(id).or_insert(nr) != nr {
            return Err(at(format!("two inodes are file {id}")));
        }
        let kind = self.kind(&metadata).map_err(at)?;
        if kind == EntryKind::File && !self.found.contents.contains_key(&id) {
            self.found.contents.insert(id, content(self.volume, nr).map_err(at)?);
        }
        let is_dir = kind == EntryKind::Directory;
        let attributes = self.attributes(nr).map_err(at)?;
        let entry = Entry { path: path.clone(), id, kind, links: metadata.links, attributes };
        self.found.entries.push(entry);
        Ok(is_dir.then_some((path, nr)))
    }

    fn kind(&self, metadata: &Metadata) -> Result<EntryKind, String> {
        match metadata.kind {
            Kind::File => Ok(EntryKind::File),
            Kind::Directory => Ok(EntryKind::Directory),
            Kind::Symlink => {
                let target = self.volume.read_link_at(metadata.inode).map_err(|error| error.to_string())?;
                Ok(EntryKind::Symlink(String::from_utf8_lossy(&target).into_owned()))
            }
            other => Err(format!("it is a {other:?}, which nobody made")),
        }
    }

    fn attributes(&self, nr: InodeNr) -> Result<BTreeMap<String, u64>, String> {
        let names = self.volume.list_xattrs(nr).map_err(|error| error.to_string())?;
        let value = |name: Vec<u8>| {
            let value = self.volume.get_xattr(nr, &name).map_err(|error| error.to_string())?;
            Ok((String::from_utf8_lossy(&name).into_owned(), digest(&value)))
        };
        names.into_iter().map(value).collect()
    }
}
