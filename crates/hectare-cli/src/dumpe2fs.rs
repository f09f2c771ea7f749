//! The fields of a superblock and a journal's superblock, under the names and in the order of `dumpe2fs -h`.
//!
//! The raw record is read, not the validated one, so that a volume that can't be opened can still be
//! inspected.

use crate::clock;
use crate::name::shown;
use crate::passwd;
use hectare_engine::Timestamp;
use hectare_ext4::feature::{Compat, Features, Incompat, RoCompat};
use hectare_ext4::raw::SuperBlock;
use hectare_journal::format::{
    BlockType, CHECKSUM_CRC32C, FAST_COMMIT_BLOCKS_DEFAULT, JournalCompat, JournalIncompat, MAGIC,
    RawSuperblock,
};
use hectare_units::hex;
use hectare_units::join32;
use zerocopy::FromBytes;
use zerocopy::big_endian::U32;

/// Name and value, in order.
pub(crate) type Fields = Vec<(&'static str, String)>;

/// `s_default_mount_opts`: name of each bit, the journal modes (two bits together) first.
const MOUNT_OPTIONS: [(u32, u32, &str); 12] = [
    (0x60, 0x20, "journal_data"),
    (0x60, 0x40, "journal_data_ordered"),
    (0x60, 0x60, "journal_data_writeback"),
    (0x1, 0x1, "debug"),
    (0x2, 0x2, "bsdgroups"),
    (0x4, 0x4, "user_xattr"),
    (0x8, 0x8, "acl"),
    (0x10, 0x10, "uid16"),
    (0x100, 0x100, "nobarrier"),
    (0x200, 0x200, "block_validity"),
    (0x400, 0x400, "discard"),
    (0x800, 0x800, "nodelalloc"),
];

/// The features as text.
pub(crate) fn features(raw: &SuperBlock) -> Features {
    if raw.s_rev_level.get() == 0 {
        return Features::default();
    }
    Features {
        compat: Compat::from_bits_retain(raw.s_feature_compat.get()),
        incompat: Incompat::from_bits_retain(raw.s_feature_incompat.get()),
        ro_compat: RoCompat::from_bits_retain(raw.s_feature_ro_compat.get()),
    }
}

/// The fields of a superblock.
pub(crate) fn fields(raw: &SuperBlock) -> Fields {
    let mut fields = Fields::new();
    identity(raw, &mut fields);
    counts(raw, &mut fields);
    history(raw, &mut fields);
    inodes_and_journal(raw, &mut fields);
    errors(raw, &mut fields);
    special_inodes(raw, &mut fields);
    fields
}

fn identity(raw: &SuperBlock, fields: &mut Fields) {
    let features = features(raw);
    fields.push(("Filesystem volume name", text_or(&raw.s_volume_name, "<none>")));
    fields.push(("Last mounted on", text_or(&raw.s_last_mounted, "<not available>")));
    fields.push(("Filesystem UUID", uuid_text(&raw.s_uuid).unwrap_or_else(|| "<none>".to_owned())));
    fields.push(("Filesystem magic number", format!("0x{:04X}", raw.s_magic.get())));
    let revision = match raw.s_rev_level.get() {
        0 => "0 (original)".to_owned(),
        1 => "1 (dynamic)".to_owned(),
        n => format!("{n} (unknown)"),
    };
    fields.push(("Filesystem revision #", revision));
    fields.push(("Filesystem features", or_none(&features.names().join(" "))));
    let flags: Vec<&str> =
        [(1, "signed_directory_hash"), (2, "unsigned_directory_hash"), (4, "test_filesystem")]
            .into_iter()
            .filter(|(bit, _)| raw.s_flags.get() & bit != 0)
            .map(|(_, name)| name)
            .collect();
    if raw.s_flags.get() != 0 {
        fields.push(("Filesystem flags", flags.join(" ")));
    }
    let options = raw.s_default_mount_opts.get();
    let options: Vec<&str> = MOUNT_OPTIONS
        .iter()
        .filter(|(mask, value, _)| options & mask == *value)
        .map(|(.., name)| *name)
        .collect();
    fields.push(("Default mount options", or_none(&options.join(" "))));
    if raw.s_mount_opts[0] != 0 {
        fields.push(("Mount options", text_or(&raw.s_mount_opts, "")));
    }
    let state = raw.s_state.get();
    let clean = if state & 1 != 0 { "clean" } else { "not clean" };
    let errors = if state & 2 != 0 { " with errors" } else { "" };
    fields.push(("Filesystem state", format!("{clean}{errors}")));
    let behavior = match raw.s_errors.get() {
        1 => "Continue",
        2 => "Remount read-only",
        3 => "Panic",
        _ => "Unknown (continue)",
    };
    fields.push(("Errors behavior", behavior.to_owned()));
    let system = match raw.s_creator_os.get() {
        0 => "Linux",
        1 => "Hurd",
        2 => "Masix",
        3 => "FreeBSD",
        4 => "Lites",
        _ => "(unknown os)",
    };
    fields.push(("Filesystem OS type", system.to_owned()));
}

fn counts(raw: &SuperBlock, fields: &mut Fields) {
    let features = features(raw);
    let wide = features.incompat.contains(Incompat::BIT64);
    let blocks = |lo: u32, hi: u32| join32(lo, if wide { hi } else { 0 }).to_string();
    let mut number = |name, value: u32| fields.push((name, value.to_string()));
    number("Inode count", raw.s_inodes_count.get());
    let total = blocks(raw.s_blocks_count_lo.get(), raw.s_blocks_count_hi.get());
    let reserved = blocks(raw.s_r_blocks_count_lo.get(), raw.s_r_blocks_count_hi.get());
    let free = blocks(raw.s_free_blocks_count_lo.get(), raw.s_free_blocks_count_hi.get());
    fields.push(("Block count", total));
    fields.push(("Reserved block count", reserved));
    if raw.s_overhead_clusters.get() != 0 {
        fields.push(("Overhead clusters", raw.s_overhead_clusters.get().to_string()));
    }
    fields.push(("Free blocks", free));
    let mut number = |name, value: u32| fields.push((name, value.to_string()));
    number("Free inodes", raw.s_free_inodes_count.get());
    number("First block", raw.s_first_data_block.get());
    let size = |log: u32| 1024u32.checked_shl(log).unwrap_or(0);
    let block_size = size(raw.s_log_block_size.get());
    number("Block size", block_size);
    let bigalloc = features.ro_compat.contains(RoCompat::BIGALLOC);
    number(if bigalloc { "Cluster size" } else { "Fragment size" }, size(raw.s_log_cluster_size.get()));
    if wide {
        number("Group descriptor size", raw.s_desc_size.get().into());
    }
    if raw.s_reserved_gdt_blocks.get() != 0 {
        number("Reserved GDT blocks", raw.s_reserved_gdt_blocks.get().into());
    }
    number("Blocks per group", raw.s_blocks_per_group.get());
    number(
        if bigalloc { "Clusters per group" } else { "Fragments per group" },
        raw.s_clusters_per_group.get(),
    );
    number("Inodes per group", raw.s_inodes_per_group.get());
    let inode_size = if raw.s_rev_level.get() == 0 { 128 } else { u32::from(raw.s_inode_size.get()) };
    let table = u64::from(raw.s_inodes_per_group.get()) * u64::from(inode_size);
    let table = (table + u64::from(block_size)).saturating_sub(1).checked_div(block_size.into()).unwrap_or(0);
    fields.push(("Inode blocks per group", table.to_string()));
    let mut optional = |name, value: u32| {
        if value != 0 {
            fields.push((name, value.to_string()));
        }
    };
    optional("First meta block group", raw.s_first_meta_bg.get());
    optional("RAID stride", raw.s_raid_stride.get().into());
    optional("RAID stripe width", raw.s_raid_stripe_width.get());
    if raw.s_log_groups_per_flex != 0 {
        optional("Flex block group size", 1u32.checked_shl(raw.s_log_groups_per_flex.into()).unwrap_or(0));
    }
}

fn history(raw: &SuperBlock, fields: &mut Fields) {
    let time = |lo: u32, hi: u8| clock::long(moment(lo, hi));
    if raw.s_mkfs_time.get() != 0 {
        fields.push(("Filesystem created", time(raw.s_mkfs_time.get(), raw.s_mkfs_time_hi)));
    }
    let mounted = match raw.s_mtime.get() {
        0 => "n/a".to_owned(),
        lo => time(lo, raw.s_mtime_hi),
    };
    fields.push(("Last mount time", mounted));
    fields.push(("Last write time", time(raw.s_wtime.get(), raw.s_wtime_hi)));
    fields.push(("Mount count", raw.s_mnt_count.get().to_string()));
    fields.push(("Maximum mount count", raw.s_max_mnt_count.get().cast_signed().to_string()));
    fields.push(("Last checked", time(raw.s_lastcheck.get(), raw.s_lastcheck_hi)));
    let interval = raw.s_checkinterval.get();
    fields.push(("Check interval", format!("{interval} ({})", interval_text(interval))));
    if interval != 0 {
        let next = moment(raw.s_lastcheck.get(), raw.s_lastcheck_hi).seconds + i64::from(interval);
        fields.push(("Next check after", clock::long(Timestamp::from_seconds(next))));
    }
    if raw.s_kbytes_written.get() != 0 {
        fields.push(("Lifetime writes", written_text(raw.s_kbytes_written.get())));
    }
    let (uid, gid) = (raw.s_def_resuid.get().into(), raw.s_def_resgid.get().into());
    let user = passwd::user_name(uid).map_or("user unknown".to_owned(), |name| format!("user {name}"));
    let group = passwd::group_name(gid).map_or("group unknown".to_owned(), |name| format!("group {name}"));
    fields.push(("Reserved blocks uid", format!("{uid} ({user})")));
    fields.push(("Reserved blocks gid", format!("{gid} ({group})")));
}

fn inodes_and_journal(raw: &SuperBlock, fields: &mut Fields) {
    if raw.s_rev_level.get() >= 1 {
        fields.push(("First inode", raw.s_first_ino.get().to_string()));
        fields.push(("Inode size", raw.s_inode_size.get().to_string()));
        if raw.s_min_extra_isize.get() != 0 {
            fields.push(("Required extra isize", raw.s_min_extra_isize.get().to_string()));
        }
        if raw.s_want_extra_isize.get() != 0 {
            fields.push(("Desired extra isize", raw.s_want_extra_isize.get().to_string()));
        }
    }
    if let Some(uuid) = uuid_text(&raw.s_journal_uuid) {
        fields.push(("Journal UUID", uuid));
    }
    if raw.s_journal_inum.get() != 0 {
        fields.push(("Journal inode", raw.s_journal_inum.get().to_string()));
    }
    if raw.s_journal_dev.get() != 0 {
        fields.push(("Journal device", format!("0x{:04x}", raw.s_journal_dev.get())));
    }
    if raw.s_last_orphan.get() != 0 {
        fields.push(("First orphan inode", raw.s_last_orphan.get().to_string()));
    }
    if features(raw).compat.contains(Compat::DIR_INDEX) || raw.s_def_hash_version != 0 {
        fields.push(("Default directory hash", hash_text(raw.s_def_hash_version)));
    }
    if let Some(seed) = uuid_text(&raw.s_hash_seed) {
        fields.push(("Directory Hash Seed", seed));
    }
    match raw.s_jnl_backup_type {
        0 => {}
        1 => fields.push(("Journal backup", "inode blocks".to_owned())),
        n => fields.push(("Journal backup", format!("type {n}"))),
    }
    let backups = raw.s_backup_bgs.map(|group| group.get());
    if backups != [0, 0] {
        let backups: Vec<String> = backups.iter().filter(|group| **group != 0).map(u32::to_string).collect();
        fields.push(("Backup block groups", backups.join(" ")));
    }
}

fn errors(raw: &SuperBlock, fields: &mut Fields) {
    if raw.s_error_count.get() != 0 {
        fields.push(("FS Error count", raw.s_error_count.get().to_string()));
    }
    let first = Fault {
        names: [
            "First error time",
            "First error function",
            "First error line #",
            "First error inode #",
            "First error block #",
            "First error err",
        ],
        time: (raw.s_first_error_time.get(), raw.s_first_error_time_hi),
        function: &raw.s_first_error_func,
        line: raw.s_first_error_line.get(),
        inode: raw.s_first_error_ino.get(),
        block: raw.s_first_error_block.get(),
        code: raw.s_first_error_errcode,
    };
    let last = Fault {
        names: [
            "Last error time",
            "Last error function",
            "Last error line #",
            "Last error inode #",
            "Last error block #",
            "Last error err",
        ],
        time: (raw.s_last_error_time.get(), raw.s_last_error_time_hi),
        function: &raw.s_last_error_func,
        line: raw.s_last_error_line.get(),
        inode: raw.s_last_error_ino.get(),
        block: raw.s_last_error_block.get(),
        code: raw.s_last_error_errcode,
    };
    for fault in [first, last] {
        fault.push(fields);
    }
}

/// The first or the last error the kernel noted.
struct Fault<'a> {
    names: [&'static str; 6],
    time: (u32, u8),
    function: &'a [u8],
    line: u32,
    inode: u32,
    block: u64,
    code: u8,
}

impl Fault<'_> {
    fn push(&self, fields: &mut Fields) {
        if self.time.0 == 0 {
            return;
        }
        let [time, function, line, inode, block, code] = self.names;
        fields.push((time, clock::long(moment(self.time.0, self.time.1))));
        fields.push((function, text_or(self.function, "")));
        fields.push((line, self.line.to_string()));
        if self.inode != 0 {
            fields.push((inode, self.inode.to_string()));
        }
        if self.block != 0 {
            fields.push((block, self.block.to_string()));
        }
        if self.code != 0 {
            fields.push((code, error_text(self.code)));
        }
    }
}

