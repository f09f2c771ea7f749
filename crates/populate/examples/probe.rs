//! probe
use hectare_mkfs::*;
use hectare_units::Bytes;
fn main() {
    for mb in [300u64, 340, 370, 380, 400, 420, 450, 500, 600, 800, 1000, 1500, 2000, 3000, 4000] {
        let o = FormatOptions { inodes: InodeCount::Exactly(1000011), block_size: Some(hectare_units::BlockSize::KIB4), ..Default::default() };
        let t = std::time::Instant::now();
        match Plan::new(&o, Bytes::mib(mb), true) {
            Ok(p) => { let g = p.geometry(); println!("{mb} groups {} cpg {} ipg {} inodes {} free {} {:?} reserved {}", g.groups(), g.clusters_per_group, g.inodes_per_group, g.inodes_count(), p.overhead().free, t.elapsed(), g.reserved_gdt_blocks) }
            Err(e) => println!("{mb} {e}"),
        }
    }
}
