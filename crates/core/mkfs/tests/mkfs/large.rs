//! Plans of ext4 volumes too large for mke2fs's shapes, walked without writing; and those that are small
//! enough, judged by e2fsck and the kernel.

use crate::common::{folder, format, options};
use hectare_device::{Device, SparseDevice};
use hectare_ext4::feature::{Compat, Incompat, RoCompat};
use hectare_ext4::group::{GroupDesc, GroupFlags};
use hectare_ext4::superblock::SuperBlock;
use hectare_mkfs::{Counts, Error, FormatOptions, Payload, Plan, Write, capacity, execute};
use hectare_oracle::hunt::is_long;
use hectare_oracle::{KernelMount, assert_clean, dumpe2fs_superblock, skip, skip_part};
use hectare_units::{BlockNr, Blocks, Bytes, GroupNr, usize_of};
use std::collections::HashMap;

const TIB: u64 = 1 << 40;
const PIB: u64 = 1 << 50;
const EIB: u64 = 1 << 60;

fn args(text: &str) -> FormatOptions {
    options(&text.split_whitespace().collect::<Vec<_>>()).unwrap()
}

/// The sizes that are walked, with what is chosen for each: bytes of a block, bytes of a cluster.
const WALKED: &[(u64, &str, u32, u64)] = &[
    (PIB, "-t ext4", 4096, 32 << 10),
    (10_000_000_000_000_000, "-t ext4", 4096, 512 << 10),
    (EIB, "-t ext4", 4096, 32 << 20),
    (EIB, "-t ext4 -b 65536", 65536, 16 << 20),
    (8 * EIB - 4096, "-t ext4", 32768, 128 << 20),
];

/// What a walk has seen of the writes of a chunk.
struct Seen {
    blocks: HashMap<u64, Vec<u8>>,
    end: Bytes,
}

impl Seen {
    fn take(&mut self, write: Write, plan: &Plan) {
        let (geometry, len) = (plan.geometry(), write.len());
        assert!(write.at.get() >= 1024 && write.at + len <= geometry.bytes(), "it lies inside the volume");
        self.end = self.end.max(write.at + len);
        let Payload::Bytes(bytes) = write.payload else { return };
        let size = geometry.block_size.len();
        if bytes.len().is_multiple_of(size) {
            for (nr, block) in (write.at.get() >> geometry.block_size.shift()..).zip(bytes.chunks(size)) {
                assert!(self.blocks.insert(nr, block.to_vec()).is_none(), "block {nr} is written twice");
            }
        }
    }

    fn block(&self, nr: BlockNr) -> &[u8] {
        self.blocks.get(&nr.get()).unwrap_or_else(|| panic!("block {nr} is not written"))
    }
}

/// How many of the first bits are not set; counted in bytes, for a walk sees billions.
fn zeros_in(bitmap: &[u8], bits: u32) -> u32 {
    let (whole, rest) = bitmap.split_at(usize_of(bits / 8));
    let rest = (0..bits % 8).filter(|bit| rest[0] >> bit & 1 == 0).count();
    whole.iter().map(|byte| byte.count_zeros()).sum::<u32>() + u32::try_from(rest).unwrap()
}

/// Checks one group against its descriptor, and returns its counts.
fn check_group(plan: &Plan, group: GroupNr, desc: &GroupDesc, seen: &Seen) -> (u64, u64) {
    let (sb, geometry) = (plan.superblock(), plan.geometry());
    let clusters = geometry.clusters_in(group);
    if desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
        assert!(!seen.blocks.contains_key(&desc.block_bitmap.get()));
        let base = geometry.base_meta_blocks(group).div_ceil(geometry.cluster_blocks());
        assert_eq!(desc.free_clusters, clusters - base, "group {group}");
    } else {
        let bitmap = seen.block(desc.block_bitmap);
        desc.verify_block_bitmap(bitmap, group, sb).unwrap();
        assert_eq!(zeros_in(bitmap, clusters), desc.free_clusters, "group {group}");
    }
    if desc.flags.contains(GroupFlags::INODE_UNINIT) {
        assert_eq!(desc.free_inodes, geometry.inodes_per_group);
    } else {
        let bitmap = seen.block(desc.inode_bitmap);
        desc.verify_inode_bitmap(bitmap, group, sb).unwrap();
        assert_eq!(zeros_in(bitmap, geometry.inodes_per_group), desc.free_inodes, "group {group}");
    }
    (desc.free_clusters.into(), desc.free_inodes.into())
}

