//! The same volume as mke2fs makes of the same arguments, field by field and group by group, and clean.

use crate::common::{self, bytes, format, options, two_at_a_time};
use hectare_ext4::time::Timestamp;
use hectare_mkfs::Plan;
use hectare_oracle::e2fsprogs::try_mke2fs;
use hectare_oracle::e2fsprogs::{Dump, GroupDump};
use hectare_oracle::hunt::long;
use hectare_oracle::{Skip, dumpe2fs, mke2fs, skip};
use std::path::Path;

/// Superblock fields that may differ, and why.
const MAY_DIFFER: &[&str] = &[
    "Lifetime writes", // counts what mke2fs wrote, several times over
    "Checksum",        // covers the above
    "mmp_sequence",
    "mmp_update_date",
    "mmp_update_time",
    "mmp_node_name", // ours names nobody
    "mmp_device_name",
    "Last write time",
];

/// Sizes and arguments.
const CASES: &[(&str, &str)] = &[
    ("1M", ""),
    ("1M", "-t ext4"),
    ("2M", "-t ext4"),
    ("4M", "-t ext3"),
    ("8M", "-t ext4 -b 2048"),
    ("16M", "-t ext4 -b 4096"),
    ("33M", "-t ext4"),
    ("64M", ""),
    ("64M", "-t ext3"),
    ("64M", "-t ext4"),
    ("64M", "-t ext4 -b 4096"),
    ("64M", "-t ext4 -b 65536"),
    ("100M", "-t ext4 -I 128"),
    ("100M", "-t ext4 -O ^has_journal"),
    ("100M", "-t ext4 -O ^flex_bg"),
    ("100M", "-t ext4 -O ^resize_inode"),
    ("100M", "-t ext4 -O ^flex_bg,^resize_inode,^has_journal"),
    ("100M", "-t ext4 -O uninit_bg,^metadata_csum"),
    ("100M", "-t ext4 -O uninit_bg,^metadata_csum,^flex_bg"),
    ("100M", "-t ext4 -O ^metadata_csum"),
    ("100M", "-t ext4 -O ^64bit,^metadata_csum"),
    ("100M", "-t ext4 -O ^64bit"),
    ("100M", "-t ext4 -O meta_bg,^resize_inode"),
    ("200M", "-t ext4 -O meta_bg,^resize_inode -b 1024"),
    ("100M", "-t ext4 -O sparse_super2"),
    ("16M", "-t ext4 -O sparse_super2"),
    ("7M", "-t ext4 -O sparse_super2"),
    ("100M", "-t ext4 -O sparse_super2 -E num_backup_sb=1"),
    ("100M", "-t ext4 -O sparse_super2,^resize_inode -E num_backup_sb=0"),
    ("100M", "-t ext4 -O orphan_file"),
    ("100M", "-t ext4 -O mmp"),
    ("100M", "-t ext4 -O metadata_csum_seed,large_dir,ea_inode"),
    ("100M", "-t ext4 -O encrypt,stable_inodes,verity"),
    ("100M", "-t ext4 -O fast_commit"),
    ("300M", "-t ext4 -O fast_commit -J size=32"),
    ("100M", "-t ext4 -O ^dir_index"),
    // A few blocks at the end are left out; root's share is less in proportion.
    ("3145748k", "-t ext4 -b 4096"),
    ("3145748k", "-t ext2 -b 4096 -m 33.3"),
    ("3145748k", "-t ext4 -b 4096 -m 50"),
    // Groups shrink until their inodes fit; a last group dropped on the way comes back (but the share for
    // root, which mke2fs takes before that, does not).
    ("420M", "-t ext4 -b 4096 -m 0 -N 1000011"),
    ("100M", "-t ext4 -O bigalloc"),
    ("1G", "-t ext4 -O bigalloc -b 1024"),
    ("100M", "-t ext4 -O bigalloc -C 65536 -b 4096"),
    ("500M", "-t ext4 -O bigalloc,^resize_inode -b 1024 -C 4096"),
    ("100M", "-t ext4 -O bigalloc,^flex_bg -b 4096"),
    ("64M", "-t ext4 -E packed_meta_blocks=1"),
    ("256M", "-t ext4 -E packed_meta_blocks=1 -b 1024 -G 4"),
    // The resize inode is a large file.
    ("64M", "-t ext4 -b 4096 -O ^large_file"),
    ("64M", "-t ext4 -b 2048 -O ^large_file"),
    ("64M", "-t ext4 -b 4096 -O ^large_file,^resize_inode"),
    // The last cluster is whole.
    ("102404k", "-t ext4 -b 4096 -m 0 -O bigalloc"),
    ("256728k", "-t ext4 -b 4096 -m 0 -O bigalloc -C 131072"),
    // A size that is given counts to the block.
    ("102403k", "-t ext4 -b 1024"),
    ("77777k", "-t ext2"),
    ("600001k", "-t ext4 -b 2048"),
    // Groups are counted in clusters.
    ("200M", "-t ext4 -b 4096 -O bigalloc -C 65536 -g 256"),
    ("1G", "-t ext4 -b 1024 -O bigalloc -g 1000"),
    ("200M", "-t ext4 -b 4096 -O bigalloc -g 32768"),
    // Groups of a given length shrink for their inodes, too.
    ("64M", "-t ext4 -b 1024 -I 128 -N 400000 -g 8192"),
    // Growing that takes no more descriptors.
    ("200M", "-t ext4 -b 4096 -E resize=60000"),
    ("200M", "-t ext2 -b 4096 -E resize=60000 -O ^resize_inode"),
    ("200M", "-t ext4 -b 4096 -E resize=60000 -O meta_bg,^resize_inode"),
    ("200M", "-t ext4 -b 4096 -E resize=4T"),
    // More bytes an inode than there are.
    ("20M", "-t ext4 -i 67108864"),
    ("20M", "-t ext4 -i 67108864 -b 2048"),
    ("20M", "-t ext4 -i 67108864 -b 16384"),
    ("3M", "-t ext4 -T largefile4"),
    ("300M", "-t ext4 -T largefile"),
    ("100M", "-t ext4 -T news"),
    ("100M", "-t ext4 -O inline_data"),
    ("100M", "-t ext4 -O inline_data -b 1024"),
    ("100M", "-t ext4 -O inline_data -b 2048"),
    ("100M", "-t ext4 -O inline_data -b 65536"),
    ("100M", "-t ext4 -O project"),
    ("100M", "-t ext4 -O quota"),
    ("100M", "-t ext4 -O quota,project -b 4096"),
    ("100M", "-t ext4 -O quota,project,orphan_file -E root_owner=5:6"),
    ("100M", "-t ext4 -O quota -E quotatype=prjquota"),
    ("100M", "-t ext4 -O quota,bigalloc -E quotatype=grpquota"),
    ("100M", "-t ext3 -O quota"),
    ("100M", "-t ext4 -O casefold -E encoding_flags=strict"),
    ("100M", "-t ext4 -E encoding=utf8-12.1 -O encrypt"),
    // Packing takes flex groups.
    ("126M", "-t ext2 -b 2048 -E packed_meta_blocks=1"),
    ("126M", "-t ext3 -b 2048 -E packed_meta_blocks=1"),
    ("64M", "-t ext2 -E stride=16"),
    ("64M", "-t ext2 -E stride=5,stripe_width=20"),
    ("64M", "-t ext4 -E stride=16,stripe_width=64"),
    ("100M", "-t ext4 -G 4"),
    ("100M", "-t ext4 -G 1"),
    ("1G", "-t ext4 -g 1000"),
    ("1G", "-t ext4 -g 8192"),
    ("100M", "-t ext4 -N 20000"),
    ("100M", "-t ext4 -N 5"),
    // lost+found lies where its inode does.
    ("100001k", "-t ext4 -O ^flex_bg -b 1024 -N 13"),
    ("20000k", "-t ext3 -O sparse_super2 -b 1024 -N 13"),
    ("20000k", "-t ext4 -O bigalloc -b 1024 -N 13 -g 256 -G 1"),
    // Inodes and root's share are of all blocks, whole cluster or not.
    ("103423k", "-t ext4 -b 4096 -O bigalloc -C 1048576 -i 4096"),
    ("20500k", "-t ext4 -O bigalloc -b 4096 -i 67108864"),
    ("64M", "-t ext4 -N 0"),
    ("500001k", "-t ext4 -O bigalloc -b 4096 -C 65536 -g 1024"),
    ("100M", "-t ext4 -i 1024"),
    ("100M", "-t ext4 -i 1048576 -m 0.7"),
    ("100M", "-t ext4 -T big -L label -e remount-ro"),
    ("100M", "-t ext4 -J size=8"),
    ("1G", "-t ext4 -E resize=10000000"),
    ("1G", "-t ext4"),
    ("1G", "-t ext3"),
    ("1G", "-t ext3 -b 1024"),
    ("1G", "-t ext3 -b 1024 -J size=300"),
    ("300M", "-t ext3 -b 1024 -g 1024"),
    ("100M", "-t ext4 -O ^extent,^64bit,orphan_file"),
    ("3G", "-t ext4 -b 1024"),
    ("10G", "-t ext4"),
    ("10G", "-t ext4 -O orphan_file,mmp,metadata_csum_seed"),
    ("10G", "-t ext2"),
    ("200G", "-t ext4"),
    ("600k", ""),
    ("128G", "-t ext4 -O ^sparse_super,^resize_inode"),
    ("1T", "-t ext4"),
    ("1T", "-t ext4 -O bigalloc -C 1048576"),
    // Block numbers of 33 bits, and few groups.
    ("20T", "-t ext4 -O bigalloc,^meta_bg -C 1048576 -G 16"),
    ("24T", "-t ext4 -O bigalloc,meta_bg,^resize_inode -C 1048576 -G 64"),
];

