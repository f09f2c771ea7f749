//! The records of the protocol, as laid out in messages.
//!
//! Names and offsets are those of `include/uapi/linux/fuse.h`.

use hectare_units::disk_record;
use zerocopy::native_endian::{I32, I64, U16, U32, U64};

disk_record! {
    /// `fuse_in_header`: before every request.
    InHeader, 40 bytes {
        0x00 len: U32,
        0x04 opcode: U32,
        0x08 unique: U64,
        0x10 nodeid: U64,
        0x18 uid: U32,
        0x1c gid: U32,
        0x20 pid: U32,
        0x24 total_extlen: U16,
        0x26 padding: U16,
    }
}

disk_record! {
    /// `fuse_out_header`: before every answer.
    OutHeader, 16 bytes {
        0x00 len: U32,
        0x04 error: I32,
        0x08 unique: U64,
    }
}

disk_record! {
    /// `fuse_notify_inval_inode_out`.
    InvalInodeOut, 24 bytes {
        0x00 ino: U64,
        0x08 off: I64,
        0x10 len: I64,
    }
}

disk_record! {
    /// `fuse_init_in`, as far as kernels before 7.36 have it.
    InitIn, 16 bytes {
        0x00 major: U32,
        0x04 minor: U32,
        0x08 max_readahead: U32,
        0x0c flags: U32,
    }
}

disk_record! {
    /// `fuse_init_out`.
    InitOut, 64 bytes {
        0x00 major: U32,
        0x04 minor: U32,
        0x08 max_readahead: U32,
        0x0c flags: U32,
        0x10 max_background: U16,
        0x12 congestion_threshold: U16,
        0x14 max_write: U32,
        0x18 time_gran: U32,
        0x1c max_pages: U16,
        0x1e map_alignment: U16,
        0x20 flags2: U32,
        0x24 max_stack_depth: U32,
        0x28 request_timeout: U16,
        0x2a unused: [U16; 11],
    }
}

disk_record! {
    /// `fuse_attr`.
    Attr, 88 bytes {
        0x00 ino: U64,
        0x08 size: U64,
        0x10 blocks: U64,
        0x18 atime: I64,
        0x20 mtime: I64,
        0x28 ctime: I64,
        0x30 atimensec: U32,
        0x34 mtimensec: U32,
        0x38 ctimensec: U32,
        0x3c mode: U32,
        0x40 nlink: U32,
        0x44 uid: U32,
        0x48 gid: U32,
        0x4c rdev: U32,
        0x50 blksize: U32,
        0x54 flags: U32,
    }
}

disk_record! {
    /// `fuse_attr_out`.
    AttrOut, 104 bytes {
        0x00 attr_valid: U64,
        0x08 attr_valid_nsec: U32,
        0x0c dummy: U32,
        0x10 attr: Attr,
    }
}

disk_record! {
    /// `fuse_entry_out`.
    EntryOut, 128 bytes {
        0x00 nodeid: U64,
        0x08 generation: U64,
        0x10 entry_valid: U64,
        0x18 attr_valid: U64,
        0x20 entry_valid_nsec: U32,
        0x24 attr_valid_nsec: U32,
        0x28 attr: Attr,
    }
}

disk_record! {
    /// `fuse_sx_time`.
    SxTime, 16 bytes {
        0x00 tv_sec: I64,
        0x08 tv_nsec: U32,
        0x0c reserved: U32,
    }
}

disk_record! {
    /// `fuse_statx`.
    Statx, 256 bytes {
        0x00 mask: U32,
        0x04 blksize: U32,
        0x08 attributes: U64,
        0x10 nlink: U32,
        0x14 uid: U32,
        0x18 gid: U32,
        0x1c mode: U16,
        0x1e spare0: U16,
        0x20 ino: U64,
        0x28 size: U64,
        0x30 blocks: U64,
        0x38 attributes_mask: U64,
        0x40 atime: SxTime,
        0x50 btime: SxTime,
        0x60 ctime: SxTime,
        0x70 mtime: SxTime,
        0x80 rdev_major: U32,
        0x84 rdev_minor: U32,
        0x88 dev_major: U32,
        0x8c dev_minor: U32,
        0x90 spare2: [U64; 14],
    }
}

disk_record! {
    /// `fuse_statx_out`.
    StatxOut, 288 bytes {
        0x00 attr_valid: U64,
        0x08 attr_valid_nsec: U32,
        0x0c flags: U32,
        0x10 spare: [U64; 2],
        0x20 stat: Statx,
    }
}

disk_record! {
    /// `fuse_setattr_in`.
    SetattrIn, 88 bytes {
        0x00 valid: U32,
        0x04 padding: U32,
        0x08 fh: U64,
        0x10 size: U64,
        0x18 lock_owner: U64,
        0x20 atime: I64,
        0x28 mtime: I64,
        0x30 ctime: I64,
        0x38 atimensec: U32,
        0x3c mtimensec: U32,
        0x40 ctimensec: U32,
        0x44 mode: U32,
        0x48 unused4: U32,
        0x4c uid: U32,
        0x50 gid: U32,
        0x54 unused5: U32,
    }
}

disk_record! {
    /// `fuse_mknod_in`.
    MknodIn, 16 bytes {
        0x00 mode: U32,
        0x04 rdev: U32,
        0x08 umask: U32,
        0x0c padding: U32,
    }
}

disk_record! {
    /// `fuse_mkdir_in`.
    MkdirIn, 8 bytes {
        0x00 mode: U32,
        0x04 umask: U32,
    }
}