/// Walks the whole plan, group by group, and gives the counts.
fn walk_plan(plan: &Plan) -> Counts {
    let (geometry, empty, mut counts) = (plan.geometry(), plan.empty(), Counts::default());
    let mut next = 0;
    for chunk in 0..plan.chunks() {
        let mut seen = Seen { blocks: HashMap::new(), end: Bytes::ZERO };
        let rendered = plan
            .render(chunk, &empty, &mut |write| {
                seen.take(write, plan);
                Ok(())
            })
            .unwrap();
        assert_eq!(rendered.first, next);
        let (mut free_clusters, mut free_inodes) = (0, 0);
        for slot in rendered.descriptors.chunks(usize_of(geometry.desc_size)) {
            let group = GroupNr::new(next);
            let desc = GroupDesc::parse(slot, group, plan.superblock()).unwrap();
            let (clusters, inodes) = check_group(plan, group, &desc, &seen);
            (free_clusters, free_inodes, next) = (free_clusters + clusters, free_inodes + inodes, next + 1);
        }
        assert_eq!(
            (free_clusters, free_inodes),
            (rendered.counts.free_clusters, rendered.counts.free_inodes)
        );
        counts += rendered.counts;
    }
    assert_eq!(next, geometry.groups());
    counts
}

#[test]
fn the_largest_volumes_are_planned() {
    for (size, shape, block, cluster) in WALKED {
        let what = format!("{size} {shape}");
        let plan = Plan::new(&args(shape), Bytes::new(*size), true).unwrap();
        let geometry = plan.geometry();
        assert_eq!((geometry.block_size.get(), geometry.cluster_bytes()), (*block, *cluster), "{what}");
        assert!(geometry.groups() < 1_100_000, "{what}: {} groups", geometry.groups());
        assert!(geometry.features.incompat.contains(Incompat::META_BG), "{what}");
        let used = size - geometry.bytes().get();
        // Less than a cluster, or a whole one where its last block can't be numbered.
        assert!(used <= *cluster, "{what}: {used} bytes are left over");
        let counts = walk_plan(&plan);
        // Everything is free, the groups' metadata, or the formatter's own.
        let own = capacity(&args(shape), Bytes::new(*size)).unwrap();
        assert_eq!(own.free_blocks.get(), counts.free_clusters << geometry.cluster_ratio_shift, "{what}");
        let taken = geometry.clusters_count().get() - counts.free_clusters - counts.metadata_clusters;
        let journal = (1_u64 << 30) / cluster;
        assert!((journal..journal + 4200).contains(&taken), "{what}: {taken} clusters of own files");
        assert_eq!(counts.free_inodes, own.free_inodes, "{what}");
        let mut superblocks = Vec::new();
        plan.finish(counts, &mut |write| {
            superblocks.push(write);
            Ok(())
        })
        .unwrap();
        assert_eq!(superblocks.len(), plan.backups().len() + 1, "{what}");
        for write in superblocks {
            let Payload::Bytes(bytes) = &write.payload else { panic!("bytes") };
            let sb = SuperBlock::parse(bytes, Bytes::new(*size)).unwrap();
            assert_eq!(sb.free_blocks(), Blocks::new(counts.free_clusters << geometry.cluster_ratio_shift));
            assert_eq!(sb.geometry(), geometry, "{what}");
        }
    }
}

