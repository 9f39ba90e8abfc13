//! Symbols of programs.

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gantry_frontend::staging::symbols;
use gantry_shared_capi::{Fault, enter, text};

use crate::process::fault;

const YES: c_int = 0;
const NO: c_int = 1;
const ERROR: c_int = 2;

/// Whether a program defines symbols.
///
/// # Safety
/// `binary_path` is null or a string, `list` null or a list of strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cti_containsSymbols(
    binary_path: *const c_char,
    list: *const *const c_char,
    query: c_int,
) -> c_int {
    enter("cti_containsSymbols", ERROR, || {
        // SAFETY: guaranteed by the caller.
        let program = Path::new(unsafe { text::required(binary_path, "the program's path") }?);
        if list.is_null() {
            return Err(Fault::invalid("the list of symbols is NULL"));
        }
        // SAFETY: guaranteed by the caller.
        let names = unsafe { text::list(list) }?;
        let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        let found = match query {
            0 => symbols::defines_all(program, &names),
            1 => symbols::defines_any(program, &names),
            _ => return Err(Fault::invalid(format!("there is no query {query}"))),
        };
        found.map(|yes| if yes { YES } else { NO }).map_err(|error| fault(&error))
    })
}
