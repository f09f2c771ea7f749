//! Every inode in use, as debugfs prints it, and every field that a file can have.

use crate::oracle::volume::Volume;
use hectare_ext4::inode::{Inode, Kind};
use hectare_ext4::raw;
use hectare_oracle::{Combo, KernelMount, Scale, Skip, Tree, scratch, tool};
use hectare_units::{InodeNr, usize_of};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The trees whose inodes are out of the ordinary.
const TREES: [Tree; 7] =
    [Tree::Times, Tree::Links, Tree::Pipes, Tree::Modes, Tree::Devices, Tree::Privileged, Tree::Deep];

/// The directory that is copied onto the volumes, made once.
fn source() -> &'static Path {
    static SOURCE: OnceLock<PathBuf> = OnceLock::new();
    SOURCE.get_or_init(|| {
        let folder = scratch::fresh("inodes");
        for tree in TREES {
            if tree.needs_root() && !hectare_oracle::is_root() {
                hectare_oracle::skip_part!(format!("oracle::inodes, {}", tree.name()), "needs root");
                continue;
            }
            tree.make(&folder.join(tree.name()), &Scale::SMALL).unwrap();
        }
        folder
    })
}

/// Makes a volume and puts the trees on it.
pub(crate) fn fill(combo: &Combo, image: &Path) -> Result<(), Skip> {
    if combo.mountable().is_err() {
        let folder = source().to_string_lossy().into_owned();
        let args: Vec<&str> = combo.args.iter().copied().chain(["-d", &folder]).collect();
        return hectare_oracle::mke2fs(&args, image, combo.size);
    }
    combo.make(image)?;
    let mount = KernelMount::new(image, "")?;
    let said = tool::run(tool::need("cp")?.arg("-a").arg(source().join(".")).arg(mount.path()));
    assert!(said.succeeded(), "{}: {}", combo.name, said.report());
    mount.unmount();
    Ok(())
}

/// Parsing and rendering gives the bytes back, for every inode in use.
pub(crate) fn check_slots(volume: &Volume, name: &str) {
    for nr in volume.used_inodes() {
        let slot = volume.inode_slot(nr);
        let inode = Inode::parse(&slot, nr, &volume.sb).unwrap_or_else(|error| panic!("{name}: {error}"));
        if slot.iter().all(|byte| *byte == 0) {
            continue; // a reserved inode nobody wrote: no checksum either
        }
        for mut ours in [slot.clone(), vec![0; slot.len()]] {
            inode.render(&mut ours, nr, &volume.sb);
            let differs = ours.iter().zip(&slot).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{name}: inode {nr} renders differently from this byte on");
        }
        check_area(&inode, &slot, name);
    }
}

/// The attribute area is what lies behind the extra fields.
fn check_area(inode: &Inode, slot: &[u8], name: &str) {
    let extra = usize::from(inode.extra_isize);
    let expected = if slot.len() == 128 || extra == 0 { &[][..] } else { &slot[128 + extra..] };
    assert_eq!(inode.xattr_area(), expected, "{name}");
}

/// Compares debugfs's listing of every inode in use with what was parsed.
pub(crate) fn check_stat(image: &Path, name: &str) {
    let volume = Volume::open(image);
    let used = volume.used_inodes();
    assert!(used.len() > 100, "{name}: {} inodes", used.len());
    let requests: Vec<String> = used.iter().map(|nr| format!("stat <{nr}>")).collect();
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    let output = hectare_oracle::debugfs(image, &requests).unwrap_or_else(|skip| panic!("{skip}"));
    let mut answers = output.split("debugfs: stat ").skip(1);
    for nr in used {
        let answer = answers.next().unwrap_or_else(|| panic!("{name}: no answer about inode {nr}"));
        let told: Vec<String> = answer.lines().map(squeezed).collect();
        let slot = volume.inode_slot(nr);
        let inode = Inode::parse(&slot, nr, &volume.sb).unwrap();
        for line in lines(&volume, nr, &inode, &slot) {
            let line = squeezed(&line);
            assert!(told.contains(&line), "{name}: missing for inode {nr}: {line}\n{answer}");
        }
    }
}

