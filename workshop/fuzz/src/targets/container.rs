//! Fuzz target: the descriptions of a container image (OCI index, manifest and configuration, or those of
//! `docker save`) as any text, in an archive whose digests and lengths are right where the text has a mark for
//! them.

use crate::archive::archive;
use crate::input::Input;
use hectare_populate::{Options, Platform, Source, Tree};
use sha2::{Digest, Sha256};
use std::num::NonZeroUsize;

pub(super) fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.byte();
    let texts: Vec<&[u8]> = input.rest().split(|byte| *byte == 0).collect();
    let text = |at: usize| texts.get(at).copied().unwrap_or_default();
    let layer = archive(&[(b"etc/passwd", text(3)), (b".wh.gone", b"")]);
    let config = marked(text(2), &[(b'L', &layer)]);
    let image = if flags & 1 == 0 {
        let manifest = marked(text(1), &[(b'L', &layer), (b'C', &config)]);
        let index = marked(text(0), &[(b'L', &layer), (b'C', &config), (b'M', &manifest)]);
        let (layer_at, config_at, manifest_at) = (place(&layer), place(&config), place(&manifest));
        archive(&[
            (b"oci-layout", b"{\"imageLayoutVersion\":\"1.0.0\"}"),
            (&layer_at, &layer),
            (&config_at, &config),
            (&manifest_at, &manifest),
            (b"index.json", &index),
        ])
    } else {
        let named = format!("{}.json", hex(&config));
        let manifest = marked(text(0), &[(b'L', &layer), (b'C', &config)]);
        archive(&[
            (named.as_bytes(), &config),
            (b"c.json", &config),
            (b"l/layer.tar", &layer),
            (b"manifest.json", &manifest),
        ])
    };
    let reader = Box::new(std::io::Cursor::new(image));
    let memory = std::path::Path::new("/dev/shm");
    let options = Options {
        spool_directory: memory.is_dir().then(|| memory.to_owned()),
        platform: (flags & 2 != 0).then(|| Platform::parse("linux/arm/v7").expect("it is a platform")),
        threads: NonZeroUsize::new(1 + usize::from(flags >> 2 & 1)).expect("it is 1 or 2"),
        ..Options::default()
    };
    match Tree::build(vec![Source::Stream { name: "image.tar".to_owned(), reader }], &options) {
        Ok(tree) => {
            for id in tree.ids() {
                assert_eq!(tree.find(&tree.path(id)), Some(id));
            }
            let layers_are_applied = tree.image_config().is_some();
            assert!(!layers_are_applied || tree.find(b".wh.gone").is_none(), "a whiteout is no file");
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn place(bytes: &[u8]) -> Vec<u8> {
    format!("blobs/sha256/{}", hex(bytes)).into_bytes()
}

/// The text with `@X` replaced by the digest of X, and `#X` by its length.
fn marked(text: &[u8], blobs: &[(u8, &[u8])]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text);
    while let [first, tail @ ..] = rest {
        let blob = tail.first().and_then(|mark| blobs.iter().find(|(name, _)| name == mark));
        match (first, blob) {
            (b'@', Some((_, blob))) => out.extend(format!("sha256:{}", hex(blob)).bytes()),
            (b'#', Some((_, blob))) => out.extend(blob.len().to_string().bytes()),
            _ => {
                out.push(*first);
                rest = tail;
                continue;
            }
        }
        rest = &tail[1..];
    }
    out
}
