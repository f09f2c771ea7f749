//! Fuzz target: any bytes as a specification of a tree (mtree, device table, fs_config), applied to one.

use crate::input::Input;
use hectare_populate::{Options, Spec, Tree};

/// Digits of a device table's counts beyond which a line stands for more nodes than an input may take memory.
const COUNT_DIGITS: usize = 2;

pub(super) fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut text = match input.byte() & 3 {
        0 => b"#mtree\n".to_vec(),
        1 => b"/x d 755 0 0 - - - - -\n".to_vec(),
        2 => b"x 0 0 0755 target\n".to_vec(),
        _ => Vec::new(),
    };
    text.extend_from_slice(input.rest());
    let last_is_short = |line: &[u8]| {
        line.rsplit(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
            .find(|word| !word.is_empty())
            .is_none_or(|word| word.len() <= COUNT_DIGITS || !word.iter().all(u8::is_ascii_digit))
    };
    let spec = match Spec::parse(b"input", &text) {
        Ok(spec) => spec,
        Err(error) => return one_line(&error),
    };
    // A file of the host is no part of the input.
    if text.windows(8).any(|word| word == b"content=" || word == b"contents")
        || !text.split(|byte| *byte == b'\n').all(last_is_short)
    {
        return;
    }
    match Tree::build(Vec::new(), &Options { specs: vec![spec], ..Options::default() }) {
        Ok(tree) => {
            for id in tree.ids() {
                let path = tree.path(id);
                assert_eq!(tree.find(&path), Some(id));
                assert!(tree.meta(id).mode <= 0o7777);
            }
        }
        Err(error) => one_line(&error),
    }
}

fn one_line(error: &hectare_populate::Error) {
    assert!(!error.to_string().contains('\n'), "{error}");
}
