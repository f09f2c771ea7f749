//! Random stacks of layers, most of them without entries for parents, against what umoci unpacks of them.

use crate::common::*;
use crate::container::{Layout, packed};
use hectare_oracle::tool::need;
use hectare_oracle::{Skip, hunt, skip};
use hectare_populate::{Options, Source, Tree};
use hectare_units::random::SplitMix64;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// One entry: its type flag, path, target and mode.
#[derive(Clone, Debug)]
struct Line {
    flag: u8,
    path: String,
    target: String,
    mode: u16,
    data: String,
}

struct Random(SplitMix64);

impl Random {
    fn directory(&mut self) -> String {
        let names: Vec<&str> =
            (0..=self.0.index_below(3)).map(|_| ["a", "b", "c"][self.0.index_below(3)]).collect();
        names.join("/")
    }

    fn file(&mut self) -> String {
        format!("{}/{}", self.directory(), ["f", "g"][self.0.index_below(2)])
    }

    /// An entry of a layer; hard links lead to one of `files`.
    fn line(&mut self, is_lowest: bool, files: &[String]) -> Line {
        let mode = [0o755, 0o700, 0o711, 0o775][self.0.index_below(4)];
        let line =
            |flag: u8, path: String, target: String| Line { flag, path, target, mode, data: String::new() };
        match self.0.below(if is_lowest { 13 } else { 18 }) {
            0..=5 => line(b'0', self.file(), String::new()),
            6 | 7 => line(b'5', self.directory(), String::new()),
            8 => line(b'2', self.directory(), format!("/{}", self.directory())),
            9 | 10 => {
                let up = "../".repeat(self.0.index_below(3));
                line(b'2', self.directory(), format!("{up}{}", self.directory()))
            }
            11 if !files.is_empty() => {
                line(b'1', self.file(), files[self.0.index_below(files.len())].clone())
            }
            11 | 12 => line(b'2', self.file(), self.file()),
            13 | 14 => line(b'0', format!("{}/.wh..wh..opq", self.directory()), String::new()),
            _ => {
                let path = if self.0.below(2) == 0 { self.file() } else { self.directory() };
                let (dir, name) = path.rsplit_once('/').unwrap_or(("", &path));
                line(b'0', format!("{dir}/.wh.{name}").trim_start_matches('/').to_owned(), String::new())
            }
        }
    }

    /// Layers with the upper entries first, as umoci needs them: it applies a whiteout where it stands.
    fn stack(&mut self) -> Vec<Vec<Line>> {
        let mut files = Vec::new();
        (0..2 + self.0.index_below(3))
            .map(|layer| {
                let mut lines: Vec<Line> =
                    (0..2 + self.0.index_below(5)).map(|_| self.line(layer == 0, &files)).collect();
                lines.sort_by_key(|line| (line.path.matches('/').count(), line.is_whiteout()));
                for (at, line) in lines.iter_mut().enumerate().filter(|(_, line)| line.flag == b'0') {
                    line.data = format!("{layer}.{at}");
                }
                let is_file = |line: &&Line| line.path.ends_with(['f', 'g']) && !line.is_whiteout();
                files.extend(lines.iter().filter(is_file).map(|line| line.path.clone()));
                lines
            })
            .collect()
    }
}

impl Line {
    fn is_whiteout(&self) -> bool {
        self.path.contains(".wh.")
    }
}

fn archive_of<'l>(lines: impl IntoIterator<Item = &'l Line>) -> Archive {
    let mut tar = Archive::default();
    for line in lines {
        tar.entry_with_mode(line.flag, &line.path, &line.target, line.mode, line.data.as_bytes());
    }
    tar.bytes.resize(tar.bytes.len() + 1024, 0);
    tar
}

/// Each path with its kind, mode and content, and the first of the file's names.
type Seen = BTreeMap<String, String>;

