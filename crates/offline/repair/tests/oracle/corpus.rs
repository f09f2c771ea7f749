//! The corpus of broken images.

use crate::trial::{Trial, e2fsck};
use hectare_oracle::{corpus, skip, unpacked};

/// Images that no repair makes sound, which is said without writing.
pub(crate) const REFUSED: [&str; 2] = ["f_ext_journal", "j_ext_dumpe2fs"];
/// Images of which e2fsck keeps an inode that is not the same here: the reasons are in
/// `docs/benchmarks/repair.md`.
const DIFFERENT: [&str; 6] = [
    "f_badroot",
    "f_cloneblock_alloc_error",
    "f_ea_value_crash",
    "f_inlinedata_repair",
    "f_inlinedir_bad_symlink",
    "f_quota_shrinkdir",
];

#[test]
fn the_corpus_is_mended() {
    let images = match corpus() {
        Ok(images) => images,
        Err(reason) => skip!("repair corpus::the_corpus_is_mended", reason),
    };
    let only = std::env::var("HECTARE_ONLY").unwrap_or_default();
    let (mut bad, mut losing) = (Vec::new(), Vec::new());
    println!("| image | e2fsck -fn | check | ours | after | inodes | lost | gained | paths lost/gained |");
    for packed in images {
        let name = packed.file_name().unwrap().to_string_lossy().replace(".img.gz", "");
        if !name.contains(&only) {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let bytes = unpacked(&packed);
        let image = folder.path().join("before");
        std::fs::write(&image, &bytes).unwrap();
        let before = e2fsck("-fn", &image);
        let trial = Trial::run(&bytes, folder.path());
        let ours = match &trial.repaired {
            Ok(done) => format!("{} mends, {} rounds", done.mends.len(), done.rounds),
            Err(reason) => reason.clone(),
        };
        let after = trial.after.as_ref().map_or("-".into(), |ran| format!("{:?}", ran.code));
        println!(
            "| {name} | {:?} | {:?} | {ours} | {after} | {} | {:?} | {:?} | {}/{} |",
            before.code,
            trial.checked,
            trial.kept,
            trial.lost,
            trial.gained,
            trial.lost_paths,
            trial.gained_paths
        );
        if trial.is_clean() == REFUSED.contains(&&*name) {
            bad.push(name.clone());
        }
        if !trial.lost.is_empty() && !DIFFERENT.contains(&&*name) {
            losing.push(name.clone());
        }
        if !only.is_empty() {
            println!("before:\n{}\ntheirs:\n{}", before.out, trial.theirs.as_ref().unwrap().out);
            if let Ok(done) = &trial.repaired {
                done.mends
                    .iter()
                    .flatten()
                    .for_each(|mend| println!("  {}{mend}", if mend.loses { "! " } else { "  " }));
            }
            println!("after:\n{}", trial.after.as_ref().map_or("", |ran| &ran.out));
        }
    }
    assert!(bad.is_empty(), "not clean afterwards: {bad:?}");
    assert!(losing.is_empty(), "with losses: {losing:?}");
}

/// Of a log whose fast commits come after a transaction, one block of which is damaged, e2fsck keeps the fast commits.
#[test]
fn regression_fast_commits_behind_a_damaged_block_of_the_log_are_kept() {
    const NAME: &str = "repair corpus::regression_fast_commits_behind_a_damaged_block";
    /// In a copy of a directory's block in the log of that image: its checksum is wrong then.
    const IN_LOG: usize = 39_948;
    let images = match corpus() {
        Ok(images) => images,
        Err(reason) => skip!(NAME, reason),
    };
    let packed = images.iter().find(|path| path.ends_with("j_recover_fast_commit.img.gz")).unwrap();
    let mut bytes = unpacked(packed);
    bytes[IN_LOG] ^= 2;
    let folder = tempfile::tempdir().unwrap();
    let trial = Trial::run(&bytes, folder.path());
    assert!(trial.is_clean() && trial.lost.is_empty(), "{:?} {:?}", trial.repaired.err(), trial.lost);
    let lost = trial.repaired.unwrap().mends.iter().flatten().filter(|mend| mend.loses).count();
    assert_eq!(lost, 1, "only the damaged copy is given up");
}
