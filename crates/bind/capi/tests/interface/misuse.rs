//! What C can get wrong, and what can go wrong below: an error each, and nothing else.

use crate::installed::{Installed, compilers, here};
use hectare_oracle::{hunt, skip_part};
use std::path::Path;

fn assert_clean(image: &Path) {
    hectare_oracle::assert_clean(image).unwrap_or_else(|reason| skip_part!("interface, e2fsck", reason));
}

#[test]
fn every_misuse_is_an_error() {
    let installed = Installed::new();
    for compiler in compilers() {
        let image = installed.path(&format!("{compiler}.img"));
        hectare::mkfs::Format::new().create(&image, 16 << 20).unwrap();
        let misuse = installed.compiled(compiler, &here("tests/programs/misuse.c"));
        installed.run(&misuse, &[image.to_str().unwrap()]);
        assert_clean(&image);
    }
}

#[test]
fn calls_do_what_the_header_says() {
    let installed = Installed::new();
    for compiler in compilers() {
        let folder = installed.path(&format!("{compiler}-images-of-calls"));
        std::fs::create_dir(&folder).unwrap();
        let calls = installed.compiled(compiler, &here("tests/programs/calls.c"));
        installed.run(&calls, &[folder.to_str().unwrap()]);
        assert_clean(&folder.join("calls.img"));
    }
}

#[test]
fn a_device_that_fails_at_any_call_gives_errors_and_a_volume_that_is_whole() {
    let installed = Installed::new();
    for compiler in compilers() {
        let images = installed.path(&format!("{compiler}-images"));
        std::fs::create_dir(&images).unwrap();
        let faults = installed.compiled(compiler, &here("tests/programs/faults.c"));
        let long = hunt::is_long();
        let words = |step, every| [images.to_str().unwrap(), step, every];
        installed.run(&faults, &words("29", "1"));
        let every = if long { "1" } else { "16" };
        installed.printed(std::process::Command::new(&faults).args(words("1", every)));
        let mut left = 0;
        for image in std::fs::read_dir(&images).unwrap() {
            assert_clean(&image.unwrap().path());
            left += 1;
        }
        assert!(left >= 3, "{left} images");
        std::fs::remove_dir_all(&images).unwrap();
    }
}

#[test]
fn threads_may_do_and_close_everything_at_once() {
    let installed = Installed::new();
    for compiler in compilers() {
        let threads = installed.compiled(compiler, &here("tests/programs/threads.c"));
        let image = installed.path(&format!("{compiler}-threads.img"));
        let words = |rounds: &'static str| [rounds, image.to_str().unwrap()];
        installed.printed(std::process::Command::new(&threads).args(words("10")));
        assert_clean(&image);
        installed.run(&threads, &words("2"));
        assert_clean(&image);
    }
}
