//! The tool daemons of this node, each in its session.

pub(crate) mod program;
pub(crate) mod site;
mod command;
mod container;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use gantry_shared::wire::message::StartDaemon;
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{DaemonId, SessionId, random_text};
use gantry_types::output::DaemonOutput;
use gantry_types::signal::Signal;

use self::site::{Site, build_daemon};
use crate::ending::Scope;
use crate::failure;
use crate::process::batch::Batch;
use crate::process::signal;
use crate::process::spawn::ProcessSpec;
use crate::ranks::{OurEnds, build_env, open_stdio, to_c};

#[derive(Debug)]
struct Running {
    session: SessionId,
    /// `None` until it has started.
    pid: Option<i32>,
    /// Cancels its start.
    start: Arc<Batch>,
    /// The signal that it gets as soon as it runs.
    early: Option<Signal>,
    /// Whether another process may have its pid already.
    reaped: bool,
}

/// The daemons that run or are being started.
#[derive(Debug, Default)]
pub(crate) struct Daemons {
    running: BTreeMap<DaemonId, Running>,
}

/// The process that a daemon is to be.
pub(crate) fn prepare(
    mut order: StartDaemon,
    site: &Site<'_>,
    host: &str,
    nofile: Option<(u64, u64)>,
) -> Result<(OurEnds, ProcessSpec), Failure> {
    let env = std::mem::take(&mut order.program.env);
    let daemon = build_daemon(&order, env, site)?;
    let argv = daemon.argv.iter().map(|arg| to_c(arg)).collect::<Result<_, _>>()?;
    let (stdio, ends) = open_stdio(false, order.output == DaemonOutput::Forward)?;
    let [stdin, mut stdout, mut stderr] = stdio;
    if let DaemonOutput::Log(directory) = &order.output {
        let name = format!("gantry-{}-d{}-{host}", site.app, order.daemon);
        stdout = open_log(directory, &name, "out")?;
        stderr = open_log(directory, &name, "err")?;
    }
    let spec = ProcessSpec {
        program: to_c(daemon.program.as_os_str())?,
        argv,
        env: build_env(&daemon.env, &[])?,
        cwd: Some(to_c(daemon.cwd.as_os_str())?),
        stdin,
        stdout,
        stderr,
        served: None,
        die_with_parent: true,
        nofile,
        cores: None,
    };
    Ok((ends, spec))
}

/// Creates a log file. An existing file, above all a link, is not ours to write to. The directory may be shared: where
/// another user has taken the name, the log has one that nobody can guess.
fn open_log(directory: &OsStr, name: &str, kind: &str) -> Result<OwnedFd, Failure> {
    let path = Path::new(directory).join(format!("{name}.{kind}"));
    let create = |path: &Path| OpenOptions::new().append(true).create_new(true).mode(0o600).open(path);
    let mut opened = create(&path);
    if opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists) {
        let other = random_text::<16>().map_err(|error| Failure::new(Kind::System, error.to_string()))?;
        opened = create(&path.with_extension(format!("{other}.{kind}")));
    }
    opened
        .map(OwnedFd::from)
        .map_err(|error| failure::from_io(format_args!("make {}", path.display()), &error))
}

impl Daemons {
    /// Registers a daemon that will be started.
    pub(crate) fn expect(&mut self, daemon: DaemonId, session: SessionId, start: Arc<Batch>) {
        self.running.insert(daemon, Running { session, pid: None, start, early: None, reaped: false });
    }

    /// Cancels the start of a scope's daemons that have not executed their programs yet. Their files may be on a
    /// stalled file system, so no code waits for the end of the start.
    pub(crate) fn cancel_starts(&self, scope: &Scope) {
        let starting = self.running.values().filter(|it| it.pid.is_none() && it.is_in(scope));
        starting.for_each(|it| it.start.give_up());
    }

    /// Whether its start was cancelled.
    pub(crate) fn is_cancelled(&self, daemon: DaemonId) -> bool {
        self.running.get(&daemon).is_some_and(Running::is_cancelled)
    }

    /// The daemon runs.
    pub(crate) fn started(&mut self, daemon: DaemonId, pid: i32) {
        if let Some(it) = self.running.get_mut(&daemon) {
            it.pid = Some(pid);
            if let Some(signal) = it.early.take() {
                // It may have ended by now.
                it.signal(signal).ok();
            }
        }
    }

    /// The daemon was collected: its pid is free.
    pub(crate) fn reaped(&mut self, pid: i32) {
        if let Some(it) = self.running.values_mut().find(|it| it.pid == Some(pid)) {
            it.reaped = true;
        }
    }

    /// Removes a daemon that is over.
    pub(crate) fn forget(&mut self, daemon: DaemonId) {
        self.running.remove(&daemon);
    }

    /// The daemon that has, or had, this process.
    pub(crate) fn of_pid(&self, pid: i32) -> Option<DaemonId> {
        self.running.iter().find(|(_, it)| it.pid == Some(pid)).map(|(daemon, _)| *daemon)
    }

