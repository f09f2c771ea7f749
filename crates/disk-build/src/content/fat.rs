//! A FAT volume with files.
//!
//! The crate `fatfs` formats and fills it. What FAT can't have is refused by name: links, devices, names that
//! differ in case only, characters. Owners, modes and attributes are left out; times are in UTC, in steps of two
//! seconds, from 1980 to 2107.
//!
//! Hazard: `fatfs` opens a file where one is to be created and its name is taken, also if only by a short name that
//! was made for another; so every name is looked up first.

use super::tree;
use crate::cursor::Cursor;
use crate::plan::Environment;
use crate::spec::Fat;
use fatfs::{Date, DateTime, Dir, FatType, FileSystem, FormatVolumeOptions, FsOptions, Time, TimeProvider};
use hectare_device::{Device, SparseDevice};
use hectare_mkfs::FormatOptions;
use hectare_populate::{Kind, NodeId, Progress, Tree, reproducible};
use hectare_units::{Bytes, index_of, low32, u64_of};
use std::cell::Cell;
use std::collections::HashMap;
use std::io::Write;
use uuid::Uuid;

/// Bytes of a directory's entry, and characters of a long name that one holds.
const ENTRY: u64 = 32;
const NAME_PART: usize = 13;
/// Entries of a root directory that does not grow, at least.
const ROOT_ENTRIES: u64 = 512;
/// The most bytes of a file.
const FILE_MAX: u64 = u32::MAX as u64;
/// Bytes copied at a time.
const BUFFER: usize = 1 << 20;
/// The smallest volume that is tried, per byte of a sector.
const LEAST: u64 = 128;
/// Clusters from which on a volume has entries of 16 and of 32 bits.
const FAT16_FROM: u64 = 4085;
const FAT32_FROM: u64 = 65525;

thread_local! {
    /// What `fatfs` takes for the present.
    static NOW: Cell<(i64, u32)> = const { Cell::new((0, 0)) };
}

#[derive(Debug)]
struct Clock;

static CLOCK: Clock = Clock;

impl TimeProvider for Clock {
    fn get_current_date(&self) -> Date {
        date_time(NOW.get()).date
    }

    fn get_current_date_time(&self) -> DateTime {
        date_time(NOW.get())
    }
}

/// A time as FAT has it: years 1980 to 2107.
fn date_time((seconds, nanoseconds): (i64, u32)) -> DateTime {
    const FIRST: i64 = 315_532_800;
    const LAST: i64 = 4_354_819_198;
    let millis = if (FIRST..LAST).contains(&seconds) { nanoseconds / 1_000_000 } else { 0 };
    let seconds = seconds.clamp(FIRST, LAST);
    let (days, of_day) = (seconds.div_euclid(86400), seconds.rem_euclid(86400));
    // Days since 1970 to a date, by eras of 400 years that begin in March.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let small = |n: i64| u16::try_from(n).unwrap_or_default();
    DateTime {
        date: Date { year: small(year), month: small(month), day: small(day) },
        time: Time {
            hour: small(of_day / 3600),
            min: small(of_day / 60 % 60),
            sec: small(of_day % 60),
            millis: u16::try_from(millis).unwrap_or_default(),
        },
    }
}

/// The files of a FAT volume, and its format.
pub(crate) struct FatContent {
    tree: Tree,
    label: Option<[u8; 11]>,
    id: u32,
    bits: Option<u8>,
    cluster: Option<u32>,
    sector: u32,
    epoch: Option<i64>,
}

