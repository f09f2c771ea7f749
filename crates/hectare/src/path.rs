//! Paths in a volume: bytes, in whichever of Rust's types they come.
//!
//! A name in ext4 is 1 to 255 bytes, none of them `/` or NUL, and need not be UTF-8. The host's paths are not
//! more than that on Unix; elsewhere a path must be Unicode, and its separators must be slashes.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// Anything that names a file of a volume: `&str`, `String`, bytes, `OsStr`, [`Path`], and references to
/// them.
pub trait VolumePath {
    /// The bytes of the path.
    fn volume_path(&self) -> Cow<'_, [u8]>;
}

/// The bytes of a string of the host's.
fn of_host(text: &OsStr) -> Cow<'_, [u8]> {
    #[cfg(unix)]
    return Cow::Borrowed(std::os::unix::ffi::OsStrExt::as_bytes(text));
    #[cfg(not(unix))]
    match text.to_string_lossy() {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// A string of the host's with these bytes.
pub(crate) fn to_host(bytes: Vec<u8>) -> OsString {
    #[cfg(unix)]
    return std::os::unix::ffi::OsStringExt::from_vec(bytes);
    #[cfg(not(unix))]
    String::from_utf8_lossy(&bytes).into_owned().into()
}

impl VolumePath for str {
    fn volume_path(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.as_bytes())
    }
}

impl VolumePath for String {
    fn volume_path(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.as_bytes())
    }
}

impl VolumePath for [u8] {
    fn volume_path(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self)
    }
}

impl<const N: usize> VolumePath for [u8; N] {
    fn volume_path(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self)
    }
}

impl VolumePath for Vec<u8> {
    fn volume_path(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self)
    }
}

impl VolumePath for OsStr {
    fn volume_path(&self) -> Cow<'_, [u8]> {
        of_host(self)
    }
}

impl VolumePath for OsString {
    fn volume_path(&self) -> Cow<'_, [u8]> {
        of_host(self)
    }
}

impl VolumePath for Path {
    fn volume_path(&self) -> Cow<'_, [u8]> {
        of_host(self.as_os_str())
    }
}

impl VolumePath for PathBuf {
    fn volume_path(&self) -> Cow<'_, [u8]> {
        of_host(self.as_os_str())
    }
}

impl VolumePath for Cow<'_, str> {
    fn volume_path(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.as_bytes())
    }
}

impl VolumePath for Cow<'_, OsStr> {
    fn volume_path(&self) -> Cow<'_, [u8]> {
        of_host(self)
    }
}

impl VolumePath for Cow<'_, Path> {
    fn volume_path(&self) -> Cow<'_, [u8]> {
        of_host(self.as_os_str())
    }
}

impl VolumePath for Component<'_> {
    fn volume_path(&self) -> Cow<'_, [u8]> {
        of_host(self.as_os_str())
    }
}

impl<P: VolumePath + ?Sized> VolumePath for Box<P> {
    fn volume_path(&self) -> Cow<'_, [u8]> {
        (**self).volume_path()
    }
}

impl<P: VolumePath + ?Sized> VolumePath for &P {
    fn volume_path(&self) -> Cow<'_, [u8]> {
        (*self).volume_path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_of_strings_are_paths() {
        fn bytes(path: impl VolumePath) -> Vec<u8> {
            path.volume_path().into_owned()
        }
        let all = [
            bytes("/a"),
            bytes("/a".to_owned()),
            bytes(Box::<Path>::from(Path::new("/a"))),
            bytes(b"/a"),
            bytes(b"/a".to_vec()),
            bytes(OsStr::new("/a")),
            bytes(OsString::from("/a")),
            bytes(Path::new("/a")),
            bytes(PathBuf::from("/a")),
            bytes(Cow::Borrowed("/a")),
            bytes(Path::new("/a").to_string_lossy()),
            bytes(Cow::Borrowed(Path::new("/a"))),
            bytes(Cow::Borrowed(OsStr::new("/a"))),
        ];
        assert!(all.iter().all(|bytes| bytes == b"/a"));
        assert_eq!(bytes(Component::Normal(OsStr::new("a"))), b"a");
        assert_eq!(to_host(b"/a".to_vec()), OsStr::new("/a"));
    }
}
