//! Finds which image is mounted where in `/proc/self/mountinfo` (proc(5)), without a request to its server.
//!
//! Hazards: special bytes are written in octal there; mounts can cover each other, and the last one counts;
//! only the mounting user can access a mounted directory, not even root can, so its path is resolved through
//! its parent directory.

use crate::loops;
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The kernel's name of the type, and that of mounts on a block device.
const KIND: &str = "fuse.hectare";
const BLOCK_KIND: &str = "fuseblk.hectare";
const TABLE: &str = "/proc/self/mountinfo";

/// A mount of ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountedImage {
    /// The directory it is mounted on.
    pub dir: PathBuf,
    /// The image, as named when it was mounted.
    pub source: PathBuf,
    /// The device number of its files, major and minor.
    pub device: (u32, u32),
    /// The user who mounted it.
    pub user: u32,
}

/// The mount table, as this process sees it.
fn table() -> io::Result<String> {
    std::fs::read_to_string(TABLE).map_err(|error| io::Error::new(error.kind(), format!("{TABLE}: {error}")))
}

/// The image that a directory, or a path below it, belongs to.
///
/// # Errors
/// If it belongs to no image mounted by hectare.
pub fn mounted_image(path: &Path) -> io::Result<MountedImage> {
    let path = resolved(path)?;
    let table = table()?;
    let lines: Vec<Line> = table.lines().filter_map(Line::parse).collect();
    let on = |dir: &Path| lines.iter().rfind(|line| line.dir == dir);
    path.ancestors().find_map(on).and_then(Line::image).ok_or_else(not_ours)
}

/// The directories on which an image is mounted, the oldest mount first.
///
/// # Errors
/// If the mount table can't be read.
pub fn mounted_on(image: &Path) -> io::Result<Vec<PathBuf>> {
    let (user, number) = (rustix::process::geteuid().as_raw(), |path: &Path| {
        path.metadata().map(|found| (found.dev(), found.ino()))
    });
    // Paths named by other users are not accessed.
    let same = |mounted: &MountedImage| {
        let path = &*mounted.source;
        let looked = || number(path).is_ok_and(|this| number(image).is_ok_and(|that| this == that));
        path == image || (mounted.user == user && looked())
    };
    let table = table()?;
    let ours = table.lines().filter_map(Line::parse).filter_map(|line| line.image());
    Ok(ours.filter(same).map(|mounted| mounted.dir).collect())
}

/// The mount flags of a mount in the kernel.
pub(crate) fn mount_flags(mounted: &MountedImage) -> io::Result<MountFlags> {
    let table = table()?;
    let mut lines = table.lines().filter_map(Line::parse);
    let line = lines.rfind(|line| line.dir == mounted.dir && line.number() == Some(mounted.device));
    let line = line.ok_or_else(not_ours)?;
    let given = line.flags.split(',').chain(line.system.last().into_iter().flat_map(|last| last.split(',')));
    Ok(given.fold(MountFlags::empty(), |flags, name| flags | flag(name)))
}

fn flag(name: &str) -> MountFlags {
    match name {
        "ro" => MountFlags::RDONLY,
        "nosuid" => MountFlags::NOSUID,
        "nodev" => MountFlags::NODEV,
        "noexec" => MountFlags::NOEXEC,
        "noatime" => MountFlags::NOATIME,
        "nodiratime" => MountFlags::NODIRATIME,
        "relatime" => MountFlags::RELATIME,
        "sync" => MountFlags::SYNCHRONOUS,
        "dirsync" => MountFlags::DIRSYNC,
        _ => MountFlags::empty(),
    }
}

/// The device number that a directory with a mount on it shows. `dir` is a path without links.
pub(crate) fn device_on(dir: &Path) -> io::Result<Option<(u32, u32)>> {
    let table = table()?;
    let top = table.lines().filter_map(Line::parse).rfind(|line| line.dir == dir);
    Ok(top.and_then(|line| line.number()))
}

/// The directory at which the file system of this device number can be reached now: a parent may have been
/// renamed since it was mounted, or another file system mounted over it.
pub(crate) fn dir_of(device: (u32, u32)) -> io::Result<Option<PathBuf>> {
    let table = table()?;
    let lines: Vec<Line> = table.lines().filter_map(Line::parse).collect();
    Ok(reached(&lines, device).map(Path::to_owned))
}

