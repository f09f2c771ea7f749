//! The interface as C programs have it: the committed header is the generated one, the examples compile by
//! pkg-config and run under valgrind, every misuse is an error, and the results are those of the host and of
//! the command line.

#![allow(clippy::unwrap_used)] // a test that can't go on fails

mod installed;
mod misuse;
mod nbdkit;
mod operations;
mod same_bytes;

use hectare_oracle::skip_part;
use installed::{Installed, compilers, here};

#[test]
fn the_header_is_as_generated() {
    let config = cbindgen::Config::from_file(here("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new().with_crate(here("")).with_config(config).generate().unwrap();
    let mut made = Vec::new();
    bindings.write(&mut made);
    let (path, made) = (here("include/hectare.h"), String::from_utf8(made).unwrap());
    if std::env::var_os("HECTARE_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == made, "hectare.h is not what the sources give: HECTARE_BLESS=1 writes it anew");
}

#[test]
fn the_program_of_the_page_runs() {
    let page = std::fs::read_to_string(here("../../../docs/library.md")).unwrap();
    let program = page.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let installed = Installed::new();
    let source = installed.path("page.c");
    std::fs::write(&source, program).unwrap();
    for compiler in compilers() {
        let program = installed.compiled(compiler, &source);
        installed.printed(Installed::watched(&program).current_dir(installed.path("")));
        let volume = hectare::Volume::open(installed.path("disk.img")).unwrap();
        assert_eq!(volume.read("/hello").unwrap(), b"hello\n");
    }
}

#[test]
fn the_examples_run() {
    let installed = Installed::new();
    for compiler in compilers() {
        let [make, list, device] = ["make", "list", "device"]
            .map(|name| installed.compiled(compiler, &here(&format!("examples/{name}.c"))));
        let image = installed.path(&format!("{compiler}.img"));
        let name = image.to_str().unwrap();
        installed.run(&make, &[name]);
        hectare_oracle::assert_clean(&image).unwrap_or_else(|reason| skip_part!("interface, e2fsck", reason));
        let listed = installed.run(&list, &[name, "/etc", "/etc/name"]);
        assert!(listed.contains(" 8 hostname\n") && listed.contains(" 10 name\n"), "{listed}");
        assert!(listed.ends_with("box\n"), "{listed}");
        assert!(installed.run(&device, &[]).contains("exists already"));
    }
}
