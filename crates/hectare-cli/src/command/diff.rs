//! `hectare diff`.

use crate::clock;
use crate::directory::Directory;
use crate::entry::words;
use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::name::{JsonName, shown};
use crate::output::{JsonArray, Output};
use crate::write_args::Looking;
use hectare_export::{Change, Comparison, Difference, Ignored, What};
use hectare_units::hex;
use serde::Serialize;

/// Compare the content of two images
///
/// Names, kinds, modes, owners, times of modification, link targets, device numbers, extended attributes,
/// hard links and content are compared; where the data lies, holes, access and creation times, inode numbers
/// and an empty lost+found at the root are not.
///
/// One line for each path that differs: - is only in A, + only in B, ~ in both.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare diff old.img new.img\n  \
    hectare diff --ignore-times old.img:/etc new.img:/etc\n\n\
    Exit codes: 0 no difference, 1 differences, 2 the comparison failed, or wrong usage.")]
pub(crate) struct Arguments {
    /// Don't compare times of modification
    #[arg(long)]
    ignore_times: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// An image, or a directory in it
    #[arg(value_name = "IMAGE[:DIR]", value_parser = ImagePath::parser())]
    old: ImagePath,
    /// Another one, in the same partition or at the same offset
    #[arg(value_name = "IMAGE[:DIR]", value_parser = ImagePath::parser())]
    new: ImagePath,
    #[command(flatten)]
    looking: Looking,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let old = Directory::open(&arguments.old, &arguments.looking)?;
    let new = Directory::open(&arguments.new, &arguments.looking)?;
    let (show_old, show_new) = (|path: &[u8]| old.show(path), |path: &[u8]| new.show(path));
    let trees = (old.tree(&show_old), new.tree(&show_new));
    let ignored = Ignored { times: arguments.ignore_times };
    let mut comparison = Comparison::new(&trees.0, &trees.1, ignored);
    let mut report =
        Report { out: Output::listing(), array: arguments.json.then(JsonArray::default), count: 0 };
    let result = report.run(&mut comparison);
    let count = report.count;
    let finished = report.finish(result.is_err());
    match result.and(finished) {
        // A reader that has gone wants no more differences; the verdict stands.
        Ok(()) | Err(Failure::Output(None)) if count > 0 => Err(Failure::Different),
        Err(Failure::Output(None)) => Ok(()),
        other => other,
    }
}

/// The differences that are being printed.
struct Report {
    out: Output,
    /// The array they are in, with `--json`.
    array: Option<JsonArray>,
    count: u64,
}

impl Report {
    fn run(&mut self, comparison: &mut Comparison<'_>) -> Outcome {
        let failed = |error: hectare_export::Error| Failure::Line(error.to_string());
        while let Some(difference) = comparison.next_difference().map_err(failed)? {
            self.count += 1;
            match &mut self.array {
                Some(array) => array.push(&mut self.out, &Json::of(&difference))?,
                None => self.line(&difference)?,
            }
        }
        Ok(())
    }

    fn finish(self, wrong: bool) -> Outcome {
        match self.array {
            Some(array) => array.finish(self.out, wrong),
            None => self.out.finish(),
        }
    }

    fn line(&mut self, difference: &Difference) -> Outcome {
        let sign = match difference.what {
            What::Removed(_) => '-',
            What::Added(_) => '+',
            What::Changed(_) => '~',
        };
        write!(self.out, "{sign} ")?;
        self.out.name(shown_path(difference))?;
        if let What::Changed(changes) = &difference.what {
            let changes: Vec<String> = changes.iter().map(text).collect();
            write!(self.out, ": {}", changes.join(", "))?;
        }
        writeln!(self.out)
    }
}

/// The path, or a dot for the directory itself.
fn shown_path(difference: &Difference) -> &[u8] {
    if difference.path.is_empty() { b"." } else { &difference.path }
}

/// A change in words.
fn text(change: &Change) -> String {
    let file = |first: &Option<Vec<u8>>| match first {
        None => "a file of its own".to_owned(),
        Some(first) => format!("hard link to {}", shown(first)),
    };
    match change {
        Change::Kind(old, new) => format!("{} -> {}", words(*old), words(*new)),
        Change::Mode(old, new) => format!("mode {old:04o} -> {new:04o}"),
        Change::Uid(old, new) => format!("uid {old} -> {new}"),
        Change::Gid(old, new) => format!("gid {old} -> {new}"),
        Change::Mtime(old, new) => format!("mtime {} -> {}", clock::json(*old), clock::json(*new)),
        Change::Target(old, new) => format!("target {} -> {}", shown(old), shown(new)),
        Change::Device(old, new) => {
            format!("device {}:{} -> {}:{}", old.major, old.minor, new.major, new.minor)
        }
        Change::Xattr(name, old, new) => {
            let what = match (old, new) {
                (None, _) => "added",
                (_, None) => "removed",
                _ => "changed",
            };
            format!("xattr {} {what}", shown(name))
        }
        Change::HardLink(old, new) => format!("{} -> {}", file(old), file(new)),
        Change::Size(old, new) => format!("size {old} -> {new}"),
        Change::Content(at) => format!("content differs at byte {at}"),
    }
}

/// A difference in JSON.
#[derive(Serialize)]
struct Json {
    path: JsonName,
    what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<JsonChange>,
}

/// A change in JSON: of what, and both values.
#[derive(Serialize, Default)]
struct JsonChange {
    of: &'static str,
    /// The name of an extended attribute; its values are hexadecimal digits, `null` where it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<JsonName>,
    /// The first byte that differs, instead of two values.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    old: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new: Option<serde_json::Value>,
}

impl Json {
    fn of(difference: &Difference) -> Self {
        let path = JsonName(shown_path(difference).to_vec());
        let (what, kind, changes) = match &difference.what {
            What::Removed(kind) => ("removed", Some(words(*kind)), Vec::new()),
            What::Added(kind) => ("added", Some(words(*kind)), Vec::new()),
            What::Changed(changes) => ("changed", None, changes.iter().map(JsonChange::of).collect()),
        };
        Self { path, what, kind, changes }
    }
}

impl JsonChange {
    fn of(change: &Change) -> Self {
        let name = |bytes: &Option<Vec<u8>>| bytes.clone().map(JsonName);
        match change {
            Change::Kind(old, new) => Self::values("kind", words(*old), words(*new)),
            Change::Mode(old, new) => Self::values("mode", format!("{old:04o}"), format!("{new:04o}")),
            Change::Uid(old, new) => Self::values("uid", old, new),
            Change::Gid(old, new) => Self::values("gid", old, new),
            Change::Mtime(old, new) => Self::values("mtime", clock::json(*old), clock::json(*new)),
            Change::Target(old, new) => Self::values("target", JsonName(old.clone()), JsonName(new.clone())),
            Change::Device(old, new) => {
                Self::values("device", [old.major, old.minor], [new.major, new.minor])
            }
            Change::Xattr(xattr, old, new) => {
                let value = |value: &Option<Vec<u8>>| value.as_deref().map(hex);
                let values = Self::values("xattr", value(old), value(new));
                Self { name: Some(JsonName(xattr.clone())), ..values }
            }
            Change::HardLink(old, new) => Self::values("hard_link", name(old), name(new)),
            Change::Size(old, new) => Self::values("size", old.get(), new.get()),
            Change::Content(at) => Self { of: "content", at: Some(at.get()), ..Self::default() },
        }
    }

    fn values<T: Serialize>(of: &'static str, old: T, new: T) -> Self {
        let value = |value: T| serde_json::to_value(value).ok();
        Self { of, old: value(old), new: value(new), ..Self::default() }
    }
}
