//! `hectare cp`.

mod standard;

use crate::copy::host::{LocalOrigin, LocalTarget, Node, Rights};
use crate::copy::volume::Inside;
use crate::copy::{Goal, Made, Options, Origin, copy};
use crate::failure::{Failure, Outcome};
use crate::image::Image;
use crate::image_device::{Hold, whole_device};
use crate::image_path::{ImagePath, Operand, split};
use crate::name::shown;
use crate::os::{is_root, same_file};
use crate::output::reason;
use crate::partition_args::{Part, SourcePart};
use crate::progress::Progress;
use crate::reproducible;
use crate::write_args::{Journal, Looking, Tolerant, Writing};
use hectare_device::os::OsStrExt;
use hectare_engine::{Error, Kind, Timestamp};
use hectare_units::InodeNr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Copy files into, out of, or between images
///
/// At least one side is IMAGE:PATH. If the destination is a directory, sources are copied into it; of a
/// source that ends in `/.`, or that is the root of an image, the content is copied. Holes stay holes. A
/// local path with a colon can be written ./a:b. `-` is standard input, or output for one file of an image.
///
/// A symbolic link where a copy is to be is replaced: it is not followed. A file with several names is overwritten
/// for all of them.
///
/// A file or directory below a source that can't be read is reported and left out, and so are an attribute that
/// does not fit and a file where another source's copy is. A source that is not there ends the copy, and so does
/// a write error.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hectare cp disk.img:/etc/fstab .\n  hectare cp -a rootfs/. disk.img:/\n  \
    hectare cp -r disk.img:/srv other.img:/backup\n  pg_dump | hectare cp - disk.img:/srv/dump.sql"
)]
pub(crate) struct Arguments {
    /// Copy directories recursively; symbolic links, devices and pipes as such
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Keep modes, owners, times, attributes and ACLs; out of an image without set-ID bits and capabilities
    #[arg(short, long)]
    preserve: bool,
    /// Keep everything: -r -p, hard links, and if root copies out of an image its devices, set-ID bits and
    /// capabilities
    #[arg(short, long)]
    archive: bool,
    /// Create device nodes when copying out of an image, without -a too
    #[arg(long)]
    devices: bool,
    /// Verify what is read of files that fs-verity seals in images; copies are not sealed
    #[arg(long)]
    verify: bool,
    /// Number of threads that copy content (as many as the machine runs at once, if not given; one with
    /// SOURCE_DATE_EPOCH)
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// One or more sources, then the destination: a local path or IMAGE:PATH
    #[arg(required = true, num_args = 2.., value_name = "PATH", value_parser = Operand::parser())]
    operands: Vec<Operand>,
    #[command(flatten)]
    source_part: SourcePart,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    tolerant: Tolerant,
}

impl Arguments {
    /// The part of their images that holds the sources.
    fn part_of_sources(&self) -> Part {
        self.source_part.or(self.writing.part)
    }

    /// The image of a source that is copied out of it.
    fn image_of(&self, source: &ImagePath) -> Outcome<Image> {
        let looking = Looking::of(self.part_of_sources(), self.writing.journal.clone(), false)
            .tolerating(self.tolerant);
        Image::read_verified(&source.image, &looking, self.verify)
    }

    /// Whether a source is in the volume that is written, however its part was named.
    fn is_same_volume(&self, source: &Path, target: &Path) -> Outcome<bool> {
        if !same_file(source, target) {
            return Ok(false);
        }
        let start = |part: Part| part.start(whole_device(target, part, Hold::Nobody)?);
        let (from, to) = (self.part_of_sources(), self.writing.part);
        // Two that begin on other disks might be the same.
        Ok(from == to || start(from)? == start(to)?)
    }

    /// Refuses options that would have no effect.
    fn check_parts(&self, to: &Operand, from: &[Operand]) -> Outcome {
        if !self.source_part.is_given() {
            return Ok(());
        }
        if from.iter().all(is_local) {
            let reason =
                "--from-partition, --from-offset and --from-lv are for sources in images, and there are none";
            return Err(Failure::Usage(reason.to_owned()));
        }
        if is_local(to) && !self.writing.part.is_whole() {
            let reason = "the destination is in no image: name the part of the sources once";
            return Err(Failure::Usage(reason.to_owned()));
        }
        Ok(())
    }

