//! `hectare quota`.

use crate::failure::{Failure, Outcome};
use crate::image::Image;
use crate::name::JsonName;
use crate::output::Output;
use crate::passwd;
use crate::size_arg::parse_size;
use crate::write_args::{Looking, Writing};
use hectare_device::os::OsStrExt;
use hectare_engine::{QuotaKind, QuotaLimits, QuotaReport, QuotaResource};
use hectare_units::owner_number;
use serde::Serialize;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Show what users, groups and projects use, or set their limits
///
/// Lists every kind of quota that the volume has (mkfs -O quota), as repquota does: space in KiB; '+' marks
/// soft limits that are exceeded, and the time until they become hard ones follows. Ids that use nothing and
/// have no limits are left out.
///
/// With --set, limits of one user, group or project are set; 0 removes one. --grace sets for how long soft
/// limits of that kind may be exceeded, by anyone. Limits concern users of a mount, but not root.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hectare quota disk.img\n  hectare quota --set user:1000 --soft 1G --hard 2G \
    disk.img\n  hectare quota --set project --grace 7d disk.img\n  hectare quota --recount disk.img"
)]
pub(crate) struct Arguments {
    /// List users only
    #[arg(long, conflicts_with = "set")]
    user: bool,
    /// List groups only
    #[arg(long, conflicts_with = "set")]
    group: bool,
    /// List projects only
    #[arg(long, conflicts_with = "set")]
    project: bool,
    /// Whose limits to set: user:ID, group:ID or project:ID; without ID only --grace can be set
    #[arg(long, value_name = "KIND:ID", value_parser = Target::parse)]
    set: Option<Target>,
    /// Space that may be exceeded for a time
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "set")]
    soft: Option<u64>,
    /// Space that can't be exceeded
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "set")]
    hard: Option<u64>,
    /// Inodes that may be exceeded for a time
    #[arg(long, value_name = "N", requires = "set")]
    inodes_soft: Option<u64>,
    /// Inodes that can't be exceeded
    #[arg(long, value_name = "N", requires = "set")]
    inodes_hard: Option<u64>,
    /// How long soft limits of the kind may be exceeded: seconds, or with m, h, d or w
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "set")]
    grace: Option<u32>,
    /// Count what is used anew, by reading all inodes
    #[arg(long)]
    recount: bool,
    /// Print JSON; space in bytes
    #[arg(long, conflicts_with = "set")]
    json: bool,
    /// The image or block device
    image: PathBuf,
    #[command(flatten)]
    writing: Writing,
}

/// A kind of quota, and whose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Target {
    kind: QuotaKind,
    id: Option<u32>,
}

impl Target {
    /// Parses the argument, for clap.
    fn parse(text: &str) -> Result<Self, String> {
        let (kind, id) = text.split_once(':').map_or((text, None), |(kind, id)| (kind, Some(id)));
        let kind = QuotaKind::ALL.into_iter().find(|known| known.to_string() == kind);
        let kind = kind.ok_or("give user:ID, group:ID or project:ID")?;
        let number = |id: &str| match kind {
            QuotaKind::User => passwd::uid(id),
            QuotaKind::Group => passwd::gid(id),
            QuotaKind::Project => {
                owner_number(id.as_bytes()).ok_or_else(|| format!("'{id}' is not the number of a project"))
            }
        };
        let id = id.map(number).transpose()?;
        Ok(Self { kind, id })
    }
}

#[derive(Serialize)]
struct Json {
    image: JsonName,
    quotas: Vec<JsonQuota>,
}

#[derive(Serialize)]
struct JsonQuota {
    kind: String,
    space_grace: u32,
    inode_grace: u32,
    records: Vec<JsonRecord>,
}

#[derive(Serialize)]
struct JsonRecord {
    id: u32,
    space: JsonResource,
    inodes: JsonResource,
}

#[derive(Serialize)]
struct JsonResource {
    used: u64,
    soft: u64,
    hard: u64,
    /// Seconds since 1970, while the soft limit is exceeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    if arguments.set.is_none() && !arguments.recount {
        let looking = Looking::of(arguments.writing.part, arguments.writing.journal.clone(), false);
        return show(arguments, &Image::read(&arguments.image, &looking)?);
    }
    let recounts = arguments.recount;
    let image = Image::write_with(&arguments.image, &arguments.writing, |options| {
        options.recount_quotas = recounts;
    })?;
    let result = match arguments.set {
        Some(target) => set(arguments, &image, target),
        None => show(arguments, &image),
    };
    image.close(result)
}

fn set(arguments: &Arguments, image: &Image, target: Target) -> Outcome {
    let limits = QuotaLimits {
        space_soft: arguments.soft,
        space_hard: arguments.hard,
        inodes_soft: arguments.inodes_soft,
        inodes_hard: arguments.inodes_hard,
    };
    let failed = |error| Failure::of(image.name(), error);
    match target.id {
        Some(id) if limits != QuotaLimits::default() => {
            image.volume().set_quota(target.kind, id, &limits).map_err(failed)?;
        }
        None if limits != QuotaLimits::default() => {
            return Err(Failure::Usage(format!("--set {0}: whose? {0}:ID", target.kind)));
        }
        _ if arguments.grace.is_none() => {
            return Err(Failure::Usage("--set: give a limit or --grace".to_owned()));
        }
        _ => {}
    }
    match arguments.grace {
        Some(grace) => image.volume().set_quota_grace(target.kind, Some(grace), Some(grace)).map_err(failed),
        None => Ok(()),
    }
}