/// The choices for a size are reported, and the options override them.
#[test]
fn shapes_of_large_volumes_are_told_and_can_be_told_otherwise() {
    for (size, shape, notes, meta_groups, cluster) in [
        (16 * TIB, "-t ext4", &["resize_inode is off"][..], false, 4096),
        (16 * TIB + (1 << 30), "-t ext4", &["meta_bg is on: above 16 TiB"], true, 4096),
        (128 * TIB, "-t ext4", &["meta_bg is on"], true, 4096),
        (200 * TIB, "-t ext4", &["meta_bg is on", "bigalloc is on, with clusters of 8192 bytes"], true, 8192),
        (200 * TIB, "-t ext4 -O ^bigalloc", &["meta_bg is on"], true, 4096),
        (200 * TIB, "-t ext4 -g 32768", &["meta_bg is on"], true, 4096),
        (200 * TIB, "-t ext4 -O bigalloc", &["meta_bg is on"], true, 65536),
        (200 * TIB, "-t ext4 -O bigalloc -C 16384", &["meta_bg is on"], true, 16384),
        (17 * TIB, "-t ext4 -O ^meta_bg", &["resize_inode is off"], false, 4096),
        (17 * TIB, "-t ext4 -b 65536 -O resize_inode", &[], false, 65536),
        (
            EIB,
            "-t ext4",
            &["the last block is left unused", "meta_bg is on", "bigalloc is on"],
            true,
            32 << 20,
        ),
        (
            2 * EIB,
            "-t ext4",
            &["blocks have 8192 bytes", "the last block", "meta_bg", "bigalloc"],
            true,
            32 << 20,
        ),
    ] {
        let plan = Plan::new(&args(shape), Bytes::new(size), true).unwrap();
        let geometry = plan.geometry();
        let what = format!("{size} {shape}: {:?}", plan.notes());
        let told: Vec<String> = plan.notes().iter().map(ToString::to_string).collect();
        let is_large = size > 16 * TIB;
        let flex_groups = is_large.then_some("flex groups have 64 groups");
        let notes: Vec<&str> = notes.iter().copied().chain(flex_groups).collect();
        for note in &notes {
            assert!(told.iter().any(|told| told.contains(note)), "{what}: {note}");
        }
        assert_eq!(told.len(), notes.len(), "{what}");
        assert_eq!(geometry.features.incompat.contains(Incompat::META_BG), meta_groups, "{what}");
        assert_eq!(
            geometry.features.ro_compat.contains(RoCompat::BIGALLOC),
            cluster > geometry.block_size.get().into()
        );
        assert!(!(meta_groups && geometry.features.compat.contains(Compat::RESIZE_INODE)), "{what}");
        assert_eq!(geometry.cluster_bytes(), cluster, "{what}");
        assert_eq!(geometry.flex_groups(), if is_large { 64 } else { 16 }, "{what}");
    }
    let plan = Plan::new(&args("-t ext4 -G 16"), Bytes::new(200 * TIB), true).unwrap();
    assert_eq!((plan.notes().len(), plan.geometry().flex_groups()), (2, 16), "{:?}", plan.notes());
}

