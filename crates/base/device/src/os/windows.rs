//! Reading and writing files at places, on Windows by the names that Unix has for it.

use std::fs::File;
use std::io;

/// Reads and writes at places of an open file.
pub trait FileExt {
    /// Reads up to a bufferful; 0 at the end.
    ///
    /// # Errors
    /// The system's error.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes some of the bytes.
    ///
    /// # Errors
    /// The system's error.
    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize>;

    /// Fills the buffer.
    ///
    /// # Errors
    /// The system's error; `UnexpectedEof` if the file ends before.
    fn read_exact_at(&self, mut buf: &mut [u8], mut at: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.read_at(buf, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    buf = &mut buf[n..];
                    at += hectare_units::u64_of(n);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all of the bytes.
    ///
    /// # Errors
    /// The system's error.
    fn write_all_at(&self, mut buf: &[u8], mut at: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.write_at(buf, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    buf = &buf[n..];
                    at += hectare_units::u64_of(n);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl FileExt for File {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(self, buf, at)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_write(self, buf, at)
    }
}
