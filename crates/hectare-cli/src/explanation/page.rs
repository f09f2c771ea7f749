//! The HTML page: pictures and lines of explanations in one file, with no external resources and no script.
//!
//! Every tag is closed, so that the page is well-formed XML as well and a test can verify it.

use super::text::{Detail, request};
use super::{how, picture, summary};
use crate::markup::escaped;
use crate::picture::svg;
use hectare_engine::Explanation;
use std::fmt::Write;

const STYLE: &str =
    "body { margin: 0; background: #f3f5f9; color: #1d2633; font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 24px 16px; }
h1 { font-size: 24px; margin: 0 0 16px; }
h2 { font-size: 18px; margin: 0 0 12px; }
section { background: #fff; border: 1px solid #d5dbe5; border-radius: 8px; padding: 16px; margin: 0 0 20px; }
svg { width: 100%; height: auto; display: block; }
pre { white-space: pre-wrap; font: 13px/1.5 ui-monospace, Menlo, Consolas, monospace; margin: 0 0 12px; }
";

/// Draws explanations of an image of this name; of each, the `last` requests are listed one by one.
pub(crate) fn draw(name: &str, explanations: &[Explanation], last: usize) -> String {
    let title = escaped(&format!("{name}: why space lies where it lies"));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n<section>\n{}</section>\n",
        svg::draw(&picture::scene(name, explanations))
    );
    for explanation in explanations {
        let policy = escaped(&how(explanation));
        let _ = writeln!(page, "<section>\n<h2>{policy}</h2>");
        if explanation.trace.requests.len() > 1 {
            block(&mut page, &summary::text(explanation));
        }
        let requests = &explanation.trace.requests;
        for one in &requests[requests.len().saturating_sub(last)..] {
            block(&mut page, &request(explanation, one, Detail::Full));
        }
        page.push_str("</section>\n");
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn block(page: &mut String, text: &str) {
    let lines: Vec<String> = text.lines().map(escaped).collect();
    let _ = writeln!(page, "<pre>{}</pre>", lines.join("\n"));
}
