//! The known kinds of content, their names, and the advice for each.
//!
//! Names begin with an article and fit after "it is" and "the device holds". The advice is for users who gave
//! the content where an ext4 volume was needed.

use std::fmt;

/// The content of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The kind.
    pub what: What,
    /// Its label, if it has one and it is worth printing.
    pub label: Option<String>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what.name())?;
        match &self.label {
            Some(label) => write!(f, " (label {label})"),
            None => Ok(()),
        }
    }
}

/// A kind of content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// ext2.
    Ext2,
    /// ext3.
    Ext3,
    /// ext4.
    Ext4,
    /// An external ext journal.
    ExtJournal,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
    /// F2FS.
    F2fs,
    /// bcachefs.
    Bcachefs,
    /// ZFS.
    Zfs,
    /// ReiserFS.
    Reiserfs,
    /// JFS.
    Jfs,
    /// NILFS2.
    Nilfs2,
    /// HFS+.
    HfsPlus,
    /// APFS.
    Apfs,
    /// UDF.
    Udf,
    /// cramfs.
    Cramfs,
    /// romfs.
    Romfs,
    /// A UBI image.
    Ubi,
    /// Swap space.
    Swap,
    /// LUKS encryption.
    Luks,
    /// BitLocker encryption.
    BitLocker,
    /// An LVM physical volume.
    Lvm,
    /// A Linux RAID member.
    Raid,
    /// A bcache device.
    Bcache,
    /// ISO 9660.
    Iso9660,
    /// FAT.
    Fat,
    /// exFAT.
    ExFat,
    /// NTFS.
    Ntfs,
    /// ReFS.
    Refs,
    /// squashfs.
    Squashfs,
    /// EROFS.
    Erofs,
    /// A GPT partition table.
    Gpt,
    /// An MBR partition table.
    Mbr,
    /// A qcow, qcow2 or qcow3 disk image.
    Qcow,
    /// A QED disk image.
    Qed,
    /// A VHD disk image.
    Vhd,
    /// A VHDX disk image.
    Vhdx,
    /// A VMDK disk image, or the text that describes one.
    Vmdk,
    /// A VDI disk image.
    Vdi,
    /// A Parallels disk image.
    Parallels,
    /// An Apple disk image.
    Dmg,
    /// An Android sparse image.
    AndroidSparse,
    /// An Android boot image.
    AndroidBoot,
    /// A partclone image.
    Partclone,
    /// gzip data.
    Gzip,
    /// bzip2 data.
    Bzip2,
    /// xz data.
    Xz,
    /// Zstandard data.
    Zstd,
    /// LZ4 data.
    Lz4,
    /// LZMA data.
    Lzma,
    /// lzop data.
    Lzop,
    /// A tar archive.
    Tar,
    /// A zip archive.
    Zip,
    /// A 7z archive.
    SevenZip,
    /// A cpio archive.
    Cpio,
    /// An ar archive, of which Debian packages are a kind.
    Ar,
    /// An RPM package.
    Rpm,
    /// A WIM archive.
    Wim,
    /// An ELF program or library.
    Elf,
    /// The remains of an interrupted format.
    Unfinished,
}

const CONVERT: &str = "make a raw image of it first: qemu-img convert -O raw IMAGE RAW";
const PARTITION: &str = "name one of its partitions with --partition";
const OTHERS: &str = "use the tools of its own kind";

