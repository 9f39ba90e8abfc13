//! The one way in which a rank becomes held. All of gantry relies on it.
//!
//! The thread seizes the rank while it waits at its gate. The rank then executes its program, and the kernel stops it
//! after `execve`: everything is mapped and nothing has run. There the thread queues SIGSTOP and detaches. The signal
//! takes effect on the rank's way to its first instruction. The result is an ordinary stopped process without a tracer.
//! Any debugger can attach to it, and SIGCONT releases it.
//!
//! All of this must happen on one thread. Until the rank is held no other thread may wait for it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::error::HoldFailure;
use super::procfs::{self, Width};
use super::sys::{self, RegisterSet};
use super::{ExitStatus, parse_end};

/// Proof that a rank is held: it is stopped, it is not traced, and its next instruction is its first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldProof {
    /// Its program counter, read in the stop after `execve`.
    pub(crate) counter: u64,
    /// Where the kernel starts the program: the loader's entry, or a static program's own. Equal to `counter`.
    /// `None` for a program that its user may run but not read: there the stop after `execve` is the proof.
    pub(crate) entry: Option<u64>,
    /// The state in `/proc/PID/stat`, `T`.
    pub(crate) state: char,
}

/// Records a rank's end before its pid is free for another process.
pub(super) trait EndWatch {
    /// Collects a status of `pid`, if there is one. After a reported end, `pid` must not be signalled any more.
    fn collect(&self, pid: i32) -> io::Result<Option<i32>>;
}

/// Report of a traced process.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Ended(ExitStatus),
    Exec,
    /// It has made a thread or a process. That one is traced too.
    Child,
    /// A signal is about to be delivered.
    Signal(i32),
    /// It has joined a group-stop.
    Group,
    /// A stop that ptrace itself caused, with no signal to deliver.
    Other,
}

/// The counter of a process in the stop after `execve`, and the entry of its program.
pub(super) type ExecPlace = (u64, Option<u64>);

/// Waits until the seized `pid` is in the stop after `execve`, and leaves it stopped there.
pub(super) fn run_to_exec(pid: i32, watch: &impl EndWatch) -> Result<ExecPlace, HoldFailure> {
    loop {
        let gone_on = match classify(next(pid, watch)?) {
            Stop::Ended(status) => return Err(HoldFailure::Ended(status)),
            Stop::Exec => break,
            Stop::Signal(signal) => sys::trace_continue(pid, signal),
            Stop::Group => sys::trace_listen(pid),
            Stop::Other | Stop::Child => sys::trace_continue(pid, 0),
        };
        unless_gone(gone_on).map_err(HoldFailure::of("let it go on to its program"))?;
    }
    leave_stopped(pid)
}

/// In the stop after `execve`: reads where that is, queues SIGSTOP and stops tracing.
pub(super) fn leave_stopped(pid: i32) -> Result<ExecPlace, HoldFailure> {
    let registers = sys::trace_registers(pid).map_err(HoldFailure::of("read its registers"))?;
    let (counter, width) = program_counter(&registers)
        .ok_or_else(|| HoldFailure::of("read its registers")(io::Error::from(io::ErrorKind::InvalidData)))?;
    let entry = entry(pid, width).map_err(HoldFailure::of("read where its program starts"))?;
    if let Some(entry) = entry.filter(|entry| *entry != counter) {
        return Err(HoldFailure::NotAtEntry { counter, entry });
    }
    // Ptrace cannot inject a signal at this stop, so `kill` sends it. The kernel handles it before the first
    // instruction.
    sys::kill(pid, libc::SIGSTOP).map_err(HoldFailure::of("send it SIGSTOP"))?;
    sys::trace_detach(pid, 0).map_err(HoldFailure::of("stop tracing it"))?;
    Ok((counter, entry))
}

/// Waits for the stop that [`leave_stopped`] has requested, and checks the result.
pub(super) fn prove_held(
    pid: i32,
    place: ExecPlace,
    watch: &impl EndWatch,
) -> Result<HeldProof, HoldFailure> {
    if let Some(ended) = parse_end(next(pid, watch)?) {
        return Err(HoldFailure::Ended(ended));
    }
    look_held(pid, place)
}

/// Checks that `pid`, whose counter was `counter` after `execve`, is stopped there and not traced.
pub(super) fn look_held(pid: i32, (counter, entry): ExecPlace) -> Result<HeldProof, HoldFailure> {
    let state = procfs::read_stat(pid).map_err(HoldFailure::of("read its state"))?.state;
    // A caller asks again and again until it is stopped. Its tracer does not matter before that.
    let tracer = match state {
        'T' | 't' => procfs::read_status(pid).map_err(HoldFailure::of("read its tracer"))?.tracer,
        _ => 0,
    };
    if state != 'T' || tracer != 0 {
        return Err(HoldFailure::NotStopped { state, tracer });
    }
    // Some kernels lack this file, and some processes may not be read; the registers were read anyway.
    match procfs::read_syscall_pc(pid) {
        Ok(Some(now)) if now != counter => Err(HoldFailure::NotAtEntry { counter: now, entry: counter }),
        _ => Ok(HeldProof { counter, entry, state }),
    }
}

fn next(pid: i32, watch: &impl EndWatch) -> Result<i32, HoldFailure> {
    loop {
        sys::wait_for_news(pid).map_err(HoldFailure::of("wait for it"))?;
        // The status may have changed since (a SIGKILL in a stop). Then another report follows.
        if let Some(status) = watch.collect(pid).map_err(HoldFailure::of("wait for it"))? {
            return Ok(status);
        }
    }
}

