//! `hectare mkfs.xfs`, or `hectare mkfs -t xfs`.

use super::image_arguments::ImageArguments;
use super::target::Goal;
use super::watched;
use crate::disk_format::refuse_disk_format_name;
use crate::failure::{Failure, Outcome};
use crate::image_device::is_there;
use crate::reproducible::epoch;
use hectare_device::os::OsStrExt;
use hectare_mkfs::xfs::{FormatOptions, Plan, execute, parse};
use hectare_units::{Bytes, hex};
use hectare_xfs::{Incompat, RoCompat, Volume};
use serde::Serialize;
use std::ffi::OsString;

/// Make an empty XFS volume
///
/// Takes mkfs.xfs's options, with the defaults of xfsprogs 6.1. SIZE is in bytes, or has a suffix: b
/// (blocks), s (sectors), k, m, g, t, p, e. A missing image file is created, and needs SIZE; it appears only
/// when it is complete.
///
/// An existing file system or partition table is not overwritten unless -f is given.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare mkfs -t xfs disk.img 10g\n  \
    hectare mkfs -t xfs -L data -m rmapbt=1 -d su=64k,sw=4 disk.img 1t\n  \
    hectare mkfs -t xfs -N disk.img 1e")]
pub(crate) struct Arguments {
    /// Blocks: size=1024 to 65536
    #[arg(short = 'b', value_name = "size=BYTES")]
    block: Vec<String>,
    /// Sectors: size=512 to 32768
    #[arg(short = 's', value_name = "size=BYTES")]
    sector: Vec<String>,
    /// Metadata: uuid=, finobt=, rmapbt=, reflink=, bigtime=, inobtcount=, crc=1
    #[arg(short = 'm', value_name = "OPTION=VALUE,...")]
    metadata: Vec<String>,
    /// Space: size=, agcount= or agsize=, su= and sw= or sunit= and swidth=, noalign
    #[arg(short = 'd', value_name = "OPTION=VALUE,...")]
    data: Vec<String>,
    /// Inodes: size= or perblock=, maxpct=, sparse=, nrext64=
    #[arg(short = 'i', value_name = "OPTION=VALUE,...")]
    inodes: Vec<String>,
    /// The log: size=, su= or sunit=
    #[arg(short = 'l', value_name = "OPTION=VALUE,...")]
    log: Vec<String>,
    /// Directories: size=, ftype=1
    #[arg(short = 'n', value_name = "OPTION=VALUE,...")]
    naming: Vec<String>,
    /// The label, up to 12 bytes
    #[arg(short = 'L', value_name = "LABEL")]
    label: Option<OsString>,
    /// Don't discard the device's old content first
    #[arg(short = 'K')]
    keep: bool,
    /// Overwrite existing content of the image
    #[arg(short = 'f', long)]
    force: bool,
    /// Only print what would be made
    #[arg(short = 'N', long)]
    dry_run: bool,
    /// Refused: a realtime section
    #[arg(short = 'r', value_name = "OPTION=VALUE,...")]
    realtime: Option<OsString>,
    /// Refused: a prototype of the content
    #[arg(short = 'p', value_name = "FILE")]
    prototype: Option<OsString>,
    /// Refused: a file of options
    #[arg(short = 'c', value_name = "options=FILE")]
    configuration: Option<OsString>,
    #[command(flatten)]
    image: ImageArguments,
}

impl Arguments {
    /// Refuses what can't be made.
    fn refuse(&self) -> Outcome {
        let refused = [
            (&self.realtime, "-r: realtime sections can't be made"),
            (&self.prototype, "-p: the volume is made empty; fill it with `hectare mount` or the kernel"),
            (&self.configuration, "-c: files of options are not read; give the options themselves"),
        ];
        let found = refused.into_iter().find(|(given, _)| given.is_some());
        found.map_or(Ok(()), |(_, reason)| Err(Failure::of("mkfs.xfs", reason)))
    }

    fn options(&self) -> hectare_mkfs::Result<FormatOptions> {
        let mut options = FormatOptions::from_environment()?;
        let lists = [
            ('b', &self.block),
            ('s', &self.sector),
            ('m', &self.metadata),
            ('d', &self.data),
            ('i', &self.inodes),
            ('l', &self.log),
            ('n', &self.naming),
        ];
        let lists = lists
            .into_iter()
            .flat_map(|(letter, lists)| lists.iter().map(move |list| (letter, list.as_str())));
        // A size after the image is another way to give the volume's size.
        let size = self.image.size.as_deref().map(|size| format!("size={size}"));
        let lists: Vec<_> = lists.chain(size.as_deref().map(|size| ('d', size))).collect();
        parse(&mut options, &lists)?;
        options.discard = !self.keep;
        options.label = self.label.as_ref().map(|label| label.as_bytes().to_vec()).unwrap_or_default();
        Ok(options)
    }
}

