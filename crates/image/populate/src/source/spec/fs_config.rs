//! Android's fs_config: `path uid gid mode [capabilities=BITS] [selabel=LABEL] [TARGET]`.
//!
//! As the build of Android writes it for its image tools: paths from the image's root, with or without a
//! leading slash; a line that begins with a blank has an empty path, the root. Capabilities are bits in
//! hexadecimal (`0x`) or decimal, permitted and effective; 0 for none. A last word without `=` is the target
//! of a symbolic link, which is made if missing. Everything else must exist: the file describes a tree.

use super::entry::{Entry, EntryKind, Missing};
use super::lines::{clean, mode, number, numbered, owner, shown, words};
use super::{Fault, Found, capability};
use crate::tree::Xattr;

/// Reads an fs_config file.
pub(super) fn read(text: &[u8]) -> Result<Found, Fault> {
    let mut found = Found::default();
    for (line, bytes) in numbered(text) {
        let mut words = words(bytes);
        if words.first().is_none_or(|word| word.starts_with(b"#")) {
            continue;
        }
        if bytes.starts_with(b" ") || bytes.starts_with(b"\t") {
            words.insert(0, b"/");
        }
        found.entries.push(entry(line, &words)?);
    }
    Ok(found)
}

fn entry(line: u64, words: &[&[u8]]) -> Result<Entry, Fault> {
    let fault = |reason: String| Fault::new(line, reason);
    let [path, uid, gid, mode_word, rest @ ..] = words else {
        return Err(fault("a line is PATH UID GID MODE [capabilities=BITS] [TARGET]".to_owned()));
    };
    let path = clean(path).ok_or_else(|| fault("a path with `..`".to_owned()))?;
    let mut entry = Entry::new(line, &path);
    let id =
        |word: &[u8]| owner(word).ok_or_else(|| fault(format!("an owner is a number, not {}", shown(word))));
    entry.change.uid = Some(id(uid)?);
    entry.change.gid = Some(id(gid)?);
    let set = mode(mode_word);
    entry.change.mode = Some(set.ok_or_else(|| fault(format!("a mode is octal, not {}", shown(mode_word))))?);
    for word in rest {
        if let Some(bits) = word.strip_prefix(b"capabilities=") {
            let number = match bits.strip_prefix(b"0x") {
                Some(digits) => number(digits, 16),
                None => number(bits, 10),
            };
            let bits = number.ok_or_else(|| fault(format!("capabilities are bits, not {}", shown(bits))))?;
            if bits != 0 {
                entry.change.xattrs.push(capability::permitted(bits));
            }
        } else if let Some(label) = word.strip_prefix(b"selabel=") {
            // The kernel stores a label with its final NUL.
            let (name, value) = ((*b"security.selinux").into(), [label, b"\0"].concat().into());
            entry.change.xattrs.push(Xattr { name, value });
        } else if word.contains(&b'=') || entry.change.target.is_some() {
            return Err(fault(format!("{} is not understood", shown(word))));
        } else {
            entry.change.target = Some((*word).into());
            (entry.kind, entry.missing) = (Some(EntryKind::Symlink), Missing::Make);
        }
    }
    Ok(entry)
}
