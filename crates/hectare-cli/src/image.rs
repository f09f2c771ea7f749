//! An opened image: a volume and its name for messages.
//!
//! Commands that only read open the image read-only, which writes nothing, not even the state. Commands that
//! write open it for writing, which locks out all other processes, and end with [`Image::close`], so that an
//! error of the last write is reported.

use crate::explanation::lines;
use crate::explanation::text::Detail;
use crate::failure::{Failure, LeftOut, Outcome, tell};
use crate::image_device::{Hold, whole_device};
use crate::image_path::{ImagePath, show};
use crate::journal_search::{self, Wanted};
use crate::logical::device;
use crate::memory;
use crate::name::shown;
use crate::output::Output;
use crate::partition_args::Part;
use crate::remote::{adapt_to_server, mention_unprotected};
use crate::write_args::{Explain, Journal, Looking, Tolerant, Writing};
use hectare_device::Device;
use hectare_device::os::OsStrExt;
use hectare_engine::{Error, JournalDevice, OpenOptions, Volume};
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{GroupNr, InodeNr};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SUPERBLOCK_LEN: usize = 1024;

/// The number of unreadable groups after which a report ends.
const LEFT_OUT_MAX: usize = 10_000;

/// An image in use.
#[derive(Clone)]
pub(crate) struct Image {
    path: PathBuf,
    volume: Arc<Volume>,
    /// Whether it was opened with a journal on another device.
    has_journal: bool,
    /// Whether a batch holds it open, which closes it.
    is_batch: bool,
}

thread_local! {
    /// The image of the batch that runs.
    static BATCH: RefCell<Option<Image>> = const { RefCell::new(None) };
}

/// A batch that runs.
pub(crate) struct Batch(());

impl Drop for Batch {
    fn drop(&mut self) {
        BATCH.set(None);
    }
}

impl Image {
    /// Opens the image read-only.
    pub(crate) fn read(path: &Path, looking: &Looking) -> Outcome<Self> {
        Self::read_verified(path, looking, false)
    }

    /// Likewise; what is read of files that fs-verity seals is verified, if requested.
    pub(crate) fn read_verified(path: &Path, looking: &Looking, verify: bool) -> Outcome<Self> {
        if let Some(held) = Self::held(verify)? {
            return Ok(held);
        }
        let options = OpenOptions { verify, ..looking.options()? };
        Self::read_noting_journal(path, looking, options)
    }

    /// Opens the image read-only, with a journal on another device that is open already.
    pub(crate) fn read_with_journal(
        path: &Path,
        looking: &Looking,
        journal: Option<Arc<dyn Device>>,
    ) -> Outcome<Self> {
        let options = OpenOptions { journal: journal.map(JournalDevice), ..OpenOptions::read_only() };
        Self::read_noting_journal(path, looking, options)
    }

    /// Opens the image, and says if a journal that is needed was not found.
    fn read_noting_journal(path: &Path, looking: &Looking, options: OpenOptions) -> Outcome<Self> {
        let image = Self::open(path, looking.part, looking.hold(), options, looking.tolerant)?;
        let sb = image.volume.superblock();
        let elsewhere = sb.journal_inode().is_none() && !image.has_journal;
        if elsewhere && !looking.tolerant.no_journal() && sb.features().incompat.contains(Incompat::RECOVER) {
            let name = shown(path.as_os_str().as_bytes());
            tell(format_args!(
                "{name}: note: its journal lies elsewhere and was not replayed, the newest changes don't \
                 show: no block device that can be read has its UUID, name it with --journal"
            ));
        }
        Ok(image)
    }

    /// Opens an image that is to be filled.
    pub(crate) fn to_fill(path: &Path) -> Outcome<Self> {
        let (part, mut options) = (Part::default(), OpenOptions::default());
        adapt_to_server(path, &mut options);
        Self::open(path, part, Hold::Everybody, options, Tolerant::default())
    }

