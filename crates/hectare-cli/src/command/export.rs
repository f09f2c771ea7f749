//! `hectare export`.

mod goal;

use crate::clock;
use crate::directory::Directory;
use crate::failure::{Failure, Outcome, tell};
use crate::image_path::ImagePath;
use crate::name::shown;
use crate::output::{reason, refuse_input};
use crate::progress::Progress;
use crate::reproducible;
use crate::write_args::Looking;
use clap::builder::{OsStringValueParser, TypedValueParser};
use goal::{Goal, compression_of, parse_compression};
use hectare_device::Overwrite;
use hectare_device::os::OsStrExt;
use hectare_engine::Timestamp;
use hectare_export::{
    Compression, Config, Error, ImageOptions, NewFile, Observer, Packer, Place, Tree, export, export_image,
    export_layer,
};
use hectare_populate::Platform;
use hectare_units::Bytes;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Write the content of an image as a tar archive or a container image
///
/// Owners and groups by number, modes, times of modification to the nanosecond, hard and symbolic links,
/// device nodes, holes, extended attributes, ACLs and capabilities are kept. Entries are sorted by name: the
/// same content gives the same bytes. `hectare build` makes an equal image of them.
///
/// Left out are access and creation times, flags (chattr) and projects, for which archives have no place;
/// sockets, with a warning; and an empty lost+found at the root, which belongs to the format.
///
/// If a file can't be read, nothing is written under the name given.
#[allow(rustdoc::broken_intra_doc_links)] // help texts, where [:X] may be left out
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare export disk.img -o disk.tar.gz\n  \
    hectare export disk.img:/srv -o - | ssh host tar -xpf - -C /srv\n  \
    hectare export disk.img -o oci:images:v1 --config run.json\n  \
    hectare export new.img --diff old.img -o tar:changes.tar\n\n\
    With --diff, removed names are whiteouts (.wh.NAME), as in the layers of container images;\n\
    `hectare build --from old.tar --from changes.tar` makes new.img's content of them.\n\n\
    The file of --config has the object \"config\" of an OCI image configuration, as in\n  \
    {\"Entrypoint\": [\"/init\"], \"Env\": [\"LANG=C\"], \"User\": \"1000\", \"WorkingDir\": \"/srv\"}")]
pub(crate) struct Arguments {
    /// The image, or a directory in it: IMAGE[:DIR]
    #[arg(value_name = "IMAGE[:DIR]", value_parser = ImagePath::parser())]
    place: ImagePath,
    /// tar:FILE, a FILE in .tar, .tar.gz, .tgz or .tar.zst, oci:DIR[:TAG] for an image in an OCI image
    /// layout (tag: latest), or - for a tar archive on standard output
    #[arg(short, long, value_name = "OUTPUT")]
    #[arg(value_parser = OsStringValueParser::new().try_map(|text| Goal::parse(&text)))]
    output: Goal,
    /// Write only what has changed since this image: IMAGE[:DIR], in the same partition or at the same offset
    #[arg(long, value_name = "BASE", value_parser = ImagePath::parser())]
    diff: Option<ImagePath>,
    /// Compression: none, gzip or zstd [default: by the name of a tar file, gzip for oci]
    #[arg(long, value_name = "NAME", value_parser = parse_compression)]
    compression: Option<Compression>,
    /// Platform of an oci image: OS/ARCH [default: this machine's]
    #[arg(long, value_name = "OS/ARCH", value_parser = Platform::parse)]
    platform: Option<Platform>,
    /// How containers of an oci image are run: a JSON file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Replace an existing file, or an image with the same tag
    #[arg(short = 'F', long)]
    force: bool,
    #[command(flatten)]
    looking: Looking,
}

/// Shows the progress, and reports what was left out.
struct Watch(Progress);

impl Observer for Watch {
    fn left_out(&self, place: &str, reason: &str) {
        tell(format_args!("{place}: warning: {reason}"));
    }

