//! Starts a grandchild without copying this process.
//!
//! The child and the grandchild borrow the memory of this thread, which is stopped until the program is executed. A
//! `fork` copies a tool's page tables twice, and later every page that it writes. For a debugger with gigabytes of
//! symbols that takes longer than the rest of a launch.
#![expect(unsafe_code, reason = "system calls")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;

use super::default_signals;

/// The program's start parameters. All descriptors are 3 or above, so that moving one to its place does not overwrite
/// another.
#[derive(Debug)]
pub(in crate::host) struct Grandchild {
    /// A path.
    pub(in crate::host) program: CString,
    /// All arguments, with the name of the program first.
    pub(in crate::host) argv: Vec<CString>,
    /// The whole environment, as `NAME=value`.
    pub(in crate::host) env: Vec<CString>,
    /// Its directory.
    pub(in crate::host) directory: &'static CStr,
    /// Standard input, output and error.
    pub(in crate::host) stdio: [RawFd; 3],
    /// Soft and hard limit of open files. `None`: this process's limits.
    pub(in crate::host) open_files: Option<(libc::rlim_t, libc::rlim_t)>,
}

/// The size of the stack for a process until its exec. Its calls are few and flat.
const STACK_BYTES: usize = 32 * 1024;

/// Memory for a stack.
struct Stack(Vec<MaybeUninit<u128>>);

impl Stack {
    fn new() -> Self {
        Self(Vec::with_capacity(STACK_BYTES / size_of::<u128>()))
    }

    fn top(&mut self) -> *mut c_void {
        self.0.spare_capacity_mut().as_mut_ptr_range().end.cast()
    }
}

/// Data that both processes read while they share this memory.
struct Lent<'a> {
    what: &'a Grandchild,
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    /// Where an error is written; closed when the program is executed.
    report: RawFd,
    /// The end of the grandchild's stack.
    stack: *mut c_void,
}

const FLAGS: c_int = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;

/// Starts the program in its own session, with default, unblocked signals. Returns after its exec.
///
/// # Errors
/// A process cannot be created, or the program cannot be executed: the system's error.
pub(in crate::host) fn spawn(what: &Grandchild) -> io::Result<()> {
    let (mut report, reporter) = io::pipe()?;
    let reporter = above_stdio(reporter.into())?;
    let (mut upper, mut lower) = (Stack::new(), Stack::new());
    let lent = Lent {
        what,
        argv: pointers(&what.argv),
        env: pointers(&what.env),
        report: reporter.as_raw_fd(),
        stack: lower.top(),
    };
    let lent = (&raw const lent).cast_mut().cast::<c_void>();
    // No signal handler of the tool may run in a process that shares its memory.
    let before = block_signals()?;
    // SAFETY: the child gets its own stack, whose end is aligned to 16 bytes. It shares this memory until it ends,
    // which is after its own child has executed a program or ended. Until then this thread is stopped, so the stacks,
    // `lent` and all its pointers outlive both. They write only to their stacks and errno, and make only
    // async-signal-safe calls.
    let middle = unsafe { libc::clone(run_middle, upper.top(), FLAGS, lent) };
    let cloned = if middle == -1 { Err(io::Error::last_os_error()) } else { Ok(()) };
    restore_signals(&before);
    drop(reporter);
    cloned?;
    collect(middle);
    let mut errno = [0; size_of::<c_int>()];
    match report.read_exact(&mut errno) {
        Err(end) if end.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Err(io::Error::from_raw_os_error(c_int::from_ne_bytes(errno))),
    }
}

/// A descriptor above 0, 1 and 2, even if the tool has closed those.
pub(in crate::host) fn above_stdio(fd: OwnedFd) -> io::Result<OwnedFd> {
    // The standard library always duplicates to 3 or above.
    if fd.as_raw_fd() > 2 { Ok(fd) } else { fd.try_clone() }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// Reaps the process in between, which has ended or is about to. A tool that waits for any child may have reaped it
/// already, which is fine.
fn collect(middle: libc::pid_t) {
    // SAFETY: takes a pid and no place for a status.
    while unsafe { libc::waitpid(middle, ptr::null_mut(), 0) } == -1 && errno() == libc::EINTR {}
}

fn block_signals() -> io::Result<libc::sigset_t> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the pointer is valid for a signal set, which this call fills and which cannot fail for one.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first set was filled above, the second is a valid place for one.
    let error = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: the call above succeeded and has filled it.
    Ok(unsafe { before.assume_init() })
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: the set came from the kernel; no old set is requested. It cannot fail for a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
}

// ---- from here on: only in the two processes ----

extern "C" fn run_middle(lent: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes a pointer to this, which it keeps until both processes have left its memory.
    let it = unsafe { &*lent.cast::<Lent<'_>>() };
    // SAFETY: as in `spawn`; this process is stopped until its child has left the memory.
    if unsafe { libc::clone(run_lower, it.stack, FLAGS, lent) } == -1 {
        tell(it.report, errno());
    }
    // SAFETY: ends the process without running the tool's exit handlers.
    unsafe { libc::_exit(0) }
}

extern "C" fn run_lower(lent: *mut c_void) -> c_int {
    // SAFETY: as in `run_middle`.
    let it = unsafe { &*lent.cast::<Lent<'_>>() };
    tell(it.report, become_program(it));
    // SAFETY: ends the process without running the tool's exit handlers.
    unsafe { libc::_exit(127) }
}

/// Returns only on error.
fn become_program(it: &Lent<'_>) -> c_int {
    // First: a Ctrl-C is for the group of the caller, and is blocked until now.
    // SAFETY: setsid has no preconditions; it fails only for a group leader, which a fresh child is not.
    unsafe { libc::setsid() };
    default_signals();
    for (target, source) in (0..).zip(it.what.stdio) {
        // SAFETY: takes integers only.
        if unsafe { libc::dup2(source, target) } == -1 {
            return errno();
        }
    }
    // SAFETY: a valid C string.
    if unsafe { libc::chdir(it.what.directory.as_ptr()) } == -1 {
        return errno();
    }
    if let Some((soft, hard)) = it.what.open_files {
        let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
        // SAFETY: `limit` is a valid rlimit.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == -1 {
            return errno();
        }
    }
    // SAFETY: a valid C string and two arrays of them that end with null.
    unsafe { libc::execve(it.what.program.as_ptr(), it.argv.as_ptr(), it.env.as_ptr()) };
    errno()
}

fn tell(report: RawFd, errno: c_int) {
    let bytes = errno.to_ne_bytes();
    // SAFETY: `bytes` is a live array of that length. If it fails, nothing can be done.
    unsafe { libc::write(report, bytes.as_ptr().cast(), bytes.len()) };
}

fn errno() -> c_int {
    // SAFETY: always a valid pointer to this thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above; an aligned int.
    unsafe { *place }
}
