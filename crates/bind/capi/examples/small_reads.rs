//! Reads at random in a file for some seconds, and prints how many reads a second: `small_reads IMAGE BYTES
//! SECONDS`. `cargo benchmark c` compares it with `small_reads.c`, which does the same through C.

use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [image, len, seconds] = &words[..] else {
        return Err("usage: small_reads IMAGE BYTES SECONDS".into());
    };
    let (len, seconds): (usize, f64) = (len.parse()?, seconds.parse()?);
    let volume = hectare::Volume::open(image)?;
    let file = volume.open_file("/data")?;
    let room = file.metadata()?.len().checked_sub(u64::try_from(len)?).filter(|room| *room > 0);
    let room = room.ok_or("the file is too short")?;
    let mut buffer = vec![0; len];
    let (mut random, mut reads, mut sum) = (1_u64, 0_u32, 0_u64);
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < seconds {
        for _ in 0..1000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if file.read_at(&mut buffer, (random >> 33) % room)? != len {
                return Err("a read was short".into());
            }
            sum += u64::from(buffer[0]);
        }
        reads += 1000;
    }
    println!("{:.0} {}", f64::from(reads) / start.elapsed().as_secs_f64(), sum & 1);
    Ok(())
}
