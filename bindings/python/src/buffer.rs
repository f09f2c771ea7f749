//! Python's memory, lent to the engine while the interpreter's lock is released.
//!
//! While a buffer is held, Python keeps its memory where it is: what would move or free it
//! (`bytearray.append`, `memoryview.release`) raises `BufferError`.
//!
//! Hazard: nothing stops another Python thread from reading or writing the same memory meanwhile. CPython's
//! own `readinto` and `write` have that race as well; here as there the bytes that are read or written are
//! then those of either thread, and nothing else depends on them: the engine takes no decision by file
//! content.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::{Bound, PyAny, PyResult};
use std::ffi::c_void;

/// A contiguous buffer of any Python object.
pub(crate) struct Lent {
    buffer: PyUntypedBuffer,
}

/// The memory of a [`Lent`]: what crosses to where the interpreter's lock is not held.
struct Span {
    start: *mut c_void,
    len: usize,
}

impl Lent {
    /// Takes the buffer of `object`.
    ///
    /// # Errors
    /// If it has none, or one that is not contiguous.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("the buffer is not contiguous"));
        }
        Ok(Self { buffer })
    }

    /// Takes the buffer of `object`, to be written.
    ///
    /// # Errors
    /// As [`Self::of`], or if it is read-only.
    pub(crate) fn writable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let lent = Self::of(object)?;
        if lent.buffer.readonly() {
            return Err(PyBufferError::new_err("the buffer is read-only"));
        }
        Ok(lent)
    }

    fn span(&self) -> Span {
        Span { start: self.buffer.buf_ptr(), len: self.buffer.len_bytes() }
    }

    /// Its bytes.
    #[allow(unsafe_code)]
    pub(crate) fn bytes(&self) -> &[u8] {
        let span = self.span();
        if span.len == 0 {
            return &[];
        }
        // SAFETY: Python exported `len` contiguous bytes at `start` until the buffer is released, which the
        // borrow of `self` precludes. They may change meanwhile: see the module.
        unsafe { std::slice::from_raw_parts(span.start.cast::<u8>(), span.len) }
    }

    /// Its bytes, to be written.
    #[allow(unsafe_code)]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let span = self.span();
        if span.len == 0 || self.buffer.readonly() {
            return &mut [];
        }
        // SAFETY: as in `bytes`; it is writable, and `self` is borrowed exclusively. Another buffer of the
        // same object may exist: see the module.
        unsafe { std::slice::from_raw_parts_mut(span.start.cast::<u8>(), span.len) }
    }
}
