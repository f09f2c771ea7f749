//! The handshake from the client's side: what the export is, and which forms of messages both sides know.
//!
//! The newest form is asked for first: extended headers, else structured replies, else what every server has.
//! Invariant: after every refusal that leaves both sides in step the handshake goes on with less; all else
//! ends it. The number of replies is bounded, the time by the stream.

use crate::protocol::option::{
    Answer, BlockSizes, Contexts, Info, Message, Wish, answer, info, number, parse_context,
};
use crate::protocol::{
    ALLOCATION, ExportFlags, GREETING, HandshakeFlags, Headers, OLD_STYLE, OPTION_MAGIC, array, u16_from,
    u64_from,
};
use crate::{Error, Result};
use std::io::{ErrorKind, Read, Write};

/// The most replies to one option: more than anybody has contexts or things to say of an export.
const REPLIES_MAX: usize = 256;

/// What both sides agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Agreed {
    /// The length of the export in bytes.
    pub(crate) len: u64,
    /// What it can do.
    pub(crate) flags: ExportFlags,
    /// The lengths of requests.
    pub(crate) sizes: BlockSizes,
    /// The form of messages.
    pub(crate) headers: Headers,
    /// The number of the context that says what is zeros, if there is one.
    pub(crate) context: Option<u32>,
}

impl Agreed {
    /// Whether a connection made later is to the same export, with nothing missing that is relied on:
    /// requests are cut for what was agreed on first.
    pub(crate) fn covers(&self, earlier: &Self) -> bool {
        let read_only = |agreed: &Self| agreed.flags.contains(ExportFlags::READ_ONLY);
        let used = ExportFlags::FLUSH
            | ExportFlags::FUA
            | ExportFlags::TRIM
            | ExportFlags::WRITE_ZEROES
            | ExportFlags::FAST_ZERO;
        self.len == earlier.len
            && self.sizes == earlier.sizes
            && self.headers == earlier.headers
            && read_only(self) == read_only(earlier)
            && self.flags.contains(earlier.flags & used)
    }
}

/// Agrees with a server, after [`greet`], on how to use an export.
pub(crate) fn agree(stream: &mut (impl Read + Write), export: &[u8], padded: bool) -> Result<Agreed> {
    let headers = if accepts(stream, number::EXTENDED_HEADERS)? {
        Headers::Extended
    } else if accepts(stream, number::STRUCTURED_REPLY)? {
        Headers::Structured
    } else {
        Headers::Simple
    };
    let context = if headers > Headers::Simple { context(stream, export)? } else { None };
    let agreed = match go(stream, export)? {
        Some((len, flags, sizes)) => Agreed { len, flags, sizes, headers, context },
        None if headers == Headers::Extended => {
            return Err(Error::Protocol("it knows the new headers, but not GO"));
        }
        None => {
            let (len, flags) = by_name(stream, export, padded)?;
            Agreed { len, flags, sizes: BlockSizes::DEFAULT, headers, context }
        }
    };
    if agreed.len % u64::from(agreed.sizes.least) != 0 {
        return Err(Error::Refused(
            "the export's length is no multiple of its own least block size".to_owned(),
        ));
    }
    Ok(agreed)
}

/// Asks for TLS, after [`greet`]: it begins with the next byte. A server without it is refused, whatever it
/// answers: an attacker on the network could send the same answer.
pub(crate) fn start_tls(stream: &mut (impl Read + Write)) -> Result<()> {
    send(stream, number::STARTTLS, Vec::new())?;
    let reply = Answer::read(stream, number::STARTTLS)?;
    match reply.kind {
        answer::ACK => Ok(()),
        _ if reply.is_error() => Err(reply.refusal("TLS, without which nothing is sent")),
        _ => Err(Error::Protocol("the wish for TLS is answered with something else")),
    }
}

/// Greets; whether the oldest option's reply ends with padding.
pub(crate) fn greet(stream: &mut (impl Read + Write)) -> Result<bool> {
    if u64_from(stream)? != GREETING {
        return Err(Error::Protocol("it does not greet as an NBD server does"));
    }
    match u64_from(stream)? {
        OPTION_MAGIC => {}
        OLD_STYLE => {
            let text =
                "the server speaks the style of before 2011, which has no export names; use a newer one";
            return Err(Error::Refused(text.to_owned()));
        }
        _ => return Err(Error::Protocol("it greets in an unknown way")),
    }
    let flags = HandshakeFlags::from_bits_retain(u16_from(stream)?);
    if !flags.contains(HandshakeFlags::FIXED_NEWSTYLE) {
        return Err(Error::Refused(
            "the server does not speak the fixed newstyle; use a newer one".to_owned(),
        ));
    }
    let ours = HandshakeFlags::FIXED_NEWSTYLE | (flags & HandshakeFlags::NO_ZEROES);
    stream.write_all(&u32::from(ours.bits()).to_be_bytes())?;
    Ok(!ours.contains(HandshakeFlags::NO_ZEROES))
}

