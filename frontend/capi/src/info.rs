//! Information about an application: ranks, nodes, programs.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int};

use gantry_shared_capi::memory::{self, Given, allocate, array, release, release_strings};
use gantry_shared_capi::{Fault, enter};
use gantry_types::error::Kind;
use gantry_types::id::NodeId;

use crate::process::process;

/// `cti_host_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Host {
    hostname: *mut c_char,
    ranks: c_int,
}

/// `cti_hostsList_t`.
#[repr(C)]
#[derive(Debug)]
pub struct HostsList {
    count: c_int,
    hosts: *mut Host,
}

/// `cti_binaryList_t`.
#[repr(C)]
#[derive(Debug)]
pub struct BinaryList {
    binaries: *mut *mut c_char,
    rank_map: *mut c_int,
}

static HOSTS: Given<HostsList> = Given::new();
static BINARIES: Given<BinaryList> = Given::new();

pub(crate) fn to_int(count: impl TryInto<c_int>) -> Result<c_int, Fault> {
    count.try_into().map_err(|_| Fault::new(Kind::Unsupported, "a number is too large for an int"))
}

/// How many ranks.
#[unsafe(no_mangle)]
pub extern "C" fn cti_getNumAppPEs(app_id: i64) -> c_int {
    enter("cti_getNumAppPEs", 0, || to_int(process().apps.get(app_id)?.handle.placement().rank_count()))
}

/// How many nodes.
#[unsafe(no_mangle)]
pub extern "C" fn cti_getNumAppNodes(app_id: i64) -> c_int {
    enter("cti_getNumAppNodes", 0, || to_int(process().apps.get(app_id)?.handle.node_count()))
}

/// The names of the nodes.
#[unsafe(no_mangle)]
pub extern "C" fn cti_getAppHostsList(app_id: i64) -> *mut *mut c_char {
    enter("cti_getAppHostsList", std::ptr::null_mut(), || {
        let placement = process().apps.get(app_id)?.handle.placement();
        memory::strings(&placement.hosts().collect::<Vec<_>>())
    })
}

/// The nodes and how many ranks each has.
#[unsafe(no_mangle)]
pub extern "C" fn cti_getAppHostsPlacement(app_id: i64) -> *mut HostsList {
    enter("cti_getAppHostsPlacement", std::ptr::null_mut(), || {
        let placement = process().apps.get(app_id)?.handle.placement();
        let mut made = Hosts(Vec::new());
        for (node, name) in (0..).zip(placement.hosts()) {
            let ranks = to_int(placement.ranks_on(NodeId(node)).len())?;
            made.0.push(Host { hostname: memory::string(name.as_bytes())?, ranks });
        }
        let list = allocate::<HostsList>(1)?;
        let hosts = array(&made.0, 0);
        let filled = hosts.and_then(|hosts| Ok(HostsList { count: to_int(made.0.len())?, hosts }));
        match filled {
            Ok(filled) => {
                // SAFETY: fresh memory of this size.
                unsafe { list.write(filled) };
                made.0.clear();
                Ok(HOSTS.note(list))
            }
            Err(fault) => {
                // SAFETY: allocated above, and this is the only pointer to it.
                unsafe { release(list) };
                Err(fault)
            }
        }
    })
}

/// Names that are freed on drop, unless C gets them.
struct Hosts(Vec<Host>);

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in &self.0 {
            // SAFETY: allocated here, and this is the only pointer to it.
            unsafe { release(host.hostname) };
        }
    }
}

/// Frees a list of nodes.
///
/// # Safety
/// It is null, or a list of [`cti_getAppHostsPlacement`] of which no part was freed otherwise. A list that this
/// function has freed before is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cti_destroyHostsList(placement_list: *mut HostsList) {
    if placement_list.is_null() {
        return;
    }
    enter("cti_destroyHostsList", (), || {
        HOSTS.take_back(placement_list)?;
        // SAFETY: it was on the list of allocations, so it is valid and complete.
        let HostsList { count, hosts } = unsafe { placement_list.read() };
        for at in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the list has so many.
            let host = unsafe { hosts.add(at) };
            // SAFETY: as above.
            let Host { hostname, .. } = unsafe { host.read() };
            // SAFETY: made with the list, and freed with it.
            unsafe { release(hostname) };
        }
        // SAFETY: as above.
        unsafe { release(hosts) };
        // SAFETY: as above.
        unsafe { release(placement_list) };
        Ok(())
    });
}

/// Which rank runs which program.
#[unsafe(no_mangle)]
pub extern "C" fn cti_getAppBinaryList(app_id: i64) -> *mut BinaryList {
    enter("cti_getAppBinaryList", std::ptr::null_mut(), || {
        let info = process().apps.get(app_id)?.handle.info();
        let programs: BTreeSet<&str> = info.ranks.iter().map(|rank| rank.exe.as_str()).collect();
        let programs: Vec<&str> = programs.into_iter().collect();
        let mut map = Vec::with_capacity(info.ranks.len() + 1);
        for rank in &info.ranks {
            let at = programs.binary_search(&rank.exe.as_str());
            map.push(to_int(at.map_err(|_| Fault::invalid("a rank without a program"))?)?);
        }
        map.push(-1);
        let list = allocate::<BinaryList>(1)?;
        let binaries = memory::strings(&programs);
        match binaries.and_then(|binaries| Ok(BinaryList { binaries, rank_map: array(&map, 0)? })) {
            Ok(filled) => {
                // SAFETY: fresh memory of this size.
                unsafe { list.write(filled) };
                Ok(BINARIES.note(list))
            }
            Err(fault) => {
                // SAFETY: allocated above, and this is the only pointer to it.
                unsafe { release(list) };
                Err(fault)
            }
        }
    })
}

/// Frees a list of programs.
///
/// # Safety
/// It is null, or a list of [`cti_getAppBinaryList`] of which no part was freed otherwise. A list that this function
/// has freed before is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cti_destroyBinaryList(binary_list: *mut BinaryList) {
    if binary_list.is_null() {
        return;
    }
    enter("cti_destroyBinaryList", (), || {
        BINARIES.take_back(binary_list)?;
        // SAFETY: it was on the list of allocations, so it is valid and complete.
        let BinaryList { binaries, rank_map } = unsafe { binary_list.read() };
        // SAFETY: made with the list, and freed with it.
        unsafe { release_strings(binaries) };
        // SAFETY: as above.
        unsafe { release(rank_map) };
        // SAFETY: as above.
        unsafe { release(binary_list) };
        Ok(())
    });
}
