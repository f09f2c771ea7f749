//! An operation on a device, as the layers over one see it.

use crate::{Operation, Span};
use hectare_units::Bytes;

/// One operation as a layer sees it pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// What was asked.
    pub operation: Operation,
    /// Where; for a flush nothing, for a resize the new length from 0.
    pub span: Span,
}

impl Request {
    /// An operation on a range.
    #[must_use]
    pub const fn new(operation: Operation, at: Bytes, len: Bytes) -> Self {
        Self { operation, span: Span::new(at, len) }
    }
}
