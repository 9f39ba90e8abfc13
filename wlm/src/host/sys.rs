//! System calls of the Host interface.
#![expect(unsafe_code, reason = "system calls")]

pub(super) mod grandchild;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The effective user id.
pub(super) fn effective_uid() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// Makes `command` start as a grandchild in its own session, whose parent has ended already. Its pid is written to
/// `tell`, as the bytes of a C `long`.
pub(super) fn fork_once_more(command: &mut Command, tell: OwnedFd) {
    let leave = move || leave_parent(tell.as_raw_fd());
    // SAFETY: `leave_parent` makes async-signal-safe system calls only, as the closure between fork and exec must.
    unsafe { command.pre_exec(leave) };
}

/// Gives `command` these limits of open files.
pub(super) fn limit_open_files(command: &mut Command, soft: libc::rlim_t, hard: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    let set = move || {
        // SAFETY: `limit` is a valid rlimit.
        match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes one async-signal-safe system call only, as it must between fork and exec.
    unsafe { command.pre_exec(set) };
}

/// Resets all signals to their defaults and unblocks them: a program inherits both. With SIGCHLD ignored, a helper
/// would never learn of its children's ends; with SIGTERM ignored, its own could not be requested. Signals that a
/// library's threads block must not be blocked in a launcher and all its ranks.
///
/// Async-signal-safe.
pub(super) fn default_signals() {
    // The kernel's sigaction: the default action, no flags, an empty mask. A raw system call is needed, because the C
    // library refuses two signals that it uses itself.
    let default = [0_u64; 8];
    for signal in 1..=64 {
        // SAFETY: `default` holds a whole sigaction, and the old one is not requested; fails for SIGKILL and SIGSTOP
        // only.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                std::ptr::null_mut::<u64>(),
                size_of::<u64>(),
            );
        }
    }
    let none = 0_u64;
    // SAFETY: the kernel's signal set is one such word; the old one is not requested.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const none,
            std::ptr::null_mut::<u64>(),
            size_of::<u64>(),
        );
    }
}

/// Runs in the child between fork and exec: forks again, by the bare system call, because the C library's fork runs
/// handlers that are not async-signal-safe. The middle process ends at once; its child continues to exec.
fn leave_parent(tell: libc::c_int) -> io::Result<()> {
    // SAFETY: clone with only SIGCHLD and no new stack is fork; all pointer arguments are null and unused. The child's
    // memory is a copy.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: setsid has no preconditions; it fails only for a group leader, which a fresh child is not.
            unsafe { libc::setsid() };
            default_signals();
            Ok(())
        }
        _ => {
            let bytes = pid.to_ne_bytes();
            // SAFETY: `bytes` is a live array of that length.
            unsafe { libc::write(tell, bytes.as_ptr().cast(), bytes.len()) };
            // SAFETY: _exit ends the process without running anything of it.
            unsafe { libc::_exit(0) }
        }
    }
}

/// A descriptor that becomes readable when the process ends.
pub(super) fn pidfd_open(pid: libc::pid_t) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: pidfd_open takes two integers and touches no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Closes every descriptor from `first` on.
pub(super) fn close_from(first: libc::c_int) -> io::Result<()> {
    // SAFETY: close_range takes three integers; that nothing in this process uses the descriptors is the caller's
    // promise.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_int::MAX, 0) };
    if closed == 0 {
        return Ok(());
    }
    // Linux before 5.9 does not have the call, and some containers forbid it.
    let listed = std::fs::read_dir("/proc/thread-self/fd")?;
    let open: Vec<libc::c_int> =
        listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd >= first) {
        // SAFETY: takes an integer; the caller's promise is as above. The list's own descriptor is closed already.
        unsafe { libc::close(fd) };
    }
    Ok(())
}

/// SIGKILL to the process of a pidfd. An ended process is not an error.
pub(super) fn kill_process(pidfd: &impl AsFd) -> io::Result<()> {
    signal_process(pidfd, libc::SIGKILL)
}

