//! Addresses: `s3://BUCKET/PREFIX`, `gs://`, `az://CONTAINER/PREFIX`, `file+store:///DIRECTORY`, and
//! `https://HOST/PATH` (or `http://`) for images.
//!
//! Letters that have a meaning in addresses are written `%XX`, as in those of NBD exports. Hazard: an
//! address may come with a password or a signature in it; it is refused then, and never shown.

use crate::{Error, Result};
use hectare_units::address::{self, encoded};
use std::fmt;
use std::path::PathBuf;

const SCHEMES: [&str; 6] = ["s3://", "gs://", "az://", "file+store://", "https://", "http://"];

/// Which store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// A bucket of S3, or of a service that speaks its protocol.
    S3(String),
    /// A bucket of Google Cloud Storage.
    Gcs(String),
    /// A container of Azure Blob Storage.
    Azure(String),
    /// A directory of this machine that has objects as files.
    Directory(PathBuf),
    /// A web server, with its scheme: for reading.
    Web(String),
}

/// A prefix or an object in a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// The store.
    pub place: Place,
    /// The prefix or the key: segments with slashes between them, none empty. Empty for the whole store.
    pub path: String,
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
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if rest.contains(['?', '#']) {
            return Err(Error::Address("nothing may follow a ? or #; signed links are not supported"));
        }
        if authority.contains('@') {
            return Err(Error::Address(
                "it names a user or a password; credentials come from the environment alone",
            ));
        }
        if scheme == "file+store" {
            return directory(authority, path);
        }
        if authority.is_empty() {
            return Err(Error::Address("it names no bucket or host"));
        }
        let place = match scheme {
            "s3" => Place::S3(bucket(authority)?),
            "gs" => Place::Gcs(bucket(authority)?),
            "az" => Place::Azure(bucket(authority)?),
            "http" | "https" if host_is_plain(authority) => Place::Web(format!("{scheme}://{authority}")),
            "http" | "https" => return Err(Error::Address("the host has other than letters, digits, - . :")),
            _ => return Err(Error::Address("it must begin with s3, gs, az, file+store, https or http")),
        };
        let path = decoded(path)?.trim_matches('/').to_owned();
        if path.split('/').any(|part| matches!(part, "." | "..") || part.is_empty()) && !path.is_empty() {
            return Err(Error::Address("a part of its path is empty, . or .."));
        }
        if matches!(place, Place::Web(_)) && path.is_empty() {
            return Err(Error::Address("it names no file of the server"));
        }
        Ok(Self { place, path })
    }

    /// A text without the user, the password and the query that it may have, for messages.
    #[must_use]
    pub fn without_secrets(text: &str) -> String {
        let end = text.find("://").and_then(|from| Some(from + text[from..].find(['?', '#'])?));
        if let Some((scheme, _)) = text.split_once("://")
            && end.is_some_and(|end| text[end..].contains('@'))
        {
            // Either may be a part of the other.
            return format!("{scheme}://...");
        }
        let query = if end.is_some() { "?..." } else { "" };
        address::without_user(&text[..end.unwrap_or(text.len())]) + query
    }
}

fn bucket(name: &str) -> Result<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match name.bytes().all(plain) {
        true => Ok(name.to_owned()),
        false => Err(Error::Address("the bucket's name has other than letters, digits, - . _")),
    }
}

fn host_is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte))
}

fn directory(authority: &str, path: &str) -> Result<Address> {
    if !authority.is_empty() {
        return Err(Error::Address("write file+store:///DIRECTORY, with three slashes"));
    }
    let path = decoded(path)?;
    Ok(Address { place: Place::Directory(PathBuf::from(format!("/{path}"))), path: String::new() })
}

/// With every `%XX` replaced by its byte.
fn decoded(text: &str) -> Result<String> {
    let bytes = address::decoded(text);
    let bytes = bytes.ok_or(Error::Address("a % is not followed by two hexadecimal digits"))?;
    let text = String::from_utf8(bytes).map_err(|_| Error::Address("its path is no UTF-8"))?;
    match text.chars().any(char::is_control) {
        true => Err(Error::Address("its path has control characters")),
        false => Ok(text),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = encoded(self.path.as_bytes());
        match &self.place {
            Place::S3(bucket) => write!(f, "s3://{bucket}/{path}"),
            Place::Gcs(bucket) => write!(f, "gs://{bucket}/{path}"),
            Place::Azure(container) => write!(f, "az://{container}/{path}"),
            Place::Directory(path) => {
                write!(f, "file+store://{}", encoded(path.to_string_lossy().as_bytes()))
            }
            Place::Web(host) => write!(f, "{host}/{path}"),
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
        let s3 = Address { place: Place::S3("b".to_owned()), path: "a/v 1".to_owned() };
        assert_eq!(parsed("s3://b/a/v%201/"), s3);
        assert_eq!(parsed("gs://b").place, Place::Gcs("b".to_owned()));
        assert_eq!(parsed("az://b/x").place, Place::Azure("b".to_owned()));
        assert_eq!(parsed("file+store:///srv/v").place, Place::Directory("/srv/v".into()));
        let web = Address { place: Place::Web("https://h:1".to_owned()), path: "d/x.img".to_owned() };
        assert_eq!(parsed("https://h:1/d/x.img"), web);
        assert!(
            Address::is_meant(b"s3://x") && !Address::is_meant(b"s3/x") && !Address::is_meant(b"nbd://x")
        );
    }

    #[test]
    fn wrong_addresses_are_refused_and_secrets_stay_hidden() {
        for text in [
            "s3://",
            "s3:///x",
            "s3://b/../x",
            "s3://b/a//x",
            "s3://b/%0",
            "s3://b/%00",
            "s3://b c/x",
            "file+store://x/y",
            "https://h/",
            "https://h",
            "https://h/x?a=b",
            "s3://b/x#y",
            "ftp://h/x",
        ] {
            assert!(Address::parse(text.as_bytes()).is_err(), "{text}");
        }
        for secret in [
            "https://me:hunter2@h/x",
            "https://h/x?sig=hunter2",
            "https://h/x?sig=a@hunter2",
            "s3://key:hunter2@b/x",
            "s3://me:x?hunter2@b/x",
            "s3://hunter2?x@b/x",
        ] {
            let error = Address::parse(secret.as_bytes()).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
            assert!(!Address::without_secrets(secret).contains("hunter2"), "{secret}");
        }
        assert_eq!(Address::without_secrets("https://me:pw@h/x"), "https://...@h/x");
    }

    proptest! {
        #[test]
        fn an_address_that_is_shown_is_parsed_to_itself(path in "[a-z?#%@: ]{1,20}(/[a-z:]{1,5})?") {
            let path = path.trim_matches('/').to_owned();
            for place in [Place::S3("b".to_owned()), Place::Web("http://h:80".to_owned())] {
                let address = Address { place, path: path.clone() };
                prop_assert_eq!(Address::parse(address.to_string().as_bytes()).unwrap(), address);
            }
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "(s3|file\\+store|https)://[a-z@:/?=&%\\[\\]0-9.]{0,30}") {
            let _ = Address::parse(text.as_bytes());
        }
    }
}
