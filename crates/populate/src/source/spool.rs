//! Archives as files that can be read at any offset.
//!
//! A plain archive in a regular file is used in place. Everything else (a pipe, gzip, zstd, xz, bzip2) is
//! copied once, decompressed, into an unnamed temporary file. Compression is detected by the first bytes;
//! several compressed members in sequence count as one, as for `gzip` and `zstd`.
//!
//! The layer of a container image ([`layer`]) is compared with its digests meanwhile, and so it is read to
//! its end in any case.
//!
//! Hazard: some kilobytes unpack to any size. Data that does not begin like an archive is not copied further
//! than its start, and a copy takes neither more than the limit nor the last free space of its directory.

use super::Options;
use super::container::{Blob, Hasher, LayerDigests};
use super::folder::timestamp;
use super::tar::begins_an_archive;
use crate::error::{Error, ShownPath};
use crate::handle::SourceHandle;
use crate::time::PackedTime;
use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use hectare_host::stat_open;
use hectare_units::Bytes;
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

const BUFFER_LEN: usize = 256 << 10;
/// The longest signature that is looked for.
const SIGNATURE_LEN: usize = 6;
/// The memory that unpacking xz may take; `xz -9` takes 65 MiB.
const XZ_MEMORY_KIB: u32 = 100 << 10;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Zstd,
    Xz,
    Bzip2,
}

/// Opens an archive; copies it if it can't be used in place.
pub(crate) fn open(path: &Path, options: &Options) -> Result<SourceHandle, Error> {
    let name = path.as_os_str().as_bytes();
    let failed = |doing: &'static str| move |cause| Error::io(ShownPath::new(name), doing, cause);
    let file = File::open(path).map_err(failed("open"))?;
    let metadata = file.metadata().map_err(failed("open"))?;
    if metadata.is_dir() {
        let reason = "it is a directory, not an archive".into();
        return Err(Error::Refused { path: ShownPath::new(name), reason });
    }
    if !metadata.is_file() {
        return copy(name, file, options);
    }
    let mut head = [0; SIGNATURE_LEN];
    let len = read_head(|buffer, at| file.read_at(buffer, at), &mut head).map_err(failed("read"))?;
    match compression(name, &head[..len])? {
        Compression::None => handle(name, file),
        _ => copy(name, file, options),
    }
}

/// Copies a stream, decompressed, into an unnamed temporary file.
pub(crate) fn copy(name: &[u8], mut from: impl Read, options: &Options) -> Result<SourceHandle, Error> {
    let failed = |doing: &'static str| move |cause| Error::io(ShownPath::new(name), doing, cause);
    let mut head = [0; SIGNATURE_LEN];
    let len = read_head(|buffer, _| from.read(buffer), &mut head).map_err(failed("read"))?;
    let compression = compression(name, &head[..len])?;
    let whole = BufReader::with_capacity(BUFFER_LEN, Cursor::new(head[..len].to_vec()).chain(from));
    let folder = options.temporary_directory();
    let mut spool = Spool::new(name, &folder, options.max_size)?;
    spool.unpack(compression, whole)?;
    handle(name, spool.to)
}

/// Opens the layer of a container image; copies it if it is compressed. Compares it with its digests.
pub(crate) fn layer(
    name: &[u8],
    blob: Blob,
    digests: &LayerDigests,
    options: &Options,
) -> Result<SourceHandle, Error> {
    let failed = |cause| Error::io(ShownPath::new(name), "read", cause);
    let mut packed = Hashed { from: blob.reader().map_err(failed)?, hasher: digests.packed_hasher() };
    let mut head = [0; SIGNATURE_LEN];
    let len = read_head(|buffer, _| packed.read(buffer), &mut head).map_err(failed)?;
    let compression = if len == 0 { Compression::None } else { compression(name, &head[..len])? };
    let mut whole = BufReader::with_capacity(BUFFER_LEN, Cursor::new(head[..len].to_vec()).chain(packed));
    let (source, plain) = match compression {
        Compression::None => {
            let mut plain = Hashed { from: &mut whole, hasher: digests.plain_hasher() };
            io::copy(&mut plain, &mut io::sink()).map_err(failed)?;
            let hasher = plain.hasher;
            (blob.source(name), hasher)
        }
        _ => {
            let folder = options.temporary_directory();
            let mut spool = Spool::new(name, &folder, options.max_size)?;
            spool.hasher = Some(digests.unpacked_hasher());
            spool.unpack(compression, &mut whole)?;
            // What is behind the last compressed member counts for the digest of the whole.
            io::copy(&mut whole, &mut io::sink()).map_err(failed)?;
            let hasher = spool.hasher.take();
            (handle(name, spool.to)?, hasher)
        }
    };
    let packed = whole.into_inner().into_inner().1.hasher;
    digests.check(packed, plain).map_err(|reason| Error::Refused { path: ShownPath::new(name), reason })?;
    Ok(source)
}

/// A reader that hashes what it passes on.
struct Hashed<R> {
    from: R,
    hasher: Option<Hasher>,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.from.read(buffer)?;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buffer[..len]);
        }
        Ok(len)
    }
}

struct Spool<'a> {
    name: &'a [u8],
    folder: &'a Path,
    to: File,
    /// Bytes written.
    len: Bytes,
    /// Bytes that may be taken of the directory's free space, and in total.
    room: Bytes,
    limit: Option<Bytes>,
    /// Hashes what is written; then everything is, be it an archive or not.
    hasher: Option<Hasher>,
}