/// `s_first_error_errcode`: the numbers that the format gives to errors of the kernel.
fn error_text(code: u8) -> String {
    const NAMES: [&str; 17] = [
        "UNKNOWN",
        "EIO",
        "ENOMEM",
        "EFSBADCRC",
        "EFSCORRUPTED",
        "ENOSPC",
        "ENOKEY",
        "EROFS",
        "EFBIG",
        "EEXIST",
        "ERANGE",
        "EOVERFLOW",
        "EBUSY",
        "ENOTDIR",
        "ENOTEMPTY",
        "ESHUTDOWN",
        "EFAULT",
    ];
    let name = usize::from(code).checked_sub(1).and_then(|index| NAMES.get(index));
    name.map_or_else(|| format!("UNKNOWN_ERRCODE_{code}"), |name| (*name).to_owned())
}

fn special_inodes(raw: &SuperBlock, fields: &mut Fields) {
    let features = features(raw);
    if features.incompat.contains(Incompat::MMP) {
        fields.push(("MMP block number", raw.s_mmp_block.get().to_string()));
        fields.push(("MMP update interval", raw.s_mmp_update_interval.get().to_string()));
    }
    let mut inode = |name, value: u32| {
        if value != 0 {
            fields.push((name, value.to_string()));
        }
    };
    inode("User quota inode", raw.s_usr_quota_inum.get());
    inode("Group quota inode", raw.s_grp_quota_inum.get());
    inode("Project quota inode", raw.s_prj_quota_inum.get());
    if features.metadata_csum() {
        let kind = if raw.s_checksum_type == 1 { "crc32c".to_owned() } else { "unknown".to_owned() };
        fields.push(("Checksum type", kind));
        fields.push(("Checksum", format!("0x{:08x}", raw.s_checksum.get())));
    }
    if let Some(salt) = uuid_text(&raw.s_encrypt_pw_salt) {
        fields.push(("Encryption PW Salt", salt));
    }
    if features.incompat.contains(Incompat::CSUM_SEED) {
        fields.push(("Checksum seed", format!("0x{:08x}", raw.s_checksum_seed.get())));
    }
    if features.incompat.contains(Incompat::CASEFOLD) {
        let encoding = match raw.s_encoding.get() {
            1 => "utf8-12.1".to_owned(),
            n => format!("UNKNOWN_ENCODING_{n}"),
        };
        fields.push(("Character encoding", encoding));
    }
    if features.compat.contains(Compat::ORPHAN_FILE) {
        fields.push(("Orphan file inode", raw.s_orphan_file_inum.get().to_string()));
    }
}

