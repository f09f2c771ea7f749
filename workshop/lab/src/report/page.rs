//! The page: one file of HTML, style and drawings inside, with no external resources and no script.
//!
//! Every tag is closed, so that the page is well-formed XML as well and a test can verify it.

use super::Report;
use super::chart::{Chart, charts};
use super::series::{Group, groups};
use super::table::cells;
use hectare_cli::shared::escaped;
use std::fmt::Write;

/// The style of all pages.
pub(crate) const STYLE: &str = include_str!("page.css");

/// Draws the report.
pub(super) fn draw(report: &Report) -> String {
    let groups = groups(&report.runs);
    let names: Vec<&str> = groups.iter().map(|group| group.workload).collect();
    let title = format!("Hectare bench: {}", names.join(", "));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n",
        escaped(&title)
    );
    head(&mut page, report);
    for group in &groups {
        section(&mut page, group);
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn head(page: &mut String, report: &Report) {
    page.push_str("<header>\n<h1>Hectare bench</h1>\n");
    for machine in &report.machines {
        let _ = writeln!(page, "<p>{}</p>", escaped(&machine.line()));
    }
    if let Some(made) = &report.made {
        let _ = writeln!(page, "<p>{}</p>", escaped(made));
    }
    page.push_str("</header>\n");
}

fn section(page: &mut String, group: &Group<'_>) {
    let (workload, variant) = (escaped(group.workload), escaped(group.variant));
    let _ = writeln!(page, "<section>\n<h2>{workload}</h2>\n<p>{variant}</p>");
    figures(page, group);
    page.push_str("<div class=\"charts\">\n");
    for chart in charts(group) {
        card(page, &chart);
    }
    page.push_str("</div>\n");
    counts(page, group);
    page.push_str("</section>\n");
}

fn figures(page: &mut String, group: &Group<'_>) {
    let (headings, rows) = cells(group);
    page.push_str("<div class=\"card wide\">\n");
    table(page, &headings, &rows);
    page.push_str("</div>\n");
}

/// A table of a page: its headings, and the cells of each row.
pub(crate) fn table(page: &mut String, headings: &[impl AsRef<str>], rows: &[Vec<String>]) {
    page.push_str("<table>\n<thead><tr>");
    for heading in headings {
        let _ = write!(page, "<th>{}</th>", escaped(heading.as_ref()));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        page.push_str("<tr>");
        for cell in row {
            let _ = write!(page, "<td>{}</td>", escaped(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table>\n");
}

fn card(page: &mut String, chart: &Chart) {
    let (title, note) = (escaped(&chart.title), escaped(&chart.note));
    let _ = writeln!(page, "<div class=\"card\">\n<h3>{title}</h3>\n<p class=\"note\">{note}</p>");
    if chart.legend.len() > 1 {
        page.push_str("<ul class=\"key\">");
        for (class, name) in &chart.legend {
            let name = escaped(name);
            let _ = write!(page, "<li><span class=\"swatch {class}\"></span>{name}</li>");
        }
        page.push_str("</ul>\n");
    }
    page.push_str(&chart.svg);
    page.push_str("</div>\n");
}

/// The allocators' counts in full, folded.
fn counts(page: &mut String, group: &Group<'_>) {
    for series in &group.series {
        let Some(stats) = series.widest().and_then(|run| run.allocator.as_ref()) else { continue };
        let (name, text) = (escaped(&series.name), lines(&stats.shown()));
        let _ = writeln!(
            page,
            "<details><summary>Allocator counts: {name}</summary>\n<pre>{text}</pre></details>"
        );
    }
}

/// Escapes line by line: line ends and tabs stay.
fn lines(text: &str) -> String {
    let line = |line: &str| line.split('\t').map(escaped).collect::<Vec<_>>().join("  ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}