    /// Sends a signal to a daemon's process group. A daemon that is being started gets the last such signal when it
    /// runs.
    pub(crate) fn signal(&mut self, daemon: DaemonId, what: Signal) -> Result<(), Failure> {
        match self.running.get_mut(&daemon) {
            Some(it) if it.pid.is_none() => {
                it.early = Some(what);
                Ok(())
            }
            Some(it) => it
                .signal(what)
                .map_err(|e| failure::from_io(format_args!("send {what} to daemon {daemon}"), &e)),
            None => Err(Failure::new(Kind::Gone, format!("daemon {daemon} does not run here any more"))),
        }
    }

    /// Sends a signal to all daemons of a scope.
    pub(crate) fn signal_scope(&self, scope: &Scope, what: Signal) {
        for it in self.running.values().filter(|it| it.is_in(scope)) {
            // Whoever cannot get it is among those that stay.
            it.signal(what).ok();
        }
    }

    /// Whether a daemon of that scope runs or is being started.
    pub(crate) fn any_in(&self, scope: &Scope) -> bool {
        self.running.values().any(|it| it.is_in(scope) && !it.is_cancelled())
    }

    /// The processes of a scope's daemons that have not ended.
    pub(crate) fn pids_in(&self, scope: &Scope) -> Vec<i32> {
        let alive = self.running.values().filter(|it| it.is_in(scope) && !it.reaped);
        alive.filter_map(|it| it.pid).collect()
    }

    /// Whether `view` equals [`Daemons::view`].
    pub(crate) fn are(&self, view: &BTreeMap<DaemonId, SessionId>) -> bool {
        self.running.iter().map(|(daemon, it)| (daemon, &it.session)).eq(view)
    }

    /// The daemons and their sessions.
    pub(crate) fn view(&self) -> BTreeMap<DaemonId, SessionId> {
        self.running.iter().map(|(daemon, it)| (*daemon, it.session)).collect()
    }
}

impl Running {
    fn is_cancelled(&self) -> bool {
        self.pid.is_none() && self.start.is_given_up()
    }

    fn is_in(&self, scope: &Scope) -> bool {
        match scope {
            Scope::Session(session) => self.session == *session,
            Scope::All => true,
        }
    }

    fn signal(&self, what: Signal) -> std::io::Result<()> {
        match self.pid {
            Some(pid) if !self.reaped => signal::kill_group(pid, what.number()).map(drop),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_log_whose_name_another_has_taken_gets_one_that_nobody_can_take() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("precious"), "mine").unwrap();
        let guessed = (1..100).map(|number| format!("d1-n1.example.{number}.out"));
        for name in guessed.chain(["d1-n1.example.out".to_owned()]) {
            std::os::unix::fs::symlink(at("precious"), at(&name)).unwrap();
        }
        let log = |text: &str| {
            let log = open_log(folder.path().as_os_str(), "d1-n1.example", "out").unwrap();
            std::fs::File::from(log).write_all(text.as_bytes()).unwrap();
        };
        log("one");
        log("two");
        let entries = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let logs =
            entries.filter(|path| !path.is_symlink() && path.extension().is_some_and(|it| it == "out"));
        let mut texts: Vec<String> = logs.map(|path| std::fs::read_to_string(path).unwrap()).collect();
        texts.sort();
        assert_eq!(texts, ["one", "two"]);
        assert_eq!(std::fs::read_to_string(at("precious")).unwrap(), "mine");
        let missing = open_log(at("missing").as_os_str(), "d1", "out").unwrap_err();
        assert_eq!(missing.kind(), Kind::NotFound, "{missing}");
    }

    #[test]
    fn a_signal_that_comes_while_a_daemons_files_are_looked_at_is_kept_for_it() {
        let mut daemons = Daemons::default();
        let (daemon, session) = (DaemonId(7), SessionId(1));
        assert!(daemons.signal(daemon, Signal::KILL).is_err(), "it was not ordered");
        daemons.expect(daemon, session, Arc::default());
        daemons.signal(daemon, Signal::KILL).unwrap();
        assert_eq!(daemons.running[&daemon].early, Some(Signal::KILL));
        daemons.forget(daemon);
        assert!(daemons.signal(daemon, Signal::KILL).is_err(), "it could not be started");
    }

    #[test]
    fn a_session_that_ends_waits_for_no_daemon_whose_start_it_cancels() {
        let mut daemons = Daemons::default();
        let (daemon, session) = (DaemonId(7), SessionId(1));
        let (ours, others) = (Scope::Session(session), Scope::Session(SessionId(2)));
        daemons.expect(daemon, session, Arc::default());
        daemons.cancel_starts(&others);
        assert!(daemons.any_in(&ours) && !daemons.is_cancelled(daemon));
        daemons.cancel_starts(&ours);
        assert!(!daemons.any_in(&ours) && daemons.is_cancelled(daemon));
        daemons.started(daemon, i32::MAX);
        assert!(daemons.any_in(&ours), "it had been started before");
    }
}