impl What {
    /// Its name, with the article.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext2 => "an ext2 file system",
            Self::Ext3 => "an ext3 file system",
            Self::Ext4 => "an ext4 file system",
            Self::ExtJournal => "an external ext4 journal",
            Self::Xfs => "an XFS file system",
            Self::Btrfs => "a btrfs file system",
            Self::F2fs => "an F2FS file system",
            Self::Bcachefs => "a bcachefs file system",
            Self::Zfs => "a ZFS pool",
            Self::Reiserfs => "a ReiserFS file system",
            Self::Jfs => "a JFS file system",
            Self::Nilfs2 => "a NILFS2 file system",
            Self::HfsPlus => "an HFS+ file system",
            Self::Apfs => "an APFS container",
            Self::Udf => "a UDF file system",
            Self::Cramfs => "a cramfs file system",
            Self::Romfs => "a romfs file system",
            Self::Ubi => "a UBI image",
            Self::Swap => "swap space",
            Self::Luks => "a LUKS encrypted volume",
            Self::BitLocker => "a BitLocker encrypted volume",
            Self::Lvm => "an LVM physical volume",
            Self::Raid => "a Linux RAID member",
            Self::Bcache => "a bcache device",
            Self::Iso9660 => "an ISO 9660 file system",
            Self::Fat => "a FAT file system",
            Self::ExFat => "an exFAT file system",
            Self::Ntfs => "an NTFS file system",
            Self::Refs => "a ReFS file system",
            Self::Squashfs => "a squashfs file system",
            Self::Erofs => "an EROFS file system",
            Self::Gpt => "a GPT partition table",
            Self::Mbr => "an MBR partition table",
            Self::Qcow => "a qcow2 disk image",
            Self::Qed => "a QED disk image",
            Self::Vhd => "a VHD disk image",
            Self::Vhdx => "a VHDX disk image",
            Self::Vmdk => "a VMDK disk image",
            Self::Vdi => "a VDI disk image",
            Self::Parallels => "a Parallels disk image",
            Self::Dmg => "an Apple disk image",
            Self::AndroidSparse => "an Android sparse image",
            Self::AndroidBoot => "an Android boot image",
            Self::Partclone => "a partclone image",
            Self::Gzip => "gzip data",
            Self::Bzip2 => "bzip2 data",
            Self::Xz => "xz data",
            Self::Zstd => "Zstandard data",
            Self::Lz4 => "LZ4 data",
            Self::Lzma => "LZMA data",
            Self::Lzop => "lzop data",
            Self::Tar => "a tar archive",
            Self::Zip => "a zip archive",
            Self::SevenZip => "a 7z archive",
            Self::Cpio => "a cpio archive",
            Self::Ar => "an ar archive or Debian package",
            Self::Rpm => "an RPM package",
            Self::Wim => "a WIM archive",
            Self::Elf => "an ELF program",
            Self::Unfinished => "an unfinished format",
        }
    }

    /// Whether it is a disk image, an archive or a compressed file: its bytes are not those of a disk, but the
    /// content of one may be in it.
    #[must_use]
    pub const fn wraps_a_disk(self) -> bool {
        matches!(
            self,
            Self::Qcow
                | Self::Qed
                | Self::Vhd
                | Self::Vhdx
                | Self::Vmdk
                | Self::Vdi
                | Self::Parallels
                | Self::Dmg
                | Self::AndroidSparse
                | Self::Partclone
                | Self::Gzip
                | Self::Bzip2
                | Self::Xz
                | Self::Zstd
                | Self::Lz4
                | Self::Lzma
                | Self::Lzop
                | Self::Tar
                | Self::Zip
                | Self::SevenZip
                | Self::Cpio
                | Self::Ar
                | Self::Rpm
                | Self::Wim
        )
    }

    /// The advice for users who gave it where an ext4 volume was needed.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Ext2 | Self::Ext3 | Self::Ext4 => "open it as a volume",
            Self::ExtJournal => "give the volume it belongs to, and this with --journal",
            Self::Swap => "there are no files in it",
            Self::Luks => "unlock it with cryptsetup open, and give the device that appears",
            Self::BitLocker => "unlock it with cryptsetup bitlkOpen, and give the device that appears",
            Self::Lvm => "name one of its logical volumes with --lv VG/LV (or vgchange -ay)",
            Self::Raid => "assemble the array with mdadm, and give that",
            Self::Bcache => "give the bcache device that the kernel makes of it",
            Self::Gpt | Self::Mbr => PARTITION,
            Self::Qcow | Self::Qed | Self::Vhd | Self::Vhdx | Self::Vmdk | Self::Vdi | Self::Parallels => {
                CONVERT
            }
            Self::Dmg => "make a raw image of it first: dmg2img",
            Self::AndroidSparse => "make a raw image of it first: simg2img SPARSE RAW",
            Self::Partclone => "restore it to a raw image first: partclone.restore",
            Self::Gzip => "unpack it first with gunzip",
            Self::Bzip2 => "unpack it first with bunzip2",
            Self::Xz | Self::Lzma => "unpack it first with unxz",
            Self::Zstd => "unpack it first with unzstd",
            Self::Lz4 => "unpack it first with unlz4",
            Self::Lzop => "unpack it first with lzop -d",
            Self::Tar => "hectare build --from makes an image of it",
            Self::Zip | Self::SevenZip | Self::Cpio | Self::Ar | Self::Rpm | Self::Wim => "unpack it first",
            Self::Unfinished => "run mkfs again",
            _ => OTHERS,
        }
    }
}
