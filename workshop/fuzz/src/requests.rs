//! FUSE requests made of an input: well-formed ones, whose fields are whatever comes, and raw ones.
//!
//! A request that is well-formed gets far; so names, inodes and offsets are mostly taken from a few that are
//! worth it, and sizes are true unless the input says otherwise.

use crate::input::Input;

const FORGET: u32 = 2;
const SETATTR: u32 = 4;
const SYMLINK: u32 = 6;
const MKNOD: u32 = 8;
const MKDIR: u32 = 9;
const RENAME: u32 = 12;
const LINK: u32 = 13;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const SETXATTR: u32 = 21;
const GETXATTR: u32 = 22;
const READDIR: u32 = 28;
const CREATE: u32 = 35;
const DESTROY: u32 = 38;
const IOCTL: u32 = 39;
const BATCH_FORGET: u32 = 42;
const FALLOCATE: u32 = 43;
const READDIRPLUS: u32 = 44;
const RENAME2: u32 = 45;
const LSEEK: u32 = 46;
const COPY_FILE_RANGE: u32 = 47;
const TMPFILE: u32 = 51;
const COPY_FILE_RANGE_64: u32 = 53;
/// One more than the last that there is.
const END: u32 = 54;

const NAMES: [&[u8]; 10] = [b"a", b"b", b"c", b"d", b".", b"..", b"", b"x/y", b"lost+found", &[b'n'; 256]];
const ATTRIBUTES: [&[u8]; 6] =
    [b"user.a", b"trusted.b", b"system.posix_acl_access", b"security.capability", b"system.data", b"user."];
const OFFSETS: [u64; 8] = [0, 1, 4095, 70_000, 1 << 20, 1 << 32, i64::MAX.cast_unsigned(), u64::MAX];
const COMMANDS: [u32; 7] =
    [0x8008_6601, 0x4008_6602, 0x8008_7601, 0x801c_581f, 0x401c_5820, 0xc018_5879, 0x1234_5678];

/// A request without its header.
#[derive(Debug)]
pub struct Request {
    /// What is asked.
    pub operation: u32,
    /// Of which inode.
    pub node: u64,
    /// How.
    pub body: Vec<u8>,
}

impl Request {
    /// Whether it gets an answer if it is well-formed. Those that don't are not waited for.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        !matches!(self.operation, FORGET | BATCH_FORGET)
    }

    /// The next request of an input, about one of the inodes that are known, or another.
    #[must_use]
    pub fn next(input: &mut Input<'_>, known: &[u64]) -> Self {
        let (operation, how) = (u32::from(input.byte()) % END, input.byte());
        // Ending the session is everybody's right, and would be all that is found.
        let operation = if operation == DESTROY { READ } else { operation };
        let node = match how & 0x0f {
            0 => u64::from_le_bytes(input.array()),
            1 => u64::from(input.byte()),
            _ => *input.pick(known),
        };
        let body = match how >> 4 {
            0 => {
                let len = usize::from(input.byte());
                input.bytes(len).to_vec()
            }
            1 => {
                let mut body = made(operation, input, known);
                if !body.is_empty() {
                    let at = usize::from(input.word()) % body.len();
                    body[at] ^= input.byte();
                    body.truncate(body.len() - usize::from(input.byte() & 3).min(body.len()));
                }
                body
            }
            _ => made(operation, input, known),
        };
        Self { operation, node, body }
    }
}

