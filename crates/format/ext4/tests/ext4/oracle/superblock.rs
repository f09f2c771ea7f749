//! Every field of the superblock that dumpe2fs prints.

use crate::oracle::volume::Volume;
use hectare_ext4::feature::{Compat, Incompat, RoCompat};
use hectare_ext4::raw;
use hectare_ext4::superblock::{SIZE, STATE_VALID, SuperBlock};
use hectare_oracle::e2fsprogs::Dump;
use hectare_units::{Bytes, GroupNr};

pub(crate) fn check(volume: &Volume, dump: &Dump, name: &str) {
    for (field, value) in fields(&volume.sb) {
        assert_eq!(dump.fields.get(field).cloned(), value, "{name}: {field}");
    }
    let own = volume.read(1024, SIZE);
    assert!(
        volume.sb.render(GroupNr::new(0)).as_slice() == own,
        "{name}: the superblock renders differently"
    );
    assert_eq!(volume.sb.state(), STATE_VALID, "{name}");
    let unnamed = raw::SuperBlock::FIELDS.iter().find(|field| field.size == 0);
    assert_eq!(unnamed, None);
}

/// On a new volume the backups differ from the primary copy by their group number and state alone.
pub(crate) fn check_backups(volume: &Volume, name: &str) {
    let geometry = volume.sb.geometry();
    let mut count = 0;
    for group in volume.groups().filter(|group| geometry.has_super(*group)) {
        let at = if group.get() == 0 { 1024 } else { volume.offset(geometry.super_block(group)) };
        let bytes = volume.read(at, SIZE);
        let backup = SuperBlock::parse(&bytes, Bytes::new(u64::MAX)).unwrap();
        assert!(
            backup.render(group).as_slice() == bytes,
            "{name}: the copy in group {group} renders differently"
        );
        let mut primary = volume.sb.clone();
        primary.set_state(backup.state());
        let ours = primary.render(group);
        let differing = raw::SuperBlock::FIELDS.iter().filter(|field| {
            let range = field.offset..field.offset + field.size;
            ours[range.clone()] != bytes[range]
        });
        let differing: Vec<&str> = differing.map(|field| field.name).collect();
        assert!(differing.is_empty(), "{name}: the copy in group {group} differs in {differing:?}");
        assert_eq!(backup.geometry(), geometry, "{name}");
        count += 1;
    }
    let few = geometry.features.compat.contains(Compat::SPARSE_SUPER2);
    assert!(count >= geometry.groups().min(2) || few, "{name}: {count} superblocks");
}

fn text(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}

fn nonzero(value: impl Into<u64>) -> Option<String> {
    Some(value.into()).filter(|value| *value != 0).map(|value| value.to_string())
}

