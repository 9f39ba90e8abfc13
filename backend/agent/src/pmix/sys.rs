//! PMIx's library, loaded at run time: the functions and the structures that its header has for servers.
//!
//! Source: `pmix_server.h` of PMIx 4.2, 5 and 6. The signatures are the same in all of them. The table of a server's
//! functions grows with the versions, at its end: gantry fills the first places, and leaves room for more than any
//! version has.
#![expect(unsafe_code, reason = "a library in C that is loaded at run time")]

use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use gantry_wlm::pmix::abi::{
    ALL_RANKS, DATA_ARRAY, Data, DataArray, FLAG, INFO, Info, Library, NUMBER_16, NUMBER_32, Proc, RANK,
    STRING, SUCCESS,
};

use super::facts::{Fact, Told};

/// The call is complete, and its callback is not called.
const DONE: c_int = -157;

/// The call is not supported.
const NOT_SUPPORTED: c_int = -47;

/// There is no such value.
const NOT_FOUND: c_int = -46;

/// Places of functions between `disconnect` and `job_control`.
const PLACES_BETWEEN: usize = 8;

/// Places behind those that gantry fills.
const MORE_PLACES: usize = 108;

type OpCallback = Option<unsafe extern "C" fn(c_int, *mut c_void)>;
type Release = unsafe extern "C" fn(*mut c_void);
type ModexCallback =
    unsafe extern "C" fn(c_int, *const c_char, usize, *mut c_void, Option<Release>, *mut c_void);

type OfRank = unsafe extern "C" fn(*const Proc, *mut c_void, OpCallback, *mut c_void) -> c_int;
type Abort = unsafe extern "C" fn(
    *const Proc,
    *mut c_void,
    c_int,
    *const c_char,
    *const Proc,
    usize,
    OpCallback,
    *mut c_void,
) -> c_int;
type FenceNb = unsafe extern "C" fn(
    *const Proc,
    usize,
    *const Info,
    usize,
    *const c_char,
    usize,
    Option<ModexCallback>,
    *mut c_void,
) -> c_int;
type DirectModex =
    unsafe extern "C" fn(*const Proc, *const Info, usize, Option<ModexCallback>, *mut c_void) -> c_int;
type Publish = unsafe extern "C" fn(*const Proc, *const Info, usize, OpCallback, *mut c_void) -> c_int;
type Lookup = unsafe extern "C" fn(
    *const Proc,
    *const *const c_char,
    *const Info,
    usize,
    OpCallback,
    *mut c_void,
) -> c_int;
type Spawn = unsafe extern "C" fn(
    *const Proc,
    *const Info,
    usize,
    *const c_void,
    usize,
    OpCallback,
    *mut c_void,
) -> c_int;
type Connect = unsafe extern "C" fn(*const Proc, usize, *const Info, usize, OpCallback, *mut c_void) -> c_int;

type JobControl = unsafe extern "C" fn(
    *const Proc,
    *const Proc,
    usize,
    *const Info,
    usize,
    OpCallback,
    *mut c_void,
) -> c_int;

/// A server's functions, which the library calls. A place without one is a request that is not supported.
#[repr(C)]
struct Module {
    client_connected: Option<OfRank>,
    client_finalized: Option<OfRank>,
    abort: Option<Abort>,
    fence_nb: Option<FenceNb>,
    direct_modex: Option<DirectModex>,
    publish: Option<Publish>,
    lookup: Option<Lookup>,
    unpublish: Option<Lookup>,
    spawn: Option<Spawn>,
    connect: Option<Connect>,
    disconnect: Option<Connect>,
    between: [*const c_void; PLACES_BETWEEN],
    job_control: Option<JobControl>,
    more: [*const c_void; MORE_PLACES],
}

type ServerInit = unsafe extern "C" fn(*const Module, *const Info, usize) -> c_int;
type ServerFinalize = unsafe extern "C" fn() -> c_int;
type RegisterNspace =
    unsafe extern "C" fn(*const c_char, c_int, *const Info, usize, OpCallback, *mut c_void) -> c_int;