fn reached<'a>(lines: &'a [Line], device: (u32, u32)) -> Option<&'a Path> {
    let is_it = |line: &&Line| line.number() == Some(device);
    let is_on_top =
        |line: &&Line| lines.iter().rfind(|other| other.dir == line.dir).is_some_and(|top| is_it(&top));
    lines.iter().filter(is_it).rfind(is_on_top).map(|line| &*line.dir)
}

/// The error that no such mount exists.
pub(crate) fn not_ours() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "no image is mounted there by hectare")
}

/// The path without links.
pub(crate) fn resolved(path: &Path) -> io::Result<PathBuf> {
    let refused = match path.canonicalize() {
        Err(error) if is_mount_refusing(&error) => error,
        resolved => return resolved,
    };
    match (std::path::absolute(path)?.parent(), path.file_name()) {
        (Some(above), Some(name)) => Ok(above.canonicalize()?.join(name)),
        _ => Err(refused),
    }
}

/// Whether a directory can't be accessed because another user mounted it, or it has no server any more.
fn is_mount_refusing(error: &io::Error) -> bool {
    [Errno::ACCESS, Errno::NOTCONN, Errno::CONNABORTED]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// A line of the table.
struct Line<'a> {
    dir: PathBuf,
    device: &'a str,
    /// The mount's own options.
    flags: &'a str,
    /// Type, source and options of the file system.
    system: Vec<&'a str>,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(2);
        let device = mount.next()?;
        let dir = unescaped(mount.nth(1)?);
        Some(Self {
            dir,
            device,
            flags: mount.next().unwrap_or_default(),
            system: system.split(' ').collect(),
        })
    }

    fn number(&self) -> Option<(u32, u32)> {
        let (major, minor) = self.device.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }

    /// The mount, if it is one of ours. Where the kernel has a block device, the table has a loop device.
    fn image(&self) -> Option<MountedImage> {
        let [KIND | BLOCK_KIND, source, options] = self.system[..] else { return None };
        let user = options.split(',').find_map(|option| option.strip_prefix("user_id="))?;
        let device = self.number()?;
        Some(MountedImage {
            dir: self.dir.clone(),
            source: loops::image_of(device).unwrap_or_else(|| unescaped(source)),
            device,
            user: user.parse().ok()?,
        })
    }
}

/// Unescapes a path: three octal digits after a backslash are a byte.
fn unescaped(text: &str) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_mounts_are_found_in_the_table() {
        let mount = r"36 35 0:98 / /mnt/a\040b rw,noatime master:1";
        let line = format!(r"{mount} - fuse.hectare /srv/x\134y.img rw,user_id=7,group_id=0");
        let found = Line::parse(&line).unwrap().image().unwrap();
        assert_eq!((found.dir, found.source), ("/mnt/a b".into(), r"/srv/x\y.img".into()));
        assert_eq!((found.device, found.user), ((0, 98), 7));
        let other = Line::parse("36 35 8:1 / /mnt rw - ext4 /dev/sda1 rw").unwrap();
        assert_eq!((other.image(), other.number(), other.dir), (None, Some((8, 1)), "/mnt".into()));
        assert!(Line::parse("nonsense").is_none());
        assert_eq!(unescaped(r"\04"), PathBuf::from(r"\04"));
    }

    #[test]
    fn a_mount_is_reached_where_nothing_lies_over_it() {
        let table = ["1 0 0:7 / /a rw - x y rw", "2 0 0:8 / /a rw - x y rw", "3 0 0:9 / /b rw - x y rw"];
        let lines: Vec<_> = table.iter().filter_map(|line| Line::parse(line)).collect();
        for (minor, dir) in [(7, None), (8, Some("/a")), (9, Some("/b")), (6, None)] {
            assert_eq!(reached(&lines, (0, minor)), dir.map(Path::new));
        }
    }

    #[test]
    fn what_is_no_mount_of_ours_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let error = mounted_image(folder.path()).unwrap_err();
        assert_eq!(error.to_string(), "no image is mounted there by hectare");
        assert!(mounted_image(&folder.path().join("none")).is_err());
    }
}
