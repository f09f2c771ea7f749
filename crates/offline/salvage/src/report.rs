//! What came out, and what is doubtful about it: as data.

use serde::Serialize;

/// All findings.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Report {
    /// What is wrong with the volume as a whole.
    pub volume: Vec<String>,
    /// Files, directories and all else with a name in the tree, removed ones included.
    pub nodes: u64,
    /// Those about which nothing is doubtful.
    pub whole: u64,
    /// The others, in the order of their paths.
    pub doubtful: Vec<Doubtful>,
    /// Removed files, the most promising first.
    pub deleted: Vec<Deleted>,
    /// Parts of the device that could not be read.
    pub unreadable: Vec<Unreadable>,
}

/// A node with doubts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Doubtful {
    /// Its path in the tree; other characters than UTF-8 are replaced.
    pub path: String,
    /// Its inode's number, if it has one.
    pub inode: Option<u32>,
    /// What is doubtful, and why.
    pub doubts: Vec<String>,
}

/// A removed file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Deleted {
    /// Its path in the tree.
    pub path: String,
    /// The number its inode had, if there was one.
    pub inode: Option<u32>,
    /// Bytes of content.
    pub size: u64,
    /// When its content was last changed, in seconds since 1970.
    pub modified: i64,
    /// How much of its space no file has now, in percent.
    pub free_percent: u64,
    /// What is doubtful beside that.
    pub doubts: Vec<String>,
}

/// A range of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Unreadable {
    /// Its first byte.
    pub at: u64,
    /// Its length in bytes.
    pub len: u64,
}
