//! Container images as sources: layouts and archives made here byte by byte, right and wrong.

use crate::common::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use hectare_populate::{Options, Platform, Reference, Source, Tree};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::Path;

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A layout under construction: files by their paths.
#[derive(Default)]
pub(crate) struct Layout {
    files: BTreeMap<String, Vec<u8>>,
    manifests: Vec<Value>,
}

impl Layout {
    fn blob(&mut self, kind: &str, bytes: Vec<u8>) -> Value {
        let name = digest(&bytes);
        let found = json!({"mediaType": kind, "digest": name, "size": bytes.len()});
        self.files.insert(format!("blobs/{}", name.replace(':', "/")), bytes);
        found
    }

    fn json(&mut self, kind: &str, value: &Value) -> Value {
        self.blob(kind, serde_json::to_vec(value).unwrap())
    }

    /// An image of some archives and the blobs that hold them; returns its descriptor.
    pub(crate) fn image(&mut self, platform: &str, layers: &[(Vec<u8>, Vec<u8>)]) -> Value {
        let (os, arch) = platform.split_once('/').unwrap();
        let ids: Vec<String> = layers.iter().map(|(plain, _)| digest(plain)).collect();
        let config = json!({
            "os": os, "architecture": arch,
            "config": {"Entrypoint": ["/init"], "Env": ["A=b"]},
            "rootfs": {"type": "layers", "diff_ids": ids},
        });
        let config = self.json("application/vnd.oci.image.config.v1+json", &config);
        let layers: Vec<Value> = layers
            .iter()
            .map(|(_, packed)| self.blob("application/vnd.oci.image.layer.v1.tar+gzip", packed.clone()))
            .collect();
        let kind = "application/vnd.oci.image.manifest.v1+json";
        self.json(kind, &json!({"schemaVersion": 2, "config": config, "layers": layers}))
    }

