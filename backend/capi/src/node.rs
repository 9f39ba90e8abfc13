//! Which application, which workload manager, which node.

use std::ffi::{CStr, c_char, c_int};

use gantry_shared::cti::{self, CtiWlm};
use gantry_shared_capi::{Fault, enter, memory};
use gantry_types::error::Kind;

use crate::connection::{ask, backend};

const VERSION: &CStr = c"2.4.1";

/// The version of the interface.
#[unsafe(no_mangle)]
pub extern "C" fn cti_be_version() -> *const c_char {
    VERSION.as_ptr()
}

/// The workload manager of the application. None: this process is no tool daemon.
#[unsafe(no_mangle)]
pub extern "C" fn cti_be_current_wlm() -> c_int {
    enter("cti_be_current_wlm", cti::NONE, || {
        let backend = backend()?;
        let known = CtiWlm::by_name(backend.wlm());
        known.map(|wlm| wlm.number).ok_or_else(|| {
            Fault::new(Kind::Unsupported, format!("{} has no number in this interface", backend.wlm()))
        })
    })
}

/// The name of a workload manager.
#[unsafe(no_mangle)]
pub extern "C" fn cti_be_wlm_type_toString(wlm_type: c_int) -> *const c_char {
    wlm_word(wlm_type).as_ptr()
}

/// The names are repeated here as static C strings; a test compares them.
fn wlm_word(number: c_int) -> &'static CStr {
    match number {
        0 => c"No WLM detected",
        1 => c"mock",
        2 => c"slurm",
        3 => c"generic",
        4 => c"alps",
        5 => c"pals",
        6 => c"flux",
        7 => c"localhost",
        8 => c"pbs",
        _ => c"Invalid WLM.",
    }
}

/// The id of the application.
#[unsafe(no_mangle)]
pub extern "C" fn cti_be_getAppId() -> *mut c_char {
    enter("cti_be_getAppId", std::ptr::null_mut(), || memory::string(backend()?.app().to_string().as_bytes()))
}

/// This node's name.
#[unsafe(no_mangle)]
pub extern "C" fn cti_be_getNodeHostname() -> *mut c_char {
    enter("cti_be_getNodeHostname", std::ptr::null_mut(), || memory::string(backend()?.host().as_bytes()))
}

/// The lowest rank here.
#[unsafe(no_mangle)]
pub extern "C" fn cti_be_getNodeFirstPE() -> c_int {
    enter("cti_be_getNodeFirstPE", -1, || {
        let first = ask(|backend| backend.first_rank())?;
        let first = first.ok_or_else(|| Fault::new(Kind::NotFound, "this node has no ranks"))?;
        to_int(first.0)
    })
}

/// How many ranks are here.
#[unsafe(no_mangle)]
pub extern "C" fn cti_be_getNodePEs() -> c_int {
    enter("cti_be_getNodePEs", -1, || to_int(ask(|backend| backend.local_rank_count())?))
}

/// A count as C has it.
pub(crate) fn to_int(count: impl TryInto<c_int>) -> Result<c_int, Fault> {
    count.try_into().map_err(|_| Fault::new(Kind::Unsupported, "a number is too large for an int"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_version_are_those_of_both_sides() {
        assert_eq!(VERSION.to_str(), Ok(cti::LIBRARY_VERSION));
        for wlm in cti::CTI_WLMS {
            assert_eq!(wlm_word(wlm.number).to_str(), Ok(wlm.word));
        }
        assert_eq!(wlm_word(99), c"Invalid WLM.");
    }
}
