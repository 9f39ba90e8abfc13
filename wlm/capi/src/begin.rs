//! The calls that start a request; `tm_poll` reports its end.

use std::ffi::{c_char, c_int, c_void};

use gantry_wlm::pbs::tm::{Code, Command, NodeId, Spawn, TaskId};

use crate::call;
use crate::pointers::{Place, bytes, text, texts, texts_to_null};
use crate::session::{Open, Wanted, with};

#[unsafe(no_mangle)]
extern "C" fn tm_spawn(
    argc: c_int,
    argv: *mut *mut c_char,
    envp: *mut *mut c_char,
    node: c_int,
    tid: *mut u32,
    event: *mut c_int,
) -> c_int {
    call(|| {
        with(|open| {
            let argv = texts(argv, argc).ok_or(Code::NOT_FOUND)?;
            let command = Spawn::from_texts(argv, texts_to_null(envp)).on(NodeId(node));
            open.begin(&command, Wanted::Task(Place::new(tid)?), event)
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn tm_kill(tid: u32, sig: c_int, event: *mut c_int) -> c_int {
    call(|| {
        with(|open| {
            let (node, task) = whole(open, tid)?;
            open.begin(&Command::Signal { node, task, signal: sig }, Wanted::Nothing, event)
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn tm_obit(tid: u32, obitval: *mut c_int, event: *mut c_int) -> c_int {
    call(|| {
        with(|open| {
            let (node, task) = whole(open, tid)?;
            open.begin(&Command::Obit { node, task }, Wanted::Status(Place::new(obitval)?), event)
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn tm_taskinfo(
    node: c_int,
    list: *mut u32,
    lsize: c_int,
    ntasks: *mut c_int,
    event: *mut c_int,
) -> c_int {
    call(|| {
        with(|open| {
            if lsize == 0 {
                return Err(Code::BAD_ENVIRONMENT);
            }
            let wanted = Wanted::Tasks { list: Place::new(list)?, size: lsize, count: Place::new(ntasks)? };
            open.begin(&Command::Tasks { node: NodeId(node) }, wanted, event)
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn tm_rescinfo(node: c_int, resource: *mut c_char, len: c_int, event: *mut c_int) -> c_int {
    call(|| {
        with(|open| {
            if len == 0 {
                return Err(Code::BAD_ENVIRONMENT);
            }
            let wanted = Wanted::Text { text: Place::new(resource.cast())?, size: len };
            open.begin(&Command::Resources { node: NodeId(node) }, wanted, event)
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn tm_publish(name: *mut c_char, info: *mut c_void, nbytes: c_int, event: *mut c_int) -> c_int {
    call(|| {
        with(|open| {
            let name = text(name).ok_or(Code::BAD_ENVIRONMENT)?;
            let command = Command::Publish { name, info: bytes(info, nbytes)? };
            open.begin(&command, Wanted::Nothing, event)
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn tm_subscribe(
    tid: u32,
    name: *mut c_char,
    info: *mut c_void,
    len: c_int,
    amount: *mut c_int,
    event: *mut c_int,
) -> c_int {
    call(|| {
        with(|open| {
            let (node, task) = whole(open, tid)?;
            let name = text(name).ok_or(Code::BAD_ENVIRONMENT)?;
            let info = Place::new(info.cast()).ok();
            let wanted = Wanted::Info { info, size: len, length: Place::new(amount)? };
            open.begin(&Command::Subscribe { node, task, name }, wanted, event)
        })
    })
}

/// Completes a task with its node, which C does not pass: the task must be known.
fn whole(open: &Open, tid: u32) -> Result<(NodeId, TaskId), Code> {
    let task = TaskId(tid);
    open.session().node_of(task).map(|node| (node, task)).ok_or(Code::NOT_FOUND)
}
