//! The calls that stand in the interface and not in PBS.

use std::ffi::{c_char, c_int};

use gantry_wlm::pbs::tm::Code;

use crate::call;
use crate::session::with;

#[repr(C)]
#[derive(Debug)]
struct WhatToDo {
    todo: c_int,
    what: u32,
    place: c_int,
}

#[unsafe(no_mangle)]
extern "C" fn tm_notify(_tm_signal: c_int) -> c_int {
    missing()
}

#[unsafe(no_mangle)]
extern "C" fn tm_alloc(_resources: *mut c_char, _event: *mut c_int) -> c_int {
    missing()
}

#[unsafe(no_mangle)]
extern "C" fn tm_dealloc(_node: c_int, _event: *mut c_int) -> c_int {
    missing()
}

#[unsafe(no_mangle)]
extern "C" fn tm_create_event(_event: *mut c_int) -> c_int {
    missing()
}

#[unsafe(no_mangle)]
extern "C" fn tm_destroy_event(_event: *mut c_int) -> c_int {
    missing()
}

#[unsafe(no_mangle)]
extern "C" fn tm_register(_what: *mut WhatToDo, _event: *mut c_int) -> c_int {
    missing()
}

fn missing() -> c_int {
    call(|| with(|_| Err(Code::NOT_IMPLEMENTED)))
}
