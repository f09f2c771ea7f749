//! Reads `repart.d` files, the descriptions of `systemd-repart`, as far as they say what this crate does.
//!
//! One file describes one partition, in the order of their names. Keys that would make another image if they
//! were left out are errors by name; those that only matter to other programs, or to a disk that exists
//! already, are warnings. A partition has 10 MiB at least, starts on 4 KiB, and has its type as its name if
//! it has none; the first starts at 1 MiB. Without a size of the disk all are as small as they can be; with
//! one they share the rest by weight.
//!
//! Differences: a partition always becomes as large as its files need (`systemd-repart` fails then); FAT32 is
//! not forced on volumes that are too small for it; a partition with a hash tree does not grow.
//!
//! Facts: `repart.d(5)`, compared with what systemd 252 makes.

mod ini;

use crate::attributes::{GROW_FS, NO_AUTO, READ_ONLY};
use crate::error::{Error, Result, io_reason};
use crate::spec::convert::{fat_label, partition_name, uuid};
use crate::spec::{
    Content, Ext, Fat, Files, Partition, PartitionType, Rule, Sizing, Spec, TableKind, Verity, Xfs,
};
use crate::types;
use hectare_mkfs::{FormatOptions, FsType, parse_size};
use hectare_populate::{Addition, Options};
use ini::{File, Line};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The smallest size of a partition that gives none.
const LEAST: u64 = 10 << 20;
const GRAIN: u64 = 4096;
const FIRST: u64 = 1 << 20;
/// The weight of a partition that gives none.
const WEIGHT: u32 = 1000;
/// The most bytes of a description, which are a few lines.
const TEXT_MAX: u64 = 1 << 20;

/// Keys that matter elsewhere: what they are for.
const IGNORED: [(&str, &str); 6] = [
    ("Priority", "every partition is made"),
    ("PaddingWeight", "no space is left between partitions"),
    ("FactoryReset", "it is for disks that are there"),
    ("SplitName", "no partition is written to a file of its own"),
    ("MountPoint", "no fstab is written"),
    ("EncryptedVolume", "no crypttab is written"),
];

/// Keys that would make another image.
const REFUSED: [&str; 14] = [
    "PaddingMinBytes",
    "PaddingMaxBytes",
    "ExcludeFiles",
    "ExcludeFilesTarget",
    "MakeDirectories",
    "MakeSymlinks",
    "Subvolumes",
    "DefaultSubvolume",
    "Compression",
    "CompressionLevel",
    "SupplementFor",
    "VerityDataBlockSizeBytes",
    "VerityHashBlockSizeBytes",
    "AddValidateFS",
];

impl Spec {
    /// Reads the files of a directory that say what `systemd-repart` is to make. `root` is where paths of
    /// files to be copied start.
    ///
    /// # Errors
    /// With the file, the line and the key; also for keys that this does not do.
    pub fn from_repart(directory: &Path, root: &Path) -> Result<Self> {
        spec(directory, root)
    }

    /// Reads texts of `repart.d` files, each with its name.
    ///
    /// # Errors
    /// As [`Self::from_repart`].
    pub fn from_repart_texts(files: &[(String, String)], root: &Path) -> Result<Self> {
        of_texts(files, root)
    }
}

/// Reads the files of a directory.
fn spec(directory: &Path, root: &Path) -> Result<Spec> {
    let shown = directory.display().to_string();
    let failed = |error: &std::io::Error| Error::part(&shown, io_reason(error));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(|error| failed(&error))? {
        let name = entry.map_err(|error| failed(&error))?.file_name();
        if Path::new(&name).extension().is_some_and(|extension| extension == "conf") {
            names.push(name);
        }
    }
    names.sort();
    let mut texts = Vec::new();
    for name in names {
        let path = directory.join(name);
        let shown = path.display().to_string();
        let failed = |error: &dyn std::fmt::Display| Error::part(&shown, error);
        let data = std::fs::metadata(&path).map_err(|error| failed(&io_reason(&error)))?;
        if data.len() > TEXT_MAX {
            return Err(failed(&"it is too long for a description"));
        }
        let text = std::fs::read(&path).map_err(|error| failed(&io_reason(&error)))?;
        let text = String::from_utf8(text).map_err(|_| failed(&"it is no UTF-8"))?;
        texts.push((shown, text));
    }
    if texts.is_empty() {
        return Err(Error::part(shown, "there is no file *.conf"));
    }
    of_texts(&texts, root)
}

