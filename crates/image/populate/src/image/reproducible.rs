//! Makes an image depend on nothing but its sources and options.
//!
//! An image would otherwise depend on the time of the build and on two random numbers, the UUID and the seed
//! of the directory hashes. All three are derived from `SOURCE_DATE_EPOCH` and the tree here.
//!
//! They come from a digest ([`Derivation`]) of the label, the
//! epoch and the whole tree: names, kinds, sizes, owners, modes, modification times, link targets and
//! attributes. So images of different trees can be mounted side by side. File data is not read for it: two
//! trees that differ in nothing but the bytes of equally large and equally old files give the same UUID.

use crate::tree::{Kind, Tree};
use hectare_ext4::time::Timestamp;
use hectare_mkfs::{Derivation, FormatOptions};
use hectare_units::u64_of;

/// Options that give the same image of `tree` every time: `epoch` (the value of `SOURCE_DATE_EPOCH`, in
/// seconds since 1970) is the time of everything that has no other, and a UUID and hash seed that are not
/// given are derived from the tree.
///
/// The tree's own times are not changed; [`Options::source_date_epoch`](crate::Options::source_date_epoch)
/// does that when the tree is made, and both should be set.
#[must_use]
pub fn reproducible(options: &FormatOptions, epoch: i64, tree: &Tree) -> FormatOptions {
    let mut options = FormatOptions { now: Timestamp::from_seconds(epoch), ..options.clone() };
    if options.uuid.is_none() || options.hash_seed.is_none() {
        let (uuid, hash_seed) = derive(&options.label, epoch, tree);
        options.uuid.get_or_insert(uuid);
        options.hash_seed.get_or_insert(hash_seed);
    }
    options
}

fn derive(label: &[u8], epoch: i64, tree: &Tree) -> ([u8; 16], [u8; 16]) {
    let mut digest = Described(Derivation::new(b"hectare image 1"));
    digest.bytes(label);
    digest.number(epoch.cast_unsigned());
    for id in tree.ids() {
        let meta = tree.meta(id);
        digest.kind(&tree.kind(id));
        for number in [u32::from(meta.mode), meta.uid, meta.gid, meta.mtime.nanoseconds] {
            digest.number(number.into());
        }
        digest.number(meta.mtime.seconds.cast_unsigned());
        digest.number(tree.xattr_set(id).map_or(u64::MAX, |set| u64_of(set.index())));
        for (name, child) in tree.children(id) {
            digest.bytes(name);
            digest.number(child.get().into());
        }
    }
    for set in tree.xattr_sets() {
        digest.number(u64_of(set.len()));
        for xattr in set {
            digest.bytes(&xattr.name);
            digest.bytes(&xattr.value);
        }
    }
    digest.0.finish()
}

/// The description of a tree.
struct Described(Derivation);

impl Described {
    fn number(&mut self, number: u64) {
        self.0.number(number);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.bytes(bytes);
    }

    fn kind(&mut self, kind: &Kind<'_>) {
        let (tag, a, b) = match *kind {
            Kind::Directory => (0, 0, 0),
            Kind::File { size } => (1, size.get(), 0),
            Kind::Symlink { target } => {
                self.bytes(target);
                (2, 0, 0)
            }
            Kind::CharDevice { major, minor } => (3, major.into(), minor.into()),
            Kind::BlockDevice { major, minor } => (4, major.into(), minor.into()),
            Kind::Fifo => (5, 0, 0),
            Kind::Socket => (6, 0, 0),
        };
        [tag, a, b].into_iter().for_each(|number| self.number(number));
    }
}
