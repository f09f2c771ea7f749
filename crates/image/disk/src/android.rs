//! Android's sparse images: chunks of blocks that are stored, filled with a word, or left out.
//!
//! Facts: what `libsparse` writes and reads; its header file names the fields. Numbers are stored lowest byte
//! first. A chunk that is left out ("don't care") reads as zeros here, as `simg2img` makes it.
//!
//! Invariant of [`write`]: everything that is zero is written as a fill with zeros, never left out, since a
//! phone that flashes the image keeps what was there before in what is left out.

use crate::error::{Error, Result};
use crate::mapped::{Layout, MappedDevice, Source, extent};
use hectare_device::{Device, Extent, FileDevice};
use hectare_probe::record::record;
use hectare_units::{Bytes, index_of, u64_of, usize_of};
use std::io::{self, Write};

const MAGIC: [u8; 4] = 0xed26_ff3a_u32.to_le_bytes();
const HEADER_LEN: u16 = 28;
const CHUNK_LEN: u16 = 12;
const RAW: u16 = 0xcac1;
const FILL: u16 = 0xcac2;
const DONT_CARE: u16 = 0xcac3;
const CRC32: u16 = 0xcac4;
/// The size of a block of images that are written; the one that every reader takes.
const BLOCK: u32 = 4096;
/// The most blocks of a chunk that is written: readers hold a chunk in 32 bits.
const CHUNK_BLOCKS_MAX: u32 = (64 << 20) / BLOCK;

#[derive(Clone, Copy, Debug)]
enum Content {
    Stored(u64),
    Fill([u8; 4]),
}

struct Chunk {
    /// The first byte after it, on the disk.
    end: u64,
    content: Content,
}

struct Chunks {
    source: Source,
    chunks: Vec<Chunk>,
}

impl Layout for Chunks {
    fn read_some(&self, at: u64, buf: &mut [u8]) -> hectare_device::Result<usize> {
        let index = self.chunks.partition_point(|chunk| chunk.end <= at);
        let start = index.checked_sub(1).map_or(0, |before| self.chunks[before].end);
        let chunk = &self.chunks[index];
        let len = index_of(u64_of(buf.len()).min(chunk.end - at));
        match chunk.content {
            Content::Stored(place) => self.source.read(place + (at - start), &mut buf[..len])?,
            Content::Fill(word) => {
                let shift = index_of((at - start) % 4);
                for (index, byte) in buf[..len].iter_mut().enumerate() {
                    *byte = word[(index + shift) % 4];
                }
            }
        }
        Ok(len)
    }

    fn extent(&self, at: u64, len: u64) -> hectare_device::Result<Extent> {
        let chunk = &self.chunks[self.chunks.partition_point(|chunk| chunk.end <= at)];
        Ok(extent(matches!(chunk.content, Content::Fill([0, 0, 0, 0])), chunk.end - at, len))
    }
}

pub(crate) fn open(file: FileDevice) -> Result<impl Device + 'static> {
    let name = file.name().to_owned();
    let wrong = |what: &str| Error::new(&name, format!("the sparse image is damaged: {what}"));
    let head = record(&file, 0, usize::from(HEADER_LEN))?.ok_or_else(|| wrong("it is too short"))?;
    if head.le16(4) != 1 {
        return Err(wrong("it has a version that is not 1"));
    }
    let (header_len, chunk_len) = (u64::from(head.le16(8)), u64::from(head.le16(10)));
    let (block, blocks, count) = (u64::from(head.le32(12)), u64::from(head.le32(16)), head.le32(20));
    if header_len < u64::from(HEADER_LEN) || chunk_len < u64::from(CHUNK_LEN) || block == 0 || block % 4 != 0
    {
        return Err(wrong("its header has sizes that can't be"));
    }
    let (mut chunks, mut at, mut end) = (Vec::new(), header_len, 0_u64);
    // Each takes space in the file, so that a count that lies ends with it.
    for index in 0..count {
        let chunk = record(&file, at, usize::from(CHUNK_LEN))?.ok_or_else(|| wrong("it is cut off"))?;
        let (kind, len) = (chunk.le16(0), u64::from(chunk.le32(4)) * block);
        let (total, data) = (u64::from(chunk.le32(8)), at + chunk_len);
        let wrong = |what: &str| wrong(&format!("chunk {index} {what}"));
        let stored = total.checked_sub(chunk_len).ok_or_else(|| wrong("is shorter than its head"))?;
        if data + stored > file.len().get() {
            return Err(wrong("is cut off"));
        }
        let content = match kind {
            RAW if stored == len => Content::Stored(data),
            FILL if stored >= 4 => {
                let word = record(&file, data, 4)?.ok_or_else(|| wrong("is cut off"))?;
                Content::Fill(word.le32(0).to_le_bytes())
            }
            DONT_CARE => Content::Fill([0; 4]),
            CRC32 if len == 0 => Content::Fill([0; 4]),
            RAW | FILL | CRC32 => return Err(wrong("has a length that its kind can't have")),
            _ => return Err(wrong("is of an unknown kind")),
        };
        end = end.checked_add(len).ok_or_else(|| wrong("ends beyond 2^64"))?;
        if len > 0 {
            chunks.push(Chunk { end, content });
        }
        at = data + stored;
    }
    if end != blocks * block {
        return Err(wrong("its chunks are not as long together as it says"));
    }
    Ok(MappedDevice::new(&name, Bytes::new(end), Chunks { source: Source::new(file), chunks }))
}

