//! Why a server could not be spoken with.

use std::io;

/// The outcome of a step of the protocol.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a server can't be spoken with, or an address is none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection can't be made, or broke.
    #[error("{}", reason(.0))]
    Io(#[from] io::Error),
    /// The other side breaks the rules.
    #[error("the other side breaks the protocol: {0}")]
    Protocol(&'static str),
    /// The server does not want to; a sentence.
    #[error("{0}")]
    Refused(String),
    /// The address is none.
    #[error("the address is wrong: {0}")]
    Address(&'static str),
}

impl Error {
    /// The other side ended the connection.
    pub(crate) fn ended() -> Self {
        Self::Io(io::ErrorKind::UnexpectedEof.into())
    }
}

/// The reason in words, without the system's number.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the other side ended the connection".to_owned(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer in time".to_owned(),
        _ => {
            let text = error.to_string();
            text.split(" (os error").next().unwrap_or_default().to_owned()
        }
    }
}
