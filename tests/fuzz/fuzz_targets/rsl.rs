//! Specifications of co-allocated jobs: read, printed, read again, evaluated, and taken for a request.
#![no_main]

use std::collections::BTreeMap;

use gantry_frontend::coallocation::{parse_request, rsl};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let given = BTreeMap::from([("HOME".to_owned(), "/home/me".to_owned())]);
    let Ok(specification) = rsl::parse(text) else { return };
    let printed = specification.to_string();
    assert_eq!(rsl::parse(&printed).as_ref(), Ok(&specification), "{printed}");
    let _replaced = specification.substitute(text, &given);
    let _request = parse_request(text, &given);
});
