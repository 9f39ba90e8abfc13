//! New processes, and what they do until they execute their programs.
//!
//! A child makes only async-signal-safe calls on data prepared before the fork, since other threads of the agent may
//! hold any lock at that moment.
//!
//! There are two ways. [`fork`] copies the agent's memory, so that the child can wait for its batch. [`spawn`] lends
//! it, and blocks until the child has executed its program. That is several times faster, as nothing is copied and no
//! page is written twice.

use std::convert::Infallible;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use super::check;

/// A failed child writes this many bytes: the stage and the errno.
pub(crate) const FAILURE_LENGTH: usize = 8;
const FIRST_FREE: RawFd = 3;
/// The descriptor by which a rank talks to its MPI server. Shells leave it alone: scripts use 3 to 9, and shells take
/// free ones from 10 on.
pub(crate) const SERVED: RawFd = 10;
/// Exit code of a child that never executed its program, as in shells.
const NEVER_STARTED: c_int = 127;

/// The stage that a child has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Resetting the agent's signal handlers.
    Signals,
    /// Its own process group.
    Group,
    /// Dying with its parent; the parent may already be gone.
    Parent,
    /// Standard input, output and error.
    Stdio,
    /// The limit of open files.
    Limits,
    /// The working directory.
    Directory,
    /// Waiting at the gate.
    Gate,
    /// `execve` itself.
    Exec,
}

const STAGES: [Stage; 8] = [
    Stage::Signals,
    Stage::Group,
    Stage::Parent,
    Stage::Stdio,
    Stage::Limits,
    Stage::Directory,
    Stage::Gate,
    Stage::Exec,
];

/// What a child needs, prepared before the fork.
///
/// All descriptors are 3 or above, and those of [`Wait`] above [`SERVED`], so that placing one never overwrites
/// another.
#[derive(Debug)]
pub(crate) struct Child<'a> {
    pub(crate) program: &'a CStr,
    pub(crate) argv: &'a [CString],
    pub(crate) env: &'a [CString],
    pub(crate) cwd: Option<&'a CStr>,
    pub(crate) stdio: [RawFd; 3],
    /// Its descriptor [`SERVED`].
    pub(crate) served: Option<RawFd>,
    pub(crate) die_with_parent: bool,
    pub(crate) nofile: Option<(u64, u64)>,
}

/// What a child that waits for its batch needs in addition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    /// Where the child writes a failure; close-on-exec.
    pub(crate) report: RawFd,
    /// Where the child reads one byte before `execve`; close-on-exec.
    pub(crate) gate: RawFd,
    /// The agent's end of the gate. The child closes it: the gate must end with the agent.
    pub(crate) gate_keeper: RawFd,
}

/// Starts a child that waits at its gate and then executes its program. Returns its pid.
///
/// # Errors
/// The errno of `fork`: `EAGAIN` at the limit of processes, `ENOMEM`.
pub(crate) fn fork(child: &Child<'_>, wait: Wait) -> io::Result<i32> {
    let start = Prepared::new(child);
    // With every signal blocked over the fork, no handler of the agent can run in the child.
    let before = block_signals()?;
    // SAFETY: the child calls only async-signal-safe functions, allocates nothing and never returns from here.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        run_child(&start, wait);
    }
    let forked = check(pid);
    restore_signals(&before);
    forked
}

/// Stack size of a child until it executes its program; its calls are few and flat.
const STACK_BYTES: usize = 32 * 1024;

/// Starts a child that executes its program at once. Returns its pid, and the reason if it failed.
///
/// A child that failed has ended, and the caller must wait for it. This thread blocks meanwhile, and other threads find
/// the child's number in `pid`.
///
/// # Errors
/// The errno of `clone`: `EAGAIN` at the limit of processes, `ENOMEM`.
pub(crate) fn spawn(child: &Child<'_>, pid: &AtomicI32) -> io::Result<(i32, Option<(Stage, i32)>)> {
    let lent = Lent { start: Prepared::new(child), failure: AtomicU64::new(NO_FAILURE) };
    let mut stack: Vec<MaybeUninit<u128>> = Vec::with_capacity(STACK_BYTES / size_of::<u128>());
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end.cast::<c_void>();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID | libc::SIGCHLD;
    let before = block_signals()?;
    let argument = (&raw const lent).cast_mut().cast::<c_void>();
    // SAFETY: the child gets a stack of its own, whose end is aligned to 16 bytes. It lives in our memory until it has
    // executed a program or ended. Until then this thread is stopped, so that the stack, `lent` and what they point to
    // outlive it. It writes to `lent.failure`, its stack and errno alone, and calls only async-signal-safe functions.
    // The kernel writes the pid to a valid place before the child runs.
    let cloned = unsafe { libc::clone(run_lent, top, flags, argument, pid.as_ptr()) };
    let cloned = check(cloned);
    restore_signals(&before);
    let failure = lent.failure.load(Ordering::SeqCst);
    drop(stack);
    Ok((cloned?, (failure != NO_FAILURE).then(|| decode_failure(failure.to_ne_bytes())).flatten()))
}

