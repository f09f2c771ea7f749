//! Cuts operations into requests that the server takes: whole blocks of its least size, payloads no larger
//! than it allows, lengths that fit the headers.

use super::connection::Order;
use super::handshake::Agreed;
use super::unflushed::Piece;
use crate::protocol::request::Command;
use crate::protocol::{CommandFlags, ExportFlags, Headers};
use hectare_device::Span;
use hectare_units::{Bytes, index_of, u64_of};

/// The largest payload that is sent or asked for at once: large enough that the cost of a request does not
/// count, small enough that several are in flight.
const PAYLOAD: u64 = 256 << 10;

/// Zeros to be sent to servers that can't make their own.
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];
const _: () = assert!(ZEROS.len() as u64 == PAYLOAD);

/// The longest range without payload that short headers take, as a power of two.
const SHORT_MAX: u64 = 1 << 31;
/// The longest range that is zeroed at once by a server that may have to write the zeros: it answers in time.
const SLOW_MAX: u64 = 1 << 28;

/// The largest payload for this server: whole blocks.
pub(super) fn payload(agreed: &Agreed) -> u64 {
    let least = u64::from(agreed.sizes.least);
    PAYLOAD.min(u64::from(agreed.sizes.largest) / least * least)
}

/// The longest range for requests without payload.
pub(super) fn range_max(agreed: &Agreed) -> u64 {
    if agreed.headers == Headers::Extended { u64::MAX / 2 + 1 } else { SHORT_MAX }
}

/// Requests of one kind without payload for a range of whole blocks.
pub(super) fn bare(
    command: Command,
    flags: CommandFlags,
    span: Span,
    step: u64,
) -> impl Iterator<Item = Order<'static>> {
    let order =
        move |piece: Span| Order { command, flags, at: piece.at.get(), len: piece.len.get(), data: &[] };
    span.pieces(step).map(order)
}

/// Reads of a range of whole blocks.
pub(super) fn reads(span: Span, agreed: &Agreed) -> impl Iterator<Item = Order<'static>> {
    bare(Command::Read, CommandFlags::empty(), span, payload(agreed))
}

/// Writes of whole blocks.
pub(super) fn writes<'a>(
    at: Bytes,
    data: &'a [u8],
    flags: CommandFlags,
    agreed: &Agreed,
) -> impl Iterator<Item = Order<'a>> + use<'a> {
    let step = index_of(payload(agreed));
    data.chunks(step).enumerate().map(move |(nr, data)| Order {
        command: Command::Write,
        flags,
        at: at.get() + u64_of(nr * step),
        len: u64_of(data.len()),
        data,
    })
}

/// Writes of zeros into whole blocks, for servers that can't make them.
pub(super) fn written_zeros(span: Span, agreed: &Agreed) -> impl Iterator<Item = Order<'static>> + use<> {
    span.pieces(payload(agreed)).map(|piece| Order {
        command: Command::Write,
        flags: CommandFlags::empty(),
        at: piece.at.get(),
        len: piece.len.get(),
        data: &ZEROS[..index_of(piece.len.get())],
    })
}

/// Requests to zero whole blocks, however long that takes the server.
pub(super) fn zeros(span: Span) -> impl Iterator<Item = Order<'static>> {
    bare(Command::WriteZeroes, CommandFlags::empty(), span, SLOW_MAX)
}

/// Requests that write again what a server may have lost.
pub(super) fn of_unflushed<'a>(at: u64, piece: &'a Piece, agreed: &Agreed) -> Vec<Order<'a>> {
    let at = Bytes::new(at);
    match piece.bytes() {
        Some(bytes) => writes(at, bytes, CommandFlags::empty(), agreed).collect(),
        None if agreed.flags.contains(ExportFlags::WRITE_ZEROES) => {
            zeros(Span::new(at, Bytes::new(piece.len))).collect()
        }
        None => written_zeros(Span::new(at, Bytes::new(piece.len)), agreed).collect(),
    }
}

/// A part of an operation: whole blocks, or a piece of one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Whole(Span),
    /// Bytes inside one block, which has to be read, changed and written.
    Within(Span),
}

/// Cuts a range at the borders of blocks: at most a part of a block, whole blocks, a part of a block.
pub(super) fn parts(span: Span, block: u32) -> Vec<Part> {
    let block = u64::from(block);
    let (start, end) = (span.at.get(), span.at.get() + span.len.get());
    let (inner_start, inner_end) = (start.next_multiple_of(block), end / block * block);
    let part = |from: u64, to: u64| Span::new(Bytes::new(from), Bytes::new(to - from));
    if inner_start > inner_end {
        return vec![Part::Within(span)];
    }
    [
        (start < inner_start).then(|| Part::Within(part(start, inner_start))),
        (inner_start < inner_end).then(|| Part::Whole(part(inner_start, inner_end))),
        (inner_end < end).then(|| Part::Within(part(inner_end, end))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The whole blocks that a range touches.
pub(super) fn around(span: Span, block: u32) -> Span {
    let block = u64::from(block);
    let start = span.at.get() / block * block;
    let end = (span.at.get() + span.len.get()).next_multiple_of(block);
    Span::new(Bytes::new(start), Bytes::new(end - start))
}

/// The whole blocks inside a range, if there are any.
pub(super) fn inside(span: Span, block: u32) -> Option<Span> {
    parts(span, block).into_iter().find_map(|part| match part {
        Part::Whole(span) => Some(span),
        Part::Within(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_cover_a_range_and_keep_to_blocks(at in 0_u64..5000, len in 1_u64..5000, shift in 0_u32..12) {
            let (span, block) = (Span::new(Bytes::new(at), Bytes::new(len)), 1_u64 << shift);
            let mut next = at;
            for part in parts(span, 1 << shift) {
                let (Part::Whole(piece) | Part::Within(piece)) = part;
                prop_assert_eq!(piece.at.get(), next);
                next += piece.len.get();
                match part {
                    Part::Whole(piece) => {
                        prop_assert!(piece.at.get() % block == 0 && piece.len.get() % block == 0);
                        prop_assert!(piece.len.get() > 0);
                    }
                    Part::Within(piece) => {
                        prop_assert!(piece.len.get() > 0 && piece.len.get() < block);
                        prop_assert_eq!(piece.at.get() / block, (next - 1) / block);
                    }
                }
            }
            prop_assert_eq!(next, at + len);
            let wide = around(span, 1 << shift);
            prop_assert!(wide.at <= span.at && wide.end() >= span.end());
            prop_assert!(wide.len.get().is_multiple_of(block));
        }
    }
}
