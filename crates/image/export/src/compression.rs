//! How an archive is compressed on its way out.

use crate::zstd_frames::ZstdFrames;
use flate2::Compression as Level;
use flate2::write::GzEncoder;
use std::io::{self, Write};

/// How an archive is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, with no time and no name in its header: the same archive gives the same bytes.
    Gzip,
    /// zstd, in frames of a fixed length: the same archive gives the same bytes.
    Zstd,
}

/// Compresses what is written to it.
pub struct Packer<W: Write>(Kind<W>);

enum Kind<W: Write> {
    Plain(W),
    Gzip(Box<GzEncoder<W>>),
    Zstd(ZstdFrames<W>),
}

impl<W: Write> Packer<W> {
    /// Compresses to `out`.
    pub fn new(out: W, compression: Compression) -> Self {
        Self(match compression {
            Compression::None => Kind::Plain(out),
            Compression::Gzip => Kind::Gzip(Box::new(GzEncoder::new(out, Level::default()))),
            Compression::Zstd => Kind::Zstd(ZstdFrames::new(out)),
        })
    }

    /// Ends the compressed data, and returns what it was written to.
    ///
    /// # Errors
    /// If that can't take it.
    pub fn finish(self) -> io::Result<W> {
        match self.0 {
            Kind::Plain(out) => Ok(out),
            Kind::Gzip(encoder) => encoder.finish(),
            Kind::Zstd(frames) => frames.finish(),
        }
    }
}

impl<W: Write> Write for Packer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Plain(out) => out.write(bytes),
            Kind::Gzip(encoder) => encoder.write(bytes),
            Kind::Zstd(frames) => frames.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Kind::Plain(out) => out.flush(),
            Kind::Gzip(encoder) => encoder.flush(),
            Kind::Zstd(frames) => frames.flush(),
        }
    }
}
