//! Section "where am I".

use std::ffi::c_int;

use gantry_shared_capi::enter;

use crate::connection::backend;
use crate::node::to_int;

/// This node's number.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_be_getNode() -> c_int {
    enter("gantry_be_getNode", -1, || to_int(backend()?.node().0))
}

/// The number of nodes.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_be_getNumNodes() -> c_int {
    enter("gantry_be_getNumNodes", -1, || to_int(backend()?.node_count()))
}

/// The number of ranks.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_be_getNumPEs() -> c_int {
    enter("gantry_be_getNumPEs", -1, || to_int(backend()?.rank_count()))
}