/// Flags of `mkfs.xfs`. `-N` has a value in `mkfs`, but a number, not `t`.
const FLAGS: &[u8] = b"qKfN";

/// `mkfs -t xfs` becomes `mkfs.xfs`, whose options differ from those of `mkfs`; other arguments stay.
pub(crate) fn hand_over(mut arguments: Vec<OsString>, program: &clap::Command) -> Vec<OsString> {
    let command = super::command_at(&arguments, program);
    if arguments.get(command).is_none_or(|command| command != "mkfs") {
        return arguments;
    }
    let end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    let names_xfs = |at: usize| arguments.get(at).is_some_and(|kind| kind == "xfs");
    // The option may follow flags, as in `-qt xfs`: the rest of the word, and what the type takes.
    let found = (command + 1..end).find_map(|at| {
        let word = arguments[at].as_bytes();
        let flags = word.iter().skip(1).take_while(|flag| FLAGS.contains(flag)).count() + 1;
        let (before, option) = word.split_at_checked(flags).filter(|_| word[0] == b'-')?;
        match option {
            b"txfs" | b"t=xfs" => Some((before.to_vec(), at..at + 1)),
            b"t" if names_xfs(at + 1) => Some((before.to_vec(), at..at + 2)),
            _ => None,
        }
    });
    if let Some((before, found)) = found {
        // Flags are ASCII.
        let kept = (before.len() > 1).then(|| String::from_utf8_lossy(&before).into_owned().into());
        arguments.splice(found, kept);
        arguments[command] = "mkfs.xfs".into();
    }
    arguments
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let image = &arguments.image;
    let failed = |error: hectare_mkfs::Error| match error {
        hectare_mkfs::Error::Option { .. } => Failure::Line(format!("mkfs.xfs: {error}")),
        _ => image.failed(&error),
    };
    arguments.refuse()?;
    refuse_disk_format_name(&image.image, image.part.is_whole() && !is_there(&image.image))?;
    let mut options = arguments.options().map_err(failed)?;
    if arguments.dry_run {
        let (size, device) = image.look(options.size)?;
        options.device = device;
        identify(&mut options, size)?;
        return say(image, &Plan::new(&options, size, true).map_err(failed)?);
    }
    // An impossible request is refused before anything is modified.
    if let Some(size) = options.size {
        Plan::new(&options, size, true).map_err(failed)?;
    }
    let goal = Goal::open(&image.image, image.part, &image.shown(), options.size, arguments.force)?;
    let device = goal.device();
    options.device = goal.topology();
    identify(&mut options, device.len())?;
    let plan = Plan::new(&options, device.len(), device.is_zeroed()).map_err(failed)?;
    // Rendering a group takes a fifth of the time that the host takes to write it: a second thread gains less
    // than it costs to pass the rendered group from one processor to another.
    watched(1, |run| execute(&plan, device, run)).map_err(failed)?;
    goal.finish()?;
    say(image, &plan)
}

/// With `SOURCE_DATE_EPOCH` the same request gives the same volume.
fn identify(options: &mut FormatOptions, size: Bytes) -> Outcome {
    if epoch()?.is_some() {
        options.derive_identity(size);
    }
    Ok(())
}

#[derive(Serialize)]
struct Json {
    blocks: u64,
    block_size: u32,
    sector_size: u32,
    inode_size: u32,
    groups: u32,
    group_blocks: u32,
    log_blocks: u32,
    log_group: u32,
    stripe_unit_blocks: u32,
    stripe_width_blocks: u32,
    inode_percent: u8,
    root_inode: u64,
    uuid_hex: String,
    features: Vec<String>,
}

