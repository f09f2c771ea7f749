//! `hectare tree`.

use crate::entry::{JsonEntry, arrow};
use crate::failure::{LeftOut, Outcome};
use crate::image::{Image, read_each};
use crate::image_path::ImagePath;
use crate::name::{JsonName, join};
use crate::output::{JsonArray, Output};
use crate::walk::Entered;
use crate::write_args::Looking;
use hectare_engine::{Kind, Result};
use hectare_export::{Entry, MET_TWICE, Names, TOO_MANY, is_room_for};
use hectare_units::InodeNr;
use serde::Serialize;

/// Show a directory inside an image as a tree
///
/// With --json: an array of entries in the same order, each with its depth (1 below the directory) and path.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare tree disk.img:\n  hectare tree -L 2 disk.img:/usr")]
pub(crate) struct Arguments {
    /// Number of levels to show
    #[arg(short = 'L', value_name = "LEVELS", value_parser = clap::value_parser!(u32).range(1..))]
    levels: Option<u32>,
    /// Show names that begin with a dot, too
    #[arg(short)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The directories: IMAGE:PATH
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = ImagePath::parser())]
    places: Vec<ImagePath>,
    #[command(flatten)]
    looking: Looking,
}

#[derive(Serialize)]
struct Leaf {
    depth: usize,
    #[serde(flatten)]
    entry: JsonEntry,
}

/// A directory being shown: its remaining entries.
struct Level {
    path: Vec<u8>,
    rest: Names,
}

struct Grower<'a> {
    arguments: &'a Arguments,
    out: Output,
    left_out: LeftOut,
    leaves: JsonArray,
    directories: u64,
    files: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let mut grower = Grower {
        arguments,
        out: Output::listing(),
        left_out: LeftOut::default(),
        leaves: JsonArray::default(),
        directories: 0,
        files: 0,
    };
    let shown = read_each(&arguments.places, &arguments.looking, |image, place| grower.place(image, place));
    if arguments.json {
        grower.leaves.finish(grower.out, shown.is_err())?;
        shown?;
    } else {
        shown?;
        let (directories, files) = (grower.directories, grower.files);
        writeln!(grower.out, "\n{directories} directories, {files} files")?;
        grower.out.finish()?;
    }
    grower.left_out.outcome()
}

impl Grower<'_> {
    fn place(&mut self, image: &Image, place: &ImagePath) -> Outcome {
        let root = image.resolve(&place.path, true)?;
        if !self.arguments.json {
            writeln!(self.out, "{}", place.show())?;
        }
        let rest = self.entries(image, root).map_err(|error| image.fail(&place.path, &error))?;
        let mut entered = Entered::default();
        entered.enter(root);
        let mut levels = vec![Level { path: place.path.clone(), rest }];
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.rest.pop_front() else {
                levels.pop();
                continue;
            };
            let (path, name) = (join(&level.path, entry.name), entry.name.to_vec());
            let entry = Entry { name: &name, ..entry };
            self.show(image, &path, entry, &levels)?;
            if self.arguments.levels.is_none_or(|most| levels.len() < hectare_units::usize_of(most)) {
                let below = self.below(image, &path, entry, &mut entered, &levels);
                levels.extend(below.map(|rest| Level { path, rest }));
            }
        }
        Ok(())
    }

    fn entries(&self, image: &Image, nr: InodeNr) -> Result<Names> {
        Names::sorted(image.volume(), nr, |entry| match entry.name {
            b"." | b".." => false,
            name => self.arguments.all || !name.starts_with(b"."),
        })
    }

    /// The content of an entry, if it is a directory that can be entered.
    fn below(
        &self,
        image: &Image,
        path: &[u8],
        entry: Entry<'_>,
        entered: &mut Entered,
        levels: &[Level],
    ) -> Option<Names> {
        let reason = match is_directory(image, entry) {
            Ok(false) => return None,
            Ok(true) if !entered.enter(entry.inode) => MET_TWICE.to_owned(),
            Ok(true) => match self.entries(image, entry.inode) {
                Ok(names) if is_room(image, &names, levels) => return Some(names),
                Ok(_) => TOO_MANY.to_owned(),
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        self.left_out.tell(image.show(path), reason);
        None
    }

    fn show(&mut self, image: &Image, path: &[u8], entry: Entry<'_>, levels: &[Level]) -> Outcome {
        let meta = image.volume().stat(entry.inode);
        let kind = meta.as_ref().map(|meta| meta.kind).ok().or(entry.kind);
        if kind == Some(Kind::Directory) {
            self.directories += 1;
        } else {
            self.files += 1;
        }
        let target =
            (kind == Some(Kind::Symlink)).then(|| image.volume().read_link_at(entry.inode).ok()).flatten();
        if self.arguments.json {
            match meta {
                Ok(meta) => {
                    let mut json = JsonEntry::new(entry.name, &meta, target);
                    json.path = Some(JsonName(join(b"/", path.strip_prefix(b"/").unwrap_or(path))));
                    self.leaves.push(&mut self.out, &Leaf { depth: levels.len(), entry: json })?;
                }
                Err(error) => self.left_out.tell(image.show(path), error),
            }
            return Ok(());
        }
        let Some((innermost, outer)) = levels.split_last() else { return Ok(()) };
        for level in outer {
            let more = level.rest.left() > 0;
            self.out.bytes(if more { "\u{2502}   " } else { "    " }.as_bytes())?;
        }
        let more = innermost.rest.left() > 0;
        let branch = if more { "\u{251c}\u{2500}\u{2500} " } else { "\u{2514}\u{2500}\u{2500} " };
        self.out.bytes(branch.as_bytes())?;
        self.out.name(entry.name)?;
        let arrow = arrow(target.as_deref());
        writeln!(self.out, "{arrow}")
    }
}

/// Whether an entry is a directory; reads the inode if the directory entry has no type.
fn is_directory(image: &Image, entry: Entry<'_>) -> Result<bool> {
    match entry.kind {
        Some(kind) => Ok(kind == Kind::Directory),
        None => Ok(image.volume().stat(entry.inode)?.is_dir()),
    }
}

/// Whether the names of a directory and the remaining ones of its ancestors, all of which are held at once,
/// can be there.
fn is_room(image: &Image, names: &Names, levels: &[Level]) -> bool {
    is_room_for(image.volume(), names.left() + levels.iter().map(|level| level.rest.left()).sum::<usize>())
}
