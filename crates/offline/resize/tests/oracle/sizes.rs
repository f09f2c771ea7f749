//! The smallest size, sizes beyond what was reserved, other widths, and one resize after another.

use crate::support::{OPTIONS, Pair, backups_agree, estimate, resize};
use hectare_oracle::{Skip, assert_same, dumpe2fs, fsck, skip_part, tool};
use hectare_resize::{Error, Options, Target, Width};
use hectare_units::Bytes;
use hectare_units::random::SplitMix64;
use std::fs;

fn each(test: &str, pairs: &[Pair], judge: impl Fn(&Pair) -> Result<(), Skip>) {
    let only = std::env::var("HECTARE_RESIZE_ONLY").unwrap_or_default();
    for pair in pairs.iter().filter(|pair| pair.combo.name.contains(&only)) {
        if let Err(skip) = judge(pair) {
            skip_part!(format!("{test}, {}", pair.combo.name), skip);
        }
    }
}

#[test]
fn min_is_what_was_estimated_and_less_than_resize2fs_finds() {
    let pairs = [
        Pair::new("ext4", &["-g", "2048"], 160, 160),
        Pair::new("ext4-1k", &[], 90, 90),
        Pair::new("ext2-1k-128", &[], 80, 80),
        Pair::new("bigalloc", &["-g", "8192"], 256, 256),
        Pair::new("no-flex-bg", &[], 64, 64),
        Pair::new("ext4-64k", &["-g", "1024"], 300, 300),
        Pair::new("project", &["-g", "2048"], 100, 100),
    ];
    each("min_is_what_was_estimated_and_less_than_resize2fs_finds", &pairs, |pair| {
        let image = pair.make()?;
        let other = image.with_extension("other");
        fs::copy(&image, &other).unwrap();
        let before = pair.entries(&image)?;
        let (least, most, block_size) = estimate(&image, &OPTIONS).unwrap();
        let length = fs::metadata(&image).unwrap().len();
        assert_eq!(most.get() * u64::from(block_size), length, "the greatest size is the file's");
        let done = resize(&image, Target::Min, &OPTIONS).unwrap();
        fsck::assert_clean(&image)?;
        assert_eq!(done.after, least, "{pair:?}: estimated");
        assert_eq!(fs::metadata(&image).unwrap().len(), least.get() * u64::from(block_size));
        assert_same(&pair.entries(&image)?, &before, pair.compared());
        assert_eq!(estimate(&image, &OPTIONS).unwrap().0, least, "{pair:?}: no smaller than the smallest");
        let theirs = tool::run(tool::need("resize2fs")?.args(["-f", "-M"]).arg(&other));
        let blocks = dumpe2fs(&other)?.number("Block count");
        println!("{}: min {least} blocks, resize2fs -M {blocks}", pair.combo.name);
        assert!(!theirs.succeeded() || least.get() <= blocks, "{pair:?}: {least} against {blocks}");
        for file in [image, other] {
            fs::remove_file(file).unwrap();
        }
        Ok(())
    });
}

#[test]
fn growth_beyond_the_reserved_descriptors_is_sound() {
    let pairs = [
        Pair::new("ext4-1k", &["-E", "resize=131072"], 64, 1500),
        Pair::new("no-resize-inode", &["-g", "1024"], 64, 1500),
        Pair::new("ext2-plain", &[], 64, 900),
        Pair::new("ext2-rev-0", &[], 60, 900),
        Pair::new("no-flex-bg", &["-O", "^resize_inode"], 60, 700),
        Pair::new("bigalloc-1k", &["-O", "^resize_inode"], 256, 6000),
    ];
    each("growth_beyond_the_reserved_descriptors_is_sound", &pairs, |pair| {
        let image = pair.make()?;
        let before = pair.entries(&image)?;
        let grown = resize(&image, Target::Bytes(Bytes::mib(pair.to)), &OPTIONS);
        grown.unwrap_or_else(|error| panic!("{pair:?}: {error}"));
        fsck::assert_clean(&image)?;
        assert_same(&pair.entries(&image)?, &before, pair.compared());
        backups_agree(&image)?;
        resize(&image, Target::Bytes(Bytes::mib(pair.from)), &OPTIONS).unwrap();
        fsck::assert_clean(&image)?;
        assert_same(&pair.entries(&image)?, &before, pair.compared());
        fs::remove_file(image).unwrap();
        Ok(())
    });
}

