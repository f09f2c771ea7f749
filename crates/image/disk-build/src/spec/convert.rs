//! From the keys of a description to what they mean.

use super::form::{self, Amount, For, Key};
use super::{
    Blob, Content, Ext, Fat, Files, Partition, PartitionType, Rule, Sizing, Spec, TableKind, Verity, Xfs,
};
use crate::error::{Error, Result};
use crate::{attributes, types};
use hectare_mkfs::{FormatOptions, FsType, InodeCount, apply_extended, parse_features, parse_size};
use hectare_populate::{Addition, Excludes, FileContexts, ModeChange, Options, Platform, Spec as TreeSpec};
use hectare_units::{BlockSize, Bytes, owner_number};
use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;

/// What a partition's start is a multiple of.
const ALIGN: u64 = 1 << 20;
/// The most partitions of each table.
const GPT_MAX: usize = 128;
const MBR_MAX: usize = 4;
/// The most UTF-16 units of a name in a GPT.
const NAME_MAX: usize = 36;

/// Reads the description.
pub(super) fn spec(path: &Path, text: &str) -> Result<Spec> {
    let reader = Reader { file: path.display().to_string(), folder: folder_of(path), text };
    let disk: form::Disk = toml::from_str(text).map_err(|error| {
        // A message may have several lines; the first says what is wrong.
        let message = error.message().lines().next().unwrap_or_default().to_owned();
        reader.error(error.span().map(|span| span.start), message)
    })?;
    reader.disk(&disk)
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent().map(Path::to_owned).unwrap_or_default()
}

/// The text, and where it is from.
struct Reader<'a> {
    file: String,
    folder: PathBuf,
    text: &'a str,
}

