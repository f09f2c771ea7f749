//! Addresses of exports: `nbd://HOST[:PORT][/EXPORT]` and `nbd+unix:///EXPORT?socket=PATH`.
//!
//! Letters that have a meaning in addresses are written `%XX` in names. Hazard: an address may come with a
//! password in it, where none belongs; it is refused then, and never shown.

use crate::protocol::PORT;
use crate::{Error, Result};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

const SCHEMES: [&str; 5] = ["nbd://", "nbd+tcp://", "nbd+unix://", "nbds://", "nbds+unix://"];

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// A host, by name or address, and a port.
    Tcp(String, u16),
    /// A socket in the file system.
    Unix(PathBuf),
}

/// An export of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// The server.
    pub place: Place,
    /// The name of the export; empty for the default one.
    pub export: Vec<u8>,
}

impl Address {
    /// Whether a text is meant as an address, right or wrong.
    #[must_use]
    pub fn is_meant(text: &[u8]) -> bool {
        SCHEMES.iter().any(|scheme| text.starts_with(scheme.as_bytes()))
    }

    /// Parses an address.
    ///
    /// # Errors
    /// [`Error::Address`], which does not repeat the address.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let text = str::from_utf8(text).map_err(|_| Error::Address("it is no UTF-8; write bytes as %XX"))?;
        if text.starts_with("nbds") {
            return Err(Error::Address(
                "nbds is NBD over TLS, which is not supported; use a tunnel and nbd://",
            ));
        }
        let (scheme, rest) = text.split_once("://").ok_or(Error::Address("it has no ://"))?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = path.split_once('/').unwrap_or((path, ""));
        if authority.contains('@') {
            return Err(Error::Address("it names a user, which NBD does not have"));
        }
        let export = decoded(export)?;
        if export.len() > crate::protocol::STRING_MAX {
            return Err(Error::Address("the name of the export is longer than 4096 bytes"));
        }
        let place = match scheme {
            "nbd" | "nbd+tcp" if query.is_empty() => tcp(authority)?,
            "nbd" | "nbd+tcp" => return Err(Error::Address("nothing may follow a ? here")),
            "nbd+unix" if authority.is_empty() => unix(query)?,
            "nbd+unix" => return Err(Error::Address("write nbd+unix:///EXPORT?socket=PATH")),
            _ => return Err(Error::Address("it must begin with nbd:// or nbd+unix://")),
        };
        Ok(Self { place, export })
    }

    /// A text without the user and the password that it may have, for messages.
    #[must_use]
    pub fn without_secrets(text: &str) -> String {
        let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
        match rest.rsplit_once('@') {
            Some((_, rest)) => format!("{scheme}://...@{rest}"),
            None => text.to_owned(),
        }
    }
}

fn tcp(authority: &str) -> Result<Place> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or(Error::Address("a [ has no ]"))?;
            (host, after.strip_prefix(':').unwrap_or(after))
        }
        None => authority.rsplit_once(':').unwrap_or((authority, "")),
    };
    if host.is_empty() {
        return Err(Error::Address("it names no host"));
    }
    let port = if port.is_empty() { Ok(PORT) } else { port.parse() };
    let port = port.map_err(|_| Error::Address("the port is no number up to 65535"))?;
    Ok(Place::Tcp(
        String::from_utf8(decoded(host)?).map_err(|_| Error::Address("the host is no UTF-8"))?,
        port,
    ))
}

fn unix(query: &str) -> Result<Place> {
    let mut socket = None;
    for part in query.split('&') {
        match part.split_once('=') {
            Some(("socket", path)) if socket.is_none() && !path.is_empty() => socket = Some(decoded(path)?),
            _ => return Err(Error::Address("write nbd+unix:///EXPORT?socket=PATH")),
        }
    }
    let path = socket.ok_or(Error::Address("it has no ?socket=PATH"))?;
    Ok(Place::Unix(OsString::from_vec(path).into()))
}

/// With every `%XX` replaced by its byte.
fn decoded(text: &str) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let value = digit(bytes.next()).zip(digit(bytes.next())).map(|(high, low)| high * 16 + low);
        let value = value.and_then(|value| u8::try_from(value).ok()).filter(|value| *value != 0);
        out.push(value.ok_or(Error::Address("a % is not followed by two hexadecimal digits"))?);
    }
    Ok(out)
}

/// With what has a meaning in addresses as `%XX`.
fn encoded(bytes: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(byte);
    bytes
        .iter()
        .map(|byte| if plain(byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = encoded(&self.export);
        match &self.place {
            Place::Tcp(host, port) if host.contains(':') => write!(f, "nbd://[{host}]:{port}/{export}"),
            Place::Tcp(host, port) => write!(f, "nbd://{host}:{port}/{export}"),
            Place::Unix(path) => {
                write!(f, "nbd+unix:///{export}?socket={}", encoded(path.as_os_str().as_bytes()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Address {
        Address::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn addresses_are_taken_apart() {
        let tcp = |host: &str, port| Place::Tcp(host.to_owned(), port);
        assert_eq!(parsed("nbd://h").place, tcp("h", PORT));
        assert_eq!(parsed("nbd://h:1/a/b"), Address { place: tcp("h", 1), export: b"a/b".to_vec() });
        assert_eq!(parsed("nbd://[::1]:7/x").place, tcp("::1", 7));
        assert_eq!(parsed("nbd://[::1]").place, tcp("::1", PORT));
        let unix = parsed("nbd+unix:///a%20b?socket=/run/x.sock");
        assert_eq!(unix, Address { place: Place::Unix("/run/x.sock".into()), export: b"a b".to_vec() });
    }

    #[test]
    fn wrong_addresses_are_refused_and_passwords_stay_hidden() {
        for text in [
            "nbd://",
            "nbd://h:99999/",
            "nbd://h?socket=/x",
            "nbd+unix:///",
            "nbd+unix://h/?socket=/x",
            "nbd+unix:///?socket=",
            "nbd://h/%0",
            "nbd://h/%00",
            "nbds://h/",
            "nbd://[::1/",
        ] {
            assert!(Address::parse(text.as_bytes()).is_err(), "{text}");
        }
        let secret = "nbd://me:hunter2@h/x";
        assert!(!Address::parse(secret.as_bytes()).unwrap_err().to_string().contains("hunter2"));
        assert_eq!(Address::without_secrets(secret), "nbd://...@h/x");
    }

    proptest! {
        #[test]
        fn an_address_that_is_shown_is_parsed_to_itself(
            export in proptest::collection::vec(1_u8.., 0..20),
            path in "/[a-z?&%: ]{1,20}",
        ) {
            let address = Address { place: Place::Unix(path.into()), export };
            prop_assert_eq!(Address::parse(address.to_string().as_bytes()).unwrap(), address);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "(nbd|nbd\\+unix)://[a-z@:/?=&%\\[\\]0-9]{0,30}") {
            let _ = Address::parse(text.as_bytes());
        }
    }
}
