//! try
use hectare_populate::*;
fn hwm() -> String { std::fs::read_to_string("/proc/self/status").unwrap().lines().filter(|l| l.starts_with("VmHWM") || l.starts_with("VmRSS")).map(|l| l.split_whitespace().nth(1).unwrap().to_string()).collect::<Vec<_>>().join("/") }
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let t = std::time::Instant::now();
    let tree = Tree::build(vec![Source::from_argument(a[1].as_ref())], &Options::default()).unwrap();
    eprintln!("scan {:?} {:?} {}", t.elapsed(), tree.totals(), hwm());
    let f = hectare_mkfs::FormatOptions::default();
    let size = match a.get(3).map(|s| s.as_str()) { Some("min") => Size::Min, Some("free") => Size::Free(hectare_units::Bytes::mib(100)), _ => Size::Default };
    let image = match Image::plan(&tree, &f, size, true) { Ok(i) => i, Err(e) => { eprintln!("{e}"); return; } };
    eprintln!("plan {:?} {} {}", t.elapsed(), image.size(), hwm());
    for p in image.explain().parts { eprintln!("{:>12} {} {}", p.bytes.get(), p.name, p.hint); }
    let dev = hectare_device::FileOptions::new().write(true).create_pending(std::path::Path::new(&a[2]), image.size(), hectare_device::Overwrite::Replace).unwrap();
    eprintln!("open {:?}", t.elapsed());
    image.write(dev.device(), 2.try_into().unwrap(), &Quiet).unwrap_or_else(|e| panic!("{e}"));
    eprintln!("write {:?} {}", t.elapsed(), hwm());
    dev.publish().unwrap();
    eprintln!("done {:?}", t.elapsed());
}
