//! A launcher that the guard runs as a debugger does, so that it says where its ranks are and leaves them stopped.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use gantry_types::error::{Failure, Kind};
use gantry_types::id::Pid;
use gantry_wlm::mpir::{self, Breakpoints, Driver, LauncherCommand, MpirError, Order};

use crate::policy::Event;
use gantry_guard::protocol::{FromGuard, HeldRanks, ProcessId, StartLauncher};

/// A driven launcher. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Driven {
    id: ProcessId,
    driver: Driver,
    /// Once it runs.
    pid: Option<Pid>,
    /// The same, so that it cannot be mistaken for another.
    process: Option<OwnedFd>,
    /// It stands at its breakpoint, and its ranks wait for it.
    stands: bool,
    ended: bool,
}

/// What happens to it.
#[derive(Debug)]
pub(crate) enum News {
    /// To be decided about.
    Event(Event),
    /// To be told to the tool.
    Message(FromGuard),
}

impl Driven {
    /// Starts it with the descriptors that came for it, and gives back those that are to be read on later.
    ///
    /// # Errors
    /// There is no room for a thread, or its descriptors have not come.
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

    /// Readable when there is news; none when there will be no more.
    pub(crate) fn bell(&self) -> Option<BorrowedFd<'_>> {
        (!self.ended).then(|| self.driver.as_fd())
    }

    /// Its process, if this is its pid.
    pub(crate) fn process(&self, pid: Pid) -> Option<&OwnedFd> {
        self.process.as_ref().filter(|_| self.pid == Some(pid))
    }

    /// Lets it go on from its breakpoint, if it stands there.
    pub(crate) fn let_go(&mut self) {
        if std::mem::take(&mut self.stands) {
            self.driver.order(Order::Release);
        }
    }

    /// Ends it if it stands at its breakpoint: there it would not hear that it is asked to go.
    pub(crate) fn end_standing(&mut self) {
        if std::mem::take(&mut self.stands) {
            self.driver.order(Order::Kill);
        }
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
    let failure = Failure::new(error.kind(), error.to_string());
    match error.hint() {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}
