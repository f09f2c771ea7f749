//! `hectare repair`.

use crate::failure::{Failure, Outcome, tell};
use crate::image::journal_of;
use crate::image_device::{Hold, any_superblock, while_repaired};
use crate::logical::device;
use crate::memory::for_staging;
use crate::name::{JsonName, shown};
use crate::os;
use crate::output::Output;
use crate::partition_args::Part;
use crate::write_args::Journal;
use hectare_device::Device;
use hectare_device::os::OsStrExt;
use hectare_ext4::feature::Incompat;
use hectare_ext4::mmp::{Mmp, Status};
use hectare_ext4::superblock::SuperBlock;
use hectare_mmp::Hold as Mark;
use hectare_repair::{Error, Mend, Mends, Options, PageStore, Repaired, Staged, UndoError, write_out};
use hectare_units::BlockNr;
use serde::Serialize;
use serde::ser::{Error as _, SerializeSeq, Serializer};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Exit codes, those of e2fsck: something was mended, something is left. The [reporter](crate::reporter) knows
/// that of a failure.
const MENDED: u8 = 1;
const LEFT: u8 = 4;
/// Undo files beside one image at most.
const UNDO_FILES_MAX: u32 = 10_000;

/// Mend a broken volume
///
/// Does what e2fsck does, in memory: structures are made sound from what is left of them, what has two owners
/// is copied, what has no name gets one in lost+found. The result is checked, and only a sound volume is
/// written; if that can't be had, nothing is written and the reason is named. What was there goes to an undo
/// file first: 'hectare undo IMAGE FILE' puts it back. Without -n, -p or -y it asks for each kind of change.
///
/// A volume with multiple mount protection (mmp) is marked as in use meanwhile. If it says that another machine
/// has it, that is watched for 11 seconds or more, and the volume is repaired if the mark stands still; on a
/// server only with --takeover. A mark that is damaged is watched likewise.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hectare repair -n disk.img      what would be done\n  hectare repair -y \
                  disk.img      do it\n  hectare undo disk.img disk.img.undo-1\n\nExit codes: 0 sound, 1 \
                  mended, 4 something is left, 8 failed, 16 wrong usage."
)]
pub(crate) struct Arguments {
    /// Show what would be done, and write nothing
    #[arg(short = 'n', long, conflicts_with_all = ["preen", "yes"])]
    dry_run: bool,
    /// Mend only if nothing is lost by it
    #[arg(short = 'p', long, conflicts_with = "yes")]
    preen: bool,
    /// Mend everything, without questions
    #[arg(short = 'y', long)]
    yes: bool,
    /// The undo file [default: IMAGE.undo-1, or the first number that is free]
    #[arg(long, value_name = "FILE", conflicts_with = "no_undo")]
    undo: Option<PathBuf>,
    /// The undo file of a repair that was interrupted: what that had changed counts as it was before
    /// [default: the last IMAGE.undo-N that fits]
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Make no undo file
    #[arg(long)]
    no_undo: bool,
    /// What becomes of blocks that two files have, beside the first
    #[arg(long, value_enum, default_value_t = Duplicates::Clone)]
    duplicates: Duplicates,
    /// Mend at once although another machine may use the volume (multiple mount protection): it has crashed, or
    /// an e2fsck there was interrupted
    #[arg(long)]
    ignore_mmp: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Where a file without a name is made for what does not fit the memory that may be used (a quarter of
    /// --max-memory, or half of what is free) [default: TMPDIR, or where the undo file is made]
    #[arg(long, value_name = "DIR")]
    spill: Option<PathBuf>,
    /// The image or block device
    image: PathBuf,
    #[command(flatten)]
    journal: Journal,
    #[command(flatten)]
    part: Part,
}

impl Arguments {
    /// Whether each kind of change is asked for.
    fn asks(&self) -> bool {
        !(self.dry_run || self.preen || self.yes)
    }
}

/// What the later owner of a block gets.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Duplicates {
    /// A copy
    Clone,
    /// A hole
    Delete,
}

impl From<Duplicates> for hectare_repair::Duplicates {
    fn from(duplicates: Duplicates) -> Self {
        match duplicates {
            Duplicates::Clone => Self::Clone,
            Duplicates::Delete => Self::Delete,
        }
    }
}

#[derive(Serialize)]
struct Json<'a> {
    image: JsonName,
    clean: bool,
    written: bool,
    loses: bool,
    mends: JsonMends<'a>,
    unchecked: Vec<String>,
    undo: Option<JsonName>,
}