    /// Opens the image for writing, with options adapted.
    pub(crate) fn write_with(
        path: &Path,
        writing: &Writing,
        adapt: impl FnOnce(&mut OpenOptions),
    ) -> Outcome<Self> {
        let mut options = writing.options()?;
        adapt_to_server(path, &mut options);
        adapt(&mut options);
        if let Some(held) = Self::held(options.verify)? {
            return Ok(held);
        }
        Self::open(path, writing.part, Hold::Everybody, options, Tolerant::default())
    }

    fn open(path: &Path, part: Part, hold: Hold, options: OpenOptions, tolerant: Tolerant) -> Outcome<Self> {
        let mut options = memory::bounded(options);
        let device = device(path, part, hold)?;
        let name = shown(path.as_os_str().as_bytes());
        tolerant.apply(&name, &*device, &mut options)?;
        if options.journal.is_none() && !tolerant.no_journal() {
            options.journal = find_journal(&*device, hold)?;
        }
        let has_journal = options.journal.is_some();
        let failed = |error: Error| Failure::of(&name, error);
        let volume = Volume::open(device, options).map_err(failed)?;
        if hold == Hold::Everybody {
            mention_unprotected(path, volume.superblock().features());
        }
        Ok(Self { path: path.to_owned(), volume: Arc::new(volume), has_journal, is_batch: false })
    }

    /// Lets the commands that this thread runs use this image instead of opening one, until the result is
    /// dropped.
    pub(crate) fn hold_for_batch(&self) -> Batch {
        BATCH.set(Some(Self { is_batch: true, ..self.clone() }));
        Batch(())
    }

    /// The image of the batch that runs.
    fn held(verify: bool) -> Outcome<Option<Self>> {
        let held = BATCH.with_borrow(Clone::clone);
        if held.is_some() && verify {
            return Err(Failure::Usage("--verify is not for batches".to_owned()));
        }
        Ok(held)
    }

    /// The groups, for a report; unreadable ones are left out. They end early, with a line that says so, when
    /// too many are unreadable: a damaged volume may claim to have millions.
    pub(crate) fn groups<'a>(&'a self, left_out: &'a LeftOut) -> impl Iterator<Item = GroupNr> + 'a {
        let groups = (0..self.volume().group_count()).map(GroupNr::new);
        groups.take_while(|group| {
            let bearable = left_out.count() < LEFT_OUT_MAX;
            if !bearable {
                let reason =
                    format!("group {group} and those after it are not looked at: too many are broken");
                left_out.tell(self.name(), reason);
            }
            bearable
        })
    }

    /// The volume.
    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The image's own path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The image itself, as it is named in messages.
    pub(crate) fn name(&self) -> String {
        shown(self.path.as_os_str().as_bytes())
    }

    /// A path inside, as it is named in messages.
    pub(crate) fn show(&self, path: &[u8]) -> String {
        show(&self.path, path)
    }

    /// A failure at a path inside.
    pub(crate) fn fail(&self, path: &[u8], error: &Error) -> Failure {
        Failure::of(self.show(path), error)
    }

    /// The inode at a path.
    pub(crate) fn resolve(&self, path: &[u8], follow: bool) -> Outcome<InodeNr> {
        self.volume.resolve(path, follow).map_err(|error| self.fail(path, &error))
    }

    /// Closes after a change, whether or not the change succeeded: the first failure counts.
    pub(crate) fn close(self, result: Outcome) -> Outcome {
        if self.is_batch {
            return result;
        }
        let closed = self.volume.close();
        result?;
        closed.map_err(|error| Failure::of(self.name(), error))
    }

    /// Prints the trace of allocation requests, if requested.
    fn explain(&self, explain: Explain) -> Outcome {
        let Some(last) = explain.last else { return Ok(()) };
        // Allocates what is buffered.
        self.volume.sync().map_err(|error| Failure::of(self.name(), error))?;
        let Some(explanation) = self.volume.explanation() else { return Ok(()) };
        let mut out = Output::report();
        write!(out, "{}", lines(&explanation, last, Detail::Short))?;
        out.finish()
    }

