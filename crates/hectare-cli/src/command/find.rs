//! `hectare find`.

mod dashes;

pub(crate) use dashes::spelt;

use crate::clock;
use crate::entry::JsonEntry;
use crate::failure::{LeftOut, Outcome};
use crate::image::{Image, read_each};
use crate::image_path::{ImagePath, split};
use crate::name::{JsonName, absolute};
use crate::output::{JsonArray, Output};
use crate::size_arg::parse_size;
use crate::walk::{self, Met, Visitor};
use crate::write_args::Looking;
use globset::{Candidate, GlobBuilder, GlobMatcher};
use hectare_engine::{Kind, Timestamp};
use hectare_units::{BlockNr, InodeNr};

/// Find files inside an image
///
/// Prints the paths of what meets all conditions; of several values of one option any will do. With --inode
/// and --block it answers which names an inode has, and whose a block is. -name, -iname, -type, -empty, -uid, -gid,
/// -inum, -mindepth, -maxdepth and -print0 may be typed as for find(1).
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare find disk.img:/etc --name '*.conf' --newer 2026-01-01\n  \
    hectare find disk.img: --type f --larger 100M\n  hectare find disk.img: --block 70123\n  \
    hectare find disk.img: --inode 12 --inode 13")]
pub(crate) struct Arguments {
    /// The name matches a pattern (*, ?, [a-z], {a,b})
    #[arg(long, value_name = "GLOB", value_parser = name_pattern)]
    name: Vec<GlobMatcher>,
    /// Likewise, without regard to case
    #[arg(long, value_name = "GLOB", value_parser = caseless_pattern)]
    iname: Vec<GlobMatcher>,
    /// The path from the root (/etc/fstab) matches a pattern, in which * matches / as well
    #[arg(long, value_name = "GLOB", value_parser = name_pattern)]
    path: Vec<GlobMatcher>,
    /// The kind: f, d, l, c, b, p or s
    #[arg(long = "type", value_name = "KIND", value_parser = kind, value_delimiter = ',')]
    kinds: Vec<Kind>,
    /// Files longer than this (suffixes: k, M, G...)
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    larger: Option<u64>,
    /// Files shorter than this
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    smaller: Option<u64>,
    /// Empty files, and directories without entries
    #[arg(long)]
    empty: bool,
    /// Content changed after this time (2026-11-26, 2026-11-26T08:00:00Z, @SECONDS)
    #[arg(long, value_name = "TIME", value_parser = clock::parse)]
    newer: Option<Timestamp>,
    /// Content changed before this time
    #[arg(long, value_name = "TIME", value_parser = clock::parse)]
    older: Option<Timestamp>,
    /// All of these permission bits are set (octal)
    #[arg(long, value_name = "BITS", value_parser = octal)]
    perm: Option<u16>,
    /// The owner's number
    #[arg(long, value_name = "N")]
    uid: Vec<u32>,
    /// The group's number
    #[arg(long, value_name = "N")]
    gid: Vec<u32>,
    /// The inode's number
    #[arg(long, value_name = "N")]
    inode: Vec<u32>,
    /// It owns this block of the volume: content, map or attributes
    #[arg(long, value_name = "N")]
    block: Vec<u64>,
    /// More than one name
    #[arg(long)]
    linked: bool,
    /// At least this many levels below what is named
    #[arg(long, value_name = "LEVELS", default_value_t = 0)]
    min_depth: usize,
    /// At most this many levels below what is named
    #[arg(long, value_name = "LEVELS")]
    max_depth: Option<usize>,
    /// End each path with a NUL byte, and quote none
    #[arg(short = '0', long, conflicts_with = "json")]
    print0: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Where to begin: IMAGE:PATH
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = ImagePath::parser())]
    places: Vec<ImagePath>,
    #[command(flatten)]
    looking: Looking,
}

fn name_pattern(text: &str) -> Result<GlobMatcher, String> {
    pattern(text, false)
}

fn caseless_pattern(text: &str) -> Result<GlobMatcher, String> {
    pattern(text, true)
}

fn pattern(text: &str, caseless: bool) -> Result<GlobMatcher, String> {
    let glob = GlobBuilder::new(text).case_insensitive(caseless).backslash_escape(true).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|error| error.kind().to_string())
}

fn kind(letter: &str) -> Result<Kind, String> {
    Ok(match letter {
        "f" => Kind::File,
        "d" => Kind::Directory,
        "l" => Kind::Symlink,
        "c" => Kind::CharDevice,
        "b" => Kind::BlockDevice,
        "p" => Kind::Fifo,
        "s" => Kind::Socket,
        _ => return Err("a kind is one of f, d, l, c, b, p and s".to_owned()),
    })
}

fn octal(text: &str) -> Result<u16, String> {
    u16::from_str_radix(text, 8)
        .ok()
        .filter(|bits| *bits <= 0o7777)
        .ok_or_else(|| "not an octal number up to 7777".to_owned())
}