/// All mends, one after another.
struct JsonMends<'a>(&'a Mends);

impl Serialize for JsonMends<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for mend in self.0.iter() {
            list.serialize_element(&json(mend.map_err(S::Error::custom)?))?;
        }
        list.end()
    }
}

#[derive(Serialize)]
struct JsonMend {
    what: &'static str,
    place: String,
    text: String,
    loses: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let name = shown(arguments.image.as_os_str().as_bytes());
    if arguments.asks() && !std::io::stdin().is_terminal() {
        return Err(Failure::of(&name, "stdin is not a terminal: pass -n, -p or -y"));
    }
    let device = opened(arguments, &name)?;
    let done = if arguments.dry_run {
        refuse_in_use(arguments, &*device).map_err(|reason| Failure::of(&name, reason))?;
        mend(arguments, &device, &Mark::NOTHING, &name).map(|done| (done, Ok(())))
    } else {
        let ignores = arguments.ignore_mmp;
        while_repaired(&arguments.image, &name, &device, ignores, |device, mark| {
            mend(arguments, device, mark, &name)
        })
    };
    let (done, released) = done?;
    // What was done is reported even if the mark can't be taken away.
    let ended = tell_end(arguments, &done, &name);
    released?;
    ended
}

/// What became of a repair.
struct Done {
    repaired: Repaired,
    /// Whether the changes were wanted.
    agreed: bool,
    undo: Option<PathBuf>,
    /// Whether the volume had an MMP mark of another host, which was cleared.
    was_in_use: bool,
}

/// Finds out what is to be done, and does it if that is wanted.
fn mend(arguments: &Arguments, device: &Arc<dyn Device>, mark: &Mark, name: &str) -> Outcome<Done> {
    let staged = staged(arguments, device, name)?;
    let (now, duplicates) = (staged.now().unwrap_or_else(now), arguments.duplicates.into());
    let options = Options { now, duplicates, ..Options::default() };
    let repaired = match staged.repair(&options) {
        Ok(repaired) => repaired,
        Err(error @ (Error::Left { .. } | Error::NoSuperblock(_) | Error::Refused(_))) => {
            return Err(ended(format!("{name}: {error}; nothing was written"), LEFT));
        }
        Err(Error::Spill(error)) => return Err(no_room(name, &error)),
        Err(error) => return Err(Failure::of(name, error)),
    };
    if !arguments.json {
        print(&repaired, name)?;
    }
    let agreed = agree(arguments, &repaired, name)?;
    let writes = agreed && (!repaired.mends.is_empty() || staged.before().is_some());
    let undo = match writes {
        true => {
            mark.check().map_err(|error| Failure::of(name, error))?;
            write(arguments, &staged, &repaired, options.now, name)?
        }
        false => None,
    };
    Ok(Done { repaired, agreed, undo, was_in_use: mark.was_in_use() })
}

fn ended(line: String, code: u8) -> Failure {
    Failure::Ended { line: Some(line), code }
}

/// What has to be remembered has no room.
fn no_room(name: &str, error: &hectare_device::Error) -> Failure {
    let memory = for_staging().get() >> 20;
    let reason = format!(
        "{error}; nothing was written to it. What does not fit {memory} MiB of memory needs room there: \
         --spill names another directory, --max-memory a higher limit"
    );
    Failure::of(name, reason)
}

/// Where what is staged is kept.
fn store(arguments: &Arguments) -> Outcome<Arc<PageStore>> {
    if let Some(folder) = arguments.spill.as_deref().filter(|folder| !folder.is_dir()) {
        return Err(Failure::of(shown(folder.as_os_str().as_bytes()), "--spill needs a directory"));
    }
    let of_system = || std::env::var_os("TMPDIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let folder = arguments.spill.clone().or_else(of_system).unwrap_or_else(|| {
        // Beside what is no file (an address) there is no place.
        let beside = folder_of(&numbered(arguments, 1)).to_owned();
        if beside.is_dir() { beside } else { std::env::temp_dir() }
    });
    Ok(Arc::new(PageStore::within(for_staging(), folder)))
}

fn now() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    u32::try_from(since).unwrap_or(u32::MAX)
}

