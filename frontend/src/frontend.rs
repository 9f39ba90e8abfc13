//! The first calls of a tool: [`Frontend`] launches apps and attaches to them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use gantry_types::error::{Failure, Kind};
use gantry_types::launch::{HoldChoice, HoldMethod};
use gantry_wlm::host::Machine;
use gantry_wlm::{JobRef, Reach, reach, registry};

use crate::app::{App, News, QueueNews, ask, find_launcher};
use crate::clock::{Clock, QueueTime};
pub use crate::config::{Config, DEFAULT_BULK_RADIX, DEFAULT_RADIX, Frontend};
use crate::error::Result;
use crate::request::LaunchRequest;

/// The workload manager that is used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice {
    /// Its name, as `--wlm` takes it.
    pub wlm: &'static str,
    /// The facts that led to this choice. Reads as "because ...".
    pub why: String,
    /// Why another one may be meant, and how to choose that. Only where this one has no jobs, and nobody has named it.
    pub doubt: Option<String>,
}

impl Choice {
    fn new(choice: gantry_wlm::Choice) -> Self {
        Self { wlm: choice.wlm.name(), why: choice.why.0, doubt: choice.doubt.map(|it| it.text) }
    }
}

impl Frontend {
    /// Makes a frontend with this configuration.
    pub fn new(config: Config) -> Self {
        Self { config }
    }

    /// Looks for gantry's programs in these directories, too, if they are nowhere else: for a library whose place does
    /// not show theirs. It is for all of this process. The first call counts.
    pub fn look_for_programs_in(dirs: impl IntoIterator<Item = PathBuf>) {
        gantry_guard::helpers::look_also_in(dirs.into_iter().collect());
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The workload manager that will be used, and why.
    ///
    /// # Errors
    /// The configuration or a variable names one that does not exist.
    pub fn choice(&self) -> Result<Choice> {
        self.choose().map(Choice::new)
    }

    /// As [`Frontend::choice`], for this launch: its arguments may imply a workload manager.
    ///
    /// # Errors
    /// As [`Frontend::choice`].
    pub fn choice_for(&self, request: &LaunchRequest) -> Result<Choice> {
        self.choose_for(request).map(Choice::new)
    }

    /// Whether the arguments ask for output that is labelled with ranks, by an option such as `--label` of `mpiexec`. The
    /// tool labels it. False for a launcher's arguments: it labels output itself.
    ///
    /// # Errors
    /// As [`Frontend::choice`].
    pub fn wants_labels(&self, request: &LaunchRequest) -> Result<bool> {
        let is_direct = request.launcher.is_none() && find_launcher().is_none();
        Ok(is_direct && self.choose_for(request)?.wlm.wants_labels(&request.args, &Machine))
    }

    /// The workload manager itself.
    pub(crate) fn choose(&self) -> Result<gantry_wlm::Choice> {
        Ok(gantry_wlm::choose(self.config.wlm.as_deref(), &Machine)?)
    }

    /// As [`Frontend::choose`], on a blocking thread: it reads files.
    pub(crate) async fn choose_aside(&self) -> Result<gantry_wlm::Choice> {
        let frontend = self.clone();
        ask(move |_| frontend.choose()).await
    }

    /// As [`Frontend::choose`], for this launch.
    pub(crate) fn choose_for(&self, request: &LaunchRequest) -> Result<gantry_wlm::Choice> {
        match request.launcher.is_some() || find_launcher().is_some() {
            true => self.choose(),
            false => Ok(registry::choose_for(self.config.wlm.as_deref(), &request.args, &Machine)?),
        }
    }

    /// How the ranks of a launch by `launcher` would be held, and why. None: by the launcher that the environment
    /// names, else by the workload manager's own way. Starts nothing.
    ///
    /// # Errors
    /// There is no such launcher, or its ranks cannot be held.
    pub fn hold_choice(&self, launcher: Option<OsString>) -> Result<HoldChoice> {
        self.hold_choice_by(launcher, HoldMethod::Detect)
    }

    /// As [`Frontend::hold_choice`], for a requested method.
    ///
    /// # Errors
    /// As [`Frontend::hold_choice`]; or the method does not work with this launcher.
    pub fn hold_choice_by(&self, launcher: Option<OsString>, method: HoldMethod) -> Result<HoldChoice> {
        let launcher = launcher.or_else(find_launcher);
        Ok(gantry_wlm::choose_hold(self.choose()?.wlm, launcher, method, &Machine)?)
    }

    /// Calls for one specific workload manager, if that one will be used. `T` is the type that its folder in
    /// [`gantry_wlm`] has for them.
    ///
    /// # Errors
    /// The configuration or a variable names a workload manager that does not exist.
    pub fn extras<T: std::any::Any>(&self) -> Result<Option<&'static T>> {
        Ok(gantry_wlm::extras(self.choose()?.wlm))
    }

