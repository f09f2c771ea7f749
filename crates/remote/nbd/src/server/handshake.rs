//! The handshake from the server's side: options are answered until the client chooses the export, leaves, or
//! has sent too many.

use super::Export;
use crate::protocol::option::{
    Answer, BlockSizes, Contexts, Info, Message, Wish, answer, context, info, number,
};
use crate::protocol::{
    ALLOCATION, GREETING, HandshakeFlags, Headers, OPTION_MAGIC, PAYLOAD_MAX, push_string, u32_from,
};
use crate::{Error, Result};
use std::io::{Read, Write};

/// The most options of a client.
const OPTIONS_MAX: usize = 256;
/// The context of allocation has this number.
pub(super) const CONTEXT: u32 = 1;

/// What a client chose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Agreed {
    /// The form of messages.
    pub(super) headers: Headers,
    /// Whether it may ask for extents.
    pub(super) has_context: bool,
}

/// What an option leads to.
enum Step {
    /// The next option.
    Next,
    /// The export was chosen.
    Go,
    /// TLS begins.
    StartTls,
    /// The client leaves.
    Leave,
}

/// Whether a connection is encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Security {
    /// It is not, and need not be.
    Plain,
    /// It is not yet, and nothing is said before it is.
    Required,
    /// It is.
    Encrypted,
}

/// How the options of a client end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// It chose the export.
    Chosen(Agreed),
    /// It begins TLS with its next byte; what it has agreed on so far is void.
    StartTls,
    /// It leaves.
    Left,
}

/// Greets a client; whether its reply to the oldest option ends with padding.
pub(super) fn greet(stream: &mut (impl Read + Write)) -> Result<bool> {
    let ours = HandshakeFlags::FIXED_NEWSTYLE | HandshakeFlags::NO_ZEROES;
    let greeting = [&GREETING.to_be_bytes()[..], &OPTION_MAGIC.to_be_bytes(), &ours.bits().to_be_bytes()];
    stream.write_all(&greeting.concat())?;
    let theirs = u32_from(stream)?;
    if theirs & !u32::from(ours.bits()) != 0 {
        return Err(Error::Protocol("a client has unknown flags"));
    }
    Ok(theirs & u32::from(HandshakeFlags::NO_ZEROES.bits()) == 0)
}

/// Answers options, after [`greet`], until one ends them.
pub(super) fn agree(
    stream: &mut (impl Read + Write),
    export: &Export,
    padded: bool,
    security: Security,
) -> Result<End> {
    let agreed = Agreed { headers: Headers::Simple, has_context: false };
    let mut talk = Talk { stream, export, padded, agreed, security };
    for _ in 0..OPTIONS_MAX {
        let step = match Message::read(talk.stream)? {
            Ok(message) => talk.option(&message)?,
            Err(option) => talk.end(option, answer::TOO_BIG)?,
        };
        match step {
            Step::Next => {}
            Step::Go => return Ok(End::Chosen(talk.agreed)),
            Step::StartTls => return Ok(End::StartTls),
            Step::Leave => return Ok(End::Left),
        }
    }
    Err(Error::Protocol("a client has too many options"))
}

struct Talk<'a, S> {
    stream: &'a mut S,
    export: &'a Export,
    padded: bool,
    agreed: Agreed,
    security: Security,
}

