//! The same sources give the same image, byte for byte, by hectare.h, by the library and by the command line.

use crate::installed::{Installed, compilers, here};
use hectare_oracle::{Scale, Tree, skip_part, source};
use std::path::{Path, PathBuf};
use std::process::Command;

const EPOCH: i64 = 1_700_000_000;

/// What an image is to be, in the words of examples/build.c and of `hectare build`.
struct Wanted {
    c: &'static [&'static str],
    command: &'static [&'static str],
}

const WANTED: [Wanted; 4] = [
    Wanted { c: &["-s", "min"], command: &["--size", "min"] },
    Wanted { c: &[], command: &[] },
    Wanted {
        c: &["-f", "4194304", "-t", "ext3", "-b", "1024", "-L", "root", "-u", "5:6", "-x", "*7*"],
        command: &[
            "--free",
            "4M",
            "-t",
            "ext3",
            "-b",
            "1024",
            "-L",
            "root",
            "--owner",
            "5:6",
            "--exclude",
            "*7*",
        ],
    },
    Wanted {
        c: &["-s", "67108864", "-O", "^has_journal,inline_data"],
        command: &["--size", "64M", "-O", "^has_journal,inline_data"],
    },
];

/// The command, built from the same sources: the one that is named, or the one beside this test.
fn command() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("HECTARE_COMMAND") {
        return Some(named.into());
    }
    let test = std::env::current_exe().unwrap();
    let mut beside = test.ancestors().skip(1).take(2).map(|folder| folder.join("hectare"));
    beside.find(|path| path.exists())
}

fn by_library(source: &Path, image: &Path) {
    let image_of = hectare::build::Image::new().folder(source).size(hectare::Size::Minimal);
    image_of.source_date_epoch(EPOCH).create(image).unwrap();
}

#[test]
fn the_same_tree_gives_the_same_bytes_as_the_command_line() {
    let installed = Installed::new();
    let source = source(Tree::Ordinary, &Scale::SMALL).unwrap();
    let (source, command) = (source.to_str().unwrap(), command());
    if command.is_none() {
        skip_part!("interface, the command line's bytes", "the command hectare is not built");
    }
    let epoch = EPOCH.to_string();
    for compiler in compilers() {
        let build = installed.compiled(compiler, &here("examples/build.c"));
        for (number, wanted) in WANTED.iter().enumerate() {
            let image = |by: &str| installed.path(&format!("{compiler}-{number}-{by}.img"));
            let (ours, theirs, library) = (image("c"), image("command"), image("rust"));
            let last = ["-e", &epoch, ours.to_str().unwrap(), source];
            let printed = installed.printed(Command::new(&build).args(wanted.c).args(last));
            let bytes = std::fs::read(&ours).unwrap();
            assert!(printed.ends_with(&format!(": {} bytes\n", bytes.len())), "{printed}");
            if number == 0 {
                by_library(source.as_ref(), &library);
                assert!(bytes == std::fs::read(&library).unwrap(), "the library gives other bytes");
            }
            if let Some(command) = &command {
                let mut build = Command::new(command);
                build.args(["build", "--from", source]).args(wanted.command).arg(&theirs);
                installed.printed(build.env("SOURCE_DATE_EPOCH", &epoch));
                let same = bytes == std::fs::read(&theirs).unwrap();
                let command = command.display();
                assert!(same, "{command}, if it is of these sources, gives other bytes: {:?}", wanted.c);
            }
            hectare_oracle::assert_clean(&ours)
                .unwrap_or_else(|reason| skip_part!("interface, e2fsck", reason));
        }
    }
}

#[test]
fn what_can_t_be_built_is_said() {
    let installed = Installed::new();
    for compiler in compilers() {
        let build = installed.compiled(compiler, &here("examples/build.c"));
        let (image, source) = (installed.path("image"), installed.path("source"));
        std::fs::create_dir_all(&source).unwrap();
        std::fs::write(&image, "precious").unwrap();
        let cases: [(&[&str], &str); 7] = [
            (&["-t", "ext5"], "ext5"),
            (&["-O", "nothing_like_it"], "nothing_like_it"),
            (&["-b", "5000"], "block_size"),
            (&["-s", "min", "-f", "4096"], "exclude each other"),
            (&["-u", "5:4294967295"], "uid and gid"),
            (&["-x", "[a"], "[a"),
            (&[], "exists"),
        ];
        for (options, reason) in cases {
            let made = if reason == "exists" { image.clone() } else { installed.path("other") };
            let mut build = Command::new(&build);
            build.args(options).args([&made, &source]).env("LD_LIBRARY_PATH", installed.path(""));
            let output = build.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() == Some(1) && said.contains(reason), "{options:?}: {said}");
            assert_eq!(std::fs::read(&image).unwrap(), b"precious");
            assert!(!installed.path("other").exists(), "{options:?}");
        }
    }
}
