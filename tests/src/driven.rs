//! Launchers that a test drives to their breakpoint, as the guard does.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read};
use std::time::Duration;

use gantry_types::error::Failure;
use gantry_types::status::ExitStatus;
use gantry_wlm::mpir::{AtBreakpoint, Breakpoints, Driver, Event, LauncherCommand, MpirError, Table};

use crate::World;

const SOON: Duration = Duration::from_secs(20);

/// A launcher that is driven, and its standard streams.
#[derive(Debug)]
pub struct Driven {
    /// Drives it.
    pub driver: Driver,
    /// The launcher's.
    pub pid: i32,
    /// Its first thread is stopped at its breakpoint.
    pub stands: bool,
    /// Its standard input. None: the test has closed it.
    pub stdin: Option<PipeWriter>,
    /// Its standard output.
    pub stdout: BufReader<PipeReader>,
    /// The same, of its errors.
    pub stderr: PipeReader,
}

/// How a launcher is started, other than its command line.
#[derive(Debug, Clone, Copy)]
pub struct How {
    /// The action at its breakpoint.
    pub at_breakpoint: AtBreakpoint,
    /// How that is set.
    pub breakpoints: Breakpoints,
    /// How long it may take until its ranks are there.
    pub deadline: Duration,
}

/// Held, and left at once.
pub const LEAVE: How =
    How { at_breakpoint: AtBreakpoint::LeaveAtOnce, breakpoints: Breakpoints::Detect, deadline: SOON };
/// Held, and standing there.
pub const STAY: How = How { at_breakpoint: AtBreakpoint::Stay, ..LEAVE };

impl Driven {
    /// Starts it, in the world's own directory and environment. Waits until it has a pid.
    #[must_use]
    pub fn start<A: Into<OsString> + Clone>(world: &World, argv: &[A], how: How) -> Self {
        let ((stdin, their_stdin), (stdout, their_stdout)) = (pipe(), pipe());
        let (stderr, their_stderr) = pipe();
        let mut env = world.variables();
        env.push(("PATH".into(), "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".into()));
        let mut driver = Driver::start(LauncherCommand {
            argv: argv.iter().cloned().map(Into::into).collect(),
            env,
            cwd: world.work_dir(),
            stdin: stdin.into(),
            stdout: their_stdout.into(),
            stderr: their_stderr.into(),
            at_breakpoint: how.at_breakpoint,
            breakpoints: how.breakpoints,
            deadline: how.deadline,
        })
        .expect("threads");
        let pid = match driver.next_event(SOON) {
            Some(Event::Started(pid)) => pid.get(),
            other => panic!("{other:?} instead of a start"),
        };
        Self { driver, pid, stands: false, stdin: Some(their_stdin), stdout: BufReader::new(stdout), stderr }
    }

    /// Its ranks, when they are held.
    #[track_caller]
    pub fn held(&mut self) -> Table {
        match self.driver.next_event(SOON) {
            Some(Event::Held { table, stands }) => {
                self.stands = stands;
                table
            }
            Some(Event::Failed(error)) => panic!("{}", Failure::from(&error)),
            other => panic!("{other:?} instead of held ranks"),
        }
    }

    /// The failure, and how the launcher ended.
    #[track_caller]
    pub fn failed(&mut self) -> (MpirError, ExitStatus) {
        match self.driver.next_event(SOON) {
            Some(Event::Failed(error)) => (error, self.ended()),
            other => panic!("{other:?} instead of a failure"),
        }
    }

    /// Its exit status, which is the driver's last event.
    #[track_caller]
    pub fn ended(&mut self) -> ExitStatus {
        let ended = self.driver.next_event(SOON);
        assert!(self.driver.next_event(SOON).is_none(), "something after {ended:?}");
        match ended {
            Some(Event::Ended(status)) => status,
            other => panic!("{other:?} instead of an end"),
        }
    }

    /// The next line of its output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("its output");
        line.trim_end().to_owned()
    }

    /// All lines that are left of it.
    pub fn rest(&mut self) -> Vec<String> {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).expect("its output");
        text.lines().map(str::to_owned).collect()
    }
}

fn pipe() -> (PipeReader, PipeWriter) {
    io::pipe().expect("a pipe")
}
