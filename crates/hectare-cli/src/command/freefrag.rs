//! `hectare freefrag`.

use crate::failure::{LeftOut, Outcome};
use crate::free_extents::{FreeSpace, Reading, is_last};
use crate::image::Image;
use crate::name::JsonName;
use crate::output::Output;
use crate::write_args::Looking;
use hectare_device::os::OsStrExt;
use hectare_ext4::geometry::Geometry;
use serde::Serialize;
use std::path::PathBuf;

/// Show free-space fragmentation
///
/// Prints what e2freefrag prints, number for number. The one exception are volumes with bigalloc, which
/// e2freefrag 1.47 misreads (its histogram does not add up to the free blocks): there the numbers are the
/// right ones, and --like-e2freefrag gives those of e2freefrag.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  hectare freefrag disk.img")]
pub(crate) struct Arguments {
    /// Count completely free chunks of this many KiB, too (a power of two, at least a block)
    #[arg(short, long, value_name = "KIB")]
    chunk: Option<u64>,
    /// On bigalloc volumes, print what e2freefrag 1.47 prints
    #[arg(long)]
    like_e2freefrag: bool,
    /// Print JSON; sizes in bytes
    #[arg(long)]
    json: bool,
    /// The image or block device
    image: PathBuf,
    #[command(flatten)]
    looking: Looking,
}

#[derive(Serialize)]
struct Json {
    image: JsonName,
    block_size: u32,
    blocks: u64,
    free_blocks: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunks: Option<Chunks>,
    shortest: u64,
    longest: u64,
    average: u64,
    extents: u64,
    histogram: Vec<Bar>,
}

#[derive(Serialize, Clone, Copy)]
struct Chunks {
    size: u64,
    total: u64,
    free: u64,
}

#[derive(Serialize)]
struct Bar {
    from: u64,
    /// The first size beyond the range; none in the last.
    to: Option<u64>,
    extents: u64,
    blocks: u64,
}

/// The whole report.
struct Report<'a> {
    geometry: &'a Geometry,
    free_blocks: u64,
    space: FreeSpace,
    chunks: Option<Chunks>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let image = Image::read(&arguments.image, &arguments.looking)?;
    let geometry = image.volume().superblock().geometry();
    let block = geometry.block_size.bytes().get();
    let chunk = match arguments.chunk.map(|kib| kib.saturating_mul(1024)) {
        Some(size) if !size.is_power_of_two() || size < block => {
            return Err(crate::failure::Failure::Usage(format!(
                "a chunk is a power of two KiB, and at least a block of {block} bytes"
            )));
        }
        chunk => chunk,
    };
    let reading = if arguments.like_e2freefrag { Reading::LikeE2freefrag } else { Reading::True };
    let left_out = LeftOut::default();
    let space = FreeSpace::of(&image, chunk.map(|size| size / block), reading, &left_out);
    let chunks = chunk.map(|size| Chunks {
        size,
        // e2freefrag counts one more than fit, for the part at the end.
        total: geometry.blocks_count.get().saturating_add(size / block) / (size / block),
        free: space.free_chunks,
    });
    let free_blocks = image.volume().superblock().free_blocks().get();
    let report = Report { geometry, free_blocks, space, chunks };
    if arguments.json {
        Output::report().json(&report.json(&arguments.image))?;
    } else {
        report.print(&arguments.image)?;
    }
    left_out.outcome()
}

impl Report<'_> {
    fn json(&self, image: &std::path::Path) -> Json {
        let block = self.geometry.block_size.bytes().get();
        let classes = self.space.classes();
        let bars = classes.iter().zip(0u32..).filter(|(class, _)| class.extents > 0);
        let bar = |(class, shift): (&crate::free_extents::Class, u32)| Bar {
            from: block << shift,
            to: (!is_last(hectare_units::usize_of(shift))).then_some(block << (shift + 1)),
            extents: class.extents,
            blocks: class.blocks,
        };
        Json {
            image: JsonName(image.as_os_str().as_bytes().to_vec()),
            block_size: self.geometry.block_size.get(),
            blocks: self.geometry.blocks_count.get(),
            free_blocks: self.free_blocks,
            chunks: self.chunks,
            shortest: self.space.shortest() * block,
            longest: self.space.longest() * block,
            average: self.space.average() * block,
            extents: self.space.extents(),
            histogram: bars.map(bar).collect(),
        }
    }

    fn print(&self, image: &std::path::Path) -> Outcome {
        let mut out = Output::report();
        let (blocks, block) = (self.geometry.blocks_count.get(), self.geometry.block_size.bytes().get());
        let kib = |blocks: u64| blocks * block / 1024;
        write!(out, "Device: ")?;
        out.name(image.as_os_str().as_bytes())?;
        writeln!(out, "\nBlocksize: {block} bytes\nTotal blocks: {blocks}")?;
        writeln!(out, "Free blocks: {} ({:.1}%)\n", self.free_blocks, percent(self.free_blocks, blocks))?;
        if let Some(chunks) = self.chunks {
            writeln!(out, "Chunksize: {} bytes ({} blocks)", chunks.size, chunks.size / block)?;
            writeln!(out, "Total chunks: {}", chunks.total)?;
            writeln!(out, "Free chunks: {} ({:.1}%)\n", chunks.free, percent(chunks.free, chunks.total))?;
        }
        writeln!(out, "Min. free extent: {} KB ", kib(self.space.shortest()))?;
        writeln!(out, "Max. free extent: {} KB", kib(self.space.longest()))?;
        writeln!(out, "Avg. free extent: {} KB", kib(self.space.average()))?;
        writeln!(out, "Num. free extent: {}", self.space.extents())?;
        writeln!(out, "\nHISTOGRAM OF FREE EXTENT SIZES:")?;
        writeln!(out, "Extent Size Range :  Free extents   Free Blocks  Percent")?;
        for (index, class) in self.space.classes().iter().enumerate().filter(|(_, class)| class.extents > 0) {
            let from = size_text(block << index);
            let to = if is_last(index) { "max ".to_owned() } else { end_text(block << index) };
            let percent = percent(class.blocks, self.free_blocks);
            writeln!(
                out,
                "{from}...{to:>7}  :  {:>12}  {:>12}  {percent:>6.2}%",
                class.extents, class.blocks
            )?;
        }
        out.finish()
    }
}

/// A power of two from 1 KiB on: at most 512 of a unit.
fn size_text(bytes: u64) -> String {
    let unit = bytes.ilog2() / 10;
    format!("{:>5}{}", bytes >> (10 * unit), letter(unit))
}

/// Twice the size, in the size's own unit.
fn end_text(bytes: u64) -> String {
    let unit = bytes.ilog2() / 10;
    format!("{:>5}{}-", (bytes >> (10 * unit)) * 2, letter(unit))
}

fn letter(unit: u32) -> char {
    match unit {
        0 => 'B',
        1 => 'K',
        2 => 'M',
        3 => 'G',
        4 => 'T',
        _ => 'P',
    }
}

#[allow(clippy::cast_precision_loss)] // a share needs no more than 52 bits
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_as_e2freefrag_has_them() {
        assert_eq!(size_text(64 << 10), "   64K");
        assert_eq!(end_text(512 << 10), " 1024K-");
        assert_eq!(size_text(1 << 20), "    1M");
        assert_eq!(end_text(4 << 40), "    8T-");
    }
}
