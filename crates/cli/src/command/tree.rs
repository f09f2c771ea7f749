//! `hectare tree`.

use crate::entry::{JsonEntry, arrow};
use crate::failure::{LeftOut, Outcome};
use crate::image::{Image, read_each};
use crate::name::{JsonName, join};
use crate::output::Output;
use crate::place::Place;
use crate::walk::{Entered, MET_TWICE, is_directory, sorted};
use crate::writing::Looking;
use hectare_engine::{DirEntry, Kind};
use hectare_units::InodeNr;
use serde::Serialize;
use std::vec::IntoIter;

/// Show a directory inside an image as a tree
///
/// With --json: an array of entries in the same order, each with its depth (1 below the directory) and path.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare tree disk.img:\n  hectare tree -L 2 disk.img:/usr")]
pub(crate) struct Arguments {
    /// How many levels to show
    #[arg(short = 'L', value_name = "LEVELS", value_parser = clap::value_parser!(u32).range(1..))]
    levels: Option<u32>,
    /// Show names that begin with a dot, too
    #[arg(short)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Where to start: IMAGE:PATH
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = Place::parser())]
    places: Vec<Place>,
    #[command(flatten)]
    looking: Looking,
}

#[derive(Serialize)]
struct Leaf {
    depth: usize,
    #[serde(flatten)]
    entry: JsonEntry,
}

/// A directory being shown: what is left of its entries.
struct Level {
    path: Vec<u8>,
    rest: IntoIter<DirEntry>,
}

struct Grower<'a> {
    arguments: &'a Arguments,
    out: Output,
    left_out: LeftOut,
    leaves: Vec<Leaf>,
    directories: u64,
    files: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let mut grower = Grower {
        arguments,
        out: Output::new(),
        left_out: LeftOut::default(),
        leaves: Vec::new(),
        directories: 0,
        files: 0,
    };
    read_each(&arguments.places, &arguments.looking, |image, place| grower.place(image, place))?;
    if arguments.json {
        grower.out.json(&grower.leaves)?;
    } else {
        let (directories, files) = (grower.directories, grower.files);
        writeln!(grower.out, "\n{directories} directories, {files} files")?;
        grower.out.finish()?;
    }
    grower.left_out.outcome()
}

impl Grower<'_> {
    fn place(&mut self, image: &Image, place: &Place) -> Outcome {
        let root = image.resolve(&place.path, true)?;
        if !self.arguments.json {
            writeln!(self.out, "{}", place.show())?;
        }
        let entries = self.entries(image, root).map_err(|error| image.fail(&place.path, &error))?;
        let mut entered = Entered::default();
        entered.enter(root);
        let mut levels = vec![Level { path: place.path.clone(), rest: entries.into_iter() }];
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.rest.next() else {
                levels.pop();
                continue;
            };
            let path = join(&level.path, &entry.name);
            self.show(image, &path, &entry, &levels)?;
            if self.arguments.levels.is_none_or(|most| levels.len() < hectare_units::usize_of(most)) {
                let below = self.below(image, &path, &entry, &mut entered);
                levels.extend(below.map(|rest| Level { path, rest }));
            }
        }
        Ok(())
    }

    fn entries(&self, image: &Image, nr: InodeNr) -> hectare_engine::Result<Vec<DirEntry>> {
        let mut entries = sorted(image, nr)?;
        entries.retain(|entry| self.arguments.all || !entry.name.starts_with(b"."));
        Ok(entries)
    }

    /// What is below an entry, if it is a directory that can be entered.
    fn below(
        &self,
        image: &Image,
        path: &[u8],
        entry: &DirEntry,
        entered: &mut Entered,
    ) -> Option<IntoIter<DirEntry>> {
        match is_directory(image, entry) {
            Ok(false) => return None,
            Ok(true) if !entered.enter(entry.inode) => self.left_out.tell(image.show(path), MET_TWICE),
            Ok(true) => match self.entries(image, entry.inode) {
                Ok(entries) => return Some(entries.into_iter()),
                Err(error) => self.left_out.tell(image.show(path), error),
            },
            Err(error) => self.left_out.tell(image.show(path), error),
        }
        None
    }

    fn show(&mut self, image: &Image, path: &[u8], entry: &DirEntry, levels: &[Level]) -> Outcome {
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
                    let mut json = JsonEntry::new(&entry.name, &meta, target);
                    json.path = Some(JsonName(join(b"/", path.strip_prefix(b"/").unwrap_or(path))));
                    self.leaves.push(Leaf { depth: levels.len(), entry: json });
                }
                Err(error) => self.left_out.tell(image.show(path), error),
            }
            return Ok(());
        }
        let Some((innermost, outer)) = levels.split_last() else { return Ok(()) };
        for level in outer {
            let more = !level.rest.as_slice().is_empty();
            self.out.bytes(if more { "\u{2502}   " } else { "    " }.as_bytes())?;
        }
        let more = !innermost.rest.as_slice().is_empty();
        let branch = if more { "\u{251c}\u{2500}\u{2500} " } else { "\u{2514}\u{2500}\u{2500} " };
        self.out.bytes(branch.as_bytes())?;
        self.out.name(&entry.name)?;
        let arrow = arrow(target.as_deref());
        writeln!(self.out, "{arrow}")
    }
}