type RegisterClient = unsafe extern "C" fn(
    *const Proc,
    libc::uid_t,
    libc::gid_t,
    *mut c_void,
    OpCallback,
    *mut c_void,
) -> c_int;
type SetupFork = unsafe extern "C" fn(*const Proc, *mut *mut *mut c_char) -> c_int;

/// What the library tells.
#[derive(Debug)]
pub(super) enum Upcall<'a> {
    /// A rank has begun.
    Joined(u32),
    /// A rank has left in good order.
    Left(u32),
    /// A rank ends all ranks with this code.
    Aborted(u32, i32),
    /// All ranks of this node are in the fence, and have put this.
    Fence(&'a [u8]),
    /// A rank asks for further processes.
    Spawn(u32),
    /// A rank asks for a published name.
    Names(u32),
}

/// Who takes upcalls. False: it cannot be done.
type Listener = Box<dyn Fn(Upcall<'_>) -> bool + Send + Sync>;

/// What upcalls need, which run on the library's own thread.
struct Seat {
    namespace: String,
    size: u32,
    listener: Listener,
    /// The answer that the library waits for.
    fence: Mutex<Option<Waiting>>,
}

/// How a fence is answered.
struct Waiting {
    callback: ModexCallback,
    /// An address of the library, which only the callback gets.
    data: usize,
}

/// There is one server in a process.
static SEAT: OnceLock<Seat> = OnceLock::new();

/// The library as a server. It is never unloaded.
pub(super) struct Server {
    namespace: String,
    setup_fork: SetupFork,
    register_client: RegisterClient,
    register_nspace: RegisterNspace,
    finalize: ServerFinalize,
}

impl Server {
    /// Loads the library and starts its server. Call it only once in a process that does nothing else.
    ///
    /// # Errors
    /// What fails, as the message of the loader, or as the library's number.
    pub(super) fn start(
        library: &Path,
        (namespace, size): (&str, u32),
        facts: &[Fact],
        listener: Listener,
    ) -> Result<Self, String> {
        let library = Library::open(library)?;
        let [init, finalize, register_nspace, register_client, setup_fork] = [
            c"PMIx_server_init",
            c"PMIx_server_finalize",
            c"PMIx_server_register_nspace",
            c"PMIx_server_register_client",
            c"PMIx_server_setup_fork",
        ]
        .map(|name| library.find(name));
        // SAFETY: the function of that name has this signature in every version of the header.
        let init = unsafe { std::mem::transmute::<*mut c_void, ServerInit>(init?) };
        let server = Self {
            namespace: namespace.to_owned(),
            // SAFETY: as above.
            finalize: unsafe { std::mem::transmute::<*mut c_void, ServerFinalize>(finalize?) },
            // SAFETY: as above.
            register_nspace: unsafe { std::mem::transmute::<*mut c_void, RegisterNspace>(register_nspace?) },
            // SAFETY: as above.
            register_client: unsafe { std::mem::transmute::<*mut c_void, RegisterClient>(register_client?) },
            // SAFETY: as above.
            setup_fork: unsafe { std::mem::transmute::<*mut c_void, SetupFork>(setup_fork?) },
        };
        let seat = Seat { namespace: namespace.to_owned(), size, listener, fence: Mutex::new(None) };
        SEAT.set(seat).map_err(|_| "this process has a server already".to_owned())?;
        let (module, facts) = (build_module(), Infos::build(facts)?);
        // SAFETY: the signature is the header's. The library copies the module, which is at least as large as its own,
        // and reads the infos during the call.
        let code = unsafe { init(&raw const module, facts.infos.as_ptr(), facts.infos.len()) };
        check("PMIx_server_init", code)?;
        Ok(server)
    }

    /// Registers the job, with so many ranks on this node.
    ///
    /// # Errors
    /// The library's number.
    pub(super) fn register_job(&self, here: usize, facts: &[Fact]) -> Result<(), String> {
        let facts = Infos::build(facts)?;
        let here = c_int::try_from(here).map_err(|error| error.to_string())?;
        let name = Proc::new(&self.namespace, 0).namespace;
        let (infos, count) = (facts.infos.as_ptr(), facts.infos.len());
        // SAFETY: the signature is the header's. Without a callback the library waits, and reads the infos, and all that
        // they point to, during the call.
        let code =
            unsafe { (self.register_nspace)(name.as_ptr(), here, infos, count, None, ptr::null_mut()) };
        check("PMIx_server_register_nspace", code)
    }

    /// Registers a rank of this node. Returns the variables by which it finds the server.
    ///
    /// # Errors
    /// The library's number.
    pub(super) fn register_rank(
        &self,
        rank: u32,
        (uid, gid): (u32, u32),
    ) -> Result<Vec<(OsString, OsString)>, String> {
        let proc = Proc::new(&self.namespace, rank);
        let none = ptr::null_mut();
        // SAFETY: the signature is the header's. Without a callback the library waits, and reads the name during the
        // call.
        let code = unsafe { (self.register_client)(&raw const proc, uid, gid, none, None, none) };
        check("PMIx_server_register_client", code)?;
        let mut list: *mut *mut c_char = ptr::null_mut();
        // SAFETY: the signature is the header's. The library extends a list that is empty, and leaves it to us.
        let code = unsafe { (self.setup_fork)(&raw const proc, &raw mut list) };
        check("PMIx_server_setup_fork", code)?;
        Ok(read_variables(list))
    }

    /// Answers the fence with what the ranks of all nodes have put.
    pub(super) fn answer_fence(&self, all: Vec<u8>) {
        let waiting =
            SEAT.get().and_then(|seat| seat.fence.lock().unwrap_or_else(PoisonError::into_inner).take());
        let Some(Waiting { callback, data }) = waiting else { return };
        let all = Box::new(all);
        let (first, length) = (all.as_ptr().cast::<c_char>(), all.len());
        let kept = Box::into_raw(all).cast::<c_void>();
        let data = ptr::with_exposed_provenance_mut::<c_void>(data);
        // SAFETY: the callback and its data are of the upcall that asked, and are used once. The bytes live until the
        // library calls `release`.
        unsafe { callback(SUCCESS, first, length, data, Some(release), kept) };
    }

    /// Ends the server. It removes its own files, and those that ranks have asked it to remove.
    pub(super) fn finalize(&self) {
        // SAFETY: the signature is the header's, and the library was initialized.
        let _ended = unsafe { (self.finalize)() };
    }
}

fn check(call: &str, code: c_int) -> Result<(), String> {
    match code {
        SUCCESS | DONE => Ok(()),
        code => Err(format!("{call} fails with {code}")),
    }
}

fn build_module() -> Module {
    Module {
        client_connected: Some(client_connected),
        client_finalized: Some(client_finalized),
        abort: Some(abort),
        fence_nb: Some(fence_nb),
        direct_modex: Some(direct_modex),
        publish: Some(publish),
        lookup: Some(lookup),
        unpublish: Some(lookup),
        spawn: Some(spawn),
        connect: Some(connect),
        disconnect: Some(connect),
        between: [ptr::null(); PLACES_BETWEEN],
        job_control: Some(job_control),
        more: [ptr::null(); MORE_PLACES],
    }
}

/// Copies a list of `NAME=value`.
fn read_variables(list: *mut *mut c_char) -> Vec<(OsString, OsString)> {
    let mut variables = Vec::new();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: the list is of the library, and ends with a null pointer, at which this loop ends.
        let entry = unsafe { *at };
        if entry.is_null() {
            break;
        }
        // SAFETY: every entry is a text that ends with a zero, and nothing frees it.
        let entry = unsafe { CStr::from_ptr(entry) }.to_bytes();
        if let Some(sign) = entry.iter().position(|byte| *byte == b'=') {
            let (name, value) = entry.split_at(sign);
            let value = value.get(1..).unwrap_or_default();
            variables.push((OsString::from_vec(name.to_vec()), OsStr::from_bytes(value).to_owned()));
        }
        // SAFETY: this entry was not the last one.
        at = unsafe { at.add(1) };
    }
    variables
}

