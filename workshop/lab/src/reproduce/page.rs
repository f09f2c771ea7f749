//! The page: one file of HTML with style and drawings inside, with no external resources and no script.
//!
//! Every tag is closed, so that the page is well-formed XML as well and a test can verify it.

use super::bars::{bars, color, curves};
use super::text::{cells, labelled};
use super::{Part, Reproduction};
use crate::report::page::{STYLE, table};
use hectare_cli::shared::escaped;
use std::fmt::Write;

/// Bars are wide enough to be read on a narrow screen as well.
const FITTING: &str = "@media (max-width: 560px) { .card svg { min-width: 0; } }\n";

pub(super) fn draw(reproductions: &[Reproduction]) -> String {
    let names: Vec<&str> = reproductions.iter().map(|reproduction| reproduction.name).collect();
    let title = format!("Hectare reproduce: {}", names.join(", "));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{}</title>\n\
         <style>\n{STYLE}{FITTING}</style>\n</head>\n<body>\n<main>\n<header>\n\
         <h1>Published experiments, made again</h1>\n",
        escaped(&title)
    );
    if let Some(first) = reproductions.first() {
        let _ = writeln!(page, "<p>{}</p>", escaped(&first.machine.line()));
    }
    page.push_str("</header>\n");
    for reproduction in reproductions {
        section(&mut page, reproduction);
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn section(page: &mut String, reproduction: &Reproduction) {
    let Reproduction { name, title, source, differs, rounds, quick, parts, .. } = reproduction;
    let _ = writeln!(page, "<section>\n<h2>{}</h2>\n<p>{}</p>", escaped(name), escaped(title));
    let _ = writeln!(page, "<p class=\"note\">Published: {}</p>", escaped(source));
    let small = if *quick { " Made small: the figures say little." } else { "" };
    let rounds_in_words = if *rounds == 1 { "one round" } else { &format!("{rounds} rounds") };
    let _ = writeln!(page, "<p class=\"note\">Medians of {rounds_in_words}.{small} {}</p>", escaped(differs));
    parts.iter().for_each(|part| self::part(page, part));
    page.push_str("</section>\n");
}

fn part(page: &mut String, part: &Part) {
    let (title, about) = (escaped(&part.title), escaped(&part.about));
    let _ = writeln!(page, "<div class=\"card wide\">\n<h3>{title}</h3>\n<p class=\"note\">{about}</p>");
    let (headings, rows) = cells(part);
    table(page, &headings, &rows);
    for side in &part.sides {
        if let Some(reason) = &side.left_out {
            let (name, reason) = (escaped(&side.title), escaped(reason));
            let _ = writeln!(page, "<p class=\"note\">Left out: {name}: {reason}</p>");
        }
    }
    for note in &part.notes {
        let _ = writeln!(page, "<p class=\"note\">{}</p>", escaped(note));
    }
    page.push_str("</div>\n<div class=\"charts\">\n");
    match part.points_of {
        Some(along) => curve_card(page, part, along),
        None => part.rows.iter().filter(|row| row.drawn).for_each(|row| {
            if let Some(svg) = bars(part, row) {
                card(page, &format!("{}: {}", part.title, labelled(row)), "", &svg);
            }
        }),
    }
    page.push_str("</div>\n");
}

fn curve_card(page: &mut String, part: &Part, along: &str) {
    let mut key = String::from("<ul class=\"key\">");
    for (nr, side) in part.sides.iter().enumerate() {
        let (class, name) = (color(nr), escaped(&side.title));
        let _ = write!(key, "<li><span class=\"swatch {class}\"></span>{name}</li>");
    }
    key.push_str("</ul>\n");
    card(page, &part.title, &key, &curves(part, along));
}

fn card(page: &mut String, title: &str, key: &str, svg: &str) {
    let _ = writeln!(page, "<div class=\"card\">\n<h3>{}</h3>\n{key}{svg}</div>", escaped(title));
}
