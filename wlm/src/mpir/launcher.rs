//! Runs a launcher from its first instruction to its breakpoint.
//!
//! The started program need not be the launcher: it may be a script, or a small program that sets up the environment
//! and becomes the launcher. So every program that the process becomes is examined. One with the symbols in its
//! executable gets the breakpoint before its first instruction. Its libraries are not loaded at that time. So other
//! programs run until the loader hands over, and then all loaded files are examined.
//!
//! A script may also start the launcher as a child. So an interpreter's descendants are traced, until one becomes a
//! program with the symbols in its executable. That one is run to its breakpoint, while the others go on. If it ends
//! without ranks, the next one is taken.
//!
//! A program without symbols that is not an interpreter, and forks, will not become the launcher: it starts ranks. It
//! is killed at that point, before its child has run, because a held app must not run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use gantry_types::status::ExitStatus;

use serde::{Deserialize, Serialize};

use super::attach::{Image, table_of, text_of};
use super::breakpoint::{self, Breakpoint, Breakpoints, Kind};
use super::detour;
use super::error::MpirError;
use super::memory::{Memory, ProcessMemory, Width};
use super::symbols::{Symbol, Symbols};
use super::sys;
use super::tracee::{Errand, Halt, Stop, Tracee, call, is_gone};
use super::{Table, TableError};
use crate::host::Host;

/// Values of `MPIR_debug_state`.
const SPAWNED: i32 = 1;
const ABORTING: i32 = 2;

/// The action at a launcher's breakpoint, once its table is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AtBreakpoint {
    /// The function returns at once without effect, and the launcher continues untraced. This is right if that function
    /// releases the ranks: they stay stopped, while the launcher serves its daemons. If the return address cannot be
    /// found, this is as [`AtBreakpoint::Stay`].
    LeaveAtOnce,
    /// The launcher's first thread stays there until [`Order::Release`](super::Order::Release).
    Stay,
    /// [`AtBreakpoint::LeaveAtOnce`] if the launcher reports that it stops its ranks before their first instruction,
    /// else [`AtBreakpoint::Stay`]: ranks that only wait for the launcher would continue with it.
    AsItHolds,
    /// As [`AtBreakpoint::AsItHolds`], for a launcher whose threads may all call the function, while only the first
    /// thread is traced. The other threads run a replacement that notifies the first thread and returns. If ranks are
    /// not stopped before their first instruction, only the first thread counts.
    AsItHoldsInAllThreads,
}

/// Why a launcher's ranks are not held: an error with its step, or another reason.
#[derive(Debug)]
pub(super) enum Trouble {
    Halted(Halt),
    Failed(MpirError),
    NoSymbols,
    Aborted(String),
}

impl Trouble {
    /// As [`Halt::is_gone`], or its end is known.
    pub(super) fn is_end(&self) -> bool {
        match self {
            Self::Halted(halt) => matches!(halt, Halt::Ended(_)) || halt.is_gone(),
            Self::Failed(MpirError::Look { source, .. }) => is_gone(source),
            _ => false,
        }
    }
}

impl From<Halt> for Trouble {
    fn from(halt: Halt) -> Self {
        Self::Halted(halt)
    }
}

impl From<TableError> for Trouble {
    fn from(error: TableError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<MpirError> for Trouble {
    fn from(error: MpirError) -> Self {
        Self::Failed(error)
    }
}

/// A launcher that runs towards its breakpoint.
#[derive(Debug)]
pub(super) struct Launcher<'a> {
    pub(super) tracee: Tracee,
    host: &'a dyn Host,
    kind: Kind,
    breakpoint: Option<Breakpoint>,
    /// Files without the symbols. Empty once the symbols are found.
    pub(super) inspected: Vec<PathBuf>,
    until: Instant,
}

impl<'a> Launcher<'a> {
    /// A tracee that is stopped before the first instruction of its first program, with all signals blocked.
    pub(super) fn new(
        mut tracee: Tracee,
        host: &'a dyn Host,
        breakpoints: Breakpoints,
        until: Instant,
    ) -> Result<Self, (Tracee, Halt)> {
        let kind = match breakpoints {
            Breakpoints::Detect => breakpoint::detect_kind(&mut tracee, until),
            Breakpoints::ChangeCode => Ok(Kind::Software),
        };
        let unblocked = |kind| sys::unblock_signals(tracee.raw()).map(|()| kind);
        match kind.and_then(|kind| unblocked(kind).map_err(call("unblock its signals"))) {
            Ok(kind) => Ok(Self { tracee, host, kind, breakpoint: None, inspected: Vec::new(), until }),
            Err(halt) => Err((tracee, halt)),
        }
    }

