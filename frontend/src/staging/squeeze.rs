//! Decides about compression of an archive. Libraries shrink to a third, faster than most networks. Compressed files,
//! and nodes on this machine, gain nothing.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use zstd::stream::write::Encoder;

/// Fast rather than small.
const LEVEL: i32 = 1;
/// The window that the receiver must keep: 2^20 bytes, on every node.
const WINDOW_LOG: u32 = 20;
/// A smaller archive is not compressed.
const LEAST_BYTES: u64 = 64 * 1024;
/// The sample: this many pieces of this many bytes.
const PIECES: u64 = 8;
const PIECE_BYTES: usize = 64 * 1024;

/// How much the sample shrank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) bytes: u64,
    pub(crate) packed_bytes: u64,
}

/// Whether to compress an archive of `bytes`, given the result of a sample.
pub(crate) fn is_worth_packing(bytes: u64, sample: Sample) -> bool {
    // It must shrink by at least a fifth.
    let shrinks = sample.bytes > 0 && sample.packed_bytes.saturating_mul(5) <= sample.bytes.saturating_mul(4);
    bytes >= LEAST_BYTES && shrinks
}

/// Compresses a few pieces from evenly spaced places in all files together. Unreadable pieces are ignored.
pub(super) fn sample(files: &[(&Path, u64)]) -> Sample {
    let total: u64 = files.iter().map(|(_, size)| size).sum();
    let mut sample = Sample::default();
    for piece in 0..PIECES {
        let Some((path, offset)) = find(files, total / PIECES * piece) else { continue };
        let mut bytes = vec![0; PIECE_BYTES];
        let read = File::open(path).and_then(|file| file.read_at(&mut bytes, offset)).unwrap_or(0);
        if let Ok(packed) = zstd::bulk::compress(&bytes[..read], LEVEL) {
            sample.bytes += read as u64;
            sample.packed_bytes += packed.len() as u64;
        }
    }
    sample
}

/// The file at an offset in all files together, and the offset in it.
fn find<'a>(files: &[(&'a Path, u64)], mut at: u64) -> Option<(&'a Path, u64)> {
    for (path, size) in files {
        match at.checked_sub(*size) {
            Some(rest) => at = rest,
            None => return Some((path, at)),
        }
    }
    None
}

pub(super) fn encoder<W: Write>(to: W) -> io::Result<Encoder<'static, W>> {
    let mut encoder = Encoder::new(to, LEVEL)?;
    encoder.window_log(WINDOW_LOG)?;
    Ok(encoder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressible_archives_for_other_machines_are_packed() {
        let check = |bytes, packed: u64, expected| {
            let sample = Sample { bytes: 1000, packed_bytes: packed };
            assert_eq!(is_worth_packing(bytes, sample), expected, "{bytes} {packed}");
        };
        check(1 << 30, 300, true);
        check(1 << 30, 800, true);
        check(1 << 30, 801, false);
        check(1 << 30, 1000, false);
        check(LEAST_BYTES - 1, 300, false);
        check(LEAST_BYTES, 300, true);
    }

    #[test]
    fn a_try_tells_text_from_noise() {
        let scratch = tempfile::tempdir().unwrap();
        let (text, noise) = (scratch.path().join("text"), scratch.path().join("noise"));
        std::fs::write(&text, "all work and no play\n".repeat(50_000)).unwrap();
        let mut bytes = vec![0; 1_000_000];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        std::fs::write(&noise, bytes).unwrap();
        let (text, noise) = ((text.as_path(), 1_050_000), (noise.as_path(), 1_000_000));
        let worth = |files: &[(&Path, u64)]| is_worth_packing(1 << 20, sample(files));
        assert!(worth(&[text]));
        assert!(!worth(&[noise]));
        assert!(worth(&[noise, text]));
        assert!(!worth(&[(Path::new("/gone"), 1 << 20)]));
        assert!(!worth(&[]));
    }
}