    fn options(&self) -> Options {
        let recursive = self.recursive || self.archive;
        Options {
            recursive,
            preserve: self.preserve || self.archive,
            hard_links: self.archive,
            follow: !recursive,
            threads: self
                .threads
                .or_else(|| std::thread::available_parallelism().ok())
                .unwrap_or(NonZeroUsize::MIN),
            latest: None,
        }
    }

    /// The rights that an image's files get on the host: power only from root, and only if all of it is
    /// requested.
    fn rights(&self) -> Rights {
        Rights {
            attributes: self.options().preserve,
            set_id: self.archive && is_root(),
            devices: self.archive || self.devices,
        }
    }
}

fn is_local(operand: &Operand) -> bool {
    matches!(operand, Operand::Local(_))
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let Some((to, from)) = arguments.operands.split_last() else { return Ok(()) };
    if is_local(to) && from.iter().any(is_local) {
        return Err(Failure::Usage("neither side is in an image (IMAGE:PATH)".to_owned()));
    }
    if arguments.tolerant.is_given() && from.iter().all(is_local) {
        return Err(Failure::Usage("damage is tolerated in images that are copied from only".to_owned()));
    }
    standard::check(arguments, to, from)?;
    arguments.check_parts(to, from)?;
    if let (true, Some(fault)) = (arguments.operands.iter().any(is_local), hectare_host::pretence().fault()) {
        return Err(Failure::Line(fault));
    }
    let several = from.len() > 1;
    let progress = Progress::new("copying");
    match to {
        Operand::Local(_) if arguments.writing.explain.last.is_some() => {
            let reason =
                "--explain says where an image puts what is copied into it: the destination is in none";
            Err(Failure::Usage(reason.to_owned()))
        }
        Operand::Local(_) if standard::is_standard(to) => standard::give(arguments, from),
        Operand::Local(folder) => out(arguments, from, folder, &progress),
        Operand::Inside(place) => {
            Image::change_verified(&place.image, &arguments.writing, arguments.verify, |image| {
                let made = Made::new(several);
                let mut copier = Into { arguments, image, place, several, progress: &progress, made };
                each(from, |source| match source {
                    source if standard::is_standard(source) => standard::take(image, place, &progress),
                    Operand::Local(path) => {
                        copier.copy(&LocalOrigin::default(), (Node::at(path), path.as_os_str().as_bytes()))
                    }
                    Operand::Inside(source) if arguments.is_same_volume(&source.image, image.path())? => {
                        copier.copy_of(image, source)
                    }
                    Operand::Inside(source) => {
                        // Another partition of the same disk is under the lock that is held for writing.
                        let is_locked = same_file(&source.image, image.path());
                        let looking = Looking::of(arguments.part_of_sources(), Journal::default(), is_locked)
                            .tolerating(arguments.tolerant);
                        let other = Image::read_verified(&source.image, &looking, arguments.verify)?;
                        copier.copy_of(&other, source)
                    }
                })
            })
        }
    }
}

/// Continues with the next source after one of which only parts were left out.
fn each(sources: &[Operand], mut copy: impl FnMut(&Operand) -> Outcome) -> Outcome {
    let mut result = Ok(());
    for source in sources {
        match copy(source) {
            Err(Failure::Told) => result = Err(Failure::Told),
            other => other?,
        }
    }
    result
}

/// The name a source gives its copy, by its last name; `None` if only its content is copied.
fn own_name(name: &[u8]) -> Option<Vec<u8>> {
    (!matches!(name, b"" | b"." | b"..")).then(|| name.to_vec())
}

/// A copy of several sources into an image.
struct Into<'a> {
    arguments: &'a Arguments,
    image: &'a Image,
    place: &'a ImagePath,
    several: bool,
    progress: &'a Progress,
    made: Made<InodeNr>,
}

