//! The text that describes a VMDK: `RW 4192256 SPARSE "disk-s001.vmdk"` for each part, and whether there is a
//! parent.

use crate::error::{Error, Result};

/// The parent of a disk that has none.
const NO_PARENT: &str = "ffffffff";

/// What lies in a part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    Zeros,
    /// Bytes in order, from a sector on.
    Flat {
        file: String,
        at: u64,
    },
    Sparse {
        file: String,
    },
}

/// A part of the disk.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) sectors: u64,
    pub(super) content: Content,
}

impl Extent {
    /// What messages call it.
    pub(super) fn shown(&self) -> String {
        match &self.content {
            Content::Zeros => format!("a part of {} sectors of zeros", self.sectors),
            Content::Flat { file, .. } | Content::Sparse { file } => {
                format!("{} (of {} sectors)", file.escape_debug(), self.sectors)
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) extents: Vec<Extent>,
}

impl Descriptor {
    pub(super) fn parse(name: &str, text: &str) -> Result<Self> {
        let mut extents = Vec::new();
        for line in text.split(['\n', '\r', '\0']).map(str::trim) {
            if let Some((key, value)) = line.split_once('=') {
                let value = value.trim();
                if key.trim().eq_ignore_ascii_case("parentCID") && !value.eq_ignore_ascii_case(NO_PARENT) {
                    let what = "the VMDK is a snapshot, which needs its parent: qemu-img convert joins them";
                    return Err(Error::new(name, what));
                }
                continue;
            }
            let Some((access, rest)) = line.split_once(' ') else { continue };
            if !matches!(access, "RW" | "RDONLY" | "NOACCESS") {
                continue;
            }
            let shown = || line.chars().take(80).collect::<String>().escape_debug().to_string();
            let wrong =
                || Error::new(name, format!("the VMDK describes a part that is unknown: {}", shown()));
            if access == "NOACCESS" {
                return Err(wrong());
            }
            extents.push(extent(rest).ok_or_else(wrong)?);
        }
        Ok(Self { extents })
    }
}

/// `4192256 FLAT "disk-flat.vmdk" 0`, without the access.
fn extent(text: &str) -> Option<Extent> {
    let (sectors, rest) = text.trim().split_once(' ')?;
    let (kind, rest) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
    let sectors = sectors.parse().ok()?;
    let file = || {
        let (file, after) = rest.trim().strip_prefix('"')?.split_once('"')?;
        let is_beside = !file.is_empty() && !file.contains(['/', '\\', '\0']) && file != "." && file != "..";
        is_beside.then(|| (file.to_owned(), after.trim()))
    };
    let content = match kind {
        "ZERO" => Content::Zeros,
        "FLAT" | "VMFS" => {
            let (file, at) = file()?;
            Content::Flat { file, at: if at.is_empty() { 0 } else { at.parse().ok()? } }
        }
        "SPARSE" => Content::Sparse { file: file()?.0 },
        _ => return None,
    };
    Some(Extent { sectors, content })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_and_names_with_directories_are_not() {
        let flat = Content::Flat { file: "a b.vmdk".to_owned(), at: 7 };
        assert_eq!(extent("100 FLAT \"a b.vmdk\" 7"), Some(Extent { sectors: 100, content: flat }));
        assert_eq!(extent("9 ZERO"), Some(Extent { sectors: 9, content: Content::Zeros }));
        for wrong in ["9 FLAT \"../../etc/shadow\" 0", "9 FLAT \"\"", "x ZERO", "9 SESPARSE \"a\"", "9", ""] {
            assert_eq!(extent(wrong), None, "{wrong}");
        }
        assert!(Descriptor::parse("x", "parentCID=12345678\n").is_err());
        assert!(Descriptor::parse("x", "parentCID=FFFFFFFF\nRW 1 ZERO\n").is_ok());
    }
}
