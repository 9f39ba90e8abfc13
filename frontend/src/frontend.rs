//! Where a tool begins: [`Frontend`] launches apps and attaches to them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use gantry_wlm::host::Machine;
use gantry_wlm::{Choice, HoldChoice, HoldMethod, HostsPolicy, JobRef, Reach, SendAgent, reach, registry};

use crate::app::{App, News, QueueNews, find_launcher};
use crate::clock::{Clock, QueueTime};
use crate::error::Result;
use crate::request::LaunchRequest;

/// Choices of a tool for all its apps. The default chooses nothing.
#[derive(Debug, Clone)]
pub struct Config {
    /// The workload manager's name. Default: GANTRY_WLM, CTI_WLM_IMPL, else what is detected.
    pub wlm: Option<String>,
    /// Directory for session storage on the nodes, the same on all of them. Default: GANTRY_STAGE_DIR, TMPDIR, `/tmp`, `/var/tmp` of the
    /// nodes, the first that is writable and not mounted noexec on every node.
    pub stage_base: Option<PathBuf>,
    /// Most children of one agent in the tree. Default: [`DEFAULT_RADIX`].
    pub radix: u32,
    /// The most nodes that one node feeds with bulk data. Default: [`DEFAULT_BULK_RADIX`]. With 0, bulk data follows the tree of orders: for nodes
    /// that cannot reach each other.
    pub bulk_radix: u32,
    /// Whether gantry's agent is sent to the nodes. Default: what GANTRY_SEND_AGENT says, else [`SendAgent::Auto`].
    pub send_agent: Option<SendAgent>,
    /// How many hosts must be reached, where hosts are reached one by one. Default: all.
    pub hosts_policy: HostsPolicy,
    /// Options by which [`Frontend::attach`] reaches hosts, as for a launch by the same WLM: the number of connections at a time, for instance.
    /// Default: none.
    pub reach_args: Vec<OsString>,
    /// The name of a program that starts ranks on the nodes, such as a container's starter: its first child is the rank. A process without that
    /// program above it is a rank itself. Default: none.
    pub rank_wrapper: Option<String>,
    /// Directory of the control sockets. Default: GANTRY_RUNTIME_DIR, `$XDG_RUNTIME_DIR/gantry`, `/tmp/gantry-runtime-UID`.
    pub runtime_dir: Option<PathBuf>,
    /// Whether other commands of this user reach the apps through a control socket. Default: yes.
    pub control: bool,
}

/// Most children of one agent, unless chosen otherwise: wide, because orders and answers are small.
pub const DEFAULT_RADIX: u32 = 64;

/// To how many others a node passes bulk data on, unless chosen otherwise: few, because they share its bandwidth. Two costs half of it, and
/// has ten thousand nodes within thirteen links of the first.
pub const DEFAULT_BULK_RADIX: u32 = 2;

impl Default for Config {
    fn default() -> Self {
        Self {
            wlm: None,
            stage_base: None,
            radix: DEFAULT_RADIX,
            bulk_radix: DEFAULT_BULK_RADIX,
            send_agent: None,
            hosts_policy: HostsPolicy::All,
            reach_args: Vec::new(),
            rank_wrapper: None,
            runtime_dir: None,
            control: true,
        }
    }
}

/// The beginning of everything. It holds choices only; apps live on their own.
///
/// ```no_run
/// use std::time::Duration;
/// use gantry_frontend::{Config, Frontend, LaunchRequest};
///
/// # async fn tool() -> gantry_frontend::Result<()> {
/// let minute = Duration::from_secs(60);
/// let frontend = Frontend::new(Config::default());
/// let app = frontend.launch(LaunchRequest::new(["-n", "4", "./solver"]).hold(true), minute).await?;
/// for rank in app.info().ranks {
///     println!("rank {} is process {:?} on {}", rank.rank, rank.pid, rank.host);
/// }
/// app.release(minute).await?;
/// let exit = app.wait().await?;
/// app.close(minute).await?;
/// assert_eq!(exit.code, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Frontend {
    pub(crate) config: Config,
}

impl Frontend {
    /// A frontend with these choices.
    pub fn new(config: Config) -> Self {
        Self { config }
    }

    /// The choices.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The workload manager that will be used, and why.
    ///
    /// # Errors
    /// The configuration or a variable names one that does not exist.
    pub fn choice(&self) -> Result<Choice> {
        Ok(gantry_wlm::choose(self.config.wlm.as_deref(), &Machine)?)
    }