impl Reader<'_> {
    fn line(&self, at: usize) -> usize {
        self.text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
    }

    fn error(&self, at: Option<usize>, reason: impl Display) -> Error {
        Error::Spec {
            file: self.file.clone(),
            line: at.map(|at| self.line(at)),
            // A value may hold line feeds, which an error must not.
            reason: reason.to_string().replace(['\n', '\r'], " "),
        }
    }

    /// The value of a key, made by `read`; its error is that of the key.
    fn read<T, U, E: Display>(
        &self,
        name: &str,
        key: &Key<T>,
        read: impl FnOnce(&T) -> std::result::Result<U, E>,
    ) -> Result<Option<U>> {
        let Some(value) = key else { return Ok(None) };
        let made = read(value.get_ref());
        made.map(Some)
            .map_err(|reason| self.error(Some(value.span().start), format_args!("{name}: {reason}")))
    }

    fn disk(&self, disk: &form::Disk) -> Result<Spec> {
        let table = self.read("table", &disk.table, |text| match text.as_str() {
            "gpt" => Ok(TableKind::Gpt),
            "mbr" | "dos" => Ok(TableKind::Mbr),
            other => Err(format!("{other:?} is neither gpt nor mbr")),
        })?;
        let table = table.unwrap_or_default();
        let sector = self.read("sector", &disk.sector, |sector| match sector {
            512 => Ok(512),
            4096 => Ok(4096),
            other => Err(format!("{other}: a sector has 512 or 4096 bytes")),
        })?;
        let sector = sector.unwrap_or(512);
        let align = self.read("align", &disk.align, |text| alignment(text, sector))?.unwrap_or(ALIGN);
        let size = self.read("size", &disk.size, |text| match text.0.as_str() {
            "min" => Ok(None),
            _ => whole_sectors(text, sector).map(Some),
        })?;
        let only = |kind: TableKind, what: &str| match kind == table {
            true => Ok(()),
            false => Err(format!("only {what} has it")),
        };
        let uuid =
            self.read("uuid", &disk.uuid, |text| only(TableKind::Gpt, "a GPT").and_then(|()| uuid(text)))?;
        let disk_id = self.read("disk-id", &disk.disk_id, |text| {
            only(TableKind::Mbr, "an MBR").and_then(|()| number(&text.0)).and_then(|id| {
                u32::try_from(id)
                    .ok()
                    .filter(|id| *id != 0)
                    .ok_or_else(|| "it has 32 bits, and is not 0".to_owned())
            })
        })?;
        let boot_code = self.read("boot-code", &disk.boot_code, |text| self.path(text))?;
        let mut blobs = Vec::new();
        for blob in &disk.blob {
            let blob = blob.get_ref();
            let file = self.read("file", &Some(blob.file.clone()), |text| self.path(text))?;
            let at = blob.offset.span().start;
            let offset = bytes(blob.offset.get_ref());
            let offset = offset.map_err(|reason| self.error(Some(at), format_args!("offset: {reason}")))?;
            blobs.extend(file.map(|file| Blob { file, offset }));
        }
        let most = if table == TableKind::Gpt { GPT_MAX } else { MBR_MAX };
        if let Some(beyond) = disk.partition.get(most) {
            let reason = format_args!(
                "partition: a table of this kind has {most} partitions here, and this is one more{}",
                if table == TableKind::Mbr { "; table = \"gpt\" has 128" } else { "" }
            );
            return Err(self.error(Some(beyond.span().start), reason));
        }
        let mut partitions: Vec<Partition> = Vec::new();
        for part in &disk.partition {
            let at = part.span().start;
            let made = self.partition(at, part.get_ref(), (table, sector), &disk.partition)?;
            if !made.name.is_empty() && partitions.iter().any(|other| other.name == made.name) {
                let at = part.get_ref().name.as_ref().map(|name| name.span().start);
                return Err(self.error(at, format_args!("name: there are two partitions {:?}", made.name)));
            }
            partitions.push(made);
        }
        Ok(Spec {
            file: self.file.clone(),
            table,
            sector,
            align,
            round: align.max(4096),
            size: size.flatten(),
            uuid,
            disk_id,
            boot_code,
            blobs,
            partitions,
            warnings: Vec::new(),
        })
    }

    fn partition(
        &self,
        at: usize,
        part: &form::Partition,
        (table, sector): (TableKind, u32),
        all: &[toml::Spanned<form::Partition>],
    ) -> Result<Partition> {
        let is_gpt = table == TableKind::Gpt;
        let name = self.read("name", &part.name, |text| partition_name(text))?.unwrap_or_default();
        let given = self.read("type", &part.r#type, |text| {
            let found = match table {
                TableKind::Gpt => types::gpt(text).map(PartitionType::Gpt),
                TableKind::Mbr => types::mbr(text).map(PartitionType::Mbr),
            };
            found.ok_or_else(|| format!("{text:?} is no type here: {}", types::hint(is_gpt)))
        })?;
        let kind = given.ok_or_else(|| {
            self.error(Some(at), format_args!("type: every partition needs one; {}", types::hint(is_gpt)))
        })?;
        let uuid = self.read("uuid", &part.uuid, |text| match is_gpt {
            true => uuid(text),
            false => Err("only a GPT has it".to_owned()),
        })?;
        let mut active = false;
        let flags = self.read("flags", &part.flags, |texts| {
            texts.0.iter().try_fold(0, |bits, flag| match table {
                TableKind::Gpt => attributes::gpt(flag).map(|bit| bits | bit),
                TableKind::Mbr if flag == "boot" => {
                    active = true;
                    Ok(0)
                }
                TableKind::Mbr => Err(format!("{flag:?}: an MBR has the flag boot only")),
            })
        })?;
        let more = self.read("attributes", &part.attributes, |text| match is_gpt {
            true => number(&text.0),
            false => Err("only a GPT has them".to_owned()),
        })?;
        let content = self.content(at, part, all)?;
        let implied = match content {
            Content::Verity(_) if is_gpt => attributes::READ_ONLY,
            _ => 0,
        };
        let attributes =
            if flags.is_none() && more.is_none() { implied } else { flags.unwrap_or(0) | more.unwrap_or(0) };
        Ok(Partition {
            file: self.file.clone(),
            line: Some(self.line(at)),
            name,
            kind,
            uuid,
            attributes,
            active,
            start: self.read("offset", &part.offset, |text| whole_sectors(text, sector))?,
            align: self.read("align", &part.align, |text| alignment(text, sector))?,
            size: self.sizing(at, part, &content, sector)?,
            content,
        })
    }

    fn sizing(&self, at: usize, part: &form::Partition, content: &Content, sector: u32) -> Result<Sizing> {
        let rule = self.read("size", &part.size, |text| match text.0.as_str() {
            "min" => Ok(Rule::Min),
            "rest" => Ok(Rule::Rest),
            _ => whole_sectors(text, sector).and_then(|bytes| match bytes {
                0 => Err("a partition is not empty".to_owned()),
                bytes => Ok(Rule::Exactly(bytes)),
            }),
        })?;
        let free = self.read("free", &part.free, |text| match rule {
            None => bytes(text),
            Some(_) => Err("give either it or size".to_owned()),
        })?;
        let rule = rule.or(free.map(Rule::Free));
        match (content, rule) {
            (Content::Empty | Content::Xfs(_), None | Some(Rule::Min)) => {
                let reason = "size: there is no content to follow from; give bytes (64M), or rest";
                let at = part.size.as_ref().map_or(at, |size| size.span().start);
                Err(self.error(Some(at), reason))
            }
            (Content::Ext(_), None) => Ok(Sizing::of(Rule::Roomy)),
            (_, rule) => Ok(Sizing::of(rule.unwrap_or(Rule::Min))),
        }
    }

    fn content(
        &self,
        at: usize,
        part: &form::Partition,
        all: &[toml::Spanned<form::Partition>],
    ) -> Result<Content> {
        let given = [
            ("format", part.format.is_some()),
            ("file", part.file.is_some()),
            ("verity", part.verity.is_some()),
        ];
        let given: Vec<_> = given.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
        if given.len() > 1 {
            return Err(self.error(Some(at), format_args!("{}: give one of them only", given.join(", "))));
        }
        let format = part.format.as_ref().map(|format| format.get_ref().as_str());
        let (what, has): (&str, &[For]) = match (format, given.first()) {
            (Some("ext2" | "ext3" | "ext4"), _) => {
                ("an ext volume", &[For::Files, For::Ext, For::ExtFat, For::Volumes])
            }
            (Some("vfat" | "fat"), _) => ("a FAT volume", &[For::Files, For::Fat, For::ExtFat, For::Volumes]),
            (Some("xfs"), _) => ("an XFS volume, which is made empty,", &[For::Xfs, For::Volumes]),
            (Some(other), _) => {
                let at = part.format.as_ref().map(|format| format.span().start);
                let reason =
                    format_args!("format: {other:?} is not made; there are ext2, ext3, ext4, vfat and xfs");
                return Err(self.error(at, reason));
            }
            (None, Some(&"verity")) => ("a hash tree", &[For::Verity, For::Volumes]),
            (None, Some(_)) => ("a partition with the bytes of a file", &[]),
            (None, None) => ("an empty partition", &[]),
        };
        for (key, at, which) in part.given() {
            if which != For::All && !has.contains(&which) || key == "label" && part.verity.is_some() {
                let reason = format_args!("{key}: {what} has no such key; is the format missing or another?");
                return Err(self.error(Some(at), reason));
            }
        }
        match (format, given.first()) {
            (Some("vfat" | "fat"), _) => Ok(Content::Fat(Box::new(self.fat(part)?))),
            (Some("xfs"), _) => Ok(Content::Xfs(Box::new(self.xfs(part)?))),
            (Some(kind), _) => Ok(Content::Ext(Box::new(self.ext(part, kind)?))),
            (None, Some(&"verity")) => self.verity(part, all),
            (None, Some(_)) => {
                let file = self.read("file", &part.file, |text| self.path(text))?;
                Ok(file.map_or(Content::Empty, Content::File))
            }
            (None, None) => Ok(Content::Empty),
        }
    }

    fn verity(&self, part: &form::Partition, all: &[toml::Spanned<form::Partition>]) -> Result<Content> {
        let data = self.read("verity", &part.verity, |wanted| {
            let found = all
                .iter()
                .position(|other| other.get_ref().name.as_ref().is_some_and(|name| name.get_ref() == wanted));
            match found {
                None => Err(format!("there is no partition with the name {wanted:?}")),
                Some(index) if all[index].get_ref().verity.is_some() => {
                    Err(format!("{wanted:?} is a hash tree itself"))
                }
                Some(index) => Ok(index),
            }
        })?;
        let salt = self.read("salt", &part.salt, |text| salt(text))?;
        let uuid = self.read("fs-uuid", &part.fs_uuid, |text| uuid(text))?;
        Ok(data.map_or(Content::Empty, |data| Content::Verity(Verity { data, salt, uuid })))
    }

    fn ext(&self, part: &form::Partition, kind: &str) -> Result<Ext> {
        let mut format = FormatOptions::from_environment().map_err(|error| self.error(None, error))?;
        let reason = |error: hectare_mkfs::Error| error.to_string();
        self.read("format", &part.format, |_| FsType::by_name(kind).map(|kind| format.fs_type = kind))?;
        format.reserved_percent = 0.0;
        self.read("features", &part.features, |texts| {
            texts
                .0
                .iter()
                .try_for_each(|list| parse_features(list).map(|edits| format.features.extend(edits)))
        })?;
        self.read("block-size", &part.block_size, |text| {
            let size = BlockSize::from_bytes(bytes(text)?);
            format.block_size = Some(size.ok_or("a block has 1024 to 65536 bytes, a power of two")?);
            Ok::<_, String>(())
        })?;
        format.cluster_size = self.read("cluster-size", &part.cluster_size, bytes)?;
        format.inode_size = part.inode_size.as_ref().map(|size| *size.get_ref());
        let ratio = self.read("inode-ratio", &part.inode_ratio, bytes)?;
        format.inodes = match (part.inodes.as_ref().map(|inodes| *inodes.get_ref()), ratio) {
            (Some(count), _) => InodeCount::Exactly(count),
            (None, Some(ratio)) => InodeCount::Ratio(ratio),
            (None, None) => InodeCount::ByUsage,
        };
        self.read("reserved-percent", &part.reserved_percent, |percent| match percent {
            0.0..=50.0 => {
                format.reserved_percent = *percent;
                Ok(())
            }
            other => Err(format!("{other} is not between 0 and 50")),
        })?;
        self.read("label", &part.label, |text| {
            format.label = text.clone().into_bytes();
            if text.len() <= 16 { Ok(()) } else { Err("it has up to 16 bytes") }
        })?;
        self.read("last-mounted", &part.last_mounted, |text| {
            format.last_mounted = text.clone().into_bytes();
            if text.len() <= 64 { Ok(()) } else { Err("it has up to 64 bytes") }
        })?;
        format.uuid = self.read("fs-uuid", &part.fs_uuid, |text| uuid(text).map(Uuid::into_bytes))?;
        self.read("extended", &part.extended, |texts| {
            texts.0.iter().try_for_each(|list| apply_extended(&mut format, list).map_err(reason))
        })?;
        format.journal_mib = self.read("journal-size", &part.journal_size, |text| match bytes(text)? {
            size if size % (1 << 20) == 0 && size > 0 => Ok(size >> 20),
            size => Err(format!("{size} bytes are not whole MiB")),
        })?;
        format.flex_groups = part.flex_groups.as_ref().map(|count| *count.get_ref());
        format.clusters_per_group = part.blocks_per_group.as_ref().map(|count| *count.get_ref());
        self.read("on-error", &part.on_error, |text| text.parse().map(|word| format.on_error = word))?;
        Ok(Ext {
            files: self.files(part)?,
            format,
            fs_verity: part.fs_verity.as_ref().map(|texts| texts.get_ref().0.clone()).unwrap_or_default(),
            dedupe: part.dedupe.as_ref().is_some_and(|dedupe| *dedupe.get_ref()),
        })
    }

    fn xfs(&self, part: &form::Partition) -> Result<Xfs> {
        let made = hectare_mkfs::xfs::FormatOptions::from_environment();
        let mut format = made.map_err(|error| self.error(None, error))?;
        self.read("options", &part.options, |texts| {
            texts.0.iter().try_for_each(|text| {
                let words = text.strip_prefix('-').and_then(|text| text.split_once(' '));
                let letter =
                    words.and_then(|(letter, _)| letter.chars().next().filter(|_| letter.len() == 1));
                let (Some(letter), Some((_, list))) = (letter, words) else {
                    return Err(format!("{text:?}: write \"-m rmapbt=1\""));
                };
                if letter == 'd' && list.split(',').any(|word| word.starts_with("size=")) {
                    return Err(format!("{text:?}: the partition's size is that of the volume"));
                }
                hectare_mkfs::xfs::parse(&mut format, &[(letter, list)]).map_err(|error| error.to_string())
            })
        })?;
        self.read("label", &part.label, |text| {
            format.label = text.clone().into_bytes();
            if text.len() <= 12 { Ok(()) } else { Err("it has up to 12 bytes") }
        })?;
        let id = self.read("fs-uuid", &part.fs_uuid, |text| uuid(text))?;
        format.uuid = id.map(Uuid::into_bytes).or(format.uuid);
        format.discard = false;
        Ok(Xfs { format })
    }

    fn fat(&self, part: &form::Partition) -> Result<Fat> {
        let bits = self.read("fat", &part.fat, |bits| match bits {
            12 | 16 | 32 => Ok(*bits),
            other => Err(format!("{other}: there are 12, 16 and 32")),
        })?;
        let cluster = self.read("cluster-size", &part.cluster_size, |text| {
            let size = bytes(text)?;
            let fits = size.is_power_of_two() && (512..=32 << 10).contains(&size);
            u32::try_from(size)
                .ok()
                .filter(|_| fits)
                .ok_or("a cluster has 512 to 32768 bytes, a power of two".to_owned())
        })?;
        let label = self.read("label", &part.label, |text| fat_label(text))?;
        let id = self.read("fs-uuid", &part.fs_uuid, |text| fat_id(text))?;
        Ok(Fat { files: self.files(part)?, label, id, bits, cluster })
    }

    fn files(&self, part: &form::Partition) -> Result<Files> {
        let mut options = Options::default();
        let mut from = Vec::new();
        self.read("from", &part.from, |texts| {
            texts.0.iter().try_for_each(|text| self.source(text).map(|source| from.push(source)))
        })?;
        let mut excludes = Excludes::default();
        self.read("exclude", &part.exclude, |texts| {
            texts.0.iter().try_for_each(|pattern| excludes.add(pattern.as_bytes()))
        })?;
        options.excludes = excludes;
        self.read("add", &part.add, |texts| {
            texts.0.iter().try_for_each(|text| {
                let host = self.path(text)?;
                let added = Addition::parse(host.as_os_str()).map_err(|error| error.to_string())?;
                options.additions.push(added);
                Ok::<_, String>(())
            })
        })?;
        self.read("spec", &part.spec, |texts| {
            texts.0.iter().try_for_each(|text| {
                let spec = TreeSpec::read(&self.path(text)?).map_err(|error| error.to_string())?;
                options.specs.push(spec);
                Ok::<_, String>(())
            })
        })?;
        options.allow_empty = part.allow_empty.as_ref().is_some_and(|allow| *allow.get_ref());
        options.max_size = self.read("max-size", &part.max_size, bytes)?.map(Bytes::new);
        options.platform = self.read("platform", &part.platform, |text| Platform::parse(text))?;
        options.owner = self.read("owner", &part.owner, |text| owner(text))?;
        options.modes = self.read("modes", &part.modes, |text| ModeChange::parse(text))?;
        let contexts = self.read("file-contexts", &part.file_contexts, |text| {
            FileContexts::read(&self.path(text)?).map_err(|error| error.to_string())
        })?;
        options.labels = contexts.map(Arc::new);
        Ok(Files { from, options })
    }

    /// A path, which starts from the description's directory.
    fn path(&self, text: &str) -> std::result::Result<PathBuf, String> {
        match text {
            "" => Err("it is empty".to_owned()),
            text if text.contains('\0') => Err("a path has no NUL".to_owned()),
            text => Ok(self.folder.join(text)),
        }
    }

    /// A source of files: what comes behind the name of its kind is a path.
    fn source(&self, text: &str) -> std::result::Result<OsString, String> {
        if text == "-" {
            return Err("standard input is no source of a description".to_owned());
        }
        for kind in ["oci:", "oci-archive:", "docker-archive:"] {
            if let Some(path) = text.strip_prefix(kind) {
                let mut source = OsString::from(kind);
                source.push(self.path(path)?);
                return Ok(source);
            }
        }
        match text.starts_with("nbd://") || text.starts_with("nbd+unix://") {
            true => Ok(text.into()),
            false => self.path(text).map(PathBuf::into_os_string),
        }
    }
}