    pub(crate) fn tagged(&mut self, mut image: Value, tag: &str) -> &mut Self {
        image["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
        self.manifests.push(image);
        self
    }

    fn all(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = self.files.clone();
        let index = json!({"schemaVersion": 2, "manifests": self.manifests});
        files.insert("index.json".to_owned(), serde_json::to_vec(&index).unwrap());
        files.insert("oci-layout".to_owned(), b"{\"imageLayoutVersion\": \"1.0.0\"}".to_vec());
        files
    }

    pub(crate) fn write(&self, at: &Path) {
        for (name, bytes) in self.all() {
            write(at.join(name), bytes);
        }
    }
}

pub(crate) fn packed(tar: &Archive) -> (Vec<u8>, Vec<u8>) {
    (tar.bytes.clone(), gzip(&tar.bytes))
}

fn layer(names: &[&str]) -> Archive {
    let mut tar = Archive::default();
    for name in names {
        tar.file(name, name.as_bytes());
    }
    tar.bytes.resize(tar.bytes.len() + 1024, 0);
    tar
}

fn source(text: impl Into<OsString>) -> Result<Source, String> {
    Source::from_argument(&text.into()).map_err(|error| error.to_string())
}

fn read(text: impl Into<OsString>, options: &Options) -> Result<Tree, String> {
    Tree::build(vec![source(text)?], options).map_err(|error| error.to_string())
}

fn paths(tree: &Tree) -> Vec<String> {
    describe(tree).into_keys().skip(1).collect()
}

/// Two layers: the second hides a file of the first.
fn two_layers(layout: &mut Layout) -> Value {
    let (first, second) = (layer(&["etc/a", "etc/b"]), layer(&["etc/.wh.a", "c"]));
    layout.image("linux/amd64", &[packed(&first), packed(&second)])
}

#[test]
fn layers_are_applied_in_order_from_a_directory_and_from_an_archive() {
    let dir = tempfile::tempdir().unwrap();
    let mut layout = Layout::default();
    let image = two_layers(&mut layout);
    layout.tagged(image.clone(), "v1").write(&dir.path().join("layout"));
    let mut tar = Archive::default();
    for (name, bytes) in layout.all() {
        tar.file(&name, &bytes);
    }
    tar.bytes.resize(tar.bytes.len() + 1024, 0);
    write(dir.path().join("x.tar"), &tar.bytes);
    write(dir.path().join("x.tar.gz"), gzip(&tar.bytes));
    let top = dir.path().display();
    let name = image["digest"].as_str().unwrap();
    for threads in [1, 4] {
        let options = Options { threads: NonZeroUsize::new(threads).unwrap(), ..Options::default() };
        for text in [
            format!("oci:{top}/layout"),
            format!("oci:{top}/layout:v1"),
            format!("oci:{top}/layout@{name}"),
            format!("{top}/layout"),
            format!("oci-archive:{top}/x.tar:v1"),
            format!("{top}/x.tar"),
            format!("{top}/x.tar.gz"),
        ] {
            let tree = read(&text, &options).unwrap();
            assert_eq!(paths(&tree), ["/c", "/etc", "/etc/b"], "{text}");
            let config: Value = serde_json::from_str(tree.image_config().unwrap()).unwrap();
            assert_eq!(config["Entrypoint"], json!(["/init"]), "{text}");
        }
    }
    let error = read(format!("oci:{top}/layout:v2"), &Options::default()).unwrap_err();
    assert!(error.ends_with("there is no image \"v2\"; there is v1"), "{error}");
}

#[test]
fn a_layer_may_be_plain_empty_or_without_its_end_mark() {
    let dir = tempfile::tempdir().unwrap();
    let mut layout = Layout::default();
    let (mut open, plain) = (Archive::default(), layer(&["b"]));
    open.file("a", b"x");
    let empty = Archive { bytes: vec![0; 1024] };
    let nothing = Archive::default();
    let layers = [packed(&open), (plain.bytes.clone(), plain.bytes), packed(&empty), packed(&nothing)];
    let image = layout.image("linux/amd64", &layers);
    layout.tagged(image, "x").write(dir.path());
    let tree = read(dir.path(), &Options::default()).unwrap();
    assert_eq!(paths(&tree), ["/a", "/b"]);
    assert_eq!(tree.warnings().len(), 1, "{:?}", tree.warnings());
    assert!(tree.warnings()[0].contains("layer 1 of 4, sha256:"), "{:?}", tree.warnings());
}

#[test]
fn whiteouts_have_their_meaning_in_an_image_of_one_layer() {
    let dir = tempfile::tempdir().unwrap();
    let mut layout = Layout::default();
    let only = layer(&["a", ".wh.b", "d/.wh..wh..opq", "d/e"]);
    let image = layout.image("linux/amd64", &[packed(&only)]);
    layout.tagged(image, "x").write(dir.path());
    assert_eq!(paths(&read(dir.path(), &Options::default()).unwrap()), ["/a", "/d", "/d/e"]);
}

#[test]
fn links_into_lower_layers_and_through_directories_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    let mut layout = Layout::default();
    let (mut first, mut second) = (Archive::default(), Archive::default());
    first.entry(b'5', "usr/lib/", "", &[]).entry(b'2', "lib", "usr/lib", &[]).file("usr/lib/so", b"x");
    second.file("lib/more", b"y").entry(b'1', "bin/so", "lib/so", &[]);
    for tar in [&mut first, &mut second] {
        tar.bytes.resize(tar.bytes.len() + 1024, 0);
    }
    let image = layout.image("linux/amd64", &[packed(&first), packed(&second)]);
    layout.tagged(image, "x").write(dir.path());
    let tree = read(dir.path(), &Options::default()).unwrap();
    assert_eq!(paths(&tree), ["/bin", "/bin/so", "/lib", "/usr", "/usr/lib", "/usr/lib/more", "/usr/lib/so"]);
    assert_eq!(describe(&tree)["/bin/so"].names, ["/bin/so", "/usr/lib/so"]);
}

