//! What is drawn: rectangles and lines of text on a page.

use super::color::Color;

/// Where a text is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Anchor {
    /// By its left end.
    Left,
    /// By its middle.
    Middle,
    /// By its right end.
    Right,
}

/// How large a text is: half units that one dot of the 5 by 7 font takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Size {
    Small,
    Body,
    Title,
}

impl Size {
    /// Half units a dot.
    pub(crate) const fn dot(self) -> u32 {
        match self {
            Self::Small => 2,
            Self::Body => 3,
            Self::Title => 5,
        }
    }
}

/// A filled rectangle, in units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rectangle {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) color: Color,
}

/// A line of text; `y` is the top of its capitals.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Text {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) size: Size,
    pub(crate) anchor: Anchor,
    pub(crate) color: Color,
    pub(crate) text: String,
}

/// Something drawn; later items cover earlier ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Item {
    Rectangle(Rectangle),
    Text(Text),
    /// What a viewer shows for the items up to the next note (SVG only).
    Note(String),
}

/// A page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Scene {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) title: String,
    pub(crate) items: Vec<Item>,
}

impl Scene {
    pub(crate) fn rectangle(&mut self, x: u32, y: u32, width: u32, height: u32, color: Color) {
        if width > 0 && height > 0 {
            self.items.push(Item::Rectangle(Rectangle { x, y, width, height, color }));
        }
    }

    pub(crate) fn text(&mut self, at: (u32, u32), size: Size, anchor: Anchor, color: Color, text: &str) {
        let (x, y) = at;
        self.items.push(Item::Text(Text { x, y, size, anchor, color, text: text.to_owned() }));
    }
}