/// What the next blocks are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    Raw,
    Fill([u8; 4]),
}

impl Run {
    fn of(block: &[u8]) -> Self {
        let word = [block[0], block[1], block[2], block[3]];
        if block.chunks_exact(4).all(|other| other == word) { Self::Fill(word) } else { Self::Raw }
    }
}

/// Writes the bytes of a disk as a sparse image to a file that is made by this. The length of the disk is rounded up
/// to blocks of 4 KiB with zeros.
///
/// # Errors
/// If the disk can't be read, is too large for the format (16 TiB), or the file can't be written.
pub fn write(disk: &dyn Device, out: &mut (impl Write + io::Seek)) -> Result<()> {
    let failed = |error: io::Error| Error::new("the sparse image", format!("cannot write: {error}"));
    let blocks = u32::try_from(disk.len().get().div_ceil(u64::from(BLOCK)))
        .map_err(|_| Error::new(disk.name(), "a sparse image holds at most 16 TiB"))?;
    let start = out.stream_position().map_err(failed)?;
    out.write_all(&[0; HEADER_LEN as usize]).map_err(failed)?;
    let mut writer = Writer { out, chunks: 0, run: Vec::new(), kind: Run::Raw, len: 0 };
    let mut buf = vec![0; usize_of(BLOCK) * 64];
    let mut done = 0_u64;
    while done < disk.len().get() {
        let len = index_of(u64_of(buf.len()).min(disk.len().get() - done));
        disk.read_at(Bytes::new(done), &mut buf[..len])?;
        let whole = len.next_multiple_of(usize_of(BLOCK));
        buf[len..whole].fill(0);
        for block in buf[..whole].chunks_exact(usize_of(BLOCK)) {
            writer.push(block).map_err(failed)?;
        }
        done += u64_of(len);
    }
    writer.end().map_err(failed)?;
    let chunks = writer.chunks;
    let mut head = Vec::from(MAGIC);
    for half in [1, 0, HEADER_LEN, CHUNK_LEN] {
        head.extend(half.to_le_bytes());
    }
    for word in [BLOCK, blocks, chunks, 0] {
        head.extend(word.to_le_bytes());
    }
    out.seek(io::SeekFrom::Start(start)).and_then(|_| out.write_all(&head)).map_err(failed)
}

struct Writer<'a, W> {
    out: &'a mut W,
    chunks: u32,
    /// The stored bytes of a run of blocks that differ.
    run: Vec<u8>,
    kind: Run,
    /// Its blocks.
    len: u32,
}

impl<W: Write> Writer<'_, W> {
    fn push(&mut self, block: &[u8]) -> io::Result<()> {
        let kind = Run::of(block);
        if self.len > 0 && (kind != self.kind || self.len == CHUNK_BLOCKS_MAX) {
            self.end()?;
        }
        self.kind = kind;
        self.len += 1;
        if kind == Run::Raw {
            self.run.extend_from_slice(block);
        }
        Ok(())
    }

    /// Writes the run as a chunk.
    fn end(&mut self) -> io::Result<()> {
        if self.len == 0 {
            return Ok(());
        }
        let (code, data): (u16, &[u8]) = match &self.kind {
            Run::Raw => (RAW, &self.run),
            Run::Fill(word) => (FILL, word),
        };
        let total = u32::from(CHUNK_LEN) + u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.out.write_all(&code.to_le_bytes())?;
        self.out.write_all(&[0; 2])?;
        self.out.write_all(&self.len.to_le_bytes())?;
        self.out.write_all(&total.to_le_bytes())?;
        self.out.write_all(data)?;
        self.run.clear();
        self.chunks += 1;
        self.len = 0;
        Ok(())
    }
}
