//! A small checker of markup: every tag closed, in order, no external resources.

/// What is wrong with a page, if anything is.
pub(crate) fn complaint(page: &str) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>")?;
    while let Some(at) = rest.find('<') {
        if let Some(bad) = bad_text(&rest[..at], open.last().copied()) {
            return Some(bad);
        }
        let end = at + rest[at..].find('>')?;
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            match open.pop() {
                Some(top) if top == name => {}
                top => return Some(format!("</{name}> closes {top:?}")),
            }
            continue;
        }
        let name = tag.split([' ', '/', '\n']).next()?;
        if let Some(bad) = bad_attributes(&tag[name.len()..]) {
            return Some(format!("<{tag}>: {bad}"));
        }
        if !tag.ends_with('/') {
            open.push(name);
        }
        if ["script", "link", "img", "iframe"].contains(&name) {
            return Some(format!("<{name}>"));
        }
    }
    if open.is_empty() { None } else { Some(format!("left open: {open:?}")) }
}

/// Text between tags: entities only, no stray `>`. Style sheets have their own rules.
fn bad_text(text: &str, inside: Option<&str>) -> Option<String> {
    if inside == Some("style") {
        return text.contains("url(").then(|| "the style loads something".to_owned());
    }
    let entities = ["&amp;", "&lt;", "&gt;", "&quot;"];
    let stray = text.match_indices('&').find(|(at, _)| !entities.iter().any(|e| text[*at..].starts_with(e)));
    stray.map(|(at, _)| format!("a stray & in {:?}", &text[at..]))
}

/// `name="value"` again and again.
fn bad_attributes(mut text: &str) -> Option<String> {
    text = text.trim().trim_end_matches('/').trim();
    while !text.is_empty() {
        let Some((name, tail)) = text.split_once("=\"") else { return Some(format!("{text:?}")) };
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Some(format!("an attribute called {name:?}"));
        }
        let Some((value, tail)) = tail.split_once('"') else { return Some("an open quote".into()) };
        if value.contains("NaN") || value.contains("inf") {
            return Some(format!("{name} is {value}"));
        }
        let loads = ["href", "src"].contains(&name);
        if loads {
            return Some(format!("{name} loads {value}"));
        }
        text = tail.trim_start();
    }
    None
}

#[test]
fn the_judge_sees_what_is_wrong() {
    let page = |body: &str| complaint(&format!("<!DOCTYPE html><html>{body}</html>"));
    assert_eq!(page("<p class=\"a\">x &amp; y<br/></p>"), None);
    for bad in
        ["<p>", "<p></b>", "<p a></p>", "<p a=\"1></p>", "x & y", "<rect x=\"NaN\"/>", "<a href=\"x\"></a>"]
    {
        assert!(page(bad).is_some(), "{bad}");
    }
}
