//! Messages to the process manager, and queries as people type them.
#![no_main]

use gantry_frontend::procgroup::{text, xml};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = xml::parse_request(bytes) {
        let mut written = Vec::new();
        xml::write_request(&mut written, &request).expect("memory takes all");
        assert_eq!(xml::parse_request(&written), Ok(request));
    }
    let Ok(typed) = std::str::from_utf8(bytes) else { return };
    if let Ok(query) = text::parse_query(typed) {
        assert_eq!(text::parse_query(&text::write_query(&query)), Ok(query));
    }
});
