//! Notes how the command is built, for `hectare --version --verbose`: nothing that differs between two builds
//! of the same sources by the same compiler.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let compiler = Command::new(variable("RUSTC")).arg("--version").output();
    let compiler = compiler.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!("cargo::rustc-env=HECTARE_COMPILER={}", compiler.unwrap_or_default());
    println!("cargo::rustc-env=HECTARE_TARGET={}", variable("TARGET"));
    let profile = format!("{}, opt-level {}", variable("PROFILE"), variable("OPT_LEVEL"));
    println!("cargo::rustc-env=HECTARE_PROFILE={profile}");
}