/// Sends an option. Where the server has closed the connection, it may have said why: a certificate that it does
/// not accept is an alert of TLS, which is there to be read.
fn send(stream: &mut (impl Read + Write), option: u32, data: Vec<u8>) -> Result<()> {
    let sent = stream.write_all(&Message { option, data }.encode());
    let Err(error) = sent else { return Ok(()) };
    if !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) {
        return Err(error.into());
    }
    match stream.read(&mut [0]) {
        Err(alert) if alert.kind() == ErrorKind::InvalidData => Err(alert.into()),
        _ => Err(error.into()),
    }
}

/// Whether the server takes an option that has no data.
fn accepts(stream: &mut (impl Read + Write), option: u32) -> Result<bool> {
    send(stream, option, Vec::new())?;
    let reply = Answer::read(stream, option)?;
    match reply.kind {
        answer::ACK => Ok(true),
        _ if reply.is_error() => Ok(false),
        _ => Err(Error::Protocol("an option is answered with something else")),
    }
}

/// The number of the context of allocation, if the server has it.
fn context(stream: &mut (impl Read + Write), export: &[u8]) -> Result<Option<u32>> {
    let wanted = Contexts { name: export.to_vec(), queries: vec![ALLOCATION.to_vec()] };
    send(stream, number::SET_META_CONTEXT, wanted.encode())?;
    let mut found = None;
    for _ in 0..REPLIES_MAX {
        let reply = Answer::read(stream, number::SET_META_CONTEXT)?;
        match reply.kind {
            answer::ACK => return Ok(found),
            answer::META_CONTEXT => {
                let (id, name) = parse_context(&reply.data)?;
                if name != ALLOCATION || found.replace(id).is_some() {
                    return Err(Error::Protocol("it names a context that was not asked for"));
                }
            }
            // An unknown export shows again, with a better text, when it is asked for.
            _ if reply.is_error() => return Ok(None),
            _ => return Err(Error::Protocol("the contexts are answered with something else")),
        }
    }
    Err(Error::Protocol("its replies do not end"))
}

/// The export's length, flags and block sizes; `None` if the server does not know the option.
fn go(stream: &mut (impl Read + Write), export: &[u8]) -> Result<Option<(u64, ExportFlags, BlockSizes)>> {
    let wish = Wish { name: export.to_vec(), infos: vec![info::BLOCK_SIZE] };
    send(stream, number::GO, wish.encode())?;
    let (mut found, mut sizes) = (None, BlockSizes::DEFAULT);
    for _ in 0..REPLIES_MAX {
        let reply = Answer::read(stream, number::GO)?;
        match reply.kind {
            answer::INFO => match Info::parse(&reply.data)? {
                Info::Export(len, flags) => found = Some((len, ExportFlags::from_bits_retain(flags))),
                Info::Sizes(said) => sizes = said,
                Info::Text(..) | Info::Other(_) => {}
            },
            answer::ACK => {
                let (len, flags) = found.ok_or(Error::Protocol("it does not say how long the export is"))?;
                return Ok(Some((len, flags, sizes)));
            }
            answer::UNSUPPORTED => return Ok(None),
            _ if reply.is_error() => return Err(reply.refusal("the export")),
            _ => return Err(Error::Protocol("the export is answered with something else")),
        }
    }
    Err(Error::Protocol("its replies do not end"))
}

/// The way of servers that know no better; one that refuses ends the connection.
fn by_name(stream: &mut (impl Read + Write), export: &[u8], padded: bool) -> Result<(u64, ExportFlags)> {
    send(stream, number::EXPORT_NAME, export.to_vec())?;
    let len = u64_from(stream)?;
    let flags = ExportFlags::from_bits_retain(u16_from(stream)?);
    if padded {
        let _: [u8; 124] = array(stream)?;
    }
    Ok((len, flags))
}
