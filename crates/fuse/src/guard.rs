//! Requests as bytes, looked at before the session library sees them.
//!
//! The library takes some things for granted that a kernel's request has by construction, and panics or ends
//! the session where they are missing: that a message is as long as its header says, that `WRITE`, `SETXATTR`
//! and `IOCTL` bring as many bytes as they announce, that times can be counted in nanoseconds since 1970.
//! Whoever else speaks the protocol ([`crate::client`]) gets an error for such requests here. Everything that
//! is merely short is the library's to refuse, and everything that is merely absurd is the adapter's.
//!
//! Layouts are those of `include/uapi/linux/fuse.h`.

/// Bytes before the body of a request.
pub(crate) const REQUEST_HEADER: usize = 40;

const SETATTR: u32 = 4;
const READ: u32 = 15;
const WRITE: u32 = 16;
const SETXATTR: u32 = 21;
const READDIR: u32 = 28;
const IOCTL: u32 = 39;
const READDIRPLUS: u32 = 44;

/// Fixed parts of bodies.
const WRITE_IN: usize = 40;
const SETXATTR_IN: usize = 8;
const IOCTL_IN: usize = 32;

/// Which times a `SETATTR` has, and where: flag, seconds, nanoseconds.
const TIMES: [(u32, usize, usize); 3] = [(1 << 4, 32, 56), (1 << 5, 40, 60), (1 << 10, 48, 64)];
const NANOSECONDS: u32 = 1_000_000_000;

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The session may see it.
    Pass,
    /// Its sender, who calls it by this number, gets an error.
    Refuse(u64),
    /// It is not even a request that could be answered.
    Drop,
}

/// Judges a message whose answer may have `room` bytes of data.
pub(crate) fn judge(message: &[u8], room: u32) -> Verdict {
    let (Some(len), Some(operation), Some(unique), Some(body)) =
        (word(message, 0), word(message, 4), quad(message, 8), message.get(REQUEST_HEADER..))
    else {
        return Verdict::Drop;
    };
    let is_whole = usize::try_from(len).is_ok_and(|len| len == message.len());
    if is_whole && is_true(operation, body, room) { Verdict::Pass } else { Verdict::Refuse(unique) }
}

/// Whether a body has what it says. One that ends too early to say it passes.
fn is_true(operation: u32, body: &[u8], room: u32) -> bool {
    let has = |from: usize, announced: Option<u32>| {
        let (Some(rest), Some(size)) = (body.len().checked_sub(from), announced) else { return true };
        usize::try_from(size).is_ok_and(|size| size == rest)
    };
    match operation {
        WRITE => has(WRITE_IN, word(body, 16)),
        SETXATTR => {
            let name = body.get(SETXATTR_IN..).and_then(|rest| rest.iter().position(|byte| *byte == 0));
            name.is_none_or(|len| has(SETXATTR_IN + len + 1, word(body, 0)))
        }
        IOCTL => has(IOCTL_IN, word(body, 24)) && word(body, 28).is_none_or(|out| out <= room),
        READ | READDIR | READDIRPLUS => word(body, 16).is_none_or(|size| size <= room),
        SETATTR => TIMES.iter().all(|(flag, seconds, nanoseconds)| {
            let given = word(body, 0).is_some_and(|valid| valid & flag != 0);
            !given
                || (quad(body, *seconds) != Some(i64::MIN.cast_unsigned())
                    && word(body, *nanoseconds).is_none_or(|n| n < NANOSECONDS))
        }),
        _ => true,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn quad(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(operation: u32, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(REQUEST_HEADER + body.len()).unwrap();
        let mut message = [len.to_le_bytes(), operation.to_le_bytes()].concat();
        message.extend_from_slice(&7_u64.to_le_bytes());
        message.resize(REQUEST_HEADER, 0);
        [&message, body].concat()
    }

    fn with_word(len: usize, at: usize, value: u32) -> Vec<u8> {
        let mut body = vec![0; len];
        body[at..at + 4].copy_from_slice(&value.to_le_bytes());
        body
    }

    #[test]
    fn sizes_that_lie_are_refused() {
        for (operation, body, passes) in [
            (WRITE, with_word(45, 16, 5), true),
            (WRITE, with_word(45, 16, 6), false),
            (WRITE, with_word(45, 16, u32::MAX), false),
            (WRITE, vec![9; 20], true),
            (SETXATTR, [&with_word(8, 0, 2)[..], b"user.a\0xy"].concat(), true),
            (SETXATTR, [&with_word(8, 0, 3)[..], b"user.a\0xy"].concat(), false),
            (SETXATTR, with_word(8, 0, 3), true),
            (IOCTL, with_word(36, 24, 4), true),
            (IOCTL, with_word(36, 24, 5), false),
            (READ, with_word(40, 16, 4096), true),
            (READ, with_word(40, 16, 4097), false),
            (SETATTR, with_word(88, 0, 1 << 4), true),
        ] {
            let expected = if passes { Verdict::Pass } else { Verdict::Refuse(7) };
            assert_eq!(judge(&message(operation, &body), 4096), expected, "{operation} {body:?}");
        }
        let mut lies = message(1, b"name\0");
        lies[0] += 1;
        assert_eq!(judge(&lies, 0), Verdict::Refuse(7));
        assert_eq!(judge(&lies[..39], 0), Verdict::Drop);
        assert_eq!(judge(&[], 0), Verdict::Drop);
    }

    #[test]
    fn times_that_can_not_be_counted_are_refused() {
        for (flag, seconds, nanoseconds) in TIMES {
            let mut body = with_word(88, 0, flag);
            body[seconds..seconds + 8].copy_from_slice(&i64::MIN.to_le_bytes());
            assert_eq!(judge(&message(SETATTR, &body), 0), Verdict::Refuse(7));
            body[seconds..seconds + 8].copy_from_slice(&(i64::MIN + 1).to_le_bytes());
            assert_eq!(judge(&message(SETATTR, &body), 0), Verdict::Pass);
            body[nanoseconds..nanoseconds + 4].copy_from_slice(&NANOSECONDS.to_le_bytes());
            assert_eq!(judge(&message(SETATTR, &body), 0), Verdict::Refuse(7));
            body[..4].fill(0);
            assert_eq!(judge(&message(SETATTR, &body), 0), Verdict::Pass, "not given, not looked at");
        }
    }
}
