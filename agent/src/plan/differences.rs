//! Where the memory of a process differs from the file that it was loaded from.

use super::{Memory, code::Marks, image::Image};

const CHUNK: usize = 256 * 1024;
const PAGE: usize = 4096;
const BLOCK: usize = 64;

/// Marks every byte of code that differs from the file or cannot be read.
pub(super) fn differences<'a>(image: &'a Image, memory: Memory<'_>) -> Marks<'a> {
    let mut marks = Marks::new(image.code());
    let mut buffer = vec![0; CHUNK];
    for section in image.code().sections() {
        let file = &image.data()[section.file.clone()];
        let mut compare = |from: usize, file: &[u8], size: usize, retry: &mut dyn FnMut(usize, &[u8])| {
            for (index, file) in file.chunks(size).enumerate() {
                let at = from + index * size;
                let loaded = &mut buffer[..file.len()];
                if !memory(section.address + at as u64, loaded) {
                    retry(at, file);
                    continue;
                }
                for (index, (file, loaded)) in file.chunks(BLOCK).zip(loaded.chunks(BLOCK)).enumerate() {
                    if file != loaded {
                        for (byte, _) in file.iter().zip(loaded).enumerate().filter(|(_, (a, b))| a != b) {
                            marks.set_near(section, section.address + (at + index * BLOCK + byte) as u64);
                        }
                    }
                }
            }
        };
        let mut failed = Vec::new();
        compare(0, file, CHUNK, &mut |at, file| failed.push((at, file.len())));
        // A hole in a chunk must not hide what is around it.
        let mut holes = Vec::new();
        for (at, len) in failed {
            compare(at, &file[at..at + len], PAGE, &mut |at, file| holes.push((at, file.len())));
        }
        for (at, len) in holes {
            for byte in at..at + len {
                marks.set_near(section, section.address + byte as u64);
            }
        }
    }
    marks
}
