//! Section "sessions".

use std::ffi::c_char;
use std::os::unix::ffi::OsStrExt;

use gantry_shared_capi::{Fault, enter, memory, text};
use gantry_types::error::Kind;

use crate::process::{fault, process};

/// The session's root on a node.
///
/// # Safety
/// `hostname` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_getSessionDirOn(sid: i64, hostname: *const c_char) -> *mut c_char {
    enter("gantry_getSessionDirOn", std::ptr::null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let host = unsafe { text::required_name(hostname, "the node's name") }?;
        let process = process();
        let session = process.live_session(sid)?;
        let nodes = process.apps.get(session.app)?.handle.nodes_by_hosts(&[host]);
        let node = nodes.map_err(|error| fault(&error))?.first();
        let node = node.ok_or_else(|| Fault::new(Kind::NotFound, format!("there is no node '{host}'")))?;
        memory::string(session.dirs(node)?.root.as_os_str().as_bytes())
    })
}