/// A size that can't be had names its limit and the option that lifts it.
#[test]
fn impossible_sizes_name_the_limit_and_the_option() {
    for (size, shape, limit, lifted_by) in [
        (EIB, "-t ext4 -b 1024", "2^48 - 1", "-b"),
        (2 * EIB, "-t ext4 -b 4096", "2^48 - 1", "-b"),
        (EIB, "-t ext4 -O ^bigalloc", "2^32 - 1024", "-O bigalloc"),
        (EIB, "-t ext4 -O ^bigalloc -g 32768", "2^32 - 1024", "-O bigalloc"),
        (17 * TIB, "-t ext4 -O ^64bit", "64-bit block numbers", "-O 64bit"),
        (17 * TIB, "-t ext3", "64-bit block numbers", "-O 64bit"),
        (EIB, "-t ext4 -O ^64bit", "64-bit block numbers", "-O 64bit"),
    ] {
        let error = Plan::new(&args(shape), Bytes::new(size), true).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(limit) && error.contains(lifted_by), "{size} {shape}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

/// What is planned for an exbibyte is what is written: an exbibyte in memory, group by group.
#[test]
fn an_exbibyte_is_written_as_planned() {
    let device = SparseDevice::new(Bytes::new(EIB));
    let plan = Plan::new(&args("-t ext4"), device.len(), true).unwrap();
    execute(&plan, &device, &plan.empty(), 2).unwrap();
    let mut bytes = [0; 1024];
    device.read_at(Bytes::new(1024), &mut bytes).unwrap();
    let sb = SuperBlock::parse(&bytes, device.len()).unwrap();
    let (geometry, empty) = (sb.geometry(), plan.empty());
    assert_eq!(geometry, plan.geometry());
    for chunk in (0..plan.chunks()).step_by(97).chain([plan.chunks() - 1]) {
        let rendered = plan.render(chunk, &empty, &mut |_| Ok(())).unwrap();
        let per_block = geometry.descs_per_block();
        let mut found = vec![0; rendered.descriptors.len()];
        let blocks = found.chunks_mut(geometry.block_size.len());
        for (index, block) in (rendered.first / per_block..).zip(blocks) {
            device.read_at(geometry.desc_block(index).offset(geometry.block_size), block).unwrap();
            for copy in geometry.desc_block_backups(index) {
                let mut again = vec![0; block.len()];
                device.read_at(copy.offset(geometry.block_size), &mut again).unwrap();
                assert!(again == *block, "copies of descriptor block {index}");
            }
        }
        assert!(found == rendered.descriptors, "chunk {chunk}");
    }
}

/// What others say of the largest volumes, which takes them no more than the superblock.
#[test]
fn dumpe2fs_reads_the_superblocks_of_the_largest() {
    const TEST: &str = "large::dumpe2fs_reads_the_superblocks_of_the_largest";
    for size in [10_000_000_000_000_000, EIB] {
        let folder = folder();
        let image = folder.path().join("image");
        let options = args("-t ext4 -L vast");
        match format(&options, &image, Bytes::new(size)) {
            Err(Error::Device(error)) => {
                skip_part!(format!("{TEST}, {size}"), error); // files below can't be so long
                continue;
            }
            made => drop(made.unwrap()),
        }
        let dump = match dumpe2fs_superblock(&image) {
            Ok(dump) => dump,
            Err(reason) => skip!(TEST, reason),
        };
        let plan = Plan::new(&options, Bytes::new(size), true).unwrap();
        let geometry = plan.geometry();
        assert_eq!(dump.field("Filesystem volume name"), "vast");
        for (name, expected) in [
            ("Block count", geometry.blocks_count.get()),
            ("Inodes per group", geometry.inodes_per_group.into()),
            ("Clusters per group", geometry.clusters_per_group.into()),
            ("Cluster size", u64::from(geometry.block_size.get()) << geometry.cluster_ratio_shift),
        ] {
            assert_eq!(dump.number(name), expected, "{name} of {size}");
        }
        assert!(dump.number("Free blocks") > geometry.blocks_count.get() / 100 * 99);
        assert_eq!(dump.field("Checksum type"), "crc32c");
    }
}

/// Volumes of sizes that e2fsck and the kernel can take here. Those that take minutes only when asked for.
#[test]
fn large_volumes_are_clean_and_mount() {
    const TEST: &str = "large::large_volumes_are_clean_and_mount";
    for (size, shape, takes_minutes) in [
        (20 * TIB, "-t ext4", false),
        (200 * TIB, "-t ext4", true),
        (PIB, "-t ext4 -O bigalloc -C 16777216", false),
        (PIB, "-t ext4", true),
        (10_000_000_000_000_000, "-t ext4", true),
        (EIB, "-t ext4", true),
    ] {
        let what = format!("{TEST}, {size} {shape}");
        if takes_minutes && !is_long() {
            skip_part!(what, "long; set HECTARE_LONG=1");
            continue;
        }
        let folder = folder();
        let image = folder.path().join("image");
        match format(&args(shape), &image, Bytes::new(size)) {
            Err(Error::Device(error)) => {
                skip_part!(what, error); // files on the file system below can't be so long
                continue;
            }
            made => drop(made.unwrap()),
        }
        if let Err(reason) = assert_clean(&image) {
            skip!(TEST, reason);
        }
        let mount = match KernelMount::new(&image, "") {
            Ok(mount) => mount,
            Err(reason) => skip!(TEST, reason),
        };
        (0..100)
            .for_each(|n| std::fs::write(mount.path().join(format!("file{n}")), vec![7; n * 1000]).unwrap());
        mount.unmount();
        assert_clean(&image).unwrap();
    }
}
