//! Volumes without any superblock: what comes out is what came out before.

use hectare_device::MemoryDevice;
use hectare_oracle::{Skip, mke2fs, skip, skip_part};
use hectare_salvage::{Error, Kind, NodeId, Options, Salvage, Step, Watch};
use hectare_units::index_of;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

struct Quiet;

impl Watch for Quiet {
    fn advance(&self, _step: Step, _done: u64, _all: u64) {}
}

/// A volume with files, links and directories of all sizes, as bytes.
fn volume(arguments: &[&str], size: &str) -> Result<Vec<u8>, Skip> {
    let folder = tempfile::tempdir().unwrap();
    let (source, image) = (folder.path().join("source"), folder.path().join("disk.img"));
    fs::create_dir_all(source.join("many")).unwrap();
    fs::write(source.join("large"), (0..400_000_u32).map(|n| n.to_le_bytes()[1]).collect::<Vec<_>>())
        .unwrap();
    for nr in 0..250_u8 {
        fs::write(
            source.join(format!("many/file with a name of some length {nr}")),
            vec![nr; 40 * usize::from(nr)],
        )
        .unwrap();
    }
    std::os::unix::fs::symlink("many", source.join("link")).unwrap();
    let arguments = [arguments, &["-d", source.to_str().unwrap()]].concat();
    mke2fs(&arguments, &image, size)?;
    Ok(fs::read(&image).unwrap())
}

/// Files by path.
type Files = BTreeMap<Vec<u8>, (Kind, Vec<u8>)>;

/// Everything that comes out, and what is said of the volume.
fn all(bytes: &[u8]) -> (Files, Vec<String>) {
    let device = MemoryDevice::from_bytes(bytes);
    let salvage = Arc::new(Salvage::survey(Arc::new(device), &Options::default(), &Quiet).unwrap());
    let mut found = BTreeMap::new();
    let mut waiting = vec![(salvage.root(), Vec::new())];
    while let Some((node, path)) = waiting.pop() {
        let children = salvage.children(node).map(|(name, child)| (child, [&path[..], b"/", name].concat()));
        waiting.extend(children);
        let kind = salvage.metadata(node).kind;
        found.insert(path, (kind, content(&salvage, node)));
    }
    (found, salvage.report().volume)
}

fn content(salvage: &Arc<Salvage>, node: NodeId) -> Vec<u8> {
    match salvage.metadata(node).kind {
        Kind::File => {
            let mut bytes = vec![0; index_of(salvage.metadata(node).size)];
            let read = salvage.open(node).read_at(0, &mut bytes);
            assert_eq!(read, bytes.len());
            bytes
        }
        Kind::Symlink => salvage.read_link(node).to_vec(),
        _ => Vec::new(),
    }
}

/// Zeros every superblock, and with `descriptors` what follows each as well.
fn without_superblocks(bytes: &[u8], descriptors: bool) -> Vec<u8> {
    let mut left = bytes.to_vec();
    let uuid = bytes[1024 + 0x68..1024 + 0x78].to_vec();
    for at in (0..bytes.len()).step_by(1024) {
        if bytes[at + 0x38..at + 0x3a] == [0x53, 0xef] && bytes[at + 0x68..at + 0x78] == uuid[..] {
            left[at..at + 1024].fill(0);
            let block = 1024 << bytes[1024 + 0x18];
            if descriptors {
                let next = (at / block + 1) * block;
                left[next..next + block].fill(0);
            }
        }
    }
    left
}

/// Asserts that everything that comes out of one volume comes out of another, and nothing else.
fn assert_same(what: &str, whole: &Files, found: &Files, notes: &[String]) {
    let lost: Vec<_> = whole.iter().filter(|(path, file)| found.get(*path) != Some(file)).collect();
    let names = lost.iter().map(|(path, _)| String::from_utf8_lossy(path)).collect::<Vec<_>>();
    assert!(lost.is_empty(), "{what}: {notes:?}: lost {names:?}");
    let more = found.keys().filter(|path| !whole.contains_key(*path)).count();
    assert_eq!(more, 0, "{what}: {notes:?}");
}

/// One bitmap of zeros was taken for a group with as many inodes as it has bits.
#[test]
fn regression_a_bitmap_of_zeros_says_nothing_about_the_number_of_inodes() {
    let bytes = match volume(&["-t", "ext2", "-b", "1024"], "30M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("salvage inferred, a bitmap of zeros", reason),
    };
    let (whole, _) = all(&bytes);
    let mut left = without_superblocks(&bytes, false);
    let descriptor = 2048 + 3 * 32;
    let bitmap =
        u32::from_le_bytes(bytes[descriptor + 4..descriptor + 8].try_into().unwrap()) as usize * 1024;
    left[bitmap..bitmap + 1024].fill(0);
    let (found, notes) = all(&left);
    assert_same("a bitmap of zeros", &whole, &found, &notes);
}

/// A volume with a feature that can't be read has a superblock: what it holds must not come out as something else.
#[test]
fn regression_a_feature_that_is_not_known_is_no_missing_superblock() {
    let mut bytes = match volume(&["-t", "ext4", "-b", "4096", "-O", "^metadata_csum"], "32M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("salvage inferred, an unknown feature", reason),
    };
    bytes[1024 + 0x60] |= 1;
    let device = MemoryDevice::from_bytes(&bytes);
    let refused = Salvage::survey(Arc::new(device), &Options::default(), &Quiet).err().unwrap();
    assert!(matches!(&refused, Error::Unsupported(what) if what.contains("compression")), "{refused}");
}

#[test]
fn what_a_superblock_said_is_inferred() {
    // The second is how many groups there are.
    let kinds: [(&[&str], &str, u64); 11] = [
        (&["-t", "ext4", "-b", "4096"], "64M", 1),
        (&["-t", "ext4", "-b", "4096", "-N", "280"], "32M", 1),
        (&["-t", "ext4", "-b", "2048", "-I", "512"], "24M", 2),
        (&["-t", "ext4", "-b", "1024"], "7M", 1),
        (&["-t", "ext4", "-b", "1024", "-O", "^64bit"], "40M", 5),
        (&["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,uninit_bg"], "200M", 2),
        (&["-t", "ext2", "-b", "1024"], "30M", 4),
        (&["-t", "ext2", "-b", "4096", "-I", "128"], "30M", 1),
        (&["-t", "ext3", "-b", "1024", "-I", "128"], "30M", 4),
        (&["-t", "ext4", "-b", "4096", "-O", "inline_data", "-I", "256"], "30M", 1),
        (&["-t", "ext4", "-b", "4096", "-O", "sparse_super2", "-E", "num_backup_sb=0"], "300M", 3),
    ];
    for (arguments, size, groups) in kinds {
        let bytes = match volume(arguments, size) {
            Ok(bytes) => bytes,
            Err(reason) => {
                skip_part!(format!("salvage inferred, {arguments:?}"), reason);
                continue;
            }
        };
        let (whole, notes) = all(&bytes);
        assert!(whole.len() > 250 && notes.is_empty(), "{arguments:?}: {notes:?}");
        for descriptors in [false, true] {
            if descriptors && groups > 1 {
                // Where the other tables lie is lost.
                continue;
            }
            let (found, notes) = all(&without_superblocks(&bytes, descriptors));
            assert!(notes.iter().any(|note| note.contains("inferred")), "{arguments:?}: {notes:?}");
            assert_same(&format!("{arguments:?}, descriptors {descriptors}"), &whole, &found, &notes);
        }
    }
}
