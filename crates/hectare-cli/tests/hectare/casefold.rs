//! Directories in which case does not matter: made by `hectare`, used by commands and through a mount.

use crate::mount::bench;
use crate::support::{Bench, hectare};
use hectare_oracle::tool::{need, run};
use hectare_oracle::{assert_clean, skip};
use std::fs;

#[test]
fn commands_find_names_in_any_case_and_check_knows_their_hashes() {
    let bench = Bench::empty();
    let image = bench.image();
    hectare(&["mkfs", "-b", "1024", "-E", "encoding=utf8,encoding_flags=strict", image, "32M"]).ok();
    let info = hectare_oracle::dumpe2fs(&bench.image);
    if let Ok(dump) = info {
        assert_eq!(dump.fields.get("Character encoding").map(String::as_str), Some("utf8-12.1"));
    }
    hectare(&["mkdir", &bench.at("/d")]).ok();
    hectare(&["chattr", "+F", &bench.at("/d")]).ok();
    let folder = bench.local("d");
    fs::create_dir(&folder).unwrap();
    for n in 0..400 {
        fs::write(folder.join(format!("File-\u{c4}\u{3a3}-{n}")), "x").unwrap();
    }
    hectare(&["cp", "-r", folder.to_str().unwrap(), &bench.at("/d")]).ok();
    let found = hectare(&["cat", &bench.at("/D/D/FILE-\u{e4}\u{3c3}-77")]);
    assert_eq!(found.code, Some(1), "the root is not such a directory");
    let found = hectare(&["cat", &bench.at("/d/D/FILE-\u{e4}\u{3c3}-77")]).ok();
    assert_eq!(found.text(), "x");
    bench.changed(&["mv", &bench.at("/d/d/file-\u{e4}\u{3c3}-5"), &bench.at("/d/d/FILE-\u{c4}\u{3a3}-5")]);
    let list = hectare(&["ls", &bench.at("/d/d")]).ok();
    assert!(
        list.text().contains("FILE-\u{c4}\u{3a3}-5\n") && !list.text().contains("File-\u{c4}\u{3a3}-5\n")
    );
    let report = hectare(&["check", "--json", image]).ok().json();
    assert!(report["unchecked"].as_array().unwrap().is_empty(), "{report}");
    let again = hectare(&["mkdir", &bench.at("/d/D")]);
    assert!(again.refused().contains("exists"), "{}", again.err);
}

#[test]
fn a_mount_shows_one_file_under_every_spelling() {
    const NAME: &str = "casefold::a_mount_shows_one_file";
    let bench = bench!(NAME);
    let mut chattr = match need("chattr") {
        Ok(chattr) => chattr,
        Err(reason) => skip!(NAME, reason),
    };
    hectare(&["mkfs", "--force", "-O", "casefold", bench.image.to_str().unwrap(), "32M"]).ok();
    hectare(&[&["mount"][..], &bench.words(&[])].concat()).ok();
    let dir = bench.dir.join("d");
    fs::create_dir(&dir).unwrap();
    let _ = run(chattr.arg("+F").arg(&dir)).expect_success();
    assert!(fs::metadata(dir.join("NAME")).is_err(), "and the kernel must not remember that");
    fs::write(dir.join("name"), "one").unwrap();
    for spelled in ["NAME", "Name", "nAmE"] {
        assert_eq!(fs::read(dir.join(spelled)).unwrap(), b"one", "{spelled}");
    }
    assert!(fs::create_dir(dir.join("nAME")).is_err());
    fs::remove_file(dir.join("NAME")).unwrap();
    for spelled in ["name", "NAME", "Name"] {
        assert!(fs::metadata(dir.join(spelled)).is_err(), "{spelled}");
    }
    fs::create_dir(dir.join("Sub")).unwrap();
    fs::write(dir.join("sub/\u{e9}"), "two").unwrap();
    assert_eq!(fs::read(dir.join("SUB/E\u{301}")).unwrap(), b"two");
    bench.unmount();
    assert_clean(&bench.image).unwrap();
}
