//! The drawings of a reproduction: bars of one figure, and curves where the rows of a table are points.
//!
//! What was published and what was measured here stand on scales of their own, since the machines differ:
//! within each, the longest bar is the largest figure. A thin line over a bar goes from the smallest to the
//! largest of its rounds.

use super::text::{in_unit, labelled};
use super::{Part, Role, Row};
use crate::paired_stats::Spread;
use crate::report::humanize::axis;
use crate::report::svg::{Anchor, Box, Svg, ticks};
use crate::run::float;
use hectare_units::u64_of;

const WIDTH: f64 = 560.0;
const ROW: f64 = 38.0;
/// Colours there are.
const COLORS: usize = 8;

/// A bar: whose it is, its figure, the spread of its rounds, and its colour.
struct Bar {
    name: String,
    figure: f64,
    spread: Option<Spread>,
    class: String,
}

fn float_of(n: usize) -> f64 {
    float(u64_of(n))
}

/// The colour of a side, the same in all drawings of a part.
pub(super) fn color(side: usize) -> String {
    format!("c{}", side % COLORS)
}

/// One figure of all sides; `None` if it is missing in all.
pub(super) fn bars(part: &Part, row: &Row) -> Option<String> {
    let published = [(Role::Before, row.published[0]), (Role::After, row.published[1])];
    let published: Vec<Bar> = published
        .into_iter()
        .filter_map(|(role, figure)| {
            let words = if role == Role::Before { "published, before" } else { "published, after" };
            let class = format!("fill pale {}", color(part.side(role).unwrap_or(0)));
            Some(Bar { name: words.to_owned(), figure: figure?, spread: None, class })
        })
        .collect();
    let ours: Vec<Bar> = (0..part.sides.len())
        .filter_map(|nr| {
            let spread = Spread::of(row.samples.get(nr)?)?;
            let name = match part.sides[nr].role {
                Role::Before => format!("before: {}", part.sides[nr].title),
                Role::After => format!("after: {}", part.sides[nr].title),
                Role::Beside => part.sides[nr].title.clone(),
            };
            let class = format!("fill {}", color(nr));
            Some(Bar { name, figure: spread.median, spread: Some(spread), class })
        })
        .collect();
    if ours.is_empty() {
        return None;
    }
    let height = 8.0 + ROW * float_of(published.len() + ours.len());
    let mut svg = Svg::new(WIDTH, height, &labelled(row));
    let top = draw(&mut svg, &published, row, 4.0);
    draw(&mut svg, &ours, row, top);
    Some(svg.finish())
}

/// Draws bars on one scale from `top` on; where the next may begin.
fn draw(svg: &mut Svg, bars: &[Bar], row: &Row, mut top: f64) -> f64 {
    let largest = |bar: &Bar| bar.spread.map_or(bar.figure, |spread| spread.max);
    let max = bars.iter().map(largest).fold(0.0, f64::max);
    let full = WIDTH - 100.0;
    let length = |figure: f64| if max > 0.0 { full * figure.max(0.0) / max } else { 0.0 };
    for bar in bars {
        let said = in_unit(bar.figure, row.unit);
        svg.text(0.0, top + 11.0, Anchor::Start, "name", &bar.name);
        let rounds = bar.spread.map_or_else(String::new, |spread| {
            format!(", rounds from {} to {}", in_unit(spread.min, row.unit), in_unit(spread.max, row.unit))
        });
        svg.tip(&format!("{}: {said}{rounds}", bar.name));
        let shape = Box { x: 0.0, y: top + 16.0, width: length(bar.figure).max(1.0), height: 13.0 };
        svg.bar(shape, &bar.class);
        if let Some(spread) = bar.spread.filter(|spread| spread.max > spread.min) {
            let y = top + 22.5;
            svg.line((length(spread.min), y), (length(spread.max), y), "axis");
        }
        svg.end();
        svg.text(length(largest(bar)) + 8.0, top + 26.5, Anchor::Start, "value", &said);
        top += ROW;
    }
    top
}

/// All sides as curves, the rows of the part from left to right.
pub(super) fn curves(part: &Part, along: &str) -> String {
    let (top, bottom, left, right) = (16.0, 234.0, 60.0, WIDTH - 16.0);
    let medians = |nr: usize| part.rows.iter().map(move |row| row.median(nr));
    let all = (0..part.sides.len()).flat_map(medians).flatten();
    let ticks = ticks(all.fold(0.0, f64::max));
    let max = ticks.last().copied().unwrap_or(1.0);
    let y = |figure: f64| bottom - (bottom - top) * figure / max;
    let pitch = (right - left - 40.0) / float_of(part.rows.len().saturating_sub(1).max(1));
    let x = |at: usize| left + 20.0 + pitch * float_of(at);
    let mut svg = Svg::new(WIDTH, 276.0, &part.title);
    for tick in &ticks {
        svg.line((left, y(*tick)), (right, y(*tick)), if *tick > 0.0 { "grid" } else { "axis" });
        svg.text(left - 8.0, y(*tick) + 4.0, Anchor::End, "tick", &axis(*tick));
    }
    for (at, row) in part.rows.iter().enumerate() {
        svg.text(x(at), bottom + 18.0, Anchor::Middle, "tick", &row.name);
    }
    svg.axis_label(left, right, bottom + 38.0, along);
    for (nr, side) in part.sides.iter().enumerate() {
        let points: Vec<(f64, f64, &Row, f64)> = (part.rows.iter().enumerate())
            .filter_map(|(at, row)| row.median(nr).map(|figure| (x(at), y(figure), row, figure)))
            .collect();
        let line: Vec<(f64, f64)> = points.iter().map(|(x, y, ..)| (*x, *y)).collect();
        svg.polyline(&line, &format!("line {}", color(nr)));
        for (x, y, row, figure) in points {
            svg.tip(&format!("{}, {} {along}: {}", side.title, row.name, in_unit(figure, row.unit)));
            svg.dot((x, y), 4.0, &format!("dot {}", color(nr)));
            svg.end();
        }
    }
    svg.finish()
}
