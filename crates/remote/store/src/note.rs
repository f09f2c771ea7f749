//! What a lock object says, as lines of text.
//!
//! Hazard: it comes from strangers, and its holder is printed: it has no control characters.

use std::fmt::Write as _;

const FIRST_LINE: &str = "hectare lock 1";

/// What a lock object says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Note {
    pub(crate) epoch: u64,
    pub(crate) session: u64,
    /// Host, program and process.
    pub(crate) holder: String,
    /// How long the lease lasts after each renewal, in milliseconds.
    pub(crate) lease: u64,
    /// How often it was renewed.
    pub(crate) renewal: u64,
    /// Whether the writer has ended in order.
    pub(crate) released: bool,
}

impl Note {
    /// As the lock object has it.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut text = String::new();
        let Self { epoch, session, holder, lease, renewal, .. } = self;
        let state = if self.released { "released" } else { "held" };
        let _ = write!(
            text,
            "{FIRST_LINE}\nepoch {epoch}\nsession {session:016x}\nholder {holder}\nlease {lease}\n\
             renewal {renewal}\nstate {state}\n"
        );
        text.into_bytes()
    }

    /// Parses a lock object; `None` for what `encode` does not write.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut lines = str::from_utf8(bytes).ok()?.lines();
        if lines.next()? != FIRST_LINE {
            return None;
        }
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let note = Self {
            epoch: value("epoch")?.parse().ok()?,
            session: u64::from_str_radix(value("session")?, 16).ok()?,
            holder: value("holder")?.to_owned(),
            lease: value("lease")?.parse().ok()?,
            renewal: value("renewal")?.parse().ok()?,
            released: match value("state")? {
                "released" => true,
                "held" => false,
                _ => return None,
            },
        };
        // It is printed.
        let is_plain = !note.holder.chars().any(char::is_control);
        (is_plain && note.encode() == bytes).then_some(note)
    }
}

#[cfg(test)]
impl Note {
    /// A note for tests: of a writer that has the volume, with a lease of a minute.
    pub(crate) fn sample() -> Self {
        let holder = "host, hectare, process 1".to_owned();
        Self { epoch: 3, session: 0xab, holder, lease: 60_000, renewal: 2, released: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_written_and_nothing_else_is() {
        let bytes = Note::sample().encode();
        assert_eq!(Note::parse(&bytes), Some(Note::sample()));
        for at in 0..bytes.len() {
            assert_eq!(Note::parse(&bytes[..at]), None, "cut at {at}");
        }
        assert_eq!(Note::parse(&[&bytes[..], b"x"].concat()), None);
        let colourful = Note { holder: "\u{1b}[31mhost".to_owned(), ..Note::sample() };
        assert_eq!(Note::parse(&colourful.encode()), None);
    }
}
