//! Fuzz target: any bytes as an archive to be put into an image, alone or as the upper of two layers.

use crate::archive::{archive, seal};
use crate::input::Input;
use hectare_populate::{Kind, Options, Source, Tree};
use hectare_units::index_of;

const READ_MAX: u64 = 1 << 16;

pub(super) fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.byte();
    let mut upper = input.rest().to_vec();
    if flags & 1 == 0 {
        seal(&mut upper);
    }
    let mut layers = vec![stream(upper)];
    if flags & 2 != 0 {
        layers.insert(0, stream(archive(&[(b"d/f", b"")])));
    }
    let memory = std::path::Path::new("/dev/shm");
    let spool_directory = memory.is_dir().then(|| memory.to_owned());
    match Tree::build(layers, &Options { spool_directory, ..Options::default() }) {
        Ok(tree) => exercise(&tree),
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}

fn stream(bytes: Vec<u8>) -> Source {
    Source::Stream { name: "input.tar".to_owned(), reader: Box::new(std::io::Cursor::new(bytes)) }
}

fn exercise(tree: &Tree) {
    let mut opener = tree.opener();
    for id in tree.ids() {
        let _ = (tree.path(id), tree.meta(id), tree.xattrs(id), tree.children(id).count(), tree.links(id));
        let Kind::File { size } = tree.kind(id) else { continue };
        let content = opener.open(id).expect("a file of an archive can be opened");
        let mut reached = 0;
        for segment in tree.segments(id) {
            assert!(segment.at.get() >= reached && segment.len.get() > 0);
            reached = segment.at.get().checked_add(segment.len.get()).expect("segments end inside the file");
            let len = index_of(segment.len.get().min(READ_MAX));
            content.read_exact_at(&mut vec![0; len], segment.source).expect("what was found can be read");
        }
        assert!(reached <= size.get());
    }
    let _ = (tree.totals(), tree.left_out().count());
}