/// Sends a signal to the process of a pidfd. An ended process is not an error.
pub(super) fn signal_process(pidfd: &impl AsFd, signal: libc::c_int) -> io::Result<()> {
    match send(pidfd, signal) {
        Err(gone) if gone.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        sent => sent,
    }
}

/// Whether the process of a pidfd is still running.
pub(super) fn is_there(pidfd: &impl AsFd) -> bool {
    send(pidfd, 0).is_ok()
}

fn send(pidfd: &impl AsFd, signal: libc::c_int) -> io::Result<()> {
    let fd = pidfd.as_fd().as_raw_fd();
    // SAFETY: pidfd_send_signal takes a descriptor, a number, no siginfo and no flags; it touches no memory of ours.
    let sent = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, std::ptr::null::<libc::siginfo_t>(), 0)
    };
    if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Forks: returns the child's pid in the parent, and None in the child. Call this while there is one thread.
pub(super) fn fork() -> io::Result<Option<libc::pid_t>> {
    // SAFETY: with one thread, no other thread holds a lock that would stay locked in the child. So the child may
    // continue like any program.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        child => Ok(Some(child)),
    }
}

/// Ends this process, and runs nothing of it meanwhile.
pub(super) fn exit_at_once(code: libc::c_int) -> ! {
    // SAFETY: takes an integer and does not return.
    unsafe { libc::_exit(code) }
}

/// Makes a write to a closed pipe an error, as the standard library does at the start of each program.
pub(super) fn ignore_closed_pipes() {
    // SAFETY: ignores one signal; no handler is set or replaced.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Makes orphaned descendants of this process its children.
pub(super) fn become_subreaper() {
    // SAFETY: takes integers only.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Gives this thread a name of at most 15 bytes.
pub(super) fn set_name(name: &std::ffi::CStr) {
    // SAFETY: a C string, of which the kernel copies 15 bytes at most.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// Duplicates a descriptor onto `target`.
pub(super) fn put_at(fd: &impl AsFd, target: libc::c_int) {
    // SAFETY: takes integers only; that nothing else uses `target` is the caller's promise.
    unsafe { libc::dup2(fd.as_fd().as_raw_fd(), target) };
}

/// Reaps a child if it has ended. Returns its raw status.
pub(super) fn reap(pid: libc::pid_t) -> Option<libc::c_int> {
    let mut status = 0;
    // SAFETY: `status` is a valid place for one int while the call runs.
    let ended = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
    (ended == pid).then_some(status)
}

/// Sends SIGKILL to a process group, if it exists.
pub(super) fn kill_group(group: libc::pid_t) {
    // SAFETY: killpg takes two integers and touches no memory of ours.
    unsafe { libc::killpg(group, libc::SIGKILL) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From now on, this thread has no system call `number`, as on a kernel that is older than the call.
    fn remove_call(number: libc::c_long) {
        let statement = |code: u32, if_not, k| {
            let code = u16::try_from(code).unwrap();
            libc::sock_filter { code, jt: 0, jf: if_not, k }
        };
        let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
        let mut filter = [
            // The number is the first field of what a filter sees.
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
            statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, u32::try_from(number).unwrap()),
            statement(libc::BPF_RET | libc::BPF_K, 0, refused),
            statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
        // SAFETY: takes integers only.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
        // SAFETY: `program` points to four statements, which outlive the call.
        let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
        assert_eq!(set, 0, "{}", io::Error::last_os_error());
    }

    /// The open descriptors of this thread, and the one that reads them.
    fn read_open() -> Vec<String> {
        let listed = std::fs::read_dir("/proc/thread-self/fd").unwrap();
        let mut names: Vec<String> =
            listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn descriptors_are_closed_on_a_kernel_without_a_call_for_it() {
        let thread = std::thread::spawn(|| {
            // SAFETY: takes an integer only. This thread owns no descriptor; it gets a table of its own.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
            remove_call(libc::SYS_close_range);
            for _ in 0..100 {
                // SAFETY: takes integers only.
                assert!(unsafe { libc::dup(1) } > 2);
            }
            close_from(3).unwrap();
            read_open()
        });
        assert_eq!(thread.join().unwrap(), ["0", "1", "2", "3"], "3 is what reads them");
    }
}
