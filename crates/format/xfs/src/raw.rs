//! The records of XFS version 5 as they lie on disk.
//!
//! Field names and offsets are those of the "XFS Algorithms & Data Structures" document. Where a structure's
//! checksum covers more than its record (a sector, a block, an inode), the rest is zeros or further records.

use hectare_units::disk_record;
use zerocopy::big_endian::{U16, U32, U64};

disk_record! {
    /// The superblock, the first sector of every allocation group.
    SuperBlock, 264 bytes {
        0x00 sb_magicnum: U32,
        0x04 sb_blocksize: U32,
        0x08 sb_dblocks: U64,
        0x10 sb_rblocks: U64,
        0x18 sb_rextents: U64,
        0x20 sb_uuid: [u8; 16],
        0x30 sb_logstart: U64,
        0x38 sb_rootino: U64,
        0x40 sb_rbmino: U64,
        0x48 sb_rsumino: U64,
        0x50 sb_rextsize: U32,
        0x54 sb_agblocks: U32,
        0x58 sb_agcount: U32,
        0x5c sb_rbmblocks: U32,
        0x60 sb_logblocks: U32,
        0x64 sb_versionnum: U16,
        0x66 sb_sectsize: U16,
        0x68 sb_inodesize: U16,
        0x6a sb_inopblock: U16,
        0x6c sb_fname: [u8; 12],
        0x78 sb_blocklog: u8,
        0x79 sb_sectlog: u8,
        0x7a sb_inodelog: u8,
        0x7b sb_inopblog: u8,
        0x7c sb_agblklog: u8,
        0x7d sb_rextslog: u8,
        0x7e sb_inprogress: u8,
        0x7f sb_imax_pct: u8,
        0x80 sb_icount: U64,
        0x88 sb_ifree: U64,
        0x90 sb_fdblocks: U64,
        0x98 sb_frextents: U64,
        0xa0 sb_uquotino: U64,
        0xa8 sb_gquotino: U64,
        0xb0 sb_qflags: U16,
        0xb2 sb_flags: u8,
        0xb3 sb_shared_vn: u8,
        0xb4 sb_inoalignmt: U32,
        0xb8 sb_unit: U32,
        0xbc sb_width: U32,
        0xc0 sb_dirblklog: u8,
        0xc1 sb_logsectlog: u8,
        0xc2 sb_logsectsize: U16,
        0xc4 sb_logsunit: U32,
        0xc8 sb_features2: U32,
        0xcc sb_bad_features2: U32,
        0xd0 sb_features_compat: U32,
        0xd4 sb_features_ro_compat: U32,
        0xd8 sb_features_incompat: U32,
        0xdc sb_features_log_incompat: U32,
        0xe0 sb_crc: U32,
        0xe4 sb_spino_align: U32,
        0xe8 sb_pquotino: U64,
        0xf0 sb_lsn: U64,
        0xf8 sb_meta_uuid: [u8; 16],
    }
}

disk_record! {
    /// The header of a group's free space, its second sector.
    Agf, 224 bytes {
        0x00 agf_magicnum: U32,
        0x04 agf_versionnum: U32,
        0x08 agf_seqno: U32,
        0x0c agf_length: U32,
        0x10 agf_bno_root: U32,
        0x14 agf_cnt_root: U32,
        0x18 agf_rmap_root: U32,
        0x1c agf_bno_level: U32,
        0x20 agf_cnt_level: U32,
        0x24 agf_rmap_level: U32,
        0x28 agf_flfirst: U32,
        0x2c agf_fllast: U32,
        0x30 agf_flcount: U32,
        0x34 agf_freeblks: U32,
        0x38 agf_longest: U32,
        0x3c agf_btreeblks: U32,
        0x40 agf_uuid: [u8; 16],
        0x50 agf_rmap_blocks: U32,
        0x54 agf_refcount_blocks: U32,
        0x58 agf_refcount_root: U32,
        0x5c agf_refcount_level: U32,
        0x60 agf_spare64: [U64; 14],
        0xd0 agf_lsn: U64,
        0xd8 agf_crc: U32,
        0xdc agf_spare2: U32,
    }
}

