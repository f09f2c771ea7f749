//! `hectare ls`.

use crate::clock;
use crate::entry::{JsonEntry, arrow, mode_text};
use crate::failure::{LeftOut, Outcome};
use crate::image::{Image, read_each};
use crate::image_path::{ImagePath, split};
use crate::name::{JsonName, absolute, join};
use crate::output::{JsonArray, Output};
use crate::walk::Entered;
use crate::write_args::Looking;
use hectare_engine::{Error, Kind, Metadata, Result};
use hectare_export::{MET_TWICE, Names};
use hectare_units::InodeNr;

/// List directories and files inside an image
///
/// Names are sorted by their bytes, one a line. Owners are shown as numbers: the image's users are not this
/// system's. With --json: an array of entries, each with path, kind, mode, owners, size, times (RFC 3339,
/// UTC); a name that is not UTF-8 is {"hex": "..."}.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare ls disk.img:\n  hectare ls -l disk.img:/etc disk.img:/usr\n  \
    hectare ls -R --json disk.img:/srv")]
pub(crate) struct Arguments {
    /// Show mode, links, owner, group, size and modification time
    #[arg(short)]
    long: bool,
    /// Show names that begin with a dot, too
    #[arg(short)]
    all: bool,
    /// List subdirectories recursively
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Show inode numbers
    #[arg(short)]
    inode: bool,
    /// Show the directory itself instead of its content
    #[arg(short)]
    directory: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The files or directories: IMAGE:PATH
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = ImagePath::parser())]
    places: Vec<ImagePath>,
    #[command(flatten)]
    looking: Looking,
}

/// Lines whose columns are as wide as the widest of them needs: a longer list starts a new block, so that it
/// need not be kept in memory.
const ALIGNED: usize = 10_000;

/// A line of the list.
struct Row {
    name: Vec<u8>,
    inode: InodeNr,
    meta: Option<Metadata>,
    target: Option<Vec<u8>>,
}

struct Lister<'a> {
    arguments: &'a Arguments,
    out: Output,
    left_out: LeftOut,
    json: JsonArray,
    blocks: usize,
    headings: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let mut lister = Lister {
        arguments,
        out: Output::listing(),
        left_out: LeftOut::default(),
        json: JsonArray::default(),
        blocks: 0,
        headings: arguments.recursive || arguments.places.len() > 1,
    };
    let listed = read_each(&arguments.places, &arguments.looking, |image, place| lister.place(image, place));
    if arguments.json {
        lister.json.finish(lister.out, listed.is_err())?;
    } else {
        lister.out.finish()?;
    }
    listed.and_then(|()| lister.left_out.outcome())
}