impl FatContent {
    pub(super) fn new(
        fat: &Fat,
        env: &Environment<'_>,
        volume: Option<Uuid>,
        sector: u32,
    ) -> Result<Self, String> {
        let tree = tree::read(&fat.files, env, false)?;
        check(&tree)?;
        // Without SOURCE_DATE_EPOCH, too, the same tree has the same number: nothing else depends on the time.
        let label = fat.label.map(|label| label.to_vec()).unwrap_or_default();
        let format = FormatOptions { label, uuid: None, ..FormatOptions::default() };
        let derived = reproducible(&format, env.epoch.unwrap_or(0), &tree).uuid;
        let derived = volume.map(Uuid::into_bytes).or(derived).unwrap_or_default();
        let id = fat.id.unwrap_or_else(|| u32::from_be_bytes(std::array::from_fn(|at| derived[at])));
        let cluster = fat.cluster.map(|cluster| cluster.max(sector));
        Ok(Self { tree, label: fat.label, id, bits: fat.bits, cluster, sector, epoch: env.epoch })
    }

    /// Bytes of the smallest volume that holds the files.
    pub(super) fn least(&self) -> Result<u64, String> {
        let step = u64::from(self.sector.max(4096));
        let data: u64 = self.tree.totals().data.get();
        let mut size = (data + u64::from(self.sector) * LEAST).next_multiple_of(step);
        if self.bits == Some(32) {
            size = size.max((FAT32_FROM + 128) * u64::from(self.cluster.unwrap_or(self.sector)));
        } else if self.bits == Some(16) {
            size = size.max((FAT16_FROM + 64) * u64::from(self.cluster.unwrap_or(self.sector)));
        }
        let mut reason = String::new();
        // Each attempt asks for what the one before lacked, so there are few.
        for _ in 0..4096 {
            match self.lacking(size) {
                Ok(0) => return Ok(size),
                Ok(lacking) => size = size.saturating_add(lacking).next_multiple_of(step),
                Err(why) => {
                    size = size.saturating_add(step.max(size / 64)).next_multiple_of(step);
                    reason = why;
                }
            }
        }
        Err(reason)
    }

    /// How many bytes a volume of that size lacks for the files.
    fn lacking(&self, size: u64) -> Result<u64, String> {
        let device = SparseDevice::new(Bytes::new(size));
        self.format(&device)?;
        let volume = open(&device)?;
        let stats = volume.stats().map_err(|error| error.to_string())?;
        let cluster = u64::from(stats.cluster_size());
        let needed = self.clusters(cluster, volume.fat_type() == FatType::Fat32);
        Ok(needed.saturating_sub(stats.free_clusters().into()).saturating_mul(cluster))
    }

    /// Clusters that the files and directories take.
    fn clusters(&self, cluster: u64, root_grows: bool) -> u64 {
        let of = |id| match self.tree.kind(id) {
            Kind::File { size } => size.get().div_ceil(cluster),
            // The first cluster of a root directory that grows is there already.
            Kind::Directory if id == NodeId::ROOT && root_grows => {
                (self.entries(id) * ENTRY).div_ceil(cluster).saturating_sub(1)
            }
            Kind::Directory if id == NodeId::ROOT => 0,
            Kind::Directory => (self.entries(id) * ENTRY).div_ceil(cluster),
            _ => 0,
        };
        self.names().map(of).sum()
    }

