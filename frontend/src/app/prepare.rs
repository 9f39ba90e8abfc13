//! What every kind of launch has to find out or make before anything starts.

use std::ffi::OsString;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_shared::rendezvous::handle::Subjob;
use gantry_shared::secret::Secret;
use gantry_shared::storage::{CTI_LAUNCHER_NAME, CTI_LAUNCHER_SCRIPT, GANTRY_LAUNCHER};
use gantry_shared::wire::message::Ticket;
use gantry_types::id::{AppId, Pid};
use gantry_wlm::host::Machine;
use gantry_wlm::{Host, Wlm};
use tokio::time::{Instant, timeout_at};

use super::fifo;
use crate::error::{Error, Result};
use crate::request::Input;

/// How long an agent tries to reach the frontend or its parent node.
const AGENT_PATIENCE: Duration = Duration::from_secs(30);

/// The same with a deadline: an agent that cannot connect must report the reason before then.
pub(super) fn patience_until(deadline: Instant) -> Duration {
    AGENT_PATIENCE.min(deadline.saturating_duration_since(Instant::now()) * 2 / 3)
}

/// The launcher named in the environment. All variables but the first belong to the reference interface.
pub(crate) fn find_launcher() -> Option<OsString> {
    [GANTRY_LAUNCHER, CTI_LAUNCHER_NAME, CTI_LAUNCHER_SCRIPT].iter().find_map(|name| Machine.env(name))
}

/// Builds the ticket, which holds what an agent needs to know.
pub(super) fn build_ticket(
    wlm: &dyn Wlm,
    app: AppId,
    secret: Secret,
    frontend: Vec<SocketAddr>,
    stage_base: Option<PathBuf>,
    host: &str,
    subjob: Option<Subjob>,
) -> Ticket {
    let jobs = wlm.capabilities().jobs;
    Ticket {
        app,
        secret,
        frontend,
        host: host.to_owned(),
        wlm: wlm.name().to_owned(),
        stage_base: stage_base.map(PathBuf::into_os_string),
        node_variables: jobs
            .iter()
            .flat_map(|jobs| jobs.node_variables())
            .map(|it| (*it).to_owned())
            .collect(),
        patience: AGENT_PATIENCE,
        subjob,
    }
}

/// Where a launch may have files of its own. The app's id is random, so no other user can have the same place.
pub(super) fn choose_scratch(app: AppId) -> PathBuf {
    let base = Machine.env("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    base.join(format!("gantry-launch-{app}"))
}

/// The directory in which programs start: the requested one, else this process's own.
pub(super) fn find_cwd(asked: Option<PathBuf>) -> Result<PathBuf> {
    let cwd = match asked {
        Some(cwd) => std::path::absolute(cwd),
        None => Machine.current_dir(),
    };
    cwd.map_err(|e| Error::io("cannot find the current directory", e))
}

/// This process, as the owner of an app.
pub(super) fn own_pid() -> Result<Pid> {
    let pid = i32::try_from(std::process::id()).ok().and_then(Pid::new);
    pid.ok_or_else(|| Error::Internal("this process has no pid".to_owned()))
}

/// Opens a FIFO, because its open waits for a writer. Other input is opened later.
pub(super) async fn await_input(input: Input, deadline: Instant) -> Result<Input> {
    let path = match input {
        Input::File(path) if fifo::is_fifo(&path) => path,
        other => return Ok(other),
    };
    let begun = Instant::now();
    match timeout_at(deadline, fifo::open(&path)).await {
        Ok(opened) => opened.map(|file| Input::Fd(file.into())).map_err(|e| cannot_read(&path, e)),
        Err(_) => Err(Error::TimedOut {
            phase: "waiting for a writer of the FIFO that is standard input",
            after: begun.elapsed(),
            missing: vec![path.display().to_string()],
        }),
    }
}

/// What ranks are to read on standard input. None: nothing.
pub(super) fn open_input(input: Input) -> Result<Option<File>> {
    match input {
        Input::Null => Ok(None),
        Input::Fd(fd) => Ok(Some(File::from(fd))),
        Input::File(path) => open_file(&path).map(Some),
    }
}

fn open_file(path: &Path) -> Result<File> {
    let opened = File::open(path).and_then(|file| match file.metadata()?.is_dir() {
        true => Err(std::io::ErrorKind::IsADirectory.into()),
        false => Ok(file),
    });
    opened.map_err(|e| cannot_read(path, e))
}

fn cannot_read(path: &Path, error: std::io::Error) -> Error {
    Error::io(format!("cannot read {}", path.display()), error)
}
