//! Changes to permission bits, in the syntax of `chmod`.
//!
//! A change is a list of clauses separated by commas, applied from left to right. A clause is an octal mode
//! (`0644`) or symbolic (`u=rwX`, `go-w`, `a+r`, `g=u`); `D:` before it limits it to directories, `F:` to
//! everything else. Without `u`, `g`, `o` or `a` a symbolic clause means all; no umask takes part. `X` is execute
//! permission for directories and for what already has one; `u`, `g` or `o` in its place are the permissions
//! that those have.

use crate::error::Error;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scope {
    All,
    Directories,
    Others,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Set(u16),
    /// `who` are the bits that the letters before the operator stand for; the others are cut to them.
    Symbolic {
        operator: u8,
        who: u16,
        given: Given,
    },
}

/// What is behind an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Given {
    /// Letters of `rwxst`, and of `X`.
    Bits { always: u16, conditional: u16 },
    /// `u`, `g` or `o`: how far its permissions lie to the left of those of all others.
    Of(u32),
}

impl Given {
    fn bits(self, mode: u16, is_directory: bool) -> u16 {
        match self {
            Self::Bits { always, conditional } => {
                let may_execute = is_directory || mode & 0o111 != 0;
                always | if may_execute { conditional } else { 0 }
            }
            Self::Of(shift) => (mode >> shift & 0o7) * 0o111,
        }
    }
}

/// A change to permission bits: see [`ModeChange::parse`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModeChange(Vec<(Scope, Action)>);

impl ModeChange {
    /// Reads a change such as `D:0755,F:0644` or `u=rwX,go=rX`.
    ///
    /// # Errors
    /// If it isn't one.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut clauses = Vec::new();
        for clause in text.split(',') {
            let (scope, rest) = match clause.as_bytes() {
                [b'D', b':', ..] => (Scope::Directories, &clause[2..]),
                [b'F', b':', ..] => (Scope::Others, &clause[2..]),
                _ => (Scope::All, clause),
            };
            parse_actions(rest, &mut |action| clauses.push((scope, action)))
                .map_err(|reason| Error::Option { option: "--modes", value: text.to_owned(), reason })?;
        }
        Ok(Self(clauses))
    }

    /// The changed permission bits; `mode` and the result are at most 0o7777.
    #[must_use]
    pub fn apply(&self, mode: u16, is_directory: bool) -> u16 {
        let mut mode = mode;
        for (scope, action) in &self.0 {
            let applies = match scope {
                Scope::All => true,
                Scope::Directories => is_directory,
                Scope::Others => !is_directory,
            };
            if applies {
                mode = action.apply(mode, is_directory);
            }
        }
        mode & 0o7777
    }
}

impl Action {
    fn apply(self, mode: u16, is_directory: bool) -> u16 {
        match self {
            Self::Set(bits) => bits,
            Self::Symbolic { operator, who, given } => {
                let bits = given.bits(mode, is_directory) & who;
                match operator {
                    b'+' => mode | bits,
                    b'-' => mode & !bits,
                    _ => (mode & !who) | bits,
                }
            }
        }
    }
}

/// Hands the actions of one clause (without its scope) to `push`; several operators may share one `ugoa`.
fn parse_actions(text: &str, push: &mut impl FnMut(Action)) -> Result<(), &'static str> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let bits = u16::from_str_radix(text, 8).map_err(|_| "an octal mode has digits from 0 to 7 only")?;
        if bits > 0o7777 {
            return Err("an octal mode is at most 7777");
        }
        push(Action::Set(bits));
        return Ok(());
    }
    let mut rest = text.as_bytes();
    // What of rwx, and which of the set-id and sticky bits, the words before the operator stand for.
    let mut who = 0u16;
    while let [letter @ (b'u' | b'g' | b'o' | b'a'), tail @ ..] = rest {
        who |= match letter {
            b'u' => 0o4700,
            b'g' => 0o2070,
            b'o' => 0o1007,
            _ => 0o7777,
        };
        rest = tail;
    }
    let who = if who == 0 { 0o7777 } else { who };
    if rest.is_empty() {
        return Err(
            "a clause is an octal mode, or letters of ugoa, one of +-=, and letters of rwxXst or one of ugo",
        );
    }
    while let [operator, tail @ ..] = rest {
        if !matches!(operator, b'+' | b'-' | b'=') {
            return Err("after the letters of ugoa comes one of +-=");
        }
        let (given, tail) = parse_given(tail)?;
        rest = tail;
        push(Action::Symbolic { operator: *operator, who, given });
    }
    Ok(())
}

/// What is behind an operator, up to the next one.
fn parse_given(text: &[u8]) -> Result<(Given, &[u8]), &'static str> {
    let end = text.iter().position(|letter| matches!(letter, b'+' | b'-' | b'=')).unwrap_or(text.len());
    let (letters, rest) = text.split_at(end);
    if let [letter @ (b'u' | b'g' | b'o')] = letters {
        let shift = match letter {
            b'u' => 6,
            b'g' => 3,
            _ => 0,
        };
        return Ok((Given::Of(shift), rest));
    }
    let (mut always, mut conditional) = (0, 0);
    for letter in letters {
        match letter {
            b'r' => always |= 0o444,
            b'w' => always |= 0o222,
            b'x' => always |= 0o111,
            b'X' => conditional |= 0o111,
            b's' => always |= 0o6000,
            b't' => always |= 0o1000,
            _ => return Err("permissions are letters of rwxXst, or one of u, g and o"),
        }
    }
    Ok((Given::Bits { always, conditional }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(text: &str, mode: u16, is_directory: bool) -> u16 {
        ModeChange::parse(text).unwrap().apply(mode, is_directory)
    }

    #[test]
    fn clauses_mean_what_chmod_means() {
        assert_eq!(change("D:0755,F:0644", 0o7700, true), 0o755);
        assert_eq!(change("D:0755,F:0644", 0o700, false), 0o644);
        assert_eq!(change("a+rX,u+w", 0o500, false), 0o755);
        assert_eq!(change("a+rX,u+w", 0o400, false), 0o644);
        assert_eq!(change("a+rX", 0o600, true), 0o755);
        assert_eq!(change("go=", 0o6777, false), 0o4700);
        assert_eq!(change("u=rwX,go=rX", 0o777, false), 0o755);
        assert_eq!(change("u+s,g-w+x", 0o660, false), 0o4650);
        assert_eq!(change("-w", 0o666, false), 0o444);
        assert_eq!(change("F:a-x,D:g+s", 0o755, true), 0o2755);
        assert_eq!(change("g=u", 0o4750, false), 0o4770);
        assert_eq!(change("o=g", 0o2751, false), 0o2755);
        assert_eq!(change("go+u-w", 0o640, false), 0o644);
        assert_eq!(change("u-o,g=", 0o755, false), 0o205);
        assert_eq!(change("a=u", 0o700, false), 0o777);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "9", "10000", "u", "u?r", "a+q", "D:", "a+r,,", "g=ur", "g=uu", "\u{e4}"] {
            assert!(ModeChange::parse(text).is_err(), "{text}");
        }
    }
}
