//! A launcher under the guard's control, as under a debugger: it reports where its ranks are and leaves them stopped.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use gantry_types::error::{Failure, Kind};
use gantry_types::id::Pid;
use gantry_types::signal::Signal;
use gantry_wlm::mpir::{self, Breakpoints, Driver, LauncherCommand, MpirError, Order};

use crate::policy::Event;
use gantry_guard::protocol::{FromGuard, HeldRanks, ProcessId, StartLauncher};

/// A driven launcher. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Driven {
    id: ProcessId,
    driver: Driver,
    /// Its pid, once it runs.
    pid: Option<Pid>,
    /// Its pidfd, which never refers to another process.
    process: Option<OwnedFd>,
    /// It is stopped at its breakpoint, and its ranks wait for it.
    stands: bool,
    ended: bool,
}

/// News of the launcher.
#[derive(Debug)]
pub(crate) enum News {
    /// An event for the policy.
    Event(Event),
    /// A message for the tool.
    Message(FromGuard),
}

impl Driven {
    /// Starts it with the descriptors that came for it, and returns the pipes to drain later.
    ///
    /// # Errors
    /// A thread cannot start, or its descriptors have not come.
    pub(crate) fn start(
        order: &StartLauncher,
        descriptors: &mut VecDeque<OwnedFd>,
    ) -> Result<(Self, Vec<File>), Failure> {
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (descriptors.pop_front(), descriptors.pop_front(), descriptors.pop_front())
        else {
            return Err(Failure::new(Kind::Protocol, "start a launcher: its descriptors did not arrive"));
        };
        let pipes = descriptors.drain(..).map(File::from).collect();
        let drive =
            order.driven.ok_or_else(|| Failure::new(Kind::Protocol, "start a launcher: not to be driven"))?;
        let driver = Driver::start(LauncherCommand {
            argv: order.argv.clone(),
            env: order.env.clone(),
            cwd: PathBuf::from(&order.cwd),
            stdin,
            stdout,
            stderr,
            at_breakpoint: drive.at_breakpoint,
            breakpoints: Breakpoints::default(),
            deadline: drive.timeout,
        });
        let driver = driver.map_err(|error| {
            Failure::new(Kind::LauncherFailed, format!("cannot drive a launcher: {error}"))
        })?;
        Ok((Self { id: order.id, driver, pid: None, process: None, stands: false, ended: false }, pipes))
    }

    /// Readable when there is news. None: there will be no more.
    pub(crate) fn bell(&self) -> Option<BorrowedFd<'_>> {
        (!self.ended).then(|| self.driver.as_fd())
    }

    /// Its pidfd, if `pid` is its pid.
    pub(crate) fn process(&self, pid: Pid) -> Option<&OwnedFd> {
        self.process.as_ref().filter(|_| self.pid == Some(pid))
    }

    /// Lets it continue from its breakpoint, if it is stopped there.
    pub(crate) fn let_go(&mut self) {
        if std::mem::take(&mut self.stands) {
            self.driver.order(Order::Release);
        }
    }

    /// Kills it if it is stopped at its breakpoint, where SIGTERM would have no effect.
    pub(crate) fn end_standing(&mut self) {
        if std::mem::take(&mut self.stands) {
            self.driver.order(Order::Kill);
        }
    }

    /// Sends SIGTERM to the launcher, also if a script has started it as a child.
    pub(crate) fn ask_to_go(&self) {
        self.driver.order(Order::Signal(Signal::TERM));
    }

    /// The next news, if there is some.
    pub(crate) fn take_news(&mut self) -> Option<News> {
        let news = match self.driver.take_event()? {
            mpir::Event::Started(pid) => {
                self.pid = Some(pid);
                self.process = gantry_wlm::host::open_pidfd(pid).ok();
                News::Event(Event::Started(self.id, pid))
            }
            mpir::Event::Held { table, stands } => {
                self.stands = stands;
                let mpir::Table { placement, job, step, stops_before_main } = table;
                let held = HeldRanks { placement, job, step, stopped: stops_before_main, stands };
                News::Message(FromGuard::Held(Box::new(held)))
            }
            mpir::Event::Failed(error) => match self.pid {
                Some(_) => News::Message(FromGuard::NotHeld(to_failure(&error))),
                None => {
                    self.ended = true;
                    News::Event(Event::NotStarted(self.id, to_failure(&error)))
                }
            },
            mpir::Event::Ended(status) => {
                self.ended = true;
                News::Event(Event::ChildEnded(self.pid?, status, String::new()))
            }
        };
        Some(news)
    }
}

fn to_failure(error: &MpirError) -> Failure {
    Failure::new(error.kind(), error.to_string()).with_hint_of(error.hint())
}