/// The device and that of its journal, with what an interrupted repair had changed as it was before.
fn staged(arguments: &Arguments, device: &Arc<dyn Device>, name: &str) -> Outcome<Staged> {
    let device = Arc::clone(device);
    let store = store(arguments)?;
    let journal = journal_of(&*device, &arguments.journal, hold(arguments))?;
    let last = || (1..UNDO_FILES_MAX).map(|n| numbered(arguments, n)).take_while(|path| path.exists()).last();
    let Some(path) = arguments.resume.clone().or_else(last) else {
        return Ok(Staged::with_journal(device, journal, &store));
    };
    let shown = shown(path.as_os_str().as_bytes());
    let resumed = File::open(&path).map_err(UndoError::File).and_then(|file| {
        Staged::resumed(Arc::clone(&device), journal.clone(), &mut BufReader::new(file), &store)
    });
    // It was being written, so the volume was not changed yet.
    let is_torn = |error: &UndoError| match error {
        UndoError::Broken(_) => true,
        UndoError::File(error) => error.kind() == ErrorKind::UnexpectedEof,
        _ => false,
    };
    match resumed {
        Ok(Some(staged)) => {
            tell(format_args!("{name}: a repair was interrupted: it begins again with what {shown} holds"));
            Ok(staged)
        }
        Err(error) if arguments.resume.is_some() || !is_torn(&error) => Err(Failure::of(&shown, error)),
        Ok(None) if arguments.resume.is_some() => {
            Err(Failure::of(&shown, format_args!("no repair of {name} that made it was interrupted")))
        }
        _ => Ok(Staged::with_journal(device, journal, &store)),
    }
}

/// Whom it locks out.
fn hold(arguments: &Arguments) -> Hold {
    if arguments.dry_run { Hold::Writers } else { Hold::Everybody }
}

/// The device, if it may be repaired.
fn opened(arguments: &Arguments, name: &str) -> Outcome<Arc<dyn Device>> {
    let device = device(&arguments.image, arguments.part, hold(arguments))?;
    if let Ok(Some(instead)) = hectare_probe::instead(&*device) {
        return Err(Failure::of(name, instead));
    }
    Ok(device)
}

/// Refuses to look at a volume that another machine may use. Where nothing can be read, there is nobody to
/// protect.
fn refuse_in_use(arguments: &Arguments, device: &dyn Device) -> Result<(), String> {
    let Some((nr, sb)) = mount_protection(device).filter(|_| !arguments.ignore_mmp) else { return Ok(()) };
    let size = sb.geometry().block_size;
    let mut block = vec![0; size.len()];
    if device.read_at(nr.offset(size), &mut block).is_err() {
        return Ok(());
    }
    match Mmp::parse(&block, nr, sb.seed()).map(|mmp| mmp.status) {
        Ok(Status::InUse { node, .. }) => {
            Err(format!("{node} uses it, or did when it crashed: if it did, say --ignore-mmp"))
        }
        _ => Ok(()),
    }
}

/// Where the multiple mount protection lies, if the volume has it.
fn mount_protection(device: &dyn Device) -> Option<(BlockNr, SuperBlock)> {
    let sb = any_superblock(device)?;
    let nr = BlockNr::new(sb.raw().s_mmp_block.get());
    let on_volume = nr.get() < sb.geometry().blocks_count.get();
    (sb.features().incompat.contains(Incompat::MMP) && on_volume).then_some((nr, sb))
}

fn print(repaired: &Repaired, name: &str) -> Outcome {
    let mut out = Output::report();
    for mend in repaired.mends.iter() {
        let mend = mend.map_err(|error| Failure::of(name, error))?;
        writeln!(out, "{}{mend}", if mend.loses { "! " } else { "  " })?;
    }
    for what in &repaired.unchecked {
        writeln!(out, "not checked: {what}")?;
    }
    if repaired.mends.is_empty() {
        writeln!(out, "{name}: sound")?;
    }
    out.finish()
}