    /// Launches an application. Waits until every rank is held, or runs. Time that the launch waits for nodes does not
    /// count towards `timeout`: see [`LaunchRequest::queue_timeout`].
    ///
    /// # Errors
    /// Nothing is left running when it fails: see [`Error`](crate::Error) for what can go wrong.
    pub async fn launch(&self, request: LaunchRequest, timeout: Duration) -> Result<App> {
        let clock = Clock::new(timeout, QueueTime::Apart(request.queue_timeout));
        self.launch_until(request, None, &clock).await
    }

    /// As [`Frontend::launch`]. While the launch waits for nodes, `news` gets what it waits for, each time the workload
    /// manager is asked.
    ///
    /// # Errors
    /// As [`Frontend::launch`]; the job is cancelled then.
    pub async fn launch_with_news(
        &self,
        request: LaunchRequest,
        mut news: impl FnMut(&QueueNews) + Send,
        timeout: Duration,
    ) -> Result<App> {
        let clock = Clock::new(timeout, QueueTime::Apart(request.queue_timeout));
        self.launch_until(request, Some(&mut news), &clock).await
    }

    /// Attaches to a running program, and waits until agents watch its ranks. The program is not stopped, and stays as
    /// it was found.
    ///
    /// `target` depends on the workload manager:
    ///
    /// - this machine: the pid of a launcher, or the ranks' pids in order, with commas between;
    /// - hosts that are reached by name: a launcher as `HOST:PID`;
    /// - others: `JOB.STEP`, or `JOB` for its newest step.
    ///
    /// `NAME:` before it chooses the workload manager of that name.
    ///
    /// # Errors
    /// No such program runs, or it belongs to another user.
    pub async fn attach(&self, target: &str, timeout: Duration) -> Result<App> {
        self.attach_to(target, None, timeout).await
    }

    /// As [`Frontend::attach`], but waits for a job that has no ranks yet.
    ///
    /// # Errors
    /// As [`Frontend::attach`]; or the timeout expired, with the reason why there are no ranks yet.
    pub async fn attach_when_there(&self, target: &str, timeout: Duration) -> Result<App> {
        self.attach_with_news(target, |_| {}, timeout).await
    }

    /// As [`Frontend::attach_when_there`]. While there are no ranks yet, `news` gets what the job waits for, each time
    /// the workload manager is asked.
    ///
    /// # Errors
    /// As [`Frontend::attach_when_there`].
    pub async fn attach_with_news(
        &self,
        target: &str,
        mut news: impl FnMut(&str) + Send,
        timeout: Duration,
    ) -> Result<App> {
        self.attach_to(target, Some(&mut news), timeout).await
    }

    async fn attach_to(&self, target: &str, wait: News<'_>, timeout: Duration) -> Result<App> {
        // With named hosts a target may contain colons, so a tool that has chosen the WLM need not name it again.
        let chosen = match self.config.wlm {
            Some(_) => Some(self.choose_aside().await?),
            None => None,
        };
        let chosen = chosen.map(|choice| choice.wlm).filter(|wlm| reach(*wlm) != Reach::ThisMachine);
        let (wlm, job, doubt) = match (target.split_once(':'), chosen) {
            (Some((name, rest)), chosen) => match (registry::find(name), chosen) {
                (Ok(wlm), _) => (wlm, rest, None),
                (Err(_), Some(wlm)) => (wlm, target, None),
                (Err(error), None) => return Err(error.into()),
            },
            (None, _) => {
                let choice = self.choose_aside().await?;
                (choice.wlm, target, choice.doubt)
            }
        };
        let clock = Clock::new(timeout, QueueTime::Counts);
        let attached = self.attach_until(wlm, &JobRef(job.to_owned()), wait, None, &clock).await;
        attached.map_err(|why| match (why.into_error(), doubt) {
            // It may be the name of a job.
            (error, Some(doubt)) if matches!(error.kind(), Kind::NotFound | Kind::Invalid) => {
                let wlm = doubt.wlm;
                let meant = format!("for a job of {wlm}, add --wlm {wlm}");
                let hints: Vec<String> = error.hint().into_iter().chain([meant]).collect();
                let failure = Failure::new(error.kind(), error.to_string()).with_hint(hints.join("; "));
                gantry_wlm::Error::Failed(failure).into()
            }
            (error, _) => error,
        })
    }
}
