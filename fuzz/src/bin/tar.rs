//! Fuzz target: any bytes as an archive to be put into an image, alone or as the upper of two layers.
#![cfg_attr(feature = "libfuzzer", no_main)]

use hectare_fuzz::input::Input;
use hectare_populate::{Kind, Options, Source, Tree};
use hectare_units::index_of;

const BLOCK: usize = 512;
const READ_MAX: u64 = 1 << 16;

hectare_fuzz::target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let flags = input.byte();
    let mut archive = input.rest().to_vec();
    if flags & 1 == 0 {
        seal(&mut archive);
    }
    let mut layers = vec![stream(archive)];
    if flags & 2 != 0 {
        layers.insert(0, stream(header(b"d/f")));
    }
    let memory = std::path::Path::new("/dev/shm");
    let spool_directory = memory.is_dir().then(|| memory.to_owned());
    match Tree::build(layers, &Options { spool_directory, ..Options::default() }) {
        Ok(tree) => exercise(&tree),
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
});

fn stream(bytes: Vec<u8>) -> Source {
    Source::Stream { name: "input.tar".to_owned(), reader: Box::new(std::io::Cursor::new(bytes)) }
}

/// An archive of one empty file.
fn header(name: &[u8]) -> Vec<u8> {
    let mut archive = vec![0; 3 * BLOCK];
    archive[..name.len()].copy_from_slice(name);
    archive[100..107].copy_from_slice(b"0000644");
    archive[156] = b'0';
    archive[257..265].copy_from_slice(b"ustar\x0000");
    seal(&mut archive);
    archive
}

/// Sets the checksum of every header, as far as sizes lead from one to the next.
fn seal(archive: &mut [u8]) {
    let mut at = 0;
    while let Some(header) = archive.get_mut(at..at + BLOCK) {
        at += BLOCK;
        if header.iter().all(|byte| *byte == 0) {
            continue;
        }
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let digits = header[124..136].iter().filter(|byte| (b'0'..=b'7').contains(byte));
        let size = digits.fold(0usize, |size, digit| size << 3 | usize::from(digit - b'0'));
        at = at.saturating_add(size.next_multiple_of(BLOCK));
    }
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
