//! Text in SVG and HTML.
//!
//! Names and labels come from images, so they may hold anything; control characters can't be written there at
//! all and become spaces.

/// Text for between tags and inside double quotes.
pub(crate) fn escaped(text: &str) -> String {
    html_escape::encode_double_quoted_attribute(&text.replace(char::is_control, " ")).into_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_ends_a_tag_or_a_quote() {
        assert_eq!(super::escaped("<a b=\"c\">&\n\u{7f}"), "&lt;a b=&quot;c&quot;&gt;&amp;  ");
    }
}