/// A number of bytes.
fn bytes(text: &Amount) -> std::result::Result<u64, String> {
    parse_size(&text.0, 1, None)
}

fn whole_sectors(text: &Amount, sector: u32) -> std::result::Result<u64, String> {
    match bytes(text)? {
        bytes if bytes % u64::from(sector) != 0 => {
            Err(format!("{bytes} bytes are not whole sectors of {sector}"))
        }
        bytes => Ok(bytes),
    }
}

fn alignment(text: &Amount, sector: u32) -> std::result::Result<u64, String> {
    match whole_sectors(text, sector)? {
        bytes if bytes.is_power_of_two() && bytes <= 1 << 40 => Ok(bytes),
        bytes => Err(format!("{bytes} is no power of two up to 1T")),
    }
}

/// A number: decimal, or hexadecimal behind `0x`.
fn number(text: &str) -> std::result::Result<u64, String> {
    let parsed =
        text.strip_prefix("0x").map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
    parsed.map_err(|_| format!("{text:?} is no number, such as 4 or 0x1c"))
}

pub(crate) fn uuid(text: &str) -> std::result::Result<Uuid, String> {
    let uuid =
        Uuid::parse_str(text).map_err(|_| format!("{text:?} is not a UUID (32 hexadecimal digits)"))?;
    if uuid.is_nil() { Err("a UUID of zeros means none".to_owned()) } else { Ok(uuid) }
}

