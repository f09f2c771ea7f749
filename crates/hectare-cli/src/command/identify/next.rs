//! The next command for each kind of content, as one would type it.
//!
//! A place inside a device is named as the command needs it: `--partition` for this program, an offset for
//! `mount` and `losetup`, the kernel's name of the partition on a real disk.

use crate::os;
use crate::partition_args::Part;
use hectare_identify::{Place, Volume, What};
use hectare_units::Bytes;
use std::path::Path;

/// What was looked at.
pub(super) struct Source {
    /// The path, for a shell.
    word: String,
    is_block_device: bool,
    /// Where the part begins that was looked at.
    base: Bytes,
    len: Bytes,
    /// The arguments that name a logical volume, of which no offset is that of the device.
    logical: Option<String>,
}

impl Source {
    /// The source at a path, of which `len` bytes from `base` on are looked at.
    pub(super) fn of(path: &Path, part: Part, base: Bytes, len: Bytes) -> Self {
        let is_block_device = std::fs::metadata(path).is_ok_and(|metadata| os::is_block_device(&metadata));
        let words = || part.arguments().iter().map(|argument| word(argument) + " ").collect();
        let logical = part.logical().map(|_| words());
        Self { word: word(&path.to_string_lossy()), is_block_device, base, len, logical }
    }

    fn start(&self, within: Bytes) -> u64 {
        self.base.get().saturating_add(within.get())
    }

    /// Where a place lies, for this program.
    fn part(&self, place: &Place) -> String {
        if let Some(logical) = &self.logical {
            return logical.clone();
        }
        // Only the partitions of the outermost table have numbers for `--partition`.
        let number = place.partition.as_ref().filter(|_| self.base == Bytes::ZERO && !place.is_nested);
        match number {
            Some(partition) => format!("--partition {} ", partition.number),
            None => offset(self.start(place.start)),
        }
    }

    /// The device that holds a place alone, with the command that makes it where there is none.
    fn device(&self, place: &Place) -> (String, String) {
        let is_whole = place.start == Bytes::ZERO && self.base == Bytes::ZERO && place.partition.is_none();
        if self.is_block_device && is_whole {
            return (String::new(), self.word.clone());
        }
        if let Some(partition) = place.partition.as_ref().filter(|_| self.is_block_device && !place.is_nested)
        {
            let between = if self.word.ends_with(|c: char| c.is_ascii_digit()) { "p" } else { "" };
            return (String::new(), format!("{}{between}{}", self.word, partition.number));
        }
        (self.looped(self.start(place.start), place.len, is_whole), "/dev/loopN".to_owned())
    }

    fn looped(&self, start: u64, len: Bytes, is_whole: bool) -> String {
        let place = if is_whole { String::new() } else { format!("--offset {start} --sizelimit {len} ") };
        format!("losetup --find --show {place}{}; ", self.word)
    }
}

fn offset(start: u64) -> String {
    if start == 0 { String::new() } else { format!("--offset {start} ") }
}

/// A word for a shell.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=,@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The next command for a place; `None` where there is nothing to do with it.
pub(super) fn command(place: &Place, source: &Source) -> Option<String> {
    let what = place.what?;
    let name = &source.word;
    let is_ext = matches!(what, What::Ext2 | What::Ext3 | What::Ext4);
    if source.logical.is_some() && (!is_ext || place.start > Bytes::ZERO) {
        return None;
    }
    let part = source.part(place);
    let (looped, device) = source.device(place);
    Some(match what {
        What::Ext2 | What::Ext3 | What::Ext4 if place.details.value("fault").is_some() => {
            match place.details.value("copy of the superblock") {
                Some(block) => salvage(block, &part, name),
                None => format!("hectare check {part}{name}"),
            }
        }
        What::Ext2 | What::Ext3 | What::Ext4 => format!("hectare ls -l {part}{name}:/"),
        What::ExtJournal => format!("hectare info --journal {name} VOLUME"),
        What::Gpt | What::Mbr | What::Elf | What::Ubi | What::Bcache => return None,
        What::Unfinished => format!("hectare mkfs {part}{name}"),
        What::Swap => format!("{looped}swaplabel {device}"),
        What::Luks => format!("{looped}cryptsetup open {device} NAME"),
        What::BitLocker => format!("{looped}cryptsetup bitlkOpen {device} NAME"),
        What::Lvm => match place.details.value("volume group") {
            Some(group) => format!("{looped}vgchange -ay {group}"),
            None => format!("{looped}pvs {device}"),
        },
        What::Raid => format!("{looped}mdadm --assemble --readonly /dev/md/NAME {device}"),
        What::Zfs => format!("{looped}zpool import -d {device}"),
        What::Qcow | What::Vhd | What::Vhdx | What::Vmdk | What::AndroidSparse => {
            format!("hectare ls -l {name}:/")
        }
        What::Qed | What::Vdi | What::Parallels => format!("qemu-img convert -O raw {name} RAW"),
        What::Dmg => format!("dmg2img {name} RAW"),
        What::AndroidBoot => format!("unpack_bootimg --boot_img {name}"),
        What::Partclone => format!("partclone.restore --restore_raw_file -s {name} -O RAW"),
        What::Gzip => format!("gunzip --keep {name}"),
        What::Bzip2 => format!("bunzip2 --keep {name}"),
        What::Xz | What::Lzma => format!("unxz --keep {name}"),
        What::Zstd => format!("unzstd --keep {name}"),
        What::Lz4 => format!("unlz4 --keep {name}"),
        What::Lzop => format!("lzop -d {name}"),
        What::Tar => format!("hectare build --from {name} IMAGE"),
        What::Zip => format!("unzip {name}"),
        What::SevenZip => format!("7z x {name}"),
        What::Cpio => format!("cpio -id < {name}"),
        What::Ar => format!("ar x {name}"),
        What::Rpm => format!("rpm2cpio {name} | cpio -id"),
        What::Wim => format!("wimlib-imagex info {name}"),
        // What is left are file systems of other kinds.
        _ => mount(place, source),
    })
}

/// Mounting a file system, by way of a loop device where it lies in a file.
fn mount(place: &Place, source: &Source) -> String {
    let (_, device) = source.device(place);
    if source.is_block_device && device != "/dev/loopN" {
        return format!("mount -o ro {device} DIRECTORY");
    }
    let place = match source.start(place.start) {
        0 if place.len == source.len => String::new(),
        start => format!(",offset={start},sizelimit={}", place.len),
    };
    format!("mount -o ro,loop{place} {} DIRECTORY", source.word)
}

/// The next command for a volume that a search found; `None` if it does not begin on the device.
pub(super) fn for_volume(volume: &Volume, source: &Source) -> Option<String> {
    let start = source.start(volume.start.on_device()?);
    if source.logical.is_some() {
        return None;
    }
    if volume.has_primary() {
        return Some(format!("hectare ls -l {}{}:/", offset(start), source.word));
    }
    let copy = volume.copies.first()?;
    let geometry = volume.superblock.geometry();
    let block = geometry.super_block(copy.group);
    Some(salvage(block, &offset(start), &source.word))
}

/// Brings out what is left of a volume, by the superblock in a block.
fn salvage(block: impl std::fmt::Display, part: &str, name: &str) -> String {
    format!("hectare salvage --superblock {block} {part}{name} -o DIRECTORY")
}
