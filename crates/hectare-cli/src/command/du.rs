//! `hectare du`.

use crate::failure::{LeftOut, Outcome};
use crate::image::read_each;
use crate::image_path::ImagePath;
use crate::name::{JsonName, absolute};
use crate::output::{JsonArray, Output};
use crate::walk::{self, Met, Visitor};
use crate::write_args::Looking;
use hectare_engine::Metadata;
use hectare_units::InodeNr;
use indicatif::HumanBytes;
use serde::Serialize;
use std::collections::HashSet;

/// Show how much space directories take inside an image
///
/// A directory takes what it and everything below it have in blocks, metadata included. A file with several
/// names counts once, where it is met first.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
#[command(
    after_help = "Examples:\n  hectare du -h -d 1 disk.img:\n  hectare du -s disk.img:/usr disk.img:/var"
)]
pub(crate) struct Arguments {
    /// Show files, too
    #[arg(short, long)]
    all: bool,
    /// Show only what is at most this many levels below the directories that are named
    #[arg(short = 'd', long, value_name = "LEVELS")]
    max_depth: Option<usize>,
    /// Show only what is named
    #[arg(short, long, conflicts_with_all = ["max_depth", "all"])]
    summarize: bool,
    /// Sum up the length of files instead of their blocks
    #[arg(short = 'b', long = "bytes")]
    length: bool,
    /// Show sizes with units (powers of 1024)
    #[arg(short = 'h', long = "human-readable")]
    human: bool,
    /// Show the sum of everything that is named last
    #[arg(short = 'c', long)]
    total: bool,
    /// Print JSON, sizes in bytes
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The files or directories: IMAGE:PATH
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = ImagePath::parser())]
    places: Vec<ImagePath>,
    #[command(flatten)]
    looking: Looking,
}

#[derive(Serialize)]
struct Line {
    path: JsonName,
    bytes: u64,
}

/// Adds up, and prints on the way.
struct Summer<'a> {
    arguments: &'a Arguments,
    out: Output,
    json: JsonArray,
    /// Files with several names, in the image of now, that were counted.
    counted: HashSet<InodeNr>,
    /// The sums of the directories that the walk is in; before them that of all that was named.
    sums: Vec<u64>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let left_out = LeftOut::default();
    let mut summer = Summer {
        arguments,
        out: Output::listing(),
        json: JsonArray::default(),
        counted: HashSet::new(),
        sums: vec![0],
    };
    let mut last = None;
    let summed = read_each(&arguments.places, &arguments.looking, |image, place| {
        if last.replace(image.path().to_owned()).is_none_or(|last| last != image.path()) {
            summer.counted.clear();
        }
        let root = image.resolve(&place.path, false)?;
        walk::tree(image, root, &place.path, &left_out, &mut summer)
    });
    if arguments.total && summed.is_ok() {
        summer.line(b"total", summer.sums[0])?;
    }
    if arguments.json {
        summer.json.finish(summer.out, summed.is_err())?;
    } else {
        summer.out.finish()?;
    }
    summed.and_then(|()| left_out.outcome())
}

impl Summer<'_> {
    fn size(&self, meta: &Metadata) -> u64 {
        if self.arguments.length { meta.size } else { meta.sectors.saturating_mul(512) }
    }

    fn is_shown(&self, depth: usize) -> bool {
        let most = if self.arguments.summarize { Some(0) } else { self.arguments.max_depth };
        most.is_none_or(|most| depth <= most)
    }

    fn add(&mut self, bytes: u64) {
        let sum = self.sums.last_mut().expect("the sum of all stays");
        *sum = sum.saturating_add(bytes);
    }

    fn line(&mut self, path: &[u8], bytes: u64) -> Outcome {
        if self.arguments.json {
            return self.json.push(&mut self.out, &Line { path: JsonName(path.to_vec()), bytes });
        }
        match (self.arguments.human, self.arguments.length) {
            (true, _) => write!(self.out, "{}", HumanBytes(bytes))?,
            (false, true) => write!(self.out, "{bytes}")?,
            (false, false) => write!(self.out, "{}", bytes.div_ceil(1024))?,
        }
        self.out.bytes(b"\t")?;
        self.out.name(path)?;
        self.out.bytes(b"\n")
    }
}

impl Visitor for Summer<'_> {
    fn visit(&mut self, met: &Met<'_>) -> Outcome<bool> {
        let size = self.size(met.meta);
        if met.meta.is_dir() {
            self.sums.push(size);
            return Ok(true);
        }
        if met.meta.links > 1 && !self.counted.insert(met.nr) {
            return Ok(false);
        }
        self.add(size);
        if met.depth == 0 || self.arguments.all && self.is_shown(met.depth) {
            self.line(&absolute(met.path), size)?;
        }
        Ok(false)
    }

    fn leave(&mut self, path: &[u8], depth: usize) -> Outcome {
        let sum = self.sums.pop().expect("a directory that was entered has a sum");
        self.add(sum);
        if self.is_shown(depth) { self.line(&absolute(path), sum) } else { Ok(()) }
    }
}