disk_record! {
    /// `fuse_rename2_in`.
    Rename2In, 16 bytes {
        0x00 newdir: U64,
        0x08 flags: U32,
        0x0c padding: U32,
    }
}

disk_record! {
    /// `fuse_open_in`.
    OpenIn, 8 bytes {
        0x00 flags: U32,
        0x04 open_flags: U32,
    }
}

disk_record! {
    /// `fuse_create_in`; of a file without a name, too.
    CreateIn, 16 bytes {
        0x00 flags: U32,
        0x04 mode: U32,
        0x08 umask: U32,
        0x0c open_flags: U32,
    }
}

disk_record! {
    /// `fuse_open_out`.
    OpenOut, 16 bytes {
        0x00 fh: U64,
        0x08 open_flags: U32,
        0x0c backing_id: U32,
    }
}

disk_record! {
    /// `fuse_getattr_in`.
    GetattrIn, 16 bytes {
        0x00 getattr_flags: U32,
        0x04 padding: U32,
        0x08 fh: U64,
    }
}

disk_record! {
    /// `fuse_read_in`; of directories, too.
    ReadIn, 40 bytes {
        0x00 fh: U64,
        0x08 offset: U64,
        0x10 size: U32,
        0x14 read_flags: U32,
        0x18 lock_owner: U64,
        0x20 flags: U32,
        0x24 padding: U32,
    }
}

disk_record! {
    /// `fuse_write_in`, before what is written.
    WriteIn, 40 bytes {
        0x00 fh: U64,
        0x08 offset: U64,
        0x10 size: U32,
        0x14 write_flags: U32,
        0x18 lock_owner: U64,
        0x20 flags: U32,
        0x24 padding: U32,
    }
}

disk_record! {
    /// `fuse_write_out`, and `fuse_getxattr_out`, which has the same form: a size.
    SizeOut, 8 bytes {
        0x00 size: U32,
        0x04 padding: U32,
    }
}

disk_record! {
    /// `fuse_release_in`.
    ReleaseIn, 24 bytes {
        0x00 fh: U64,
        0x08 flags: U32,
        0x0c release_flags: U32,
        0x10 lock_owner: U64,
    }
}

disk_record! {
    /// `fuse_fsync_in`.
    FsyncIn, 16 bytes {
        0x00 fh: U64,
        0x08 fsync_flags: U32,
        0x0c padding: U32,
    }
}

disk_record! {
    /// `fuse_setxattr_in` as it was before `FUSE_SETXATTR_EXT`; the name and the value follow.
    SetxattrIn, 8 bytes {
        0x00 size: U32,
        0x04 flags: U32,
    }
}

disk_record! {
    /// The additional fields of `fuse_setxattr_in` with `FUSE_SETXATTR_EXT`.
    SetxattrExt, 8 bytes {
        0x00 setxattr_flags: U32,
        0x04 padding: U32,
    }
}

disk_record! {
    /// `fuse_getxattr_in`; of lists, too.
    GetxattrIn, 8 bytes {
        0x00 size: U32,
        0x04 padding: U32,
    }
}

disk_record! {
    /// `fuse_forget_one`.
    ForgetOne, 16 bytes {
        0x00 nodeid: U64,
        0x08 nlookup: U64,
    }
}

disk_record! {
    /// `fuse_batch_forget_in`; as many [`ForgetOne`] follow.
    BatchForgetIn, 8 bytes {
        0x00 count: U32,
        0x04 dummy: U32,
    }
}

disk_record! {
    /// `fuse_ioctl_in`, before the command's input.
    IoctlIn, 32 bytes {
        0x00 fh: U64,
        0x08 flags: U32,
        0x0c cmd: U32,
        0x10 arg: U64,
        0x18 in_size: U32,
        0x1c out_size: U32,
    }
}

disk_record! {
    /// `fuse_ioctl_out`, before the command's output.
    IoctlOut, 16 bytes {
        0x00 result: I32,
        0x04 flags: U32,
        0x08 in_iovs: U32,
        0x0c out_iovs: U32,
    }
}

disk_record! {
    /// `fuse_fallocate_in`.
    FallocateIn, 32 bytes {
        0x00 fh: U64,
        0x08 offset: U64,
        0x10 length: U64,
        0x18 mode: U32,
        0x1c padding: U32,
    }
}

disk_record! {
    /// `fuse_lseek_in`.
    LseekIn, 24 bytes {
        0x00 fh: U64,
        0x08 offset: I64,
        0x10 whence: U32,
        0x14 padding: U32,
    }
}

disk_record! {
    /// `fuse_copy_file_range_in`.
    CopyFileRangeIn, 56 bytes {
        0x00 fh_in: U64,
        0x08 off_in: U64,
        0x10 nodeid_out: U64,
        0x18 fh_out: U64,
        0x20 off_out: U64,
        0x28 len: U64,
        0x30 flags: U64,
    }
}

disk_record! {
    /// `fuse_statfs_out`.
    StatfsOut, 80 bytes {
        0x00 blocks: U64,
        0x08 bfree: U64,
        0x10 bavail: U64,
        0x18 files: U64,
        0x20 ffree: U64,
        0x28 bsize: U32,
        0x2c namelen: U32,
        0x30 frsize: U32,
        0x34 padding: U32,
        0x38 spare: [U32; 6],
    }
}

disk_record! {
    /// `fuse_dirent`, before the name, which is followed by zeros up to a multiple of 8 bytes.
    Dirent, 24 bytes {
        0x00 ino: U64,
        0x08 off: U64,
        0x10 namelen: U32,
        0x14 kind: U32,
    }
}
