//! One byte of metadata changed: the verdict is that of e2fsck.

use crate::support::{check_file, e2fsck, lines, load, options};
use hectare_check::check;
use hectare_device::{Device, MemoryDevice, Record, TraceDevice};
use hectare_oracle::trees::Random;
use hectare_oracle::{Combo, Scale, Tree, debugfs_write, filled, hunt, mke2fs, scratch, skip, skip_part};
use hectare_units::Bytes;
use std::os::unix::fs::FileExt;

/// A change and what both said of it.
struct Case {
    at: u64,
    from: u8,
    to: u8,
    exit: Option<i32>,
    said: String,
    ours: Result<String, String>,
}

/// Volumes without checksums, where damage must be seen in what is damaged, and some with.
pub(crate) fn volumes() -> Vec<(Combo, Tree)> {
    let plain = |name, features: &'static [&'static str]| Combo {
        name,
        args: features,
        size: "64M",
        block_size: 1024,
        inode_size: 256,
        extents: true,
    };
    macro_rules! without_checksums {
        ($name:literal, $more:literal) => {
            plain($name, &["-t", "ext4", "-b", "1024", "-I", "256", "-O", concat!("^metadata_csum", $more)])
        };
    }
    let plain = without_checksums!("bare", "");
    let inline = without_checksums!("bare-inline", ",inline_data");
    let large = without_checksums!("bare-ea-inode", ",ea_inode");
    let clusters = without_checksums!("bare-bigalloc", ",bigalloc");
    let orphans = without_checksums!("bare-orphan-file", ",orphan_file,^flex_bg,^resize_inode");
    let quotas = without_checksums!("bare-quota", ",quota,project");
    let meta = without_checksums!("bare-meta-bg", ",meta_bg,^resize_inode,^has_journal");
    let named = Combo::named;
    vec![
        (named("ext2-plain"), Tree::Ordinary),
        (named("ext2-plain"), Tree::Sizes),
        (named("ext2-1k-128"), Tree::ManyFiles),
        (named("ext2-rev-0"), Tree::Links),
        (plain, Tree::Ordinary),
        (plain, Tree::ManyFiles),
        (plain, Tree::Attributes),
        (plain, Tree::Fragmented),
        (plain, Tree::Links),
        (plain, Tree::Pipes),
        (inline, Tree::Ordinary),
        (inline, Tree::Names),
        (large, Tree::Ordinary),
        (clusters, Tree::Fragmented),
        (orphans, Tree::Sparse),
        (meta, Tree::Deep),
        (quotas, Tree::Ordinary),
        (named("uninit-bg-1k"), Tree::Ordinary),
        (named("ext4-1k"), Tree::ManyFiles),
        (named("bigalloc-1k"), Tree::Ordinary),
        (named("orphan-file"), Tree::Ordinary),
        (named("mmp"), Tree::Ordinary),
    ]
}

/// Changes one byte of what the checker reads, `cases` times, and returns the cases where the two disagree.
fn damage(combo: &Combo, tree: Tree, seed: u64, cases: u64) -> Option<(u32, Vec<Case>)> {
    let name = format!("{} {}", combo.name, tree.name());
    let filled = match filled(combo, tree, &Scale::SMALL) {
        Ok(filled) => filled,
        Err(reason) => {
            skip_part!(format!("check damage, {name}"), reason);
            return None;
        }
    };
    let image = scratch::fresh("damage");
    filled.copy_to(&image).unwrap();
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    let device = load(&image);
    let trace = TraceDevice::new(&device, 1 << 20);
    let report = check(&trace, &options()).unwrap();
    assert!(report.is_clean(), "{name}: {}", lines(&report));
    let reads = trace.take();
    let mut random = Random::new(&format!("{name}{seed}"));
    let (mut found, mut differing) = (0, Vec::new());
    for _ in 0..cases {
        let (at, old) = choose(&device, &reads, &mut random);
        let flip = if random.below(2) == 0 { 1 << random.below(8) } else { 1 + random.below(255) };
        let new = old ^ u8::try_from(flip).unwrap();
        let put = |byte: u8| {
            device.write_at(Bytes::new(at), &[byte]).unwrap();
            file.write_all_at(&[byte], at).unwrap();
        };
        put(new);
        let ours = match check(&device, &options()) {
            Ok(report) if report.is_clean() => Ok(format!("{:?}", report.notes)),
            Ok(report) => Err(lines(&report)),
            Err(error) => Err(error.to_string()),
        };
        let (exit, said) = e2fsck(&image)?;
        put(old);
        found += u32::from(ours.is_err());
        if ours.is_ok() != (exit == Some(0)) {
            differing.push(Case { at, from: old, to: new, exit, said, ours });
        }
    }
    let _ = std::fs::remove_file(&image);
    Some((found, differing))
}

