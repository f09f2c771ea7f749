//! Trees and maps of real images: made by mke2fs or the kernel, printed by debugfs and filefrag, checked by
//! e2fsck.

use super::{StoreError, extent, u32_at};
use crate::checksum::Seed;
use crate::error::Corrupt;
use crate::extent::{
    Extent, Mapping, ROOT_LEN, TreeGeometry, TreeRead, TreeWrite, check_block, for_each, for_each_node,
    insert, lookup, mark, remove, set_checksum,
};
use crate::indirect;
use hectare_oracle::{skip_part, tool};
use hectare_units::{BlockNr, BlockSize, Blocks, InodeNr, LogicalBlock, index_of, low16};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// A directory that is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hectare-oracle-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("source")).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a tool; `None`, counted as a skipped part, if there is none.
fn run(name: &str, args: &[&str]) -> Option<(i32, String)> {
    let Some(mut command) = tool(name) else {
        skip_part!("extent::oracle", format!("{name} is not installed"));
        return None;
    };
    let output = command.args(args).output().expect("the tool starts");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Some((output.status.code().unwrap_or(-1), text.concat()))
}

/// A file with data in some blocks and holes elsewhere.
fn sparse(path: &Path, size: u64, blocks: impl Iterator<Item = u64>) {
    let mut file = fs::File::create(path).unwrap();
    for block in blocks {
        file.seek(SeekFrom::Start(block * size)).unwrap();
        file.write_all(&vec![b'x'; index_of(size)]).unwrap();
    }
}

/// An image mounted by the kernel.
struct Mounted(PathBuf);

