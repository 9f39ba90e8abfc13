//! System calls of launcher control: ptrace, waiting, another process's memory, and the child's set-up before it
//! becomes the launcher.
#![expect(unsafe_code, reason = "system calls without a suitable safe wrapper")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

use gantry_shared::ptrace;
pub(super) use gantry_shared::ptrace::{
    RegisterSet, detach, event_message, go_on, interrupt, kill, kill_group, listen, registers, seize,
    wait_for_news,
};
use libc::{c_int, c_long, c_uint, c_void, pid_t};

/// Most pieces that one call of [`read_pieces`] takes: the kernel's own limit.
pub(super) const MOST_PIECES: usize = 1024;

fn check(result: c_long) -> io::Result<c_long> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A ptrace request that takes numbers only and touches no memory of ours.
fn trace(request: c_uint, pid: pid_t, address: u64, data: u64) -> io::Result<()> {
    let (address, data) = (pointer(address), pointer(data));
    // SAFETY: the requests made through here pass numbers in both places; the kernel does not follow them in our
    // memory.
    check(unsafe { libc::ptrace(request, pid, address, data) }).map(drop)
}

fn pointer(number: u64) -> *mut c_void {
    ptr::without_provenance_mut(usize::try_from(number).unwrap_or(usize::MAX))
}

/// Changes the options of a stopped tracee.
pub(super) fn set_options(pid: pid_t, options: c_int) -> io::Result<()> {
    trace(libc::PTRACE_SETOPTIONS, pid, 0, u64::from(options.cast_unsigned()))
}

/// Lets a stopped tracee execute one instruction.
pub(super) fn step(pid: pid_t) -> io::Result<()> {
    trace(libc::PTRACE_SINGLESTEP, pid, 0, 0)
}

/// Writes one aligned word, where the process itself may not write, too.
pub(super) fn write_word(pid: pid_t, address: u64, word: u64) -> io::Result<()> {
    trace(libc::PTRACE_POKEDATA, pid, address, word)
}

/// Reads one aligned word.
pub(super) fn read_word(pid: pid_t, address: u64) -> io::Result<u64> {
    let mut word = 0_u64;
    let place = &raw mut word;
    // SAFETY: the bare system call stores one word at its last argument, which is valid for one.
    check(unsafe { libc::syscall(libc::SYS_ptrace, libc::PTRACE_PEEKDATA, pid, pointer(address), place) })?;
    Ok(word)
}

/// Writes a word of the kernel's `struct user`: the debug registers live there.
#[cfg(target_arch = "x86_64")]
pub(super) fn write_user(pid: pid_t, offset: usize, word: u64) -> io::Result<()> {
    trace(libc::PTRACE_POKEUSER, pid, offset as u64, word)
}

/// Reads a word of the kernel's `struct user`.
#[cfg(target_arch = "x86_64")]
pub(super) fn read_user(pid: pid_t, offset: usize) -> io::Result<u64> {
    let mut word = 0_u64;
    let (address, place) = (pointer(offset as u64), &raw mut word);
    // SAFETY: the bare system call stores one word at its last argument, which is valid for one.
    check(unsafe { libc::syscall(libc::SYS_ptrace, libc::PTRACE_PEEKUSER, pid, address, place) })?;
    Ok(word)
}

/// Where debug register `number` is in the kernel's `struct user`.
#[cfg(target_arch = "x86_64")]
pub(super) const fn debug_register(number: usize) -> usize {
    std::mem::offset_of!(libc::user, u_debugreg) + number * size_of::<u64>()
}

/// The `si_code` of the signal that a tracee is about to get: above 0 when the kernel itself has made it.
pub(super) fn signal_code(pid: pid_t) -> io::Result<c_int> {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the request stores a siginfo_t at its last argument, which is a valid place for one.
    check(unsafe {
        libc::ptrace(libc::PTRACE_GETSIGINFO, pid, ptr::null_mut::<c_void>(), info.as_mut_ptr())
    })?;
    // SAFETY: zeroed, and then filled by the call above; every byte pattern is a valid one.
    Ok(unsafe { info.assume_init() }.si_code)
}

