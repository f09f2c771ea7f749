//! The scene as SVG.

use super::color::hex;
use super::font::ADVANCE;
use super::scene::{Anchor, Item, Scene, Text};
use crate::markup::escaped;
use std::fmt::Write;

/// Draws the scene.
pub(crate) fn draw(scene: &Scene) -> String {
    let (width, height) = (scene.width, scene.height);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"ui-monospace, Menlo, Consolas, monospace\">\n\
         <title>{}</title>\n",
        escaped(&scene.title)
    );
    let mut noted = false;
    for item in &scene.items {
        match item {
            Item::Rectangle(r) => {
                let _ = writeln!(
                    svg,
                    "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>",
                    r.x,
                    r.y,
                    r.width,
                    r.height,
                    hex(r.color)
                );
            }
            Item::Text(text) => draw_text(&mut svg, text),
            Item::Note(note) => {
                svg.push_str(if noted { "</g>\n" } else { "" });
                noted = !note.is_empty();
                if noted {
                    let _ = write!(svg, "<g><title>{}</title>", escaped(note));
                }
            }
        }
    }
    svg.push_str(if noted { "</g>\n</svg>\n" } else { "</svg>\n" });
    svg
}

fn draw_text(svg: &mut String, text: &Text) {
    let anchor = match text.anchor {
        Anchor::Left => "start",
        Anchor::Middle => "middle",
        Anchor::Right => "end",
    };
    // A dot of the built-in font is `dot / 2` units: 7 dots high, 6 wide. A monospaced letter is 0.6 em wide.
    let dot = text.size.dot();
    let size = 10 * dot / 2;
    let baseline = text.y + (7 * dot).div_ceil(2);
    let length =
        u32::try_from(text.text.chars().count()).unwrap_or(u32::MAX).saturating_mul(ADVANCE * dot) / 2;
    let weight = if dot >= 5 { " font-weight=\"600\"" } else { "" };
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{baseline}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{}\" \
         textLength=\"{length}\"{weight} xml:space=\"preserve\">{}</text>",
        text.x,
        hex(text.color),
        escaped(&text.text)
    );
}
