//! What an image is to hold and how its volume is to be: the options that `build` shares with whatever plans
//! an image.

use super::super::described::DescribedArguments;
use super::super::format_options::{FormatArguments, usage};
use crate::failure::{Failure, Outcome, tell};
use crate::name::shown;
use crate::size_arg::parse_size;
use hectare_device::os::OsStrExt;
use hectare_mkfs::{FormatOptions, FsType};
use hectare_populate::{Addition, Excludes, Options, Platform, Size, Source, Tree};
use hectare_units::Bytes;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::Path;

/// The content and the format of an image, without its sources.
#[derive(clap::Args)]
pub(in crate::command) struct ContentArguments {
    /// Size: min for the smallest that holds everything, or bytes with K, M, G, T; min plus 10 % if not given
    #[arg(long, value_name = "min|SIZE", conflicts_with = "free")]
    size: Option<String>,
    /// Leave this much free: bytes with K, M, G, T
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    free: Option<u64>,
    /// Exclude files that match a pattern, as in .gitignore
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// Seal files that match a pattern, as in .gitignore, with fs-verity (SHA-256); needs -O verity
    #[arg(long, value_name = "PATTERN")]
    fs_verity: Vec<OsString>,
    /// Give everything to this owner: UID:GID
    #[arg(long, value_name = "UID:GID", value_parser = crate::passwd::Owner::parse)]
    owner: Option<crate::passwd::Owner>,
    /// Change permissions, as in chmod: u=rwX,go=rX; D: and F: before a clause limit it to directories or the
    /// rest
    #[arg(long, value_name = "MODES", value_parser = super::super::chmod::parse_mode)]
    modes: Option<hectare_populate::ModeChange>,
    /// Add a file after all sources: HOST:/PATH[,mode=MODE,uid=UID,gid=GID]
    ///
    /// HOST ends before the last ":/" and may be a symbolic link to the file; PATH is its place in the image.
    /// The mode is the file's and the owner root, if not given; attributes are not taken. Missing directories
    /// are made (mode 0755), links among them are followed inside the image, and a file, link or device of
    /// that name is replaced; a directory is not. Of two with one PATH the later wins; --spec comes after.
    #[arg(long, value_name = "HOST:/PATH")]
    add: Vec<OsString>,
    /// Store the blocks of files with the same content once; the image is for reading only then
    ///
    /// Whole files are compared, by size, holes and SHA-256; hard links stay what they are. Such an image has
    /// the feature shared_blocks, as Android's have: Linux mounts it read-only (-o ro), and nothing may write
    /// to it. Where no files are equal, it is an image as any other.
    #[arg(long)]
    dedupe: bool,
    #[command(flatten)]
    described: DescribedArguments,
    /// Accept an empty archive
    #[arg(long)]
    allow_empty: bool,
    /// Refuse sources that unpack to more than this: bytes with K, M, G, T
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_size: Option<u64>,
    /// Of a container image for several platforms, take this one: OS/ARCHITECTURE[/VARIANT] (this machine's,
    /// if not given)
    #[arg(long, value_name = "PLATFORM", value_parser = Platform::parse)]
    platform: Option<Platform>,
    /// Type: ext2, ext3 or ext4
    #[arg(short = 't', value_name = "TYPE", default_value = "ext4")]
    fs_type: String,
    #[command(flatten)]
    format: FormatArguments,
    /// Number of threads (as many as the machine runs at once, if not given)
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
}

impl ContentArguments {
    /// Whether any of them was given, as far as it makes a difference.
    pub(in crate::command) fn is_given(&self) -> bool {
        let texts = [&self.exclude, &self.fs_verity, &self.add];
        self.size.is_some()
            || self.free.is_some()
            || self.owner.is_some()
            || self.modes.is_some()
            || self.max_size.is_some()
            || self.platform.is_some()
            || self.threads.is_some()
            || self.dedupe
            || self.allow_empty
            || self.fs_type != "ext4"
            || texts.iter().any(|texts| !texts.is_empty())
            || self.described.is_given()
            || self.format != FormatArguments::default()
    }