/// Reads texts, each with its name.
fn of_texts(texts: &[(String, String)], root: &Path) -> Result<Spec> {
    let mut reader = Reader { root, warnings: Vec::new() };
    let mut read = Vec::new();
    for (name, text) in texts {
        read.push(reader.partition(&ini::parse(name, text)?)?);
    }
    if let Some((_, (file, _))) = texts.iter().enumerate().nth(128) {
        return Err(Error::part(file, "a table has room for 128 partitions"));
    }
    let mut partitions = matched(read)?;
    if let Some(first) = partitions.first_mut() {
        first.align = Some(FIRST);
    }
    Ok(Spec {
        file: texts.first().map(|(name, _)| name.clone()).unwrap_or_default(),
        table: TableKind::Gpt,
        sector: 512,
        align: GRAIN,
        round: GRAIN,
        size: None,
        uuid: None,
        disk_id: None,
        boot_code: None,
        blobs: Vec::new(),
        partitions,
        warnings: reader.warnings,
    })
}

/// A partition, and what it has to do with a hash tree: which side, key, and the line that says so.
struct Read {
    partition: Partition,
    verity: Option<(Side, String, Error)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Data,
    Hash,
}

/// Names what has no name, and finds the data of hash trees.
fn matched(read: Vec<Read>) -> Result<Vec<Partition>> {
    let sides: Vec<_> =
        read.iter().map(|read| read.verity.as_ref().map(|(side, key, _)| (*side, key.clone()))).collect();
    let mut partitions: Vec<Partition> = Vec::new();
    for Read { mut partition, verity } in read {
        if partition.name.is_empty() {
            let base = partition.kind.gpt().and_then(types::gpt_name).unwrap_or("partition").to_owned();
            let taken = |name: &str| partitions.iter().any(|other| other.name == name);
            let mut name = base.clone();
            let mut count = 1;
            while taken(&name) {
                count += 1;
                name = format!("{base}-{count}");
            }
            partition.name = name;
        }
        label(&mut partition);
        if let Some((side, key, error)) = verity {
            let other = if side == Side::Data { Side::Hash } else { Side::Data };
            let found: Vec<usize> =
                (0..sides.len()).filter(|at| sides[*at] == Some((other, key.clone()))).collect();
            let [found] = found[..] else { return Err(error) };
            if side == Side::Hash {
                partition.content = Content::Verity(Verity { data: found, salt: None, uuid: None });
            }
        }
        partitions.push(partition);
    }
    Ok(partitions)
}

/// The volume has the partition's name, as far as it has room.
fn label(partition: &mut Partition) {
    let name = partition.name.clone();
    let first = |bytes: usize| {
        let fits = name.char_indices().take_while(|(at, c)| at + c.len_utf8() <= bytes);
        fits.map(|(_, c)| c).collect::<String>()
    };
    match &mut partition.content {
        Content::Ext(ext) => ext.format.label = first(16).into_bytes(),
        Content::Xfs(xfs) => xfs.format.label = first(12).into_bytes(),
        Content::Fat(fat) => fat.label = fat_label(&first(11)).ok(),
        _ => {}
    }
}

struct Reader<'a> {
    root: &'a Path,
    warnings: Vec<String>,
}

/// The lines that say what a partition holds.
#[derive(Default)]
struct Lines<'a> {
    kind: Option<&'a Line>,
    format: Option<&'a Line>,
    blocks: Option<&'a Line>,
    verity: Option<&'a Line>,
    key: Option<&'a Line>,
    copies: Vec<&'a Line>,
    read_only: Option<bool>,
    grow: Option<bool>,
    no_auto: Option<bool>,
    minimize: bool,
    weight: Option<u32>,
    size_min: Option<u64>,
    size_max: Option<u64>,
}