#[test]
fn one_of_several_platforms_is_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let mut layout = Layout::default();
    let mut variants = Vec::new();
    for platform in ["linux/amd64", "linux/arm64", "linux/s390x"] {
        let (os, arch) = platform.split_once('/').unwrap();
        let mut image = layout.image(platform, &[packed(&layer(&[arch]))]);
        image["platform"] = json!({"os": os, "architecture": arch});
        variants.push(image);
    }
    let mut attestation = layout.image("unknown/unknown", &[]);
    attestation["platform"] = json!({"os": "unknown", "architecture": "unknown"});
    variants.push(attestation);
    let kind = "application/vnd.oci.image.index.v1+json";
    let index = layout.json(kind, &json!({"schemaVersion": 2, "manifests": variants}));
    layout.tagged(index, "multi").write(dir.path());
    for (wanted, found) in [("linux/arm64", "/arm64"), ("s390x", "/s390x"), ("linux/arm64/v8", "/arm64")] {
        let options = Options { platform: Some(Platform::parse(wanted).unwrap()), ..Options::default() };
        assert_eq!(paths(&read(dir.path(), &options).unwrap()), [found]);
    }
    let options = Options { platform: Some(Platform::parse("linux/riscv64").unwrap()), ..Options::default() };
    let error = read(dir.path(), &options).unwrap_err();
    let expected =
        "no image for linux/riscv64: choose with --platform from linux/amd64, linux/arm64, linux/s390x";
    assert!(error.contains(expected), "{error}");
    if cfg!(target_arch = "x86_64") {
        assert_eq!(paths(&read(dir.path(), &Options::default()).unwrap()), ["/amd64"]);
    }
}

#[test]
fn what_may_mean_two_images_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut layout = Layout::default();
    let (one, two) = (
        layout.image("linux/amd64", &[packed(&layer(&["one"]))]),
        layout.image("linux/amd64", &[packed(&layer(&["two"]))]),
    );
    layout.tagged(one.clone(), "a").tagged(two, "b").write(&dir.path().join("two"));
    let error = read(dir.path().join("two"), &Options::default()).unwrap_err();
    assert!(error.contains("several images: name one, by :TAG; there is a, b"), "{error}");
    let second = layout.image("linux/amd64", &[packed(&layer(&["three"]))]);
    layout.tagged(second, "a").write(&dir.path().join("same"));
    let error = read(format!("oci:{}/same:a", dir.path().display()), &Options::default()).unwrap_err();
    let name = one["digest"].as_str().unwrap();
    assert!(error.contains("have that name: choose by @") && error.contains(name), "{error}");
}

#[test]
fn an_archive_of_docker_is_read_by_its_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (layer(&["a"]), layer(&["b", ".wh.a"]));
    let ids = [digest(&first.bytes), digest(&second.bytes), digest(&first.bytes)];
    let config = json!({"os": "linux", "architecture": "amd64", "config": {"User": "7"},
        "rootfs": {"type": "layers", "diff_ids": ids}});
    let config = serde_json::to_vec(&config).unwrap();
    let name = format!("{}.json", &digest(&config)[7..]);
    let id = &ids[0][7..];
    let manifest = json!([{"Config": name, "RepoTags": ["box:latest"],
        "Layers": [format!("{id}/layer.tar"), "2/layer.tar", "3/layer.tar"]}]);
    let make = |config: &[u8]| {
        let mut tar = Archive::default();
        tar.file(&format!("{id}/layer.tar"), &first.bytes).file("2/layer.tar", &second.bytes);
        tar.entry(b'2', "3/layer.tar", "../".to_owned().as_str(), &[]);
        tar.entry(b'2', "3/layer.tar", &format!("../{id}/layer.tar"), &[]);
        tar.file(&name, config).file("manifest.json", &serde_json::to_vec(&manifest).unwrap());
        tar.bytes.resize(tar.bytes.len() + 1024, 0);
        tar.bytes
    };
    write(dir.path().join("x.tar"), make(&config));
    let top = dir.path().display();
    for text in [
        format!("docker-archive:{top}/x.tar"),
        format!("docker-archive:{top}/x.tar:box"),
        format!("docker-archive:{top}/x.tar:docker.io/library/box:latest"),
        format!("{top}/x.tar"),
    ] {
        let tree = read(&text, &Options::default()).unwrap();
        assert_eq!(paths(&tree), ["/a", "/b"], "{text}");
        assert!(tree.image_config().unwrap().contains("\"User\": \"7\""));
    }
    let options = Options { platform: Some(Platform::parse("linux/arm64").unwrap()), ..Options::default() };
    let error = read(format!("{top}/x.tar"), &options).unwrap_err();
    assert!(error.contains("the image is for linux/amd64, not for linux/arm64"), "{error}");
    let other = String::from_utf8(config).unwrap().replace("\"7\"", "\"0\"");
    write(dir.path().join("y.tar"), make(other.as_bytes()));
    let error = read(format!("{top}/y.tar"), &Options::default()).unwrap_err();
    assert!(error.contains("the digest of its bytes is") && error.contains("damaged"), "{error}");
}