/// A byte that is read, mostly one that means something.
pub(crate) fn choose(device: &MemoryDevice, reads: &[Record], random: &mut Random) -> (u64, u8) {
    let mut byte = [0];
    for round in 0.. {
        let read = reads[usize::try_from(random.below(reads.len() as u64)).unwrap()].request.span;
        // The inode tables are read in long pieces, of which little is in use; the rest is read in blocks.
        let at = read.at.get() + random.below(read.len.get());
        device.read_at(Bytes::new(at), &mut byte).unwrap();
        if byte[0] != 0 || round == 20 {
            return (at, byte[0]);
        }
    }
    unreachable!("the loop ends by returning")
}

/// Where the checker is stricter: the kernel, too, takes it for damage.
///
/// - Block bitmaps: e2fsck sets the bits of metadata that belongs to uninitialised groups when it loads a
///   bitmap, whatever the bitmap says, and with those it forgives the bitmap's checksum.
/// - The checksum of a group descriptor, and the depth in a node of an extent tree: with -n, e2fsck reports
///   nothing or continues.
fn is_stricter(lines: &str) -> bool {
    lines.lines().all(|line| {
        line.starts_with("block bitmap of group")
            || line.starts_with("group descriptor of group") && line.contains("its checksum")
            || line.starts_with("block map in block") && line.contains("its depth")
    })
}

/// Where e2fsck judges other descriptors: it takes the backups of those that look bad, and with -n does not
/// count that as an error.
fn is_of_backups(case: &Case, lines: &str) -> bool {
    case.said.contains("Group descriptors look bad... trying backup blocks")
        && lines.contains("group descriptor of")
}

/// Where e2fsck is stricter: it refuses features it does not know, which the checker names as not judged.
fn is_refused(case: &Case) -> bool {
    case.exit == Some(12) && case.said.contains("unsupported feature")
}