    /// Opens for changing, changes, closes.
    pub(crate) fn change(path: &Path, writing: &Writing, change: impl FnOnce(&Self) -> Outcome) -> Outcome {
        Self::change_verified(path, writing, false, change)
    }

    /// Likewise; what is read of files that fs-verity seals is verified, if requested.
    pub(crate) fn change_verified(
        path: &Path,
        writing: &Writing,
        verify: bool,
        change: impl FnOnce(&Self) -> Outcome,
    ) -> Outcome {
        let image = Self::write_with(path, writing, |options| options.verify = verify)?;
        let result = change(&image).and_then(|()| image.explain(writing.explain));
        image.close(result)
    }
}

/// The journal of a volume that keeps it on another device, if that is among the block devices and needed:
/// for
/// writing, or since it is to be replayed. What is wrong with the volume is found when it is opened.
fn find_journal(device: &dyn Device, hold: Hold) -> Outcome<Option<JournalDevice>> {
    let needed =
        |sb: &SuperBlock| hold == Hold::Everybody || sb.features().incompat.contains(Incompat::RECOVER);
    match superblock_with_external_journal(device).filter(needed) {
        Some(sb) => search_journal(&sb, hold),
        None => Ok(None),
    }
}

/// The journal of a volume that keeps it on another device: the one that is named, or else the block device
/// with
/// its UUID, whether it is needed or not. A volume with its journal inside has none.
pub(crate) fn journal_of(
    device: &dyn Device,
    named: &Journal,
    hold: Hold,
) -> Outcome<Option<Arc<dyn Device>>> {
    let found = match named.device(hold)? {
        Some(named) => Some(named),
        None => match superblock_with_external_journal(device) {
            Some(sb) => search_journal(&sb, hold)?,
            None => None,
        },
    };
    Ok(found.map(|journal| journal.0))
}

/// The superblock of a volume, if it can be read and says that the journal is on another device.
fn superblock_with_external_journal(device: &dyn Device) -> Option<SuperBlock> {
    let mut bytes = [0; SUPERBLOCK_LEN];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).ok()?;
    let sb = SuperBlock::parse_torn(&bytes, device.len()).ok()?;
    let has_one = sb.features().compat.contains(Compat::HAS_JOURNAL) && sb.journal_inode().is_none();
    has_one.then_some(sb)
}

/// The block device that a volume's journal is.
fn search_journal(sb: &SuperBlock, hold: Hold) -> Outcome<Option<JournalDevice>> {
    let found = journal_search::search(&Wanted::Uuid(sb.raw().s_journal_uuid))?;
    let device = found.map(|path| whole_device(&path, Part::default(), hold)).transpose()?;
    Ok(device.map(JournalDevice))
}

/// Runs a change on every place, opening each image once as long as neighbours share it.
pub(crate) fn change_each(
    places: &[ImagePath],
    writing: &Writing,
    mut change: impl FnMut(&Image, &ImagePath) -> Outcome,
) -> Outcome {
    for group in places.chunk_by(|a, b| a.image == b.image) {
        let Some(first) = group.first() else { continue };
        Image::change(&first.image, writing, |image| {
            group.iter().try_for_each(|place| change(image, place))
        })?;
    }
    Ok(())
}

/// Looks at every place, opening each image once as long as neighbours share it.
pub(crate) fn read_each(
    places: &[ImagePath],
    looking: &Looking,
    look: impl FnMut(&Image, &ImagePath) -> Outcome,
) -> Outcome {
    read_each_verified(places, looking, false, look)
}

/// Likewise; what is read of files that fs-verity seals is verified, if requested.
pub(crate) fn read_each_verified(
    places: &[ImagePath],
    looking: &Looking,
    verify: bool,
    mut look: impl FnMut(&Image, &ImagePath) -> Outcome,
) -> Outcome {
    for group in places.chunk_by(|a, b| a.image == b.image) {
        let Some(first) = group.first() else { continue };
        let image = Image::read_verified(&first.image, looking, verify)?;
        group.iter().try_for_each(|place| look(&image, place))?;
    }
    Ok(())
}
