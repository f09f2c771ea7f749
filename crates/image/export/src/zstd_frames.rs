//! Compresses a stream with zstd, as frames of a fixed length.
//!
//! A file of several frames is a zstd file like any other (RFC 8878, 3). Each frame holds [`FRAME_LEN`] bytes
//! of the stream, the last one fewer, and a checksum of them; so what is written depends on nothing but the
//! stream, however it was cut into writes. An empty stream is one empty frame.

use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::io::{self, Write};

/// Bytes of the stream in one frame: so many more than the 128 KiB that matches are looked for in that the
/// cuts cost nothing.
const FRAME_LEN: usize = 4 << 20;

/// Compresses what is written to it.
pub(crate) struct ZstdFrames<W> {
    out: W,
    /// What the next frame is made of; below [`FRAME_LEN`].
    pending: Vec<u8>,
    is_empty: bool,
}

impl<W: Write> ZstdFrames<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, pending: Vec::new(), is_empty: true }
    }

    fn frame(&mut self) -> io::Result<()> {
        // The level that corresponds to `zstd -1`; there is no other.
        let frame = compress_to_vec(self.pending.as_slice(), CompressionLevel::Fastest);
        self.pending.clear();
        self.is_empty = false;
        self.out.write_all(&frame)
    }

    /// Writes the last frame, and returns what it was written to.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        if !self.pending.is_empty() || self.is_empty {
            self.frame()?;
        }
        Ok(self.out)
    }
}

impl<W: Write> Write for ZstdFrames<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(FRAME_LEN - self.pending.len());
        self.pending.extend_from_slice(&bytes[..len]);
        if self.pending.len() == FRAME_LEN {
            self.frame()?;
        }
        Ok(len)
    }

    /// Passes on whole frames only: a cut would depend on who flushes.
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use hectare_units::random::SplitMix64;
    use ruzstd::decoding::StreamingDecoder;
    use std::io::Read;

    fn packed(bytes: &[u8], step: usize) -> Vec<u8> {
        let mut frames = ZstdFrames::new(Vec::new());
        for part in bytes.chunks(step) {
            frames.write_all(part).unwrap();
            frames.flush().unwrap();
        }
        frames.finish().unwrap()
    }

    fn unpacked(mut packed: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        while !packed.is_empty() {
            StreamingDecoder::new(&mut packed).unwrap().read_to_end(&mut bytes).unwrap();
        }
        bytes
    }

    /// Text that repeats, bytes that don't, zeros, in runs of any length.
    fn mixed(len: usize) -> Vec<u8> {
        let (mut random, mut bytes) = (SplitMix64::new(7), Vec::with_capacity(len));
        while bytes.len() < len {
            let run = 1 + random.index_below(70_000);
            match random.below(3) {
                0 => bytes.extend(std::iter::repeat_n(0, run)),
                1 => bytes.extend(b"etc/passwd root:x:0:0:root:/root:/bin/sh\n".iter().cycle().take(run)),
                _ => bytes.extend((0..run).map(|_| random.draw().to_le_bytes()[0])),
            }
        }
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn what_is_packed_is_unpacked_and_the_writes_make_no_difference() {
        let bytes = mixed(2 * FRAME_LEN + 12_345);
        for len in [0, 1, 1000, FRAME_LEN - 1, FRAME_LEN, FRAME_LEN + 1, bytes.len()] {
            let one = packed(&bytes[..len], 1 << 20);
            assert!(unpacked(&one) == bytes[..len], "{len}");
            assert!(one == packed(&bytes[..len], 77_777), "{len}");
            assert!(!one.is_empty(), "an empty file is no zstd file");
        }
        assert!(packed(&bytes, 1 << 20).len() < bytes.len() / 2);
    }
}