/// Data for a child that shares our memory until it executes its program.
struct Lent<'a> {
    start: Prepared<'a>,
    failure: AtomicU64,
}

/// No stage has this number.
const NO_FAILURE: u64 = u64::MAX;

/// A child and the arrays that `execve` needs.
struct Prepared<'a> {
    child: &'a Child<'a>,
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    parent: u32,
}

impl<'a> Prepared<'a> {
    fn new(child: &'a Child<'a>) -> Self {
        Self { child, argv: pointers(child.argv), env: pointers(child.env), parent: std::process::id() }
    }
}

/// Decodes what a failed child wrote.
pub(crate) fn decode_failure(bytes: [u8; FAILURE_LENGTH]) -> Option<(Stage, i32)> {
    let [s0, s1, s2, s3, e0, e1, e2, e3] = bytes;
    let stage = usize::try_from(u32::from_ne_bytes([s0, s1, s2, s3])).ok()?;
    Some((*STAGES.get(stage)?, i32::from_ne_bytes([e0, e1, e2, e3])))
}

fn encode_failure(stage: Stage, errno: i32) -> [u8; FAILURE_LENGTH] {
    let [s0, s1, s2, s3] = (stage as u32).to_ne_bytes();
    let [e0, e1, e2, e3] = errno.to_ne_bytes();
    [s0, s1, s2, s3, e0, e1, e2, e3]
}

/// The array of pointers, with a null pointer at its end, that `execve` takes.
pub(super) fn pointers(strings: &[impl AsRef<CStr>]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ref().as_ptr()).chain([ptr::null()]).collect()
}

fn block_signals() -> io::Result<libc::sigset_t> {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the pointer is valid for a signal set, which this call fills.
    check(unsafe { libc::sigfillset(all.as_mut_ptr()) })?;
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first set was filled above, the second is a valid place for one.
    let error = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: the call above succeeded and has filled it.
    Ok(unsafe { before.assume_init() })
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: a set that the kernel gave us; no old set is asked for. It cannot fail for a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
}

// ---- from here on: only in the child ----

fn run_child(start: &Prepared<'_>, wait: Wait) -> ! {
    let Err((stage, errno)) = become_program(start, Some(wait));
    let failure = encode_failure(stage, errno);
    // SAFETY: the buffer is valid for its length. Nothing can be done if it fails: the agent sees the exit code.
    unsafe { libc::write(wait.report, failure.as_ptr().cast(), failure.len()) };
    // SAFETY: ends the process without running the agent's exit handlers.
    unsafe { libc::_exit(NEVER_STARTED) }
}

extern "C" fn run_lent(lent: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes a pointer to this, which it keeps until the child has gone from its memory.
    let lent = unsafe { &*lent.cast::<Lent<'_>>() };
    let Err((stage, errno)) = become_program(&lent.start, None);
    lent.failure.store(u64::from_ne_bytes(encode_failure(stage, errno)), Ordering::SeqCst);
    // SAFETY: ends the process without running the agent's exit handlers.
    unsafe { libc::_exit(NEVER_STARTED) }
}

fn become_program(start: &Prepared<'_>, wait: Option<Wait>) -> Result<Infallible, (Stage, i32)> {
    let Prepared { child, argv, env, parent } = start;
    // SAFETY: takes integers only.
    check_child(unsafe { libc::setpgid(0, 0) }).map_err(at(Stage::Group))?;
    default_signals().map_err(at(Stage::Signals))?;
    if child.die_with_parent {
        follow_parent(*parent).map_err(at(Stage::Parent))?;
    }
    place_stdio(child.stdio).map_err(at(Stage::Stdio))?;
    let served = match child.served {
        None => CLOSED,
        Some(served) => place_served(served).map_err(at(Stage::Stdio))?,
    };
    match wait {
        None => close_others([served, CLOSED, CLOSED]),
        Some(wait) => {
            // SAFETY: takes an integer only; the child has no other owner of this descriptor.
            unsafe { libc::close(wait.gate_keeper) };
            close_others([served, wait.report, wait.gate]);
        }
    }
    if let Some((soft, hard)) = child.nofile {
        let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
        // SAFETY: `limit` is a valid rlimit.
        check_child(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })
            .map_err(at(Stage::Limits))?;
    }
    if let Some(cwd) = child.cwd {
        // SAFETY: a valid C string.
        check_child(unsafe { libc::chdir(cwd.as_ptr()) }).map_err(at(Stage::Directory))?;
    }
    // Under Yama's restricted mode this lets the agent and its children (tool daemons) attach, and it stays valid over
    // exec. Without Yama it is EINVAL, and not needed.
    // SAFETY: takes integers only.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(*parent), 0, 0, 0) };
    if let Some(wait) = wait {
        pass_gate(wait.gate).map_err(at(Stage::Gate))?;
    }
    // SAFETY: a valid C string and two arrays of them that end with null, all made before the fork.
    unsafe { libc::execve(child.program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    Err((Stage::Exec, errno()))
}

fn default_signals() -> Result<(), i32> {
    const SIGNALS: c_int = 64;
    // The kernel's sigaction, larger than on any architecture: the default action, no flags, an empty mask. The call
    // goes by number, because the C library refuses two signals of its own. The process that started the agent may have
    // left one of them ignored.
    let default = [0_u64; 8];
    let no_old = ptr::null_mut::<u64>();
    for signal in 1..=SIGNALS {
        // Fails for SIGKILL and SIGSTOP, which have the default action anyway.
        // SAFETY: `default` holds a whole sigaction; the old action is not asked for.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), no_old, size_of::<u64>());
        }
    }
    // SAFETY: all zeroes is a valid signal set: the empty one.
    let none = unsafe { std::mem::zeroed::<libc::sigset_t>() };
    // SAFETY: a valid signal set; the old one is not asked for.
    check_child(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut()) })
}

