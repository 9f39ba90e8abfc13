//! Section "errors".

use std::ffi::c_int;

use gantry_shared_capi::fault;

/// The kind of this thread's last error.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_error_kind() -> c_int {
    fault::last_kind()
}