#[test]
fn block_numbers_become_wide_and_narrow() {
    let pairs = [
        Pair::new("no-64bit", &["-g", "1024"], 160, 160),
        Pair::new("ext4", &["-g", "1024"], 160, 160),
        Pair::new("uninit-bg-1k", &[], 100, 100),
        Pair::new("meta-bg-1k", &[], 200, 200),
        Pair::new("no-flex-bg", &[], 100, 100),
    ];
    each("block_numbers_become_wide_and_narrow", &pairs, |pair| {
        let image = pair.make()?;
        let before = pair.entries(&image)?;
        for width in [Width::Wide, Width::Narrow, Width::Wide] {
            let options = Options { width, ..OPTIONS };
            let done = resize(&image, Target::Device, &options);
            done.unwrap_or_else(|error| panic!("{pair:?}, {width:?}: {error}"));
            fsck::assert_clean(&image)?;
            assert_eq!(dumpe2fs(&image)?.has("64bit"), width == Width::Wide, "{pair:?}");
            assert_same(&pair.entries(&image)?, &before, pair.compared());
            backups_agree(&image)?;
        }
        fs::remove_file(image).unwrap();
        Ok(())
    });
}

#[test]
fn regression_a_volume_that_grows_moves_metadata_of_the_groups_it_has() {
    let pairs = [
        Pair::new("ext4-1k", &["-g", "1024", "-O", "^resize_inode,^64bit"], 64, 80),
        Pair::new("ext2-rev-0", &[], 200, 400),
    ];
    each("regression_a_volume_that_grows_moves_metadata_of_the_groups_it_has", &pairs, |pair| {
        let image = pair.make()?;
        let before = pair.entries(&image)?;
        let width = if pair.combo.name == "ext4-1k" { Width::Wide } else { Width::AsNeeded };
        resize(&image, Target::Bytes(Bytes::mib(pair.to)), &Options { width, ..OPTIONS }).unwrap();
        fsck::assert_clean(&image)?;
        assert_same(&pair.entries(&image)?, &before, pair.compared());
        backups_agree(&image)?;
        fs::remove_file(image).unwrap();
        Ok(())
    });
}

#[test]
fn one_resize_after_another_keeps_everything() {
    let pairs = [
        Pair::new("ext4", &["-g", "2048"], 160, 60),
        Pair::new("small-groups", &[], 100, 50),
        Pair::new("sparse-super2", &[], 100, 50),
        Pair::new("meta-bg-1k", &[], 160, 64),
        Pair::new("ext2", &["-g", "2048"], 100, 50),
        Pair::new("bigalloc", &["-g", "8192"], 256, 120),
        Pair::new("inline-data-512", &[], 100, 50),
    ];
    each("one_resize_after_another_keeps_everything", &pairs, |pair| {
        let image = pair.make()?;
        let before = pair.entries(&image)?;
        let mut random = SplitMix64::stream(7, u64::from(pair.combo.block_size));
        for _ in 0..6 {
            let mib = pair.to + random.below(2 * pair.from);
            match resize(&image, Target::Bytes(Bytes::mib(mib)), &OPTIONS) {
                Ok(done) => println!("{}: {mib} MiB, {done:?}", pair.combo.name),
                Err(Error::NoSpace { .. } | Error::Size(_)) => {}
                Err(error) => panic!("{pair:?} to {mib} MiB: {error}"),
            }
            fsck::assert_clean(&image)?;
            backups_agree(&image)?;
        }
        assert_same(&pair.entries(&image)?, &before, pair.compared());
        fs::remove_file(image).unwrap();
        Ok(())
    });
}