/// The fields of a journal's superblock, whatever its state; `None` if the bytes are none.
pub(crate) fn journal_fields(bytes: &[u8]) -> Option<Fields> {
    let (raw, _) = RawSuperblock::read_from_prefix(bytes).ok()?;
    let kinds = [BlockType::SuperblockV1, BlockType::SuperblockV2].map(BlockType::code);
    if raw.h_magic.get() != MAGIC || !kinds.contains(&raw.h_blocktype.get()) {
        return None;
    }
    let is_v2 = raw.h_blocktype.get() == BlockType::SuperblockV2.code();
    let feature = |field: U32| if is_v2 { field.get() } else { 0 };
    let compat = JournalCompat::from_bits_retain(feature(raw.s_feature_compat));
    let incompat = JournalIncompat::from_bits_retain(feature(raw.s_feature_incompat));
    let mut fields = Fields::new();
    fields.push(("Journal features", or_none(&journal_features(compat.bits(), incompat.bits()))));
    let blocks = raw.s_maxlen.get();
    let kib = u64::from(raw.s_blocksize.get()) * u64::from(blocks) / 1024;
    let size = if kib < 8192 { format!("{kib}k") } else { format!("{}M", kib >> 10) };
    fields.push(("Total journal size", size));
    fields.push(("Total journal blocks", blocks.to_string()));
    let fast = match (incompat.contains(JournalIncompat::FAST_COMMIT), raw.s_num_fc_blks.get()) {
        (true, 0) => FAST_COMMIT_BLOCKS_DEFAULT,
        (_, n) => n,
    };
    fields.push(("Max transaction length", blocks.saturating_sub(fast).to_string()));
    fields.push(("Fast commit length", fast.to_string()));
    if raw.s_first.get() != 1 {
        fields.push(("Journal first block", raw.s_first.to_string()));
    }
    fields.push(("Journal sequence", format!("0x{:08x}", raw.s_sequence.get())));
    fields.push(("Journal start", raw.s_start.to_string()));
    if is_v2 && raw.s_nr_users.get() != 1 {
        fields.push(("Journal number of users", raw.s_nr_users.to_string()));
    }
    if incompat.intersects(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3) {
        let kind = if raw.s_checksum_type == CHECKSUM_CRC32C { "crc32c" } else { "unknown" };
        fields.push(("Journal checksum type", kind.to_owned()));
        fields.push(("Journal checksum", format!("0x{:08x}", raw.s_checksum.get())));
    }
    if raw.s_errno.get() != 0 {
        fields.push(("Journal errno", raw.s_errno.to_string()));
    }
    Some(fields)
}

