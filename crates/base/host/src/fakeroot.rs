//! Detects programs that make an ordinary user look like root: fakeroot and pseudo.
//!
//! Both are preloaded before the C library and answer its calls on metadata from a database of their own. A
//! program that is statically linked, or was started without the loader's variable, is not under their
//! control although the environment says so: the metadata that it reads and sets is then real, and wrong for
//! its user.

use std::ffi::OsStr;
use std::sync::OnceLock;

/// Whether calls on metadata are answered by such a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pretence {
    /// There is none.
    None,
    /// This program controls this process.
    InEffect(&'static str),
    /// The environment names this program, but it does not control this process: metadata must be neither
    /// read nor set on its word.
    Ignored(&'static str),
}

impl Pretence {
    /// The message about such a program that is not in effect.
    #[must_use]
    pub fn fault(self) -> Option<String> {
        let Self::Ignored(name) = self else { return None };
        Some(format!(
            "the environment says that {name} is in use, but its library is not loaded into this program: \
             owners and devices would be wrong; use a dynamically linked hectare, or leave {name} out"
        ))
    }
}

/// The program that this process was started under.
#[must_use]
pub fn pretence() -> Pretence {
    static FOUND: OnceLock<Pretence> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let Some((name, library)) = named(std::env::vars_os()) else { return Pretence::None };
        let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
        match maps.windows(library.len()).any(|window| window == library.as_bytes()) {
            true => Pretence::InEffect(name),
            false => Pretence::Ignored(name),
        }
    })
}

/// The program that an environment names, and its library.
fn named<K: AsRef<OsStr>, V: AsRef<OsStr>>(
    variables: impl IntoIterator<Item = (K, V)>,
) -> Option<(&'static str, &'static str)> {
    let (mut pseudo, mut disabled) = (false, false);
    for (key, value) in variables {
        let value = value.as_ref().as_encoded_bytes();
        match key.as_ref().as_encoded_bytes() {
            // Debian's wrapper of pseudo says that it is fakeroot.
            b"FAKEROOTKEY" if value == b"pseudo" => pseudo = true,
            b"FAKEROOTKEY" => return Some(("fakeroot", "libfakeroot")),
            // Any value but a word for "no" disables it.
            b"PSEUDO_DISABLED" => {
                disabled |= !matches!(value.first(), None | Some(b'0' | b'f' | b'F' | b'n' | b'N'));
            }
            b"PSEUDO_UNLOAD" => disabled = true,
            key => pseudo |= key.starts_with(b"PSEUDO_"),
        }
    }
    (pseudo && !disabled).then_some(("pseudo", "libpseudo"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_environment_names_is_known() {
        let name = |variables: &[(&'static str, &'static str)]| {
            named(variables.iter().copied()).map(|(name, _)| name)
        };
        assert_eq!(name(&[("PATH", "/bin")]), None);
        assert_eq!(name(&[("FAKEROOTKEY", "1234")]), Some("fakeroot"));
        assert_eq!(name(&[("FAKEROOTKEY", "pseudo")]), Some("pseudo"));
        assert_eq!(name(&[("PSEUDO_PREFIX", "/usr")]), Some("pseudo"));
        assert_eq!(name(&[("PSEUDO_PREFIX", "/usr"), ("PSEUDO_DISABLED", "0")]), Some("pseudo"));
        assert_eq!(name(&[("PSEUDO_DISABLED", "1"), ("PSEUDO_PREFIX", "/usr")]), None);
        assert_eq!(name(&[("PSEUDO_UNLOAD", "1"), ("PSEUDO_PREFIX", "/usr")]), None);
    }

    #[test]
    fn only_a_pretence_that_is_ignored_is_a_fault() {
        assert_eq!(Pretence::None.fault().or(Pretence::InEffect("fakeroot").fault()), None);
        assert!(Pretence::Ignored("fakeroot").fault().is_some_and(|text| text.contains("fakeroot")));
    }
}