struct Finder<'a> {
    arguments: &'a Arguments,
    image: &'a Image,
    left_out: &'a LeftOut,
    out: &'a mut Output,
    json: &'a mut JsonArray,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let (left_out, mut out, mut json) = (LeftOut::default(), Output::listing(), JsonArray::default());
    let found = read_each(&arguments.places, &arguments.looking, |image, place| {
        let root = image.resolve(&place.path, false)?;
        let (left_out, out, json) = (&left_out, &mut out, &mut json);
        let mut finder = Finder { arguments, image, left_out, out, json };
        walk::tree(image, root, &place.path, left_out, &mut finder)
    });
    if arguments.json {
        json.finish(out, found.is_err())?;
    } else {
        out.finish()?;
    }
    found.and_then(|()| left_out.outcome())
}

/// Whether a condition with these values is met; without any it always is.
fn any<T>(values: &[T], is_met: impl Fn(&T) -> bool) -> bool {
    values.is_empty() || values.iter().any(is_met)
}

impl Finder<'_> {
    fn is_wanted(&self, met: &Met<'_>, full: &[u8]) -> hectare_engine::Result<bool> {
        let (wanted, meta) = (self.arguments, met.meta);
        let (name, path) = (Candidate::from_bytes(split(full).1), Candidate::from_bytes(full));
        let is_file = meta.kind == Kind::File;
        Ok(met.depth >= wanted.min_depth
            && any(&wanted.name, |glob| glob.is_match_candidate(&name))
            && any(&wanted.iname, |glob| glob.is_match_candidate(&name))
            && any(&wanted.path, |glob| glob.is_match_candidate(&path))
            && any(&wanted.kinds, |kind| *kind == meta.kind)
            && wanted.larger.is_none_or(|size| is_file && meta.size > size)
            && wanted.smaller.is_none_or(|size| is_file && meta.size < size)
            && wanted.newer.is_none_or(|time| meta.mtime > time)
            && wanted.older.is_none_or(|time| meta.mtime < time)
            && wanted.perm.is_none_or(|bits| meta.permissions & bits == bits)
            && any(&wanted.uid, |id| *id == meta.uid)
            && any(&wanted.gid, |id| *id == meta.gid)
            && any(&wanted.inode, |nr| InodeNr::new(*nr) == met.nr)
            && (!wanted.linked || !meta.is_dir() && meta.links > 1)
            && (!wanted.empty || self.is_empty(met)?)
            && self.owns_wanted_block(met.nr)?)
    }

    fn is_empty(&self, met: &Met<'_>) -> hectare_engine::Result<bool> {
        match met.meta.kind {
            Kind::File => Ok(met.meta.size == 0),
            Kind::Directory => Ok(walk::Entries::of(met.nr).next(self.image.volume()).transpose()?.is_none()),
            _ => Ok(false),
        }
    }

    fn owns_wanted_block(&self, nr: InodeNr) -> hectare_engine::Result<bool> {
        if self.arguments.block.is_empty() {
            return Ok(true);
        }
        let owned = self.image.volume().inode_blocks(nr)?;
        Ok(self.arguments.block.iter().copied().map(BlockNr::new).any(|block| {
            let holds = |extent: &hectare_engine::Extent| {
                block.get().checked_sub(extent.physical.get()).is_some_and(|at| at < extent.len.into())
            };
            owned.attribute_block == Some(block)
                || owned.map_nodes.contains(&block)
                || owned.extents.iter().any(holds)
        }))
    }

    fn show(&mut self, met: &Met<'_>, full: Vec<u8>) -> Outcome {
        if self.arguments.json {
            let target = met.meta.is_symlink().then(|| self.image.volume().read_link_at(met.nr)).transpose();
            let target = target.map_err(|error| self.image.fail(met.path, &error))?;
            let mut entry = JsonEntry::new(split(&full).1, met.meta, target);
            entry.path = Some(JsonName(full));
            return self.json.push(self.out, &entry);
        }
        if self.arguments.print0 {
            self.out.bytes(&full)?;
            return self.out.bytes(&[0]);
        }
        self.out.name(&full)?;
        self.out.bytes(b"\n")
    }
}

impl Visitor for Finder<'_> {
    fn visit(&mut self, met: &Met<'_>) -> Outcome<bool> {
        let full = absolute(met.path);
        match self.is_wanted(met, &full) {
            Ok(true) => self.show(met, full)?,
            Ok(false) => {}
            Err(error) => self.left_out.tell(self.image.show(met.path), error),
        }
        Ok(self.arguments.max_depth.is_none_or(|most| met.depth < most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_of_bytes() {
        let matches =
            |glob, name: &[u8]| name_pattern(glob).unwrap().is_match_candidate(&Candidate::from_bytes(name));
        assert!(matches("*.conf", b"a.conf") && !matches("*.conf", b"a.CONF"));
        assert!(caseless_pattern("*.conf").unwrap().is_match_candidate(&Candidate::from_bytes(b"a.CONF")));
        assert!(matches("?", b"\xff") && matches("/etc/*", b"/etc/a/b"));
        assert!(name_pattern("[").is_err());
    }
}