impl Reader<'_> {
    fn partition(&mut self, file: &File) -> Result<Read> {
        let (mut name, mut id, mut flags) = (String::new(), None, 0);
        let mut found = Lines::default();
        for line in &file.lines {
            let wrong = |reason: String| file.wrong(line, reason);
            let value = line.value.as_str();
            match line.key.as_str() {
                "Type" => found.kind = Some(line),
                "Label" => name = no_specifiers(value).and_then(partition_name).map_err(wrong)?,
                "UUID" => {
                    id = match value {
                        "null" => return Err(wrong("a UUID of zeros means none".to_owned())),
                        value => Some(no_specifiers(value).and_then(uuid).map_err(wrong)?),
                    }
                }
                "SizeMinBytes" => found.size_min = Some(size(value).map_err(wrong)?),
                "SizeMaxBytes" => found.size_max = Some(size(value).map_err(wrong)?),
                "Weight" => found.weight = Some(weight(value).map_err(wrong)?),
                "Format" => found.format = Some(line),
                "CopyBlocks" => found.blocks = Some(line),
                "CopyFiles" if value.is_empty() => found.copies.clear(),
                "CopyFiles" => found.copies.push(line),
                "Verity" => found.verity = Some(line),
                "VerityMatchKey" => found.key = Some(line),
                "Flags" => flags = number(value).map_err(wrong)?,
                "ReadOnly" => found.read_only = Some(boolean(value).map_err(wrong)?),
                "GrowFileSystem" => found.grow = Some(boolean(value).map_err(wrong)?),
                "NoAuto" => found.no_auto = Some(boolean(value).map_err(wrong)?),
                "Minimize" => {
                    found.minimize = match value {
                        "best" | "guess" => true,
                        value => boolean(value)
                            .map_err(|_| wrong(format!("{value:?} is not best, guess or off")))?,
                    }
                }
                "Encrypt" if boolean(value) == Ok(false) => {}
                "Encrypt" => return Err(wrong("encrypted partitions are not made".to_owned())),
                other => self.other(file, line, other)?,
            }
        }
        self.made(file, &found, (name, id, flags))
    }

    /// A key that is not done.
    fn other(&mut self, file: &File, line: &Line, key: &str) -> Result<()> {
        if let Some((_, why)) = IGNORED.iter().find(|(known, _)| *known == key) {
            self.warnings.push(format!("{}:{}: {key}: left out: {why}", file.name, line.number));
            return Ok(());
        }
        let reason = if REFUSED.contains(&key) { "hectare does not do this" } else { "there is no such key" };
        Err(file.wrong(line, reason))
    }

    fn made(
        &self,
        file: &File,
        found: &Lines<'_>,
        (name, id, flags): (String, Option<uuid::Uuid>, u64),
    ) -> Result<Read> {
        let Some(line) = found.kind else { return Err(file.error(None, "Type: every partition needs one")) };
        let kind = types::gpt(&line.value);
        let kind = kind
            .ok_or_else(|| file.wrong(line, format!("{:?} is no type: {}", line.value, types::hint(true))))?;
        let verity = self.verity(file, found)?;
        let content = self.content(file, found, verity.as_ref().map(|(side, ..)| *side))?;
        let read_only = found.read_only.unwrap_or(types::is_verity(kind));
        let grow = found.grow.unwrap_or(types::can_grow(kind) && !read_only);
        let bit = |on: bool, bit| if on { bit } else { 0 };
        let attributes = flags & !(READ_ONLY | GROW_FS | NO_AUTO)
            | if found.read_only.is_none() { flags & READ_ONLY } else { 0 }
            | if found.grow.is_none() { flags & GROW_FS } else { 0 }
            | if found.no_auto.is_none() { flags & NO_AUTO } else { 0 }
            | bit(read_only, READ_ONLY)
            | bit(grow, GROW_FS)
            | bit(found.no_auto.unwrap_or(false), NO_AUTO);
        let rule = match (found.minimize, verity.is_some()) {
            (true, _) => Rule::Min,
            (false, true) => Rule::Roomy,
            (false, false) => Rule::Grow(found.weight.unwrap_or(WEIGHT)),
        };
        let least = found.size_min.unwrap_or(LEAST).max(GRAIN);
        if let Some(most) = found.size_max.filter(|most| *most < least) {
            return Err(file.error(None, format!("SizeMaxBytes: {most} is less than SizeMinBytes, {least}")));
        }
        let partition = Partition {
            file: file.name.clone(),
            line: Some(line.number),
            name,
            kind: PartitionType::Gpt(kind),
            uuid: id,
            attributes,
            active: false,
            start: None,
            align: None,
            size: Sizing { rule, least, most: found.size_max },
            content,
        };
        Ok(Read { partition, verity })
    }

    fn verity(&self, file: &File, found: &Lines<'_>) -> Result<Option<(Side, String, Error)>> {
        let Some(line) = found.verity else { return Ok(None) };
        let side = match line.value.as_str() {
            "off" => return Ok(None),
            "data" => Side::Data,
            "hash" => Side::Hash,
            "signature" => return Err(file.wrong(line, "signatures are not made")),
            other => return Err(file.wrong(line, format!("{other:?} is not off, data or hash"))),
        };
        let Some(key) = found.key else {
            return Err(file.wrong(line, "VerityMatchKey= is needed with it"));
        };
        let reason = format!(
            "there must be one partition with Verity={} and this key",
            match side {
                Side::Data => "hash",
                Side::Hash => "data",
            }
        );
        Ok(Some((side, key.value.clone(), file.wrong(key, reason))))
    }

    fn content(&self, file: &File, found: &Lines<'_>, side: Option<Side>) -> Result<Content> {
        let copy = found.copies.first().copied();
        if side == Some(Side::Hash) {
            return match found.format.or(found.blocks).or(copy) {
                Some(line) => Err(file.wrong(line, "a partition with Verity=hash has no other content")),
                None => Ok(Content::Empty),
            };
        }
        if let Some(line) = found.blocks {
            if let Some(other) = found.format.or(copy) {
                return Err(file.wrong(other, "give either it or CopyBlocks"));
            }
            return match line.value.as_str() {
                "auto" => Err(file.wrong(line, "the running system is not copied; name a file")),
                value => self.below_root(value).map(Content::File).map_err(|reason| file.wrong(line, reason)),
            };
        }
        let format = found.format.map_or("", |line| line.value.as_str());
        match (format, found.format, copy) {
            ("" | "empty", _, None) => Ok(Content::Empty),
            ("" | "empty", _, Some(line)) => Err(file.wrong(line, "it needs Format=ext4 or vfat")),
            ("ext2" | "ext3" | "ext4", Some(line), _) => {
                let mut format =
                    FormatOptions::from_environment().map_err(|error| file.wrong(line, error))?;
                format.fs_type = FsType::by_name(&line.value).map_err(|error| file.wrong(line, error))?;
                format.reserved_percent = 0.0;
                let files = self.files(file, found)?;
                Ok(Content::Ext(Box::new(Ext { files, format, fs_verity: Vec::new(), dedupe: false })))
            }
            ("vfat", ..) => {
                let files = self.files(file, found)?;
                Ok(Content::Fat(Box::new(Fat { files, label: None, id: None, bits: None, cluster: None })))
            }
            ("xfs", Some(line), None) => {
                let made = hectare_mkfs::xfs::FormatOptions::from_environment();
                let mut format = made.map_err(|error| file.wrong(line, error))?;
                format.discard = false;
                Ok(Content::Xfs(Box::new(Xfs { format })))
            }
            ("xfs", _, Some(copy)) => Err(file.wrong(copy, "XFS volumes are made empty")),
            (other, Some(line), _) => {
                Err(file
                    .wrong(line, format!("{other:?} is not made; there are ext2, ext3, ext4, vfat and xfs")))
            }
            (_, None, _) => Ok(Content::Empty),
        }
    }

    /// The files of a volume: directories to its root, and single files.
    fn files(&self, file: &File, found: &Lines<'_>) -> Result<Files> {
        let mut files = Files { from: Vec::new(), options: Options::default() };
        for line in &found.copies {
            let wrong = |reason: String| file.wrong(line, reason);
            let (source, target) = line.value.split_once(':').unwrap_or((&line.value, &line.value));
            if !target.starts_with('/') {
                return Err(wrong(format!("{target:?}: a target begins with /")));
            }
            let path = self.below_root(source).map_err(wrong)?;
            let is_root = target.bytes().all(|byte| byte == b'/');
            match std::fs::metadata(&path) {
                Err(error) => return Err(wrong(format!("{}: {}", path.display(), io_reason(&error)))),
                Ok(data) if data.is_dir() && is_root => files.from.push(path.into_os_string()),
                Ok(data) if data.is_dir() => {
                    let reason =
                        format!("{target}: a directory is copied to / only; make a tree that has it there");
                    return Err(wrong(reason));
                }
                Ok(_) if is_root => return Err(wrong("a file needs a name in the target".to_owned())),
                Ok(_) => {
                    let mut argument: OsString = path.into_os_string();
                    argument.push(":");
                    argument.push(target);
                    let added = Addition::parse(&argument).map_err(|error| wrong(error.to_string()))?;
                    files.options.additions.push(added);
                }
            }
        }
        Ok(files)
    }

    fn below_root(&self, text: &str) -> std::result::Result<PathBuf, String> {
        match text {
            text if text.contains('\0') => Err("a path has no NUL".to_owned()),
            text => match no_specifiers(text)?.strip_prefix('/') {
                Some(rest) => Ok(self.root.join(rest.trim_start_matches('/'))),
                None => Err(format!("{text:?}: a path begins with / (--root says where that is)")),
            },
        }
    }
}

