//! Python's memory, lent to the engine while the interpreter's lock is released: buffers of any object
//! ([`Lent`]), and `bytes` that are new ([`filled`]).
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
use pyo3::types::{PyBytes, PyBytesMethods};
use pyo3::{Bound, PyAny, PyResult, Python, ffi};
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

/// New `bytes`, of which `fill` writes the first ones and returns how many: the rest of `len` is cut off.
///
/// The memory is not cleared before, which took a fifth of the time of reading what is cached: see
/// docs/benchmarks/library.md. `fill` must write what it counts, and read nothing.
///
/// # Errors
/// `MemoryError` or `OverflowError` for too many bytes, or what `fill` returns.
#[allow(unsafe_code)]
pub(crate) fn filled<'py>(
    py: Python<'py>,
    len: usize,
    fill: impl FnOnce(&mut [u8]) -> PyResult<usize>,
) -> PyResult<Bound<'py, PyBytes>> {
    let size = ffi::Py_ssize_t::try_from(len)?;
    // SAFETY: NULL asks for memory without content; what comes back is NULL with an exception, or ours.
    let bytes =
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), size))? };
    let bytes = bytes.cast_into::<PyBytes>()?;
    // SAFETY: the object has `len` bytes there and outlives the slice. It is new: there is no other reference,
    // and until there is one, its content may change. The interpreter has allocated it, outside of what Rust
    // compiles, so for Rust its bytes have values, whatever they are.
    let out =
        unsafe { std::slice::from_raw_parts_mut(ffi::PyBytes_AsString(bytes.as_ptr()).cast::<u8>(), len) };
    let done = fill(out)?;
    Ok(if done == len { bytes } else { PyBytes::new(py, bytes.as_bytes().get(..done).unwrap_or(&[])) })
}