/// `HECTARE_DAMAGE` sets how many changes each volume suffers, `HECTARE_SEED` which, `HECTARE_VOLUME` (such
/// as "bare attributes") which volume alone.
#[test]
fn one_byte_changed_is_seen_as_e2fsck_sees_it() {
    let seed = hunt::seed("damage::one_byte_changed_is_seen_as_e2fsck_sees_it");
    let cases = std::env::var("HECTARE_DAMAGE").map_or_else(|_| hunt::share(150), |n| n.parse().unwrap());
    let only = std::env::var("HECTARE_VOLUME").ok();
    let (mut all, mut wrong) = (0, Vec::new());
    for (combo, tree) in volumes() {
        if only.as_ref().is_some_and(|only| *only != format!("{} {}", combo.name, tree.name())) {
            continue;
        }
        let Some((found, differing)) = damage(&combo, tree, seed, cases) else { continue };
        all += found;
        for case in differing {
            let allowed = match &case.ours {
                Err(lines) => is_stricter(lines) || is_of_backups(&case, lines),
                Ok(_) => is_refused(&case),
            };
            if !allowed {
                let Case { at, from, to, exit, said, ours } = case;
                let name = format!("{} {}", combo.name, tree.name());
                wrong.push(format!(
                    "{name}, byte {at:#x} from {from:#x} to {to:#x}: exit {exit:?}, {ours:?}\n{said}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "seed {seed:?}, {} of them:\n{}", wrong.len(), wrong.join("\n"));
    assert!(all > 0 || hectare_oracle::tool("e2fsck").is_none());
}

/// Both find it, where e2fsck alone did.
#[test]
fn regression_a_name_without_prefix_in_an_attribute_block() {
    let image = scratch::fresh("damage");
    let value = "v".repeat(40);
    let filled = mke2fs(&["-t", "ext4", "-b", "1024", "-I", "128", "-O", "^metadata_csum"], &image, "8M")
        .and_then(|()| {
            debugfs_write(&image, &["write /dev/null file", &format!("ea_set file user.name {value}")])
        });
    if let Err(reason) = filled {
        skip!("check damage, a name without prefix", reason);
    }
    let mut bytes = std::fs::read(&image).unwrap();
    let begins = |block: &[u8]| block.starts_with(&[0, 0, 2, 0xea]);
    let block = bytes.chunks(1024).position(begins).expect("an attribute block");
    assert!(check_file(&image).unwrap().is_clean());
    // The first entry follows the header of 32 bytes, and its second byte is the prefix.
    bytes[block * 1024 + 33] = 0;
    std::fs::write(&image, &bytes).unwrap();
    assert_eq!(lines(&check_file(&image).unwrap()).matches("has no prefix").count(), 1);
    let (exit, said) = e2fsck(&image).expect("it was there a moment ago");
    assert!(exit == Some(4) && said.contains("invalid name"), "{said}");
    std::fs::remove_file(&image).unwrap();
}

/// What nobody reads is no damage: e2fsck says nothing of it, and leaves it.
#[test]
fn regression_what_nobody_reads_is_no_damage() {
    let image = scratch::fresh("unread");
    let small: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "^64bit"];
    let ext2: &[&str] = &["-t", "ext2", "-b", "1024", "-O", "^resize_inode"];
    let ext4: &[&str] = &["-t", "ext4", "-b", "1024"];
    let cases: [(&[&str], &str); 13] = [
        (ext4, "sif <3> size 77"),
        (ext4, "sif <3> flags 0x10"),
        (ext4, "sif <9> links_count 3"),
        (ext4, "sif <9> block[0] 700"),
        (ext4, "sif <10> size 7"),
        (ext2, "sif <8> size 700"),
        (ext2, "sif <7> links_count 1"),
        (ext2, "sif p block[4] 77"),
        (ext4, "sif p block[5] 77"),
        (ext4, "sif p block[11] 77"),
        (ext4, "ssv journal_dev 77"),
        (ext4, "ssv usr_quota_inum 3"),
        (small, "ssv r_blocks_count_hi 1"),
    ];
    for (args, request) in cases {
        let made = mke2fs(args, &image, "8M").and_then(|()| debugfs_write(&image, &["mknod p p", request]));
        if let Err(reason) = made {
            skip!("check damage, what nobody reads", reason);
        }
        let (exit, said) = e2fsck(&image).expect("it was there a moment ago");
        assert!(exit == Some(0) && !said.contains("? no"), "{request}: {said}");
        let report = check_file(&image).unwrap();
        assert!(report.is_clean(), "{request}: {}", lines(&report));
    }
    std::fs::remove_file(&image).unwrap();
}

/// What e2fsck does mind in an inode that is reserved and not in use.
#[test]
fn regression_reserved_inodes_that_are_damaged() {
    let image = scratch::fresh("reserved");
    let changes = [
        "sif <3> links_count 1",
        "sif <4> block[0] 700",
        "sif <9> blocks 2",
        "sif <9> file_acl 500",
        "sif <9> size 99999999999",
        "sif <9> mode 0100600",
        "sif <9> flags 0x90080000",
        "sif <9> dtime 5",
    ];
    for request in changes {
        let made = mke2fs(&["-t", "ext4", "-b", "1024"], &image, "8M")
            .and_then(|()| debugfs_write(&image, &[request]));
        if let Err(reason) = made {
            skip!("check damage, reserved inodes", reason);
        }
        let (exit, said) = e2fsck(&image).expect("it was there a moment ago");
        assert!(exit != Some(0), "{request}: {said}");
        assert!(!check_file(&image).unwrap().is_clean(), "{request}");
    }
    std::fs::remove_file(&image).unwrap();
}