/// A tracee that was killed cannot go on; the next wait reports its end.
fn unless_gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => other,
    }
}

pub(super) fn classify(status: i32) -> Stop {
    if let Some(ended) = parse_end(status) {
        return Stop::Ended(ended);
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        0 => Stop::Signal(signal),
        libc::PTRACE_EVENT_EXEC => Stop::Exec,
        libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => Stop::Child,
        libc::PTRACE_EVENT_STOP => match signal {
            libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => Stop::Group,
            _ => Stop::Other,
        },
        _ => Stop::Other,
    }
}

/// Where the kernel starts the program that `pid` has just become.
pub(super) fn entry(pid: i32, width: Width) -> io::Result<Option<u64>> {
    match read_entry(pid, width) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        other => other,
    }
}

fn read_entry(pid: i32, width: Width) -> io::Result<Option<u64>> {
    let auxv = procfs::read_auxv(pid, width)?;
    let Some(base) = auxv.loader_base else { return Ok(Some(auxv.entry)) };
    let mut header = [0; 32];
    File::open(format!("/proc/{pid}/mem"))?.read_exact_at(&mut header, base)?;
    Ok(loader_entry(&header, base))
}

/// The entry of the loader whose ELF header is at `base`, in this machine's byte order.
fn loader_entry(header: &[u8; 32], base: u64) -> Option<u64> {
    const ENTRY: usize = 24;
    let field = header.get(ENTRY..)?;
    let offset = match header {
        [0x7f, b'E', b'L', b'F', 1, ..] => u32::from_ne_bytes(field.first_chunk().copied()?).into(),
        [0x7f, b'E', b'L', b'F', 2, ..] => u64::from_ne_bytes(field.first_chunk().copied()?),
        _ => return None,
    };
    Some(base.wrapping_add(offset))
}

/// The program counter among the general registers, and how wide the process's addresses are.
fn program_counter(registers: &RegisterSet) -> Option<(u64, Width)> {
    // Number of the register in the kernel's user_regs_struct, and how many there are.
    #[cfg(target_arch = "x86_64")]
    const WIDE: (usize, usize) = (16, 27);
    #[cfg(target_arch = "x86_64")]
    const NARROW: (usize, usize) = (12, 17);
    #[cfg(target_arch = "aarch64")]
    const WIDE: (usize, usize) = (32, 34);
    #[cfg(target_arch = "aarch64")]
    const NARROW: (usize, usize) = (15, 18);
    counter_of(&registers.bytes(), WIDE, NARROW)
}

fn counter_of(bytes: &[u8], wide: (usize, usize), narrow: (usize, usize)) -> Option<(u64, Width)> {
    if bytes.len() == wide.1 * 8 {
        let counter = bytes.get(wide.0 * 8..)?.first_chunk().copied()?;
        Some((u64::from_ne_bytes(counter), Width::Bits64))
    } else if bytes.len() == narrow.1 * 4 {
        let counter = bytes.get(narrow.0 * 4..)?.first_chunk().copied()?;
        Some((u32::from_ne_bytes(counter).into(), Width::Bits32))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_event(status: i32, expected: &Stop) {
        assert_eq!(&classify(status), expected, "{status:#x}");
    }

    #[test]
    fn stops_are_told_apart() {
        let stop = |signal: i32, event: i32| 0x7f | (signal << 8) | (event << 16);
        check_event(0x0300, &Stop::Ended(ExitStatus::Code(3)));
        check_event(9, &Stop::Ended(ExitStatus::Signal(gantry_types::signal::Signal::KILL)));
        check_event(34, &Stop::Ended(ExitStatus::Signal(gantry_types::signal::Signal::new(34).unwrap())));
        check_event(stop(libc::SIGTRAP, libc::PTRACE_EVENT_EXEC), &Stop::Exec);
        check_event(stop(libc::SIGUSR1, 0), &Stop::Signal(libc::SIGUSR1));
        check_event(stop(libc::SIGSTOP, 0), &Stop::Signal(libc::SIGSTOP));
        check_event(stop(libc::SIGSTOP, libc::PTRACE_EVENT_STOP), &Stop::Group);
        check_event(stop(libc::SIGTTIN, libc::PTRACE_EVENT_STOP), &Stop::Group);
        check_event(stop(libc::SIGTRAP, libc::PTRACE_EVENT_STOP), &Stop::Other);
    }

    #[track_caller]
    fn check_loader(class: u8, magic: u8, expected: Option<u64>) {
        let mut header = [0; 32];
        header[..5].copy_from_slice(&[magic, b'E', b'L', b'F', class]);
        header[24..28].copy_from_slice(&0x1234_u32.to_ne_bytes());
        assert_eq!(loader_entry(&header, 0x7000_0000), expected);
    }

    #[test]
    fn a_loader_starts_at_its_base_and_offset() {
        check_loader(1, 0x7f, Some(0x7000_1234));
        check_loader(2, 0x7f, Some(0x7000_1234));
        check_loader(2, 0, None);
        check_loader(3, 0x7f, None);
    }

    #[test]
    fn the_length_of_the_registers_tells_their_width() {
        let bytes: Vec<u8> = (0_u8..=255).collect();
        assert_eq!(counter_of(&bytes[..16], (1, 2), (2, 3)), Some((0x0f0e_0d0c_0b0a_0908, Width::Bits64)));
        assert_eq!(counter_of(&bytes[..12], (1, 2), (2, 3)), Some((0x0b0a_0908, Width::Bits32)));
        assert_eq!(counter_of(&bytes[..20], (1, 2), (2, 3)), None);
    }
}
