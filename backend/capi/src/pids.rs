//! The processes of this node.

use std::ffi::c_int;

use gantry_backend::RankState;
use gantry_shared_capi::enter;
use gantry_shared_capi::memory::{Given, allocate, array, release};

use crate::connection::ask;
use crate::node::to_int;

/// `cti_rankPidPair_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RankPidPair {
    pid: libc::pid_t,
    rank: c_int,
}

/// `cti_pidList_t`.
#[repr(C)]
#[derive(Debug)]
pub struct PidList {
    count: c_int,
    pids: *mut RankPidPair,
}

static GIVEN: Given<PidList> = Given::new();

/// The processes that live.
#[unsafe(no_mangle)]
pub extern "C" fn cti_be_findAppPids() -> *mut PidList {
    enter("cti_be_findAppPids", std::ptr::null_mut(), || {
        let ranks = ask(|backend| backend.ranks())?;
        let mut pairs = Vec::with_capacity(ranks.len());
        for rank in ranks.iter().filter(|rank| !matches!(rank.state, RankState::Exited(_) | RankState::Lost))
        {
            pairs.push(RankPidPair { pid: rank.pid.get(), rank: to_int(rank.rank.0)? });
        }
        let count = to_int(pairs.len())?;
        let list = allocate::<PidList>(1)?;
        let pids = match array(&pairs, 0) {
            Ok(pids) => pids,
            Err(fault) => {
                // SAFETY: allocated above, and this is the only pointer to it.
                unsafe { release(list) };
                return Err(fault);
            }
        };
        // SAFETY: fresh memory of this size.
        unsafe { list.write(PidList { count, pids }) };
        Ok(GIVEN.note(list))
    })
}

/// Frees a list.
///
/// # Safety
/// It is null, or a list of [`cti_be_findAppPids`] of which no part was freed otherwise. A list that this function has
/// freed before is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cti_be_destroyPidList(pid_list: *mut PidList) {
    if pid_list.is_null() {
        return;
    }
    enter("cti_be_destroyPidList", (), || {
        GIVEN.take_back(pid_list)?;
        // SAFETY: it was on the list of allocations, so it is valid and complete.
        let pids = unsafe { (*pid_list).pids };
        // SAFETY: made with the list, and freed with it.
        unsafe { release(pids) };
        // SAFETY: as above.
        unsafe { release(pid_list) };
        Ok(())
    });
}