impl<S: Read + Write> Talk<'_, S> {
    fn option(&mut self, message: &Message) -> Result<Step> {
        let (option, data) = (message.option, &message.data[..]);
        if self.security == Security::Required {
            return self.before_tls(message);
        }
        let is_bare = matches!(option, number::LIST | number::STRUCTURED_REPLY | number::EXTENDED_HEADERS);
        if is_bare && !data.is_empty() {
            return self.end(option, answer::INVALID);
        }
        match option {
            number::EXPORT_NAME => self.by_name(data),
            number::ABORT => {
                // The client may be gone already.
                let _ = self.end(option, answer::ACK);
                Ok(Step::Leave)
            }
            number::LIST => {
                let mut listed = Vec::new();
                push_string(&mut listed, &self.export.name);
                listed.extend(self.export.description.as_bytes());
                self.say(option, &Answer { kind: answer::SERVER, data: listed })?;
                self.end(option, answer::ACK)
            }
            number::INFO | number::GO => self.go(option, data),
            number::STRUCTURED_REPLY if self.agreed.headers == Headers::Extended => {
                self.end(option, answer::EXTENDED_REQUIRED)
            }
            number::STRUCTURED_REPLY => self.take(option, Headers::Structured),
            number::EXTENDED_HEADERS => self.take(option, Headers::Extended),
            number::LIST_META_CONTEXT | number::SET_META_CONTEXT => self.contexts(option, data),
            number::STARTTLS if self.security == Security::Encrypted => self.end(option, answer::INVALID),
            // TLS among them, where there is none.
            _ => self.end(option, answer::UNSUPPORTED),
        }
    }

    /// Nothing is answered but the wish for TLS, or to leave.
    fn before_tls(&mut self, message: &Message) -> Result<Step> {
        match message.option {
            number::STARTTLS if message.data.is_empty() => {
                self.say(message.option, &Answer::bare(answer::ACK))?;
                Ok(Step::StartTls)
            }
            number::STARTTLS => self.end(message.option, answer::INVALID),
            number::ABORT => {
                let _ = self.end(message.option, answer::ACK);
                Ok(Step::Leave)
            }
            // It has no reply that could refuse it.
            number::EXPORT_NAME => Ok(Step::Leave),
            other => self.end(other, answer::TLS_REQUIRED),
        }
    }

    fn say(&mut self, option: u32, answer: &Answer) -> Result<()> {
        Ok(self.stream.write_all(&answer.encode(option))?)
    }

    fn end(&mut self, option: u32, kind: u32) -> Result<Step> {
        self.say(option, &Answer::bare(kind))?;
        Ok(Step::Next)
    }

    fn take(&mut self, option: u32, headers: Headers) -> Result<Step> {
        self.agreed.headers = headers;
        self.end(option, answer::ACK)
    }

    fn is_ours(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.export.name
    }

    fn flags(&self) -> u16 {
        self.export.flags(self.agreed.headers > Headers::Simple).bits()
    }

    /// The oldest way to choose, which has no way to refuse but to leave.
    fn by_name(&mut self, name: &[u8]) -> Result<Step> {
        if !self.is_ours(name) || self.agreed.headers == Headers::Extended {
            return Ok(Step::Leave);
        }
        let mut said = self.export.device.len().get().to_be_bytes().to_vec();
        said.extend(self.flags().to_be_bytes());
        if self.padded {
            said.extend([0; 124]);
        }
        self.stream.write_all(&said)?;
        Ok(Step::Go)
    }

    fn go(&mut self, option: u32, data: &[u8]) -> Result<Step> {
        let Ok(wish) = Wish::parse(data) else { return self.end(option, answer::INVALID) };
        if !self.is_ours(&wish.name) {
            return self.end(option, answer::UNKNOWN);
        }
        let sizes = BlockSizes { least: 1, preferred: 4096, largest: PAYLOAD_MAX };
        let mut infos = vec![Info::Export(self.export.device.len().get(), self.flags()), Info::Sizes(sizes)];
        if wish.infos.contains(&info::NAME) {
            infos.push(Info::Text(info::NAME, self.export.name.clone()));
        }
        if wish.infos.contains(&info::DESCRIPTION) {
            infos.push(Info::Text(info::DESCRIPTION, self.export.description.clone().into_bytes()));
        }
        for info in infos {
            self.say(option, &Answer { kind: answer::INFO, data: info.encode() })?;
        }
        self.end(option, answer::ACK)?;
        Ok(if option == number::GO { Step::Go } else { Step::Next })
    }

    fn contexts(&mut self, option: u32, data: &[u8]) -> Result<Step> {
        let setting = option == number::SET_META_CONTEXT;
        if setting {
            self.agreed.has_context = false;
        }
        let Ok(wanted) = Contexts::parse(data) else { return self.end(option, answer::INVALID) };
        if self.agreed.headers == Headers::Simple {
            return self.end(option, answer::INVALID);
        }
        if !self.is_ours(&wanted.name) {
            return self.end(option, answer::UNKNOWN);
        }
        let all = !setting && (wanted.queries.is_empty() || wanted.queries.contains(&b"base:".to_vec()));
        if all || wanted.queries.iter().any(|query| query == ALLOCATION) {
            self.say(option, &context(if setting { CONTEXT } else { 0 }, ALLOCATION))?;
            self.agreed.has_context |= setting;
        }
        self.end(option, answer::ACK)
    }
}