/// A change of a layout, and what the error must say.
type Fault = (&'static str, fn(&mut Layout), &'static str);

fn change(layout: &mut Layout, kind: &str, change: impl Fn(&mut Value)) {
    let (name, mut value) = layout
        .files
        .iter()
        .filter_map(|(name, bytes)| Some((name.clone(), serde_json::from_slice::<Value>(bytes).ok()?)))
        .find(|(_, value)| value.get(kind).is_some())
        .unwrap();
    change(&mut value);
    layout.files.remove(&name);
    let media = layout.manifests[0]["mediaType"].as_str().unwrap().to_owned();
    if kind == "layers" {
        layout.manifests.clear();
        let image = layout.json(&media, &value);
        layout.tagged(image, "x");
    } else {
        let config = layout.json("application/vnd.oci.image.config.v1+json", &value);
        change_manifest(layout, &config);
    }
}

fn change_manifest(layout: &mut Layout, config: &Value) {
    change(layout, "layers", |manifest| manifest["config"] = config.clone());
}

const FAULTS: &[Fault] = &[
    (
        "a blob with another byte",
        |layout| {
            let blob = layout.files.values_mut().find(|bytes| bytes.starts_with(&[0x1f, 0x8b])).unwrap();
            blob[9] ^= 1; // the gzip header's operating system: it still unpacks
        },
        "the digest of the blob is sha256:",
    ),
    (
        "a configuration with another entry point",
        |layout| {
            let of = |bytes: &Vec<u8>| bytes.windows(5).position(|text| text == b"/init");
            let (at, bytes) = layout.files.values_mut().find_map(|bytes| Some((of(bytes)?, bytes))).unwrap();
            bytes[at] = b'.';
        },
        "the digest of its bytes is sha256:",
    ),
    (
        "a wrong size",
        |layout| change(layout, "layers", |manifest| manifest["layers"][0]["size"] = json!(3)),
        "not 3 as the manifest says",
    ),
    (
        "a wrong diff id",
        |layout| {
            change(layout, "rootfs", |config| {
                config["rootfs"]["diff_ids"][0] = json!(format!("sha256:{}", "00".repeat(32)));
            });
        },
        "the digest of the unpacked layer is sha256:",
    ),
    (
        "an unknown media type",
        |layout| {
            let kind = "application/vnd.oci.image.layer.v1.tar+encrypted";
            change(layout, "layers", |manifest| manifest["layers"][1]["mediaType"] = json!(kind));
        },
        "layer 2 has the media type \"application/vnd.oci.image.layer.v1.tar+encrypted\", which is not known",
    ),
    (
        "an artifact",
        |layout| {
            let kind = "application/vnd.oci.empty.v1+json";
            change(layout, "layers", |manifest| manifest["config"]["mediaType"] = json!(kind));
        },
        "it is an artifact (\"application/vnd.oci.empty.v1+json\"), not an image",
    ),
    (
        "a digest that is a path",
        |layout| {
            let digest = "sha256:../../../etc/passwd";
            change(layout, "layers", |manifest| manifest["layers"][0]["digest"] = json!(digest));
        },
        "is not a digest",
    ),
    (
        "a layer that is missing",
        |layout| layout.files.retain(|_, bytes| !bytes.starts_with(&[0x1f, 0x8b])),
        "layer 1 of 2, sha256:",
    ),
    (
        "more layers than ids",
        |layout| {
            change(layout, "layers", |manifest| {
                let layer = manifest["layers"][0].clone();
                manifest["layers"].as_array_mut().unwrap().push(layer);
            });
        },
        "it has 3 layers, and its configuration has 2",
    ),
    ("an index that is no JSON", |layout| layout.manifests = vec![json!("x")], "index.json: invalid type"),
    ("no image at all", |layout| layout.manifests.clear(), "there is no such image in it"),
];

