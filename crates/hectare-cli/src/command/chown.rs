//! `hectare chown`.

use crate::failure::{LeftOut, Outcome};
use crate::image::change_each;
use crate::image_path::ImagePath;
use crate::passwd::Owner;
use crate::walk;
use crate::write_args::Writing;
use hectare_engine::{Changes, Kind};

/// Change owners inside an image
///
/// USER and GROUP are numbers; names are looked up in this system's /etc/passwd and /etc/group. Set-ID bits
/// of files are cleared, as by the kernel. Symbolic links that are named are followed unless -P is given;
/// with -R, links below are changed themselves.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hectare chown 33:33 disk.img:/srv/www\n  hectare chown -R 0:0 disk.img:/"
)]
pub(crate) struct Arguments {
    /// Change everything below, recursively
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change a symbolic link itself, not its target
    #[arg(short = 'P', long)]
    no_dereference: bool,
    /// The new owners: USER, USER:GROUP, :GROUP, or NAME: for the user and the login group
    #[arg(value_name = "USER:GROUP", value_parser = Owner::parse)]
    owner: Owner,
    /// The files: IMAGE:PATH
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = ImagePath::parser())]
    places: Vec<ImagePath>,
    #[command(flatten)]
    writing: Writing,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let left_out = LeftOut::default();
    change_each(&arguments.places, &arguments.writing, |image, place| {
        let change = |nr| {
            let meta = image.volume().stat(nr)?;
            let changes = Changes {
                uid: arguments.owner.uid,
                gid: arguments.owner.gid,
                permissions: without_set_id(meta.kind, meta.permissions),
                ..Changes::default()
            };
            image.volume().change(nr, &changes)
        };
        let nr = image.resolve(&place.path, !arguments.no_dereference)?;
        if arguments.recursive {
            return walk::each(image, nr, &place.path, &left_out, change);
        }
        change(nr).map_err(|error| image.fail(&place.path, &error))
    })?;
    left_out.outcome()
}

/// The permissions after a change of owner, if they change: an old set-ID bit must not run a program with a
/// new owner's rights. Set-group-ID without group execution means something else and stays.
fn without_set_id(kind: Kind, mode: u16) -> Option<u16> {
    let set_gid = if mode & 0o010 != 0 { 0o2000 } else { 0 };
    let cleared = mode & !(0o4000 | set_gid);
    (kind == Kind::File && cleared != mode).then_some(cleared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_id_bits_of_files_go() {
        assert_eq!(without_set_id(Kind::File, 0o6755), Some(0o755));
        assert_eq!(without_set_id(Kind::File, 0o2744), None);
        assert_eq!(without_set_id(Kind::Directory, 0o2755), None);
    }
}
