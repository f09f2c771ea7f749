//! Feature sets drawn at random, so that every night tries others than the listed ones.
//!
//! A set is drawn in an order in which each choice knows what it needs: the kind of volume first, sizes next,
//! then features, each of which may take another away (a `resize_inode` is none with `meta_bg`). mke2fs accepts
//! nearly all; what it refuses is drawn again, as the next number of the same seed.

use super::Combo;
use crate::trees::random::Random;
use crate::{Skip, e2fsprogs, scratch};
use std::fs;

/// A drawn set.
#[derive(Clone, Copy, Debug)]
pub struct Drawn {
    /// What mke2fs gets; named by the seed and the number that it was drawn with.
    pub combo: Combo,
    /// Whether the superblock is to ask for `data=journal`.
    pub journals_data: bool,
    /// Whether the journal lies on another device.
    pub external: bool,
}

/// Draws this many sets that mke2fs accepts, from a seed.
///
/// # Errors
/// A [`Skip`] if mke2fs is not installed.
///
/// # Panics
/// If mke2fs refuses most.
pub fn drawn(seed: u64, count: usize) -> Result<Vec<Drawn>, Skip> {
    let image = scratch::fresh("drawn");
    let mut sets = Vec::new();
    for number in 0_u64.. {
        if sets.len() == count {
            break;
        }
        assert!(number < 10 + 2 * count as u64, "seed {seed}: mke2fs refuses most of the sets");
        let set = draw(seed, number);
        if e2fsprogs::try_mke2fs(set.combo.args, &image, set.combo.size)?.succeeded() {
            sets.push(set);
        }
        let _ = fs::remove_file(&image); // the scratch directory is removed anyway
    }
    Ok(sets)
}

/// Choices from a generator.
struct Choice(Random);

impl Choice {
    /// Whether something happens that does so in `n` of 12 cases.
    fn in_12(&mut self, n: u64) -> bool {
        self.0.below(12) < n
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.0.below(all.len() as u64)).unwrap_or(0)]
    }
}

/// The words for mke2fs, as they are chosen.
#[derive(Default)]
struct Words {
    features: Vec<&'static str>,
    extended: Vec<String>,
    journal: Vec<String>,
    others: Vec<String>,
}

impl Words {
    fn option(&mut self, option: &str, value: impl ToString) {
        self.others.extend([option.to_owned(), value.to_string()]);
    }

    /// All of them, kept for ever: a [`Combo`] holds what lives as long as the program.
    fn args(mut self, kind: &str, block_size: u32, inode_size: u16) -> &'static [&'static str] {
        let mut args: Vec<String> = ["-t", kind, "-b"].map(str::to_owned).into();
        args.extend([block_size.to_string(), "-I".to_owned(), inode_size.to_string()]);
        args.append(&mut self.others);
        for (option, list) in [("-E", self.extended.join(",")), ("-J", self.journal.join(","))] {
            if !list.is_empty() {
                args.extend([option.to_owned(), list]);
            }
        }
        if !self.features.is_empty() {
            args.extend(["-O".to_owned(), self.features.join(",")]);
        }
        let args: Vec<&'static str> = args.into_iter().map(|arg| &*arg.leak()).collect();
        args.leak()
    }
}

/// The set of a seed and a number.
fn draw(seed: u64, number: u64) -> Drawn {
    let mut choice = Choice(Random::new(&format!("drawn-{seed}-{number}")));
    let kind = choice.of(&["ext2", "ext3", "ext4", "ext4", "ext4", "ext4", "ext4"]);
    let block_size = choice.of(&[1024, 1024, 1024, 2048, 2048, 4096, 4096, 4096, 4096, 8192, 16384, 65536]);
    let inode_size = choice.of(&[128_u16, 256, 256, 256, 512, 1024]);
    let mut words = Words::default();
    let extents = kind == "ext4" && !choice.in_12(2);
    if kind == "ext4" {
        modern_features(&mut choice, &mut words, extents, block_size, inode_size);
    }
    let clusters = words.features.contains(&"bigalloc");
    old_features(&mut choice, &mut words, kind, block_size, clusters);
    let (journals_data, external) = journal(&mut choice, &mut words, kind, block_size);
    if block_size > 4096 && !clusters {
        words.option("-N", 8192);
    }
    let combo = Combo {
        name: format!("drawn-{seed}-{number}").leak(),
        args: words.args(kind, block_size, inode_size),
        size: if clusters || block_size > 4096 { "256M" } else { choice.of(&["64M", "64M", "128M"]) },
        block_size,
        inode_size,
        extents,
    };
    Drawn { combo, journals_data, external }
}

