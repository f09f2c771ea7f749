//! Trees with files that their owner can't read, built by that owner
//! (`docs/decisions/0006-files-that-their-owner-can-t-read.md`).

use crate::support::{Bench, hectare};
use hectare_oracle::tool::{need, run};
use hectare_oracle::{Skip, assert_clean, is_root, skip};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Command;

const USER: u32 = 1000;

/// A user's tree `src` with a file and a directory of mode 0000.
fn tree() -> Result<Bench, Skip> {
    if !is_root() {
        return Err(Skip::new("only root can become another user"));
    }
    need("setpriv")?;
    let bench = Bench::empty();
    crate::support::copy_binary(&bench.local("hectare"));
    for dir in ["src", "src/closed"] {
        fs::create_dir(bench.local(dir)).unwrap();
    }
    for file in ["src/closed/inside", "src/locked", "src/open"] {
        fs::write(bench.local(file), file).unwrap();
    }
    for path in ["", "src", "src/closed", "src/closed/inside", "src/locked", "src/open"] {
        chown(bench.local(path), Some(USER), Some(USER)).unwrap();
    }
    fs::set_permissions(bench.folder.path(), Permissions::from_mode(0o755)).unwrap();
    for path in ["src/closed", "src/locked"] {
        fs::set_permissions(bench.local(path), Permissions::from_mode(0o0)).unwrap();
    }
    Ok(bench)
}

/// `WORDS ./hectare build --from src MORE disk.img`, by the user.
fn build(bench: &Bench, words: &[&str], more: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups"]);
    command.args(words).args(["./hectare", "build", "--from", "src"]).args(more).arg("disk.img");
    command.current_dir(bench.folder.path());
    command
}

/// The words that the message gives.
const ADVICE: [&str; 3] = ["unshare", "--map-current-user", "--keep-caps"];

#[test]
fn a_file_that_can_not_be_read_is_refused_with_advice_that_is_true() {
    let bench = match tree() {
        Ok(bench) => bench,
        Err(reason) => skip!("unreadable::a_file_that_can_not_be_read", reason),
    };
    let state = |path: &str| {
        let data = fs::metadata(bench.local(path)).unwrap();
        (data.mode(), data.ctime(), data.ctime_nsec())
    };
    let before = (state("src/locked"), state("src/closed"));
    for (exclude, path) in [("locked", "src/closed"), ("closed", "src/locked")] {
        let said = run(&mut build(&bench, &[], &["--exclude", exclude]));
        assert_eq!(said.exit, Some(1), "{}", said.report());
        let line = format!("hectare: {path}: permission denied: ");
        assert!(said.stderr.starts_with(&line) && said.stderr.lines().count() == 1, "{}", said.stderr);
        assert!(said.stderr.contains(&ADVICE.join(" ")) && !bench.image.exists(), "{}", said.stderr);
    }
    let _ = run(&mut build(&bench, &[], &["--exclude", "locked", "--exclude", "closed"])).expect_success();
    fs::remove_file(&bench.image).unwrap();

    let said = run(Command::new("setpriv")
        .args(["--reuid=1000", "--regid=1000", "--clear-groups"])
        .args(ADVICE)
        .arg("true"));
    if said.exit != Some(0) {
        skip!("unreadable::a_file_that_can_not_be_read", Skip::new("no user namespaces for users"));
    }
    let _ = run(&mut build(&bench, &ADVICE, &[])).expect_success();
    assert_eq!((state("src/locked"), state("src/closed")), before, "the tree is not touched");
    assert_clean(&bench.image).unwrap();
    for (path, mode) in [("/locked", "0000"), ("/closed", "0000"), ("/closed/inside", "0644")] {
        let data = &hectare(&["stat", "--json", &bench.at(path)]).ok().json()[0];
        assert_eq!(
            (data["mode"].as_str(), data["uid"].as_u64()),
            (Some(mode), Some(u64::from(USER))),
            "{path}"
        );
    }
    assert_eq!(hectare(&["cat", &bench.at("/closed/inside")]).ok().text(), "src/closed/inside");
    assert_eq!(hectare(&["cat", &bench.at("/locked")]).ok().text(), "src/locked");

    // What others own has no number there.
    fs::remove_file(&bench.image).unwrap();
    for (uid, gid) in [(USER, 7), (7, USER)] {
        chown(bench.local("src/open"), Some(uid), Some(gid)).unwrap();
        let said = run(&mut build(&bench, &ADVICE, &[]));
        assert_eq!(said.exit, Some(1), "{}", said.report());
        assert!(
            said.stderr.starts_with("hectare: src/open: its owner or group has no number"),
            "{}",
            said.stderr
        );
    }
    let _ = run(&mut build(&bench, &ADVICE, &["--owner", "5:6"])).expect_success();
    assert_eq!(hectare(&["stat", "--json", &bench.at("/open")]).ok().json()[0]["uid"], 5);
}
