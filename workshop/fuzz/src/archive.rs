//! Tar archives that get past their checksums.

/// Bytes of a block of an archive.
pub const BLOCK: usize = 512;

/// A regular file: header, content, padding, with the right checksum.
#[must_use]
pub fn member(name: &[u8], content: &[u8]) -> Vec<u8> {
    let mut member = vec![0; BLOCK];
    let name = &name[..name.len().min(100)];
    member[..name.len()].copy_from_slice(name);
    member[100..107].copy_from_slice(b"0000644");
    member[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    member[156] = b'0';
    member[257..265].copy_from_slice(b"ustar\x0000");
    seal(&mut member);
    member.extend_from_slice(content);
    member.resize(member.len().next_multiple_of(BLOCK), 0);
    member
}

/// An archive of these regular files.
#[must_use]
pub fn archive(members: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut archive: Vec<u8> = members.iter().flat_map(|(name, content)| member(name, content)).collect();
    archive.resize(archive.len() + 2 * BLOCK, 0);
    archive
}

/// Sets the checksum of every header, as far as sizes lead from one to the next.
pub fn seal(archive: &mut [u8]) {
    let mut at = 0;
    while let Some(header) = archive.get_mut(at..at + BLOCK) {
        at += BLOCK;
        if header.iter().all(|byte| *byte == 0) {
            continue;
        }
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let digits = header[124..136].iter().filter(|byte| (b'0'..=b'7').contains(byte));
        let size = digits.fold(0usize, |size, digit| size << 3 | usize::from(digit - b'0'));
        at = at.saturating_add(size.next_multiple_of(BLOCK));
    }
}
