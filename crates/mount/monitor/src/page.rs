//! The live page: one self-contained document. Its parts lie in the directory beside this file; it gets its
//! data from `/live.json`.

/// The page.
pub(crate) const PAGE: &str = concat!(
    include_str!("page/head.html"),
    "<style>\n",
    include_str!("page/page.css"),
    "</style>\n</head>\n",
    include_str!("page/body.html"),
    "<script>\n",
    include_str!("page/page.js"),
    "</script>\n</html>\n",
);

#[cfg(test)]
mod tests {
    use super::PAGE;

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        for outside in ["http:", "https:", "src=", "@import", "url("] {
            let namespace = "\"http://www.w3.org/2000/svg\"";
            assert!(!PAGE.replace(namespace, "").contains(outside), "{outside}");
        }
        // Data from the volume is text and never markup.
        assert!(!PAGE.contains("innerHTML") && !PAGE.contains("insertAdjacentHTML"));
    }
}