disk_record! {
    /// The header of a group's inodes, its third sector.
    Agi, 344 bytes {
        0x000 agi_magicnum: U32,
        0x004 agi_versionnum: U32,
        0x008 agi_seqno: U32,
        0x00c agi_length: U32,
        0x010 agi_count: U32,
        0x014 agi_root: U32,
        0x018 agi_level: U32,
        0x01c agi_freecount: U32,
        0x020 agi_newino: U32,
        0x024 agi_dirino: U32,
        0x028 agi_unlinked: [U32; 64],
        0x128 agi_uuid: [u8; 16],
        0x138 agi_crc: U32,
        0x13c agi_pad32: U32,
        0x140 agi_lsn: U64,
        0x148 agi_free_root: U32,
        0x14c agi_free_level: U32,
        0x150 agi_iblocks: U32,
        0x154 agi_fblocks: U32,
    }
}

disk_record! {
    /// The header of a group's free list, its fourth sector; block numbers fill the rest of the sector.
    Agfl, 36 bytes {
        0x00 agfl_magicnum: U32,
        0x04 agfl_seqno: U32,
        0x08 agfl_uuid: [u8; 16],
        0x18 agfl_lsn: U64,
        0x20 agfl_crc: U32,
    }
}

disk_record! {
    /// The header of a block of a tree whose pointers are block numbers of its group.
    ShortBlock, 56 bytes {
        0x00 bb_magic: U32,
        0x04 bb_level: U16,
        0x06 bb_numrecs: U16,
        0x08 bb_leftsib: U32,
        0x0c bb_rightsib: U32,
        0x10 bb_blkno: U64,
        0x18 bb_lsn: U64,
        0x20 bb_uuid: [u8; 16],
        0x30 bb_owner: U32,
        0x34 bb_crc: U32,
    }
}

disk_record! {
    /// A record of the trees of free space.
    AllocRecord, 8 bytes {
        0x00 ar_startblock: U32,
        0x04 ar_blockcount: U32,
    }
}

disk_record! {
    /// A record of the inode trees where chunks may have holes.
    SparseInodeRecord, 16 bytes {
        0x00 ir_startino: U32,
        0x04 ir_holemask: U16,
        0x06 ir_count: u8,
        0x07 ir_freecount: u8,
        0x08 ir_free: U64,
    }
}

disk_record! {
    /// A record of the inode trees where chunks are whole.
    InodeRecord, 16 bytes {
        0x00 ir_startino: U32,
        0x04 ir_freecount: U32,
        0x08 ir_free: U64,
    }
}

disk_record! {
    /// A record of the tree of owners.
    RmapRecord, 24 bytes {
        0x00 rm_startblock: U32,
        0x04 rm_blockcount: U32,
        0x08 rm_owner: U64,
        0x10 rm_offset: U64,
    }
}

disk_record! {
    /// The core of an inode of version 3; the forks follow.
    Dinode, 176 bytes {
        0x00 di_magic: U16,
        0x02 di_mode: U16,
        0x04 di_version: u8,
        0x05 di_format: u8,
        0x06 di_onlink: U16,
        0x08 di_uid: U32,
        0x0c di_gid: U32,
        0x10 di_nlink: U32,
        0x14 di_projid_lo: U16,
        0x16 di_projid_hi: U16,
        0x18 di_big_nextents: U64,
        0x20 di_atime: U64,
        0x28 di_mtime: U64,
        0x30 di_ctime: U64,
        0x38 di_size: U64,
        0x40 di_nblocks: U64,
        0x48 di_extsize: U32,
        0x4c di_nextents: U32,
        0x50 di_anextents: U16,
        0x52 di_forkoff: u8,
        0x53 di_aformat: u8,
        0x54 di_dmevmask: U32,
        0x58 di_dmstate: U16,
        0x5a di_flags: U16,
        0x5c di_gen: U32,
        0x60 di_next_unlinked: U32,
        0x64 di_crc: U32,
        0x68 di_changecount: U64,
        0x70 di_lsn: U64,
        0x78 di_flags2: U64,
        0x80 di_cowextsize: U32,
        0x84 di_pad2: [u8; 12],
        0x90 di_crtime: U64,
        0x98 di_ino: U64,
        0xa0 di_uuid: [u8; 16],
    }
}

disk_record! {
    /// The header of a record in the log.
    LogHeader, 328 bytes {
        0x000 h_magicno: U32,
        0x004 h_cycle: U32,
        0x008 h_version: U32,
        0x00c h_len: U32,
        0x010 h_lsn: U64,
        0x018 h_tail_lsn: U64,
        0x020 h_crc: U32,
        0x024 h_prev_block: U32,
        0x028 h_num_logops: U32,
        0x02c h_cycle_data: [U32; 64],
        0x12c h_fmt: U32,
        0x130 h_fs_uuid: [u8; 16],
        0x140 h_size: U32,
        0x144 h_pad: U32,
    }
}
