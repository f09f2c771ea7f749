//! Converts POSIX ACLs from text (`SCHILY.acl.*`) to the value that `getxattr` returns.
//!
//! That value is a version (2, 32 bits) and entries of tag (16 bits), permissions (16 bits) and id (32 bits),
//! all little-endian, sorted by tag and id (`linux/posix_acl_xattr.h`, acl(5)). A text with names of users or
//! groups is refused: their numbers are not known here. (`tar --xattrs --xattrs-include='*'` stores the ACL
//! with numbers.) star adds the number as a fourth field, which is taken.

use std::borrow::Cow;

const VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The value for a text; empty if it has no entry.
pub(super) fn from_text(text: &[u8]) -> Result<Vec<u8>, Cow<'static, str>> {
    let mut entries = Vec::new();
    for line in text.split(|byte| matches!(byte, b'\n' | b',')) {
        let line = line.split(|byte| *byte == b'#').next().unwrap_or(line).trim_ascii();
        if !line.is_empty() {
            entries.push(entry(line)?);
        }
    }
    entries.sort_unstable();
    let wrong = entries.windows(2).any(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1))
        || [USER_OBJ, GROUP_OBJ, OTHER].iter().any(|tag| !entries.iter().any(|entry| entry.0 == *tag));
    if !entries.is_empty() && wrong {
        return Err("its ACL names someone twice, or lacks the owner, the group or others".into());
    }
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, id, permissions) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    Ok(value)
}

/// Tag, id, permissions.
fn entry(line: &[u8]) -> Result<(u16, u32, u16), Cow<'static, str>> {
    let fault = || format!("its ACL has the entry '{}', which is not one", line.escape_ascii());
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
    let (tag, who, permissions, number) = match fields[..] {
        [tag, who, permissions] => (tag, who, permissions, None),
        [tag, who, permissions, number] => (tag, who, permissions, Some(number)),
        // "other" and "mask" may come without the empty field.
        [tag @ (b"other" | b"o" | b"mask" | b"m"), permissions] => (tag, &b""[..], permissions, None),
        _ => return Err(fault().into()),
    };
    let (own, other) = match tag {
        b"user" | b"u" => (USER_OBJ, Some(USER)),
        b"group" | b"g" => (GROUP_OBJ, Some(GROUP)),
        b"mask" | b"m" => (MASK, None),
        b"other" | b"o" => (OTHER, None),
        _ => return Err(fault().into()),
    };
    let permissions = permission_bits(permissions).ok_or_else(fault)?;
    match (who, other) {
        (b"", _) => Ok((own, NO_ID, permissions)),
        (who, Some(tag)) => {
            let id = match (number.and_then(id), id(who), who) {
                (Some(id), ..) | (None, Some(id), _) => id,
                (None, None, b"root") => 0,
                _ => {
                    let name = who.escape_ascii();
                    return Err(format!(
                        "its ACL names '{name}', whose number is not known: archive with \
                         --xattrs --xattrs-include='*' instead of --acls"
                    )
                    .into());
                }
            };
            Ok((tag, id, permissions))
        }
        _ => Err(fault().into()),
    }
}

fn id(text: &[u8]) -> Option<u32> {
    super::pax::decimal(text).and_then(|id| u32::try_from(id).ok())
}

fn permission_bits(text: &[u8]) -> Option<u16> {
    text.trim_ascii().iter().try_fold(0, |bits, letter| match letter {
        b'r' => Some(bits | 4),
        b'w' => Some(bits | 2),
        b'x' => Some(bits | 1),
        b'-' => Some(bits),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_the_value_of_the_attribute() {
        let value = from_text(b"user::rw-,user:1000:r--,group::r--\nmask::r--\nother::---\n").unwrap();
        let expected: [&[u8]; 6] = [
            &[2, 0, 0, 0],
            &[1, 0, 6, 0, 255, 255, 255, 255],
            &[2, 0, 4, 0, 0xe8, 3, 0, 0],
            &[4, 0, 4, 0, 255, 255, 255, 255],
            &[16, 0, 4, 0, 255, 255, 255, 255],
            &[32, 0, 0, 0, 255, 255, 255, 255],
        ];
        assert_eq!(value, expected.concat());
        let named = b"user::rw-,user:joe:r--:1000,group::r--,mask::r--,other::---";
        assert_eq!(from_text(named).unwrap(), value);
    }

    #[test]
    fn a_text_without_entries_has_no_value() {
        assert_eq!(from_text(b"user::rwx,group::r-x,other::r-x").unwrap().len(), 4 + 3 * 8);
        assert_eq!(from_text(b"# nothing\n").unwrap(), b"");
    }

    #[test]
    fn names_and_nonsense_are_refused() {
        for text in
            ["user:joe:rwx", "user::rwx", "what::r--,user::r--,group::r--,other::r--", "user::rwz", ":::::"]
        {
            assert!(from_text(text.as_bytes()).is_err(), "{text}");
        }
    }
}