/// Volumes, and the longest journal in MiB that mke2fs gives them.
const JOURNALS: &[(&str, &str, u64)] = &[
    ("20M", "-t ext4 -b 1024", 9),
    ("20M", "-t ext4 -b 1024 -O fast_commit", 9),
    ("64M", "-t ext4 -b 4096", 31),
    ("64M", "-t ext4 -b 4096 -O ^flex_bg", 29),
    ("64M", "-t ext3 -b 1024", 29),
    ("64M", "-t ext4 -b 1024 -O bigalloc", 31),
    ("200M", "-t ext4 -b 4096", 99),
    ("200M", "-t ext4 -b 4096 -O orphan_file", 99),
    ("200M", "-t ext4 -b 4096 -O ^resize_inode -G 1", 93),
];

/// Judged only when asked for: dumpe2fs takes half a minute for each, and those of clusters in [`CASES`] are
/// much the same.
const LONG: &[(&str, &str)] = &[
    ("17T", "-t ext4 -O ^meta_bg -G 16"),
    ("20T", "-t ext4 -O meta_bg,^resize_inode -G 16"),
    ("20T", "-t ext4 -O meta_bg,^resize_inode -G 64"),
];

fn superblock(image: &Path) -> [u8; 2048] {
    use std::os::unix::fs::FileExt;
    let mut bytes = [0; 2048];
    std::fs::File::open(image).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn time_of(image: &Path) -> Timestamp {
    let bytes = superblock(image);
    let field = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    Timestamp::from_seconds(field(1024 + 0x108).into())
}

/// Compares every field of the superblock record, also those that dumpe2fs does not print.
fn compare_superblocks(name: &str, ours: &Path, theirs: &Path) -> Vec<String> {
    const MAY_DIFFER: &[&str] = &["s_wtime", "s_lastcheck", "s_mkfs_time", "s_kbytes_written", "s_checksum"];
    let (ours, theirs) = (superblock(ours), superblock(theirs));
    // The journal's map is not compared where it is an extent root with nodes below: these may lie elsewhere,
    // and unused entries of the root hold something else.
    let map = 1024 + 0x10c;
    let has_nodes = ours[map..map + 2] == [0x0a, 0xf3] && ours[map + 6..map + 8] != [0, 0];
    let fields = hectare_ext4::raw::SuperBlock::FIELDS.iter();
    let may_differ = |name| MAY_DIFFER.contains(&name) || has_nodes && name == "s_jnl_blocks";
    let fields = fields.filter(|field| !may_differ(field.name));
    fields
        .filter_map(|field| {
            let range = 1024 + field.offset..1024 + field.offset + field.size;
            let (a, b) = (&ours[range.clone()], &theirs[range]);
            (a != b).then(|| format!("{name}: {}: ours {a:02x?}, mke2fs {b:02x?}", field.name))
        })
        .collect()
}

fn compare(name: &str, ours: &Dump, theirs: &Dump) -> Vec<String> {
    let mut wrong = Vec::new();
    let keys: std::collections::BTreeSet<_> = ours.fields.keys().chain(theirs.fields.keys()).collect();
    for key in keys.into_iter().filter(|key| !MAY_DIFFER.contains(&key.as_str())) {
        let (a, b) = (ours.fields.get(key), theirs.fields.get(key));
        if a != b {
            wrong.push(format!("{name}: {key}: ours {a:?}, mke2fs {b:?}"));
        }
    }
    if ours.groups.len() != theirs.groups.len() {
        wrong.push(format!("{name}: groups {} {}", ours.groups.len(), theirs.groups.len()));
    }
    for (a, b) in ours.groups.iter().zip(&theirs.groups) {
        let lines = |group: &GroupDump| -> Vec<String> {
            std::iter::once(&group.heading).chain(&group.lines).cloned().collect()
        };
        let (a, b) = (lines(a), lines(b));
        if a != b {
            for (a, b) in a.iter().zip(&b).filter(|(a, b)| a != b) {
                wrong.push(format!("{name}: ours   {a}\n{name}: mke2fs {b}"));
            }
            break; // one group is enough to look at
        }
    }
    wrong
}

/// Makes one volume with both, and returns what differs or is wrong.
fn judge(folder: &Path, size: &str, args: &str) -> Result<Vec<String>, Skip> {
    let name = format!("{size} {args}");
    let args: Vec<&str> = args.split_whitespace().collect();
    let (theirs, ours) = (folder.join("theirs"), folder.join("ours"));
    drop(common::create(&theirs, bytes(size))); // an existing sparse file is one that reads as zeros
    mke2fs(&args, &theirs, size)?;
    let mut options = options(&args).unwrap();
    options.now = time_of(&theirs);
    if let Err(error) = format(&options, &ours, bytes(size)) {
        return Ok(vec![format!("{name}: {error}")]);
    }
    let mut wrong = compare_superblocks(&name, &ours, &theirs);
    wrong.extend(compare(&name, &dumpe2fs(&ours).unwrap(), &dumpe2fs(&theirs).unwrap()));
    let report = hectare_oracle::e2fsck(&ours).unwrap();
    if !report.clean {
        wrong.push(format!("{name}: e2fsck: {}", report.output));
    }
    std::fs::remove_file(&theirs).unwrap();
    std::fs::remove_file(&ours).unwrap();
    Ok(wrong)
}

/// Whether all of these are equal.
fn judge_all(test: &str, cases: &[(&str, &str)]) {
    match two_at_a_time(cases, |(size, args)| judge(common::folder().path(), size, args)) {
        Ok(wrong) => assert!(wrong.concat().is_empty(), "{}", wrong.concat().join("\n")),
        Err(reason) => skip!(test, reason),
    }
}

#[test]
fn volumes_equal_those_of_mke2fs() {
    judge_all("mke2fs::volumes_equal_those_of_mke2fs", CASES);
    if long("mke2fs::volumes_equal_those_of_mke2fs, 17T and 20T") {
        judge_all("mke2fs::volumes_equal_those_of_mke2fs, 17T and 20T", LONG);
    }
}

/// Whether a journal as long as this is given, by mke2fs and by us.
fn takes(folder: &Path, size: &str, args: &str, mib: u64) -> Result<(bool, bool), Skip> {
    let args = format!("{args} -J size={mib}");
    let args: Vec<&str> = args.split_whitespace().collect();
    let theirs = try_mke2fs(&args, &folder.join("theirs"), size)?.exit == Some(0);
    let ours = Plan::new(&options(&args).unwrap(), bytes(size), true);
    Ok((theirs, ours.is_ok()))
}

#[test]
fn a_journal_may_be_as_long_as_with_mke2fs() {
    let judged = two_at_a_time(JOURNALS, |(size, args, most)| {
        let folder = common::folder();
        let taken = [takes(folder.path(), size, args, *most)?, takes(folder.path(), size, args, most + 1)?];
        Ok((taken != [(true, true), (false, false)]).then(|| format!("{size} {args}: {taken:?}")))
    });
    match judged {
        Ok(wrong) => assert_eq!(wrong.into_iter().flatten().collect::<Vec<String>>(), [""; 0]),
        Err(reason) => skip!("mke2fs::a_journal_may_be_as_long_as_with_mke2fs", reason),
    }
}
