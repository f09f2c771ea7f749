//! The examples run.

use std::path::Path;
use std::process::{Command, Output};

/// The example, as cargo has built it with the test; else cargo builds it.
fn command(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap().join("examples").join(name);
    if built.exists() {
        return Command::new(built);
    }
    let mut command = Command::new(env!("CARGO"));
    command.args(["run", "--quiet", "--package", "hectare", "--example", name, "--"]);
    command
}

fn run(name: &str, words: &[&str]) -> Output {
    command(name).args(words).output().unwrap()
}

/// What an example prints, when it succeeds.
fn output(name: &str, words: &[&str]) -> String {
    let output = run(name, words);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {out}{err}");
    out.into_owned()
}

#[test]
fn all_examples_do_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for name in ["in_memory", "own_device", "attributes"] {
        output(name, &[]);
    }
    assert!(output("errors", &[]).contains(":/etc/port: no such file or directory"));
    output("write", &[&path("a.img")]);
    assert!(output("read", &[&path("a.img"), "/var/log/app"]).ends_with("line 999\n"));
    assert!(output("list", &[&path("a.img")]).contains("8890 644 /var/log/app"));
    output("copy_out", &[&path("a.img"), "/var/log/app", &path("log")]);
    assert_eq!(std::fs::read(path("log")).unwrap().len(), 8890);
    output("check", &[&path("a.img")]);
    output("build", &[env!("CARGO_MANIFEST_DIR"), &path("b.img")]);
    assert!(output("list", &[&path("b.img")]).contains("/src/fs/read_dir.rs"));
    // Without words each says how it is called.
    assert!(!run("read", &[]).status.success());
    assert!(Path::new(&path("b.img")).exists());
}
