//! The one session of this process, and the calls that begin, end and poll it.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use gantry_wlm::pbs::tm::blocking::{Polled, Session, attach};
use gantry_wlm::pbs::tm::environment::NODE_FILE;
use gantry_wlm::pbs::tm::reply::Answer;
use gantry_wlm::pbs::tm::{Code, Command, Environment, EventId, Framing, TaskId};

use crate::call;
use crate::pointers::{Place, for_free, text};

/// How long the first answer may take.
const ANSWERING: Duration = Duration::from_secs(60);

/// The file with this host's name; the name decides which requests an attached task may send.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

static SESSION: Mutex<Option<Open>> = Mutex::new(None);

/// A session, and the caller's variables for the results of its requests.
pub(crate) struct Open {
    session: Session,
    wanted: HashMap<EventId, Wanted>,
}

/// The variables for a request's results.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    Nothing,
    Task(Place<u32>),
    Status(Place<c_int>),
    Tasks {
        list: Place<u32>,
        size: c_int,
        count: Place<c_int>,
    },
    /// Filled with zeros behind the text, as strncpy does it.
    Text {
        text: Place<u8>,
        size: c_int,
    },
    Info {
        info: Option<Place<u8>>,
        size: c_int,
        length: Place<c_int>,
    },
}

#[repr(C)]
#[derive(Debug)]
struct Roots {
    me: u32,
    parent: u32,
    nodes: c_int,
    tasks: c_int,
    task_pool: c_int,
    task_list: *mut u32,
}

