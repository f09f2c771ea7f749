//! POSIX ACLs as text with numbers, for GNU tar's and libarchive's `SCHILY.acl.*`.
//!
//! The attribute itself is in the archive as well, for readers that set attributes as they are. GNU tar with
//! `--acls` sets what this text says after the attributes, so without it the ACL would be lost there.

use hectare_ext4::acl::{Acl, Tag};

/// The pax key and text for an attribute, if it is an ACL.
pub(crate) fn record(name: &[u8], value: &[u8]) -> Option<(&'static str, String)> {
    let key = match name {
        b"system.posix_acl_access" => "SCHILY.acl.access",
        b"system.posix_acl_default" => "SCHILY.acl.default",
        _ => return None,
    };
    let acl = Acl::from_xattr(value).ok()??;
    let entries: Vec<String> = acl.entries().iter().map(|entry| text(entry.tag, entry.perm)).collect();
    Some((key, entries.join(",")))
}

fn text(tag: Tag, perm: u8) -> String {
    let who = match tag {
        Tag::UserObj => "user:".to_owned(),
        Tag::User(id) => format!("user:{id}"),
        Tag::GroupObj => "group:".to_owned(),
        Tag::Group(id) => format!("group:{id}"),
        Tag::Mask => "mask:".to_owned(),
        Tag::Other => "other:".to_owned(),
    };
    let letter = |bit, letter| if perm & bit != 0 { letter } else { '-' };
    format!("{who}:{}{}{}", letter(4, 'r'), letter(2, 'w'), letter(1, 'x'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_ext4::acl::Entry;

    #[test]
    fn an_acl_is_its_entries_in_order() {
        let entry = |tag, perm| Entry { tag, perm };
        let acl = Acl::new(vec![
            entry(Tag::UserObj, 7),
            entry(Tag::User(1000), 4),
            entry(Tag::GroupObj, 5),
            entry(Tag::Mask, 5),
            entry(Tag::Other, 0),
        ]);
        let value = acl.unwrap().to_xattr();
        let text = "user::rwx,user:1000:r--,group::r-x,mask::r-x,other::---".to_owned();
        assert_eq!(record(b"system.posix_acl_access", &value), Some(("SCHILY.acl.access", text)));
        assert_eq!(record(b"user.a", &value), None);
    }
}