fn uuid(bytes: &[u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// What dumpe2fs prints under each name; `None` where it prints no such line.
fn fields(sb: &SuperBlock) -> Vec<(&'static str, Option<String>)> {
    let mut fields = identity(sb);
    fields.extend(shape(sb));
    fields.extend(special(sb));
    fields
}

fn identity(sb: &SuperBlock) -> Vec<(&'static str, Option<String>)> {
    let raw = sb.raw();
    let revision = if raw.s_rev_level.get() == 0 { "0 (original)" } else { "1 (dynamic)" };
    let features = sb.features().to_string();
    vec![
        ("Filesystem volume name", text(if sb.label().is_empty() { "<none>" } else { "?" })),
        ("Filesystem UUID", text(uuid(&sb.uuid()))),
        ("Filesystem magic number", text(format!("{:#06X}", raw.s_magic.get()).replace("0X", "0x"))),
        ("Filesystem revision #", text(revision)),
        ("Filesystem features", text(if features.is_empty() { "(none)".into() } else { features })),
        ("Mount count", text(raw.s_mnt_count.get())),
        ("Maximum mount count", text(raw.s_max_mnt_count.get().cast_signed())),
        ("Reserved blocks uid", text(format!("{} (user root)", raw.s_def_resuid.get()))),
        ("Reserved blocks gid", text(format!("{} (group root)", raw.s_def_resgid.get()))),
        ("Lifetime writes", Some(raw.s_kbytes_written.get()).filter(|kib| *kib != 0).map(lifetime)),
        ("Checksum type", sb.features().metadata_csum().then(|| "crc32c".into())),
        ("Checksum", sb.features().metadata_csum().then(|| format!("{:#010x}", raw.s_checksum.get()))),
        (
            "Checksum seed",
            sb.features()
                .incompat
                .contains(Incompat::CSUM_SEED)
                .then(|| format!("{:#010x}", sb.seed().unwrap().get())),
        ),
    ]
}

/// A count of KiB as dumpe2fs abbreviates it.
fn lifetime(kib: u64) -> String {
    if kib < 8192 { format!("{kib} kB") } else { format!("{} MB", (kib + 512) / 1024) }
}

fn shape(sb: &SuperBlock) -> Vec<(&'static str, Option<String>)> {
    let (raw, geometry) = (sb.raw(), sb.geometry());
    let bigalloc = geometry.features.ro_compat.contains(RoCompat::BIGALLOC);
    let flex = geometry.features.incompat.contains(Incompat::FLEX_BG);
    let wide = geometry.features.incompat.contains(Incompat::BIT64);
    let dynamic = raw.s_rev_level.get() > 0;
    let cluster = u64::from(geometry.block_size.get()) << geometry.cluster_ratio_shift;
    vec![
        ("Inode count", text(geometry.inodes_count())),
        ("Block count", text(geometry.blocks_count)),
        ("Reserved block count", text(sb.reserved_blocks())),
        ("Overhead clusters", nonzero(raw.s_overhead_clusters.get())),
        ("Free blocks", text(sb.free_blocks())),
        ("Free inodes", text(raw.s_free_inodes_count.get())),
        ("First block", text(geometry.first_data_block)),
        ("Block size", text(geometry.block_size)),
        ("Fragment size", text(cluster).filter(|_| !bigalloc)),
        ("Cluster size", text(cluster).filter(|_| bigalloc)),
        ("Group descriptor size", text(geometry.desc_size).filter(|_| wide)),
        ("Reserved GDT blocks", nonzero(geometry.reserved_gdt_blocks)),
        ("First meta block group", nonzero(geometry.first_meta_bg)),
        ("Blocks per group", text(geometry.blocks_per_group())),
        ("Fragments per group", text(geometry.clusters_per_group).filter(|_| !bigalloc)),
        ("Clusters per group", text(geometry.clusters_per_group).filter(|_| bigalloc)),
        ("Inodes per group", text(geometry.inodes_per_group)),
        ("Inode blocks per group", text(geometry.itable_blocks())),
        ("Flex block group size", text(geometry.flex_groups()).filter(|_| flex && geometry.flex_shift > 0)),
        ("RAID stride", nonzero(raw.s_raid_stride.get())),
        ("RAID stripe width", nonzero(raw.s_raid_stripe_width.get())),
        ("First inode", text(sb.first_inode()).filter(|_| dynamic)),
        ("Inode size", text(geometry.inode_size).filter(|_| dynamic)),
        ("Required extra isize", nonzero(raw.s_min_extra_isize.get())),
        ("Desired extra isize", nonzero(raw.s_want_extra_isize.get())),
    ]
}

fn special(sb: &SuperBlock) -> Vec<(&'static str, Option<String>)> {
    let raw = sb.raw();
    let signed = if sb.signed_hash() { "signed_directory_hash" } else { "unsigned_directory_hash" };
    let mmp = sb.features().incompat.contains(Incompat::MMP);
    let seed: [u8; 16] = raw.s_hash_seed;
    let words = sb.hash_seed();
    assert_eq!(words.map(u32::to_le_bytes).concat(), seed);
    let hash = ["legacy", "half_md4", "tea"][usize::from(raw.s_def_hash_version)];
    vec![
        ("Filesystem flags", text(signed).filter(|_| raw.s_flags.get() != 0)),
        ("Journal inode", nonzero(sb.journal_inode().map_or(0, hectare_units::InodeNr::get))),
        ("First orphan inode", nonzero(sb.last_orphan().map_or(0, hectare_units::InodeNr::get))),
        ("Directory Hash Seed", Some(uuid(&seed)).filter(|_| seed != [0; 16])),
        ("Default directory hash", text(hash).filter(|_| raw.s_def_hash_version > 0)),
        ("MMP block number", nonzero(raw.s_mmp_block.get()).filter(|_| mmp)),
        ("MMP update interval", nonzero(raw.s_mmp_update_interval.get()).filter(|_| mmp)),
        ("User quota inode", nonzero(raw.s_usr_quota_inum.get())),
        ("Group quota inode", nonzero(raw.s_grp_quota_inum.get())),
        ("Project quota inode", nonzero(raw.s_prj_quota_inum.get())),
        ("Orphan file inode", nonzero(raw.s_orphan_file_inum.get())),
    ]
}