/// The tracee blocks no signal any more.
pub(super) fn unblock_signals(pid: pid_t) -> io::Result<()> {
    const SETSIGMASK: c_uint = 0x420b;
    let none = 0_u64;
    // SAFETY: the request reads the number of bytes in its third argument from its last one, which has that many.
    check(unsafe { libc::ptrace(SETSIGMASK, pid, size_of::<u64>(), &raw const none) }).map(drop)
}

/// Sets the general registers of a stopped tracee.
pub(super) fn set_registers(pid: pid_t, registers: &RegisterSet) -> io::Result<()> {
    let mut words = registers.words;
    let iov_len = registers.length_bytes.min(size_of_val(&words));
    let mut vector = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len };
    let set = pointer(u64::from(libc::NT_PRSTATUS.cast_unsigned()));
    // SAFETY: the vector gives `words` and at most its length; the kernel only reads it.
    check(unsafe { libc::ptrace(libc::PTRACE_SETREGSET, pid, set, &raw mut vector) }).map(drop)
}

/// Collects the wait status of `pid`; `None` if there is none. With `wait`, blocks until there is one.
pub(super) fn collect(pid: pid_t, wait: bool) -> io::Result<Option<c_int>> {
    ptrace::wait(pid, libc::__WALL | libc::WUNTRACED | if wait { 0 } else { libc::WNOHANG })
}

/// Reads pieces (address, length) of another process's memory into `into`, in sequence. Stops at the first unreadable
/// byte and returns the number of bytes. At most [`MOST_PIECES`] of `pieces` are read.
pub(super) fn read_pieces(pid: pid_t, pieces: &[(u64, usize)], into: &mut [u8]) -> io::Result<usize> {
    let mut room = into.len();
    let mut remote = Vec::with_capacity(pieces.len().min(MOST_PIECES));
    for &(address, length) in pieces.iter().take(MOST_PIECES) {
        let iov_len = length.min(room);
        room -= iov_len;
        remote.push(libc::iovec { iov_base: pointer(address), iov_len });
    }
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() - room };
    // SAFETY: `local` is a part of `into`, which is borrowed exclusively; `remote` is only looked up in the other
    // process.
    let read = unsafe {
        libc::process_vm_readv(pid, &raw const local, 1, remote.as_ptr(), remote.len() as libc::c_ulong, 0)
    };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// Makes `command` write its pid to `say` once it is a process, wait for a byte on `gate`, and die with the thread
/// that starts it. Until exec it has every signal blocked, so that none can stop it before it is traced; see
/// [`unblock_signals`].
pub(super) fn wait_at_gate(command: &mut Command, say: BorrowedFd<'_>, gate: BorrowedFd<'_>) {
    let (say, gate, parent) = (say.as_raw_fd(), gate.as_raw_fd(), std::process::id());
    // SAFETY: `pass_gate` makes async-signal-safe calls only, as the closure between fork and exec must.
    unsafe { command.pre_exec(move || pass_gate(say, gate, parent)) };
}

fn pass_gate(say: c_int, gate: c_int, parent: u32) -> io::Result<()> {
    block_signals()?;
    // SAFETY: takes integers only.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }.into())?;
    // A parent that died before the line above sends nothing.
    // SAFETY: takes nothing and cannot fail.
    if unsafe { libc::getppid() }.cast_unsigned() != parent {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    let own = std::process::id().to_ne_bytes();
    // SAFETY: the buffer is valid for its length.
    check(unsafe { libc::write(say, own.as_ptr().cast(), own.len()) } as c_long)?;
    let mut byte = 0_u8;
    // SAFETY: a valid place for one byte.
    match unsafe { libc::read(gate, (&raw mut byte).cast(), 1) } {
        1 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EPIPE)),
    }
}

fn block_signals() -> io::Result<()> {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the pointer is valid for a signal set, which this call fills.
    check(unsafe { libc::sigfillset(all.as_mut_ptr()) }.into())?;
    // SAFETY: the set was filled above; the old one is not requested.
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), ptr::null_mut()) }.into()).map(drop)
}