impl Into<'_> {
    /// Copies one source that is in an image.
    fn copy_of(&mut self, from: &Image, source: &ImagePath) -> Outcome {
        let nr = from.resolve(&source.path, self.arguments.options().follow)?;
        self.copy(&Inside { image: from }, (nr, &source.path))
    }

    /// Copies one source.
    fn copy<O: Origin>(&mut self, origin: &O, (node, path): (O::Node, &[u8])) -> Outcome {
        let Self { arguments, image, place, several, progress, .. } = *self;
        let meta = origin.meta(&node, arguments.options().follow);
        let meta = meta.map_err(|reason| Failure::of(origin.show(path), reason))?;
        let is_tree = meta.kind == Kind::Directory && arguments.options().recursive;
        let goal = goal_inside(image, &place.path, own_name(origin.last_name(path)), several, is_tree)?;
        let latest = reproducible::epoch()?.map(Timestamp::from_seconds);
        let options = Options { latest, ..arguments.options() };
        copy(origin, &Inside { image }, (node, path.to_vec()), goal, options, progress, &mut self.made)
    }
}

fn goal_inside(
    image: &Image,
    path: &[u8],
    own: Option<Vec<u8>>,
    several: bool,
    is_tree: bool,
) -> Outcome<Goal<InodeNr>> {
    let volume = image.volume();
    match volume.metadata(path) {
        Ok(meta) if meta.is_dir() => {
            return Ok(Goal { dir: meta.inode, name: own, path: path.to_vec() });
        }
        Ok(_) if several || path.ends_with(b"/") => return Err(image.fail(path, &Error::NotADirectory)),
        Ok(_) | Err(Error::NotFound) => {}
        Err(error) => return Err(image.fail(path, &error)),
    }
    let name = new_name(path, is_tree).filter(|_| !several);
    let name = name.ok_or_else(|| image.fail(path, &Error::NotFound))?;
    let parent = split(path).0;
    let dir = image.resolve(parent, true)?;
    Ok(Goal { dir, name: Some(name.to_vec()), path: parent.to_vec() })
}

/// The last name of a path that is not there, if the copy can have it: only that of a tree may end in a slash.
fn new_name(path: &[u8], is_tree: bool) -> Option<&[u8]> {
    let name = split(path).1;
    let is_possible = !matches!(name, b"" | b"." | b"..") && (is_tree || !path.ends_with(b"/"));
    is_possible.then_some(name)
}

/// Copies sources out of images.
fn out(arguments: &Arguments, from: &[Operand], to: &Path, progress: &Progress) -> Outcome {
    let (several, options) = (from.len() > 1, arguments.options());
    let fail = |path: &Path, why: String| Failure::of(shown(path.as_os_str().as_bytes()), why);
    // All of them before the target: that replaces nothing that is open by then.
    let mut images: Vec<(&Path, Image)> = Vec::new();
    for source in from {
        let Operand::Inside(source) = source else { continue };
        if !images.iter().any(|(path, _)| *path == source.image) {
            images.push((&source.image, arguments.image_of(source)?));
        }
    }
    let is_dir = match std::fs::metadata(to) {
        Ok(meta) if meta.is_dir() => true,
        Ok(_) if several => return Err(fail(to, Error::NotADirectory.to_string())),
        Err(error) if several || error.kind() != std::io::ErrorKind::NotFound => {
            return Err(fail(to, reason(&error)));
        }
        _ => false,
    };
    let folder = if is_dir { to.to_owned() } else { parent_of(to) };
    let target = LocalTarget::new(&folder, arguments.rights()).map_err(|why| fail(&folder, why))?;
    let mut made = Made::new(several);
    let copied = each(from, |source| {
        let Operand::Inside(source) = source else { return Ok(()) };
        let Some((_, image)) = images.iter().find(|(path, _)| *path == source.image) else { return Ok(()) };
        let nr = image.resolve(&source.path, options.follow)?;
        let name = if is_dir {
            own_name(split(&source.path).1)
        } else {
            let stat = image.volume().stat(nr).map_err(|error| image.fail(&source.path, &error))?;
            let possible = new_name(to.as_os_str().as_bytes(), stat.is_dir() && options.recursive);
            let name = possible.and(to.file_name()).ok_or_else(|| fail(to, Error::NotFound.to_string()))?;
            Some(name.as_bytes().to_vec())
        };
        let goal = Goal { dir: target.top(), name, path: Vec::new() };
        let source = (nr, source.path.clone());
        copy(&Inside { image }, &target, source, goal, options, progress, &mut made)
    });
    target.tell_lost();
    copied
}

fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
