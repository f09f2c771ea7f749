//! Volumes judged by e2fsck and the kernel: odd sizes, used devices, contents, determinism.

use crate::common::{assert_no_volume_before_all_is_there, assert_no_volume_where_a_device_fails};
use crate::common::{bytes, create, folder, format, options};
use hectare_device::{Device, MemoryDevice, Topology};
use hectare_ext4::dir;
use hectare_ext4::inode::{Inode, InodeFlags};
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::time::Timestamp;
use hectare_mkfs::{
    Contents, Error, FormatOptions, GroupUse, Note, Plan, What, capacity, execute, overhead, probe,
    refuse_occupied, set_bits, xfs,
};
use hectare_oracle::{KernelMount, assert_clean, dumpe2fs, e2fsck, skip, skip_part};
use hectare_units::{BlockNr, Bytes, GroupNr, InodeNr, LogicalBlock, low8, usize_of};

fn args(text: &str) -> FormatOptions {
    let words: Vec<&str> = text.split_whitespace().collect();
    FormatOptions { now: Timestamp::from_seconds(1_700_000_000), ..options(&words).unwrap() }
}

/// Every small size either gives a clean volume or says that it is too small.
#[test]
fn odd_sizes_give_clean_volumes_or_a_reason() {
    let folder = folder();
    let image = folder.path().join("image");
    let shapes = [
        "",
        "-t ext4",
        "-t ext4 -O bigalloc,orphan_file",
        "-t ext3 -b 4096",
        "-t ext4 -O mmp -g 512 -b 1024",
        "-t ext4 -O quota,project,orphan_file -E root_owner=7:70000",
    ];
    let (mut made, mut refused) = (0, 0);
    for kib in
        (4..400).step_by(61).chain((1000..30_000).step_by(4567)).chain([8192, 8200, 8244, 16384, 16448])
    {
        for shape in shapes {
            match format(&args(shape), &image, Bytes::kib(kib)) {
                Ok(_) => made += 1,
                Err(Error::TooSmall { .. } | Error::Option { .. }) => {
                    refused += 1;
                    continue;
                }
                Err(error) => panic!("{kib} KiB {shape}: {error}"),
            }
            match e2fsck(&image) {
                Ok(report) => assert!(report.clean, "{kib} KiB {shape}: {}", report.output),
                Err(reason) => skip!("volume::odd_sizes_give_clean_volumes_or_a_reason", reason),
            }
        }
    }
    assert!(made > 50 && refused > 0, "{made} made, {refused} refused");
}

/// Small groups whose own blocks find too little room, the largest share for root, the largest clusters.
#[test]
fn unusual_options_give_clean_volumes_or_a_reason() {
    const NAME: &str = "volume::unusual_options_give_clean_volumes_or_a_reason";
    let folder = folder();
    let image = folder.path().join("image");
    for (size, shape, is_made) in [
        // Both were given blocks twice, where there is too little room.
        ("2M", "-t ext4 -b 1024 -g 512 -I 1024", false),
        ("2M", "-t ext4 -b 1024 -g 512 -i 2048", false),
        ("16M", "-t ext4 -b 8192 -g 256 -G 64 -I 512 -i 1024 -O sparse_super2,meta_bg,^resize_inode", false),
        // Half of the volume is more than half of its whole clusters.
        ("100001k", "-t ext4 -b 4096 -O bigalloc -C 65536 -m 50", true),
        ("77777k", "-t ext4 -b 2048 -O bigalloc -m 50", true),
        ("64G", "-t ext4 -O bigalloc -C 268435456 -N 64", true),
    ] {
        let made = format(&args(shape), &image, bytes(size));
        match &made {
            Ok(_) => match e2fsck(&image) {
                Ok(report) => assert!(report.clean, "{size} {shape}: {}", report.output),
                Err(reason) => skip!(NAME, reason),
            },
            Err(Error::TooSmall { .. }) => {}
            Err(error) => panic!("{size} {shape}: {error}"),
        }
        assert_eq!(made.is_ok(), is_made, "{size} {shape}");
    }
}

