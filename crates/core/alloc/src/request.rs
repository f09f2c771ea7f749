//! Requests to the allocator.

use hectare_units::{ClusterNr, Clusters, TxnId};
use serde::{Deserialize, Serialize};

/// An open transaction. Holding one keeps the commit from rendering until it is closed.
pub trait Transaction {
    /// Its id.
    fn id(&self) -> TxnId;
}

/// What space is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Purpose {
    /// The volume's structures: single clusters, as near to the goal as can be. They have no size class and
    /// give none.
    Metadata,
    /// Contents of files.
    Data,
}

/// Where a goal comes from: for explaining a request; the search ignores it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum GoalFrom {
    /// The caller named it.
    #[default]
    Caller,
    /// It continues the file without a break.
    Continuation,
    /// It is the group of the file's inode.
    Home,
    /// It is where the last window of the size class ended.
    Cursor,
    /// It is where the piece before ended.
    Piece,
    /// There is none; the search starts at the group that the stream was last served from.
    Stream,
    /// It is where space is kept for the file.
    Kept,
    /// There is none: it lies beyond the end of the volume.
    Nowhere,
}

/// A request to [`Allocator::reserve`](crate::Allocator::reserve).
///
/// The run that is given has at least `min` and at most `want` clusters; which length between, and where,
/// the policy decides. It tries for `want` first and prefers not to go below `asked`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Where the run would best start. Beyond the end of the volume it means no preference.
    pub goal: ClusterNr,
    /// The length requested. No more than a group's length can be reserved at once.
    pub want: Clusters,
    /// What is needed now, where more is requested in advance; decides the size class. Counts as at least
    /// `min` and at most `want`.
    pub asked: Clusters,
    /// The least length of use to the caller; at least 1.
    pub min: Clusters,
    /// What it is for.
    pub purpose: Purpose,
    /// The stream it belongs to, in place of a goal.
    pub stream: Option<u32>,
    /// Whether only the goal will do.
    pub only_goal: bool,
    /// Whether the first place behind the goal is better than one that fits well.
    pub packed: bool,
    /// Whether the clusters set aside for root may be taken.
    pub take_root_reserve: bool,
    /// Whether every free cluster may be taken, those kept for vital requests among them.
    pub vital: bool,
    /// Where the goal comes from.
    pub goal_from: GoalFrom,
    /// The file it is for, by its inode number, where that is known; also for explaining it.
    pub file: Option<u32>,
}

impl Request {
    /// Up to `want` clusters of metadata near `goal`, from 1 on, for an ordinary user.
    #[must_use]
    pub const fn new(goal: ClusterNr, want: Clusters) -> Self {
        Self {
            goal,
            want,
            asked: want,
            min: Clusters::ONE,
            purpose: Purpose::Metadata,
            stream: None,
            only_goal: false,
            packed: false,
            take_root_reserve: false,
            vital: false,
            goal_from: GoalFrom::Caller,
            file: None,
        }
    }

    /// Returns the request with a least length of `min` clusters.
    #[must_use]
    pub const fn at_least(self, min: Clusters) -> Self {
        Self { min, ..self }
    }

    /// Returns the request for the contents of a file of which `asked` clusters are to be written now.
    #[must_use]
    pub const fn for_data(self, asked: Clusters) -> Self {
        Self { asked, purpose: Purpose::Data, ..self }
    }

    /// Returns the request served rather in the group that last served this stream than at the goal. A stream
    /// is a file or another sequential writer; its key is any constant number, such as its inode's.
    #[must_use]
    pub const fn on_stream(self, key: u32) -> Self {
        Self { stream: Some(key), ..self }
    }

    /// Returns the request served at the goal or not at all: as much as is free there, of at least `min`.
    #[must_use]
    pub const fn exactly_at_goal(self) -> Self {
        Self { only_goal: true, ..self }
    }

    /// Returns the request packed: under policies with size classes it is served at the first place behind
    /// the goal that will do, not where it fits best: what is laid row on row should leave no gaps.
    #[must_use]
    pub const fn packed(self) -> Self {
        Self { packed: true, ..self }
    }

    /// Returns the request marked as for a file, with a goal from `goal_from`.
    #[must_use]
    pub const fn of_file(self, file: u32, goal_from: GoalFrom) -> Self {
        Self { file: Some(file), goal_from, ..self }
    }

    /// Returns the request with the root reserve usable if `allowed`.
    #[must_use]
    pub const fn with_root_reserve(self, allowed: bool) -> Self {
        Self { take_root_reserve: allowed, ..self }
    }

    /// Returns the request with whatever is free usable: for what must not fail although the volume is full,
    /// such as the one block without which thousands can't be freed.
    #[must_use]
    pub const fn vital(self) -> Self {
        Self { vital: true, ..self }
    }
}
