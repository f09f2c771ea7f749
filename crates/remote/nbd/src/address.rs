//! Addresses of exports: `nbd://HOST[:PORT][/EXPORT]` and `nbd+unix:///EXPORT?socket=PATH`; with `nbds` in place of
//! `nbd`, TLS, and perhaps `?tls-hostname=NAME`, the name that the server's certificate has.
//!
//! Letters that have a meaning in addresses are written `%XX` in names. Hazard: an address may come with a
//! password in it, where none belongs; it is refused then, and never shown.

use crate::protocol::PORT;
use crate::{Error, Result};
use hectare_device::os::{OsStrExt, os_string};
use hectare_units::address::{self, encoded};
use std::fmt;
use std::path::PathBuf;

const SCHEMES: [&str; 6] = ["nbd://", "nbd+tcp://", "nbd+unix://", "nbds://", "nbds+tcp://", "nbds+unix://"];
/// The name of a server with a socket of this machine, unless the address says otherwise.
const LOCAL: &str = "localhost";

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
    /// The name that the server's certificate must have; `None` for a connection without TLS.
    pub tls: Option<String>,
}

impl Address {
    /// Whether a text is meant as an address, right or wrong.
    #[must_use]
    pub fn is_meant(text: &[u8]) -> bool {
        address::is_meant(text, &SCHEMES)
    }

