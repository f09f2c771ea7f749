//! Tables in Markdown, as docs/benchmarks/library.md has them.

use super::adapters::Peer;

/// A table with a row for each volume and a column for each peer.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(first: &str, peers: &[&Peer]) -> Self {
        let names = peers.iter().map(|peer| peer.name.clone());
        let header: Vec<String> = std::iter::once(first.to_owned()).chain(names).collect();
        let rule = header.iter().map(|_| "---".to_owned()).collect();
        Self { rows: vec![header, rule] }
    }

    pub(super) fn row(&mut self, first: &str, cells: Vec<String>) {
        self.rows.push(std::iter::once(first.to_owned()).chain(cells).collect());
    }

    pub(super) fn print(&self, title: &str) {
        println!("\n## {title}\n");
        for (number, row) in self.rows.iter().enumerate() {
            match number {
                1 => println!("|{}|", row.join("|")),
                _ => println!("| {} |", row.join(" | ")),
            }
        }
    }
}
