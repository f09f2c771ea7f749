//! The topology of a block device: its sectors, and its preferred request sizes, by which formatters lay a
//! volume out on striped storage.
//!
//! The device reports its sectors; the other sizes are in sysfs, `queue/minimum_io_size` and
//! `queue/optimal_io_size` of the disk (the kernel's `Documentation/ABI/stable/sysfs-block`). What is missing
//! there is unknown: it is a hint, never needed.
//!
//! Hazard: in a partition that does not begin at a multiple of the disk's physical sectors no alignment
//! holds, so it has none of these sizes, and its logical sectors for physical ones.
//!
//! Only Linux is asked; elsewhere a file is the only kind of device.

/// How a block device is made up; all sizes in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Topology {
    /// The smallest unit that can be addressed: a power of two, 512 or more. No file system has smaller
    /// sectors or blocks.
    pub logical_sector: u32,
    /// The smallest unit that is written without reading: a power of two, no smaller than a logical sector.
    pub physical_sector: u32,
    /// The smallest request without a penalty: on striped storage what lies on one disk. 0 if not known.
    pub minimum_io: u64,
    /// The size that requests should have: on striped storage a whole stripe. 0 if not known.
    pub optimal_io: u64,
}

/// A disk of sectors of 512 bytes that says nothing else; so is a file.
impl Default for Topology {
    fn default() -> Self {
        Self { logical_sector: 512, physical_sector: 512, minimum_io: 0, optimal_io: 0 }
    }
}

#[cfg(all(target_os = "linux", not(hectare_portable)))]
impl Topology {
    /// What a block device says.
    pub(crate) fn of(file: &std::fs::File, stat: &rustix::fs::Stat) -> rustix::io::Result<Self> {
        use rustix::fs::{ioctl_blkpbszget, ioctl_blksszget, major, minor};
        let logical_sector = ioctl_blksszget(file)?;
        let physical_sector = ioctl_blkpbszget(file)?.max(logical_sector);
        let device = std::path::PathBuf::from(format!(
            "/sys/dev/block/{}:{}",
            major(stat.st_rdev),
            minor(stat.st_rdev)
        ));
        Ok(Self { logical_sector, physical_sector, ..Self::default() }.with_hints(&device))
    }

    /// Adds the hints in a device's sysfs directory.
    fn with_hints(self, device: &std::path::Path) -> Self {
        let number = |name: &str| std::fs::read_to_string(device.join(name)).ok()?.trim().parse::<i64>().ok();
        if number("alignment_offset").is_some_and(|offset| offset != 0) {
            return Self { physical_sector: self.logical_sector, ..self };
        }
        // A partition's queue is that of its disk, in whose directory its own lies.
        let queue = ["queue", "../queue"].into_iter().find(|queue| device.join(queue).is_dir());
        let size = |name: &str| {
            let found = queue.and_then(|queue| number(&format!("{queue}/{name}")));
            found.and_then(|size| u64::try_from(size).ok()).unwrap_or(0)
        };
        Self { minimum_io: size("minimum_io_size"), optimal_io: size("optimal_io_size"), ..self }
    }
}

#[cfg(test)]
#[cfg(all(target_os = "linux", not(hectare_portable)))]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn hints_are_those_of_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, partition) = (folder.path().join("disk"), folder.path().join("disk/partition"));
        fs::create_dir_all(disk.join("queue")).unwrap();
        fs::create_dir(&partition).unwrap();
        let plain = Topology { physical_sector: 4096, ..Topology::default() };
        assert_eq!(plain.with_hints(&disk), plain, "they may not be there");
        fs::write(disk.join("queue/minimum_io_size"), "65536\n").unwrap();
        fs::write(disk.join("queue/optimal_io_size"), "262144\n").unwrap();
        let striped = Topology { minimum_io: 65536, optimal_io: 262_144, ..plain };
        assert_eq!((plain.with_hints(&disk), plain.with_hints(&partition)), (striped, striped));
        for offset in ["512\n", "-1\n"] {
            fs::write(partition.join("alignment_offset"), offset).unwrap();
            assert_eq!(plain.with_hints(&partition), Topology::default(), "{offset}");
        }
        assert_eq!(plain.with_hints(&disk), striped);
        fs::write(disk.join("queue/optimal_io_size"), "many\n").unwrap();
        assert_eq!(plain.with_hints(&disk), Topology { optimal_io: 0, ..striped });
    }
}
