//! `hectare chmod`.

use crate::failure::{LeftOut, Outcome};
use crate::image::change_each;
use crate::image_path::ImagePath;
use crate::walk;
use crate::write_args::Writing;
use hectare_engine::Changes;
use hectare_populate::{Error, ModeChange};

/// Change permissions inside an image
///
/// MODE is octal (0644) or symbolic (u=rwX,go-w,g=u); the umask does not apply. An octal mode also replaces the
/// set-ID bits of directories, which chmod(1) keeps. `D:` before a clause limits it to
/// directories, `F:` to everything else. Symbolic links have no permissions of their own: a link that is
/// named is followed, others are skipped.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare chmod 600 disk.img:/etc/shadow\n  \
    hectare chmod -R D:755,F:644 disk.img:/srv")]
pub(crate) struct Arguments {
    /// Change everything below, recursively
    #[arg(short = 'R', long)]
    recursive: bool,
    /// The mode, or a change to it
    #[arg(value_name = "MODE", value_parser = parse_mode, allow_hyphen_values = true)]
    mode: ModeChange,
    /// The files: IMAGE:PATH
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = ImagePath::parser())]
    places: Vec<ImagePath>,
    #[command(flatten)]
    writing: Writing,
}

/// Parses a mode, for clap.
pub(super) fn parse_mode(text: &str) -> Result<ModeChange, String> {
    ModeChange::parse(text).map_err(|error| match error {
        Error::Option { reason, .. } => reason.to_owned(),
        other => other.to_string(),
    })
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let left_out = LeftOut::default();
    change_each(&arguments.places, &arguments.writing, |image, place| {
        let change = |nr| {
            let meta = image.volume().stat(nr)?;
            if meta.is_symlink() {
                return Ok(());
            }
            let permissions = Some(arguments.mode.apply(meta.permissions, meta.is_dir()));
            image.volume().change(nr, &Changes { permissions, ..Changes::default() })
        };
        let nr = image.resolve(&place.path, true)?;
        if arguments.recursive {
            return walk::each(image, nr, &place.path, &left_out, change);
        }
        change(nr).map_err(|error| image.fail(&place.path, &error))
    })?;
    left_out.outcome()
}
