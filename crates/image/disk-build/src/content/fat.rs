//! A FAT volume with files, laid out and then written, each byte once.
//!
//! Files and directories lie one behind the other without gaps, in the order of the tree. What FAT can't have
//! is refused by name: links, devices, names that differ in case only, characters. Owners, modes and
//! attributes are left out; times are in UTC, in steps of two seconds, from 1980 to 2107.
//!
//! Facts: Microsoft's "FAT: General Overview of On-Disk Format" 1.03.

mod geometry;
mod names;
mod time;

use super::tree;
use crate::environment::Environment;
use crate::identity::Slot;
use crate::spec::Fat;
use geometry::{Geometry, Wanted, clusters_for, entries_len};
use hectare_device::Device;
use hectare_mkfs::FormatOptions;
use hectare_populate::{Kind, NodeId, Opener, Progress, Timestamp, Tree, reproducible};
use hectare_units::{Bytes, index_of, low16, low32, u64_of};
use names::{Name, short_names};
use std::collections::HashMap;

/// The most bytes of a file.
const FILE_MAX: u64 = u32::MAX as u64;
/// The most entries of a directory.
const ENTRIES_MAX: usize = 1 << 16;
/// Bytes copied at a time.
const BUFFER: usize = 1 << 20;
/// What sizes are a multiple of.
const STEP: u64 = 4096;
/// The end of a chain.
const END: u32 = 0x0fff_ffff;
/// The first cluster of data, which a growing root directory has.
const FIRST: u32 = 2;
const DIRECTORY: u8 = 0x10;
const ARCHIVE: u8 = 0x20;
const LABEL: u8 = 0x08;

/// The files of a FAT volume, and its format.
pub(crate) struct FatContent {
    tree: Tree,
    /// The names of each directory, in the order of its children.
    names: HashMap<NodeId, Vec<Name>>,
    label: Option<[u8; 11]>,
    id: u32,
    wanted: Wanted,
    epoch: Option<i64>,
}

impl FatContent {
    pub(super) fn new(
        fat: &Fat,
        env: &Environment<'_>,
        (volume, slot): (Option<[u8; 16]>, &Slot),
        sector: u32,
    ) -> Result<Self, String> {
        let tree = tree::read(&fat.files, env, &FormatOptions::default(), false)?;
        let names = all_names(&tree)?;
        let label = fat.label.map(|label| label.to_vec()).unwrap_or_default();
        let format = FormatOptions { label, uuid: None, ..FormatOptions::default() };
        let derived = reproducible(&format, env.epoch.unwrap_or(0), &tree).uuid;
        let derived = volume.or(derived.map(|uuid| slot.volume(uuid))).unwrap_or_default();
        let id = fat.id.unwrap_or_else(|| u32::from_be_bytes(std::array::from_fn(|at| derived[at])));
        let cluster = fat.cluster.map(|cluster| u64::from(cluster.max(sector)));
        let mut made = Self {
            wanted: Wanted { sector: sector.into(), bits: fat.bits, cluster, root_entries: 0 },
            tree,
            names,
            label: fat.label,
            id,
            epoch: env.epoch,
        };
        made.wanted.root_entries = u64_of(made.entries(NodeId::ROOT));
        Ok(made)
    }

    /// Entries of a directory: its own two or the label, and those of its names.
    fn entries(&self, id: NodeId) -> usize {
        let own = if id == NodeId::ROOT { usize::from(self.label.is_some()) } else { 2 };
        own + self.names.get(&id).into_iter().flatten().map(Name::entries).sum::<usize>()
    }

    /// Bytes of the smallest volume that holds the files.
    pub(super) fn least(&self) -> Result<u64, String> {
        let mut size = (self.tree.totals().data.get() + (64 << 10)).next_multiple_of(STEP);
        // Sizes that can't be divided lie at borders; past them it is arithmetic.
        loop {
            match Geometry::new(size, &self.wanted) {
                Ok(geometry) => match self.clusters(&geometry).saturating_sub(geometry.clusters) {
                    0 => return Ok(size),
                    lacking => size += (lacking * geometry.cluster()).next_multiple_of(STEP),
                },
                Err(reason) if size > 1 << 42 => return Err(reason),
                Err(_) => size += (size / 4096).max(STEP).next_multiple_of(STEP),
            }
        }
    }

