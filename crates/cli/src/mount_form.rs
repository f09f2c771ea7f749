//! How `mount` and `fstab` call whoever mounts for them.
//!
//! Type `fuse.hectare` makes `mount` run `mount.fuse3`, and that `hectare IMAGE DIR -o OPTIONS`; type
//! `hectare` makes it run `mount.hectare IMAGE DIR ...`, if somebody made a link of that name. Neither says
//! `hectare mount`, which is put in here.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The beginning of the names by which `mount` calls its helpers.
const HELPER: &str = "mount.";

/// The arguments, the program's name first, with `mount` put in where it is meant.
pub(crate) fn complete(mut arguments: Vec<OsString>, is_command: impl Fn(&OsStr) -> bool) -> Vec<OsString> {
    let called = arguments.first().map(Path::new).and_then(Path::file_name);
    let as_helper = called.is_some_and(|name| name.to_string_lossy().starts_with(HELPER));
    if as_helper || is_mount_form(&arguments, is_command) {
        arguments.insert(1, "mount".into());
    }
    arguments
}

/// Whether the arguments are an image, a folder and `-o`.
fn is_mount_form(arguments: &[OsString], is_command: impl Fn(&OsStr) -> bool) -> bool {
    let [_, image, dir, option, _, ..] = arguments else { return false };
    !is_command(image) && option == "-o" && Path::new(dir).is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(arguments: &[&str]) -> Vec<OsString> {
        complete(arguments.iter().map(OsString::from).collect(), |name| name == "ls")
    }

    #[test]
    fn mount_is_put_in_where_it_is_meant() {
        for (given, at) in [
            (&["hectare", "/disk.img", "/", "-o", "rw"][..], Some(1)),
            (&["/sbin/mount.hectare", "/disk.img", "/"][..], Some(1)),
            (&["hectare", "ls", "/", "-o", "rw"][..], None),
            (&["hectare", "/disk.img", "/no such folder", "-o", "rw"][..], None),
            (&["hectare", "ls"][..], None),
            (&["hectare"][..], None),
        ] {
            let found = completed(given).iter().position(|argument| argument == "mount");
            assert_eq!(found, at, "{given:?}");
        }
    }
}
