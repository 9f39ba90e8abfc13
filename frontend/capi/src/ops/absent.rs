//! Tables of workload managers that gantry lacks. Every function in them returns an error that says so.

use std::ffi::{c_char, c_int, c_void};

use gantry_shared_capi::enter;

use super::not_built_in;

type Text = *const c_char;
type Texts = *const *const c_char;

fn no<T>(function: &str, wlm: &str, otherwise: T) -> T {
    enter(function, otherwise, || Err(not_built_in(wlm)))
}

/// `cti_alps_ops_t`.
#[repr(C)]
pub(super) struct Alps {
    register_apid: extern "C" fn(u64) -> i64,
    get_apid: extern "C" fn(libc::pid_t) -> u64,
    get_aprun_info: extern "C" fn(i64) -> *mut c_void,
    get_overlap_ordinal: extern "C" fn(i64) -> c_int,
}

pub(super) static ALPS: Alps = {
    extern "C" fn register_apid(_apid: u64) -> i64 {
        no("registerApid", "ALPS", 0)
    }
    extern "C" fn get_apid(_aprun: libc::pid_t) -> u64 {
        no("getApid", "ALPS", 0)
    }
    extern "C" fn get_aprun_info(_app: i64) -> *mut c_void {
        no("getAprunInfo", "ALPS", std::ptr::null_mut())
    }
    extern "C" fn get_overlap_ordinal(_app: i64) -> c_int {
        no("getAlpsOverlapOrdinal", "ALPS", -1)
    }
    Alps { register_apid, get_apid, get_aprun_info, get_overlap_ordinal }
};

/// `cti_pals_ops_t`.
#[repr(C)]
pub(super) struct Pals {
    get_apid: extern "C" fn(libc::pid_t) -> *mut c_char,
    register_apid: extern "C" fn(Text) -> i64,
    submit_job_script: extern "C" fn(Text, Texts, Texts) -> *mut c_char,
    launch_app_barrier_non_mpi: extern "C" fn(Texts, c_int, c_int, Text, Text, Texts) -> i64,
    register_apid_wait: extern "C" fn(Text, u32) -> i64,
}

pub(super) static PALS: Pals = {
    extern "C" fn get_apid(_launcher: libc::pid_t) -> *mut c_char {
        no("getApid", "PALS", std::ptr::null_mut())
    }
    extern "C" fn register_apid(_job: Text) -> i64 {
        no("registerApid", "PALS", 0)
    }
    extern "C" fn submit_job_script(_script: Text, _args: Texts, _env: Texts) -> *mut c_char {
        no("submitJobScript", "PALS", std::ptr::null_mut())
    }
    extern "C" fn launch_app_barrier_non_mpi(
        _argv: Texts,
        _stdout: c_int,
        _stderr: c_int,
        _input: Text,
        _cwd: Text,
        _env: Texts,
    ) -> i64 {
        no("launchAppBarrierNonMpi", "PALS", 0)
    }
    extern "C" fn register_apid_wait(_job: Text, _timeout_seconds: u32) -> i64 {
        no("registerApidWait", "PALS", 0)
    }
    Pals { get_apid, register_apid, submit_job_script, launch_app_barrier_non_mpi, register_apid_wait }
};