fn seen(tree: &Tree) -> Seen {
    let all = describe(tree).into_iter().filter(|(path, _)| !path.is_empty());
    all.map(|(path, node)| {
        let said = match node.kind.strip_prefix("symlink to ") {
            Some(target) => format!("-> {target}"),
            None if node.kind == "Directory" => format!("directory {:o}", node.mode),
            None => format!("{:o} {}", node.mode, String::from_utf8_lossy(&node.content)),
        };
        (path, format!("{said} {}", if node.kind == "Directory" { "" } else { &node.names[0] }))
    })
    .collect()
}

fn unpacked(root: &Path) -> Seen {
    let (mut all, mut first) = (Vec::new(), BTreeMap::<u64, String>::new());
    let mut pending = vec![(root.to_owned(), String::new())];
    while let Some((dir, path)) = pending.pop() {
        for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            let path = format!("{path}/{}", entry.file_name().to_str().unwrap());
            let stat = entry.metadata().unwrap();
            let mode = stat.permissions().mode() & 0o7777;
            let name = first.entry(stat.ino()).or_insert_with(|| path.clone());
            *name = path.clone().min(name.clone());
            let said = if stat.is_symlink() {
                format!("-> {}", fs::read_link(entry.path()).unwrap().display())
            } else if stat.is_dir() {
                pending.push((entry.path(), path.clone()));
                format!("directory {mode:o}")
            } else {
                format!("{mode:o} {}", fs::read_to_string(entry.path()).unwrap())
            };
            all.push((path, said, if stat.is_dir() { None } else { Some(stat.ino()) }));
        }
    }
    let name = |inode: Option<u64>| inode.map_or(String::new(), |inode| first[&inode].clone());
    all.into_iter().map(|(path, said, inode)| (path, format!("{said} {}", name(inode)))).collect()
}

/// What umoci makes of the layers; `None` if it refuses them.
fn by_umoci(layers: &[Archive]) -> Result<Option<Seen>, Skip> {
    let dir = tempfile::tempdir().unwrap();
    let mut layout = Layout::default();
    let image = layout.image("linux/amd64", &layers.iter().map(packed).collect::<Vec<_>>());
    layout.tagged(image, "x").write(&dir.path().join("layout"));
    let unpack = need("umoci")?
        .args(["raw", "unpack", "--rootless", "--image", "layout:x", "rootfs"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    Ok(unpack.status.success().then(|| unpacked(&dir.path().join("rootfs"))))
}

fn built(layers: &[Archive]) -> Result<Seen, String> {
    let sources: Vec<Source> = layers.iter().map(|tar| stream(tar.bytes.clone())).collect();
    Tree::build(sources, &Options::default()).map(|tree| seen(&tree)).map_err(|error| error.to_string())
}

#[test]
fn regression_random_stacks_become_what_umoci_unpacks() {
    let name = "populate::random_stacks_become_what_umoci_unpacks";
    let mut random = Random(SplitMix64::new(hunt::seed(name)));
    let (stacks, mut compared) = (hunt::share(400), 0);
    for _ in 0..stacks {
        let stack = random.stack();
        let layers: Vec<Archive> = stack.iter().map(archive_of).collect();
        // Links to nothing and in a circle are refused.
        let Ok(ours) = built(&layers) else { continue };
        let whiteouts_last = |lines: &Vec<Line>| {
            let (whiteouts, entries): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.is_whiteout());
            archive_of(entries.into_iter().chain(whiteouts))
        };
        let reordered: Vec<Archive> = stack.iter().map(whiteouts_last).collect();
        assert_eq!(built(&reordered).as_ref(), Ok(&ours), "with whiteouts last: {stack:#?}");
        match by_umoci(&layers) {
            Err(reason) => skip!(name, reason),
            Ok(None) => {}
            Ok(Some(theirs)) => {
                assert_eq!(ours, theirs, "{stack:#?}");
                compared += 1;
            }
        }
    }
    assert!(compared * 3 > stacks, "{compared} of {stacks} stacks were compared");
}
