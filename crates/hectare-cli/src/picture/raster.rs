//! The scene as PNG, two pixels a unit, text in the built-in font.

use super::color::{Color, PAPER};
use super::font::{ADVANCE, HEIGHT, WIDTH, glyph};
use super::scene::{Anchor, Item, Scene, Text};
use hectare_units::usize_of;

/// Pixels a unit.
const SCALE: u32 = 2;

struct Canvas {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

impl Canvas {
    fn fill(&mut self, x: u32, y: u32, width: u32, height: u32, color: Color) {
        let (right, bottom) =
            (x.saturating_add(width).min(self.width), y.saturating_add(height).min(self.height));
        for row in y..bottom {
            let start = 3 * (usize_of(row) * usize_of(self.width) + usize_of(x.min(right)));
            let end = 3 * (usize_of(row) * usize_of(self.width) + usize_of(right));
            for pixel in self.pixels[start..end].as_chunks_mut::<3>().0 {
                *pixel = [color.0, color.1, color.2];
            }
        }
    }

    fn text(&mut self, text: &Text) {
        let dot = text.size.dot() * SCALE / 2;
        let advance = ADVANCE * dot;
        let count = u32::try_from(text.text.chars().count()).unwrap_or(u32::MAX);
        let length = count.saturating_mul(advance);
        let at = text.x * SCALE;
        let start = match text.anchor {
            Anchor::Left => at,
            Anchor::Middle => at.saturating_sub(length / 2),
            Anchor::Right => at.saturating_sub(length.saturating_sub(dot)),
        };
        for (c, n) in text.text.chars().zip(0u32..) {
            let x = start.saturating_add(n.saturating_mul(advance));
            let (rows, drop) = glyph(c);
            for (row, y) in rows.into_iter().zip(drop..HEIGHT + drop) {
                for column in (0..WIDTH).filter(|column| row >> (WIDTH - 1 - column) & 1 == 1) {
                    let x = x.saturating_add(column * dot);
                    self.fill(x, text.y * SCALE + y * dot, dot, dot, text.color);
                }
            }
        }
    }
}

/// Draws the scene.
///
/// # Errors
/// The encoder's error.
pub(crate) fn draw(scene: &Scene) -> Result<Vec<u8>, png::EncodingError> {
    let (width, height) = (scene.width * SCALE, scene.height * SCALE);
    let bytes = 3 * usize_of(width) * usize_of(height);
    let mut canvas = Canvas { width, height, pixels: vec![0; bytes] };
    canvas.fill(0, 0, width, height, PAPER);
    for item in &scene.items {
        match item {
            Item::Rectangle(r) => {
                canvas.fill(r.x * SCALE, r.y * SCALE, r.width * SCALE, r.height * SCALE, r.color);
            }
            Item::Text(text) => canvas.text(text),
            Item::Note(_) => {}
        }
    }
    let mut png = Vec::new();
    let mut encoder = png::Encoder::new(&mut png, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&canvas.pixels)?;
    Ok(png)
}