    /// Runs it to its breakpoint and reads its table. Then it stays there, or continues without its ranks, according to
    /// `then`; the second value tells whether it stays.
    pub(super) fn hold(&mut self, then: AtBreakpoint) -> Result<(Table, bool), Trouble> {
        loop {
            if let Some(table) = self.run_program(then)? {
                let leaves = match then {
                    AtBreakpoint::LeaveAtOnce => true,
                    AtBreakpoint::Stay => false,
                    AtBreakpoint::AsItHolds | AtBreakpoint::AsItHoldsInAllThreads => table.stops_before_main,
                };
                // Without a breakpoint it is stopped somewhere else, and there is no function to leave.
                let leaves =
                    leaves && (self.breakpoint.is_none() || breakpoint::leave_function(&self.tracee)?);
                if leaves {
                    self.release()?;
                }
                return Ok((table, !leaves));
            }
        }
    }

    /// From the breakpoint: lets the launcher continue.
    pub(super) fn release(&mut self) -> Result<(), Halt> {
        if let Some(breakpoint) = self.breakpoint.take() {
            breakpoint.clear(&mut self.tracee)?;
        }
        self.tracee.set_free()
    }

    /// Waits for its end without a timeout, and obeys orders.
    pub(super) fn serve_until_end(&mut self) -> ExitStatus {
        self.tracee.leave_others();
        loop {
            match self.tracee.next_errand() {
                Errand::Release => self.release_or_end(|_| Ok(true)),
                // If the function cannot be left, the launcher stays until it is released: continuing would release its
                // ranks.
                Errand::Leave => self.release_or_end(breakpoint::leave_function),
                Errand::Ended(status) => return status,
            }
        }
    }

    /// Ends the launcher if it cannot continue: it must not stay at the breakpoint for ever. One that was killed
    /// leaves its script alone.
    fn release_or_end(&mut self, may_go: impl FnOnce(&Tracee) -> Result<bool, Halt>) {
        let done = match may_go(&self.tracee) {
            Ok(true) => self.release(),
            Ok(false) => Ok(()),
            Err(halt) => Err(halt),
        };
        if done.is_err_and(|halt| !halt.is_gone()) {
            self.tracee.kill();
        }
    }

    /// Runs a program from its first instruction to its breakpoint. `None`: it has become another program.
    fn run_program(&mut self, then: AtBreakpoint) -> Result<Option<Table>, Trouble> {
        self.tracee.watch_forks(false)?;
        let image = Image::read(self.tracee.pid(), self.host)?;
        self.inspected.push(image.path.clone());
        let mut symbols = image.symbols();
        if !symbols.can_hold() {
            if !self.run_to_entry(image.entry)? {
                return Ok(None);
            }
            image.add_libraries(self.host, &mut symbols, &mut self.inspected)?;
        }
        if symbols.can_hold() {
            self.inspected.clear();
            let stops_ranks = symbols.get(Symbol::AcquiredPreMain).is_some();
            return match then {
                AtBreakpoint::AsItHoldsInAllThreads if stops_ranks => {
                    self.run_to_word(&symbols, image.elf.width)
                }
                _ => self.run_to_breakpoint(&symbols, image.elf.width),
            };
        }
        self.tracee.watch_forks(true)?;
        self.run_to_exec(is_interpreter(&image.path), then)
    }

    /// Runs to the program's entry. False: it has become another program before.
    fn run_to_entry(&mut self, entry: u64) -> Result<bool, Halt> {
        let breakpoint = Breakpoint::set(&mut self.tracee, self.kind, entry)?;
        self.breakpoint = Some(breakpoint);
        let hit = self.run_to(breakpoint)?;
        if hit {
            breakpoint.clear(&mut self.tracee)?;
        }
        self.breakpoint = None;
        Ok(hit)
    }

    /// Runs to the current breakpoint. False: it has become another program before, and the breakpoint is gone.
    fn run_to(&mut self, breakpoint: Breakpoint) -> Result<bool, Halt> {
        self.tracee.go_on(0)?;
        loop {
            match self.tracee.next_stop(self.until)? {
                Stop::Exec => return Ok(false),
                Stop::Trap if breakpoint.is_hit(&self.tracee)? => return Ok(true),
                Stop::Trap => self.tracee.go_on(libc::SIGTRAP)?,
                Stop::Word => self.tracee.go_on(0)?,
                Stop::Below(pid) => self.tracee.pass(pid)?,
                Stop::Fork { child, borrows } => {
                    let_child_go(child, (!borrows).then_some(breakpoint))?;
                    self.tracee.go_on(0)?;
                }
            }
        }
    }

