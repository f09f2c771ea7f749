//! The interface as C programs have it: the committed header is the generated one, the examples compile by
//! pkg-config and run under valgrind, and every misuse is an error.

#![allow(clippy::unwrap_used)] // a test that can't go on fails

use hectare_oracle::{skip_part, tool};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

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

/// A folder with what is installed: the library, its names, the header and the file for pkg-config.
struct Installed(tempfile::TempDir);

impl Installed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // Beside the test, or above it, as the version of cargo has it.
        let test = std::env::current_exe().unwrap();
        let built = test.ancestors().skip(1).take(2).map(|folder| folder.join("libhectare_c.so"));
        let built =
            built.filter(|built| built.exists()).last().expect("cargo builds the library with the test");
        std::fs::copy(built, at("libhectare.so.0")).unwrap();
        symlink("libhectare.so.0", at("libhectare.so")).unwrap();
        std::fs::copy(here("include/hectare.h"), at("hectare.h")).unwrap();
        let template = std::fs::read_to_string(here("hectare.pc.in")).unwrap();
        let folder_name = folder.path().to_str().unwrap();
        let text = template
            .replace("@LIBDIR@", folder_name)
            .replace("@INCLUDEDIR@", folder_name)
            .replace("@VERSION@", env!("CARGO_PKG_VERSION"));
        std::fs::write(at("hectare.pc"), text).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles a program, without a warning.
    fn compiled(&self, compiler: &str, source: &Path) -> PathBuf {
        let flags = Command::new("pkg-config")
            .args(["--cflags", "--libs", "hectare"])
            .env("PKG_CONFIG_PATH", self.0.path())
            .output()
            .unwrap();
        assert!(flags.status.success(), "{}", shown(&flags));
        let program = self.path(&format!("{compiler}-{}", source.file_stem().unwrap().to_str().unwrap()));
        let output = Command::new(compiler)
            .args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-o"])
            .arg(&program)
            .arg(source)
            .args(String::from_utf8(flags.stdout).unwrap().split_whitespace())
            .arg("-pthread")
            .output()
            .unwrap();
        assert!(output.status.success(), "{compiler} {}: {}", source.display(), shown(&output));
        program
    }

    /// What a program prints; under valgrind, which finds nothing, if that is there.
    fn run(&self, program: &Path, words: &[&str]) -> String {
        let mut command = match tool::need("valgrind") {
            Ok(mut valgrind) => {
                valgrind.args(["--quiet", "--error-exitcode=99", "--leak-check=full"]);
                valgrind.args(["--errors-for-leak-kinds=definite,indirect", "--fair-sched=yes"]).arg(program);
                valgrind
            }
            Err(reason) => {
                skip_part!("interface, valgrind", reason);
                Command::new(program)
            }
        };
        let output = command.args(words).env("LD_LIBRARY_PATH", self.0.path()).output().unwrap();
        assert!(output.status.success(), "{}: {}", program.display(), shown(&output));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn shown(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The compilers that there are.
fn compilers() -> Vec<&'static str> {
    if let Err(reason) = tool::need("pkg-config") {
        skip_part!("interface, pkg-config", reason);
        return Vec::new();
    }
    let has = |name: &&str| match tool::need(name) {
        Ok(_) => true,
        Err(reason) => {
            skip_part!(format!("interface, {name}"), reason);
            false
        }
    };
    ["gcc", "clang"].into_iter().filter(has).collect()
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

#[test]
fn every_misuse_is_an_error() {
    let installed = Installed::new();
    for compiler in compilers() {
        let image = installed.path(&format!("{compiler}.img"));
        hectare::mkfs::Format::new().create(&image, 16 << 20).unwrap();
        let misuse = installed.compiled(compiler, &here("tests/programs/misuse.c"));
        installed.run(&misuse, &[image.to_str().unwrap()]);
        hectare_oracle::assert_clean(&image).unwrap_or_else(|reason| skip_part!("interface, e2fsck", reason));
    }
}
