//! Names bytes by their SHA-256, as OCI does, while they are written.

use hectare_units::{Bytes, hex, u64_of};
use sha2::{Digest as _, Sha256};
use std::io::{self, Write};

/// The digest of bytes that have passed, and how many they were.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Digest {
    /// 64 hexadecimal digits.
    pub(crate) hex: String,
    pub(crate) size: Bytes,
}

impl Digest {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self::new(Sha256::digest(bytes).as_slice(), Bytes::of(bytes.len()))
    }

    fn new(digest: &[u8], size: Bytes) -> Self {
        Self { hex: hex(digest), size }
    }

    /// As descriptors have it.
    pub(crate) fn named(&self) -> String {
        format!("sha256:{}", self.hex)
    }
}

/// Passes bytes on.
pub(crate) struct Digesting<W> {
    out: W,
    digest: Sha256,
    size: u64,
}

impl<W: Write> Digesting<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, digest: Sha256::new(), size: 0 }
    }

    /// The digest, and what the bytes were written to.
    pub(crate) fn finish(self) -> (Digest, W) {
        (Digest::new(self.digest.finalize().as_slice(), Bytes::new(self.size)), self.out)
    }
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.digest.update(&bytes[..written]);
        self.size += u64_of(written);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