    /// Whether files with the same content are to share their blocks.
    pub(in crate::command) fn dedupes(&self) -> bool {
        self.dedupe
    }

    pub(in crate::command) fn threads(&self) -> NonZeroUsize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
    }

    pub(in crate::command) fn size(&self) -> Outcome<Size> {
        Ok(match (self.size.as_deref(), self.free) {
            (Some("min"), _) => Size::Min,
            (Some(text), _) => Size::Exactly(Bytes::new(parse_size(text).map_err(Failure::Usage)?)),
            (None, Some(free)) => Size::Free(Bytes::new(free)),
            (None, None) => Size::Default,
        })
    }

    pub(in crate::command) fn source_options(&self, epoch: Option<i64>) -> Outcome<Options> {
        let mut excludes = Excludes::default();
        for pattern in &self.exclude {
            excludes.add(pattern.as_bytes()).map_err(|error| Failure::Usage(error.to_string()))?;
        }
        let owner = match self.owner {
            None => None,
            Some(crate::passwd::Owner { uid: Some(uid), gid: Some(gid) }) => Some((uid, gid)),
            Some(_) => return Err(Failure::Usage("--owner: give both, UID:GID".to_owned())),
        };
        let additions = self.add.iter().map(|argument| Addition::parse(argument));
        let additions =
            additions.collect::<Result<_, _>>().map_err(|error| Failure::Usage(error.to_string()))?;
        self.described.fill(Options {
            owner,
            additions,
            find_duplicates: self.dedupe,
            modes: self.modes.clone(),
            source_date_epoch: epoch,
            excludes,
            threads: self.threads(),
            allow_empty: self.allow_empty,
            platform: self.platform.clone(),
            max_size: self.max_size.map(Bytes::new),
            ..Options::default()
        })
    }

    /// The format's options: mke2fs's, but without blocks reserved for root unless requested.
    pub(in crate::command) fn format_options(&self) -> Outcome<FormatOptions> {
        self.format.refuse_external_journal("hectare build")?;
        let mut options = self.format.options()?;
        options.fs_type = FsType::by_name(&self.fs_type).map_err(usage)?;
        if !self.format.asks_for_reserve() {
            options.reserved_percent = 0.0;
        }
        Ok(options)
    }
}

/// Reads the sources, and reports what is worth knowing of them.
pub(in crate::command) fn read(
    from: &[OsString],
    arguments: &ContentArguments,
    epoch: Option<i64>,
    replaces: Option<&Path>,
) -> Outcome<Tree> {
    let failed = |error: hectare_populate::Error| Failure::Line(error.to_string());
    let sources = from.iter().map(|argument| match Source::from_argument(argument).map_err(failed)? {
        // Only what would be read as an archive may be a volume: a pipe must not be opened twice.
        archive @ Source::Archive(_) => Ok(super::volume_source::of(argument)?.unwrap_or(archive)),
        other => Ok(other),
    });
    let sources = sources.collect::<Outcome<_>>()?;
    let options = arguments.source_options(epoch)?.for_format(&arguments.format_options()?);
    let options = Options { replaces: replaces.map(Path::to_owned), ..options };
    let mut tree = Tree::build(sources, &options).map_err(failed)?;
    let mut sealed = Excludes::default();
    for pattern in &arguments.fs_verity {
        let added = sealed.add_of(pattern.as_bytes(), "--fs-verity");
        added.map_err(|error| Failure::Usage(error.to_string()))?;
    }
    if !sealed.is_empty() {
        tree.seal(&sealed);
    }
    for warning in tree.warnings() {
        tell(format_args!("warning: {warning}"));
    }
    for (name, count) in tree.left_out() {
        tell(format_args!(
            "note: attribute {} of {count} files left out: ext4 has none of its kind",
            shown(name)
        ));
    }
    Ok(tree)
}
