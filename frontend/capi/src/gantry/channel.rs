//! Section "the channel to daemons": operations.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use gantry_frontend::filter::{Filter, reduce_at_once};
use gantry_frontend::{Channel, Policy, Session};
use gantry_shared_capi::data::{self, Member, Merge, Part};
use gantry_shared_capi::memory::{Given, allocate, array, release};
use gantry_shared_capi::{Fault, deadline, enter, text};
use gantry_types::error::{Failure, Kind};

use super::gate::Gate;
use super::outcome::{self, Outcome};
use crate::process::process;

/// `GANTRY_ALL`.
const ALL: i64 = -1;

/// `gantry_memberList_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MemberList {
    num_members: c_int,
    members: *mut Member,
}

static MEMBERS: Given<MemberList> = Given::new();

fn channel(sid: i64) -> Result<Channel, Fault> {
    process().live_session(sid)?.with(Session::channel)
}

fn parse_policy(policy: i64) -> Result<Policy, Fault> {
    match policy {
        ALL => Ok(Policy::All),
        0 => Ok(Policy::BestEffort),
        quorum => u64::try_from(quorum).map(Policy::Quorum).map_err(|_| {
            Fault::invalid(format!(
                "{quorum} is not a policy: use GANTRY_ALL, GANTRY_BEST_EFFORT or a number of daemons"
            ))
        }),
    }
}

/// The daemons that are members now.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_getMembers(sid: i64) -> *mut MemberList {
    enter("gantry_getMembers", null_mut(), || {
        let members: Vec<Member> = channel(sid)?.members().into_iter().map(Into::into).collect();
        let list = allocate::<MemberList>(1)?;
        let made = data::to_int(members.len()).and_then(|count| Ok((count, array(&members, 0)?)));
        match made {
            Ok((num_members, members)) => {
                // SAFETY: fresh memory of this size.
                unsafe { list.write(MemberList { num_members, members }) };
                Ok(MEMBERS.note(list))
            }
            Err(fault) => {
                // SAFETY: allocated above, and this is the only pointer to it.
                unsafe { release(list) };
                Err(fault)
            }
        }
    })
}

/// Frees a list of members.
///
/// # Safety
/// It is null, or came from this library and no part of it was freed otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_destroyMembers(list: *mut MemberList) {
    if list.is_null() {
        return;
    }
    enter("gantry_destroyMembers", (), || {
        MEMBERS.take_back(list)?;
        // SAFETY: it was on the list of allocations, so it is valid and complete.
        let members = unsafe { (*list).members };
        // SAFETY: made with the list, and freed with it.
        unsafe { release(members) };
        // SAFETY: as above.
        unsafe { release(list) };
        Ok(())
    });
}

/// Sends a message to all members.
///
/// # Safety
/// `bytes` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_broadcast(
    sid: i64,
    tag: u32,
    bytes: *const c_void,
    size: usize,
) -> *mut Outcome {
    enter("gantry_broadcast", null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { data::bytes(bytes.cast(), size) }?.to_vec();
        let (channel, deadline) = (channel(sid)?, deadline::of_calls());
        let (members, missing) = process().try_wait(async move {
            let members = channel.members().len();
            Ok((members, channel.broadcast(tag, &bytes, deadline).await?))
        })?;
        outcome::give([], &missing, reached(members, missing.len()))
    })
}

fn reached(members: usize, missing: usize) -> u64 {
    u64::try_from(members.saturating_sub(missing)).unwrap_or(u64::MAX)
}

/// Sends each its own message.
///
/// # Safety
/// `parts` points to `count` of them, each with bytes of its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_scatter(
    sid: i64,
    tag: u32,
    parts: *const Part,
    count: c_int,
) -> *mut Outcome {
    enter("gantry_scatter", null_mut(), || {
        let mut messages = Vec::new();
        // SAFETY: guaranteed by the caller.
        for part in unsafe { data::values(parts, data::count(count)?) }? {
            // SAFETY: guaranteed by the caller.
            messages.push((part.member.into(), unsafe { part.bytes() }?.to_vec()));
        }
        let (channel, deadline, given) = (channel(sid)?, deadline::of_calls(), messages.len());
        let missing = process().try_wait(async move { channel.scatter(tag, messages, deadline).await })?;
        outcome::give([], &missing, reached(given, missing.len()))
    })
}

