//! The corpus of broken and odd images: the verdict is that of e2fsck.

use crate::support::{check_file, e2fsck, lines};
use hectare_oracle::{scratch, skip};
use std::io::Read;
use std::path::{Path, PathBuf};

fn corpus() -> Option<Vec<PathBuf>> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/e2fsprogs");
    let folder = std::env::var_os("HECTARE_CORPUS").map_or(beside, PathBuf::from);
    let mut images: Vec<PathBuf> = std::fs::read_dir(folder)
        .ok()?
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(".img.gz"))
        .collect();
    images.sort();
    (!images.is_empty()).then_some(images)
}

/// Where the verdicts differ, and why.
const DIFFERENT: [(&str, &str); 7] = [
    (
        "f_bad_gdt_csum",
        "ours is stricter: e2fsck -n ignores checksums of descriptors, the kernel does not mount it",
    ),
    ("f_ea_inode_dir_ref", "ours is stricter: a name leads to an inode of a value, which the kernel refuses"),
    ("f_ea_inode_no_feature", "ours is stricter: a value lies in an inode without the feature"),
    ("f_ext_journal", "e2fsck fails for want of the other device; ours names the journal as not checked"),
    ("f_extent_too_deep", "ours is stricter: the kernel refuses more than five levels"),
    ("f_first_meta_bg_too_big", "ours is stricter: e2fsck asks, but ends with 0"),
    ("f_quota", "quota files are not compared, which ours says"),
];

#[test]
fn verdicts_are_those_of_e2fsck() {
    let Some(images) = corpus() else {
        skip!("check corpus::verdicts", "the corpus of broken images is not here (HECTARE_CORPUS)");
    };
    let mut different = Vec::new();
    for packed in images {
        let name = packed.file_name().unwrap().to_string_lossy().replace(".img.gz", "");
        let image = scratch::fresh("corpus");
        let mut bytes = Vec::new();
        let file = std::fs::File::open(&packed).unwrap();
        flate2::read::MultiGzDecoder::new(file).read_to_end(&mut bytes).unwrap();
        std::fs::write(&image, bytes).unwrap();
        let Some((exit, said)) = e2fsck(&image) else {
            skip!("check corpus::verdicts", "the tool e2fsck is not installed");
        };
        let ours = check_file(&image);
        let clean = ours.as_ref().is_ok_and(hectare_check::Report::is_clean);
        if clean != (exit == Some(0)) {
            let what = match &ours {
                Ok(report) => lines(report),
                Err(error) => error.to_string(),
            };
            different.push(name.clone());
            let known = DIFFERENT.iter().any(|(known, _)| *known == name);
            assert!(known, "{name}: e2fsck ends with {exit:?}, ours says:\n{what}\n{said}");
            let says_so = ours.as_ref().is_ok_and(|report| !report.unchecked.is_empty());
            assert!(!clean || says_so, "{name}: a false clean that says nothing");
        }
        let _ = std::fs::remove_file(&image);
    }
    if std::env::var_os("HECTARE_CORPUS").is_none() || different.len() > 1 {
        assert_eq!(different, DIFFERENT.map(|(name, _)| name), "the list is to be kept");
    }
}
