//! The library itself: version, errors, workload manager, this machine's address.

use std::ffi::{CStr, c_char, c_int};
use std::net::{Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;

use gantry_link::addresses::find_addresses;
use gantry_shared::cti::{self, CtiWlm};
use gantry_shared_capi::{Fault, enter, fault, memory};
use gantry_types::error::Kind;
use gantry_wlm::Host;
use gantry_wlm::host::Machine;

use crate::process::{self, process};

const VERSION: &CStr = c"2.4.1";

/// Set by users if nodes reach this machine at another address.
const CTI_HOST_ADDRESS: &str = "CTI_HOST_ADDRESS";

/// The version of the interface.
#[unsafe(no_mangle)]
pub extern "C" fn cti_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Why the last call of this thread failed that did.
#[unsafe(no_mangle)]
pub extern "C" fn cti_error_str() -> *const c_char {
    fault::last_text()
}

/// Copies it.
///
/// # Safety
/// `buf` points to `buf_len` bytes that may be written, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cti_error_str_r(buf: *mut c_char, buf_len: usize) -> c_int {
    // SAFETY: guaranteed by the caller.
    if unsafe { fault::copy_last(buf, buf_len) } { 0 } else { libc::ERANGE }
}

/// The workload manager in use.
#[unsafe(no_mangle)]
pub extern "C" fn cti_current_wlm() -> c_int {
    enter("cti_current_wlm", cti::NONE, current_wlm)
}

/// The number of the workload manager in use.
pub(crate) fn current_wlm() -> Result<c_int, Fault> {
    let choice = process().frontend().choice().map_err(|error| process::fault(&error))?;
    let name = choice.wlm;
    let known = CtiWlm::by_name(name);
    known
        .map(|wlm| wlm.number)
        .ok_or_else(|| Fault::new(Kind::Unsupported, format!("{name} has no number in this interface")))
}

/// This machine's address for others, or its name if it is in no network.
#[unsafe(no_mangle)]
pub extern "C" fn cti_getHostname() -> *mut c_char {
    enter("cti_getHostname", std::ptr::null_mut(), || {
        if let Some(told) = Machine.env(CTI_HOST_ADDRESS) {
            return memory::string(told.as_bytes());
        }
        // As for agents. Nodes may not know this machine's name, or know it as a loopback address.
        let all = find_addresses((Ipv6Addr::UNSPECIFIED, 0).into()).unwrap_or_default();
        memory::string(choose_address(&all).unwrap_or_else(|| Machine.hostname()).as_bytes())
    })
}

/// The first of this machine's addresses that other machines can dial.
fn choose_address(all: &[SocketAddr]) -> Option<String> {
    all.iter().map(SocketAddr::ip).find(|ip| !ip.is_loopback()).map(|ip| ip.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_address_is_for_no_other_machine() {
        let check = |all: &[&str], expected: Option<&str>| {
            let all: Vec<SocketAddr> = all.iter().map(|address| address.parse().unwrap()).collect();
            assert_eq!(choose_address(&all).as_deref(), expected);
        };
        check(&["10.1.2.3:0", "[2001:db8::1]:0", "127.0.0.1:0"], Some("10.1.2.3"));
        check(&["[2001:db8::1]:0", "127.0.0.1:0"], Some("2001:db8::1"));
        check(&["127.0.0.1:0"], None);
    }

    #[test]
    fn the_version_is_that_of_both_sides() {
        assert_eq!(VERSION.to_str(), Ok(cti::LIBRARY_VERSION));
    }
}
