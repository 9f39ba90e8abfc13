//! Section "errors".

use std::ffi::{c_char, c_int};

use gantry_shared_capi::fault;

/// Why the last call of this thread failed that did.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_be_error_str() -> *const c_char {
    fault::last_text()
}

/// The kind of this thread's last error.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_be_error_kind() -> c_int {
    fault::last_kind()
}