    /// Parses an address.
    ///
    /// # Errors
    /// [`Error::Address`], which does not repeat the address.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let text = str::from_utf8(text).map_err(|_| Error::Address("it is no UTF-8; write bytes as %XX"))?;
        let (scheme, rest) = text.split_once("://").ok_or(Error::Address("it has no ://"))?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = path.split_once('/').unwrap_or((path, ""));
        let (scheme, is_tls) = match scheme.strip_prefix("nbds") {
            Some(rest) => (format!("nbd{rest}"), true),
            None => (scheme.to_owned(), false),
        };
        if authority.contains('@') && is_tls {
            return Err(Error::Address(
                "a user is for TLS with shared keys (PSK); only certificates are supported",
            ));
        }
        if authority.contains('@') {
            return Err(Error::Address("it names a user, which NBD does not have"));
        }
        let export = decoded(export)?;
        if export.len() > crate::protocol::STRING_MAX {
            return Err(Error::Address("the name of the export is longer than 4096 bytes"));
        }
        let query = Query::parse(query)?;
        let place = match scheme.as_str() {
            "nbd" | "nbd+tcp" if query.socket.is_none() => tcp(authority)?,
            "nbd" | "nbd+tcp" => return Err(Error::Address("a socket is for nbd+unix:// only")),
            "nbd+unix" if authority.is_empty() => {
                Place::Unix(query.socket.ok_or(Error::Address("write nbd+unix:///EXPORT?socket=PATH"))?)
            }
            "nbd+unix" => return Err(Error::Address("write nbd+unix:///EXPORT?socket=PATH")),
            _ => return Err(Error::Address("it must begin with nbd://, nbds:// or nbd+unix://")),
        };
        if !is_tls && query.has_tls {
            return Err(Error::Address("tls-hostname and the like are for nbds:// only"));
        }
        let host = |place: &Place| match place {
            Place::Tcp(host, _) => host.clone(),
            Place::Unix(_) => LOCAL.to_owned(),
        };
        let tls = is_tls.then(|| query.hostname.unwrap_or_else(|| host(&place)));
        Ok(Self { place, export, tls })
    }

    /// A text without the user and the password that it may have, for messages.
    #[must_use]
    pub fn without_secrets(text: &str) -> String {
        address::without_user(text)
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

/// What follows the question mark.
#[derive(Default)]
struct Query {
    socket: Option<PathBuf>,
    hostname: Option<String>,
    has_tls: bool,
}

impl Query {
    fn parse(query: &str) -> Result<Self> {
        let mut found = Self::default();
        for part in query.split('&').filter(|_| !query.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            found.has_tls |= key.starts_with("tls-");
            match key {
                "socket" if found.socket.is_none() && !value.is_empty() => {
                    let path = os_string(&decoded(value)?);
                    found.socket = Some(path.map_err(Error::Io)?.into());
                }
                "tls-hostname" if found.hostname.is_none() && !value.is_empty() => {
                    let name = String::from_utf8(decoded(value)?);
                    found.hostname = Some(name.map_err(|_| Error::Address("tls-hostname is no UTF-8"))?);
                }
                "tls-type" if value == "x509" => {}
                "tls-type" | "tls-psk-file" | "tls-username" => {
                    return Err(Error::Address(
                        "TLS with shared keys (PSK) is not supported, only certificates",
                    ));
                }
                "tls-verify-peer" => return Err(Error::Address("the server is always verified")),
                "tls-certificates" => {
                    return Err(Error::Address(
                        "certificates are named by --tls-ca, --tls-cert and --tls-key",
                    ));
                }
                _ => return Err(Error::Address("after the ? write socket=PATH or tls-hostname=NAME")),
            }
        }
        Ok(found)
    }
}

/// With every `%XX` replaced by its byte.
fn decoded(text: &str) -> Result<Vec<u8>> {
    address::decoded(text).ok_or(Error::Address("a % is not followed by two hexadecimal digits"))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = encoded(&self.export);
        let s = if self.tls.is_some() { "s" } else { "" };
        let usual = match &self.place {
            Place::Tcp(host, _) => host.as_str(),
            Place::Unix(_) => LOCAL,
        };
        match &self.place {
            Place::Tcp(host, port) if host.contains(':') => write!(f, "nbd{s}://[{host}]:{port}/{export}")?,
            Place::Tcp(host, port) => write!(f, "nbd{s}://{host}:{port}/{export}")?,
            Place::Unix(path) => {
                write!(f, "nbd{s}+unix:///{export}?socket={}", encoded(path.as_os_str().as_bytes()))?;
            }
        }
        let joint = if matches!(self.place, Place::Unix(_)) { '&' } else { '?' };
        match &self.tls {
            Some(name) if name != usual => write!(f, "{joint}tls-hostname={}", encoded(name.as_bytes())),
            _ => Ok(()),
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
        assert_eq!(
            parsed("nbd://h:1/a/b"),
            Address { place: tcp("h", 1), export: b"a/b".to_vec(), tls: None }
        );
        assert_eq!(parsed("nbd://[::1]:7/x").place, tcp("::1", 7));
        assert_eq!(parsed("nbd://[::1]").place, tcp("::1", PORT));
        let unix = parsed("nbd+unix:///a%20b?socket=/run/x.sock");
        let place = Place::Unix("/run/x.sock".into());
        assert_eq!(unix, Address { place: place.clone(), export: b"a b".to_vec(), tls: None });
        let tls = |text: &str| parsed(text).tls;
        assert_eq!(tls("nbds://h/x").as_deref(), Some("h"));
        assert_eq!(tls("nbds://h/x?tls-hostname=other&tls-type=x509").as_deref(), Some("other"));
        assert_eq!(tls("nbds+unix:///?socket=/s").as_deref(), Some("localhost"));
        let both = parsed("nbds+unix:///?socket=/run/x.sock&tls-hostname=h");
        assert_eq!((both.place, both.tls.as_deref()), (place, Some("h")));
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
            "nbds://",
            "nbds://alice@h/",
            "nbds://h/?tls-type=psk",
            "nbds://h/?tls-psk-file=/x",
            "nbds://h/?tls-verify-peer=false",
            "nbd://h/?tls-hostname=h",
            "nbdsx://h/",
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
            tls in proptest::option::of("[a-z.&=?]{1,9}"),
        ) {
            let address = Address { place: Place::Unix(path.into()), export, tls };
            prop_assert_eq!(Address::parse(address.to_string().as_bytes()).unwrap(), address);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "(nbds?|nbds?\\+unix)://[a-z@:/?=&%\\[\\]0-9]{0,30}") {
            let _ = Address::parse(text.as_bytes());
        }
    }
}