    /// As [`Launcher::run_to_breakpoint`], for a launcher that may reach the breakpoint in any thread: the thread
    /// notifies this one and continues.
    fn run_to_word(&mut self, symbols: &Symbols, width: Width) -> Result<Option<Table>, Trouble> {
        let memory = ProcessMemory::new(self.tracee.pid());
        let place = |symbol| symbols.get(symbol).ok_or(Trouble::NoSymbols);
        breakpoint::write(self.tracee.raw(), place(Symbol::BeingDebugged)?, &1_i32.to_ne_bytes())
            .map_err(call("set MPIR_being_debugged"))?;
        let room = symbols.breakpoint_bytes();
        detour::set(&self.tracee, width, place(Symbol::Breakpoint)?, room)
            .map_err(call("change its MPIR_Breakpoint"))?;
        self.tracee.hear_word(detour::WORD);
        self.tracee.go_on(0)?;
        loop {
            match self.tracee.next_stop(self.until)? {
                Stop::Exec => {
                    self.tracee.hear_word(0);
                    return Ok(None);
                }
                Stop::Word => match self.table_at(&memory, symbols, width) {
                    // Another thread has not filled its part yet.
                    Err(Trouble::Failed(MpirError::Table(TableError::Missing { .. }))) => {}
                    Ok(None) => {}
                    other => return other,
                },
                Stop::Trap => {
                    self.tracee.go_on(libc::SIGTRAP)?;
                    continue;
                }
                Stop::Below(pid) => {
                    self.tracee.pass(pid)?;
                    continue;
                }
                Stop::Fork { child, .. } => let_child_go(child, None)?,
            }
            self.tracee.go_on(0)?;
        }
    }

    /// Reads the table at a call of the breakpoint's function. `None`: the launcher called it for another reason.
    fn table_at(
        &self,
        memory: &ProcessMemory,
        symbols: &Symbols,
        width: Width,
    ) -> Result<Option<Table>, Trouble> {
        let state = symbols.get(Symbol::DebugState).map_or(Ok(SPAWNED), |state| memory.int(state));
        match state.map_err(call("read MPIR_debug_state"))? {
            SPAWNED => Ok(Some(table_of(memory, width, symbols)?)),
            ABORTING => {
                let reason = text_of(memory, width, symbols.get(Symbol::AbortString));
                Err(Trouble::Aborted(reason.unwrap_or_else(|| "no reason given".to_owned())))
            }
            _ => Ok(None),
        }
    }

    fn run_to_breakpoint(&mut self, symbols: &Symbols, width: Width) -> Result<Option<Table>, Trouble> {
        let memory = ProcessMemory::new(self.tracee.pid());
        let place = |symbol| symbols.get(symbol).ok_or(Trouble::NoSymbols);
        let debugged = place(Symbol::BeingDebugged)?;
        breakpoint::write(self.tracee.raw(), debugged, &1_i32.to_ne_bytes())
            .map_err(call("set MPIR_being_debugged"))?;
        let mut breakpoint = Breakpoint::set(&mut self.tracee, self.kind, place(Symbol::Breakpoint)?)?;
        loop {
            self.breakpoint = Some(breakpoint);
            if !self.run_to(breakpoint)? {
                self.breakpoint = None;
                return Ok(None);
            }
            if let Some(table) = self.table_at(&memory, symbols, width)? {
                return Ok(Some(table));
            }
            // This call has another purpose, which does not matter here.
            breakpoint = breakpoint.step_over(&mut self.tracee, self.kind, self.until)?;
        }
    }

    /// Runs a program without symbols until it becomes another one. If it is a script, it may also start a launcher.
    fn run_to_exec(&mut self, is_script: bool, then: AtBreakpoint) -> Result<Option<Table>, Trouble> {
        self.tracee.go_on(0)?;
        loop {
            match self.tracee.next_stop(self.until)? {
                Stop::Exec => return Ok(None),
                Stop::Trap => self.tracee.go_on(libc::SIGTRAP)?,
                Stop::Word => self.tracee.go_on(0)?,
                Stop::Below(pid) => {
                    if let Some(table) = self.hold_below(pid, then)? {
                        return Ok(Some(table));
                    }
                }
                Stop::Fork { child, .. } if is_script => {
                    self.tracee.follow(child)?;
                    self.tracee.go_on(0)?;
                }
                Stop::Fork { child, .. } => {
                    // Neither of the two processes continues from here.
                    self.tracee.kill();
                    end_child(child);
                    return Err(Trouble::NoSymbols);
                }
            }
        }
    }

    /// Runs a descendant to its breakpoint if it has become a launcher. `None`: it is none, or has ended without ranks,
    /// as for `--version`.
    fn hold_below(&mut self, pid: i32, then: AtBreakpoint) -> Result<Option<Table>, Trouble> {
        match self.run_below(pid, then) {
            Ok(Some(table)) => return Ok(Some(table)),
            Err(trouble) if !(trouble.is_end() && self.tracee.leader_runs()) => return Err(trouble),
            Ok(None) | Err(_) => {}
        }
        self.breakpoint = None;
        self.tracee.control_leader();
        Ok(None)
    }