/// The part of a file system's free space that a copy may take: all but a sixteenth.
fn room(file: &File) -> Bytes {
    let free =
        rustix::fs::fstatvfs(file).map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    Bytes::new(free - free / 16)
}

impl<'a> Spool<'a> {
    fn new(name: &'a [u8], folder: &'a Path, limit: Option<Bytes>) -> Result<Self, Error> {
        let to = tempfile::tempfile_in(folder).map_err(|cause| {
            Error::io(ShownPath::new(folder.as_os_str().as_bytes()), "make a temporary file", cause)
        })?;
        let room = room(&to);
        Ok(Self { name, folder, to, len: Bytes::ZERO, room, limit, hasher: None })
    }

    /// Copies everything, decompressed.
    fn unpack(&mut self, compression: Compression, from: impl BufRead) -> Result<(), Error> {
        match compression {
            Compression::None => self.copy(from).map(drop),
            Compression::Gzip => self.copy(MultiGzDecoder::new(from)).map(drop),
            Compression::Zstd => self.copy_zstd(from),
            Compression::Xz => self.copy(XzReader::new_mem_limit(from, true, XZ_MEMORY_KIB)).map(drop),
            Compression::Bzip2 => self.copy(MultiBzDecoder::new(from)).map(drop),
        }
    }

    /// Copies everything, or just the start of what is no archive; returns whether there may be more.
    fn copy(&mut self, mut from: impl Read) -> Result<bool, Error> {
        let mut buffer = vec![0; BUFFER_LEN];
        loop {
            let read = read_head(|buffer, _| from.read(buffer), &mut buffer);
            let len = read.map_err(|cause| self.unreadable(cause))?;
            let is_start = self.len == Bytes::ZERO;
            self.write(&buffer[..len])?;
            if len < buffer.len() {
                return Ok(true);
            }
            if is_start && self.hasher.is_none() && !begins_an_archive(&buffer) {
                return Ok(false);
            }
        }
    }

    fn copy_zstd(&mut self, mut from: impl BufRead) -> Result<(), Error> {
        while !from.fill_buf().map_err(|cause| self.unreadable(cause))?.is_empty() {
            let mut decoder = match StreamingDecoder::new(&mut from) {
                Ok(decoder) => decoder,
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let skipped = io::copy(&mut (&mut from).take(u64::from(length)), &mut io::sink());
                    skipped.map_err(|cause| self.unreadable(cause))?;
                    continue;
                }
                Err(error) => return Err(self.unreadable(io::Error::other(error))),
            };
            if !self.copy(&mut decoder)? {
                return Ok(());
            }
            let frame = decoder.into_frame_decoder();
            let (stored, computed) = (frame.get_checksum_from_data(), frame.get_calculated_checksum());
            if stored.is_some() && stored != computed {
                return Err(self.unreadable(io::Error::other("a checksum does not match")));
            }
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.len += Bytes::of(bytes.len());
        if let Some(limit) = self.limit.filter(|limit| self.len > *limit) {
            return Err(Error::TooLarge { path: ShownPath::new(self.name), limit });
        }
        if self.len > self.room {
            return Err(Error::NoRoom {
                folder: ShownPath::new(self.folder.as_os_str().as_bytes()),
                archive: ShownPath::new(self.name),
                limit: self.room,
            });
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
        self.to.write_all(bytes).map_err(|cause| {
            let folder = ShownPath::new(self.folder.as_os_str().as_bytes());
            Error::io(folder, "keep a copy of the archive in a temporary file", cause)
        })
    }

    fn unreadable(&self, cause: io::Error) -> Error {
        let name = ShownPath::new(self.name);
        match cause.kind() {
            io::ErrorKind::UnexpectedEof => {
                Error::Refused { path: name, reason: "the compressed archive is truncated".into() }
            }
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::Other => {
                Error::Refused { path: name, reason: format!("it can't be unpacked: {cause}").into() }
            }
            _ => Error::io(name, "read", cause),
        }
    }
}

/// Reads until `head` is full or the end.
fn read_head(
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
    head: &mut [u8],
) -> io::Result<usize> {
    let mut len = 0;
    while len < head.len() {
        match read(&mut head[len..], Bytes::of(len).get()) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(len)
}

/// The compression, if it can be unpacked here; everything else is left to the reader of archives.
fn compression(name: &[u8], head: &[u8]) -> Result<Compression, Error> {
    Ok(match head {
        [] => {
            let reason = "it is empty, not an archive".into();
            return Err(Error::Refused { path: ShownPath::new(name), reason });
        }
        [0x1f, 0x8b, ..] => Compression::Gzip,
        // A frame, or a frame to be skipped (0x184D2A50 to 0x184D2A5F, little-endian).
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, ..] => Compression::Bzip2,
        _ => Compression::None,
    })
}

fn handle(name: &[u8], file: File) -> Result<SourceHandle, Error> {
    let stat = stat_open(file.as_fd())
        .map_err(|errno| Error::io(ShownPath::new(name), "read the metadata", errno))?;
    let mtime = PackedTime::new(timestamp(stat.mtime));
    let (len, range) = (Bytes::new(stat.size), 0..stat.size);
    Ok(SourceHandle::Archive { file, name: name.into(), range, len, mtime })
}
