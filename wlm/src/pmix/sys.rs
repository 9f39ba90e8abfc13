//! PMIx's library, loaded at run time: the functions and the structures that its header has for tools. Source:
//! `pmix_common.h` and `pmix_tool.h` of PMIx 4 and 5. These structures are the same in both. The values of keys are part
//! of the standard.
#![expect(unsafe_code, reason = "a library in C that is loaded at run time")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr;

use super::abi::{DATA_ARRAY, Data, Info, Library, PID, PROC_INFO, Proc, STRING, SUCCESS, Value, text_of};
use super::told::Told;

/// Keys.
const SERVER_PID: &CStr = c"pmix.srvr.pidinfo";
const NAMESPACE: &CStr = c"pmix.nspace";
const NAMESPACES: &CStr = c"pmix.qry.ns";
const PROC_TABLE: &CStr = c"pmix.qry.ptable";

#[repr(C)]
struct Query {
    keys: *const *const c_char,
    qualifiers: *const Info,
    qualifier_count: usize,
}

#[repr(C)]
struct ProcInfo {
    name: Proc,
    host: *const c_char,
    exe: *const c_char,
    pid: libc::pid_t,
    exit_code: c_int,
    state: u8,
}

type ToolInit = unsafe extern "C" fn(*mut Proc, *const Info, usize) -> c_int;
type QueryInfo = unsafe extern "C" fn(*const Query, usize, *mut *const Info, *mut usize) -> c_int;
type ToolFinalize = unsafe extern "C" fn() -> c_int;

/// The library's functions. It is never unloaded.
struct Functions {
    tool_init: ToolInit,
    query_info: QueryInfo,
    tool_finalize: ToolFinalize,
}

/// Asks the server in the process `launcher` for the ranks of its first job. Call it only once in a process that does
/// nothing else.
pub(super) fn ask(library: &Path, launcher: libc::pid_t) -> Result<Vec<Told>, String> {
    let library = Functions::load(library)?;
    let server = [Info::new(SERVER_PID, PID, Data { pid: launcher })];
    let mut own = MaybeUninit::<Proc>::zeroed();
    // SAFETY: the signature is the header's; `own` has room for a name and `server` is one valid info, both alive
    // during the call.
    let code = unsafe { (library.tool_init)(own.as_mut_ptr(), server.as_ptr(), server.len()) };
    if code != SUCCESS {
        return Err(format!("PMIx_tool_init fails with {code}"));
    }
    // SAFETY: all zeroes are a valid name, and the library has written one over them.
    let own = text_of(unsafe { own.assume_init_ref() }.namespace.as_ptr());
    let ranks = library.ask_ranks(&own);
    // SAFETY: the signature is the header's, and the library was initialized.
    let _ended = unsafe { (library.tool_finalize)() };
    ranks
}

impl Functions {
    fn load(path: &Path) -> Result<Self, String> {
        let library = Library::open(path)?;
        let tool_init = library.find(c"PMIx_tool_init")?;
        let query_info = library.find(c"PMIx_Query_info")?;
        let tool_finalize = library.find(c"PMIx_tool_finalize")?;
        Ok(Self {
            // SAFETY: the function of that name has this signature in every version of the header.
            tool_init: unsafe { std::mem::transmute::<*mut c_void, ToolInit>(tool_init) },
            // SAFETY: as above.
            query_info: unsafe { std::mem::transmute::<*mut c_void, QueryInfo>(query_info) },
            // SAFETY: as above.
            tool_finalize: unsafe { std::mem::transmute::<*mut c_void, ToolFinalize>(tool_finalize) },
        })
    }

    /// The ranks of the first job that is not this tool itself.
    fn ask_ranks(&self, own: &str) -> Result<Vec<Told>, String> {
        let names = self.query(NAMESPACES, &[])?;
        if names.kind != STRING {
            return Err("it does not name its jobs".to_owned());
        }
        // SAFETY: a value of this kind is a text.
        let names = text_of(unsafe { names.data.text });
        let Some(first) = names.split(',').find(|name| !name.is_empty() && *name != own) else {
            return Ok(Vec::new());
        };
        let first = CString::new(first).map_err(|error| error.to_string())?;
        let of_job = [Info::new(NAMESPACE, STRING, Data { text: first.as_ptr() })];
        let table = self.query(PROC_TABLE, &of_job)?;
        if table.kind != DATA_ARRAY {
            return Err("it has no table of processes".to_owned());
        }
        // SAFETY: a value of this kind points to an array.
        let array = unsafe { table.data.array };
        // SAFETY: the library has set it to null or to an array that is never freed.
        let array = unsafe { array.as_ref() };
        let Some(array) = array.filter(|array| array.kind == PROC_INFO && !array.items.is_null()) else {
            return Ok(Vec::new());
        };
        // SAFETY: an array of this kind has so many items of that structure, which the library allocated and never
        // frees.
        let processes = unsafe { std::slice::from_raw_parts(array.items.cast::<ProcInfo>(), array.count) };
        let ranks: Vec<Told> = processes.iter().map(told_of).collect();
        // After the job has ended, only tools are left.
        let is_tool = ranks.iter().any(|told| told.pid.cast_unsigned() == std::process::id());
        Ok(if is_tool { Vec::new() } else { ranks })
    }

    /// The first value in the server's answer. It is never freed.
    fn query(&self, key: &CStr, qualifiers: &[Info]) -> Result<&Value, String> {
        let keys = [key.as_ptr(), ptr::null()];
        let query = Query {
            keys: keys.as_ptr(),
            qualifiers: if qualifiers.is_empty() { ptr::null() } else { qualifiers.as_ptr() },
            qualifier_count: qualifiers.len(),
        };
        let (mut answers, mut count) = (ptr::null(), 0);
        // SAFETY: the signature is the header's. The question and all that it points to live during the call, which
        // waits for the answer.
        let code = unsafe { (self.query_info)(&raw const query, 1, &raw mut answers, &raw mut count) };
        // SAFETY: the library has set it to null or to the first of `count` answers.
        let answer = unsafe { answers.as_ref() };
        match answer {
            Some(answer) if code == SUCCESS && count > 0 => Ok(&answer.value),
            _ => Err(format!("the question {} fails with {code}", key.to_string_lossy())),
        }
    }
}

fn told_of(process: &ProcInfo) -> Told {
    Told { rank: process.name.rank, host: text_of(process.host), pid: process.pid, exe: text_of(process.exe) }
}
