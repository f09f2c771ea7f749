//! Pairs of sizes over many features, against resize2fs on copies.

use crate::support::Pair;
use hectare_oracle::{combos, skip, skip_part};
use hectare_units::random::SplitMix64;

/// The pairs of the short run.
fn short() -> Vec<Pair> {
    vec![
        Pair::new("ext4", &["-g", "2048"], 64, 200),
        Pair::new("ext4", &["-g", "2048"], 200, 60),
        Pair::new("ext4-1k", &[], 64, 130),
        Pair::new("ext4-1k", &[], 128, 45),
        Pair::new("ext2-1k-128", &[], 100, 40),
        Pair::new("ext2-plain", &[], 40, 100),
        Pair::new("ext2-rev-0", &[], 60, 35),
        Pair::new("ext3", &["-g", "4096"], 120, 64),
        Pair::new("meta-bg-1k", &[], 90, 200),
        Pair::new("meta-bg-1k", &[], 200, 64),
        Pair::new("no-flex-bg", &[], 96, 41),
        Pair::new("sparse-super2", &[], 64, 150),
        Pair::new("sparse-super2", &[], 150, 49),
        Pair::new("bigalloc", &["-g", "8192"], 256, 100),
        Pair::new("bigalloc-1k", &[], 256, 600),
        Pair::new("inline-data-512", &[], 128, 50),
        Pair::new("ea-inode", &["-g", "2048"], 160, 60),
        Pair::new("orphan-file", &["-g", "2048"], 160, 70),
        Pair::new("mmp", &["-g", "2048"], 100, 60),
        Pair::new("uninit-bg-1k", &[], 120, 50),
        Pair::new("project", &["-g", "2048"], 160, 60),
        Pair::new("ext4-64k", &["-g", "1024"], 300, 200),
        Pair::new("no-sparse-super", &[], 100, 61),
    ]
}

fn judge(test: &str, pair: &Pair) {
    match pair.judge() {
        Ok(done) => println!("{pair:?}: {} blocks, {} inodes moved", done.blocks_moved, done.inodes_moved),
        Err(skip) => skip_part!(format!("{test}, {pair:?}"), skip),
    }
}

#[test]
fn pairs_of_sizes_agree_with_resize2fs() {
    let only = std::env::var("HECTARE_RESIZE_ONLY").unwrap_or_default();
    for pair in short().iter().filter(|pair| pair.combo.name.contains(&only)) {
        judge("pairs_of_sizes_agree_with_resize2fs", pair);
    }
}

#[test]
fn regression_a_last_group_too_short_for_its_backup_is_left_out() {
    let pair = Pair::new("stripe", &["-g", "1024"], 172, 109);
    judge("regression_a_last_group_too_short_for_its_backup_is_left_out", &pair);
}

#[test]
fn many_random_pairs_agree_with_resize2fs() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let Some(count) = number("HECTARE_RESIZE_PAIRS") else {
        skip!("many_random_pairs_agree_with_resize2fs", "long; cargo hunt resize runs it");
    };
    let seed = number("HECTARE_RESIZE_SEED").unwrap_or(1);
    let mut failed = Vec::new();
    for nr in number("HECTARE_RESIZE_FIRST").unwrap_or(0)..count {
        let mut random = SplitMix64::stream(seed, nr);
        let combo = *random.pick(combos()).unwrap();
        let small = combo.block_size < 65536;
        let groups = ["1024", "2048", "4096", "8192"];
        let shift =
            combo.args.iter().any(|arg| *arg == "bigalloc" || *arg == "-g" || arg.contains("meta_bg"));
        let more = if small && !shift && random.one_in(2) {
            vec!["-g".to_owned(), (*random.pick(&groups).unwrap()).to_owned()]
        } else {
            vec![]
        };
        let base = if small { 48 } else { 220 };
        let (from, to) = (base + random.below(200), base + random.below(200));
        let pair = Pair { combo, more, from, to };
        println!("pair {nr} of seed {seed}: {pair:?}");
        let judged = std::panic::catch_unwind(|| judge("many_random_pairs_agree_with_resize2fs", &pair));
        if judged.is_err() {
            failed.push(nr);
        }
    }
    assert!(failed.is_empty(), "pairs {failed:?} of seed {seed} failed");
}
