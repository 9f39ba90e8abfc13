//! The directories of the daemon's session.

use std::ffi::c_char;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gantry_backend::SessionDirs;
use gantry_shared_capi::{enter, memory};

use crate::connection::backend;

fn give(name: &str, which: impl FnOnce(&SessionDirs) -> &Path) -> *mut c_char {
    enter(name, std::ptr::null_mut(), || memory::string(which(backend()?.dirs()).as_os_str().as_bytes()))
}

/// The session's root.
#[unsafe(no_mangle)]
pub extern "C" fn cti_be_getRootDir() -> *mut c_char {
    give("cti_be_getRootDir", |dirs| &dirs.root)
}

/// Where its programs are.
#[unsafe(no_mangle)]
pub extern "C" fn cti_be_getBinDir() -> *mut c_char {
    give("cti_be_getBinDir", |dirs| &dirs.bin)
}

/// Where its libraries are.
#[unsafe(no_mangle)]
pub extern "C" fn cti_be_getLibDir() -> *mut c_char {
    give("cti_be_getLibDir", |dirs| &dirs.lib)
}

/// The directory of its files: files have no separate directory.
#[unsafe(no_mangle)]
pub extern "C" fn cti_be_getFileDir() -> *mut c_char {
    give("cti_be_getFileDir", |dirs| &dirs.root)
}

/// Where the daemon may write.
#[unsafe(no_mangle)]
pub extern "C" fn cti_be_getTmpDir() -> *mut c_char {
    give("cti_be_getTmpDir", |dirs| &dirs.tmp)
}