impl Mounted {
    fn new(scratch: &Scratch, image: &Path) -> Option<Self> {
        let at = scratch.0.join("mounted");
        if let Err(reason) = hectare_oracle::mount::can_mount() {
            skip_part!("extent::oracle, the kernel", reason);
            return None;
        }
        fs::create_dir_all(&at).unwrap();
        match run("mount", &["-t", "ext4", "-o", "loop", image.to_str().unwrap(), at.to_str().unwrap()])? {
            (0, _) => Some(Self(at)),
            (_, text) => {
                skip_part!("extent::oracle, the kernel", text);
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = run("umount", &[self.0.to_str().unwrap()]);
        assert!(std::thread::panicking() || unmounted.is_some_and(|(code, _)| code == 0), "can't unmount");
    }
}

/// An image in memory, and the tree of one of its inodes.
struct Image {
    bytes: Vec<u8>,
    geometry: TreeGeometry,
    inode_at: usize,
    seed: Option<Seed>,
    pool: Vec<BlockNr>,
    freed: Vec<BlockNr>,
}

impl Image {
    fn open(path: &Path, file: &str) -> Option<Self> {
        let bytes = fs::read(path).unwrap();
        let sb = &bytes[1024..2048];
        let block_size = BlockSize::from_shift(10 + u32_at(sb, 24)).unwrap();
        let (_, imap) = run("debugfs", &["-R", &format!("imap {file}"), path.to_str().unwrap()])?;
        let number = |after: &str| {
            let rest = imap.split(after).nth(1).unwrap().trim_start();
            rest.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap().to_owned()
        };
        let inode: u32 = number("Inode ").parse().unwrap();
        let block: usize = number("located at block ").parse().unwrap();
        let offset = usize::from_str_radix(number("offset ").trim_start_matches("0x"), 16).unwrap();
        let inode_at = block * block_size.len() + offset;
        let volume = if u32_at(sb, 0x60) & 0x2000 != 0 {
            Seed::stored(u32_at(sb, 0x270))
        } else {
            Seed::of_uuid(sb[0x68..0x78].try_into().unwrap())
        };
        let checksums = u32_at(sb, 0x64) & 0x400 != 0;
        let seed = checksums.then(|| volume.inode(InodeNr::new(inode), u32_at(&bytes, inode_at + 0x64)));
        let geometry = TreeGeometry {
            block_size,
            first_data_block: BlockNr::new(u64::from(u32_at(sb, 20))),
            blocks_count: Blocks::new(u64::from(u32_at(sb, 4))),
            inode: InodeNr::new(inode),
        };
        Some(Self { bytes, geometry, inode_at, seed, pool: Vec::new(), freed: Vec::new() })
    }

    fn block(&self, nr: BlockNr) -> std::ops::Range<usize> {
        let at = index_of(nr.offset(self.geometry.block_size).get());
        at..at + self.geometry.block_size.len()
    }

    fn extents(&self) -> Vec<Extent> {
        let mut all = Vec::new();
        for_each(self, LogicalBlock::ZERO, &mut |extent| {
            all.push(extent);
            ControlFlow::Continue(())
        })
        .unwrap();
        all
    }

    /// Writes the image back, with the inode's checksum renewed.
    fn save(&mut self, path: &Path) {
        let inode = &mut self.bytes[self.inode_at..self.inode_at + 256];
        if let Some(seed) = self.seed {
            inode[0x7c..0x7e].fill(0);
            inode[0x82..0x84].fill(0);
            let sum = seed.checksum(inode);
            inode[0x7c..0x7e].copy_from_slice(&low16(u64::from(sum)).to_le_bytes());
            inode[0x82..0x84].copy_from_slice(&low16(u64::from(sum >> 16)).to_le_bytes());
        }
        fs::write(path, &self.bytes).unwrap();
    }
}

impl TreeRead for Image {
    type Error = StoreError;
    type Node = Vec<u8>;

    fn root(&self) -> [u8; ROOT_LEN] {
        self.bytes[self.inode_at + 0x28..][..ROOT_LEN].try_into().unwrap()
    }

    fn node(&self, nr: BlockNr) -> Result<Vec<u8>, StoreError> {
        let bytes = self.bytes[self.block(nr)].to_vec();
        check_block(&bytes, nr, &self.geometry, self.seed)?;
        Ok(bytes)
    }

    fn geometry(&self) -> TreeGeometry {
        self.geometry
    }
}

impl TreeWrite for Image {
    fn edit_root<R>(&mut self, change: impl FnOnce(&mut [u8]) -> R) -> R {
        change(&mut self.bytes[self.inode_at + 0x28..][..ROOT_LEN])
    }

    fn edit<R>(&mut self, nr: BlockNr, change: impl FnOnce(&mut [u8]) -> R) -> Result<R, StoreError> {
        let (block, seed) = (self.block(nr), self.seed);
        let bytes = &mut self.bytes[block];
        let result = change(bytes);
        if let Some(seed) = seed {
            set_checksum(bytes, seed);
        }
        Ok(result)
    }

    fn allocate(&mut self, _goal: BlockNr) -> Result<BlockNr, StoreError> {
        let nr = self.pool.pop().ok_or(StoreError::NoSpace)?;
        let block = self.block(nr);
        self.bytes[block].fill(0);
        Ok(nr)
    }

    fn free(&mut self, nr: BlockNr) -> Result<(), StoreError> {
        self.freed.push(nr);
        Ok(())
    }
}

/// debugfs's listing of a file's tree: its extents, and its nodes with their levels from the root.
fn told_by_debugfs(image: &Path, file: &str) -> Option<(Vec<Extent>, BTreeSet<BlockNr>)> {
    let (_, text) = run("debugfs", &["-R", &format!("dump_extents {file}"), image.to_str().unwrap()])?;
    let (mut extents, mut nodes) = (Vec::new(), BTreeSet::new());
    for line in text.lines().filter(|line| line.contains('/') && line.contains(" - ")) {
        let unwritten = line.contains("Uninit");
        let fields: Vec<u64> =
            line.split(|c: char| !c.is_ascii_digit()).filter_map(|field| field.parse().ok()).collect();
        // level/depth entry/entries logical - last physical [- last] length
        if fields[0] == fields[1] {
            let logical = u32::try_from(fields[4]).unwrap();
            extents.push(extent(logical, u32::try_from(fields[8]).unwrap(), fields[6], unwritten));
        } else {
            nodes.insert(BlockNr::new(fields[6]));
        }
    }
    Some((extents, nodes))
}

fn compare_with_debugfs(image: &Image, path: &Path, file: &str) -> Option<usize> {
    let (extents, nodes) = told_by_debugfs(path, file)?;
    assert_eq!(image.extents(), extents);
    let mut listed = BTreeSet::new();
    for_each_node(image, &mut |nr, _| {
        listed.insert(nr);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(listed, nodes);
    let mut rest = extents.as_slice();
    for at in 0..extents.last().map_or(0, |last| u32::try_from(last.end()).unwrap()) + 3 {
        let at = LogicalBlock::new(at);
        while rest.first().is_some_and(|extent| extent.end() <= u64::from(at.get())) {
            rest = &rest[1..];
        }
        let expected = match rest.first() {
            Some(extent) if extent.logical <= at => Mapping::Mapped(*extent),
            next => Mapping::Hole { next: next.map(|extent| extent.logical) },
        };
        assert_eq!(lookup(image, at).unwrap(), expected, "block {at}");
    }
    Some(extents.len())
}

/// Makes an image from the scratch directory's `source`.
fn make(scratch: &Scratch, args: &[&str]) -> Option<PathBuf> {
    let path = scratch.0.join("image");
    fs::File::create(&path).unwrap().set_len(32 << 20).unwrap();
    let source = scratch.0.join("source");
    let mut all = vec!["-q", "-F", "-d", source.to_str().unwrap()];
    all.extend(args);
    all.push(path.to_str().unwrap());
    let (code, text) = run("mke2fs", &all)?;
    assert_eq!(code, 0, "{text}");
    Some(path)
}

#[test]
fn trees_made_by_mke2fs_are_read_as_debugfs_reads_them() {
    let scratch = Scratch::new("read");
    for (size, args, least) in [
        (1024, ["-t", "ext4", "-b", "1024", "-O", "metadata_csum"].as_slice(), 1000),
        (2048, ["-t", "ext4", "-b", "2048", "-O", "metadata_csum"].as_slice(), 1000),
        (4096, ["-t", "ext4", "-b", "4096", "-O", "metadata_csum,metadata_csum_seed"].as_slice(), 1000),
        (4096, ["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,^64bit"].as_slice(), 1000),
    ] {
        sparse(&scratch.0.join("source/frag"), size, (0..1500).map(|i| 2 * i + u64::from(i % 7 == 0)));
        let Some(path) = make(&scratch, args) else { return };
        let Some(image) = Image::open(&path, "/frag") else { return };
        let found = compare_with_debugfs(&image, &path, "/frag").unwrap_or(least);
        assert!(found >= least, "{args:?}: {found} extents");
        assert_eq!(image.seed.is_some(), !args.contains(&"^metadata_csum,^64bit"), "{args:?}");
    }
}

#[test]
fn trees_changed_here_are_sound_to_e2fsck() {
    let scratch = Scratch::new("change");
    for args in
        [["-t", "ext4", "-b", "1024", "-O", "metadata_csum"], ["-t", "ext4", "-b", "4096", "-O", "^64bit"]]
    {
        sparse(&scratch.0.join("source/frag"), 1024, (0..700).map(|i| 8 * i));
        let Some(path) = make(&scratch, &args) else { return };
        let Some(mut image) = Image::open(&path, "/frag") else { return };
        let Some((_, free)) = run("debugfs", &["-R", "ffb 1500 20000", path.to_str().unwrap()]) else {
            return;
        };
        // The numbers stand between a colon and, on standard error, the version with its year.
        let numbers = free.split(':').nth(1).and_then(|rest| rest.split("debugfs").next()).unwrap();
        image.pool = numbers.split_whitespace().map(|nr| BlockNr::new(nr.parse().unwrap())).collect();
        assert!(image.pool.len() > 1000);
        let end = u32::try_from(image.extents().last().unwrap().end()).unwrap();
        for i in 0..end {
            let at = LogicalBlock::new(i * 7919 % end);
            if i % 8 != 0 || image.pool.len() < 200 {
                continue;
            }
            if let Mapping::Hole { .. } = lookup(&image, at).unwrap() {
                let physical = image.pool.pop().unwrap();
                insert(&mut image, Extent { logical: at, len: 1, physical, unwritten: i % 3 == 0 }).unwrap();
            }
        }
        for at in (0..end).step_by(100) {
            mark(&mut image, LogicalBlock::new(at), u64::from(at) + 30, at % 200 == 0).unwrap();
        }
        for at in (0..end).step_by(250) {
            let _ =
                remove(&mut image, LogicalBlock::new(at), u64::from(at) + 100, usize::MAX, &mut |_, _, _| ())
                    .unwrap();
        }
        let after = image.extents();
        assert!(after.len() > 100);
        image.save(&path);
        // The tree alone was changed here: the counts and bitmaps are for e2fsck to follow up. Nodes that
        // removal has left half empty may get the advice to optimize them, as the kernel's do; a volume stays
        // clean with it.
        let Some((code, text)) = run("e2fsck", &["-fy", "-E", "no_optimize_extents", path.to_str().unwrap()])
        else {
            return;
        };
        assert_eq!(code, 1, "{text}");
        let blames_tree =
            |line: &&str| line.contains("xtent") || line.contains("hecksum") || line.contains("tree");
        assert_eq!(text.lines().find(blames_tree), None, "{text}");
        let told = text;
        let (code, text) = run("e2fsck", &["-fn", path.to_str().unwrap()]).unwrap();
        assert_eq!(code, 0, "{text}");
        let image = Image::open(&path, "/frag").unwrap();
        let found = image.extents();
        let other = found.iter().zip(&after).find(|(found, after)| found != after);
        assert_eq!((other, found.len()), (None, after.len()), "{args:?}: {told}");
        compare_with_debugfs(&image, &path, "/frag");
        let Some(mounted) = Mounted::new(&scratch, &path) else { continue };
        let content = fs::read(mounted.0.join("frag")).unwrap();
        for extent in image.extents().iter().filter(|extent| !extent.unwritten) {
            let within = index_of(extent.logical.offset(image.geometry.block_size).get());
            let block = &image.bytes[image.block(extent.physical)];
            let len = block.len().min(content.len() - within);
            assert_eq!(content[within..within + len], block[..len], "{extent:?}");
        }
    }
}

#[test]
fn trees_made_by_the_kernel_are_read_as_filefrag_reads_them() {
    let scratch = Scratch::new("kernel");
    let Some(path) = make(&scratch, &["-t", "ext4", "-b", "1024"]) else { return };
    let Some(mounted) = Mounted::new(&scratch, &path) else { return };
    // A file with unwritten and written blocks by turns.
    let file = mounted.0.join("mixed");
    let made = run("fallocate", &["-l", "4M", file.to_str().unwrap()]);
    let mut handle = fs::OpenOptions::new().write(true).create(true).truncate(false).open(&file).unwrap();
    for i in 0..900u64 {
        handle.seek(SeekFrom::Start(i * 7919 % 3000 * 1024)).unwrap();
        handle.write_all(&[1; 700]).unwrap();
        if i % 300 == 0 {
            handle.sync_all().unwrap();
        }
    }
    handle.sync_all().unwrap();
    drop(handle);
    let told = run("filefrag", &["-v", file.to_str().unwrap()]);
    drop(mounted);
    let Some((0, _)) = made else { return };
    let Some(image) = Image::open(&path, "/mixed") else { return };
    let found = compare_with_debugfs(&image, &path, "/mixed");
    assert!(found.is_none_or(|found| found > 100), "{found:?} extents");
    let Some((0, text)) = told else { return };
    let extents: Vec<Extent> = text
        .lines()
        .filter(|line| line.contains(".."))
        .map(|line| {
            let fields: Vec<u64> =
                line.split(|c: char| !c.is_ascii_digit()).filter_map(|field| field.parse().ok()).collect();
            // number: first.. last: physical.. last: length: [expected:] flags
            let logical = u32::try_from(fields[1]).unwrap();
            extent(logical, u32::try_from(fields[5]).unwrap(), fields[3], line.contains("unwritten"))
        })
        .collect();
    assert_eq!(image.extents(), extents);
}

#[test]
fn indirect_maps_are_read_as_debugfs_reads_them() {
    let scratch = Scratch::new("indirect");
    for (kind, size, fan) in [("ext2", 1024, 256u64), ("ext3", 1024, 256), ("ext2", 4096, 1024)] {
        let (double, triple) = (12 + fan, 12 + fan + fan * fan);
        let starts = [
            0,
            5,
            11,
            12,
            double - 1,
            double,
            double + fan - 2,
            40_000,
            triple - 1,
            triple,
            triple + 3 * fan,
        ];
        let blocks: BTreeSet<u64> = starts.iter().flat_map(|start| [*start, start + 1, start + 3]).collect();
        sparse(&scratch.0.join("source/map"), size, blocks.iter().copied());
        let Some(path) = make(&scratch, &["-t", kind, "-b", &size.to_string()]) else { return };
        let Some(image) = Image::open(&path, "/map") else { return };
        let probes: BTreeSet<u64> = blocks.iter().flat_map(|at| at.saturating_sub(2)..at + 3).collect();
        let script = scratch.0.join("script");
        fs::write(&script, probes.iter().map(|at| format!("bmap /map {at}\n")).collect::<String>()).unwrap();
        let args = ["-f", script.to_str().unwrap(), path.to_str().unwrap()];
        let Some((_, text)) = run("debugfs", &args) else { return };
        let told: Vec<u64> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
        assert_eq!(told.len(), probes.len(), "{text}");
        let told: BTreeMap<u64, u64> = probes.iter().copied().zip(told).collect();
        compare_map(&image, &told, blocks.len());
    }
}

fn compare_map(image: &Image, told: &BTreeMap<u64, u64>, blocks: usize) {
    let root = image.root();
    let table = |nr: BlockNr| Ok::<_, Corrupt>(&image.bytes[image.block(nr)]);
    let mut found = BTreeMap::new();
    indirect::for_each(&root, &image.geometry, LogicalBlock::ZERO, table, &mut |extent| {
        for i in 0..u64::from(extent.len) {
            found.insert(u64::from(extent.logical.get()) + i, extent.physical.get() + i);
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(found.len(), blocks);
    for (at, expected) in told {
        let block = LogicalBlock::new(u32::try_from(*at).unwrap());
        assert_eq!(found.get(at).copied().unwrap_or(0), *expected, "block {at}");
        let mut first = None;
        indirect::for_each(&root, &image.geometry, block, table, &mut |extent| {
            first = Some(extent.logical);
            ControlFlow::Break(())
        })
        .unwrap();
        let next = found.range(at..).next().map(|(at, _)| LogicalBlock::new(u32::try_from(*at).unwrap()));
        assert_eq!(first, next, "from {at}");
        match indirect::lookup(&root, &image.geometry, block, table).unwrap() {
            Mapping::Mapped(extent) => {
                assert_eq!((extent.logical, extent.physical.get()), (block, *expected));
                assert!((0..u64::from(extent.len)).all(|i| found[&(at + i)] == expected + i));
            }
            Mapping::Hole { next } => {
                assert_eq!(*expected, 0, "block {at} is lost");
                let end = next.map_or(1 << 32, |next| u64::from(next.get()));
                assert!(end > *at && found.range(at..&end).next().is_none(), "a hole from {at} to {end}");
            }
        }
    }
}
