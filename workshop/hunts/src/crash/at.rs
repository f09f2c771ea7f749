//! A crash of a run, by its place in the record.

/// Which crash of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At {
    /// Events of the log that there were.
    pub point: usize,
    /// The seed by which storage chose what arrived; if none, everything did.
    pub torn: Option<u64>,
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.torn {
            None => write!(f, "{}", self.point),
            Some(torn) => write!(f, "{}:{torn}", self.point),
        }
    }
}