    /// Clusters that files and directories take.
    fn clusters(&self, geometry: &Geometry) -> u64 {
        let cluster = geometry.cluster();
        self.directories()
            .map(|id| {
                let files = self.tree.children(id).map(|(_, child)| match self.tree.kind(child) {
                    Kind::File { size } => clusters_for(size.get(), cluster),
                    _ => 0,
                });
                self.directory_clusters(id, geometry) + files.sum::<u64>()
            })
            .sum()
    }

    fn directory_clusters(&self, id: NodeId, geometry: &Geometry) -> u64 {
        match (id, geometry.bits) {
            (NodeId::ROOT, 12 | 16) => 0,
            _ => clusters_for(entries_len(self.entries(id)), geometry.cluster()).max(1),
        }
    }

    fn directories(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.tree.ids().filter(|id| matches!(self.tree.kind(*id), Kind::Directory))
    }

    /// Refuses a size that is too small, or can't be divided.
    pub(super) fn check(&self, len: u64) -> Result<(), String> {
        self.geometry(len).map(drop)
    }

    /// The division of a volume of that size, if it holds the files.
    fn geometry(&self, size: u64) -> Result<Geometry, String> {
        let geometry = Geometry::new(size, &self.wanted)?;
        match self.clusters(&geometry).saturating_sub(geometry.clusters) {
            0 => Ok(geometry),
            lacking => {
                let more = lacking * geometry.cluster();
                Err(format!("size: {size} bytes are {more} too few for the files"))
            }
        }
    }

    /// Writes the volume over all of a device that is zeros; returns what stands for it.
    pub(super) fn write(&self, device: &dyn Device, progress: &dyn Progress) -> Result<Vec<u8>, String> {
        let size = device.len().get();
        let geometry = self.geometry(size)?;
        let writer = Writer { content: self, geometry, device, progress };
        let places = writer.places();
        writer.files(&places).and_then(|()| writer.tables(&places)).and_then(|()| writer.boot(&places))?;
        Ok([self.id.to_be_bytes().as_slice(), &size.to_le_bytes()].concat())
    }
}

/// The names of all directories.
fn all_names(tree: &Tree) -> Result<HashMap<NodeId, Vec<Name>>, String> {
    let mut all = HashMap::new();
    for id in tree.ids().filter(|id| matches!(tree.kind(*id), Kind::Directory)) {
        let names: Vec<&[u8]> = tree.children(id).map(|(name, _)| name).collect();
        let shown = |name: &[u8]| {
            let path = [tree.path(id).as_slice(), name].join(&b'/');
            format!("{:?}", String::from_utf8_lossy(&path).trim_start_matches('/'))
        };
        for (name, child) in tree.children(id) {
            let wrong = |what: &str| Err(format!("{}: {what}", shown(name)));
            match tree.kind(child) {
                Kind::Directory => {}
                Kind::File { size } if size.get() <= FILE_MAX => {}
                Kind::File { .. } => return wrong("a file in FAT has less than 4 GiB"),
                Kind::Symlink { .. } => {
                    return wrong("FAT has no symbolic links; exclude it or add the file");
                }
                _ => return wrong("FAT has no devices, pipes and sockets; exclude it"),
            }
        }
        let made = short_names(&names).map_err(|(at, reason)| format!("{}: {reason}", shown(names[at])))?;
        if made.iter().map(Name::entries).sum::<usize>() + 2 > ENTRIES_MAX {
            return Err(format!("{}: the directory has too many names for FAT", shown(b"")));
        }
        all.insert(id, made);
    }
    Ok(all)
}

/// Where everything lies: first cluster and number of clusters.
struct Places {
    directories: HashMap<NodeId, (u32, u32)>,
    /// Of each name of a directory that is a file, by the place of the name.
    files: HashMap<(NodeId, usize), u32>,
    /// The number of clusters of each chain, in their order on disk.
    chains: Vec<u32>,
    next: u32,
}

struct Writer<'a> {
    content: &'a FatContent,
    geometry: Geometry,
    device: &'a dyn Device,
    progress: &'a dyn Progress,
}