/// What only ext4 has.
fn modern_features(choice: &mut Choice, words: &mut Words, extents: bool, block_size: u32, inode_size: u16) {
    let mut take = |feature: &'static str, taken: bool| {
        if taken {
            words.features.push(feature);
        }
        taken
    };
    if !take("^extents", !extents) {
        take("verity", choice.in_12(2));
    }
    let clusters = take("bigalloc", extents && choice.in_12(2));
    if take("^metadata_csum", choice.in_12(3)) {
        take("uninit_bg", choice.in_12(5));
    } else {
        take("metadata_csum_seed", choice.in_12(3));
    }
    take("^64bit", !extents || choice.in_12(3));
    take("^flex_bg", choice.in_12(2));
    take("^huge_file", choice.in_12(1));
    take("^dir_nlink", choice.in_12(1));
    take("large_dir", choice.in_12(2));
    take("ea_inode", choice.in_12(4));
    take("encrypt", choice.in_12(1));
    take("stable_inodes", choice.in_12(1));
    let quota = take("quota", choice.in_12(3));
    if inode_size > 128 {
        take("inline_data", choice.in_12(5));
        take("^extra_isize", choice.in_12(1));
        take("project", quota && choice.in_12(6));
    }
    if take("casefold", choice.in_12(2)) {
        words.extended.push("encoding=utf8".to_owned());
    }
    if quota && choice.in_12(3) {
        words
            .extended
            .push(format!("quotatype={}", choice.of(&["usrquota", "grpquota", "usrquota:grpquota"])));
    }
    if clusters {
        words.option("-C", block_size << choice.of(&[1, 2, 4]));
        words.option("-N", 8192);
    }
}

/// What ext2 has as well, and where things lie.
fn old_features(choice: &mut Choice, words: &mut Words, kind: &str, block_size: u32, clusters: bool) {
    let meta_bg = choice.in_12(1);
    let super_2 = !meta_bg && kind == "ext4" && choice.in_12(1);
    let everywhere = !meta_bg && !super_2 && choice.in_12(1);
    if meta_bg || super_2 || everywhere || choice.in_12(1) {
        words.features.push("^resize_inode");
    }
    words.features.extend(everywhere.then_some("^sparse_super"));
    words.features.extend(meta_bg.then_some("meta_bg"));
    if super_2 {
        words.features.push("sparse_super2");
        words.extended.push(format!("num_backup_sb={}", choice.of(&[0, 1, 2])));
    }
    words.features.extend(choice.in_12(2).then_some("^dir_index"));
    words.features.extend(choice.in_12(1).then_some("^filetype"));
    if choice.in_12(1) {
        words.extended.push("stride=16,stripe_width=64".to_owned());
    }
    if kind == "ext4" && !words.features.contains(&"^flex_bg") && choice.in_12(3) {
        words.option("-G", choice.of(&[1, 4, 64]));
        words.extended.extend(choice.in_12(3).then(|| "packed_meta_blocks=1".to_owned()));
    }
    if !clusters && block_size <= 4096 && choice.in_12(3) {
        words.option("-i", choice.of(&[4096, 8192, 65536]));
    }
    if choice.in_12(2) {
        words.option("-m", choice.of(&[0, 20]));
    }
    if !clusters && block_size <= 4096 && choice.in_12(3) {
        // In blocks: a group has no more than its bitmap has bits.
        words.option("-g", block_size * choice.of(&[2, 4, 8]));
    }
    words.extended.push(format!("lazy_itable_init={}", u8::from(choice.in_12(6))));
}

/// The journal: none, one inside of some size, or one on another device. Returns whether data is journalled, and
/// whether it lies elsewhere.
fn journal(choice: &mut Choice, words: &mut Words, kind: &str, block_size: u32) -> (bool, bool) {
    match choice.0.below(12) {
        _ if kind == "ext2" => (false, false),
        0 => {
            words.features.push("^has_journal");
            (false, false)
        }
        // The blocks of the journal are as large as the volume's.
        1 if block_size <= 4096 => {
            words.features.push("^has_journal");
            (choice.in_12(4), true)
        }
        _ => {
            words.journal.extend(choice.in_12(4).then(|| format!("size={}", choice.of(&[4, 8, 16]))));
            if kind == "ext4" {
                words.features.extend(choice.in_12(3).then_some("orphan_file"));
                if choice.in_12(3) {
                    words.features.push("fast_commit");
                    words.journal.extend(choice.in_12(6).then(|| "fast_commit_size=1".to_owned()));
                }
                if choice.in_12(1) {
                    words.features.push("mmp");
                    words.extended.push("mmp_update_interval=1".to_owned());
                }
            }
            (choice.in_12(3), false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{assert_clean, skip};
    use std::collections::BTreeSet;

    #[test]
    fn sets_are_accepted_clean_and_repeat() {
        if let Err(reason) = crate::tool::need("mke2fs") {
            skip!("feature_matrix::sets_are_accepted", reason);
        }
        let sets = drawn(1, 40).unwrap();
        let all: BTreeSet<_> = sets.iter().map(|set| set.combo.args).collect();
        assert_eq!(all.len(), sets.len());
        assert!(sets.iter().zip(drawn(1, 40).unwrap()).all(|(one, other)| one.combo == other.combo));
        let last = sets.last().unwrap().combo.name.rsplit('-').next().unwrap().parse::<usize>().unwrap();
        assert!(last < 45, "{last} were drawn for 40: mke2fs refuses too many");
        let image = scratch::fresh("drawn");
        for set in &sets[..8] {
            set.combo.make(&image).unwrap();
            assert_clean(&image).unwrap();
            fs::remove_file(&image).unwrap();
        }
    }
}
