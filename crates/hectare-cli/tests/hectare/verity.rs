//! fs-verity on the command line: sealing, digests as the tool `fsverity` prints them, and what was changed
//! since.

use crate::support::{Bench, hectare};
use hectare_oracle::{assert_clean, debugfs, skip, tool};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

fn digest_of(file: &Path, options: &[&str]) -> Result<String, hectare_oracle::Skip> {
    let said = tool::run(tool::need("fsverity")?.arg("digest").args(options).arg("--compact").arg(file));
    Ok(said.expect_success().stdout.trim().to_owned())
}

/// Changes one byte of a file's block in an image of 4 KiB blocks.
fn damage(image: &str, path: &str, block: u64) {
    let place = debugfs(Path::new(image), &[&format!("bmap {path} {block}")]).unwrap();
    let place: u64 = place.split_whitespace().last().unwrap().parse().unwrap();
    let file = fs::File::options().read(true).write(true).open(image).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, place * 4096 + 5).unwrap();
    file.write_all_at(&[byte[0] ^ 1], place * 4096 + 5).unwrap();
}

#[test]
fn files_are_sealed_verified_and_told_when_changed() {
    let bench = Bench::empty();
    let image = bench.image();
    hectare(&["mkfs", "-t", "ext4", "-b", "4096", "-O", "verity", image, "32M"]).ok();
    let local = bench.local("file");
    let content: Vec<u8> = (0..300_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    fs::write(&local, &content).unwrap();
    bench.changed(&["cp", local.to_str().unwrap(), &bench.at("/file")]);
    bench.changed(&["cp", local.to_str().unwrap(), &bench.at("/other")]);
    hectare(&["verity", "digest", &bench.at("/file")]).refused();
    hectare(&["verity", "enable", "--block-size", "3000", &bench.at("/file")]).misused();
    bench.changed(&["verity", "enable", &bench.at("/file")]);
    bench.changed(&["verity", "enable", "--hash-alg", "sha512", "--salt", "00ff", &bench.at("/other")]);
    for (path, options) in [("/file", &[][..]), ("/other", &["--hash-alg=sha512", "--salt=00ff"][..])] {
        let said = hectare(&["verity", "digest", &bench.at(path)]).ok();
        let digest = match digest_of(&local, options) {
            Ok(digest) => digest,
            Err(reason) => skip!("verity::files_are_sealed", reason),
        };
        let line = said.text().split_once(':').unwrap().1.to_owned();
        assert_eq!(line.trim_end(), format!("{digest} {}", bench.at(path)));
        hectare(&["verity", "verify", &bench.at(path)]).ok();
        assert!(hectare(&["cat", "--verify", &bench.at(path)]).ok().out == content);
    }
    let refused = hectare(&["cp", local.to_str().unwrap(), &bench.at("/file")]);
    assert!(refused.refused().contains("fs-verity"), "{}", refused.err);
    assert_clean(Path::new(image)).unwrap();
    damage(image, "/file", 9);
    for arguments in [
        &["verity", "verify", &bench.at("/file")][..],
        &["cat", "--verify", &bench.at("/file")],
        &["cp", "--verify", &bench.at("/file"), bench.local("copy").to_str().unwrap()],
        &["cp", "--verify", &bench.at("/file"), &bench.at("/copy")],
    ] {
        let ran = hectare(arguments);
        assert!(ran.refused().contains("block 9"), "{}", ran.err);
    }
    assert_eq!(hectare(&["cat", &bench.at("/file")]).ok().out.len(), content.len());
    bench.changed(&["rm", &bench.at("/file")]);
}

#[test]
fn regression_equal_files_share_blocks_only_with_those_that_are_sealed_as_they_are() {
    let bench = Bench::empty();
    let (image, from) = (bench.image(), bench.local("from"));
    fs::create_dir_all(&from).unwrap();
    let content: Vec<u8> = (0..100_000).map(|n: u32| n.to_le_bytes()[1] ^ n.to_le_bytes()[0]).collect();
    let names = ["a", "b", "c", "d"];
    names.iter().for_each(|name| fs::write(from.join(name), &content).unwrap());
    let from = from.to_str().unwrap();
    for sealed in [&["a"][..], &["b"], &["a", "c"], &["b", "d"], &names] {
        let patterns = sealed.iter().flat_map(|name| ["--fs-verity", name]);
        let words = ["build", "--from", from, "--dedupe", "-O", "verity", "--force"].into_iter();
        let ran = hectare(&words.chain(patterns).chain([image]).collect::<Vec<_>>()).ok();
        let shared = if sealed.len() == names.len() { "3 files" } else { "2 files" };
        assert!(ran.text().starts_with(shared), "{}", ran.text());
        assert_clean(Path::new(image)).unwrap();
        for name in names {
            assert!(hectare(&["cat", &bench.at(name)]).ok().out == content, "{name}");
            let verified = hectare(&["verity", "verify", &bench.at(name)]);
            assert_eq!(verified.code == Some(0), sealed.contains(&name), "{name}: {}", verified.err);
        }
    }
}

#[test]
fn images_are_built_with_sealed_files() {
    let bench = Bench::empty();
    let (image, from) = (bench.image(), bench.local("from"));
    fs::create_dir_all(from.join("bin/deep")).unwrap();
    for (name, len) in
        [("bin/a", 0), ("bin/deep/b", 1), ("c.sealed", 65_536), ("d.sealed", 2_000_000), ("plain", 9)]
    {
        let content: Vec<u8> = (0..len).map(|n: u32| n.to_le_bytes()[1] ^ n.to_le_bytes()[0]).collect();
        fs::write(from.join(name), content).unwrap();
    }
    // A file of holes alone.
    fs::File::create(from.join("e.sealed")).unwrap().set_len(500_000).unwrap();
    fs::hard_link(from.join("plain"), from.join("bin/linked")).unwrap();
    let from = from.to_str().unwrap();
    for options in [&["-O", "verity"][..], &["-O", "verity,bigalloc"], &["-O", "verity", "-b", "1024"]] {
        let patterns = ["--fs-verity", "/bin", "--fs-verity", "*.sealed", "--force"];
        let arguments = [&["build", "--from", from][..], options, &patterns, &[image]].concat();
        hectare(&arguments).ok();
        assert_clean(Path::new(image)).unwrap();
        for name in ["bin/a", "bin/deep/b", "c.sealed", "d.sealed", "e.sealed", "plain"] {
            hectare(&["verity", "verify", &bench.at(name)]).ok();
            let size = if options.contains(&"-b") { "--block-size=1024" } else { "--block-size=4096" };
            let digest = match digest_of(&Path::new(from).join(name), &[size]) {
                Ok(digest) => digest,
                Err(reason) => skip!("verity::images_are_built", reason),
            };
            assert!(hectare(&["verity", "digest", &bench.at(name)]).ok().text().contains(&digest), "{name}");
        }
    }
    let refused = hectare(&["build", "--from", from, "--fs-verity", "plain", "--force", image]);
    assert!(refused.refused().contains("verity"), "{}", refused.err);
    let misused = hectare(&["build", "--from", from, "--fs-verity", "[", "--force", image]);
    assert!(misused.misused().contains("--fs-verity"), "{}", misused.err);
}
