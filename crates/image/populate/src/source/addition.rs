//! Single files of the host that are added to the tree: `HOST:/PATH[,mode=MODE,uid=UID,gid=GID]`.
//!
//! What they do to the tree is in [`add`](super::add).

use crate::error::{Error, ShownPath};
use hectare_device::os::OsStrExt;
use hectare_units::owner_number;
use std::borrow::Cow;
use std::ffi::OsStr;

/// What errors call the option.
pub(super) const OPTION: &[u8] = b"--add";

/// A file to be added.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Addition {
    /// The argument as it was given.
    pub(super) argument: Box<[u8]>,
    pub(super) host: Box<[u8]>,
    /// The directories and the name, without the slash at the start.
    pub(super) path: Box<[u8]>,
    pub(super) mode: Option<u16>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
}

impl Addition {
    /// The file that an argument names. `HOST` ends before the last `:/`, `PATH` before the first comma.
    ///
    /// # Errors
    /// If the argument is not understood.
    pub fn parse(argument: &OsStr) -> Result<Self, Error> {
        let argument = argument.as_bytes();
        let fault = |reason: &str| Err(refused(argument, reason.to_owned()));
        let Some(colon) = argument.windows(2).rposition(|two| two == b":/") else {
            return fault("give HOST:/PATH, the file here and its path in the image");
        };
        let mut words = argument[colon + 2..].split(|byte| *byte == b',');
        let (host, path) = (&argument[..colon], words.next().unwrap_or_default());
        if host.is_empty() {
            return fault("there is no name of a file before the last :/");
        }
        if matches!(path.rsplit(|byte| *byte == b'/').next(), None | Some(b"" | b"." | b"..")) {
            return fault("the path in the image is that of a directory: give the file's own path");
        }
        let mut addition = Self {
            argument: argument.into(),
            host: host.into(),
            path: path.into(),
            mode: None,
            uid: None,
            gid: None,
        };
        words.try_for_each(|word| addition.word(word))?;
        Ok(addition)
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Error> {
        let text = str::from_utf8(word).unwrap_or_default();
        let shown = ShownPath::new(word);
        let fault = |reason: &str| refused(&self.argument, format!("'{shown}' {reason}"));
        let digits = |value: &str| value.bytes().all(|byte| byte.is_ascii_digit());
        let number = |value: &str| {
            owner_number(value.as_bytes()).ok_or_else(|| fault("is not the number of a user or group"))
        };
        match text.split_once('=') {
            Some(("mode", value)) => {
                let mode = u16::from_str_radix(value, 8).ok().filter(|mode| digits(value) && *mode <= 0o7777);
                self.mode = Some(mode.ok_or_else(|| fault("is no mode: give octal digits, 7777 at most"))?);
            }
            Some(("uid", value)) => self.uid = Some(number(value)?),
            Some(("gid", value)) => self.gid = Some(number(value)?),
            _ => {
                let reason = "is none of mode=, uid= and gid=, of which one may follow each comma (for a \
                              path with commas, use an mtree specification, --spec)";
                return Err(fault(reason));
            }
        }
        Ok(())
    }
}

pub(super) fn refused(argument: &[u8], reason: impl Into<Cow<'static, str>>) -> Error {
    Error::Refused { path: ShownPath::new(&[OPTION, b" ", argument].concat()), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_taken_apart_at_the_last_colon_with_a_slash() {
        let of =
            |text: &str| Addition::parse(OsStr::new(text)).map(|a| (a.host, a.path, (a.mode, a.uid, a.gid)));
        let parts = |host: &str, path: &str| (host.as_bytes().into(), path.as_bytes().into());
        let cases = [
            ("motd:/etc/motd", parts("motd", "etc/motd"), (None, None, None)),
            ("a:b:/c", parts("a:b", "c"), (None, None, None)),
            ("a:/b:/c,uid=7", parts("a:/b", "c"), (None, Some(7), None)),
            ("a,b:/c,mode=4755,gid=0", parts("a,b", "c"), (Some(0o4755), None, Some(0))),
            ("a://c", parts("a", "/c"), (None, None, None)),
        ];
        for (text, (host, path), rest) in cases {
            assert_eq!(of(text).ok(), Some((host, path, rest)), "{text}");
        }
    }

    #[test]
    fn arguments_that_mean_nothing_are_refused_with_their_text() {
        let texts = [
            "",
            "a",
            "a:b",
            ":/a",
            "a:/",
            "a:/b/",
            "a:/b/..",
            "a:/.",
            "a:/b,",
            "a:/b,mode=",
            "a:/b,mode=8",
            "a:/b,mode=10000",
            "a:/b,mode=+7",
            "a:/b,uid=-1",
            "a:/b,uid=root",
            "a:/b,uid=4294967295",
            "a:/b,gid=4294967296",
            "a:/b,c",
            "a:/b,mtime=1",
        ];
        for text in texts {
            let said = Addition::parse(OsStr::new(text)).map_err(|error| error.to_string());
            assert!(
                said.as_ref().is_err_and(|line| line.starts_with(&format!("--add {text}: "))),
                "{said:?}"
            );
        }
    }
}
