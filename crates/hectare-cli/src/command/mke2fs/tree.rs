//! `-d`: a volume with a copy of a tree, of exactly the size that was asked for.
//!
//! As with mke2fs, the root directory belongs to root (or `root_owner=`), with permissions of 0755 and the
//! time of the format, whatever the source's is; other files keep their owners and, in whole seconds, their
//! times. Unlike `hectare build`, no inodes are added beyond those that were asked for.

use super::extended::Words;
use super::target::Target;
use super::{Arguments, announce, conclude};
use crate::failure::{Failure, Outcome, tell};
use crate::name::shown;
use crate::progress::Progress;
use hectare_mkfs::{FormatOptions, InodeCount};
use hectare_populate::{Image, ImageError, Meta, Options, Size, Source, Timestamp, Tree};
use hectare_units::{BlockSize, Bytes};
use std::ffi::OsStr;
use std::num::NonZeroUsize;

/// What is copied.
pub(super) struct Copied<'a> {
    pub(super) from: &'a OsStr,
    pub(super) words: &'a Words,
}

/// How the tree is read.
fn source_options(options: &FormatOptions, words: &Words) -> Options {
    let now = Timestamp { seconds: options.now.seconds, nanoseconds: 0 };
    let (uid, gid) = options.root_owner.unwrap_or_default();
    Options {
        source_date_epoch: std::env::var_os("SOURCE_DATE_EPOCH").map(|_| options.now.seconds),
        whole_seconds: true,
        foreign_owners: true,
        root: Some(Meta {
            mode: options.root_permissions.unwrap_or(0o755),
            uid,
            gid,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: None,
        }),
        no_attributes: words.no_attributes,
        allow_empty: true,
        ..Options::default()
    }
}

/// The options with the number of inodes that a ratio gives: no more are made for the tree.
fn counted(options: &FormatOptions, size: Bytes) -> FormatOptions {
    let InodeCount::Ratio(ratio) = options.inodes else { return options.clone() };
    let block = options.block_size.unwrap_or(BlockSize::KIB4);
    let bytes = size.get() >> block.shift() << block.shift();
    let count = match bytes / ratio.max(1) {
        0 => bytes >> block.shift().max(BlockSize::KIB4.shift()),
        count => count.min(u32::MAX.into()),
    };
    FormatOptions { inodes: InodeCount::Exactly(count.max(1)), ..options.clone() }
}

/// The failure of a tree that can't be copied.
fn failed(target: &Target<'_>, error: ImageError) -> Failure {
    match error {
        ImageError::TooSmall { size, lacking, .. } => Failure::of(
            target.shown(),
            format_args!(
                "no space: {lacking} bytes more than {size} are needed for the files; give a larger SIZE"
            ),
        ),
        ImageError::TooFewInodes { asked, needed } => Failure::of(
            target.shown(),
            format_args!("no inodes: {needed} are needed, {asked} asked for; give more with -N or -i"),
        ),
        ImageError::Format(error) => target.failed(&error),
        other => Failure::Line(other.to_string()),
    }
}

pub(super) fn make(
    arguments: &Arguments,
    target: &Target<'_>,
    options: &FormatOptions,
    copied: &Copied<'_>,
) -> Outcome {
    if !copied.from.as_encoded_bytes().eq(b"-") && !std::path::Path::new(copied.from).exists() {
        let name = shown(copied.from.as_encoded_bytes());
        return Err(Failure::of("mke2fs", format_args!("-d {name}: there is no such directory or archive")));
    }
    let failed_source = |error: hectare_populate::Error| Failure::Line(error.to_string());
    let source = Source::from_argument(copied.from).map_err(failed_source)?;
    let sources = Options { replaces: Some(target.path.to_owned()), ..source_options(options, copied.words) };
    let tree = Tree::build(vec![source], &sources).map_err(failed_source)?;
    if tree.image_config().is_some() {
        let reason = "it is a container image, which mke2fs would pack as its blobs: use `hectare build`";
        return Err(Failure::of(shown(copied.from.as_encoded_bytes()), reason));
    }
    tree.warnings().iter().for_each(|warning| tell(format_args!("warning: {warning}")));
    let options = counted(options, target.size);
    let image = Image::plan(&tree, &options, Size::Exactly(target.size), !target.exists)
        .map_err(|error| failed(target, error))?;
    if arguments.dry_run {
        return announce(arguments, target, image.format());
    }
    let goal = target.open(arguments.force)?;
    announce(arguments, target, image.format())?;
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let progress = Progress::new("writing");
    image.write(goal.device(), threads, &progress).map_err(|error| failed(target, error))?;
    drop(progress);
    goal.finish()?;
    conclude(arguments, image.format(), true)
}