    fn run_below(&mut self, pid: i32, then: AtBreakpoint) -> Result<Option<Table>, Trouble> {
        self.tracee.control(pid)?;
        // A program that may not be read is none of the user's launchers.
        while Image::read(self.tracee.pid(), self.host).is_ok_and(|image| image.symbols().can_hold()) {
            if let Some(table) = self.run_program(then)? {
                return Ok(Some(table));
            }
        }
        self.tracee.pass(pid)?;
        Ok(None)
    }
}

/// Releases a child that was stopped at its birth: restores its code and detaches from it.
fn let_child_go(child: i32, breakpoint: Option<Breakpoint>) -> Result<(), Halt> {
    let step = "let a child go on";
    // The first stop comes without a request. The child may be killed at any time; then there is nothing to do.
    let Some(status) = sys::collect(child, true).map_err(call(step))? else { return Ok(()) };
    if !libc::WIFSTOPPED(status) {
        return Ok(());
    }
    let spared = breakpoint.map_or(Ok(()), |breakpoint| breakpoint.spare(child));
    match spared.and_then(|()| sys::detach(child, 0)) {
        Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(call(step)(error)),
        _ => Ok(()),
    }
}

fn end_child(child: i32) {
    // The tracer collects it first, and then its parent does.
    sys::kill(child, libc::SIGKILL).ok();
    while let Ok(Some(status)) = sys::collect(child, true) {
        if !libc::WIFSTOPPED(status) {
            return;
        }
    }
}

/// Whether this program is a script interpreter. Interpreters fork before they become the launcher.
fn is_interpreter(path: &Path) -> bool {
    const INTERPRETERS: [&str; 17] = [
        "sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "csh", "tcsh", "fish", "busybox", "python",
        "perl", "ruby", "tclsh", "lua", "php",
    ];
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // python3.11, ksh93, perl5.36.0
    let name = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || matches!(letter, '.' | '-'));
    INTERPRETERS.contains(&name)
}

/// Explains why the breakpoint was not reached. `words` is read only if needed.
pub(super) fn explain(
    trouble: Trouble,
    argv: &[OsString],
    inspected: &[PathBuf],
    words: impl Fn() -> String,
) -> MpirError {
    let argv = argv.to_vec();
    match trouble {
        Trouble::Failed(error) => error,
        Trouble::NoSymbols => MpirError::NoSymbols { argv, inspected: inspected.to_vec() },
        Trouble::Aborted(reason) => MpirError::Aborted { argv, reason, words: words() },
        Trouble::Halted(Halt::NotStarted(source)) => {
            MpirError::NotStarted { program: argv.into_iter().next().unwrap_or_default(), source }
        }
        Trouble::Halted(Halt::Ended(status)) => {
            MpirError::Ended { argv, status, words: words(), inspected: inspected.to_vec() }
        }
        Trouble::Halted(Halt::Deadline) => MpirError::TimedOut { argv, words: words() },
        Trouble::Halted(Halt::Ordered) => MpirError::GivenUp { argv },
        Trouble::Halted(Halt::Call { step, source }) => MpirError::Trace { argv, step, source },
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc;
    use std::time::Duration;

    use gantry_types::signal::Signal;

    use super::*;

    #[test]
    fn a_call_to_one_that_was_killed_in_its_stop_says_that_it_has_ended() {
        let (news, inbox) = mpsc::channel();
        let until = Instant::now() + Duration::from_secs(20);
        #[expect(
            clippy::disallowed_methods,
            reason = "a process that is killed before its first instruction"
        )]
        let command = Command::new("/bin/true");
        let mut tracee = Tracee::start(command, news, inbox, until).unwrap();
        tracee.kill();
        let halt = tracee.watch_forks(true).unwrap_err();
        assert!(halt.is_gone() && Trouble::from(halt).is_end());
        assert_eq!(tracee.wait_end(until), ExitStatus::Signal(Signal::KILL));
    }

    #[test]
    fn interpreters_are_known_with_their_versions() {
        let check = |path: &str, expected| assert_eq!(is_interpreter(Path::new(path)), expected, "{path}");
        for path in ["/bin/sh", "/usr/bin/python3.11", "/usr/bin/perl5.36.0", "/usr/bin/ksh93", "/bin/bash"] {
            check(path, true);
        }
        for path in ["/usr/bin/env", "/usr/bin/mpiexec.hydra", "/usr/bin/launch.sh2x", "/"] {
            check(path, false);
        }
    }
}
