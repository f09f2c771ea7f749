//! Why a disk image can't be used.

use hectare_device::{Operation, Reason, Span};

/// Why a disk image can't be opened or made; one line with its name.
#[derive(Debug, Clone)]
pub struct Error {
    text: String,
}

impl std::error::Error for Error {}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// The result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(name: &str, what: impl std::fmt::Display) -> Self {
        Self { text: format!("{name}: {what}") }
    }
}

impl From<hectare_device::Error> for Error {
    fn from(error: hectare_device::Error) -> Self {
        Self { text: error.to_string() }
    }
}

/// The error of an operation on the device of an image, from one on its file.
pub(crate) fn io(
    name: &str,
    operation: Operation,
    span: Span,
    error: &std::io::Error,
) -> hectare_device::Error {
    let reason = match error.raw_os_error() {
        Some(errno) => Reason::Io(errno),
        None => Reason::Damaged(error.to_string().replace('\n', " ")),
    };
    hectare_device::Error::new(name, operation, Some(span), reason)
}

/// Refuses a range outside of the disk, or a change to one that is read only.
pub(crate) fn check(
    device: &dyn hectare_device::Device,
    operation: Operation,
    span: Span,
) -> hectare_device::Result<()> {
    let fail = |reason| Err(hectare_device::Error::new(device.name(), operation, Some(span), reason));
    if operation.changes() && device.is_read_only() {
        return fail(Reason::ReadOnly);
    }
    if span.fits(device.len()) { Ok(()) } else { fail(Reason::OutOfRange(device.len())) }
}