impl Writer<'_> {
    fn places(&self) -> Places {
        let (content, geometry) = (self.content, &self.geometry);
        let mut places =
            Places { directories: HashMap::new(), files: HashMap::new(), chains: Vec::new(), next: FIRST };
        let mut take = |count: u64| {
            // Bounded by the number of clusters, which was compared before.
            let (start, count) = (places.next, low32(count));
            if count > 0 {
                places.chains.push(count);
                places.next += count;
            }
            (if count > 0 { start } else { 0 }, count)
        };
        for id in content.directories() {
            places.directories.insert(id, take(content.directory_clusters(id, geometry)));
            for (at, (_, child)) in content.tree.children(id).enumerate() {
                if let Kind::File { size } = content.tree.kind(child) {
                    places.files.insert((id, at), take(clusters_for(size.get(), geometry.cluster())).0);
                }
            }
        }
        places
    }

    fn put(&self, at: u64, bytes: &[u8]) -> Result<(), String> {
        self.device.write_at(Bytes::new(at), bytes).map_err(|error| error.to_string())
    }

    /// Writes files and directories.
    fn files(&self, places: &Places) -> Result<(), String> {
        let mut opener = self.content.tree.opener();
        let mut buffer = vec![0; BUFFER];
        for id in self.content.directories() {
            let tree = &self.content.tree;
            for (at, (_, child)) in tree.children(id).enumerate() {
                match places.files.get(&(id, at)) {
                    Some(start) if *start > 0 => self.file(&mut opener, child, *start, &mut buffer)?,
                    _ => {}
                }
            }
            let start = places.directories.get(&id).map_or(0, |place| place.0);
            let at = if start == 0 { self.geometry.root() } else { self.geometry.cluster_at(start) };
            self.put(at, &self.directory(id, places))?;
        }
        Ok(())
    }

    /// Copies a file; its holes are zeros of the device.
    fn file(&self, opener: &mut Opener<'_>, id: NodeId, start: u32, buffer: &mut [u8]) -> Result<(), String> {
        let failed = |error: hectare_populate::Error| error.to_string();
        let content = opener.open(id).map_err(failed)?;
        for segment in self.content.tree.segments(id) {
            let mut done = Bytes::ZERO;
            while done < segment.len {
                let len = (segment.len - done).min(Bytes::of(buffer.len()));
                let piece = &mut buffer[..index_of(len.get())];
                content.read_exact_at(piece, segment.source + done).map_err(failed)?;
                self.put(self.geometry.cluster_at(start) + (segment.at + done).get(), piece)?;
                self.progress.advance(len);
                done += len;
            }
        }
        content.verify().map_err(failed)
    }

    /// The bytes of a directory.
    fn directory(&self, id: NodeId, places: &Places) -> Vec<u8> {
        let tree = &self.content.tree;
        let place = |id: NodeId| places.directories.get(&id).map_or(0, |place| place.0);
        let mut bytes = Vec::new();
        let own = self.time(tree.meta(id).mtime);
        if id == NodeId::ROOT {
            if let Some(label) = &self.content.label {
                bytes.extend(entry(label, LABEL, own, 0, 0));
            }
        } else {
            let parent = tree.parent(id);
            // A root directory is always named by 0.
            let above = if parent == NodeId::ROOT { 0 } else { place(parent) };
            bytes.extend(entry(b".          ", DIRECTORY, own, place(id), 0));
            bytes.extend(entry(b"..         ", DIRECTORY, own, above, 0));
        }
        let names = self.content.names.get(&id).into_iter().flatten();
        for ((at, (_, child)), name) in tree.children(id).enumerate().zip(names) {
            name.long_entries().iter().for_each(|entry| bytes.extend(entry));
            let time = self.time(tree.meta(child).mtime);
            bytes.extend(match tree.kind(child) {
                Kind::File { size } => {
                    let start = places.files.get(&(id, at)).copied().unwrap_or(0);
                    entry(&name.short, ARCHIVE, time, start, low32(size.get()))
                }
                _ => entry(&name.short, DIRECTORY, time, place(child), 0),
            });
        }
        bytes
    }

    fn time(&self, time: Timestamp) -> time::Time {
        match self.content.epoch {
            Some(epoch) if time.seconds >= epoch => time::encode(epoch, 0),
            _ => time::encode(time.seconds, time.nanoseconds),
        }
    }

    /// Writes both tables, as far as they are not zero.
    fn tables(&self, places: &Places) -> Result<(), String> {
        let mut entries = vec![0x0fff_fff8, END];
        for chain in &places.chains {
            let first = low32(u64_of(entries.len()));
            entries.extend(first + 1..first + chain);
            entries.push(END);
        }
        let bytes = self.geometry.pack(&entries);
        self.geometry.tables().try_for_each(|at| self.put(at, &bytes))
    }

    /// Writes the first sector, last of all, and what belongs to it.
    fn boot(&self, places: &Places) -> Result<(), String> {
        let (geometry, content) = (&self.geometry, self.content);
        let is_wide = geometry.bits == 32;
        let small = |n: u64| u16::try_from(n).unwrap_or(0).to_le_bytes();
        let mut bytes = vec![0; 512];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, if is_wide { &[0xeb, 0x58, 0x90] } else { &[0xeb, 0x3c, 0x90] });
        put(3, b"HECTARE ");
        put(11, &small(geometry.sector));
        put(13, &[u8::try_from(geometry.per_cluster).unwrap_or(0)]);
        put(14, &small(geometry.reserved));
        put(16, &[2]);
        put(17, &small(geometry.root_entries));
        let all = low32(geometry.sectors);
        let is_short = !is_wide && geometry.sectors < 1 << 16;
        put(19, &small(if is_short { geometry.sectors } else { 0 }));
        put(21, &[0xf8]); // a fixed disk
        put(24, &low16(63).to_le_bytes()); // sectors of a track and heads, for programs that still ask
        put(26, &low16(255).to_le_bytes());
        put(32, &(if is_short { 0 } else { all }).to_le_bytes());
        let more = if is_wide { 64 } else { 36 };
        if is_wide {
            put(36, &low32(geometry.table).to_le_bytes());
            put(44, &FIRST.to_le_bytes()); // the root directory
            put(48, &small(1)); // the sector with counts
            put(50, &small(6)); // copies of both
        } else {
            put(22, &small(geometry.table));
        }
        put(more, &[0x80, 0, 0x29]);
        put(more + 3, &content.id.to_le_bytes());
        put(more + 7, &content.label.unwrap_or(*b"NO NAME    "));
        put(more + 18, format!("FAT{:<5}", geometry.bits).as_bytes());
        put(510, &[0x55, 0xaa]);
        if is_wide {
            let used = u64::from(places.next - FIRST);
            let mut counts = vec![0; 512];
            counts[..4].copy_from_slice(b"RRaA");
            counts[484..488].copy_from_slice(b"rrAa");
            counts[488..492].copy_from_slice(&low32(geometry.clusters - used).to_le_bytes());
            let last = places.next.max(FIRST + 1) - 1;
            counts[492..496].copy_from_slice(&last.to_le_bytes());
            counts[510..].copy_from_slice(&[0x55, 0xaa]);
            self.put(geometry.sector, &counts)?;
            self.put(7 * geometry.sector, &counts)?;
            self.put(6 * geometry.sector, &bytes)?;
        }
        self.put(0, &bytes)
    }
}

/// A directory's entry.
fn entry(name: &[u8; 11], attributes: u8, time: time::Time, start: u32, size: u32) -> [u8; 32] {
    let mut entry = [0; 32];
    entry[..11].copy_from_slice(name);
    entry[11] = attributes;
    let [low, lower, high, higher] = start.to_le_bytes();
    if attributes != LABEL {
        entry[13] = time.hundredths;
        entry[14..16].copy_from_slice(&time.of_day.to_le_bytes());
        entry[16..18].copy_from_slice(&time.date.to_le_bytes());
        entry[18..20].copy_from_slice(&time.date.to_le_bytes());
        entry[20..22].copy_from_slice(&[high, higher]);
        entry[26..28].copy_from_slice(&[low, lower]);
    }
    entry[22..24].copy_from_slice(&time.of_day.to_le_bytes());
    entry[24..26].copy_from_slice(&time.date.to_le_bytes());
    entry[28..].copy_from_slice(&size.to_le_bytes());
    entry
}