    fn advance(&self, bytes: Bytes) {
        self.0.bytes(bytes.get());
    }
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    arguments.check()?;
    let directory = Directory::open(&arguments.place, &arguments.looking)?;
    let base = arguments.diff.as_ref().map(|base| Directory::open(base, &arguments.looking)).transpose()?;
    let show = |path: &[u8]| directory.show(path);
    let show_base = |path: &[u8]| base.as_ref().map_or_else(String::new, |base| base.show(path));
    let tree = directory.tree(&show);
    let base_tree = base.as_ref().map(|base| base.tree(&show_base));
    let watch = Watch(Progress::new("exporting"));
    match &arguments.output {
        Goal::Stdout => {
            let out = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
            let packer = Packer::new(out, arguments.compression.unwrap_or(Compression::None));
            let written = arguments.write_tar(base_tree.as_ref(), &tree, packer, &watch);
            written.and_then(|mut out| Ok(out.flush()?)).map_err(|error| match error {
                Error::Output(error) => Failure::of("standard output", reason(&error)),
                other => failed(other),
            })
        }
        Goal::Tar(path) => {
            let file = NewFile::create(path, arguments.overwrite()).map_err(|error| failed(error.into()))?;
            let packer = Packer::new(file, arguments.compression_to(path)?);
            let written = arguments.write_tar(base_tree.as_ref(), &tree, packer, &watch);
            written.and_then(|file| Ok(file.publish()?)).map_err(failed)
        }
        Goal::Oci { directory, tag } => {
            let (place, options) = (Place { directory, tag }, arguments.image_options()?);
            export_image(base_tree.as_ref(), &tree, place, &options, &watch).map_err(failed)
        }
    }
}

#[allow(clippy::needless_pass_by_value)] // shaped for map_err
fn failed(error: Error) -> Failure {
    Failure::Line(error.to_string())
}

impl Arguments {
    fn overwrite(&self) -> Overwrite {
        if self.force { Overwrite::Replace } else { Overwrite::Refuse }
    }

    fn compression_to(&self, path: &Path) -> Outcome<Compression> {
        self.compression.map_or_else(|| compression_of(path), Ok)
    }

    /// Refuses what can't be meant, before anything is read.
    fn check(&self) -> Outcome {
        if !matches!(self.output, Goal::Oci { .. }) && (self.platform.is_some() || self.config.is_some()) {
            return Err(Failure::Usage("--platform and --config are for oci:DIR".to_owned()));
        }
        match &self.output {
            Goal::Stdout if std::io::stdout().is_terminal() => {
                Err(Failure::Usage("standard output is a terminal: name a file, or use a pipe".to_owned()))
            }
            Goal::Tar(path) => self.check_file(path),
            _ => Ok(()),
        }
    }

    fn check_file(&self, path: &Path) -> Outcome {
        self.compression_to(path)?;
        let name = shown(path.as_os_str().as_bytes());
        if path.exists() && !self.force {
            return Err(Failure::of(name, "the file exists; use --force to replace it"));
        }
        let images = [Some(&self.place), self.diff.as_ref()].into_iter().flatten();
        refuse_input(path, &images.map(|place| &*place.image).collect::<Vec<_>>())
    }

    fn image_options(&self) -> Outcome<ImageOptions> {
        let created = reproducible::epoch()?.map(|seconds| clock::json(Timestamp::from_seconds(seconds)));
        let config = self.config.as_deref().map(read_config).transpose()?.unwrap_or_default();
        Ok(ImageOptions {
            platform: self.platform.clone().unwrap_or_else(Platform::host),
            config,
            created,
            compression: self.compression.unwrap_or(Compression::Gzip),
            overwrite: self.overwrite(),
        })
    }

    fn write_tar<W: Write>(
        &self,
        base: Option<&Tree<'_>>,
        tree: &Tree<'_>,
        packer: Packer<W>,
        watch: &Watch,
    ) -> Result<W, Error> {
        let packer = match base {
            None => export(tree, packer, watch)?,
            Some(base) => export_layer(Some(base), tree, packer, watch)?,
        };
        Ok(packer.finish()?)
    }
}

fn read_config(path: &Path) -> Outcome<Config> {
    let name = || shown(path.as_os_str().as_bytes());
    let text = std::fs::read(path).map_err(|error| Failure::of(name(), reason(&error)))?;
    Config::parse(&text).map_err(|error| Failure::of(name(), error))
}