impl Lister<'_> {
    fn place(&mut self, image: &Image, place: &ImagePath) -> Outcome {
        let nr = match image.volume().resolve(&place.path, !self.arguments.long) {
            // A dangling link is listed itself.
            Err(Error::NotFound) => image.resolve(&place.path, false)?,
            found => found.map_err(|error| image.fail(&place.path, &error))?,
        };
        let meta = image.volume().stat(nr).map_err(|error| image.fail(&place.path, &error))?;
        if meta.is_dir() && !self.arguments.directory {
            return self.directories(image, nr, &place.path);
        }
        let row = self.row(image, &place.path, place.path.clone(), nr);
        self.rows(split(&place.path).0, vec![row])
    }

    fn directories(&mut self, image: &Image, root: InodeNr, path: &[u8]) -> Outcome {
        let mut entered = Entered::default();
        entered.enter(root);
        let mut stack = vec![(root, path.to_vec())];
        while let Some((nr, path)) = stack.pop() {
            let names = match self.names(image, nr) {
                Ok(names) => names,
                Err(error) => {
                    self.left_out.tell(image.show(&path), error);
                    continue;
                }
            };
            if self.headings && !self.arguments.json {
                let blank = if self.blocks > 0 { "\n" } else { "" };
                writeln!(self.out, "{blank}{}:", image.show(&path))?;
                self.blocks += 1;
            }
            let mut below = self.directory(image, &path, names, &mut entered)?;
            below.reverse();
            stack.append(&mut below);
        }
        Ok(())
    }

    /// The names to show of a directory.
    fn names(&self, image: &Image, nr: InodeNr) -> Result<Names> {
        let (all, dots) = (self.arguments.all, self.arguments.all && !self.arguments.json);
        Names::sorted(image.volume(), nr, |entry| match entry.name {
            b"." | b".." => dots,
            name => all || !name.starts_with(b"."),
        })
    }

    /// Shows a directory; returns the directories in it that are to be listed next.
    fn directory(
        &mut self,
        image: &Image,
        path: &[u8],
        mut names: Names,
        entered: &mut Entered,
    ) -> Outcome<Vec<(InodeNr, Vec<u8>)>> {
        let mut below = Vec::new();
        while names.left() > 0 {
            let mut rows = Vec::new();
            while rows.len() < ALIGNED
                && let Some(entry) = names.pop_front()
            {
                let (nr, full) = (entry.inode, join(path, entry.name));
                let row = self.row(image, &full, entry.name.to_vec(), nr);
                let is_dir = row.meta.as_ref().is_some_and(Metadata::is_dir);
                if self.arguments.recursive && is_dir && entry.name != b"." && entry.name != b".." {
                    if entered.enter(nr) {
                        below.push((nr, full));
                    } else {
                        self.left_out.tell(image.show(&full), MET_TWICE);
                    }
                }
                rows.push(row);
            }
            self.rows(path, rows)?;
        }
        Ok(below)
    }

    /// A row with the requested columns; a corrupt inode leaves its fields empty and is reported.
    fn row(&self, image: &Image, path: &[u8], name: Vec<u8>, inode: InodeNr) -> Row {
        let wanted = self.arguments.long || self.arguments.json || self.arguments.recursive;
        let looked = || -> Result<(Metadata, Option<Vec<u8>>)> {
            let meta = image.volume().stat(inode)?;
            let target = meta.is_symlink().then(|| image.volume().read_link_at(inode)).transpose()?;
            Ok((meta, target))
        };
        let (meta, target) = match wanted.then(looked) {
            Some(Ok((meta, target))) => (Some(meta), target),
            Some(Err(error)) => {
                self.left_out.tell(image.show(path), error);
                (image.volume().stat(inode).ok(), None)
            }
            None => (None, None),
        };
        Row { name, inode, meta, target }
    }

    fn rows(&mut self, path: &[u8], rows: Vec<Row>) -> Outcome {
        if self.arguments.json {
            for row in rows {
                let Some(meta) = &row.meta else { continue };
                let mut entry = JsonEntry::new(split(&row.name).1, meta, row.target);
                entry.path = Some(JsonName(absolute(&join(path, split(&row.name).1))));
                self.json.push(&mut self.out, &entry)?;
            }
            return Ok(());
        }
        let widths = Widths::of(&rows);
        for row in &rows {
            if self.arguments.inode {
                write!(self.out, "{:>1$} ", row.inode.get(), widths.inode)?;
            }
            if self.arguments.long {
                let line = widths.line(row);
                write!(self.out, "{line} ")?;
            }
            self.out.name(if row.name.is_empty() { b"/" } else { &row.name })?;
            if self.arguments.long {
                let arrow = arrow(row.target.as_deref());
                write!(self.out, "{arrow}")?;
            }
            self.out.bytes(b"\n")?;
        }
        Ok(())
    }
}

/// How wide each column must be.
#[derive(Default)]
struct Widths {
    inode: usize,
    links: usize,
    uid: usize,
    gid: usize,
    size: usize,
}

impl Widths {
    fn of(rows: &[Row]) -> Self {
        let mut widths = Self::default();
        for row in rows {
            widths.inode = widths.inode.max(row.inode.to_string().len());
            let Some(meta) = &row.meta else { continue };
            widths.links = widths.links.max(meta.links.to_string().len());
            widths.uid = widths.uid.max(meta.uid.to_string().len());
            widths.gid = widths.gid.max(meta.gid.to_string().len());
            widths.size = widths.size.max(size_text(meta).len());
        }
        widths
    }

    fn line(&self, row: &Row) -> String {
        let Some(meta) = &row.meta else {
            let (l, u, g, s) = (self.links, self.uid, self.gid, self.size);
            return format!("?????????? {:>l$} {:>u$} {:>g$} {:>s$} {:16}", "?", "?", "?", "?", "?");
        };
        let mode = mode_text(meta.kind, meta.permissions);
        let (links, uid, gid, size) = (meta.links, meta.uid, meta.gid, size_text(meta));
        let (l, u, g, s) = (self.links, self.uid, self.gid, self.size);
        format!("{mode} {links:>l$} {uid:>u$} {gid:>g$} {size:>s$} {}", clock::short(meta.mtime))
    }
}

fn size_text(meta: &Metadata) -> String {
    match meta.kind {
        Kind::CharDevice | Kind::BlockDevice => format!("{}, {}", meta.device.major, meta.device.minor),
        _ => meta.size.to_string(),
    }
}
