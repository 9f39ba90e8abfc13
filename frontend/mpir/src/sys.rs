//! The symbols of MPIR, which are in C.
#![expect(unsafe_code, reason = "the symbols are a C interface")]

use std::ffi::{CStr, c_char, c_int};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use gantry_shared::wire::frame::write_frame;
use gantry_shared::wire::starter::FromStarter;

/// A line of the table. `MPIR_PROCDESC` in `symbols.c` is the same.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Entry {
    host_name: *const c_char,
    executable_name: *const c_char,
    pid: c_int,
}

impl Entry {
    /// Makes an entry from texts that live as long as the process.
    pub(crate) fn new(host: &'static CStr, exe: &'static CStr, pid: c_int) -> Self {
        Self { host_name: host.as_ptr(), executable_name: exe.as_ptr(), pid }
    }
}

unsafe extern "C" {
    fn gantry_mpir_is_debugged() -> c_int;
    fn gantry_mpir_spawned(table: *const Entry, size: c_int, app: *const c_char);
    fn gantry_mpir_aborting(reason: *const c_char);
    fn MPIR_Breakpoint();
}

/// The socket that receives the release.
static COMMAND: OnceLock<UnixStream> = OnceLock::new();

/// Sets the socket that receives the release.
pub(crate) fn tell_release_to(command: UnixStream) {
    COMMAND.get_or_init(|| command);
}

/// Called by `MPIR_Breakpoint`.
#[unsafe(no_mangle)]
extern "C" fn gantry_mpir_release() {
    if let Some(mut command) = COMMAND.get() {
        // A closed socket is noticed elsewhere.
        drop(write_frame(&mut command, &FromStarter::Release));
    }
}

/// Has `command` start by fork, with memory of its own.
///
/// A process that vfork starts has its parent's memory until it is another program. LaunchMON removes its breakpoints
/// from each new process, and then they would be gone from this one too.
pub(crate) fn fork_to_start(command: &mut Command) {
    // SAFETY: it does nothing between fork and exec. That there is something to do makes the standard library fork.
    unsafe { command.pre_exec(|| Ok(())) };
}

/// Whether a debugger has set `MPIR_being_debugged`.
pub(crate) fn is_debugged() -> bool {
    // SAFETY: it reads a volatile variable, and this process has one thread.
    unsafe { gantry_mpir_is_debugged() != 0 }
}

/// Shows the table of the app with this id.
///
/// # Errors
/// There are more ranks than MPIR can count.
pub(crate) fn show_table(table: &'static [Entry], app: &'static CStr) -> Result<(), String> {
    let size = c_int::try_from(table.len()).map_err(|_| "more ranks than MPIR can count".to_owned())?;
    // SAFETY: the pointed-to data never change and live as long as the process; this process has one thread.
    unsafe { gantry_mpir_spawned(table.as_ptr(), size, app.as_ptr()) };
    Ok(())
}

/// Shows why the app has failed.
pub(crate) fn show_failure(reason: &'static CStr) {
    // SAFETY: the text is never changed, and there as long as the process is; this process has one thread.
    unsafe { gantry_mpir_aborting(reason.as_ptr()) };
}

/// Calls the function in which a debugger stops this process.
pub(crate) fn reach_breakpoint() {
    // SAFETY: it has no preconditions.
    unsafe { MPIR_Breakpoint() };
}