/// With as many inodes as a group's bitmap can count, the descriptors reserved for growing decided how large groups
/// are, or the volume was refused.
#[test]
fn reserved_descriptors_give_way_to_inodes() {
    const NAME: &str = "volume::reserved_descriptors_give_way_to_inodes";
    let folder = folder();
    let image = folder.path().join("image");
    let shape = "-t ext4 -b 1024 -O ^has_journal -N 211900";
    for (blocks_per_group, leaves_some) in [(2200, true), (2070, false)] {
        let size = Bytes::kib(26 * blocks_per_group);
        let plan = format(&args(shape), &image, size).unwrap();
        let geometry = plan.geometry();
        let reserved = geometry.reserved_gdt_blocks;
        assert_eq!((geometry.groups(), reserved > 0), (26, leaves_some), "{blocks_per_group}: {reserved}");
        assert!(plan.notes().contains(&Note::SmallerReserve(reserved)), "{:?}", plan.notes());
        match e2fsck(&image) {
            Ok(report) => assert!(report.clean, "{}", report.output),
            Err(reason) => skip!(NAME, reason),
        }
        let asked = format(&args(&format!("{shape} -E resize=50000000")), &image, size);
        assert!(matches!(asked, Err(Error::Option { .. })), "what was asked for stays");
    }
}

/// A device full of old bytes gives as clean a volume as a fresh one, and nothing of it is found again.
#[test]
fn a_used_device_is_wiped_where_it_matters() {
    let folder = folder();
    let image = folder.path().join("image");
    let size = Bytes::mib(24);
    for shape in [
        "-t ext4",
        "-t ext4 -E lazy_itable_init=0",
        "-t ext2",
        "-t ext4 -O bigalloc,mmp,orphan_file",
        "-t ext4 -O uninit_bg,^metadata_csum",
        "-t ext4 -O inline_data",
        "-t ext4 -O quota,bigalloc -E quotatype=usrquota:prjquota",
    ] {
        let device = create(&image, size);
        let old: Vec<u8> =
            (0..1u32 << 20).map(|i| low8(u64::from(i.wrapping_mul(2_654_435_761) >> 24)) | 1).collect();
        (0..24).for_each(|mib| device.write_at(Bytes::mib(mib), &old).unwrap());
        device.write_at(Bytes::ZERO, b"XFSB").unwrap();
        device.write_at(size - Bytes::new(512), b"EFI PART").unwrap();
        assert!(matches!(refuse_occupied(&device), Err(Error::Occupied { .. })));
        let plan = Plan::new(&args(shape), size, false).unwrap();
        execute(&plan, &device, &plan.empty(), 2).unwrap();
        let found = probe(&device).unwrap().map(|found| found.what);
        assert!(matches!(found, Some(What::Ext2 | What::Ext4)), "{shape}: {found:?}");
        let mut start = [1; 1024];
        device.read_at(Bytes::ZERO, &mut start).unwrap();
        assert_eq!(start, [0; 1024]);
        drop(device);
        if let Err(reason) = assert_clean(&image) {
            skip!("volume::a_used_device_is_wiped_where_it_matters", reason);
        }
    }
}

#[test]
fn a_device_that_fails_holds_no_volume() {
    for shape in ["-t ext4", "-t ext4 -O ^has_journal,bigalloc"] {
        assert_no_volume_where_a_device_fails(Bytes::mib(40), What::Ext4, |device, zeroed| {
            let plan = Plan::new(&args(shape), device.len(), zeroed).unwrap();
            execute(&plan, device, &plan.empty(), 2)
        });
    }
}

/// On a disk of large sectors, small blocks are aligned to these, as mke2fs does it, but that is no stripe.
#[test]
fn what_is_told_as_a_stripe_is_more_than_a_sector() {
    for (minimum_io, told) in [(0, vec![]), (4096, vec![]), (16384, vec![Note::StripeOfDevice(16, 16)])] {
        let device = Topology { physical_sector: 4096, minimum_io, ..Topology::default() };
        let options = FormatOptions { device, ..args("-t ext4 -b 1024") };
        assert_eq!(Plan::new(&options, Bytes::mib(64), false).unwrap().notes(), told, "{minimum_io}");
    }
}

