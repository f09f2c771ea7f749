//! Compares the digests that specifications give of file content, once the tree is finished.
//!
//! Only then it is certain whose content a path has. Each file is read once more than an image needs, holes
//! as zeros; so digests cost time, and nothing else.

use super::spec::Digest;
use crate::error::{Error, ShownPath};
use crate::tree::{Kind, NodeId, Tree};
use hectare_units::{Bytes, hex, u64_of};
use sha2::{Sha256, Sha384, Sha512};

/// Bytes read at a time.
const PIECE: usize = 256 << 10;

/// The digests that files of a tree are to have.
#[derive(Debug, Default)]
pub(crate) struct Checks(Vec<Check>);

#[derive(Debug)]
struct Check {
    spec: Box<[u8]>,
    line: u64,
    path: Box<[u8]>,
    digest: Digest,
    /// In lower-case hexadecimal digits.
    value: Box<[u8]>,
}

impl Checks {
    /// Adds the digest of the file at `path`, which has no links among its directories.
    pub(super) fn add(&mut self, spec: &[u8], line: u64, path: &[u8], digest: Digest, value: &[u8]) {
        let (spec, path, value) = (spec.into(), path.into(), value.to_ascii_lowercase().into());
        self.0.push(Check { spec, line, path, digest, value });
    }

    /// Compares them all.
    ///
    /// # Errors
    /// If a file has another content, can't be read, or is not there any more.
    pub(crate) fn verify(&self, tree: &Tree) -> Result<(), Error> {
        for check in &self.0 {
            let shown = ShownPath::new(&[b"/", &*check.path].concat());
            let failed = |reason: String| Error::Spec {
                file: ShownPath::new(&check.spec),
                line: check.line,
                reason: reason.into(),
            };
            let node = tree
                .find(&check.path)
                .filter(|node| matches!(tree.kind(*node), Kind::File { .. }))
                .ok_or_else(|| failed(format!("{shown}: a later specification has replaced it")))?;
            let found = hex(&of_file(check.digest, tree, node)?);
            if found.as_bytes() != &*check.value {
                let name = check.digest.name();
                return Err(failed(format!("{shown}: its {name} is {found}, not what the entry says")));
            }
        }
        Ok(())
    }
}

fn of_file(digest: Digest, tree: &Tree, node: NodeId) -> Result<Vec<u8>, Error> {
    match digest {
        Digest::Sha256 => hash::<Sha256>(tree, node),
        Digest::Sha384 => hash::<Sha384>(tree, node),
        Digest::Sha512 => hash::<Sha512>(tree, node),
    }
}

fn hash<D: sha2::Digest>(tree: &Tree, node: NodeId) -> Result<Vec<u8>, Error> {
    let Kind::File { size } = tree.kind(node) else { return Ok(Vec::new()) };
    let content = tree.opener().open(node)?;
    let (mut digest, mut buffer, mut at) = (D::new(), vec![0; PIECE], Bytes::ZERO);
    let zeros = |digest: &mut D, len: Bytes| {
        let zero = [0; 4096];
        let mut left = len.get();
        while left > 0 {
            let piece = left.min(u64_of(zero.len()));
            digest.update(&zero[..hectare_units::index_of(piece)]);
            left -= piece;
        }
    };
    content.read_data(&mut buffer, &mut |place, data| {
        zeros(&mut digest, place - at);
        digest.update(data);
        at = place + Bytes::of(data.len());
    })?;
    zeros(&mut digest, size - at);
    Ok(digest.finalize().to_vec())
}
