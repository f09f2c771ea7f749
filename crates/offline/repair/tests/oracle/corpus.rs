//! The corpus of broken images.

use crate::trial::{Trial, e2fsck};
use hectare_oracle::{corpus, hunt, unpacked};

/// Images that no repair makes sound, which is said without writing.
pub(crate) const REFUSED: [&str; 3] = ["f_ext_journal", "j_ext_dumpe2fs", "own_super_lost"];
/// Images of which e2fsck keeps an inode that is not the same here: the reasons are in
/// `docs/benchmarks/repair.md`, or below for our own.
const DIFFERENT: [&str; 10] = [
    "f_badroot",
    "f_cloneblock_alloc_error",
    "f_ea_value_crash",
    "f_inlinedata_repair",
    "f_inlinedir_bad_symlink",
    "f_quota_shrinkdir",
    // e2fsck empties a file whose content in the inode goes on in an attribute that is not there; here the
    // first bytes are kept.
    "own_inline_attribute",
    // e2fsck leaves a size of 3,000 bytes, for which there is no room; here it is what is there.
    "own_inline_size",
    // The other is the `lost+found` that e2fsck makes.
    "own_lost_found_cleared",
    "own_root_file",
];

#[test]
fn the_corpus_is_mended() {
    let only = std::env::var("HECTARE_ONLY").unwrap_or_default();
    let (mut bad, mut losing) = (Vec::new(), Vec::new());
    println!("| image | e2fsck -fn | check | ours | after | inodes | lost | gained | paths lost/gained |");
    const TEST: &str = "repair corpus::the_corpus_is_mended";
    for packed in hunt::part(TEST, corpus(TEST), if only.is_empty() { 3 } else { 1 }) {
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

/// Of a log whose fast commits come after a transaction, one block of which is damaged, e2fsck keeps the fast
/// commits.
#[test]
fn regression_fast_commits_behind_a_damaged_block_of_the_log_are_kept() {
    /// In a copy of a directory's block in the log of the image that is not ours: its checksum is wrong then.
    const IN_LOG: usize = 39_948;
    let mut seen = 0;
    for packed in corpus("repair corpus::regression_fast_commits_behind_a_damaged_block") {
        let is_ours = packed.ends_with("own_journal_fast_damaged.img.gz");
        if !is_ours && !packed.ends_with("j_recover_fast_commit.img.gz") {
            continue;
        }
        let mut bytes = unpacked(&packed);
        if !is_ours {
            bytes[IN_LOG] ^= 2;
        }
        let folder = tempfile::tempdir().unwrap();
        let trial = Trial::run(&bytes, folder.path());
        assert!(trial.is_clean() && trial.lost.is_empty(), "{:?} {:?}", trial.repaired.err(), trial.lost);
        let lost = trial.repaired.unwrap().mends.iter().flatten().filter(|mend| mend.loses).count();
        assert_eq!(lost, 1, "only the damaged copy is given up");
        seen += 1;
    }
    assert!(seen > 0, "no such image");
}