/// Prints what was made, as mkfs.xfs does.
fn say(image: &ImageArguments, plan: &Plan) -> Outcome {
    let volume = plan.volume();
    let stripe = volume.stripe.map_or((0, 0), |stripe| (stripe.unit, stripe.width));
    let names = volume.ro_compat.iter_names().map(|(name, _)| name);
    let names = names.chain(volume.incompat.iter_names().map(|(name, _)| name));
    let json = Json {
        blocks: volume.blocks.get(),
        block_size: volume.block_size.get(),
        sector_size: volume.sector_size,
        inode_size: volume.inode_size,
        groups: volume.groups,
        group_blocks: volume.group_blocks,
        log_blocks: volume.log.run.len,
        log_group: volume.log.group.get(),
        stripe_unit_blocks: stripe.0,
        stripe_width_blocks: stripe.1,
        inode_percent: volume.inode_percent,
        root_inode: volume.root_inode(),
        uuid_hex: hex(&volume.uuid),
        features: names.map(str::to_lowercase).collect(),
    };
    image.say(json, plan.notes(), table(volume, &image.shown(), stripe))
}

/// The lines that mkfs.xfs prints, with its columns: section, kind, and values.
fn table(volume: &Volume, image: &str, stripe: (u32, u32)) -> Vec<String> {
    let ro = |feature| u8::from(volume.ro_compat.contains(feature));
    let incompat = |feature| u8::from(volume.incompat.contains(feature));
    let (finobt, rmapbt) = (ro(RoCompat::FINOBT), ro(RoCompat::RMAPBT));
    let (reflink, inobtcount) = (ro(RoCompat::REFLINK), ro(RoCompat::INOBTCOUNT));
    let (sparse, bigtime) = (incompat(Incompat::SPINODES), incompat(Incompat::BIGTIME));
    let nrext64 = incompat(Incompat::NREXT64);
    let Volume { inode_size, groups, group_blocks, sector_size, inode_percent, .. } = volume;
    let (block, naming) = (volume.block_size.get(), volume.directory_block_size);
    let (blocks, log, log_unit) = (volume.blocks.get(), volume.log.run.len, volume.log.unit / block);
    let real_time = block.max(4096);
    let rows = [
        ("meta-data", image, format!("isize={inode_size:<6} agcount={groups}, agsize={group_blocks} blks")),
        ("", "", format!("sectsz={sector_size:<5} attr=2, projid32bit=1")),
        ("", "", format!("crc=1        finobt={finobt}, sparse={sparse}, rmapbt={rmapbt}")),
        ("", "", format!("reflink={reflink:<4} bigtime={bigtime} inobtcount={inobtcount} nrext64={nrext64}")),
        ("data", "", format!("bsize={block:<6} blocks={blocks}, imaxpct={inode_percent}")),
        ("", "", format!("sunit={:<6} swidth={} blks", stripe.0, stripe.1)),
        ("naming", "version 2", format!("bsize={naming:<6} ascii-ci=0, ftype=1")),
        ("log", "internal log", format!("bsize={block:<6} blocks={log}, version=2")),
        ("", "", format!("sectsz={sector_size:<5} sunit={log_unit} blks, lazy-count=1")),
        ("realtime", "none", format!("extsz={real_time:<6} blocks=0, rtextents=0")),
    ];
    rows.into_iter().map(|(name, kind, values)| format!("{name:<9}={kind:<23}{values}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_type_xfs_hands_over() {
        let handed = |words: &str| {
            let words = words.split(' ').map(OsString::from).collect();
            let words = hand_over(words, &crate::Cli::command());
            words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(handed("hectare mkfs -n size=8192 -t xfs a 1g"), "hectare mkfs.xfs -n size=8192 a 1g");
        assert_eq!(handed("hectare mkfs -txfs a"), "hectare mkfs.xfs a");
        assert_eq!(handed("hectare mkfs -qt xfs a"), "hectare mkfs.xfs -q a");
        assert_eq!(handed("hectare mkfs -qtxfs a"), "hectare mkfs.xfs -q a");
        assert_eq!(handed("hectare mkfs -Kft xfs a"), "hectare mkfs.xfs -Kf a");
        assert_eq!(handed("hectare mkfs -Nt xfs a 1g"), "hectare mkfs.xfs -N a 1g");
        assert_eq!(handed("hectare --max-memory 1G mkfs -t xfs a"), "hectare --max-memory 1G mkfs.xfs a");
        for same in [
            "hectare mkfs -t ext4 a",
            "hectare mkfs -N 12 a",
            "hectare ls -t xfs",
            "hectare rm mkfs -t xfs",
            "hectare mkfs -- -t xfs",
            "hectare mkfs -t",
            "hectare mkfs",
            "hectare",
            "hectare mkfs - t",
        ] {
            assert_eq!(handed(same), same);
        }
    }
}
