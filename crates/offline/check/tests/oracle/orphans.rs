//! Orphans and the journal: problems unless they are allowed.

use crate::support::{check_file, lines, load};
use hectare_check::{Options, What, check};
use hectare_oracle::{Combo, Scale, Tree, debugfs, debugfs_write, filled, scratch, skip};

/// The number of an inode, asked of debugfs.
fn inode_of(image: &std::path::Path, path: &str) -> String {
    let said = debugfs(image, &[&format!("stat {path}")]).unwrap();
    let after = said.split("Inode: ").nth(1).unwrap();
    after.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn an_orphan_is_a_problem_unless_it_is_allowed() {
    let filled = match filled(&Combo::named("no-csum"), Tree::ManyFiles, &Scale::SMALL) {
        Ok(filled) => filled,
        Err(reason) => skip!("check orphans::an_orphan", reason),
    };
    let name = filled.entries().iter().find(|entry| entry.kind == hectare_oracle::Kind::File).unwrap();
    let path = format!("/{}", String::from_utf8(name.path.clone()).unwrap().trim_start_matches('/'));
    let image = scratch::fresh("orphan");
    filled.copy_to(&image).unwrap();
    let nr = inode_of(&image, &path);
    let commands =
        [format!("unlink {path}"), format!("sif <{nr}> links_count 0"), format!("ssv last_orphan {nr}")];
    debugfs_write(&image, &commands.each_ref().map(String::as_str)).unwrap();
    let report = check_file(&image).unwrap();
    assert_eq!(report.problem_count, 1, "{}", lines(&report));
    assert_eq!(report.problems[0].what, What::Orphans);
    let allow = Options { allow_orphans: true, ..Options::default() };
    let report = check(&load(&image), &allow).unwrap();
    assert!(report.is_clean(), "{}", lines(&report));

    // A list that leads to an inode not in use is a problem in any case.
    debugfs_write(&image, &["ssv last_orphan 4000"]).unwrap();
    assert!(!check(&load(&image), &allow).unwrap().is_clean());
    let _ = std::fs::remove_file(&image);
}

#[test]
fn a_journal_to_be_replayed_is_a_problem_unless_it_is_allowed() {
    let image = scratch::fresh("recover");
    if let Err(reason) = Combo::named("no-csum").make(&image) {
        skip!("check orphans::a_journal", reason);
    }
    debugfs_write(&image, &["feature needs_recovery"]).unwrap();
    let report = check_file(&image).unwrap();
    assert!(report.is_clean(), "{}", lines(&report));
    let report = check(&load(&image), &Options::default()).unwrap();
    assert_eq!((report.problem_count, report.problems[0].what), (1, What::Journal));
    let _ = std::fs::remove_file(&image);
}