/// Infos, and everything that they point to. Moving this moves none of what they point to.
#[derive(Default)]
struct Infos {
    infos: Vec<Info>,
    _texts: Vec<CString>,
    _arrays: Vec<Box<[DataArray]>>,
    _inside: Vec<Self>,
}

impl Infos {
    fn build(facts: &[Fact]) -> Result<Self, String> {
        let mut all = Self { infos: Vec::with_capacity(facts.len()), ..Self::default() };
        for (key, told) in facts {
            let (kind, data) = match told {
                Told::Yes => (FLAG, Data { flag: true }),
                Told::Small(number) => (NUMBER_16, Data { number_16: *number }),
                Told::Number(number) => (NUMBER_32, Data { number_32: *number }),
                Told::Rank(rank) => (RANK, Data { number_32: *rank }),
                Told::Text(text) => {
                    let text = CString::new(text.as_str()).map_err(|error| error.to_string())?;
                    let data = Data { text: text.as_ptr() };
                    all._texts.push(text);
                    (STRING, data)
                }
                Told::Group(facts) => {
                    let inside = Self::build(facts)?;
                    let items = inside.infos.as_ptr().cast::<c_void>();
                    let array: Box<[DataArray]> =
                        Box::new([DataArray { kind: INFO, count: inside.infos.len(), items }]);
                    let data = Data { array: array.as_ptr() };
                    all._inside.push(inside);
                    all._arrays.push(array);
                    (DATA_ARRAY, data)
                }
            };
            all.infos.push(Info::new(key, kind, data));
        }
        Ok(all)
    }
}

