//! The corpus of broken and odd images: the verdict is that of e2fsck.

use crate::support::{check_file, e2fsck, lines};
use hectare_oracle::{corpus, hunt, scratch, skip, unpacked};

/// Where the verdicts differ, and why.
const DIFFERENT: [(&str, &str); 6] = [
    (
        "f_bad_gdt_csum",
        "ours is stricter: e2fsck -n ignores checksums of descriptors, the kernel does not mount it",
    ),
    ("f_ext_journal", "e2fsck fails for want of the other device; ours names the journal as not checked"),
    ("f_extent_too_deep", "ours is stricter: the kernel refuses more than five levels"),
    ("f_first_meta_bg_too_big", "ours is stricter: e2fsck asks, but ends with 0"),
    ("own_group_checksum", "ours is stricter, as for f_bad_gdt_csum"),
    ("own_inline_size", "ours is stricter: e2fsck and the kernel take a size beyond the room in the inode"),
];

#[test]
fn verdicts_are_those_of_e2fsck() {
    let (mut seen, mut different) = (Vec::new(), Vec::new());
    for packed in hunt::part("check corpus::verdicts", corpus("check corpus::verdicts"), 3) {
        let name = packed.file_name().unwrap().to_string_lossy().replace(".img.gz", "");
        let image = scratch::fresh("corpus");
        std::fs::write(&image, unpacked(&packed)).unwrap();
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
        seen.push(name);
    }
    let known = DIFFERENT.iter().map(|(name, _)| *name).filter(|known| seen.iter().any(|name| name == known));
    assert!(known.eq(different.iter().map(String::as_str)), "the list is to be kept: {different:?}");
}