/// With single spaces, and without the date that debugfs appends to a time.
fn squeezed(line: &str) -> String {
    let line = line.split(" -- ").next().unwrap_or_default();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn lines(volume: &Volume, nr: InodeNr, inode: &Inode, slot: &[u8]) -> Vec<String> {
    let kind = match inode.kind() {
        Some(Kind::File) => "regular",
        Some(Kind::Directory) => "directory",
        Some(Kind::Symlink) => "symlink",
        Some(Kind::CharDevice) => "character special",
        Some(Kind::BlockDevice) => "block special",
        Some(Kind::Fifo) => "FIFO",
        Some(Kind::Socket) => "socket",
        None => "bad type",
    };
    let (mode, flags) = (inode.permissions(), inode.flags.bits());
    let large = slot.len() > 128 && inode.extra_isize >= 24; // less, and debugfs prints the base words alone
    let (high, low) = (inode.version >> 32, inode.version & 0xffff_ffff);
    let version = if large { format!("{high:#010x}:{low:08x}") } else { format!("{low:#010x}") };
    let project = if large && inode.extra_isize >= 32 {
        format!("Project: {}", inode.projid.cast_signed())
    } else {
        String::new()
    };
    let mut lines = vec![
        format!("Inode: {nr} Type: {kind} Mode: 0{mode:03o} Flags: {flags:#x}"),
        format!("Generation: {} Version: {version}", inode.generation),
        // debugfs takes owners and projects for signed numbers.
        format!(
            "User: {} Group: {} {project} Size: {}",
            inode.uid.cast_signed(),
            inode.gid.cast_signed(),
            inode.size
        ),
        format!("File ACL: {}", inode.file_acl.map_or(0, hectare_units::BlockNr::get)),
        format!("Links: {} Blockcount: {}", inode.links, stored_count(volume, inode)),
    ];
    lines.extend(times(inode, large));
    if slot.len() > 128 {
        lines.push(format!("Size of extra inode fields: {}", inode.extra_isize));
    }
    if volume.sb.seed().is_some() {
        lines.push(checksum(slot, inode));
    }
    lines.extend(content(inode));
    lines
}

/// debugfs prints the count as it is stored.
fn stored_count(volume: &Volume, inode: &Inode) -> u64 {
    let in_blocks = inode.flags.contains(hectare_ext4::inode::InodeFlags::HUGE_FILE);
    if in_blocks { inode.sectors >> (volume.sb.geometry().block_size.shift() - 9) } else { inode.sectors }
}

fn times(inode: &Inode, large: bool) -> Vec<String> {
    let named =
        [("ctime", inode.ctime), ("atime", inode.atime), ("mtime", inode.mtime), ("crtime", inode.crtime)];
    if !large {
        return named[..3].iter().map(|(name, time)| format!("{name}: {:#010x}", time.encode().0)).collect();
    }
    let words = |(name, time): &(&str, hectare_ext4::time::Timestamp)| {
        let (base, extra) = time.encode();
        format!("{name}: {base:#010x}:{extra:08x}")
    };
    named.iter().map(words).collect()
}

fn checksum(slot: &[u8], inode: &Inode) -> String {
    let half = |at: usize| u32::from(u16::from_le_bytes([slot[at], slot[at + 1]]));
    let high = if slot.len() > 128 && inode.extra_isize >= 4 { half(0x82) } else { 0 };
    format!("Inode checksum: {:#010x}", half(0x7c) | high << 16)
}

fn content(inode: &Inode) -> Option<String> {
    if matches!(inode.kind(), Some(Kind::CharDevice | Kind::BlockDevice)) {
        let number = inode.device_number();
        let new = if inode.block[..4] == [0; 4] { "(New-style) " } else { "" };
        let (major, minor) = (number.major, number.minor);
        return Some(format!(
            "{new}Device major/minor number: {major:02}:{minor:02} (hex {major:02x}:{minor:02x})"
        ));
    }
    let len = usize::try_from(inode.size).ok()?;
    let target =
        inode.is_fast_symlink().then(|| String::from_utf8_lossy(&inode.block[..len]).into_owned())?;
    Some(format!("Fast link dest: \"{target}\""))
}

/// Gives some files values at the limits of their fields.
pub(crate) fn set_fields(image: &Path) {
    let volume = Volume::open(image);
    let parse = |nr: &InodeNr| Inode::parse(&volume.inode_slot(*nr), *nr, &volume.sb).unwrap();
    let files: Vec<InodeNr> =
        volume.used_inodes().into_iter().filter(|nr| parse(nr).kind() == Some(Kind::File)).skip(5).collect();
    let before: Vec<Vec<u8>> = files.iter().map(|nr| volume.inode_slot(*nr)).collect();
    let wide = volume.sb.geometry().inode_size > 128;
    let mut requests = Vec::new();
    let mut set = |i: usize, field: &str, value: &str| {
        requests.push(format!("set_inode_field <{}> {field} {value}", files[i]));
    };
    set(0, "uid_hi", "65535");
    set(0, "gid_hi", "1");
    set(1, "version", "0xfffffffe");
    set(2, "flags", "0xc0090"); // huge_file, extents, noatime, immutable
    set(2, "blocks", "123456");
    set(3, "blocks", "0xfffffff0");
    set(3, "blocks_hi", "0xffff");
    set(4, "size", "0x7ffffffff000");
    set(5, "generation", "0xffffffff");
    set(6, "links_count", "65000");
    set(7, "dtime", "0x12345678");
    set(8, "faddr", "99");
    if wide {
        set(9, "version_hi", "0xfffffffd");
        set(10, "projid", "4000000000");
        for (i, extra) in [(11, 4), (12, 8), (13, 12), (14, 16), (15, 28), (16, 64)] {
            set(i, "mtime", "@0xffffffff");
            set(i, "extra_isize", &extra.to_string());
        }
    }
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    let said = hectare_oracle::debugfs_write(image, &requests).unwrap_or_else(|skip| panic!("{skip}"));
    let slots = before.iter().zip(&files).take(if wide { 17 } else { 9 });
    let unchanged: Vec<_> = slots.filter(|(slot, nr)| **slot == volume.inode_slot(**nr)).collect();
    assert!(unchanged.is_empty(), "{unchanged:?} are unchanged: {said}");
}

/// The records' sizes are the format's.
#[test]
fn the_records_cover_the_slot() {
    let sum = |fields: &[hectare_ext4::record::Field]| fields.iter().map(|field| field.size).sum::<usize>();
    assert_eq!(sum(raw::Inode::FIELDS), usize_of(128));
    assert_eq!(sum(raw::InodeExtra::FIELDS), 32);
    assert_eq!(sum(raw::GroupDesc::FIELDS), 64);
    assert_eq!(sum(raw::SuperBlock::FIELDS), 1024);
}
