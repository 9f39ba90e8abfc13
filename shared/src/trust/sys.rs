//! System calls for checking paths.
#![expect(unsafe_code, reason = "system calls")]

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The effective user and group of this process.
pub(super) fn effective_ids() -> (u32, u32) {
    // SAFETY: geteuid has no preconditions and cannot fail.
    let uid = unsafe { libc::geteuid() };
    // SAFETY: getegid has no preconditions and cannot fail.
    (uid, unsafe { libc::getegid() })
}

/// Whether a file has a POSIX access list beside its mode. An error counts as none: such file systems have none.
pub(super) fn has_access_list(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: both strings end with NUL and live through the call; with a size of 0 nothing is written.
    let size = unsafe {
        libc::lgetxattr(path.as_ptr(), c"system.posix_acl_access".as_ptr(), std::ptr::null_mut(), 0)
    };
    size > 0
}
