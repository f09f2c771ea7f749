//! The keys of a description in TOML.
//!
//! Every key is optional here and unknown ones are errors; what a key may be together with others is decided
//! in `convert`, which knows the line of each.

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use toml::Spanned;

/// A key that may be missing, with its place.
pub(super) type Key<T> = Option<Spanned<T>>;

/// The whole file.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Disk {
    pub(super) table: Key<String>,
    pub(super) sector: Key<i64>,
    pub(super) align: Key<Amount>,
    pub(super) size: Key<Amount>,
    pub(super) uuid: Key<String>,
    pub(super) disk_id: Key<Amount>,
    pub(super) boot_code: Key<String>,
    pub(super) blob: Vec<Spanned<Blob>>,
    pub(super) partition: Vec<Spanned<Partition>>,
}

/// Bytes at a place.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Blob {
    pub(super) file: Spanned<String>,
    pub(super) offset: Spanned<Amount>,
}

macro_rules! partition {
    ($($(#[$what:meta])* $key:ident ($name:literal): $kind:ty = $where:ident;)*) => {
        /// A partition.
        #[derive(Deserialize, Default)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        pub(super) struct Partition {
            $($(#[$what])* pub(super) $key: Key<$kind>,)*
        }

        impl Partition {
            /// The keys that are given: name, start in the text, and which contents have them.
            pub(super) fn given(&self) -> Vec<(&'static str, usize, For)> {
                let mut given = Vec::new();
                $(if let Some(value) = &self.$key {
                    given.push(($name, value.span().start, For::$where));
                })*
                given
            }
        }
    };
}

/// Which contents have a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum For {
    /// Every partition.
    All,
    /// What has files: ext and FAT.
    Files,
    /// ext2, ext3 and ext4.
    Ext,
    /// FAT.
    Fat,
    /// XFS.
    Xfs,
    /// Every file system.
    Volumes,
    /// ext and FAT.
    ExtFat,
    /// Hash trees.
    Verity,
}

partition! {
    name ("name"): String = All;
    r#type ("type"): String = All;
    uuid ("uuid"): String = All;
    size ("size"): Amount = All;
    offset ("offset"): Amount = All;
    align ("align"): Amount = All;
    flags ("flags"): Texts = All;
    attributes ("attributes"): Amount = All;
    format ("format"): String = All;
    file ("file"): String = All;
    verity ("verity"): String = All;
    salt ("salt"): String = Verity;
    from ("from"): Texts = Files;
    exclude ("exclude"): Texts = Files;
    add ("add"): Texts = Files;
    spec ("spec"): Texts = Files;
    allow_empty ("allow-empty"): bool = Files;
    max_size ("max-size"): Amount = Files;
    platform ("platform"): String = Files;
    owner ("owner"): String = Ext;
    modes ("modes"): String = Ext;
    file_contexts ("file-contexts"): String = Ext;
    fs_verity ("fs-verity"): Texts = Ext;
    dedupe ("dedupe"): bool = Ext;
    free ("free"): Amount = Ext;
    features ("features"): Texts = Ext;
    extended ("extended"): Texts = Ext;
    block_size ("block-size"): Amount = Ext;
    inode_size ("inode-size"): u32 = Ext;
    inode_ratio ("inode-ratio"): Amount = Ext;
    inodes ("inodes"): u64 = Ext;
    reserved_percent ("reserved-percent"): f64 = Ext;
    journal_size ("journal-size"): Amount = Ext;
    flex_groups ("flex-groups"): u32 = Ext;
    blocks_per_group ("blocks-per-group"): u32 = Ext;
    on_error ("on-error"): String = Ext;
    last_mounted ("last-mounted"): String = Ext;
    cluster_size ("cluster-size"): Amount = ExtFat;
    fat ("fat"): u8 = Fat;
    label ("label"): String = Volumes;
    fs_uuid ("fs-uuid"): String = Volumes;
    options ("options"): Texts = Xfs;
}

/// A number of bytes, or a word: an integer, or a text such as `64M`.
pub(super) struct Amount(pub(super) String);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Amount;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, or a text such as \"64M\"")
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Amount, E> {
                Ok(Amount(value.to_string()))
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Amount, E> {
                Ok(Amount(value.to_string()))
            }
            fn visit_str<E: Error>(self, value: &str) -> Result<Amount, E> {
                Ok(Amount(value.to_owned()))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// One text or an array of them.
#[derive(Default)]
pub(super) struct Texts(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Texts;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or an array of texts")
            }
            fn visit_str<E: Error>(self, value: &str) -> Result<Texts, E> {
                Ok(Texts(vec![value.to_owned()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = seq.next_element()? {
                    texts.push(text);
                }
                Ok(Texts(texts))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}
