//! Caches of libraries: read, and searched for names that may be in there.
#![no_main]

use std::ffi::OsStr;

use gantry_frontend::staging::ld_cache::LdCache;

const FLAGS: [&[i32]; 2] = [&[0x303], &[3, 1]];
const HWCAPS: [&[&str]; 2] = [&[], &["x86-64-v3", "x86-64-v2"]];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(cache) = LdCache::parse(bytes.to_vec()) else { return };
    for name in ["libc.so.6", "liba.so.10", "libz.so.1", ""] {
        for (flags, hwcaps) in FLAGS.into_iter().zip(HWCAPS) {
            let _path = cache.lookup(OsStr::new(name), flags, hwcaps);
        }
    }
});
