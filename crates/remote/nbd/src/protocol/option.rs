//! The messages of the handshake: options, which a client sends, and their replies.

use super::{
    OPTION_MAGIC, STRING_MAX, array, bytes_from, push_string, string_from, u16_from, u32_from, u64_from,
};
use crate::{Error, Result};
use std::io::Read;

/// Precedes each reply to an option.
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// The most data of an option or a reply: a name, and a query or a description, with some to spare.
pub(crate) const DATA_MAX: usize = 4 * STRING_MAX;

/// The bit that is set in replies that are errors.
const ERROR: u32 = 1 << 31;

/// Options by number.
pub(crate) mod number {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
    pub(crate) const EXTENDED_HEADERS: u32 = 11;
}

/// Replies by number; errors have the highest bit set.
pub(crate) mod answer {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const UNSUPPORTED: u32 = super::ERROR | 1;
    pub(crate) const INVALID: u32 = super::ERROR | 3;
    pub(crate) const TLS_REQUIRED: u32 = super::ERROR | 5;
    pub(crate) const UNKNOWN: u32 = super::ERROR | 6;
    pub(crate) const TOO_BIG: u32 = super::ERROR | 9;
    pub(crate) const EXTENDED_REQUIRED: u32 = super::ERROR | 10;
}

/// What a server says of an export.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// An option with its data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    /// Which option.
    pub(crate) option: u32,
    /// Its data.
    pub(crate) data: Vec<u8>,
}

impl Message {
    /// As bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = OPTION_MAGIC.to_be_bytes().to_vec();
        out.extend(self.option.to_be_bytes());
        push_string(&mut out, &self.data);
        out
    }

    /// Reads one. One with too much data is read over, and given as `Err` of its option.
    pub(crate) fn read(from: &mut impl Read) -> Result<std::result::Result<Self, u32>> {
        if u64_from(from)? != OPTION_MAGIC {
            return Err(Error::Protocol("an option does not begin as one"));
        }
        let (option, len) = (u32_from(from)?, u64::from(u32_from(from)?));
        if len > DATA_MAX as u64 {
            let mut rest = from.take(len);
            if std::io::copy(&mut rest, &mut std::io::sink())? < len {
                return Err(Error::ended());
            }
            return Ok(Err(option));
        }
        let data = bytes_from(from, len, DATA_MAX, "an option is too long")?;
        Ok(Ok(Self { option, data }))
    }
}

/// A reply to an option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    /// What kind.
    pub(crate) kind: u32,
    /// Its data.
    pub(crate) data: Vec<u8>,
}

impl Answer {
    /// One that ends the replies to an option.
    pub(crate) const fn bare(kind: u32) -> Self {
        Self { kind, data: Vec::new() }
    }

    /// Whether it says that the option failed.
    pub(crate) const fn is_error(&self) -> bool {
        self.kind & ERROR != 0
    }

    /// As bytes, as a reply to `option`.
    pub(crate) fn encode(&self, option: u32) -> Vec<u8> {
        let mut out = REPLY_MAGIC.to_be_bytes().to_vec();
        out.extend(option.to_be_bytes());
        out.extend(self.kind.to_be_bytes());
        push_string(&mut out, &self.data);
        out
    }

    /// Reads a reply to `option`.
    pub(crate) fn read(from: &mut impl Read, option: u32) -> Result<Self> {
        if u64_from(from)? != REPLY_MAGIC {
            return Err(Error::Protocol("a reply to an option does not begin as one"));
        }
        if u32_from(from)? != option {
            return Err(Error::Protocol("a reply names an option that was not sent"));
        }
        let (kind, len) = (u32_from(from)?, u32_from(from)?);
        let data = bytes_from(from, len.into(), DATA_MAX, "a reply to an option is longer than any can be")?;
        Ok(Self { kind, data })
    }

