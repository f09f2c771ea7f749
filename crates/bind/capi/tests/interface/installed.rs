//! What the tests share: the library as it is installed, and programs that are compiled for it and run.

use hectare_oracle::{skip_part, tool};
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(crate) fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A folder with what is installed: the library, its names, the header and the file for pkg-config.
pub(crate) struct Installed(tempfile::TempDir);

impl Installed {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // Beside the test, or above it, as the command of cargo has it; the other may be of an older build.
        let test = std::env::current_exe().unwrap();
        let built = test.ancestors().skip(1).take(2).map(|folder| folder.join("libhectare_c.so"));
        let newest = |path: &PathBuf| std::fs::metadata(path).and_then(|found| found.modified()).ok();
        let built = built.filter(|built| built.exists()).max_by_key(newest);
        let built = built.expect("cargo builds the library with the test");
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

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles a program, without a warning.
    pub(crate) fn compiled(&self, compiler: &str, source: &Path) -> PathBuf {
        let name = source.file_stem().unwrap().to_str().unwrap();
        self.compiled_as(compiler, source, name, &[])
    }

    /// Compiles a program under a name, with more options.
    pub(crate) fn compiled_as(&self, compiler: &str, source: &Path, name: &str, more: &[&str]) -> PathBuf {
        let flags = Command::new("pkg-config")
            .args(["--cflags", "--libs", "hectare"])
            .env("PKG_CONFIG_PATH", self.0.path())
            .output()
            .unwrap();
        assert!(flags.status.success(), "{}", shown(&flags));
        let program = self.path(&format!("{compiler}-{name}"));
        let output = Command::new(compiler)
            .args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-o"])
            .arg(&program)
            .args(more)
            .arg(source)
            .args(String::from_utf8(flags.stdout).unwrap().split_whitespace())
            .arg("-pthread")
            .output()
            .unwrap();
        assert!(output.status.success(), "{compiler} {}: {}", source.display(), shown(&output));
        program
    }

    /// What a program prints; under valgrind, which finds nothing, if that is there.
    pub(crate) fn run(&self, program: &Path, words: &[&str]) -> String {
        self.printed(Self::watched(program).args(words))
    }

    /// What a program prints that reads a file, under valgrind.
    pub(crate) fn run_watched_on(&self, program: &Path, words: &[&str], input: &Path) -> String {
        let input = Stdio::from(File::open(input).unwrap());
        self.printed(Self::watched(program).args(words).stdin(input))
    }

    pub(crate) fn watched(program: &Path) -> Command {
        match tool::need("valgrind") {
            Ok(mut valgrind) => {
                valgrind.args(["--quiet", "--error-exitcode=99", "--leak-check=full"]);
                valgrind.args(["--errors-for-leak-kinds=definite,indirect", "--fair-sched=yes"]).arg(program);
                valgrind
            }
            Err(reason) => {
                skip_part!("interface, valgrind", reason);
                Command::new(program)
            }
        }
    }

    /// What a program prints that reads a file, without valgrind.
    pub(crate) fn run_on(&self, program: &Path, words: &[&str], input: &Path) -> String {
        let input = Stdio::from(File::open(input).unwrap());
        self.printed(Command::new(program).args(words).stdin(input))
    }

    pub(crate) fn printed(&self, command: &mut Command) -> String {
        let output = command.env("LD_LIBRARY_PATH", self.0.path()).output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", shown(&output));
        String::from_utf8(output.stdout).unwrap()
    }
}

pub(crate) fn shown(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The compilers that there are.
pub(crate) fn compilers() -> Vec<&'static str> {
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
