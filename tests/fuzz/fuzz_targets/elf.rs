//! Programs and libraries, and the first lines of scripts.
#![no_main]

use gantry_frontend::staging::{elf, script};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let machine = elf::parse_arch(bytes);
    if let Ok(found) = elf::parse_elf(bytes) {
        assert_eq!(machine, Ok(found.arch));
    }
    if let Some(shebang) = script::parse_shebang(bytes) {
        let _name = shebang.env_program();
    }
});