    /// The failure that an error reply stands for, in words.
    pub(crate) fn refusal(&self, what: &'static str) -> Error {
        let reason = match self.kind & !ERROR {
            1 => "it does not know that",
            2 => "its policy forbids that",
            3 => "it finds the request invalid",
            4 => "its platform can't do that",
            5 => "it wants TLS: write nbds:// or nbds+unix://",
            6 => "it has no export of that name",
            7 => "it is being shut down",
            8 => "it wants block sizes to be obeyed",
            9 => "the request is too large for it",
            10 => "it wants extended headers",
            _ => "it gives no reason that is known",
        };
        // The text is a stranger's: only what can be printed safely is shown.
        let text: String =
            String::from_utf8_lossy(&self.data).chars().filter(|c| !c.is_control()).take(200).collect();
        let said = if text.is_empty() { String::new() } else { format!(" ({text})") };
        Error::Refused(format!("the server refuses {what}: {reason}{said}"))
    }
}

/// The least, the preferred and the largest length of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockSizes {
    /// Places and lengths are multiples of this.
    pub(crate) least: u32,
    /// Such requests are served best.
    pub(crate) preferred: u32,
    /// No payload may be larger.
    pub(crate) largest: u32,
}

impl BlockSizes {
    /// What holds where nothing was said.
    pub(crate) const DEFAULT: Self = Self { least: 1, preferred: 4096, largest: super::PAYLOAD_MAX };

    /// Checked as the protocol demands.
    fn checked(self) -> Result<Self> {
        let sound = self.least.is_power_of_two()
            && self.least <= 1 << 16
            && self.preferred.is_power_of_two()
            && self.preferred >= self.least
            && self.largest >= self.least;
        if sound { Ok(self) } else { Err(Error::Protocol("its block sizes contradict each other")) }
    }
}

/// What a server says of an export, in one reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Info {
    /// Its length and flags.
    Export(u64, u16),
    /// Its block sizes.
    Sizes(BlockSizes),
    /// A text.
    Text(u16, Vec<u8>),
    /// Something unknown.
    Other(u16),
}

impl Info {
    /// The data of a reply.
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Export(len, flags) => {
                [&info::EXPORT.to_be_bytes()[..], &len.to_be_bytes(), &flags.to_be_bytes()].concat()
            }
            Self::Sizes(sizes) => [
                &info::BLOCK_SIZE.to_be_bytes()[..],
                &sizes.least.to_be_bytes(),
                &sizes.preferred.to_be_bytes(),
                &sizes.largest.to_be_bytes(),
            ]
            .concat(),
            Self::Text(kind, text) => [&kind.to_be_bytes()[..], text].concat(),
            Self::Other(kind) => kind.to_be_bytes().to_vec(),
        }
    }

    /// From the data of a reply.
    pub(crate) fn parse(mut data: &[u8]) -> Result<Self> {
        let from = &mut data;
        let parsed = match u16_from(from)? {
            info::EXPORT => Self::Export(u64_from(from)?, u16_from(from)?),
            info::BLOCK_SIZE => {
                let [least, preferred, largest] = [u32_from(from)?, u32_from(from)?, u32_from(from)?];
                Self::Sizes(BlockSizes { least, preferred, largest }.checked()?)
            }
            kind @ (info::NAME | info::DESCRIPTION) => Self::Text(kind, std::mem::take(from).to_vec()),
            kind => {
                *from = &[];
                Self::Other(kind)
            }
        };
        if from.is_empty() {
            Ok(parsed)
        } else {
            Err(Error::Protocol("what it says of the export is too long"))
        }
    }
}

/// What a client wants to know of, or do with, an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wish {
    /// The export.
    pub(crate) name: Vec<u8>,
    /// The information it wants beyond the length.
    pub(crate) infos: Vec<u16>,
}

