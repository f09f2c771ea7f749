//! Text in SVG and HTML.
//!
//! Names and labels come from images, so they may hold anything; control characters can't be written there at
//! all and become spaces.

/// Text for between tags and inside double quotes.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(if c.is_control() { ' ' } else { c }),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_ends_a_tag_or_a_quote() {
        assert_eq!(super::escaped("<a b=\"c\">&\n\u{7f}"), "&lt;a b=&quot;c&quot;&gt;&amp;  ");
    }
}