    /// Nodes, once for each name: FAT has no hard links.
    fn names(&self) -> impl Iterator<Item = NodeId> + '_ {
        let children = self.tree.ids().flat_map(|id| self.tree.children(id).map(|(_, child)| child));
        std::iter::once(NodeId::ROOT).chain(children)
    }

    /// The most entries that a directory needs.
    fn entries(&self, id: NodeId) -> u64 {
        let long = |name: &[u8]| String::from_utf8_lossy(name).encode_utf16().count().div_ceil(NAME_PART);
        let names = self.tree.children(id).map(|(name, _)| 1 + u64_of(long(name)));
        // Its own two, or the label, and the end.
        3 + names.sum::<u64>()
    }

    /// Makes the volume empty.
    fn format(&self, device: &dyn Device) -> Result<(), String> {
        let (size, sector) = (device.len().get(), u64::from(self.sector));
        if size < sector * LEAST {
            return Err(format!("size: a FAT volume needs {} bytes at least", sector * LEAST));
        }
        if size / sector > u64::from(u32::MAX) {
            return Err(format!("size: {size} bytes are more than a FAT volume can have"));
        }
        let root = self.entries(NodeId::ROOT).max(ROOT_ENTRIES).next_multiple_of(sector / ENTRY);
        let root = u16::try_from(root).map_err(|_| "the root directory has too many names for FAT".to_owned())?;
        let mut options = FormatVolumeOptions::new()
            .bytes_per_sector(u16::try_from(self.sector).unwrap_or(512))
            .total_sectors(low32(size / sector))
            .max_root_dir_entries(root)
            .drive_num(0x80)
            .volume_id(self.id);
        if let Some(cluster) = self.cluster_for(size) {
            options = options.bytes_per_cluster(cluster);
        }
        if let Some(label) = self.label {
            options = options.volume_label(label);
        }
        fatfs::format_volume(Cursor::new(device), options).map_err(|error| format!("size: {error}"))?;
        let made = match open(device)?.fat_type() {
            FatType::Fat12 => 12,
            FatType::Fat16 => 16,
            FatType::Fat32 => 32,
        };
        match self.bits {
            Some(bits) if bits != made => {
                Err(format!("fat: {size} bytes become FAT{made}, not FAT{bits}; give another size or cluster-size"))
            }
            _ => Ok(()),
        }
    }

    /// The cluster that makes a volume of this size one of the type that is asked for.
    fn cluster_for(&self, size: u64) -> Option<u32> {
        if self.cluster.is_some() {
            return self.cluster;
        }
        let least_clusters = match self.bits? {
            32 => FAT32_FROM + 32,
            16 => FAT16_FROM + 16,
            _ => 1,
        };
        let sizes = (0..=6).map(|shift| 512_u64 << shift).filter(|cluster| *cluster >= u64::from(self.sector));
        let fits = |cluster: &u64| {
            let clusters = size / cluster;
            let most = match self.bits {
                Some(12) => FAT16_FROM,
                Some(16) => FAT32_FROM,
                _ => 1 << 28,
            };
            (least_clusters..most).contains(&clusters)
        };
        sizes.filter(fits).min().and_then(|cluster| u32::try_from(cluster).ok())
    }

    /// Writes the volume over all of a device that is zeros; returns what stands for it.
    pub(super) fn write(&self, device: &dyn Device, progress: &dyn Progress) -> Result<Vec<u8>, String> {
        let lacking = self.lacking(device.len().get())?;
        if lacking > 0 {
            let size = device.len();
            return Err(format!("size: {size} bytes are about {lacking} too few for the files"));
        }
        self.format(device)?;
        let volume = open(device)?;
        let mut buffer = vec![0; BUFFER];
        self.directory(&volume.root_dir(), NodeId::ROOT, &mut buffer, progress)?;
        volume.unmount().map_err(|error| error.to_string())?;
        Ok([self.id.to_be_bytes().as_slice(), &device.len().get().to_le_bytes()].concat())
    }

    fn directory(
        &self,
        dir: &Dir<'_, Cursor<'_>>,
        id: NodeId,
        buffer: &mut [u8],
        progress: &dyn Progress,
    ) -> Result<(), String> {
        let mut opener = self.tree.opener();
        for (name, child) in self.tree.children(id) {
            let path = || shown(&self.tree, id, name);
            let text = std::str::from_utf8(name).map_err(|_| format!("{}: the name is no UTF-8", path()))?;
            let failed = |error: std::io::Error| format!("{}: {}", path(), crate::error::io_reason(&error));
            if dir.open_file(text).is_ok() || dir.open_dir(text).is_ok() {
                return Err(format!("{}: FAT made another file a short name like that; rename one", path()));
            }
            let time = self.tree.meta(child).mtime;
            NOW.set((time.seconds.min(self.epoch.unwrap_or(i64::MAX)), time.nanoseconds));
            if let Kind::File { size } = self.tree.kind(child) {
                let mut file = dir.create_file(text).map_err(failed)?;
                let content = opener.open(child).map_err(|error| error.to_string())?;
                let mut at = Bytes::ZERO;
                for segment in self.tree.segments(child) {
                    zeros(&mut file, (segment.at - at).get(), buffer).map_err(failed)?;
                    let mut done = Bytes::ZERO;
                    while done < segment.len {
                        let len = (segment.len - done).min(Bytes::of(buffer.len()));
                        let piece = &mut buffer[..index_of(len.get())];
                        content.read_exact_at(piece, segment.source + done).map_err(|error| error.to_string())?;
                        file.write_all(piece).map_err(failed)?;
                        progress.advance(len);
                        done += len;
                    }
                    at = segment.at + segment.len;
                }
                zeros(&mut file, (size - at).get(), buffer).map_err(failed)?;
                file.flush().map_err(failed)?;
                content.verify().map_err(|error| error.to_string())?;
            } else {
                let made = dir.create_dir(text).map_err(failed)?;
                self.directory(&made, child, buffer, progress)?;
            }
        }
        Ok(())
    }
}