fn no_specifiers(text: &str) -> std::result::Result<&str, String> {
    match text.contains('%') {
        true => Err(format!("{text:?}: specifiers (%) are not replaced")),
        false => Ok(text),
    }
}

fn size(text: &str) -> std::result::Result<u64, String> {
    let bytes = parse_size(text, 1, None)?;
    bytes.checked_next_multiple_of(GRAIN).ok_or_else(|| format!("{text} is more than any disk has"))
}

fn weight(text: &str) -> std::result::Result<u32, String> {
    text.parse()
        .ok()
        .filter(|weight| *weight <= 1_000_000)
        .ok_or_else(|| format!("{text:?}: a weight is 0 to 1000000"))
}

fn number(text: &str) -> std::result::Result<u64, String> {
    let parsed =
        text.strip_prefix("0x").map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
    parsed.map_err(|_| format!("{text:?} is no number"))
}

fn boolean(text: &str) -> std::result::Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "yes" | "y" | "true" | "t" | "on" => Ok(true),
        "0" | "no" | "n" | "false" | "f" | "off" => Ok(false),
        _ => Err(format!("{text:?} is neither yes nor no")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that cannot continue fails

    use super::*;

    fn read(texts: &[&str]) -> Result<Spec> {
        let named = |(nr, text): (usize, &&str)| (format!("{nr}.conf"), (*text).to_owned());
        of_texts(&texts.iter().enumerate().map(named).collect::<Vec<_>>(), Path::new("/nowhere"))
    }

    fn refused(text: &str) -> String {
        read(&[text]).unwrap_err().to_string()
    }

    #[test]
    fn keys_become_partitions() {
        let spec = read(&[
            "[Partition]\nType=esp\nFormat=vfat\nSizeMinBytes=64M\nSizeMaxBytes=64M\n",
            "# data\n[Partition]\nType=root\nVerity=data\nVerityMatchKey=a\nFormat=ext4\nMinimize=best\n\
             ReadOnly=yes",
            "[Partition]\nType=root-verity\nVerity=hash\nVerityMatchKey=a\n",
            "[Partition]\nType=home\n",
            "[Partition]\nType=home\nFlags=0x4\nPriority=5\n",
        ]);
        let spec = spec.unwrap();
        let names: Vec<_> = spec.partitions.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names[0], "esp");
        assert_eq!(names[3..], ["home", "home-2"]);
        assert!(matches!(&spec.partitions[2].content, Content::Verity(verity) if verity.data == 1));
        assert_eq!(spec.partitions[1].attributes, READ_ONLY);
        assert_eq!(spec.partitions[2].attributes, READ_ONLY);
        assert_eq!(spec.partitions[4].attributes, GROW_FS | 4);
        assert_eq!(spec.warnings(), ["4.conf:4: Priority: left out: every partition is made"]);
    }

    #[test]
    fn what_is_not_done_is_refused_by_key() {
        for (text, says) in [
            ("[Partition]\nType=root\nSubvolumes=/a\n", "0.conf:3: Subvolumes: hectare does not do this"),
            ("[Partition]\nTyp=root\n", "0.conf:2: Typ: there is no such key"),
            ("[Partition]\nFormat=ext4\n", "0.conf: Type: every partition needs one"),
            ("[Partition]\nType=rot\n", "0.conf:2: Type: \"rot\" is no type"),
            ("[Partition]\nType=root\nFormat=btrfs\n", "0.conf:3: Format: \"btrfs\" is not made"),
            ("[Partition]\nType=root\nEncrypt=key-file\n", "0.conf:3: Encrypt: encrypted"),
            (
                "[Partition]\nType=root\nVerity=data\nVerityMatchKey=a\n",
                "0.conf:4: VerityMatchKey: there must be one",
            ),
            ("[Partition]\nType=root\nLabel=%m\n", "0.conf:3: Label: \"%m\": specifiers"),
            (
                "[Partition]\nType=root\nSizeMinBytes=2M\nSizeMaxBytes=1M\n",
                "0.conf: SizeMaxBytes: 1048576 is less",
            ),
            ("[Other]\nType=root\n", "0.conf:1: [Other]"),
            ("Type=root\n", "0.conf:1: Type"),
            ("[Partition]\nType\n", "0.conf:2: "),
            (
                "[Partition]\nType=root\nCopyFiles=a:/\nFormat=ext4\n",
                "0.conf:3: CopyFiles: \"a\": a path begins",
            ),
        ] {
            let said = refused(text);
            assert!(said.starts_with(says), "{said}");
            assert!(!said.contains('\n'));
        }
    }
}
