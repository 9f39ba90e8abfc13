//! Programs and libraries.
#![no_main]

use gantry_frontend::staging::elf;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let machine = elf::parse_arch(bytes);
    if let Ok(found) = elf::parse_elf(bytes) {
        assert_eq!(machine, Ok(found.arch));
    }
});
