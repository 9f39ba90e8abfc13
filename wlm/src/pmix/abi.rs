//! What PMIx's library has in common for tools and servers: how it is loaded, its structures, and its constants.
//!
//! Source: `pmix_common.h` of PMIx 4.2, 5 and 6. These structures are the same in all of them, and a test compares
//! them with the header where it is installed. Keys and the numbers of types are part of the standard.
#![expect(unsafe_code, reason = "a library in C that is loaded at run time")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A call has succeeded.
pub const SUCCESS: c_int = 0;

/// Numbers of types. A flag is 0 or 1.
pub const FLAG: u16 = 1;
/// A text.
pub const STRING: u16 = 3;
/// A process id.
pub const PID: u16 = 5;
/// A number of 16 bits.
pub const NUMBER_16: u16 = 13;
/// A number of 32 bits.
pub const NUMBER_32: u16 = 14;
/// An [`Info`].
pub const INFO: u16 = 24;
/// The description of a process.
pub const PROC_INFO: u16 = 38;
/// An array.
pub const DATA_ARRAY: u16 = 39;
/// A rank.
pub const RANK: u16 = 40;

/// All ranks of a job.
pub const ALL_RANKS: u32 = u32::MAX - 1;

/// Bytes of a job's name, with the zero at its end.
pub const NAME_BYTES: usize = 256;

/// Bytes of a key, with the zeroes at its end.
pub const KEY_BYTES: usize = 512;

/// A process's name: its job and its number there.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Proc {
    /// The job.
    pub namespace: [c_char; NAME_BYTES],
    /// The rank.
    pub rank: u32,
}

/// What a value is, by its type.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Data {
    /// Of a [`FLAG`].
    pub flag: bool,
    /// Of a [`STRING`].
    pub text: *const c_char,
    /// Of a [`PID`].
    pub pid: libc::pid_t,
    /// Of a [`NUMBER_16`].
    pub number_16: u16,
    /// Of a [`NUMBER_32`], or a [`RANK`].
    pub number_32: u32,
    /// Of a [`DATA_ARRAY`].
    pub array: *const DataArray,
    /// As large as the largest one.
    pub words: [u64; 3],
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Data").finish_non_exhaustive()
    }
}

/// A value with its type.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Value {
    /// The number of the type.
    pub kind: u16,
    /// The value.
    pub data: Data,
}

/// A value with its key.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Info {
    /// The key.
    pub key: [c_char; KEY_BYTES],
    /// Directives about it.
    pub flags: u32,
    /// The value.
    pub value: Value,
}

/// An array of values of one type.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DataArray {
    /// The number of the type.
    pub kind: u16,
    /// How many values.
    pub count: usize,
    /// The first one.
    pub items: *const c_void,
}

impl Proc {
    /// The rank of that number in the job of that name. A longer name is cut.
    #[must_use]
    pub fn new(namespace: &str, rank: u32) -> Self {
        let mut written = [0; NAME_BYTES];
        copy_text(namespace.as_bytes(), &mut written);
        Self { namespace: written, rank }
    }

    /// Whether it is in the job of that name.
    #[must_use]
    pub fn is_in(&self, namespace: &str) -> bool {
        let name = self.namespace.iter().take_while(|byte| **byte != 0).map(|byte| byte.cast_unsigned());
        name.eq(namespace.bytes())
    }
}

impl Info {
    /// A value of that key.
    #[must_use]
    pub fn new(key: &CStr, kind: u16, data: Data) -> Self {
        let mut written = [0; KEY_BYTES];
        copy_text(key.to_bytes(), &mut written);
        Self { key: written, flags: 0, value: Value { kind, data } }
    }
}

/// Copies a text, and leaves at least one zero behind it.
fn copy_text(from: &[u8], to: &mut [c_char]) {
    let room = to.len().saturating_sub(1);
    for (to, from) in to.iter_mut().zip(from.iter().take(room)) {
        *to = from.cast_signed();
    }
}

/// A loaded library. It is never unloaded.
#[derive(Debug)]
pub struct Library {
    handle: *mut c_void,
    name: String,
}

impl Library {
    /// Loads the library of that path, or of that name from where the system looks for libraries. Its constructors run,
    /// and later it starts threads: only a process that does nothing else may load it.
    ///
    /// # Errors
    /// The loader's words.
    pub fn open(path: &Path) -> Result<Self, String> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: `name` is a C string. The library's constructors run; this process does nothing else.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            // SAFETY: no other thread has called anything of the loader's since.
            let why = unsafe { libc::dlerror() };
            return Err(format!("load {}: {}", path.display(), text_of(why)));
        }
        Ok(Self { handle, name: path.display().to_string() })
    }

    /// The address of a function, never null.
    ///
    /// # Errors
    /// The library does not have it.
    pub fn find(&self, name: &CStr) -> Result<*mut c_void, String> {
        // SAFETY: `handle` is one of dlopen's that was never closed, `name` is a C string.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        if found.is_null() {
            return Err(format!("{} has no {}", self.name, name.to_string_lossy()));
        }
        Ok(found)
    }
}

/// Copies a text of the library. A null pointer yields an empty text.
pub(super) fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller has it from the library, which ends every text with a zero and frees none of these.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_and_compared_whole() {
        let long = "x".repeat(300);
        let proc = Proc::new(&long, 3);
        assert!(proc.is_in(&long[..NAME_BYTES - 1]) && !proc.is_in(&long));
        assert!(Proc::new("app", 0).is_in("app") && !Proc::new("app", 0).is_in("ap"));
    }
}
