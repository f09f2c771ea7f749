//! ls, tree, stat, cat, xattr list: their output agrees with the kernel.

use crate::support::{Bench, hectare};
use hectare_oracle::{Combo, Kind, Scale, Tree, combos, filled, skip, skip_part};
use serde_json::Value;

fn kind_of(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "regular file",
        Kind::Directory => "directory",
        Kind::Symlink => "symbolic link",
        Kind::Char => "character device",
        Kind::Block => "block device",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
    }
}

pub(crate) fn name_of(value: &Value) -> Vec<u8> {
    if let Some(text) = value.as_str() {
        return text.as_bytes().to_vec();
    }
    let hex = value["hex"].as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn a_recursive_listing_is_what_the_kernel_sees() {
    for (combo, tree) in [("ext4", Tree::Names), ("ext4", Tree::Links), ("ext2", Tree::Ordinary)] {
        let filled = match filled(&Combo::named(combo), tree, &Scale::SMALL) {
            Ok(filled) => filled,
            Err(reason) => skip!("cli look::a_recursive_listing", reason),
        };
        let ran = hectare(&["ls", "-aR", "--json", &format!("{}:/", filled.image().display())]).ok();
        let json = ran.json();
        let listed = json.as_array().unwrap();
        let expected: Vec<_> = filled.entries().iter().filter(|entry| !entry.path.is_empty()).collect();
        assert_eq!(listed.len(), expected.len(), "{combo}, {}", tree.name());
        for entry in expected {
            let path = [b"/", &entry.path[..]].concat();
            let found = listed.iter().find(|found| name_of(&found["path"]) == path).unwrap();
            assert_eq!(found["kind"], kind_of(entry.kind));
            assert_eq!(found["mode"], format!("{:04o}", entry.mode));
            assert_eq!(
                (found["uid"].as_u64(), found["gid"].as_u64()),
                (Some(entry.uid.into()), Some(entry.gid.into()))
            );
            if entry.kind == Kind::File {
                assert_eq!(found["size"].as_u64(), Some(entry.size));
            }
            if entry.kind == Kind::Symlink {
                assert_eq!(name_of(&found["target"]), entry.target);
            }
        }
        let tree_json =
            hectare(&["tree", "-a", "--json", &format!("{}:", filled.image().display())]).ok().json();
        assert_eq!(tree_json.as_array().unwrap().len(), listed.len());
    }
}

#[test]
fn every_combination_that_can_be_read_lists_its_tree() {
    for combo in combos() {
        let filled = match filled(combo, Tree::Ordinary, &Scale::SMALL) {
            Ok(filled) => filled,
            Err(reason) => {
                skip_part!(format!("cli look, {}", combo.name), reason);
                continue;
            }
        };
        let ran = hectare(&["ls", "-aR", "--json", &format!("{}:", filled.image().display())]).ok();
        let json = ran.json();
        // The source tree has no lost+found; the kernel's view has one.
        let listed = json.as_array().unwrap().iter().filter(|entry| entry["path"] != "/lost+found").count();
        let expected =
            filled.entries().iter().filter(|e| !e.path.is_empty() && e.path != b"lost+found").count();
        assert_eq!(listed, expected, "{}", combo.name);
    }
}

#[test]
fn lists_read_as_people_expect() {
    let bench = match Bench::fresh("ext4") {
        Ok(bench) => bench,
        Err(reason) => skip!("cli look::lists_read_as_people_expect", reason),
    };
    let file = bench.local("a b");
    std::fs::write(&file, "content").unwrap();
    hectare(&["cp", file.to_str().unwrap(), &bench.at("/.hidden")]).ok();
    hectare(&["cp", file.to_str().unwrap(), &bench.at("/shown")]).ok();
    hectare(&["ln", "-s", "shown", &bench.at("/link")]).ok();
    hectare(&["chmod", "4711", &bench.at("/shown")]).ok();
    assert_eq!(hectare(&["ls", &bench.at("")]).ok().text(), "link\nlost+found\nshown\n");
    assert_eq!(
        hectare(&["ls", "-a", &bench.at("/")]).ok().text(),
        ".\n..\n.hidden\nlink\nlost+found\nshown\n"
    );
    assert_eq!(hectare(&["ls", bench.image()]).ok().text(), "link\nlost+found\nshown\n");
    let long = hectare(&["ls", "-l", &bench.at("/")]).ok();
    let lines: Vec<&str> = long.text().lines().collect();
    assert!(lines[0].starts_with("lrwxrwxrwx 1 ") && lines[0].ends_with(" link -> shown"), "{}", lines[0]);
    assert!(lines[2].starts_with("-rws--x--x 1 ") && lines[2].ends_with(" shown"), "{}", lines[2]);
    assert!(lines[2].contains("     7 20"), "{}", lines[2]);
    let tree = hectare(&["tree", &bench.at("/")]).ok();
    assert!(tree.text().contains("\u{251c}\u{2500}\u{2500} link -> shown\n"), "{}", tree.text());
    assert!(tree.text().ends_with("1 directories, 2 files\n"), "{}", tree.text());
    assert_eq!(hectare(&["cat", &bench.at("/link"), &bench.at("/.hidden")]).ok().text(), "contentcontent");
    let stat = hectare(&["stat", &bench.at("/link")]).ok();
    assert!(stat.text().contains("symbolic link") && stat.text().contains("link -> shown"));
}

#[test]
fn content_attributes_and_holes_are_read() {
    let filled = match filled(&Combo::named("ext4"), Tree::Attributes, &Scale::SMALL) {
        Ok(filled) => filled,
        Err(reason) => skip!("cli look::content_attributes_and_holes", reason),
    };
    let mut seen = 0;
    for entry in filled.entries().iter().filter(|entry| !entry.xattrs.is_empty()) {
        let place =
            format!("{}:{}", filled.image().display(), String::from_utf8(entry.path.clone()).unwrap());
        let json = hectare(&["xattr", "list", "-P", "--json", &place]).ok().json();
        let listed = json.as_array().unwrap();
        assert_eq!(listed.len(), entry.xattrs.len(), "{place}");
        for found in listed {
            let value = &entry.xattrs[&name_of(&found["name"])];
            let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(found["value_hex"].as_str(), Some(&*hex));
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let filled = match filled(&Combo::named("ext4"), Tree::ManyFiles, &Scale::SMALL) {
        Ok(filled) => filled,
        Err(reason) => skip!("cli look::a_reader_that_goes_away", reason),
    };
    let place = format!("{}:", filled.image().display());
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_hectare"))
        .args(["ls", "-lR", "--json", &place])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

#[test]
fn regression_a_value_of_an_attribute_could_turn_a_line_around() {
    let bench = Bench::empty();
    hectare(&["mkfs", "-q", bench.image(), "8M"]).ok();
    for (name, value) in [("user.a", "\u{202e}evil"), ("user.b", "\u{200b}"), ("user.c", "plain \u{e9}")] {
        hectare(&["xattr", "set", name, value, &bench.at("/")]).ok();
    }
    let said = hectare(&["stat", &bench.at("/")]).ok();
    for line in ["user.a = 0xe280ae6576696c\n", "user.b = 0xe2808b\n", "user.c = \"plain \u{e9}\"\n"] {
        assert!(said.text().contains(line), "{}", said.text());
    }
}