#[test]
fn a_power_cut_leaves_a_whole_volume_or_none() {
    // Torn, it has a wrong checksum.
    let is_volume = |device: &dyn Device| {
        let mut superblock = [0; 1024];
        device.read_at(Bytes::kib(1), &mut superblock).unwrap();
        SuperBlock::parse(&superblock, device.len()).is_ok()
    };
    assert_no_volume_before_all_is_there(Bytes::mib(8), is_volume, |device| {
        let plan = Plan::new(&args("-t ext4 -b 1024"), device.len(), false).unwrap();
        execute(&plan, device, &plan.empty(), 2)
    });
}

/// Those superblocks by which repair would make the old volume again.
#[test]
fn the_superblocks_of_an_old_xfs_volume_are_wiped() {
    let folder = folder();
    let size = Bytes::mib(700);
    let device = create(&folder.path().join("image"), size);
    let mut old = xfs::FormatOptions::default();
    xfs::parse(&mut old, &[('d', "agcount=7")]).unwrap();
    let old = xfs::Plan::new(&old, size, true).unwrap();
    xfs::execute(&old, &device, 2).unwrap();
    let is_there = |group: u32| {
        let mut magic = [0; 4];
        device.read_at(old.volume().offset(GroupNr::new(group), 0), &mut magic).unwrap();
        magic == *b"XFSB"
    };
    assert!((0..7).all(is_there));
    let plan = Plan::new(&args("-t ext4 -E nodiscard"), size, false).unwrap();
    execute(&plan, &device, &plan.empty(), 2).unwrap();
    let left: Vec<u32> = (0..7).filter(|group| is_there(*group)).collect();
    assert!(!left.is_empty(), "nothing else wipes them");
    assert!(![0, 3, 6].iter().any(|group| left.contains(group)), "{left:?}");
}

/// The kernel mounts what was made, with a file written and read again.
#[test]
fn the_kernel_mounts_and_uses_the_volumes() {
    const TEST: &str = "volume::the_kernel_mounts_and_uses_the_volumes";
    let folder = folder();
    for (i, (size, shape)) in [
        ("2M", "-t ext4"),
        ("40M", "-t ext4"),
        ("40M", "-t ext4 -b 2048 -I 128"),
        ("64M", "-t ext4 -O bigalloc -C 65536 -b 4096"),
        ("64M", "-t ext4 -O meta_bg,^resize_inode -b 1024"),
        ("64M", "-t ext4 -O sparse_super2,orphan_file,metadata_csum_seed"),
        ("64M", "-t ext4 -O mmp"),
        ("64M", "-t ext4 -O fast_commit -E packed_meta_blocks=1"),
        ("64M", "-t ext3"),
        ("64M", "-t ext2 -b 1024 -E packed_meta_blocks=1"),
        ("20M", "-t ext2"),
        ("64M", "-t ext4 -O uninit_bg,^metadata_csum -E stride=8,stripe_width=16"),
        ("10G", "-t ext4"),
    ]
    .into_iter()
    .enumerate()
    {
        let image = folder.path().join(format!("image{i}"));
        format(&args(shape), &image, bytes(size)).unwrap();
        match KernelMount::new(&image, "") {
            Ok(mount) => {
                let file = mount.path().join("file");
                std::fs::write(&file, vec![7; 300_000]).unwrap();
                (0..200).for_each(|n| std::fs::create_dir(mount.path().join(format!("d{n}"))).unwrap());
                assert_eq!(std::fs::read(&file).unwrap(), vec![7; 300_000]);
                mount.unmount();
                assert_clean(&image).unwrap();
                let dump = dumpe2fs(&image).unwrap();
                assert_eq!(dump.number("Mount count"), 1, "{shape}: the kernel counts its mounts");
                let made = dump.groups.iter().flat_map(|group| &group.lines);
                let directories = made.filter_map(|line| line.split(" free inodes, ").nth(1));
                let directories: u32 =
                    directories.map(|rest| rest.split(' ').next().unwrap().parse::<u32>().unwrap()).sum();
                assert_eq!(directories, 202, "{shape}: root, lost+found and those made through the mount");
            }
            Err(reason) => skip_part!(format!("{TEST}, {shape}"), reason),
        }
        std::fs::remove_file(&image).unwrap();
    }
}

