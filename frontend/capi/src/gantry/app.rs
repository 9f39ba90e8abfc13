//! Section "applications".

use std::ffi::{c_char, c_int};

use gantry_frontend::Error;
use gantry_shared_capi::{deadline, enter, memory, text};

use crate::process::process;

/// Attaches to a running application.
///
/// # Safety
/// `target` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_attach(target: *const c_char) -> i64 {
    enter("gantry_attach", 0, || {
        // SAFETY: guaranteed by the caller.
        let target = unsafe { text::required_name(target, "the target") }?;
        process().attach(target.to_owned(), false, deadline::of_launches())
    })
}

/// The application's name.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_getAppName(app_id: i64) -> *mut c_char {
    enter("gantry_getAppName", std::ptr::null_mut(), || {
        memory::string(process().apps.get(app_id)?.handle.id().to_string().as_bytes())
    })
}

/// Waits for the end of all ranks.
///
/// # Safety
/// `exit_code` is null or points to an int that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_waitApp(app_id: i64, exit_code: *mut c_int) -> c_int {
    enter("gantry_waitApp", 1, || {
        let process = process();
        let handle = process.apps.get(app_id)?.handle.clone();
        let deadline = deadline::of_thread();
        let exit = process.try_wait(async move {
            let Some(after) = deadline else { return handle.wait().await };
            let waited = tokio::time::timeout(after, handle.wait()).await;
            let phase = "waiting for the application's end";
            waited.unwrap_or(Err(Error::TimedOut { phase, after, missing: Vec::new() }))
        })?;
        if !exit_code.is_null() {
            // SAFETY: guaranteed by the caller.
            unsafe { exit_code.write(exit.code) };
        }
        Ok(0)
    })
}