fn follow_parent(parent: u32) -> Result<(), i32> {
    // SAFETY: takes integers only.
    check_child(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) })?;
    // A parent that died before the call above sends no signal.
    // SAFETY: takes nothing.
    let now = unsafe { libc::getppid() };
    if now.cast_unsigned() == parent { Ok(()) } else { Err(libc::ESRCH) }
}

fn place_stdio(stdio: [RawFd; 3]) -> Result<(), i32> {
    for (target, source) in (0..).zip(stdio) {
        // SAFETY: takes integers only.
        check_child(unsafe { libc::dup2(source, target) })?;
    }
    Ok(())
}

/// Puts a descriptor at [`SERVED`], which `execve` leaves open.
fn place_served(served: RawFd) -> Result<RawFd, i32> {
    // SAFETY: takes integers only.
    check_child(unsafe { libc::dup2(served, SERVED) })?;
    // A descriptor that is at this number already is still close-on-exec.
    // SAFETY: takes integers only.
    check_child(unsafe { libc::fcntl(SERVED, libc::F_SETFD, 0) })?;
    Ok(SERVED)
}

/// No descriptor.
const CLOSED: RawFd = -1;

/// Closes every descriptor but stdio and `kept`. Before Linux 5.9 it does nothing: there every descriptor of the agent
/// must be close-on-exec.
fn close_others(mut kept: [RawFd; 3]) {
    kept.sort_unstable();
    let mut first = FIRST_FREE;
    for fd in kept.into_iter().filter(|fd| *fd != CLOSED) {
        close_range(first, fd - 1);
        first = fd + 1;
    }
    close_range(first, RawFd::MAX);
}

fn close_range(first: RawFd, last: RawFd) {
    if first <= last {
        let (first, last): (c_uint, c_uint) = (first.cast_unsigned(), last.cast_unsigned());
        // SAFETY: takes integers only; nothing in the child uses the descriptors that it closes.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

fn pass_gate(gate: RawFd) -> Result<(), i32> {
    loop {
        let mut byte = 0_u8;
        // SAFETY: a valid place for one byte.
        match unsafe { libc::read(gate, (&raw mut byte).cast(), 1) } {
            1 => return Ok(()),
            0 => return Err(libc::EPIPE),
            _ if errno() == libc::EINTR => {}
            _ => return Err(errno()),
        }
    }
}

fn check_child(result: c_int) -> Result<(), i32> {
    if result == -1 { Err(errno()) } else { Ok(()) }
}

fn errno() -> i32 {
    // SAFETY: always a valid pointer to this thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above; an aligned int.
    unsafe { *place }
}

fn at(stage: Stage) -> impl Fn(i32) -> (Stage, i32) {
    move |errno| (stage, errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_survive_the_pipe() {
        for (number, stage) in STAGES.into_iter().enumerate() {
            assert_eq!(stage as usize, number, "the table is in the enum's order");
            assert_eq!(decode_failure(encode_failure(stage, 13)), Some((stage, 13)));
        }
        assert_eq!(decode_failure([0xFF; FAILURE_LENGTH]), None);
    }
}