/// Frees the answer of a fence.
unsafe extern "C" fn release(kept: *mut c_void) {
    // SAFETY: `answer_fence` has made this pointer from a box, and the library calls this once for it.
    drop(unsafe { Box::from_raw(kept.cast::<Vec<u8>>()) });
}

/// Tells the listener something of a rank. `DONE` if it was done, `otherwise` if not.
fn tell(proc: *const Proc, otherwise: c_int, upcall: impl FnOnce(u32) -> Upcall<'static>) -> c_int {
    // SAFETY: the library passes a name that lives during the upcall, or null.
    let (Some(seat), Some(proc)) = (SEAT.get(), unsafe { proc.as_ref() }) else { return NOT_SUPPORTED };
    if proc.is_in(&seat.namespace) && (seat.listener)(upcall(proc.rank)) { DONE } else { otherwise }
}

unsafe extern "C" fn client_connected(
    proc: *const Proc,
    _object: *mut c_void,
    _callback: OpCallback,
    _data: *mut c_void,
) -> c_int {
    tell(proc, DONE, Upcall::Joined)
}

unsafe extern "C" fn client_finalized(
    proc: *const Proc,
    _object: *mut c_void,
    _callback: OpCallback,
    _data: *mut c_void,
) -> c_int {
    tell(proc, DONE, Upcall::Left)
}

/// The rank waits for an answer, and gets none: all ranks are about to be killed.
unsafe extern "C" fn abort(
    proc: *const Proc,
    _object: *mut c_void,
    status: c_int,
    _message: *const c_char,
    _procs: *const Proc,
    _count: usize,
    _callback: OpCallback,
    _data: *mut c_void,
) -> c_int {
    match tell(proc, NOT_SUPPORTED, |rank| Upcall::Aborted(rank, status)) {
        DONE => SUCCESS,
        code => code,
    }
}

unsafe extern "C" fn fence_nb(
    procs: *const Proc,
    count: usize,
    _directives: *const Info,
    _directive_count: usize,
    puts: *const c_char,
    length: usize,
    callback: Option<ModexCallback>,
    data: *mut c_void,
) -> c_int {
    let (Some(seat), Some(callback), false) = (SEAT.get(), callback, procs.is_null()) else {
        return NOT_SUPPORTED;
    };
    // SAFETY: the library passes so many names, which live during the upcall.
    let procs = unsafe { std::slice::from_raw_parts(procs, count) };
    if !is_whole(procs, &seat.namespace, seat.size) {
        return NOT_SUPPORTED;
    }
    let puts = match puts.is_null() {
        true => &[],
        // SAFETY: the library passes so many bytes, which live during the upcall.
        false => unsafe { std::slice::from_raw_parts(puts.cast::<u8>(), length) },
    };
    let mut waiting = seat.fence.lock().unwrap_or_else(PoisonError::into_inner);
    if waiting.is_some() {
        return NOT_SUPPORTED;
    }
    *waiting = Some(Waiting { callback, data: data.expose_provenance() });
    if (seat.listener)(Upcall::Fence(puts)) {
        return SUCCESS;
    }
    *waiting = None;
    NOT_SUPPORTED
}

