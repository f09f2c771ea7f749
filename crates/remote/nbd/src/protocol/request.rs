//! Requests: what a client sends once the handshake is over.

use super::{CommandFlags, Headers, u16_from, u32_from, u64_from};
use crate::{Error, Result};
use std::io::Read;

const MAGIC: u32 = 0x2560_9513;
const EXTENDED_MAGIC: u32 = 0x21e4_1c71;

/// What is requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    WriteZeroes,
    BlockStatus,
    /// Anything else.
    Other(u16),
}

impl Command {
    const fn number(self) -> u16 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Disconnect => 2,
            Self::Flush => 3,
            Self::Trim => 4,
            Self::WriteZeroes => 6,
            Self::BlockStatus => 7,
            Self::Other(number) => number,
        }
    }

    const fn of(number: u16) -> Self {
        match number {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Disconnect,
            3 => Self::Flush,
            4 => Self::Trim,
            6 => Self::WriteZeroes,
            7 => Self::BlockStatus,
            other => Self::Other(other),
        }
    }
}

/// A request without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    /// How.
    pub(crate) flags: CommandFlags,
    /// What.
    pub(crate) command: Command,
    /// The client's name for it, which the reply repeats.
    pub(crate) cookie: u64,
    /// Where, in bytes.
    pub(crate) offset: u64,
    /// How many bytes.
    pub(crate) len: u64,
}

impl Request {
    /// Appends its bytes. Short headers take lengths of 32 bits, and the caller keeps to that.
    pub(crate) fn encode(&self, headers: Headers, out: &mut Vec<u8>) {
        let extended = headers == Headers::Extended;
        let mut flags = self.flags;
        flags.set(CommandFlags::PAYLOAD_LEN, extended && self.command == Command::Write);
        out.extend(if extended { EXTENDED_MAGIC } else { MAGIC }.to_be_bytes());
        out.extend(flags.bits().to_be_bytes());
        out.extend(self.command.number().to_be_bytes());
        out.extend(self.cookie.to_be_bytes());
        out.extend(self.offset.to_be_bytes());
        if extended {
            out.extend(self.len.to_be_bytes());
        } else {
            out.extend(u32::try_from(self.len).expect("the length fits a short header").to_be_bytes());
        }
    }

    /// Reads one. What it asks for is not checked.
    pub(crate) fn read(from: &mut impl Read, headers: Headers) -> Result<Self> {
        let extended = headers == Headers::Extended;
        if u32_from(from)? != if extended { EXTENDED_MAGIC } else { MAGIC } {
            return Err(Error::Protocol("a request does not begin as one"));
        }
        let flags = CommandFlags::from_bits_retain(u16_from(from)?);
        let command = Command::of(u16_from(from)?);
        let (cookie, offset) = (u64_from(from)?, u64_from(from)?);
        let len = if extended { u64_from(from)? } else { u32_from(from)?.into() };
        Ok(Self { flags, command, cookie, offset, len })
    }

    /// How many bytes of payload follow: those of every write, though the protocol asks clients with extended headers
    /// to set a flag as well. qemu (10.0) does not, and sends the data; to read none would take it for a request.
    pub(crate) fn payload(&self, headers: Headers) -> u64 {
        let is_flagged = headers == Headers::Extended && self.flags.contains(CommandFlags::PAYLOAD_LEN);
        if is_flagged || self.command == Command::Write { self.len } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(number: u16, cookie: u64, offset: u64, len: u32, extended: bool) {
            let headers = if extended { Headers::Extended } else { Headers::Structured };
            let command = Command::of(number % 9);
            let len = if extended { u64::from(len) << 20 } else { len.into() };
            let sent = Request { flags: CommandFlags::FUA, command, cookie, offset, len };
            let mut bytes = Vec::new();
            sent.encode(headers, &mut bytes);
            let read = Request::read(&mut &bytes[..], headers).unwrap();
            prop_assert_eq!((read.command, read.cookie), (command, cookie));
            prop_assert_eq!((read.offset, read.len), (offset, len));
            prop_assert_eq!(read.payload(headers), if command == Command::Write { len } else { 0 });
        }
    }

    #[test]
    fn regression_a_write_with_extended_headers_has_a_payload_without_the_flag() {
        let of = |command, flags| {
            Request { flags, command, cookie: 1, offset: 0, len: 7 }.payload(Headers::Extended)
        };
        assert_eq!(of(Command::Write, CommandFlags::FUA), 7);
        assert_eq!(of(Command::BlockStatus, CommandFlags::PAYLOAD_LEN), 7);
        assert_eq!(of(Command::Trim, CommandFlags::FUA), 0);
    }
}