#[unsafe(no_mangle)]
extern "C" fn tm_init(_info: *mut c_void, roots: *mut Roots) -> c_int {
    call(|| {
        let roots = Place::new(roots)?;
        let mut session = lock()?;
        if session.is_some() {
            return Err(Code::BAD_INIT);
        }
        let opened =
            Session::start(environment()?, Framing::Packets, ANSWERING).map_err(|error| error.code())?;
        let is_own = opened.roots().parent_job == opened.own_job();
        roots.write(Roots {
            me: opened.own_task().0,
            parent: if is_own { opened.roots().parent_task } else { TaskId::NONE.0 },
            nodes: c_int::try_from(opened.roots().nodes.len()).unwrap_or(c_int::MAX),
            tasks: 0,
            task_pool: -1,
            task_list: std::ptr::null_mut(),
        });
        *session = Some(Open { session: opened, wanted: HashMap::new() });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn tm_finalize() -> c_int {
    call(|| lock()?.take().map(drop).ok_or(Code::BAD_INIT))
}

#[unsafe(no_mangle)]
extern "C" fn tm_poll(
    poll_event: c_int,
    result_event: *mut c_int,
    wait: c_int,
    tm_errno: *mut c_int,
) -> c_int {
    call(|| {
        loop {
            let mut readable = None;
            with(|open| {
                let result = Place::new(result_event)?;
                result.write(-1);
                if poll_event != EventId::NONE.0 {
                    return Err(Code::NOT_IMPLEMENTED);
                }
                let has_ended = poll_once(open, result, Place::new(tm_errno)?)?;
                if wait != 0 && !has_ended {
                    readable = open.session.readable().map_err(|_| Code::SYSTEM)?;
                }
                Ok(())
            })?;
            // Other threads may use the session while this one waits.
            if !readable.is_some_and(|readable| wait_for(&readable)) {
                return Ok(());
            }
        }
    })
}

/// Takes the next request that has ended, and waits for none. False: none has.
fn poll_once(open: &mut Open, result: Place<c_int>, errno: Place<c_int>) -> Result<bool, Code> {
    match open.session.poll(false) {
        Ok(Polled::Idle) => Err(Code::NOT_FOUND),
        Ok(Polled::NotYet) => {
            result.write(EventId::NONE.0);
            Ok(false)
        }
        Ok(Polled::Ended(ended)) => {
            let wanted = open.wanted.remove(&ended.event).unwrap_or(Wanted::Nothing);
            result.write(ended.event.0);
            errno.write(match ended.outcome {
                Ok(answer) => {
                    deliver(wanted, &answer);
                    0
                }
                Err(error) => error.code().0,
            });
            Ok(true)
        }
        Err(error) => {
            open.wanted.clear();
            Err(error.code())
        }
    }
}

/// How long a thread waits before it checks whether another one has taken its result, or has ended the session.
const LOOK_AGAIN: c_int = 100;

/// Waits until there is data to read, or it is time for the check. False: a signal has come.
fn wait_for(readable: &OwnedFd) -> bool {
    let mut polled = libc::pollfd { fd: readable.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which outlives the call; the descriptor is open.
    let ready = unsafe { libc::poll(&raw mut polled, 1, LOOK_AGAIN) };
    ready >= 0
}

#[unsafe(no_mangle)]
extern "C" fn tm_nodeinfo(list: *mut *mut c_int, nnodes: *mut c_int) -> c_int {
    call(|| {
        with(|open| {
            let (list, count) = (Place::new(list)?, Place::new(nnodes)?);
            let nodes: Vec<c_int> = open.session.roots().nodes.iter().map(|node| node.0).collect();
            list.write(for_free(&nodes)?);
            count.write(c_int::try_from(nodes.len()).unwrap_or(c_int::MAX));
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn tm_atnode(tid: u32, node: *mut c_int) -> c_int {
    call(|| {
        with(|open| {
            let node = Place::new(node)?;
            node.write(open.session.node_of(TaskId(tid)).ok_or(Code::NOT_FOUND)?.0);
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn tm_attach(
    jobid: *mut c_char,
    cookie: *mut c_char,
    pid: libc::pid_t,
    tid: *mut u32,
    host: *mut c_char,
    port: c_int,
) -> c_int {
    call(|| {
        let tid = Place::new(tid)?;
        let host = text(host).unwrap_or_default();
        let is_local = matches!(&host[..], b"" | b"localhost" | b"127.0.0.1");
        // A mom hangs up on both.
        if !is_local || text(cookie).is_some_and(|cookie| !cookie.is_empty()) {
            return Err(Code::NOT_CONNECTED);
        }
        let port = u16::try_from(port).map_err(|_| Code::SYSTEM)?;
        // SAFETY: getuid takes nothing and cannot fail.
        let uid = unsafe { libc::getuid() };
        let job = text(jobid).unwrap_or_default();
        let task = attach(&job, uid, pid, port, ANSWERING).map_err(|error| error.code())?;
        tid.write(task.0);
        Ok(())
    })
}

/// Runs `body` with the session, if there is one.
pub(crate) fn with(body: impl FnOnce(&mut Open) -> Result<(), Code>) -> Result<(), Code> {
    lock()?.as_mut().map_or(Err(Code::BAD_INIT), body)
}

impl Open {
    /// Starts a request and records the variables for its results.
    pub(crate) fn begin(&mut self, command: &Command, wanted: Wanted, event: *mut c_int) -> Result<(), Code> {
        let place = Place::new(event)?;
        let event = self.session.begin(command).map_err(|error| error.code())?;
        self.wanted.insert(event, wanted);
        place.write(event.0);
        Ok(())
    }

    /// The session.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }
}

fn lock() -> Result<MutexGuard<'static, Option<Open>>, Code> {
    SESSION.lock().map_err(|_| Code::SYSTEM)
}

#[expect(
    clippy::disallowed_methods,
    reason = "tm_init is given its job by the environment of the process that calls it"
)]
fn environment() -> Result<Environment, Code> {
    let read = Environment::from_variables(|name| std::env::var_os(name).map(OsStringExt::into_vec));
    let mut environment = read.map_err(|error| error.code())?;
    if let Some(text) = std::env::var_os(NODE_FILE).and_then(|path| std::fs::read_to_string(path).ok()) {
        environment = environment.with_node_file(&text);
    }
    if let Ok(name) = std::fs::read_to_string(HOST_NAME) {
        environment = environment.on_host(name.trim());
    }
    Ok(environment)
}

fn deliver(wanted: Wanted, answer: &Answer) {
    let length = |bytes: &[u8]| c_int::try_from(bytes.len()).unwrap_or(c_int::MAX);
    match (wanted, answer) {
        (Wanted::Task(place), Answer::Task(task)) => place.write(task.0),
        (Wanted::Status(place), Answer::Status(status)) => place.write(*status),
        (Wanted::Tasks { list, size, count }, Answer::Tasks(tasks)) => {
            // A list that is not full ends with no task.
            let ids: Vec<u32> = tasks.iter().chain([&TaskId::NONE]).map(|task| task.0).collect();
            list.write_some(&ids, size);
            count.write(c_int::try_from(tasks.len()).unwrap_or(c_int::MAX));
        }
        (Wanted::Text { text, size }, Answer::Resources(bytes)) => {
            let mut bytes = bytes.clone();
            bytes.resize(bytes.len().max(usize::try_from(size).unwrap_or(0)), 0);
            text.write_some(&bytes, size);
        }
        (Wanted::Info { info, size, length: place }, Answer::Info(bytes)) => {
            if let Some(info) = info {
                info.write_some(bytes, size);
            }
            place.write(length(bytes));
        }
        _ => {}
    }
}
