//! The first inputs of the targets that can't do without: archives, and each base volume as it is.

use hectare_oracle::tool;
use std::fs;
use std::io;
use std::path::Path;

/// Bases there are; more inputs than bases only repeat some.
const BASES: u8 = 12;

/// Puts first inputs into a corpus that is empty.
pub(super) fn plant(target: &str, corpus: &Path) -> io::Result<()> {
    if super::files(corpus) > 0 {
        return Ok(());
    }
    match target {
        // An archive's bytes, as an upper layer (2) and alone (0).
        "tar" => archives(corpus),
        // Base, flags, no changes; for writing, a few operations.
        "walk" | "check" => {
            (0..BASES).try_for_each(|base| fs::write(corpus.join(format!("base-{base}")), [base, 0, 0]))
        }
        "write" => (0..BASES).try_for_each(|base| {
            let mut input = vec![base, 0, 0];
            input.extend((0..120u8).map(|i| i.wrapping_mul(37).wrapping_add(base)));
            fs::write(corpus.join(format!("base-{base}")), input)
        }),
        // Long enough for some requests.
        "requests" => (0..16u8).try_for_each(|n| {
            let input: Vec<u8> = (0..400u16)
                .map(|i| i.to_le_bytes()[0].wrapping_mul(n.wrapping_mul(6) | 1).wrapping_add(n))
                .collect();
            fs::write(corpus.join(format!("made-{n}")), input)
        }),
        // Flags, and what they ask for: every kind of checksum, in a log that begins anew and one that does
        // not; records; trees of many sizes.
        "journal" | "fast_commit" | "shift" => (0..16u8).try_for_each(|n| {
            let mut input = vec![(n << 1 & 6) | if n & 8 == 0 { 0 } else { 0xf0 }];
            input.extend((0..90u8).map(|i| i.wrapping_mul(73).wrapping_add(n.wrapping_mul(29))));
            fs::write(corpus.join(format!("made-{n}")), input)
        }),
        _ => fs::write(corpus.join("zeros"), [0; 64]),
    }
}

fn archives(corpus: &Path) -> io::Result<()> {
    let folder = corpus.with_extension("folder");
    fs::create_dir_all(folder.join("d"))?;
    fs::write(folder.join("d/f"), "content")?;
    fs::hard_link(folder.join("d/f"), folder.join("hard")).or_else(exists)?;
    std::os::unix::fs::symlink("l".repeat(120), folder.join("link")).or_else(exists)?;
    fs::write(folder.join("n".repeat(130)), "long name")?;
    fs::write(folder.join("d/.wh.f"), "")?;
    let sparse = fs::File::create(folder.join("sparse"))?;
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"data", 70_000)?;
    sparse.set_len(200_000)?;
    for (name, args) in [
        ("gnu", &["--format=gnu", "-S"][..]),
        ("pax", &["--format=posix", "--xattrs"]),
        ("pax-sparse", &["--format=posix", "-S", "--sparse-version=1.0"]),
        ("pax-sparse-0", &["--format=posix", "-S", "--sparse-version=0.1"]),
        ("ustar", &["--format=ustar", "--exclude=n*", "--exclude=link"]),
        ("gzip", &["--format=gnu", "-z", "-S"]),
    ] {
        let Some(mut tar) = tool("tar") else { break };
        let output = tar.args(args).args(["-cf", "-", "-C"]).arg(&folder).arg(".").output()?;
        for flags in [0u8, 2] {
            let mut input = vec![flags | u8::from(name == "gzip")];
            input.extend_from_slice(&output.stdout);
            fs::write(corpus.join(format!("{name}-{flags}")), input)?;
        }
    }
    fs::remove_dir_all(&folder)
}

fn exists(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
}
