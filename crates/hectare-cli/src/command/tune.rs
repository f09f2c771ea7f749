//! `hectare tune`.

mod values;

use crate::dumpe2fs::fields;
use crate::failure::{Failure, Outcome, tell};
use crate::image_device::{Hold, refuse_other, while_held};
use crate::logical::device;
use crate::name::{JsonName, shown};
use crate::output::Output;
use crate::partition_args::Part;
use crate::passwd::{gid, uid};
use crate::reproducible::epoch;
use hectare_device::os::OsStrExt;
use hectare_ext4::superblock::{OnError, SuperBlock};
use hectare_ext4::time::Timestamp;
use hectare_mkfs::parse_features;
use hectare_tune::{Changes, FeatureEdit, Reserved, tune};
use hectare_units::Blocks;
use serde::Serialize;
use std::path::PathBuf;

/// Change a volume's settings: label, UUID, features, journal
///
/// Takes tune2fs's options. Everything is tried on a copy in memory; where more than the superblock changes,
/// the volume is checked before and after, and nothing is written unless it is sound. A power cut leaves the
/// old or the new volume, or one that e2fsck -p finishes. The volume must not be mounted or open, and must
/// have been closed cleanly. Features that can be turned on and off: has_journal, dir_index, fast_commit,
/// orphan_file, mmp, metadata_csum, metadata_csum_seed, uninit_bg, casefold, quota, project, large_file,
/// huge_file, dir_nlink, extra_isize, read-only, 64bit, filetype, extent, flex_bg, sparse_super,
/// sparse_super2, resize_inode; on only: large_dir, ea_inode, encrypt, verity, stable_inodes.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
#[command(
    after_help = "Examples:\n  hectare tune -L data -m 1 disk.img\n  hectare tune -U random disk.img\n  \
    hectare tune -O ^has_journal disk.img\n  hectare tune -O metadata_csum,quota disk.img"
)]
pub(crate) struct Arguments {
    /// Print help
    #[arg(long, action = clap::ArgAction::HelpLong)]
    help: Option<bool>,
    /// The label, at most 16 bytes
    #[arg(short = 'L', long, value_name = "LABEL")]
    label: Option<String>,
    /// The UUID, or: clear, random, time
    #[arg(short = 'U', long, value_name = "UUID")]
    uuid: Option<String>,
    /// Blocks only root may take, in percent of all
    #[arg(short = 'm', long, value_name = "PERCENT", conflicts_with = "reserved_blocks")]
    reserved_percent: Option<String>,
    /// Blocks only root may take
    #[arg(short = 'r', long, value_name = "BLOCKS")]
    reserved_blocks: Option<u64>,
    /// The user who may take them, too
    #[arg(short = 'u', long, value_name = "USER", value_parser = uid)]
    reserved_user: Option<u32>,
    /// The group that may take them, too
    #[arg(short = 'g', long, value_name = "GROUP", value_parser = gid)]
    reserved_group: Option<u32>,
    /// What to do on errors: continue, remount-ro or panic
    #[arg(short = 'e', long, value_name = "BEHAVIOR")]
    errors: Option<OnError>,
    /// Mounts between two checks; 0 or -1 for never
    #[arg(short = 'c', long, value_name = "COUNT", allow_hyphen_values = true)]
    max_mounts: Option<i16>,
    /// Mounts since the last check
    #[arg(short = 'C', long, value_name = "COUNT")]
    mounts: Option<u16>,
    /// Time between two checks: a number of days, or with d, w, m or s; 0 for never
    #[arg(short = 'i', long, value_name = "INTERVAL", value_parser = values::interval)]
    check_interval: Option<u32>,
    /// Time of the last check: YYYYMMDD[HH[MM[SS]]] (UTC), now, or @SECONDS
    #[arg(short = 'T', long, value_name = "TIME")]
    last_checked: Option<String>,
    /// Where it was last mounted, at most 64 bytes
    #[arg(short = 'M', long, value_name = "DIRECTORY")]
    last_mounted: Option<String>,
    /// Default mount options, with ^ to clear one: acl, user_xattr, journal_data, discard...
    #[arg(short = 'o', long, value_name = "LIST", value_parser = values::mount_defaults)]
    mount_defaults: Option<values::MountEdits>,
    /// Bytes of an inode, more than now
    #[arg(short = 'I', long, value_name = "BYTES")]
    inode_size: Option<u32>,
    /// Features to turn on, with ^ to turn one off
    #[arg(short = 'O', long, value_name = "LIST")]
    features: Option<String>,
    /// Quotas to keep, with ^ not to: usrquota, grpquota, prjquota
    #[arg(short = 'Q', long, value_name = "LIST")]
    quotas: Option<String>,
    /// Add a journal
    #[arg(short = 'j', long)]
    journal: bool,
    /// The journal to add: size=MIB, location=BLOCK, fast_commit_size=KIB, or device=PATH, which is also how
    /// the one is named that ^has_journal leaves. A journal inside is replaced
    #[arg(short = 'J', long, value_name = "LIST")]
    journal_options: Option<String>,
    /// stride=, stripe_width=, hash_alg=, mount_opts=, mmp_update_interval=, clear_mmp, force_fsck,
    /// [^]test_fs
    #[arg(short = 'E', long, value_name = "LIST")]
    extended: Option<String>,
    /// With -E clear_mmp: the volume is not in use, whatever it says. With -J device: the journal is free,
    /// whatever it says. With ^has_journal: leave a journal elsewhere without looking for it
    #[arg(short = 'f', long)]
    force: bool,
    /// Print the superblock as it is then
    #[arg(short = 'l', long)]
    list: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The image or block device
    image: PathBuf,
    #[command(flatten)]
    part: Part,
}

