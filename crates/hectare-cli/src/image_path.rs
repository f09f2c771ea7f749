//! Parses `IMAGE:PATH`, as in scp: what an argument names.
//!
//! The image ends at the first colon before which an existing file or block device stands, so that
//! `disk.img:/etc/a:b` and `dir/disk.img:x` mean what they look like. `IMAGE:` alone is the root directory,
//! and so is `IMAGE` where only something inside an image is possible. Where a local path is possible too
//! (`cp`), an argument that begins with `./` or `../` and has no image before a colon is local, and so is one
//! that exists as it stands; any other with a colon names an image, even a missing one. An argument that begins
//! with the address of an export (`nbd://host/export:/etc`) is in that image.
//!
//! In a batch (`sh`) there is one image: `:PATH` is inside, anything else of the host where that is possible.
//!
//! A drive letter ends no image: `C:\disk.img:/etc`.
//!
//! Paths inside an image are bytes and always start at its root.

use crate::batch;
use crate::name::shown;
use crate::os;
use crate::remote;
use clap::builder::{OsStringValueParser, TypedValueParser};
use hectare_device::os::{OsStrExt, path_of};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Something inside an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ImagePath {
    /// The file or block device that holds the volume.
    pub(crate) image: PathBuf,
    /// The path inside it, as given.
    pub(crate) path: Vec<u8>,
}

/// Either side of a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Operand {
    /// A path of the host.
    Local(PathBuf),
    /// Something inside an image.
    Inside(ImagePath),
}

impl ImagePath {
    /// Parses an argument that can only name a path inside an image.
    pub(crate) fn parse(argument: &OsStr) -> Self {
        let bytes = argument.as_bytes();
        if let Some(image) = batch::image() {
            return Self { image, path: bytes.strip_prefix(b":").unwrap_or(bytes).to_vec() };
        }
        if let Some(at) = image_end(bytes).or_else(|| first_colon_of_missing(bytes)) {
            return Self::cut(bytes, at);
        }
        Self { image: argument.into(), path: Vec::new() }
    }

    /// The parser for clap.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().map(|argument| Self::parse(&argument))
    }

    fn cut(bytes: &[u8], at: usize) -> Self {
        let (image, path) = (&bytes[..at], &bytes[at + 1..]);
        Self { image: path_of(image), path: path.to_vec() }
    }

    /// The place as it is named in messages.
    pub(crate) fn show(&self) -> String {
        self.show_path(&self.path)
    }

    /// Another place in the same image, as it is named in messages.
    pub(crate) fn show_path(&self, path: &[u8]) -> String {
        show(&self.image, path)
    }
}

/// `IMAGE:PATH`, for messages.
pub(crate) fn show(image: &Path, path: &[u8]) -> String {
    let path = shown(path);
    let slash = if path.starts_with('/') { "" } else { "/" };
    format!("{}:{slash}{path}", shown(image.as_os_str().as_bytes()))
}

impl Operand {
    /// The parser for clap.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().map(|argument| Self::parse(&argument))
    }

    /// Parses an argument that can mean either.
    pub(crate) fn parse(argument: &OsStr) -> Self {
        let bytes = argument.as_bytes();
        let local = || Self::Local(argument.into());
        if let Some(image) = batch::image() {
            let path = bytes.strip_prefix(b":").map(<[u8]>::to_vec);
            return path.map_or_else(local, |path| Self::Inside(ImagePath { image, path }));
        }
        let dotted = bytes.starts_with(b"./") || bytes.starts_with(b"../");
        let exists = std::fs::symlink_metadata(argument).is_ok();
        if dotted && exists {
            return local();
        }
        if let Some(at) = image_end(bytes) {
            return Self::Inside(ImagePath::cut(bytes, at));
        }
        if dotted || exists {
            return local();
        }
        match first_colon_of_missing(bytes) {
            Some(at) => Self::Inside(ImagePath::cut(bytes, at)),
            None => local(),
        }
    }
}

/// The first colon with an existing file or block device before it.
fn image_end(bytes: &[u8]) -> Option<usize> {
    if remote::is_address(&path_of(bytes)) {
        return remote::end_of_address(bytes);
    }
    colons(bytes).find(|at| is_image(&path_of(&bytes[..*at])))
}

/// Where the image would end if there were one; an argument that exists as it stands has none.
fn first_colon_of_missing(bytes: &[u8]) -> Option<usize> {
    if is_image(&path_of(bytes)) { None } else { colons(bytes).find(|at| *at > 0) }
}

/// The colons that may end an image: not the one behind a drive letter.
fn colons(bytes: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let drive = os::drive_len(&path_of(bytes));
    bytes.iter().enumerate().skip(drive).filter(|(_, byte)| **byte == b':').map(|(at, _)| at)
}

fn is_image(path: &Path) -> bool {
    if remote::is_address(path) {
        return true;
    }
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() || os::is_block_device(&meta))
}

/// A path split into the directory and the last name; the name is empty for the root, and can be `.` or `..`.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let trimmed = &path[..end];
    let cut = trimmed.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    trimmed.split_at(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(image: &Path, path: &str) -> Operand {
        Operand::Inside(ImagePath { image: image.to_owned(), path: path.into() })
    }

    #[test]
    fn the_image_ends_at_the_first_colon_after_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("a:b.img");
        std::fs::write(&image, "x").unwrap();
        let argument = |tail: &str| Operand::parse(format!("{}{tail}", image.display()).as_ref());
        assert_eq!(argument(":/etc/c:d"), inside(&image, "/etc/c:d"));
        assert_eq!(argument(":"), inside(&image, ""));
        assert_eq!(argument(""), Operand::Local(image.clone()));
        assert_eq!(ImagePath::parse(image.as_os_str()), ImagePath { image, path: Vec::new() });
    }

    #[test]
    fn a_missing_image_is_an_image_unless_it_looks_local() {
        assert_eq!(Operand::parse("none.img:x".as_ref()), inside(Path::new("none.img"), "x"));
        assert_eq!(Operand::parse("./none:x".as_ref()), Operand::Local("./none:x".into()));
        assert_eq!(Operand::parse("none".as_ref()), Operand::Local("none".into()));
        assert_eq!(ImagePath::parse("none.img:/a".as_ref()).show(), "none.img:/a");
    }

    #[test]
    fn a_drive_letter_ends_no_image() {
        let argument = r"C:\none.img:/etc/a:b";
        let (image, path) =
            if cfg!(windows) { (r"C:\none.img", "/etc/a:b") } else { ("C", r"\none.img:/etc/a:b") };
        assert_eq!(Operand::parse(argument.as_ref()), inside(Path::new(image), path));
        let local = Operand::parse(r"C:\none".as_ref());
        assert_eq!(matches!(local, Operand::Local(_)), cfg!(windows));
    }

    #[test]
    fn paths_are_cut_at_the_last_name() {
        assert_eq!(split(b"/a/b//"), (&b"/a/"[..], &b"b"[..]));
        assert_eq!(split(b"b"), (&b""[..], &b"b"[..]));
        assert_eq!(split(b"//"), (&b""[..], &b""[..]));
        assert_eq!(split(b"a/."), (&b"a/"[..], &b"."[..]));
    }
}