#[test]
fn the_same_options_give_the_same_bytes_whatever_the_thread_count() {
    let options = args("-t ext4 -O orphan_file,mmp -g 2048 -b 1024");
    let made = |threads| {
        let device = MemoryDevice::new(Bytes::mib(80));
        let plan = Plan::new(&options, device.len(), true).unwrap();
        assert!(plan.chunks() > 2);
        execute(&plan, &device, &plan.empty(), threads).unwrap();
        device.to_vec()
    };
    let one = made(1);
    assert!(one == made(3) && one == made(64));
    assert_ne!(FormatOptions { uuid: None, ..options.clone() }, options);
}

/// Some files, one inode in each group and a block of data for each, known only to the contents.
struct Files {
    sb: SuperBlock,
    root: Inode,
    root_block: (BlockNr, Vec<u8>),
    files: Vec<(InodeNr, Inode, BlockNr)>,
}

impl Files {
    fn new(plan: &Plan) -> Self {
        let (sb, geometry) = (plan.superblock().clone(), plan.geometry().clone());
        let now = plan.options().now;
        let ratio = u64::from(geometry.cluster_blocks());
        let mut free = plan.space().flat_map(|range| {
            let range = range.unwrap();
            let (start, len) = (range.start.get(), range.len.get());
            // The first and the last cluster of every free range: off by one would hit its neighbours.
            [start, start + len - ratio].into_iter().filter(move |_| len > ratio).map(BlockNr::new)
        });
        let files: Vec<_> = (0..geometry.groups().min(20))
            .map(|group| match group {
                0 => plan.first_free_inode(),
                _ => geometry.inode_at(GroupNr::new(group), 5 + group),
            })
            .filter_map(|nr| {
                let block = free.next()?;
                let mut inode = Inode::new(0o100_644, now, 9, &sb);
                (inode.links, inode.size) = (1, 10);
                inode.sectors = ratio * u64::from(geometry.block_size.get() / 512);
                map_one(&mut inode, block, &sb);
                Some((nr, inode, block))
            })
            .collect();
        let names: Vec<String> = files.iter().map(|(nr, ..)| format!("file{nr}")).collect();
        let mut entries = vec![(b"lost+found".as_slice(), plan.lost_and_found(), dir::FileType::Directory)];
        entries.extend(
            names.iter().zip(&files).map(|(name, (nr, ..))| (name.as_bytes(), *nr, dir::FileType::Regular)),
        );
        let entries: Vec<_> = entries
            .into_iter()
            .map(|(name, inode, file_type)| dir::Entry {
                name: dir::Name::new(name).unwrap(),
                inode,
                file_type,
            })
            .collect();
        let mut root = Inode::new(0o040_755, now, 0, &sb);
        (root.links, root.size) = (3, geometry.block_size.get().into());
        root.sectors = ratio * u64::from(geometry.block_size.get() / 512);
        map_one(&mut root, plan.root_block(), &sb);
        let seed = root.seed(InodeNr::ROOT, &sb);
        let built = dir::build(
            &entries,
            InodeNr::ROOT,
            InodeNr::ROOT,
            &dir::Format::of(&sb).unwrap(),
            seed,
            dir::Fill::FULL,
        )
        .unwrap();
        assert_eq!(built.blocks.len(), geometry.block_size.len());
        Self { sb, root, root_block: (plan.root_block(), built.blocks), files }
    }

    fn inodes(&self) -> impl Iterator<Item = (InodeNr, &Inode)> {
        std::iter::once((InodeNr::ROOT, &self.root))
            .chain(self.files.iter().map(|(nr, inode, _)| (*nr, inode)))
    }

    fn index(&self, nr: InodeNr, group: GroupNr) -> Option<u32> {
        self.sb.geometry().inode_slot(nr).filter(|(home, _)| *home == group).map(|(_, index)| index)
    }

    fn holds_root_block(&self, group: GroupNr) -> bool {
        self.sb.geometry().group_of(self.root_block.0) == Some(group)
    }

