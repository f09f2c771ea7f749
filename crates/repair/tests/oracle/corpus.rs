//! The corpus of broken images.

use crate::trial::Trial;
use hectare_oracle::{corpus, skip, unpacked};

#[test]
fn the_corpus_is_mended() {
    let images = match corpus() {
        Ok(images) => images,
        Err(reason) => skip!("repair corpus::the_corpus_is_mended", reason),
    };
    let only = std::env::var("HECTARE_ONLY").unwrap_or_default();
    let mut bad = 0;
    println!(
        "| image | e2fsck -fn | check | ours | e2fsck -fn after | inodes | lost | gained | paths lost/gained |"
    );
    for packed in images {
        let name = packed.file_name().unwrap().to_string_lossy().replace(".img.gz", "");
        if !name.contains(&only) {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let trial = Trial::run(&unpacked(&packed), folder.path());
        let ours = match &trial.repaired {
            Ok(done) => format!("{} mends, {} rounds", done.mends.len(), done.rounds),
            Err(reason) => reason.clone(),
        };
        let after = trial.after.as_ref().map_or("-".into(), |ran| format!("{:?}", ran.code));
        println!(
            "| {name} | {:?} | {:?} | {ours} | {after} | {} | {:?} | {:?} | {}/{} |",
            trial.before.code,
            trial.checked,
            trial.kept,
            trial.lost,
            trial.gained,
            trial.lost_paths,
            trial.gained_paths
        );
        bad += u32::from(!trial.is_clean());
        if !only.is_empty() {
            println!("before:\n{}\ntheirs:\n{}", trial.before.out, trial.theirs.as_ref().unwrap().out);
            if let Ok(done) = &trial.repaired {
                done.mends
                    .iter()
                    .for_each(|mend| println!("  {}{mend}", if mend.loses { "! " } else { "  " }));
            }
            println!("after:\n{}", trial.after.as_ref().map_or("", |ran| &ran.out));
        }
    }
    assert_eq!(bad, 0, "images that are not clean afterwards");
}