#[test]
fn a_damaged_image_is_refused_with_the_place() {
    for (what, fault, expected) in FAULTS {
        let dir = tempfile::tempdir().unwrap();
        let mut layout = Layout::default();
        let image = two_layers(&mut layout);
        layout.tagged(image, "x");
        fault(&mut layout);
        layout.write(dir.path());
        let error = read(format!("oci:{}", dir.path().display()), &Options::default()).unwrap_err();
        assert!(error.contains(expected) && !error.contains('\n'), "{what}: {error}");
    }
}

#[test]
fn an_image_of_more_than_127_layers_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut layout = Layout::default();
    let layers = vec![packed(&layer(&["a"])); 128];
    let image = layout.image("linux/amd64", &layers);
    layout.tagged(image, "x").write(dir.path());
    let error = read(dir.path(), &Options::default()).unwrap_err();
    assert!(error.contains("the image has 128 layers; more than 127 are not taken"), "{error}");
}

#[test]
fn an_index_that_names_itself_ends() {
    let dir = tempfile::tempdir().unwrap();
    let mut layout = Layout::default();
    let kind = "application/vnd.oci.image.index.v1+json";
    let mut inner = layout.json(kind, &json!({"schemaVersion": 2, "manifests": []}));
    for _ in 0..6 {
        inner = layout.json(kind, &json!({"schemaVersion": 2, "manifests": [inner]}));
    }
    layout.tagged(inner, "x").write(dir.path());
    let error = read(dir.path(), &Options::default()).unwrap_err();
    assert!(error.contains("nested too deep"), "{error}");
}

#[test]
fn a_blob_that_is_a_link_or_a_pipe_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let mut layout = Layout::default();
    let image = two_layers(&mut layout);
    layout.tagged(image, "x").write(dir.path());
    let blob = layout.files.iter().find(|(_, bytes)| bytes.starts_with(&[0x1f, 0x8b])).unwrap().0;
    let blob = dir.path().join(blob);
    std::fs::remove_file(&blob).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &blob).unwrap();
    let error = read(dir.path(), &Options::default()).unwrap_err();
    assert!(error.contains("a link, which may lead out of the image, is not followed"), "{error}");
    std::fs::remove_file(&blob).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &blob, rustix::fs::Mode::RUSR).unwrap();
    let error = read(dir.path(), &Options::default()).unwrap_err();
    assert!(error.contains("it is not a regular file"), "{error}");
}

#[test]
fn a_bomb_stops_at_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let mut layout = Layout::default();
    let mut tar = Archive::default();
    tar.file("a", &vec![0; 32 << 20]);
    let image = layout.image("linux/amd64", &[packed(&tar)]);
    layout.tagged(image, "x").write(dir.path());
    let options = Options { max_size: Some(hectare_units::Bytes::new(1 << 20)), ..Options::default() };
    let error = read(dir.path(), &options).unwrap_err();
    assert!(error.contains("layer 1 of 1") && error.contains("--max-size"), "{error}");
}

#[test]
fn images_elsewhere_are_refused_with_advice() {
    for text in ["docker-daemon:alpine", "docker://alpine", "containers-storage:alpine"] {
        assert!(source(text).unwrap_err().contains("save it first"), "{text}");
    }
    let missing = Reference::parse("oci:/nowhere:x".as_ref()).unwrap().unwrap();
    let error = Tree::build(vec![Source::Container(missing)], &Options::default()).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere:x: can't open the directory"), "{error}");
}
