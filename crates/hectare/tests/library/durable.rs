//! What is durable when a call returns, as strace sees it.

use hectare::{build, mkfs};
use hectare_oracle::skip;
use hectare_oracle::tool::need;
use std::path::Path;

/// Names the directory in which this test, run once more, makes images.
const FOLDER: &str = "HECTARE_TEST_NEW_IMAGES";

#[test]
fn regression_a_new_image_was_not_durable_under_its_name() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let folder = Path::new(&folder);
        mkfs::Format::new().create(folder.join("made"), 8 << 20).unwrap();
        build::Image::new().folder(folder.join("source")).create(folder.join("built")).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    std::fs::create_dir(folder.path().join("source")).unwrap();
    let mut strace = match need("strace") {
        Ok(strace) => strace,
        Err(reason) => skip!("library durable::regression_a_new_image_was_not_durable", reason),
    };
    strace.args(["-f", "-y", "-e", "trace=linkat,rename,renameat,renameat2,fsync,fdatasync", "-o"]).arg(&log);
    strace.arg(std::env::current_exe().unwrap());
    strace.args(["--exact", "durable::regression_a_new_image_was_not_durable_under_its_name"]);
    let said = strace.env(FOLDER, folder.path()).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    let log = std::fs::read_to_string(log).unwrap();
    for name in ["made", "built"] {
        let named = |line: &str| line.contains(&format!("/{name}\"")) && !line.contains("sync(");
        let behind: Vec<_> = log.lines().skip_while(|line| !named(line)).skip(1).collect();
        let folder = format!("<{}>", folder.path().display());
        assert!(behind.iter().any(|line| line.contains("fsync(") && line.contains(&folder)), "{name}: {log}");
    }
}