/// Sends a message to one member.
///
/// # Safety
/// `bytes` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_send(
    sid: i64,
    member: Member,
    tag: u32,
    bytes: *const c_void,
    size: usize,
) -> c_int {
    enter("gantry_send", 1, || {
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { data::bytes(bytes.cast(), size) }?.to_vec();
        let (channel, deadline) = (channel(sid)?, deadline::of_calls());
        process().try_wait(async move { channel.send(member.into(), tag, &bytes, deadline).await })?;
        Ok(0)
    })
}

/// Takes a contribution of each member.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_gather(sid: i64, tag: u32, policy: i64) -> *mut Outcome {
    enter("gantry_gather", null_mut(), || {
        let policy = parse_policy(policy)?;
        let (channel, deadline) = (channel(sid)?, deadline::of_calls());
        let gathered = process().try_wait(async move { channel.gather(tag, policy, deadline).await })?;
        let contributed = u64::try_from(gathered.parts.len()).unwrap_or(u64::MAX);
        let parts = gathered.parts.iter().map(|(member, bytes)| (*member, bytes.as_slice()));
        outcome::give(parts, &gathered.missing, contributed)
    })
}

/// Reduces the members' contributions with a filter.
///
/// # Safety
/// `filter` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_reduce(
    sid: i64,
    tag: u32,
    filter: *const c_char,
    policy: i64,
) -> *mut Outcome {
    enter("gantry_reduce", null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let filter = Filter::by_name(unsafe { text::required_name(filter, "the filter's name") }?);
        let policy = parse_policy(policy)?;
        let (channel, deadline) = (channel(sid)?, deadline::of_calls());
        let reduced =
            process().try_wait(async move { channel.reduce(tag, filter, policy, deadline).await })?;
        outcome::give_result(&reduced.bytes, &reduced.missing, reduced.contributed)
    })
}

/// A filter in C: its function, its context, and until when it may be called.
#[derive(Clone)]
struct Own {
    merge: Merge,
    context: *mut c_void,
    gate: Arc<Gate>,
}

// SAFETY: the caller of the registration promises that the filter may be called from any thread.
unsafe impl Send for Own {}
// SAFETY: as above, and from several threads at once.
unsafe impl Sync for Own {}

impl Own {
    fn merge(&self, parts: &[Vec<u8>]) -> Result<Vec<u8>, Failure> {
        let merged = self.gate.pass(|| {
            // SAFETY: promised at its registration, until its session ends.
            unsafe { data::merge(self.merge, self.context, parts) }
        });
        let merged = merged.ok_or_else(|| Failure::new(Kind::Gone, "the filter's session has ended"))?;
        merged.ok_or_else(|| Failure::new(Kind::Unsupported, "merge contributions by the tool's own filter"))
    }
}

/// Registers a filter of the tool's own.
///
/// # Safety
/// `name` is null or a string; `merge` fulfils the header's contract and belongs to `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_registerFilter(
    sid: i64,
    name: *const c_char,
    merge: Option<Merge>,
    context: *mut c_void,
) -> c_int {
    enter("gantry_registerFilter", 1, || {
        // SAFETY: guaranteed by the caller.
        let name = unsafe { text::required_name(name, "the filter's name") }?;
        let merge = merge.ok_or_else(|| Fault::invalid("the filter's function is NULL"))?;
        if !matches!(Filter::by_name(name), Filter::Custom(_)) {
            return Err(Fault::invalid(format!("'{name}' is the name of a built-in filter")));
        }
        let own = Own { merge, context, gate: Arc::clone(&process().live_session(sid)?.filters) };
        let start = move || {
            let own = own.clone();
            reduce_at_once(move |parts| own.merge(parts))
        };
        channel(sid)?.register_filter(name, Box::new(start));
        Ok(0)
    })
}
