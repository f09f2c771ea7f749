//! The broken and odd images: no command panics, hangs, or ends with anything but 0 or 1, and none writes
//! outside.

use crate::report::same_fields;
use crate::support::{digest, hectare, hectare_within};
use hectare_oracle::{corpus, hunt, skip, unpacked};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

/// Runs a command and fails the test if it misbehaves.
fn behaves(name: &str, arguments: &[&str]) -> Option<i32> {
    let ran = hectare_within(arguments, PATIENCE);
    assert!(!ran.hung, "{name}: {} did not end", ran.line);
    assert!(matches!(ran.code, Some(0 | 1)), "{name}: {} ended with {:?}: {}", ran.line, ran.code, ran.err);
    assert!(!ran.err.contains("panicked"), "{name}: {}: {}", ran.line, ran.err);
    let is_line = ran.err.starts_with("hectare: ") || ran.err.starts_with("{\"error\":");
    assert!(ran.code == Some(0) || is_line, "{name}: {}: {}", ran.line, ran.err);
    ran.code
}

fn read_everything(name: &str, image: &Path, folder: &Path) {
    let (path, root) = (image.to_str().unwrap(), format!("{}:/", image.display()));
    let out = folder.join("out");
    let before = digest(image);
    behaves(name, &["info", path]);
    behaves(name, &["info", "--groups", "--json", path]);
    behaves(name, &["check", path]);
    behaves(name, &["check", "--json", path]);
    behaves(name, &["freefrag", path]);
    behaves(name, &["freefrag", "--json", "-c", "64", path]);
    behaves(name, &["map", path]);
    behaves(name, &["map", path, "-o", folder.join("map.png").to_str().unwrap()]);
    behaves(name, &["explain", path, "--want", "1M", "--goal", "/", "--policy", "mballoc,hybrid,first-fit"]);
    behaves(name, &["explain", path, "--want", "64K", "--append", "--goal", "/"]);
    behaves(name, &["ls", "-laiR", &root]);
    behaves(name, &["ls", "-R", "--json", &root]);
    behaves(name, &["tree", "-a", &root]);
    behaves(name, &["stat", &root]);
    behaves(name, &["xattr", "list", &root]);
    behaves(name, &["cp", "-a", &root, out.to_str().unwrap()]);
    let archive = folder.join("a.tar");
    let exported = behaves(name, &["export", path, "-o", archive.to_str().unwrap()]);
    assert_eq!(exported == Some(0), archive.exists(), "{name}: an archive is complete, or is not there");
    behaves(name, &["export", path, "--diff", path, "-o", folder.join("d.tar.gz").to_str().unwrap()]);
    let compared = hectare_within(&["diff", path, path], PATIENCE);
    assert!(!compared.hung && matches!(compared.code, Some(0 | 2)), "{name}: {:?}", compared.code);
    assert_eq!(compared.code == Some(0), exported == Some(0), "{name}: {}", compared.err);
    for file in ["a", "file", "test_file", "lost+found", "../x"] {
        behaves(name, &["cat", &format!("{root}{file}")]);
    }
    assert_eq!(digest(image), before, "{name}: reading changed the image");
}

fn write_something(name: &str, packed: &Path, folder: &Path) {
    let image = folder.join("changed.img");
    let root = format!("{}:/", image.display());
    let source = folder.join("source");
    std::fs::create_dir_all(source.join("d")).unwrap();
    std::fs::write(source.join("d/f"), vec![1; 5000]).unwrap();
    std::fs::write(&image, unpacked(packed)).unwrap();
    let len = std::fs::metadata(&image).unwrap().len();
    let at = |path: &str| format!("{root}{path}");
    behaves(name, &["mkdir", "-p", &at("new/dir")]);
    behaves(name, &["cp", "-a", source.to_str().unwrap(), &at("new")]);
    behaves(name, &["mv", &at("new/source"), &at("new/moved")]);
    behaves(name, &["chmod", "-R", "u+rwX", &root]);
    behaves(name, &["xattr", "set", "user.a", "value", &at("new")]);
    let names = hectare_within(&["ls", "-a", "--json", &root], PATIENCE);
    if names.code == Some(0) {
        for entry in names.json().as_array().unwrap().iter().take(20) {
            let Some(entry) = entry["name"].as_str() else { continue };
            behaves(name, &["rm", "-r", &at(entry)]);
        }
    }
    assert_eq!(std::fs::metadata(&image).unwrap().len(), len, "{name}: the image grew");
}

#[test]
fn no_broken_image_breaks_a_command() {
    const TEST: &str = "cli corpus::no_broken_image";
    let images = hunt::part(TEST, corpus(TEST), 4);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(packed) = images.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let name = packed.file_name().unwrap().to_string_lossy().into_owned();
                    let folder = tempfile::tempdir().unwrap();
                    let image = folder.path().join("disk.img");
                    std::fs::write(&image, unpacked(packed)).unwrap();
                    read_everything(&name, &image, folder.path());
                    write_something(&name, packed, folder.path());
                }
            });
        }
    });
}

/// Whether the index beside an image says that e2fsck finds nothing wrong.
fn is_sound(packed: &Path) -> bool {
    let index = std::fs::read_to_string(packed.with_file_name("INDEX.tsv")).unwrap_or_default();
    let name = packed.file_name().unwrap().to_string_lossy().replace(".img.gz", "");
    index.lines().any(|line| line.starts_with(&format!("{name}\t")) && line.ends_with("\t0"))
}

#[test]
fn clean_images_stay_clean_when_written() {
    let mut written = 0;
    for packed in corpus("cli corpus::clean_images_stay_clean") {
        // e2fsck itself does not end on some of the others.
        if !is_sound(&packed) {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("disk.img");
        std::fs::write(&image, unpacked(&packed)).unwrap();
        match hectare_oracle::e2fsck(&image) {
            Err(reason) => skip!("cli corpus::clean_images_stay_clean", reason),
            Ok(report) if !report.clean => continue,
            Ok(_) => {}
        }
        let ran = hectare(&["mkdir", "-p", &format!("{}:/a/b", image.display())]);
        written += usize::from(ran.code == Some(0));
        hectare_oracle::assert_clean(&image).unwrap();
    }
    assert!(written >= 3, "only {written}");
}

#[test]
fn info_says_what_dumpe2fs_says_of_them() {
    for packed in corpus("cli corpus::info_says") {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("disk.img");
        std::fs::write(&image, unpacked(&packed)).unwrap();
        if let Err(reason) = same_fields(&image) {
            skip!("cli corpus::info_says", reason);
        }
    }
}
