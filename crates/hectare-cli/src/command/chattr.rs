//! `hectare chattr`.

use crate::failure::{Failure, LeftOut, Outcome};
use crate::image::change_each;
use crate::image_path::ImagePath;
use crate::walk;
use crate::write_args::Writing;
use hectare_engine::{Caller, InodeFlags};
use std::ffi::OsString;

/// Change flags and projects of files inside an image
///
/// CHANGE is +FLAGS, -FLAGS or =FLAGS, as for chattr(1): a (append only), A (no access times), d (no dump),
/// D (names are synchronous), F (names without regard to case; empty directories only), i (immutable),
/// j (content through the journal), P (files in it get its project), S (synchronous), T (top of a tree).
/// Symbolic links are not followed.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare chattr +i disk.img:/etc/passwd\n  \
    hectare chattr -p 42 +P disk.img:/srv/www\n  hectare chattr -R -p 42 disk.img:/srv/www")]
pub(crate) struct Arguments {
    /// Change everything below, recursively
    #[arg(short = 'R', long)]
    recursive: bool,
    /// The project to give the files to
    #[arg(short = 'p', long, value_name = "ID")]
    project: Option<u32>,
    /// A change of flags, unless a project is given; and the files: IMAGE:PATH
    #[arg(required = true, value_name = "CHANGE|IMAGE:PATH", allow_hyphen_values = true)]
    words: Vec<OsString>,
    #[command(flatten)]
    writing: Writing,
}

/// Flags with their letters.
const LETTERS: [(char, InodeFlags); 10] = [
    ('a', InodeFlags::APPEND),
    ('A', InodeFlags::NOATIME),
    ('d', InodeFlags::NODUMP),
    ('D', InodeFlags::DIRSYNC),
    ('F', InodeFlags::CASEFOLD),
    ('i', InodeFlags::IMMUTABLE),
    ('j', InodeFlags::JOURNAL_DATA),
    ('P', InodeFlags::PROJINHERIT),
    ('S', InodeFlags::SYNC),
    ('T', InodeFlags::TOPDIR),
];

/// A change of flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Change {
    set: InodeFlags,
    clear: InodeFlags,
}

impl Change {
    /// Reads a word; `None` if it is none.
    fn parse(word: &str) -> Option<Self> {
        let (sign, letters) = word.split_at_checked(1)?;
        let flag = |letter| LETTERS.iter().find(|(known, _)| *known == letter).map(|(_, flag)| *flag);
        let flags: InodeFlags = letters.chars().map(flag).collect::<Option<_>>()?;
        let all: InodeFlags = LETTERS.iter().map(|(_, flag)| *flag).collect();
        match sign {
            "+" if !letters.is_empty() => Some(Self { set: flags, clear: InodeFlags::empty() }),
            "-" if !letters.is_empty() => Some(Self { set: InodeFlags::empty(), clear: flags }),
            "=" => Some(Self { set: flags, clear: all - flags }),
            _ => None,
        }
    }

    fn apply(self, flags: InodeFlags) -> InodeFlags {
        (flags - self.clear) | self.set
    }
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let (mut change, mut words) = (Change::default(), &arguments.words[..]);
    while let Some(more) = words.first().and_then(|word| Change::parse(word.to_str()?)) {
        change = Change {
            set: (change.set - more.clear) | more.set,
            clear: (change.clear - more.set) | more.clear,
        };
        words = &words[1..];
    }
    if change == Change::default() && arguments.project.is_none() {
        return Err(Failure::Usage("give a change of flags (+FLAGS, -FLAGS or =FLAGS), or -p".to_owned()));
    }
    let places: Vec<ImagePath> = words.iter().map(|word| ImagePath::parse(word)).collect();
    if places.is_empty() {
        return Err(Failure::Usage("name the files: IMAGE:PATH".to_owned()));
    }
    let left_out = LeftOut::default();
    change_each(&places, &arguments.writing, |image, place| {
        let alter = |nr| {
            let flags = change.apply(image.volume().inode_flags(nr)?);
            match arguments.project {
                Some(project) => image.volume().set_flags_and_project(nr, flags, project, &Caller::ROOT),
                None => image.volume().set_inode_flags(nr, flags, &Caller::ROOT),
            }
        };
        let nr = image.resolve(&place.path, false)?;
        if arguments.recursive {
            return walk::each(image, nr, &place.path, &left_out, alter);
        }
        alter(nr).map_err(|error| image.fail(&place.path, &error))
    })?;
    left_out.outcome()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_as_chattr_reads_them() {
        let flags = InodeFlags::APPEND | InodeFlags::EXTENTS;
        let apply = |word| Change::parse(word).map(|change| change.apply(flags));
        assert_eq!(apply("+iA"), Some(flags | InodeFlags::IMMUTABLE | InodeFlags::NOATIME));
        assert_eq!(apply("-a"), Some(InodeFlags::EXTENTS));
        assert_eq!(apply("=P"), Some(InodeFlags::EXTENTS | InodeFlags::PROJINHERIT));
        assert_eq!((apply("+"), apply("+e"), apply("disk.img:/a"), apply("")), (None, None, None, None));
    }
}