fn zeros(file: &mut impl Write, len: u64, buffer: &mut [u8]) -> std::io::Result<()> {
    let mut rest = len;
    if rest > 0 {
        buffer.fill(0);
    }
    while rest > 0 {
        let now = index_of(rest.min(u64_of(buffer.len())));
        file.write_all(&buffer[..now])?;
        rest -= u64_of(now);
    }
    Ok(())
}

fn open(device: &dyn Device) -> Result<FileSystem<Cursor<'_>>, String> {
    FileSystem::new(Cursor::new(device), FsOptions::new().time_provider(&CLOCK)).map_err(|error| error.to_string())
}

fn shown(tree: &Tree, dir: NodeId, name: &[u8]) -> String {
    let mut path = tree.path(dir);
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    format!("{:?}", String::from_utf8_lossy(&path))
}

/// Refuses what FAT can't have.
fn check(tree: &Tree) -> Result<(), String> {
    for id in tree.ids() {
        let mut names: HashMap<String, &[u8]> = HashMap::new();
        for (name, child) in tree.children(id) {
            let wrong = |what: &str| Err(format!("{}: {what}", shown(tree, id, name)));
            match tree.kind(child) {
                Kind::Directory => {}
                Kind::File { size } if size.get() <= FILE_MAX => {}
                Kind::File { .. } => return wrong("a file in FAT has less than 4 GiB"),
                Kind::Symlink { .. } => return wrong("FAT has no symbolic links; exclude it or add the file"),
                _ => return wrong("FAT has no devices, pipes and sockets; exclude it"),
            }
            let Ok(text) = std::str::from_utf8(name) else { return wrong("the name is no UTF-8") };
            if text.ends_with(['.', ' ']) || text.starts_with(' ') {
                return wrong("a name in FAT begins with no space, and ends with no space or dot");
            }
            if text.contains(|c: char| c.is_control() || "\"*/:<>?\\|".contains(c) || u32::from(c) > 0xffff) {
                return wrong("the name has a character that FAT has not");
            }
            if text.len() > 255 {
                return wrong("the name is too long for FAT");
            }
            if let Some(other) = names.insert(text.to_uppercase(), name) {
                let other = String::from_utf8_lossy(other).into_owned();
                return wrong(&format!("in FAT it is the same name as {other:?}"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let of = |seconds| {
            let DateTime { date, time } = date_time((seconds, 0));
            (date.year, date.month, date.day, time.hour, time.min, time.sec)
        };
        assert_eq!(of(1_700_000_000), (2023, 11, 14, 22, 13, 20));
        assert_eq!(of(951_782_400), (2000, 2, 29, 0, 0, 0));
        assert_eq!(of(0), (1980, 1, 1, 0, 0, 0));
        assert_eq!(of(i64::MAX), (2107, 12, 31, 23, 59, 58));
    }
}