/// A body that is what it should be for an operation.
fn made(operation: u32, input: &mut Input<'_>, known: &[u64]) -> Vec<u8> {
    let mut body = Body(Vec::new());
    match operation {
        SYMLINK => body.name(input).name(input),
        MKNOD => body.mode(input).long(input).words(&[0o22, 0]).name(input),
        MKDIR => body.mode(input).words(&[0o22]).name(input),
        CREATE => body.words(&[2]).mode(input).words(&[0o22, 0]).name(input),
        TMPFILE => body.words(&[u32::from(input.word())]).mode(input).words(&[0o22, 0]),
        RENAME => body.node(input, known).name(input).name(input),
        RENAME2 => body.node(input, known).words(&[u32::from(input.byte() & 7), 0]).name(input).name(input),
        LINK => body.node(input, known).name(input),
        OPEN => body.words(&[u32::from(input.word()), 0]),
        READ | READDIR | READDIRPLUS => {
            body.quads(&[0]).offset(input).words(&[u32::from(input.word()), 0]).quads(&[0, 0])
        }
        WRITE => {
            let data = data(input);
            body.quads(&[0])
                .offset(input)
                .len(&data)
                .words(&[u32::from(input.byte() & 7)])
                .quads(&[0, 0])
                .bytes(&data)
        }
        RELEASE => body.quads(&[u64::from(input.byte()), 0, 0]),
        SETATTR => body.words(&[input.long() & 0x1_0ddf, 0]).quads(&[0]).offset(input).raw(input, 64),
        SETXATTR => {
            let data = data(input);
            body.len(&data)
                .words(&[u32::from(input.byte() & 3), u32::from(input.byte() & 1), 0])
                .attribute(input)
                .bytes(&data)
        }
        GETXATTR => body.words(&[u32::from(input.word()), 0]).attribute(input),
        IOCTL => {
            let data = data(input);
            let command = *input.pick(&COMMANDS);
            body.quads(&[0])
                .words(&[0, command])
                .quads(&[0])
                .len(&data)
                .words(&[u32::from(input.byte())])
                .bytes(&data)
        }
        FALLOCATE => body.quads(&[0]).offset(input).offset(input).words(&[u32::from(input.byte() & 0x7f), 0]),
        LSEEK => body.quads(&[0]).offset(input).words(&[u32::from(input.byte() & 7), 0]),
        COPY_FILE_RANGE | COPY_FILE_RANGE_64 => body
            .quads(&[0])
            .offset(input)
            .node(input, known)
            .quads(&[0])
            .offset(input)
            .offset(input)
            .quads(&[0]),
        _ => body.name(input).raw(input, 32),
    };
    body.0
}

/// Up to 4 KiB to write.
fn data(input: &mut Input<'_>) -> Vec<u8> {
    let (len, byte) = (usize::from(input.word() % 4097), input.byte());
    vec![byte; len]
}

/// A body on the way.
struct Body(Vec<u8>);

impl Body {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn words(&mut self, words: &[u32]) -> &mut Self {
        words.iter().for_each(|word| self.0.extend_from_slice(&word.to_le_bytes()));
        self
    }

    fn quads(&mut self, quads: &[u64]) -> &mut Self {
        quads.iter().for_each(|quad| self.0.extend_from_slice(&quad.to_le_bytes()));
        self
    }

    fn raw(&mut self, input: &mut Input<'_>, len: usize) -> &mut Self {
        let end = self.0.len() + len;
        self.0.extend_from_slice(input.bytes(len));
        self.0.resize(end, 0);
        self
    }

    fn long(&mut self, input: &mut Input<'_>) -> &mut Self {
        self.words(&[input.long()])
    }

    fn len(&mut self, data: &[u8]) -> &mut Self {
        self.words(&[u32::try_from(data.len()).unwrap_or(u32::MAX)])
    }

    fn text(&mut self, text: &[u8]) -> &mut Self {
        self.bytes(text).bytes(&[0])
    }

    fn name(&mut self, input: &mut Input<'_>) -> &mut Self {
        let name = *input.pick(&NAMES);
        self.text(name)
    }

    fn attribute(&mut self, input: &mut Input<'_>) -> &mut Self {
        let name = *input.pick(&ATTRIBUTES);
        self.text(name)
    }

    fn node(&mut self, input: &mut Input<'_>, known: &[u64]) -> &mut Self {
        self.quads(&[*input.pick(known)])
    }

    fn offset(&mut self, input: &mut Input<'_>) -> &mut Self {
        let near = u64::from(input.byte());
        self.quads(&[input.pick(&OFFSETS).wrapping_add(near >> 4)])
    }

    fn mode(&mut self, input: &mut Input<'_>) -> &mut Self {
        const KINDS: [u32; 8] =
            [0o100_000, 0o040_000, 0o120_000, 0o010_000, 0o140_000, 0o020_000, 0o060_000, 0];
        let kind = *input.pick(&KINDS);
        self.words(&[kind | u32::from(input.word())])
    }
}