pub(crate) fn partition_name(text: &str) -> std::result::Result<String, String> {
    match text.encode_utf16().count() {
        len if len > NAME_MAX => {
            Err(format!("it has {len} UTF-16 units, and a table has room for {NAME_MAX}"))
        }
        _ if text.contains(char::is_control) => Err("a name has no control characters".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

fn owner(text: &str) -> std::result::Result<(u32, u32), String> {
    let number = |text: &str| owner_number(text.as_bytes());
    let pair = text.split_once(':').and_then(|(uid, gid)| number(uid).zip(number(gid)));
    pair.ok_or_else(|| format!("{text:?}: give two numbers, UID:GID"))
}

/// Facts: FAT's labels have 11 bytes, capital letters, padded with spaces.
pub(crate) fn fat_label(text: &str) -> std::result::Result<[u8; 11], String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b" !#$%&'()-@^_`{}~".contains(&byte);
    if text.is_empty() || text.len() > 11 || !text.bytes().all(allowed) || text.starts_with(' ') {
        return Err(format!(
            "{text:?}: a label of FAT has 1 to 11 letters, digits, spaces and of !#$%&'()-@^_`{{}}~"
        ));
    }
    let mut label = [b' '; 11];
    label.iter_mut().zip(text.bytes()).for_each(|(to, byte)| *to = byte.to_ascii_uppercase());
    Ok(label)
}

fn fat_id(text: &str) -> std::result::Result<u32, String> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let id = u32::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 8);
    id.ok_or_else(|| format!("{text:?}: a FAT volume has eight hexadecimal digits, such as 1234-ABCD"))
}

/// The bytes of a salt; `-` is none.
fn salt(text: &str) -> std::result::Result<Vec<u8>, String> {
    if text == "-" {
        return Ok(Vec::new());
    }
    let digits = text.as_bytes();
    let pairs = digits.chunks(2).map(|pair| {
        std::str::from_utf8(pair)
            .ok()
            .filter(|pair| pair.len() == 2 && !pair.starts_with('+'))
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
    });
    let bytes: Option<Vec<u8>> = pairs.collect();
    let bytes = bytes.filter(|bytes| (1..=256).contains(&bytes.len()));
    bytes.ok_or_else(|| "a salt has up to 256 bytes in hexadecimal digits, or is - for none".to_owned())
}
