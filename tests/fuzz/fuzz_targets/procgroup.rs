//! Messages to the process manager, and queries as people type them.
#![no_main]

use gantry_frontend::procgroup::{text, xml};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ignored = xml::parse_request(bytes);
    let Ok(typed) = std::str::from_utf8(bytes) else { return };
    let _ignored = text::parse_query(typed);
});