/// Whether what was found out may be written.
fn agree(arguments: &Arguments, repaired: &Repaired, name: &str) -> Outcome<bool> {
    if arguments.dry_run {
        return Ok(false);
    }
    if arguments.preen {
        return Ok(!repaired.loses());
    }
    if !arguments.asks() {
        return Ok(true);
    }
    for (class, all, losing) in repaired.mends.subjects() {
        let question =
            format!("{}: {all} changes, {losing} of them lose something. Mend? [y/N] ", class.name());
        if !says_yes(&question).map_err(|error| Failure::of(name, format_args!("no answer: {error}")))? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn says_yes(question: &str) -> std::io::Result<bool> {
    let mut out = std::io::stdout();
    out.write_all(question.as_bytes()).and_then(|()| out.flush())?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// Writes the volume, and gives the undo file.
fn write(
    arguments: &Arguments,
    staged: &Staged,
    repaired: &Repaired,
    now: u32,
    name: &str,
) -> Outcome<Option<PathBuf>> {
    let error = |error: UndoError| match error {
        UndoError::Spill(error) => no_room(name, &error),
        other => Failure::of(name, other),
    };
    staged.settle().map_err(error)?;
    let undo = if arguments.no_undo { None } else { Some(undo_file(arguments)?) };
    let (path, file) = undo.unzip();
    let sync = || match file.as_ref().zip(path.as_ref()) {
        Some((file, path)) => file.sync_all().and_then(|()| os::sync_directory(folder_of(path))),
        None => Ok(()),
    };
    write_out(staged, &repaired.order, now, file.as_ref().map(BufWriter::new), sync).map_err(error)?;
    Ok(path)
}

/// The directory that a file lies in.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The undo file of a number; that of a device node in the current directory, as beside it is no place for a
/// file.
fn numbered(arguments: &Arguments, number: u32) -> PathBuf {
    let in_dev = std::fs::metadata(&arguments.image).is_ok_and(|image| os::is_block_device(&image));
    let own = arguments.image.file_name().filter(|_| in_dev).map(PathBuf::from);
    let mut path = own.unwrap_or_else(|| arguments.image.clone()).into_os_string();
    path.push(format!(".undo-{number}"));
    PathBuf::from(path)
}

/// Makes the undo file, which must not be there yet, for its owner alone: it holds blocks of the volume, whoever
/// may read that.
fn undo_file(arguments: &Arguments) -> Outcome<(PathBuf, File)> {
    let create = |path: &Path| os::new_file(path, 0o600);
    let refused = |path: &Path, error: &std::io::Error| {
        Failure::of(shown(path.as_os_str().as_bytes()), format_args!("{error}; --undo names another place"))
    };
    if let Some(path) = &arguments.undo {
        let file = create(path).map_err(|error| refused(path, &error))?;
        return Ok((path.clone(), file));
    }
    for path in (1..UNDO_FILES_MAX).map(|number| numbered(arguments, number)) {
        match create(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(refused(&path, &error)),
        }
    }
    Err(Failure::of(
        shown(arguments.image.as_os_str().as_bytes()),
        "it has too many undo files: --undo names another place",
    ))
}

fn tell_end(arguments: &Arguments, done: &Done, name: &str) -> Outcome {
    let (repaired, undo) = (&done.repaired, done.undo.as_deref());
    let written = done.agreed && !repaired.mends.is_empty();
    if arguments.json {
        Output::report().long_json(&Json {
            image: JsonName(arguments.image.as_os_str().as_bytes().to_vec()),
            clean: repaired.mends.is_empty(),
            written,
            loses: repaired.loses(),
            mends: JsonMends(&repaired.mends),
            unchecked: repaired.unchecked.clone(),
            undo: undo.map(|path| JsonName(path.as_os_str().as_bytes().to_vec())),
        })?;
    }
    if repaired.mends.is_empty() {
        if !done.was_in_use {
            return Ok(());
        }
        tell(format_args!("{name}: the MMP mark of another host was cleared; nothing else was wrong"));
        return Err(Failure::Ended { line: None, code: MENDED });
    }
    let count = repaired.mends.len();
    if !written {
        let why = if arguments.preen { ", some of which lose something: -y makes them" } else { "" };
        let line = format!("{name}: {} would make it sound{why}; nothing was written", changes(count));
        return Err(ended(line, LEFT));
    }
    if !arguments.json {
        let mut out = Output::report();
        writeln!(out, "{name}: mended by {}", changes(count))?;
        if let Some(undo) = undo {
            let undo = shown(undo.as_os_str().as_bytes());
            writeln!(out, "'hectare undo {name} {undo}' puts back what was there")?;
        }
        out.finish()?;
    }
    Err(Failure::Ended { line: None, code: MENDED })
}

/// So many changes.
fn changes(count: u64) -> String {
    if count == 1 { "1 change".to_owned() } else { format!("{count} changes") }
}

fn json(mend: Mend) -> JsonMend {
    let Mend { what, place, text, loses } = mend;
    JsonMend { what: what.code(), place: place.to_string(), text, loses }
}