fn show(arguments: &Arguments, image: &Image) -> Outcome {
    let all = !(arguments.user || arguments.group || arguments.project);
    let asked = |kind: QuotaKind| match kind {
        QuotaKind::User => arguments.user,
        QuotaKind::Group => arguments.group,
        QuotaKind::Project => arguments.project,
    };
    let mut reports = image.volume().quotas().map_err(|error| Failure::of(image.name(), error))?;
    if reports.is_empty() {
        return Err(Failure::of(image.name(), "the volume has no quotas: make it with -O quota"));
    }
    reports.retain(|report| all || asked(report.kind));
    for report in &mut reports {
        report.records.retain(|(_, record)| !record.is_empty());
    }
    if arguments.json {
        let image = JsonName(arguments.image.as_os_str().as_bytes().to_vec());
        return Output::report().json(&Json { image, quotas: reports.iter().map(json_of).collect() });
    }
    let mut out = Output::report();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    for report in &reports {
        table(&mut out, image, report, now)?;
    }
    out.finish()
}

fn json_of(report: &QuotaReport) -> JsonQuota {
    let resource = |resource: &QuotaResource| JsonResource {
        used: resource.used,
        soft: resource.soft,
        hard: resource.hard,
        expires: Some(resource.expires).filter(|at| *at > 0),
    };
    let record = |(id, record): &(u32, hectare_engine::QuotaRecord)| JsonRecord {
        id: *id,
        space: resource(&record.space),
        inodes: resource(&record.inodes),
    };
    JsonQuota {
        kind: report.kind.to_string(),
        space_grace: report.space_grace,
        inode_grace: report.inode_grace,
        records: report.records.iter().map(record).collect(),
    }
}

fn table(out: &mut Output, image: &Image, report: &QuotaReport, now: u64) -> Outcome {
    writeln!(out, "*** Report for {} quotas on {}", report.kind, image.name())?;
    let (space, inodes) = (period(report.space_grace.into()), period(report.inode_grace.into()));
    writeln!(out, "Space grace time: {space}; inode grace time: {inodes}")?;
    writeln!(out, "{:<14}{:>32}{:>39}", "", "KiB", "inodes")?;
    let columns = "        used      soft      hard  grace";
    writeln!(out, "{:<14}{columns}{columns}", report.kind.to_string())?;
    for (id, record) in &report.records {
        let mark = |resource: &QuotaResource| if is_over(resource) { '+' } else { '-' };
        write!(out, "#{id:<11}{}{}", mark(&record.space), mark(&record.inodes))?;
        for (resource, shift) in [(&record.space, 10), (&record.inodes, 0)] {
            let unit = |n: u64| n.div_ceil(1 << shift);
            let (used, soft, hard) = (unit(resource.used), unit(resource.soft), unit(resource.hard));
            write!(out, "{used:>12}{soft:>10}{hard:>10} {:>6}", left(resource, now))?;
        }
        writeln!(out)?;
    }
    writeln!(out)
}

fn is_over(resource: &QuotaResource) -> bool {
    resource.soft > 0 && resource.used > resource.soft
}

/// How long a soft limit may still be exceeded.
fn left(resource: &QuotaResource, now: u64) -> String {
    match resource.expires {
        0 => String::new(),
        at if at <= now => "none".to_owned(),
        at => period(at - now),
    }
}

/// The units of times.
const UNITS: [(char, u64); 5] = [('w', 604_800), ('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];

/// A time in the largest unit, from days down, of which it has two or more, or which it is a multiple of.
fn period(seconds: u64) -> String {
    let fits =
        |unit: &&(char, u64)| seconds >= 2 * unit.1 || (seconds >= unit.1 && seconds.is_multiple_of(unit.1));
    let (letter, unit) = UNITS[1..].iter().find(fits).unwrap_or(&('s', 1));
    format!("{}{letter}", seconds / unit)
}

/// Parses a time, for clap.
fn parse_time(text: &str) -> Result<u32, String> {
    let unit = UNITS.iter().find(|(letter, _)| text.ends_with(*letter));
    let (number, unit) = unit.map_or((text, 1), |(_, unit)| (&text[..text.len() - 1], *unit));
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = number.parse::<u64>().ok().filter(|_| digits).and_then(|number| number.checked_mul(unit));
    seconds
        .and_then(|seconds| u32::try_from(seconds).ok())
        .ok_or_else(|| "it takes seconds, or a number with m, h, d or w".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_and_times_are_read_as_they_are_written() {
        let target = |kind, id| Ok(Target { kind, id });
        assert_eq!(Target::parse("user:1000"), target(QuotaKind::User, Some(1000)));
        assert_eq!(Target::parse("group:root"), target(QuotaKind::Group, Some(0)));
        assert_eq!(Target::parse("project"), target(QuotaKind::Project, None));
        for wrong in
            ["users:5", "project:x", "project:+5", "project:4294967295", "user:", "user::7", "user:5:7"]
        {
            assert!(Target::parse(wrong).is_err(), "{wrong}");
        }
        for (text, seconds) in [("90", 90), ("7d", 604_800), ("2w", 1_209_600), ("5m", 300), ("1h", 3600)] {
            assert_eq!(parse_time(text), Ok(seconds), "{text}");
        }
        assert!(
            parse_time("7y").is_err()
                && parse_time("+d").is_err()
                && parse_time("+5").is_err()
                && parse_time("99999999w").is_err()
        );
        assert_eq!(
            (period(604_800), period(5000), period(90), period(3600)),
            ("7d".into(), "83m".into(), "90s".into(), "1h".into())
        );
    }
}
