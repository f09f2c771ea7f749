//! An open file, for `hectare.VolumeFile`.

use crate::buffer::{Lent, filled};
use crate::failure::{Failure, Outcome, size as size_of_bytes};
use crate::guard::Held;
use crate::stat::{Stat, stat_of};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io::{Read, Seek, SeekFrom, Write};

/// An open regular file with a position. All methods may be called from any thread.
#[pyclass(frozen, module = "hectare._native")]
pub(crate) struct File {
    held: Held<hectare::fs::File>,
    path: Vec<u8>,
}

/// `os.SEEK_DATA`, as Linux numbers it.
const SEEK_DATA: i32 = 3;
/// `os.SEEK_HOLE`, as Linux numbers it.
const SEEK_HOLE: i32 = 4;
/// No such device or address: nothing follows.
const ENXIO: i32 = 6;
/// The argument has no meaning.
const EINVAL: i32 = 22;

impl File {
    pub(crate) fn new(file: hectare::fs::File, path: &[u8]) -> Self {
        Self { held: Held::new("file", file), path: path.to_vec() }
    }

    fn run<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&hectare::fs::File) -> Outcome<R> + Send,
    ) -> PyResult<R> {
        self.held.run(py, work).map_err(|failure| failure.about(self.path.as_slice()))
    }

    /// Bytes that `fill` reads into memory that Python owns from the beginning; `len` is the most.
    fn bytes<'py>(
        &self,
        py: Python<'py>,
        len: usize,
        fill: impl FnOnce(&hectare::fs::File, &mut [u8]) -> Outcome<usize> + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        filled(py, len, |out| self.run(py, |file| fill(file, out)))
    }
}

#[pymethods]
impl File {
    /// Reads into a buffer from the position on; returns the bytes.
    fn read_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut lent = Lent::writable(buffer)?;
        let out = lent.bytes_mut();
        self.run(py, |mut file| Ok(file.read(out)?))
    }

    /// Reads up to `size` bytes from the position on.
    fn read<'py>(&self, py: Python<'py>, size: u64) -> PyResult<Bound<'py, PyBytes>> {
        let left = self.run(py, left)?.min(size);
        self.bytes(py, size_of_bytes(left)?, |mut file, out| Ok(file.read(out)?))
    }

    /// Reads from the position to the end.
    fn readall<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.read(py, u64::MAX)
    }

    /// Reads up to `size` bytes at an offset; the position stays.
    fn pread<'py>(&self, py: Python<'py>, size: u64, offset: u64) -> PyResult<Bound<'py, PyBytes>> {
        let left = self.run(py, |file| Ok(file.metadata()?.len().saturating_sub(offset)))?;
        let len = size_of_bytes(left.min(size))?;
        self.bytes(py, len, |file, out| Ok(file.read_at(out, offset)?))
    }

    /// Reads into a buffer at an offset; the position stays. Returns the bytes.
    fn pread_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let mut lent = Lent::writable(buffer)?;
        let out = lent.bytes_mut();
        self.run(py, |file| Ok(file.read_at(out, offset)?))
    }

    /// Writes a buffer at the position; returns the bytes written.
    fn write(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let lent = Lent::of(buffer)?;
        let data = lent.bytes();
        self.run(py, |mut file| Ok(file.write(data)?))
    }

    /// Writes a buffer at an offset; the position stays.
    fn pwrite(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let lent = Lent::of(buffer)?;
        let data = lent.bytes();
        self.run(py, |file| Ok(file.write_at(data, offset)?))
    }

    /// Moves the position, as `os.lseek`; returns it.
    fn seek(&self, py: Python<'_>, offset: i64, whence: i32) -> PyResult<u64> {
        self.run(py, |file| seek(file, offset, whence))
    }

    /// Makes the file `size` bytes long.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        self.run(py, |file| Ok(file.set_len(size)?))
    }

    /// Makes content and metadata durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |file| Ok(file.sync_all()?))
    }

    /// What its inode says.
    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        self.run(py, |file| Ok(stat_of(&file.metadata()?)))
    }

    /// Closes it; does nothing the second time.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let closed = self.held.close(py, |file| Ok(file.close()?));
        closed.map_err(|failure| failure.about(self.path.as_slice()))
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.held.is_closed(py)
    }
}

/// Bytes from the position to the end.
fn left(mut file: &hectare::fs::File) -> Outcome<u64> {
    let at = file.stream_position()?;
    Ok(file.metadata()?.len().saturating_sub(at))
}

fn seek(mut file: &hectare::fs::File, offset: i64, whence: i32) -> Outcome<u64> {
    let start = || u64::try_from(offset).map_err(|_| Failure::os(EINVAL, "a position is not negative"));
    let to = match whence {
        0 => SeekFrom::Start(start()?),
        1 => SeekFrom::Current(offset),
        2 => SeekFrom::End(offset),
        SEEK_DATA | SEEK_HOLE => {
            let found =
                if whence == SEEK_DATA { file.seek_data(start()?)? } else { file.seek_hole(start()?)? };
            SeekFrom::Start(found.ok_or_else(|| Failure::os(ENXIO, "nothing follows in the file"))?)
        }
        other => return Err(Failure::Value(format!("invalid whence ({other}, should be 0 to 4)"))),
    };
    Ok(file.seek(to)?)
}