impl Wish {
    /// The data of the option.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut data = Vec::new();
        push_string(&mut data, &self.name);
        data.extend(u16::try_from(self.infos.len()).unwrap_or(u16::MAX).to_be_bytes());
        self.infos.iter().for_each(|info| data.extend(info.to_be_bytes()));
        data
    }

    /// From the data of the option.
    pub(crate) fn parse(mut data: &[u8]) -> Result<Self> {
        let name = string_from(&mut data)?;
        let count = u16_from(&mut data)?;
        let infos = (0..count).map(|_| u16_from(&mut data)).collect::<Result<_>>()?;
        if data.is_empty() { Ok(Self { name, infos }) } else { Err(Error::Protocol("an option is too long")) }
    }
}

/// The contexts that a client asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Contexts {
    /// The export.
    pub(crate) name: Vec<u8>,
    /// The contexts.
    pub(crate) queries: Vec<Vec<u8>>,
}

impl Contexts {
    /// The data of the option.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut data = Vec::new();
        push_string(&mut data, &self.name);
        data.extend(u32::try_from(self.queries.len()).unwrap_or(u32::MAX).to_be_bytes());
        self.queries.iter().for_each(|query| push_string(&mut data, query));
        data
    }

    /// From the data of the option.
    pub(crate) fn parse(mut data: &[u8]) -> Result<Self> {
        let name = string_from(&mut data)?;
        // Each takes four bytes at least, so what follows ends soon, whatever the count claims.
        let count = u32_from(&mut data)?;
        let queries = (0..count).map(|_| string_from(&mut data)).collect::<Result<_>>()?;
        if data.is_empty() {
            Ok(Self { name, queries })
        } else {
            Err(Error::Protocol("an option is too long"))
        }
    }
}

/// A context with its number.
pub(crate) fn context(id: u32, name: &[u8]) -> Answer {
    Answer { kind: answer::META_CONTEXT, data: [&id.to_be_bytes()[..], name].concat() }
}

/// The number of the context that a reply names, and its name.
pub(crate) fn parse_context(mut data: &[u8]) -> Result<(u32, Vec<u8>)> {
    let id = u32::from_be_bytes(array(&mut data)?);
    Ok((id, data.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(option: u32, kind: u32, data in vec(any::<u8>(), 0..300)) {
            let message = Message { option, data: data.clone() };
            prop_assert_eq!(Message::read(&mut &message.encode()[..]).unwrap().unwrap(), message);
            let answer = Answer { kind, data };
            prop_assert_eq!(Answer::read(&mut &answer.encode(option)[..], option).unwrap(), answer);
        }

        #[test]
        fn wishes_and_contexts_come_back(
            name in vec(any::<u8>(), 0..50),
            infos in vec(any::<u16>(), 0..9),
            queries in vec(vec(any::<u8>(), 0..20), 0..9),
        ) {
            let wish = Wish { name: name.clone(), infos };
            prop_assert_eq!(Wish::parse(&wish.encode()).unwrap(), wish);
            let contexts = Contexts { name, queries };
            prop_assert_eq!(Contexts::parse(&contexts.encode()).unwrap(), contexts);
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(data in vec(any::<u8>(), 0..100)) {
            let _ = (Wish::parse(&data), Contexts::parse(&data), parse_context(&data));
            if let Ok(info) = Info::parse(&data) {
                prop_assert!(data.starts_with(&info.encode()));
            }
        }
    }

    #[test]
    fn block_sizes_that_lie_are_refused() {
        for (least, preferred, largest) in [
            (0, 4096, 4096),
            (3, 4096, 4096),
            (1 << 17, 1 << 17, 1 << 20),
            (512, 256, 4096),
            (4096, 4096, 512),
        ] {
            let info = Info::Sizes(BlockSizes { least, preferred, largest });
            assert!(Info::parse(&info.encode()).is_err(), "{info:?}");
        }
    }

    #[test]
    fn an_option_that_is_too_long_is_read_over() {
        let long = Message { option: 7, data: vec![0; DATA_MAX + 1] };
        let bytes = [long.encode(), Message { option: 3, data: Vec::new() }.encode()].concat();
        let mut rest = &bytes[..];
        assert_eq!(Message::read(&mut rest).unwrap(), Err(7));
        assert_eq!(Message::read(&mut rest).unwrap().unwrap().option, 3);
    }
}