fn journal_features(compat: u32, incompat: u32) -> String {
    const INCOMPAT: [&str; 5] = [
        "journal_incompat_revoke",
        "journal_64bit",
        "journal_async_commit",
        "journal_checksum_v2",
        "journal_checksum_v3",
    ];
    let mut names = Vec::new();
    for bit in (0..32u8).filter(|bit| compat >> bit & 1 == 1) {
        names.push(if bit == 0 { "journal_checksum".to_owned() } else { format!("FEATURE_C{bit}") });
    }
    for bit in (0..32u8).filter(|bit| incompat >> bit & 1 == 1) {
        let known = INCOMPAT.get(usize::from(bit));
        names.push(known.map_or_else(|| format!("FEATURE_I{bit}"), |name| (*name).to_owned()));
    }
    names.join(" ")
}

fn moment(lo: u32, hi: u8) -> Timestamp {
    Timestamp::from_seconds(i64::from(lo) | i64::from(hi) << 32)
}

fn or_none(text: &str) -> String {
    if text.is_empty() { "(none)".to_owned() } else { text.to_owned() }
}

/// The text up to the first NUL, or a substitute where there is none.
fn text_or(bytes: &[u8], substitute: &str) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    if end == 0 { substitute.to_owned() } else { shown(&bytes[..end]) }
}