#[derive(Serialize)]
struct Json {
    image: JsonName,
    changes: Vec<JsonChange>,
    in_place: bool,
}

#[derive(Serialize)]
struct JsonChange {
    field: &'static str,
    before: Option<String>,
    after: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let name = arguments.part.shown(&shown(arguments.image.as_os_str().as_bytes()));
    let changes = arguments.changes()?;
    let device = device(&arguments.image, arguments.part, Hold::Everybody)?;
    refuse_other(&*device, &name)?;
    let change = |device: &_| tune(device, &changes).map_err(|error| Failure::of(&name, error));
    // A mark that is to be cleared is not waited for.
    let outcome = if changes.clear_mmp {
        change(&device)?
    } else {
        while_held(&arguments.image, &name, &device, change)?
    };
    let changed = changed(&outcome.before, &outcome.after);
    if arguments.json {
        let image = JsonName(arguments.image.as_os_str().as_bytes().to_vec());
        return Output::report().json(&Json { image, changes: changed, in_place: outcome.in_place });
    }
    let mut out = Output::report();
    if outcome.in_place {
        tell(format_args!(
            "{name}: note: no journal could hold the changes, so a power cut would have needed e2fsck -fy"
        ));
    }
    if arguments.list {
        for (name, value) in fields(outcome.after.raw()) {
            writeln!(out, "{:<25} {value}", format!("{name}:"))?;
        }
        return out.finish();
    }
    for JsonChange { field, before, after } in &changed {
        let shown = |value: &Option<String>| {
            value.as_deref().map_or_else(|| "<none>".to_owned(), |v| shown(v.as_bytes()))
        };
        writeln!(out, "{field}: {} -> {}", shown(before), shown(after))?;
    }
    out.finish()
}

/// The fields that differ, but for those that every change touches.
fn changed(before: &SuperBlock, after: &SuperBlock) -> Vec<JsonChange> {
    const ALWAYS: [&str; 3] = ["Checksum", "Last write time", "Lifetime writes"];
    let (before, after) = (fields(before.raw()), fields(after.raw()));
    let value = |of: &[(&'static str, String)], name: &str| {
        of.iter().find(|(field, _)| *field == name).map(|(_, value)| value.clone())
    };
    let mut names: Vec<&'static str> = before.iter().chain(&after).map(|(name, _)| *name).collect();
    let mut seen = Vec::new();
    names.retain(|name| {
        !ALWAYS.contains(name) && !seen.contains(name) && {
            seen.push(name);
            true
        }
    });
    let pairs = names.into_iter().map(|field| (field, value(&before, field), value(&after, field)));
    let differing = pairs.filter(|(_, before, after)| before != after);
    differing.map(|(field, before, after)| JsonChange { field, before, after }).collect()
}

impl Arguments {
    /// What is to be changed.
    fn changes(&self) -> Outcome<Changes> {
        let usage = |reason: String| Failure::Usage(reason);
        let wrong = |error: hectare_mkfs::Error| Failure::Usage(error.to_string());
        let short = |number: Option<u32>, what: &str| {
            let narrow =
                |n: u32| u16::try_from(n).map_err(|_| Failure::Usage(format!("{what} {n} is above 65535")));
            number.map(narrow).transpose()
        };
        let now = epoch()?.map_or_else(Timestamp::now, Timestamp::from_seconds);
        let mut changes = Changes {
            label: self.label.as_ref().map(|label| label.as_bytes().to_vec()),
            last_mounted: self.last_mounted.as_ref().map(|directory| directory.as_bytes().to_vec()),
            uuid: self.uuid.as_deref().map(values::uuid).transpose()?,
            reserved: self.reserved()?,
            reserved_uid: short(self.reserved_user, "-u")?,
            reserved_gid: short(self.reserved_group, "-g")?,
            on_error: self.errors,
            mounts_max: self.max_mounts.map(|most| if most == 0 { -1 } else { most }),
            mounts: self.mounts,
            check_interval: self.check_interval,
            last_checked: self
                .last_checked
                .as_deref()
                .map(|text| values::time(text, now))
                .transpose()
                .map_err(usage)?,
            mount_defaults: self.mount_defaults.as_ref().map(|edits| edits.0.clone()).unwrap_or_default(),
            features: self
                .features
                .as_deref()
                .map(parse_features)
                .transpose()
                .map_err(wrong)?
                .unwrap_or_default(),
            quotas: self
                .quotas
                .as_deref()
                .map(values::quotas)
                .transpose()
                .map_err(usage)?
                .unwrap_or_default(),
            inode_size: self.inode_size,
            force: self.force,
            now,
            ..Changes::default()
        };
        if self.journal {
            let journal = hectare_ext4::feature::Compat::HAS_JOURNAL;
            changes.features.push(FeatureEdit::On(hectare_ext4::feature::Feature::Compat(journal)));
        }
        self.journal_options.as_deref().map(|list| values::journal(list, &mut changes)).transpose()?;
        self.extended
            .as_deref()
            .map(|list| values::extended(list, &mut changes))
            .transpose()
            .map_err(usage)?;
        if changes.clear_mmp && !self.force {
            return Err(Failure::Usage(
                "-E clear_mmp needs -f: make sure that nobody uses the volume".to_owned(),
            ));
        }
        Ok(changes)
    }

    fn reserved(&self) -> Outcome<Option<Reserved>> {
        if let Some(blocks) = self.reserved_blocks {
            return Ok(Some(Reserved::Blocks(Blocks::new(blocks))));
        }
        let Some(text) = &self.reserved_percent else { return Ok(None) };
        let share = values::thousandths(text).filter(|share| *share <= 50_000);
        let share = share.ok_or_else(|| Failure::Usage(format!("-m {text} is not a percentage up to 50")))?;
        Ok(Some(Reserved::Share(share)))
    }
}
