//! Users and groups: numbers first; names are looked up in the host's files only where a number does not
//! parse.
//!
//! The owners inside an image belong to another system, so lists show numbers.

use hectare_units::owner_number;

/// The files that give names to numbers.
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// What `chown` sets: `USER`, `USER:GROUP`, `:GROUP`, or `NAME:` for the user and that user's login group. As for
/// chown(1), a number has no login group: the image's users are not the host's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    /// The user, if it is to change.
    pub(crate) uid: Option<u32>,
    /// The group, if it is to change.
    pub(crate) gid: Option<u32>,
}

impl Owner {
    /// Parses the argument, for clap.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Some(user) = text.strip_suffix(':').filter(|user| !user.is_empty()) {
            return login(user);
        }
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let given = |text: &str, parse: fn(&str) -> Result<u32, String>| {
            (!text.is_empty()).then(|| parse(text)).transpose()
        };
        let owner = Self { uid: given(user, uid)?, gid: given(group, gid)? };
        if owner.uid.is_none() && owner.gid.is_none() {
            return Err("give USER, USER:GROUP or :GROUP".to_owned());
        }
        Ok(owner)
    }
}

/// The number of a user, who may be named.
pub(crate) fn uid(text: &str) -> Result<u32, String> {
    number(text, USERS, "user")
}

/// Likewise of a group.
pub(crate) fn gid(text: &str) -> Result<u32, String> {
    number(text, GROUPS, "group")
}

/// A user of the host, and that user's login group.
fn login(user: &str) -> Result<Owner, String> {
    let lines = std::fs::read_to_string(USERS).unwrap_or_default();
    let found = lines.lines().find_map(|line| {
        let (name, uid) = entry(line)?;
        let gid = line.split(':').nth(3)?.parse().ok()?;
        (name == user).then_some(Owner { uid: Some(uid), gid: Some(gid) })
    });
    found.ok_or_else(|| format!("'{user}:' needs a name in {USERS}, for its login group; give USER:GROUP"))
}

fn number(text: &str, file: &str, what: &str) -> Result<u32, String> {
    if let Some(number) = owner_number(text.as_bytes()) {
        return Ok(number);
    }
    let lines = std::fs::read_to_string(file).unwrap_or_default();
    let found = lines.lines().find_map(|line| entry(line).filter(|(name, _)| *name == text));
    found
        .map(|(_, number)| number)
        .ok_or_else(|| format!("'{text}' is not the number of a {what}, and no name in {file}"))
}

/// The name of a user of the host.
pub(crate) fn user_name(uid: u32) -> Option<String> {
    name(uid, USERS)
}

/// The name of a group of the host.
pub(crate) fn group_name(gid: u32) -> Option<String> {
    name(gid, GROUPS)
}

fn name(number: u32, file: &str) -> Option<String> {
    let lines = std::fs::read_to_string(file).ok()?;
    lines.lines().find_map(|line| entry(line).filter(|(_, n)| *n == number).map(|(name, _)| name.to_owned()))
}

/// Name and number of a line `name:password:number:...`.
fn entry(line: &str) -> Option<(&str, u32)> {
    let mut fields = line.split(':');
    let name = fields.next()?;
    Some((name, fields.nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_numbers_or_names_of_the_host() {
        assert_eq!(Owner::parse("7:8"), Ok(Owner { uid: Some(7), gid: Some(8) }));
        assert_eq!(Owner::parse(":8"), Ok(Owner { uid: None, gid: Some(8) }));
        assert_eq!(Owner::parse("root:"), Ok(Owner { uid: Some(0), gid: Some(0) }));
        assert!(Owner::parse("0:").unwrap_err().contains("give USER:GROUP"));
        assert!(Owner::parse("no-such-user-here:").unwrap_err().contains("/etc/passwd"));
        assert_eq!(Owner::parse("root"), Ok(Owner { uid: Some(0), gid: None }));
        for wrong in [":", "7:8:9", "+7", "-1", "4294967295", ":4294967295"] {
            assert!(Owner::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Owner::parse("no-such-user-here").unwrap_err().contains("/etc/passwd"));
        assert_eq!(user_name(0).as_deref(), Some("root"));
    }
}