    fn clusters(&self, group: GroupNr) -> impl Iterator<Item = u32> + '_ {
        let geometry = self.sb.geometry();
        let first = geometry.cluster_of(geometry.first_block(group));
        let here = self.files.iter().filter(move |(_, _, nr)| geometry.group_of(*nr) == Some(group));
        here.map(move |(_, _, nr)| u32::try_from((geometry.cluster_of(*nr) - first).get()).unwrap())
    }
}

fn map_one(inode: &mut Inode, block: BlockNr, sb: &SuperBlock) {
    use hectare_ext4::extent::{Extent, build};
    use hectare_ext4::feature::Incompat;
    if sb.features().incompat.contains(Incompat::EXTENTS) {
        let extent = Extent { logical: LogicalBlock::ZERO, len: 1, physical: block, unwritten: false };
        inode.block = build(&[extent], sb.geometry().block_size, None, &mut || unreachable!()).root;
        inode.flags |= InodeFlags::EXTENTS;
    } else {
        inode.block[..4].copy_from_slice(&u32::try_from(block.get()).unwrap().to_le_bytes());
    }
}

impl Contents for Files {
    fn usage(&self, group: GroupNr) -> GroupUse {
        let last = self.inodes().filter_map(|(nr, _)| self.index(nr, group)).max();
        GroupUse {
            clusters: self.clusters(group).next().is_some() || self.holds_root_block(group),
            inodes_end: last.map_or(0, |index| index + 1),
            directories: u32::from(self.index(InodeNr::ROOT, group).is_some()),
        }
    }
    fn mark_inodes(&self, group: GroupNr, bitmap: &mut [u8]) {
        self.inodes().filter_map(|(nr, _)| self.index(nr, group)).for_each(|i| set_bits(bitmap, i, 1));
    }
    fn mark_clusters(&self, group: GroupNr, bitmap: &mut [u8]) {
        self.clusters(group).for_each(|cluster| set_bits(bitmap, cluster, 1));
    }
    fn render_inodes(&self, group: GroupNr, first: u32, slots: &mut [u8]) {
        let size = usize_of(self.sb.geometry().inode_size);
        for (nr, inode) in self.inodes() {
            let at = self.index(nr, group).and_then(|index| index.checked_sub(first)).map(usize_of);
            if let Some(slot) = at.and_then(|at| slots.get_mut(at * size..(at + 1) * size)) {
                inode.render(slot, nr, &self.sb);
            }
        }
    }
    fn blocks(&self, group: GroupNr, write: &mut dyn FnMut(BlockNr, &[u8])) {
        if self.holds_root_block(group) {
            write(self.root_block.0, &self.root_block.1);
        }
    }
}

/// Contents in every group are in the bitmaps, descriptors, tables and counts of the one write there is.
#[test]
fn contents_are_part_of_the_first_write() {
    let folder = folder();
    let image = folder.path().join("image");
    for (size, shape) in [
        ("64M", "-t ext4"),
        ("64M", "-t ext4 -O orphan_file -E packed_meta_blocks=1"),
        ("64M", "-t ext4 -O uninit_bg,^metadata_csum,^flex_bg"),
        ("64M", "-t ext3 -O ^resize_inode"),
        ("1G", "-t ext4 -O bigalloc -b 1024"),
    ] {
        let device = create(&image, bytes(size));
        let plan = Plan::new(&args(shape), bytes(size), true).unwrap();
        let files = Files::new(&plan);
        assert!(files.files.len() > 3, "{shape}");
        execute(&plan, &device, &files, 2).unwrap();
        drop(device);
        if let Err(reason) = assert_clean(&image) {
            skip!("volume::contents_are_part_of_the_first_write", reason);
        }
    }
}

