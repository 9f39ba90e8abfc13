//! This process's environment, and how the process becomes another program.

use std::ffi::{CStr, CString, c_char};
use std::io;

use super::child::pointers;

unsafe extern "C" {
    /// environ(7). The C library's execvp passes it on, and searches the folders of its PATH.
    static mut environ: *const *const c_char;
}

/// The entries of this process's environment, `NAME=VALUE`.
pub(crate) fn environment() -> Vec<&'static CStr> {
    let mut entries = Vec::new();
    // SAFETY: no code of the agent changes its environment, so nothing writes to this pointer.
    let mut next = unsafe { environ };
    while !next.is_null() {
        // SAFETY: `next` is within the array, or at the null pointer that ends it.
        let entry = unsafe { *next };
        if entry.is_null() {
            break;
        }
        // SAFETY: a C string, which stays where and as it is until this process becomes another program.
        entries.push(unsafe { CStr::from_ptr(entry) });
        // SAFETY: the array did not end with this entry.
        next = unsafe { next.add(1) };
    }
    entries
}

/// Becomes the program, which is found as by the C library's execvp. The first of the arguments is its name.
///
/// Call it while there is one thread. Returns only the failure.
pub(crate) fn exec(program: &CStr, argv: &[CString], environment: &[impl AsRef<CStr>]) -> io::Error {
    let (argv, new) = (pointers(argv), pointers(environment));
    // This process ignores it.
    // SAFETY: sets the default action, no handler.
    let action = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    // SAFETY: no other thread writes to it.
    let old = unsafe { environ };
    // SAFETY: no other thread reads it meanwhile.
    unsafe { environ = new.as_ptr() };
    // SAFETY: both arrays consist of C strings and end with a null pointer. They outlive the call.
    unsafe { libc::execvp(program.as_ptr(), argv.as_ptr()) };
    let error = io::Error::last_os_error();
    // SAFETY: as above.
    unsafe { environ = old };
    // SAFETY: sets the action that was there.
    unsafe { libc::signal(libc::SIGPIPE, action) };
    error
}
