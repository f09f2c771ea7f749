//! Whom an image may have open files: it comes from strangers, and names any it likes.

/// Which backing files an image may have opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backing {
    /// Those in the same directory as the image that names them.
    #[default]
    Beside,
    /// Whatever it names.
    Anywhere,
}