/// The parts add up, the free space is what dumpe2fs counts, and [`Plan::space`] covers it.
#[test]
fn the_overhead_adds_up() {
    let folder = folder();
    let image = folder.path().join("image");
    for (size, shape) in [
        ("3M", "-t ext4"),
        ("200M", "-t ext4"),
        ("200M", "-t ext3"),
        ("10G", "-t ext4 -O orphan_file"),
        ("64M", "-t ext4 -O meta_bg,^resize_inode -b 1024"),
        ("500M", "-t ext4 -O bigalloc -b 1024"),
    ] {
        let plan = format(&args(shape), &image, bytes(size)).unwrap();
        let parts = overhead(&args(shape), bytes(size)).unwrap();
        let sum = parts.superblocks
            + parts.descriptors
            + parts.reserved_descriptors
            + parts.bitmaps
            + parts.inode_tables
            + parts.journal
            + parts.orphan_file
            + parts.other
            + parts.rounding
            + parts.free;
        assert_eq!(sum, parts.volume, "{shape}: {parts:?}");
        if plan.geometry().cluster_ratio_shift == 0 {
            assert_eq!(parts.rounding.get(), 0, "{shape}: {parts:?}");
        }
        let space: u64 = plan.space().map(|range| range.unwrap().len.get()).sum();
        assert!(parts.free.get() - space < u64::from(plan.geometry().cluster_blocks()), "{shape}");
        let dump = match dumpe2fs(&image) {
            Ok(dump) => dump,
            Err(reason) => skip!("volume::the_overhead_adds_up", reason),
        };
        assert_eq!(dump.number("Free blocks"), parts.free.get(), "{shape}");
        let capacity = capacity(&args(shape), bytes(size)).unwrap();
        assert_eq!(dump.number("Free inodes"), capacity.free_inodes, "{shape}");
    }
}

/// What mke2fs refuses is refused here too, by the name of the option.
#[test]
fn impossible_combinations_are_refused_by_name() {
    for (size, shape, names) in [
        ("1G", "-t ext4 -C 65536", "-C 65536: it needs bigalloc"),
        ("1G", "-t ext4 -O bigalloc -C 5000", "-C 5000"),
        (
            "1T",
            "-t ext4 -O bigalloc -C 536870912",
            "-C 536870912: a cluster is a power of two from the block size",
        ),
        ("1G", "-t ext4 -I 8192", "-I 8192"),
        ("1G", "-t ext4 -i 512", "-i 512"),
        ("1G", "-t ext4 -N 5000000", "-N 5000000"),
        ("1G", "-m 51", "-m 51"),
        ("1G", "-t ext4 -G 3", "-G 3"),
        ("1G", "-t ext4 -O ^flex_bg -G 4", "-G 4"),
        ("1G", "-t ext4 -J size=2", "-J size=2"),
        ("1G", "-t ext4 -J size=600", "-J size=600"),
        ("1G", "-t ext4 -E resize=100", "-E resize=100"),
        ("9193k", "-b 1024 -g 256 -E resize=4000000", "-E resize=4000000: the descriptors would fill"),
        ("9000k", "-t ext4 -b 1024 -g 256 -E resize=900000", "-E resize=900000: the descriptors would fill"),
        ("1G", "-t ext4 -E resize=100M", "-E resize=104857600 (bytes): it must be greater"),
        ("256P", "-t ext4 -b 4096 -O ^bigalloc,^resize_inode", "the size: with the fewest inodes"),
        ("1G", "-t ext4 -g 1001", "-g 1001"),
        ("1G", "-t ext4 -g 65536", "-g 65536"),
        ("1G", "-E mmp_update_interval=301", "-E mmp_update_interval"),
        ("17T", "-t ext3", "-O ^64bit"),
        ("20k", "", "too small"),
        ("50M", "-t ext4 -L abcdefghijklmnopq", "-L"),
    ] {
        let error = Plan::new(&args(shape), bytes(size), true)
            .map_or_else(|error| error.to_string(), |_| "made".into());
        assert!(error.contains(names) && !error.contains('\n'), "{size} {shape}: {error}");
    }
}

/// Planning a petabyte takes no memory per group and little time; its shape is that of meta groups.
#[test]
fn large_volumes_are_planned_cheaply() {
    let plan = Plan::new(&args("-t ext4"), Bytes::new(1 << 50), true).unwrap();
    assert!(plan.notes().iter().any(|note| note.to_string().contains("meta_bg")));
    let last = plan.chunks() - 1;
    let mut writes = 0;
    plan.render(last, &plan.empty(), &mut |_| {
        writes += 1;
        Ok(())
    })
    .unwrap();
    assert!(writes > 0);
}