    /// How the ranks of a launch by `launcher` would be held, and why so; none: by the launcher that the environment names, else by the workload
    /// manager's own way. Starts nothing.
    ///
    /// # Errors
    /// There is no such launcher, or none whose ranks could be held.
    pub fn hold_choice(&self, launcher: Option<OsString>) -> Result<HoldChoice> {
        self.hold_choice_by(launcher, HoldMethod::Detect)
    }

    /// As [`Frontend::hold_choice`], where a method is asked for.
    ///
    /// # Errors
    /// As there; and the method is none for this launcher.
    pub fn hold_choice_by(&self, launcher: Option<OsString>, method: HoldMethod) -> Result<HoldChoice> {
        let launcher = launcher.or_else(find_launcher);
        Ok(gantry_wlm::choose_hold(self.choice()?.wlm, launcher, method, &Machine)?)
    }

    /// Calls that make sense with one workload manager only, if it is the one that will be used. `T` is the type that its folder in [`gantry_wlm`]
    /// has for them.
    ///
    /// # Errors
    /// The configuration or a variable names a workload manager that does not exist.
    pub fn extras<T: std::any::Any>(&self) -> Result<Option<&'static T>> {
        Ok(gantry_wlm::extras(self.choice()?.wlm))
    }

    /// As [`Frontend::choice`], for this launch: its arguments may say for which workload manager they are.
    ///
    /// # Errors
    /// As [`Frontend::choice`].
    pub fn choice_for(&self, request: &LaunchRequest) -> Result<Choice> {
        match request.launcher.is_some() || find_launcher().is_some() {
            true => self.choice(),
            false => Ok(registry::choose_for(self.config.wlm.as_deref(), &request.args, &Machine)?),
        }
    }

    /// Launches an application. Waits until every rank is held, or runs. Time that the launch waits for nodes does not count towards `deadline`:
    /// see [`LaunchRequest::queue_timeout`].
    ///
    /// # Errors
    /// Nothing is left running when it fails: see [`Error`](crate::Error) for what can go wrong.
    pub async fn launch(&self, request: LaunchRequest, deadline: Duration) -> Result<App> {
        let clock = Clock::new(deadline, QueueTime::Apart(request.queue_timeout));
        self.launch_until(request, None, &clock).await
    }

    /// As [`Frontend::launch`]. While the launch waits for nodes, `news` hears what it waits for, each time the workload manager is asked.
    ///
    /// # Errors
    /// As [`Frontend::launch`]; the job is cancelled then.
    pub async fn launch_with_news(
        &self,
        request: LaunchRequest,
        mut news: impl FnMut(&QueueNews) + Send,
        deadline: Duration,
    ) -> Result<App> {
        let clock = Clock::new(deadline, QueueTime::Apart(request.queue_timeout));
        self.launch_until(request, Some(&mut news), &clock).await
    }

    /// Attaches to a running program, and waits until agents watch its ranks. The program is not stopped, and stays as it was found.
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
    pub async fn attach(&self, target: &str, deadline: Duration) -> Result<App> {
        self.attach_to(target, None, deadline).await
    }

    /// As [`Frontend::attach`], and waits for a job that has no ranks yet.
    ///
    /// # Errors
    /// As [`Frontend::attach`]; at the deadline why there still are none.
    pub async fn attach_when_there(&self, target: &str, deadline: Duration) -> Result<App> {
        self.attach_to(target, Some(&mut |_| {}), deadline).await
    }

    async fn attach_to(&self, target: &str, wait: News<'_>, deadline: Duration) -> Result<App> {
        // Where hosts have names a WLM's own words may have colons in them: who has chosen it need not name it again.
        let chosen = self.config.wlm.as_ref().map(|_| self.choice()).transpose()?;
        let chosen = chosen.map(|choice| choice.wlm).filter(|wlm| reach(*wlm) != Reach::ThisMachine);
        let (wlm, job) = match (target.split_once(':'), chosen) {
            (Some((name, rest)), chosen) => match (registry::find(name), chosen) {
                (Ok(wlm), _) => (wlm, rest),
                (Err(_), Some(wlm)) => (wlm, target),
                (Err(error), None) => return Err(error.into()),
            },
            (None, _) => (self.choice()?.wlm, target),
        };
        let clock = Clock::new(deadline, QueueTime::Counts);
        self.attach_until(wlm, &JobRef(job.to_owned()), wait, &clock).await
    }
}
