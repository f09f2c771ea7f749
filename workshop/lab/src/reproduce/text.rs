//! Reproductions as tables for a terminal.

use super::{EXPERIMENTS, Part, Reproduction, Role, Row, Unit};
use crate::report::humanize::{short, whole};
use std::fmt::Write;

/// Columns of a line of the terminal that a text is broken at.
const WIDTH: usize = 100;

pub(super) fn draw(reproduction: &Reproduction) -> String {
    let mut text = String::new();
    let Reproduction { name, title, source, differs, rounds, quick, machine, parts } = reproduction;
    let _ = writeln!(text, "{name}: {title}\n{source}");
    let rounds = format!("median of {rounds} round{}", if *rounds == 1 { "" } else { "s" });
    let small = if *quick { "; made small, the figures say little" } else { "" };
    let _ = writeln!(text, "{}; {rounds}{small}", machine.line());
    for part in parts {
        text.push('\n');
        table(&mut text, part);
    }
    text.push('\n');
    for line in wrapped(differs, WIDTH) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// The headings of a part's table, and its rows.
pub(super) fn cells(part: &Part) -> (Vec<String>, Vec<Vec<String>>) {
    let is_published = part.rows.iter().any(|row| row.published != [None; 2]);
    let ran: Vec<usize> = (0..part.sides.len()).filter(|nr| part.sides[*nr].left_out.is_none()).collect();
    let compared = ran.iter().filter(|nr| part.sides[**nr].role != Role::Beside).count() == 2;
    let mut headings = vec![String::new()];
    if is_published {
        headings.extend(["published before", "after"].map(str::to_owned));
    }
    let mut rest = Vec::new();
    for nr in ran {
        let side = &part.sides[nr];
        headings.push(match side.role {
            Role::Before => format!("before: {}", side.title),
            Role::After => format!("after: {}", side.title),
            Role::Beside => side.title.clone(),
        });
        rest.push(nr);
        if side.role == Role::After && compared {
            headings.extend(["diff", "stdev"].map(str::to_owned));
        }
    }
    let row = |row: &Row| {
        let say =
            |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |figure| in_unit(figure, row.unit));
        let mut cells = vec![labelled(row)];
        if is_published {
            cells.extend(row.published.map(say));
        }
        for nr in &rest {
            cells.push(say(row.median(*nr)));
            if part.sides[*nr].role == Role::After && compared {
                cells.push(
                    part.difference(row).map_or_else(|| "-".to_owned(), |percent| format!("{percent:+.1} %")),
                );
                cells.push(say(row.deviation(*nr)));
            }
        }
        cells
    };
    (headings, part.rows.iter().map(row).collect())
}

fn table(text: &mut String, part: &Part) {
    let _ = writeln!(text, "{}\n{}", part.title, part.about);
    let (headings, rows) = cells(part);
    let width = |at: usize| {
        let cells = rows.iter().chain([&headings]).map(|row| row[at].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    for row in std::iter::once(&headings).chain(&rows) {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = if at == 0 { write!(line, "  {cell:<width$}") } else { write!(line, "  {cell:>width$}") };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    for side in &part.sides {
        if let Some(reason) = &side.left_out {
            let _ = writeln!(text, "  left out: {}: {reason}", side.title);
        }
    }
    for note in &part.notes {
        let _ = writeln!(text, "  note: {note}");
    }
}

/// A row's name, with its unit where the name does not say it.
pub(super) fn labelled(row: &Row) -> String {
    let unit = match row.unit {
        Unit::Count | Unit::Ratio => return row.name.clone(),
        Unit::PerSecond => "/s",
        Unit::MegabytesPerSecond => "MB/s",
        Unit::Seconds => "s",
        Unit::Milliseconds => "ms",
        Unit::Nanoseconds => "ns",
        Unit::Percent => "%",
        Unit::Bytes => "bytes",
    };
    let said =
        ["second", "MB/s", "bytes", "_ns", "_ms", "_pct", " ns "].iter().any(|word| row.name.contains(word));
    if said { row.name.clone() } else { format!("{}, {unit}", row.name) }
}

/// A figure in its unit.
pub(super) fn in_unit(figure: f64, unit: Unit) -> String {
    match unit {
        Unit::Count | Unit::Bytes | Unit::Nanoseconds => {
            if figure.fract() == 0.0 || figure >= 100.0 {
                whole(figure)
            } else {
                short(figure)
            }
        }
        _ if figure < 0.0 => format!("-{}", short(-figure)),
        _ => short(figure),
    }
}

/// A text in lines of at most `width` columns.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is a line");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// The list of experiments, printed if none is named.
#[must_use]
pub fn listed() -> String {
    let mut text = String::new();
    for experiment in &EXPERIMENTS {
        let _ =
            writeln!(text, "{:<16} {}\n{:<16} {}", experiment.name, experiment.title, "", experiment.source);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::Side;
    use super::*;

    #[test]
    fn a_table_has_published_ours_and_the_difference() {
        let side = |title: &str, role, left_out: Option<&str>| Side {
            title: title.into(),
            role,
            left_out: left_out.map(str::to_owned),
        };
        let row = |name: &str, unit, published, samples: [&[f64]; 3]| Row {
            name: name.into(),
            unit,
            published,
            samples: samples.map(<[f64]>::to_vec).into(),
            drawn: false,
        };
        let part = Part {
            title: "Test 1".into(),
            about: "64 threads".into(),
            sides: vec![
                side("without", Role::Before, None),
                side("with", Role::After, None),
                side("kernel", Role::Beside, Some("needs root")),
            ],
            rows: vec![
                row("extents scanned", Unit::Count, [Some(8e6), Some(2e5)], [&[7e6], &[1e5], &[]]),
                row("rate", Unit::PerSecond, [None; 2], [&[10.0, 20.0, 30.0], &[30.0, 30.0, 60.0], &[]]),
            ],
            points_of: None,
            notes: vec!["a note".into()],
        };
        let mut text = String::new();
        table(&mut text, &part);
        let expected = "\
Test 1
64 threads
                   published before    after  before: without  after: with     diff  stdev
  extents scanned         8,000,000  200,000        7,000,000      100,000  -98.6 %      -
  rate, /s                        -        -             20.0         30.0  +50.0 %   17.3
  left out: kernel: needs root
  note: a note
";
        assert_eq!(text, expected);
    }

    #[test]
    fn texts_are_broken_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("unbreakable", 3), ["unbreakable"]);
        assert_eq!(in_unit(-12.34, Unit::Percent), "-12.3");
        assert!(listed().lines().count() == 2 * EXPERIMENTS.len());
    }
}
