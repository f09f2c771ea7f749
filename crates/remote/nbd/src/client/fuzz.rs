//! Everything that a server can send, taken from bytes: for the fuzzer.

use super::assembly::{Answered, Assembly, Form, Waiting, read_next};
use super::handshake::{agree, greet};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::{self, Read, Write};

/// A server whose replies are bytes, and which listens to nothing.
struct Script<'a>(&'a [u8]);

impl Read for Script<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for Script<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Table(Mutex<HashMap<u64, Assembly>>);

impl Waiting for Table {
    fn take(&self, cookie: u64) -> Option<Assembly> {
        self.0.lock().remove(&cookie)
    }

    fn put_back(&self, cookie: u64, assembly: Assembly) {
        self.0.lock().insert(cookie, assembly);
    }

    fn finish(&self, _: u64, _: Answered) {}
}

/// Takes bytes for what a server sends: the handshake, then replies to some requests. Returns whether the
/// handshake came to an end.
#[doc(hidden)]
#[must_use]
pub fn digest(bytes: &[u8]) -> bool {
    let mut script = Script(bytes);
    let agreed = greet(&mut script).and_then(|padded| agree(&mut script, b"fuzz", padded));
    let Ok(agreed) = agreed else { return false };
    let form = Form { headers: agreed.headers, context: agreed.context };
    let requests = [
        (1, Assembly::bytes(0, 4096)),
        (2, Assembly::nothing(0)),
        (3, Assembly::extents(0)),
        (4, Assembly::bytes(1 << 40, 65536)),
    ];
    let table = Table(Mutex::new(HashMap::from(requests)));
    while read_next(&mut script, form, &table).is_ok() {}
    true
}
