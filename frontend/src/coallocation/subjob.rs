//! One subjob at work: an app of one workload manager, launched held, released or ended when it is told to be, and cleaned up.

use std::fs::OpenOptions;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_wlm::Wanted;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::contact::Contacts;
use super::request::{BarrierPoint, Subrequest};
use super::state::{News, StartType, SubjobId};
use crate::app::{App, AppHandle};
use crate::error::{Error, Result};
use crate::event::Exit;
use crate::frontend::{Config, Frontend};
use crate::request::{Input, LaunchRequest, OutputTo};

/// How long an app may take to clean up after its end: its daemons' grace and some.
const CLEAN_UP: Duration = Duration::from_secs(30);

/// A subjob that can be launched: everything that can be wrong with it without asking its manager is known.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) label: Option<String>,
    pub(super) start: StartType,
    pub(super) wlm: &'static str,
    frontend: Frontend,
    request: LaunchRequest,
}

/// Where output goes that a subjob sends nowhere.
#[derive(Debug, Default)]
pub enum SubjobOutput {
    /// Nowhere.
    #[default]
    Null,
    /// To these descriptors, of all subjobs together.
    Fds {
        /// Gets standard output.
        stdout: OwnedFd,
        /// Gets standard error.
        stderr: OwnedFd,
    },
}

impl Planned {
    /// What `subrequest` comes to.
    ///
    /// # Errors
    /// A manager that does not exist, or an attribute that it cannot honour; a file that cannot be opened.
    pub(super) fn new(
        subrequest: Subrequest,
        contacts: &Contacts,
        config: &Config,
        output: &SubjobOutput,
    ) -> Result<Self> {
        if subrequest.barrier == BarrierPoint::Runtime {
            return Err(Error::Invalid {
                message:
                    "barrierPoint=runtime: there is no runtime library yet in which a program could wait"
                        .to_owned(),
                hint: Some("barrierPoint=exec holds any program before its first instruction".to_owned()),
            });
        }
        let contact = contacts.resolve(&subrequest.contact)?;
        let wanted = Wanted { place: contact.place, ..subrequest.wanted };
        let args = contact.wlm.build_args(&wanted)?;
        let mut request = LaunchRequest::new(args).hold(subrequest.start != StartType::NoBarrier);
        let folder = subrequest.directory.clone().unwrap_or_default();
        let inside = |path: &Path| folder.join(path);
        for (name, value) in subrequest.environment {
            request = request.env(name, value);
        }
        if let Some(path) = &subrequest.stdin {
            request = request.stdin(Input::File(inside(path)));
        }
        if let Some(directory) = &subrequest.directory {
            request = request.cwd(directory);
        }
        let files =
            (subrequest.stdout.map(|path| inside(&path)), subrequest.stderr.map(|path| inside(&path)));
        request = request.output(open_output(files, output)?);
        let config = Config { wlm: Some(contact.wlm.name().to_owned()), ..config.clone() };
        let wlm = contact.wlm.name();
        Ok(Self {
            label: subrequest.label,
            start: subrequest.start,
            wlm,
            frontend: Frontend::new(config),
            request,
        })
    }
}

/// Files that were asked for, and what is left to the job's own output.
fn open_output(files: (Option<PathBuf>, Option<PathBuf>), otherwise: &SubjobOutput) -> Result<OutputTo> {
    let (stdout, stderr) = match (files, otherwise) {
        ((None, None), SubjobOutput::Null) => return Ok(OutputTo::Null),
        ((stdout, stderr), SubjobOutput::Null) => {
            let null = || Some(PathBuf::from("/dev/null"));
            (open(stdout.or_else(null), None)?, open(stderr.or_else(null), None)?)
        }
        ((out, err), SubjobOutput::Fds { stdout, stderr }) => {
            (open(out, Some(stdout))?, open(err, Some(stderr))?)
        }
    };
    Ok(OutputTo::Fds { stdout, stderr })
}

fn open(path: Option<PathBuf>, otherwise: Option<&OwnedFd>) -> Result<OwnedFd> {
    let path = match (path, otherwise) {
        (Some(path), _) => path,
        (None, Some(fd)) => {
            let copied = fd.as_fd().try_clone_to_owned();
            return copied.map_err(|e| Error::io("cannot connect a subjob's output", e));
        }
        (None, None) => PathBuf::from("/dev/null"),
    };
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path);
    file.map(OwnedFd::from).map_err(|e| Error::io(format!("cannot write to {}", path.display()), e))
}

/// What a subjob is told.
#[derive(Debug)]
pub(super) enum Tell {
    /// Let the processes go.
    Release,
    /// End, wherever it stands.
    End,
}

/// What a subjob tells.
#[derive(Debug)]
pub(super) enum Told {
    /// Its app is there.
    App(AppHandle),
    /// It stands elsewhere now.
    News(News),
    /// Its processes have ended.
    Exit(Exit),
    /// Why it failed.
    Why(Error),
}

/// Reports of all subjobs of a job.
pub(super) type Reports = mpsc::UnboundedSender<(SubjobId, Told)>;

/// Runs a subjob to its end. The last report is [`News::Ended`]; everything of it is gone then.
pub(super) async fn run(
    id: SubjobId,
    planned: Planned,
    deadline: Instant,
    mut orders: mpsc::UnboundedReceiver<Tell>,
    reports: Reports,
) {
    // Nobody listens any more when the job was dropped; then orders end, and so does this.
    let report = |told| drop(reports.send((id, told)));
    let held = planned.start != StartType::NoBarrier;
    let launched = tokio::select! {
        launched = planned.frontend.launch_until(planned.request, None, deadline) => Some(launched),
        () = told_to_end(&mut orders) => None,
    };
    match launched {
        // Dropped in the middle, a launch cleans up behind itself.
        None => {}
        Some(Err(error)) => report(Told::Why(error)),
        Some(Ok(app)) => {
            report(Told::App((*app).clone()));
            report(Told::News(News::Active));
            report(Told::News(News::CheckedIn));
            if let Err(error) = attend(app, held, &mut orders, &report).await {
                report(Told::Why(error));
            }
        }
    }
    report(Told::News(News::Ended));
}

/// Returns when the subjob is to end, also because its job is gone.
async fn told_to_end(orders: &mut mpsc::UnboundedReceiver<Tell>) {
    while !matches!(orders.recv().await, Some(Tell::End) | None) {}
}

/// Carries out orders until the app is over or is to be.
async fn attend(
    app: App,
    held: bool,
    orders: &mut mpsc::UnboundedReceiver<Tell>,
    report: &impl Fn(Told),
) -> Result<()> {
    let mut released = !held;
    let outcome = loop {
        tokio::select! {
            exit = app.wait() => {
                report(Told::Exit(exit?));
                break Ok(());
            }
            order = orders.recv() => match order {
                Some(Tell::Release) if !released => {
                    released = true;
                    if let Err(error) = app.release(CLEAN_UP).await {
                        break Err(error);
                    }
                }
                Some(Tell::Release) => {}
                Some(Tell::End) | None => break Ok(()),
            }
        }
    };
    // Ranks that still are there end with it.
    app.close(CLEAN_UP).await.and(outcome)
}