/// A UUID, or `None` for zeros.
pub(crate) fn uuid_text(uuid: &[u8; 16]) -> Option<String> {
    if *uuid == [0; 16] {
        return None;
    }
    let digits = hex(uuid);
    Some(format!(
        "{}-{}-{}-{}-{}",
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..]
    ))
}

fn hash_text(version: u8) -> String {
    match version {
        0 => "legacy".to_owned(),
        1 => "half_md4".to_owned(),
        2 => "tea".to_owned(),
        3 => "legacy_unsigned".to_owned(),
        4 => "half_md4_unsigned".to_owned(),
        5 => "tea_unsigned".to_owned(),
        6 => "siphash".to_owned(),
        n => format!("HASHALG_{n}"),
    }
}

/// Months of 30 days, weeks and days, and the rest as hours, minutes and seconds.
fn interval_text(seconds: u32) -> String {
    const UNITS: [(u32, &str); 3] = [(2_592_000, "month"), (604_800, "week"), (86_400, "day")];
    let mut parts = Vec::new();
    let mut rest = seconds;
    for (unit, name) in UNITS {
        let n = rest / unit;
        rest %= unit;
        if n > 0 {
            parts.push(format!("{n} {name}{}", if n == 1 { "" } else { "s" }));
        }
    }
    if rest > 0 {
        parts.push(format!("{}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60));
    }
    if parts.is_empty() { "<none>".to_owned() } else { parts.join(", ") }
}

/// KiB rounded to the unit that gives one to four digits.
fn written_text(kib: u64) -> String {
    let rounded = |shift: u32| kib.saturating_add(1 << (shift - 1)) >> shift;
    match kib {
        n if n < 1 << 13 => format!("{kib} kB"),
        n if n < 1 << 23 => format!("{} MB", rounded(10)),
        n if n < 1 << 33 => format!("{} GB", rounded(20)),
        n if n < 1 << 43 => format!("{} TB", rounded(30)),
        _ => format!("{} PB", rounded(40)),
    }
}
