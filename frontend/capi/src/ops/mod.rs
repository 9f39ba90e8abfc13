//! Functions of single workload managers: the tables of `cti_open_ops`, one module each, and their names.

mod flux;
mod localhost;
mod pbs;
mod register;
mod slurm;
mod ssh;

use std::ffi::{CStr, c_char, c_int, c_void};

use gantry_shared::cti::{self};
use gantry_shared_capi::{Fault, enter};
use gantry_types::error::Kind;

use self::register::{register, register_when_there};
use crate::library::current_wlm;

/// Sets `*ops` to the table of the workload manager in use, or to null.
///
/// # Safety
/// `ops` is null or points to a pointer that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cti_open_ops(ops: *mut *mut c_void) -> c_int {
    enter("cti_open_ops", cti::NONE, || {
        if ops.is_null() {
            return Err(Fault::invalid("the place for the table is NULL"));
        }
        // SAFETY: guaranteed by the caller.
        unsafe { ops.write(std::ptr::null_mut()) };
        let number = current_wlm()?;
        let table = table_of(number)?;
        // SAFETY: guaranteed by the caller.
        unsafe { ops.write(table.cast_mut()) };
        Ok(number)
    })
}

/// A table, which C only reads.
fn table_of(number: c_int) -> Result<*const c_void, Fault> {
    Ok(match number {
        2 => (&raw const slurm::OPS).cast(),
        3 => (&raw const ssh::OPS).cast(),
        6 => (&raw const flux::OPS).cast(),
        7 => (&raw const localhost::OPS).cast(),
        8 => (&raw const pbs::OPS).cast(),
        _ => return Err(Fault::new(Kind::Unsupported, format!("workload manager {number} has no table"))),
    })
}

/// The name of a workload manager.
#[unsafe(no_mangle)]
pub extern "C" fn cti_wlm_type_toString(wlm_type: c_int) -> *const c_char {
    wlm_words(wlm_type).as_ptr()
}

fn wlm_words(number: c_int) -> &'static CStr {
    match number {
        0 => c"No WLM detected",
        1 => c"Test WLM frontend",
        2 => c"slurm",
        3 => c"generic",
        4 => c"ALPS is not built into gantry.",
        5 => c"PALS is not built into gantry.",
        6 => c"flux",
        7 => c"localhost",
        8 => c"pbs",
        _ => c"Invalid WLM.",
    }
}

#[cfg(test)]
mod tests {
    use gantry_wlm::WLMS;

    use super::*;

    #[test]
    fn every_workload_manager_of_ours_has_its_word_and_a_table() {
        // The cluster that tests play is for no user's tool.
        for wlm in WLMS.iter().filter(|wlm| wlm.name() != "fake") {
            let known = cti::CtiWlm::by_name(wlm.name()).expect("a number");
            assert_eq!(wlm_words(known.number).to_str(), Ok(known.word));
            assert!(table_of(known.number).is_ok(), "{}", wlm.name());
        }
        assert!(table_of(0).is_err() && table_of(99).is_err());
    }
}
