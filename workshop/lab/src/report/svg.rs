//! A small writer of SVG: elements, escaping, tooltips. Colours are classes, which the page's style gives a
//! value for light and for dark.

use hectare_cli::shared::escaped;
use std::fmt::Write;

/// A drawing under way.
pub(crate) struct Svg {
    text: String,
    open: u32,
}

/// Where a text stands at its point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A rectangle.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Box {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Svg {
    pub(crate) fn new(width: f64, height: f64, label: &str) -> Self {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"{}\">\n",
            escaped(label)
        );
        Self { text, open: 0 }
    }

    pub(crate) fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
        );
    }

    pub(crate) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        let _ = writeln!(
            self.text,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        );
    }

    pub(crate) fn rect(&mut self, shape: Box, class: &str) {
        let Box { x, y, width, height } = shape;
        let _ = writeln!(
            self.text,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" class=\"{class}\"/>",
            width.max(0.0),
            height.max(0.0)
        );
    }

    /// A bar that stands on `base` or hangs from the left edge, its far end rounded.
    pub(crate) fn column(&mut self, shape: Box, class: &str) {
        let Box { x, y, width, height } = shape;
        let r = (width / 2.0).min(height).min(3.0);
        let _ = writeln!(
            self.text,
            "<path d=\"M{x:.1} {:.1}v{:.1}q0 {:.1} {r:.1} {:.1}h{:.1}q{r:.1} 0 {r:.1} {r:.1}v{:.1}z\" \
             class=\"{class}\"/>",
            y + height,
            r - height,
            -r,
            -r,
            width - 2.0 * r,
            height - r
        );
    }

    /// A bar that lies, its right end rounded.
    pub(crate) fn bar(&mut self, shape: Box, class: &str) {
        let Box { x, y, width, height } = shape;
        let r = (height / 2.0).min(width).min(3.0);
        let _ = writeln!(
            self.text,
            "<path d=\"M{x:.1} {y:.1}h{:.1}q{r:.1} 0 {r:.1} {r:.1}v{:.1}q0 {r:.1} {:.1} {r:.1}h{:.1}z\" \
             class=\"{class}\"/>",
            width - r,
            height - 2.0 * r,
            -r,
            r - width
        );
    }

    pub(crate) fn polyline(&mut self, points: &[(f64, f64)], class: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(self.text, "<polyline points=\"{}\" class=\"{class}\"/>", points.join(" "));
    }

    pub(crate) fn dot(&mut self, (x, y): (f64, f64), r: f64, class: &str) {
        let _ = writeln!(self.text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r:.1}\" class=\"{class}\"/>");
    }

    /// What an axis from `left` to `right` shows, below its middle.
    pub(crate) fn axis_label(&mut self, left: f64, right: f64, y: f64, text: &str) {
        self.text(f64::midpoint(left, right), y, Anchor::Middle, "label", text);
    }

    /// What is drawn until [`Self::end`] shows this text under the pointer.
    pub(crate) fn tip(&mut self, text: &str) {
        let _ = write!(self.text, "<g><title>{}</title>", escaped(text));
        self.open += 1;
    }

    pub(crate) fn end(&mut self) {
        self.text.push_str("</g>\n");
        self.open -= 1;
    }

    pub(crate) fn finish(mut self) -> String {
        debug_assert_eq!(self.open, 0, "every tip is ended");
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// Ticks from zero to at least `max`, at steps of 1, 2 or 5 times a power of ten.
pub(crate) fn ticks(max: f64) -> Vec<f64> {
    if max.is_nan() || max <= 0.0 {
        return vec![0.0, 1.0];
    }
    let rough = max / 4.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(power * 10.0);
    let mut ticks = vec![0.0];
    while ticks.last().is_some_and(|last| *last < max * 0.999) && ticks.len() < 12 {
        ticks.push(step * crate::run::float(hectare_units::u64_of(ticks.len())));
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_maximum() {
        assert_eq!(ticks(0.0), [0.0, 1.0]);
        assert_eq!(ticks(100.0), [0.0, 50.0, 100.0]);
        assert_eq!(ticks(3.5e6), [0.0, 1e6, 2e6, 3e6, 4e6]);
        for max in [0.003, 1.0, 7.7, 12_345.0, 9e12] {
            let ticks = ticks(max);
            assert!(
                (3..=6).contains(&ticks.len()) && ticks[ticks.len() - 1] >= max * 0.999,
                "{max}: {ticks:?}"
            );
        }
    }
}