/// Whether these are all ranks of the job.
fn is_whole(procs: &[Proc], namespace: &str, size: u32) -> bool {
    if !procs.iter().all(|proc| proc.is_in(namespace)) {
        return false;
    }
    if procs.iter().any(|proc| proc.rank == ALL_RANKS) {
        return true;
    }
    let mut ranks: Vec<u32> = procs.iter().map(|proc| proc.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks.into_iter().eq(0..size)
}

/// A rank asks for what a rank of another node has not put.
unsafe extern "C" fn direct_modex(
    _proc: *const Proc,
    _directives: *const Info,
    _count: usize,
    _callback: Option<ModexCallback>,
    _data: *mut c_void,
) -> c_int {
    NOT_FOUND
}

unsafe extern "C" fn publish(
    proc: *const Proc,
    _infos: *const Info,
    _count: usize,
    _callback: OpCallback,
    _data: *mut c_void,
) -> c_int {
    refuse(proc, Upcall::Names)
}

unsafe extern "C" fn lookup(
    proc: *const Proc,
    _keys: *const *const c_char,
    _infos: *const Info,
    _count: usize,
    _callback: OpCallback,
    _data: *mut c_void,
) -> c_int {
    refuse(proc, Upcall::Names)
}

unsafe extern "C" fn spawn(
    proc: *const Proc,
    _infos: *const Info,
    _count: usize,
    _programs: *const c_void,
    _program_count: usize,
    _callback: OpCallback,
    _data: *mut c_void,
) -> c_int {
    refuse(proc, Upcall::Spawn)
}

/// Connecting and disconnecting worlds. The library calls this place without a look whether it is filled.
unsafe extern "C" fn connect(
    _procs: *const Proc,
    _count: usize,
    _infos: *const Info,
    _info_count: usize,
    _callback: OpCallback,
    _data: *mut c_void,
) -> c_int {
    NOT_SUPPORTED
}

/// The library itself removes files that ranks register for that, but only for a server that has this function.
unsafe extern "C" fn job_control(
    _proc: *const Proc,
    _targets: *const Proc,
    _target_count: usize,
    _directives: *const Info,
    _count: usize,
    _callback: OpCallback,
    _data: *mut c_void,
) -> c_int {
    NOT_SUPPORTED
}

/// Tells the listener about a request that is not served.
fn refuse(proc: *const Proc, upcall: fn(u32) -> Upcall<'static>) -> c_int {
    let _told = tell(proc, NOT_SUPPORTED, upcall);
    NOT_SUPPORTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_of_all_ranks_or_not_served() {
        let check = |ranks: &[u32], namespace: &str| {
            let procs: Vec<Proc> = ranks.iter().map(|rank| Proc::new("app", *rank)).collect();
            is_whole(&procs, namespace, 3)
        };
        assert!(check(&[ALL_RANKS], "app"));
        assert!(check(&[2, 0, 1], "app"));
        assert!(!check(&[0, 1], "app"));
        assert!(!check(&[0, 1, 1], "app"));
        assert!(!check(&[0, 1, 2, 3], "app"));
        assert!(!check(&[ALL_RANKS], "other"));
        assert!(!check(&[], "app"));
    }

    #[test]
    fn facts_keep_their_order_and_what_they_point_to() {
        let group =
            Told::Group(vec![(c"pmix.rank", Told::Rank(7)), (c"pmix.hname", Told::Text("n".to_owned()))]);
        let infos = Infos::build(&[(c"pmix.job.size", Told::Number(2)), (c"pmix.pdata", group)]).unwrap();
        let moved = infos;
        assert_eq!(
            moved.infos.iter().map(|info| info.value.kind).collect::<Vec<_>>(),
            [NUMBER_32, DATA_ARRAY]
        );
        // SAFETY: the value of this kind is an array.
        let array = unsafe { moved.infos[1].value.data.array };
        // SAFETY: it lives as long as `moved`.
        let array = unsafe { &*array };
        assert_eq!((array.kind, array.count), (INFO, 2));
        assert!(Infos::build(&[(c"pmix.hname", Told::Text("a\0b".to_owned()))]).is_err());
    }
}
