//! The trait of every workload manager, and the list of its other abilities.

use std::any::Any;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use async_trait::async_trait;
use gantry_types::error::{Failure, Kind};
use gantry_types::launch::{Mixed, Wanted};

use crate::caps::batch::BatchJobs;
use crate::caps::host_lists::HostLists;
use crate::caps::jobs::Jobs;
use crate::caps::launcher_output::LauncherOutput;
use crate::caps::queue::Queue;
use crate::caps::waits::LauncherWaits;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::job::{Adoption, AppRef, JobRef};
use crate::launch::{AgentCommand, Launch, Plan, ProcessOwner};

/// The facts that show that a workload manager is in use here. Reads as "because ...".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence(pub String);

/// Where the nodes of a workload manager are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// All on this machine. Links stay on it.
    ThisMachine,
    /// On machines of a network.
    Network,
}

/// The interface of every workload manager. Implementations are stateless: each call gets all of its data.
#[async_trait]
pub trait Wlm: Send + Sync + fmt::Debug {
    /// The name for `--wlm`, events and messages.
    fn name(&self) -> &'static str;

    /// Looks for this WLM on this machine. Runs no program. None: it is not here.
    fn detect(&self, host: &dyn Host) -> Option<Evidence>;

    /// Why this WLM may be meant where it is not detected. Runs no program. None: nothing indicates it.
    fn doubt(&self, _host: &dyn Host) -> Option<String> {
        None
    }

    /// What this WLM can do besides launching and attaching.
    fn capabilities(&self) -> &'static Capabilities {
        &Capabilities::NONE
    }

    /// Decides how to carry out `launch`. Starts nothing.
    ///
    /// # Errors
    /// The launcher would refuse the arguments, the program cannot be told apart from the options, or the hold method
    /// does not fit.
    fn plan(&self, launch: &Launch, host: &dyn Host) -> Result<Plan>;

    /// Whether these arguments of a launch without a launcher ask for labelled output. Launchers label it themselves.
    fn wants_labels(&self, _args: &[OsString], _host: &dyn Host) -> bool {
        false
    }

    /// Finds the ranks of a running job. Changes nothing about the job. Runs programs of the WLM, and blocks its thread
    /// while they run.
    ///
    /// `wlm_data` is what [`HostLists::read_reach_args`] returned. `agent` is the path of gantry's agent on this
    /// machine, for a WLM that has to look on other machines.
    ///
    /// # Errors
    /// The job is unknown, has ended, or belongs to another user. [`Error::NotYet`]: it has no ranks yet and may get
    /// some.
    async fn adopt(
        &self,
        job: &JobRef,
        wlm_data: &[String],
        agent: &Path,
        host: &dyn Host,
    ) -> Result<Adoption>;

    /// Starts one agent on every node of `app`. Returns when all are started. The overlay waits for their reports.
    ///
    /// # Errors
    /// The message of the WLM or of the node that refused.
    async fn start_agents(
        &self,
        app: &AppRef,
        agent: &AgentCommand,
        host: &dyn Host,
        owner: &dyn ProcessOwner,
    ) -> Result<()>;
}

/// The abilities of a workload manager in addition to launching and attaching. Each one is a separate trait.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Capabilities {
    /// Where its nodes are.
    pub reach: Reach,
    /// It has jobs that processes can be inside of.
    pub jobs: Option<&'static dyn Jobs>,
    /// It runs batch scripts.
    pub batch: Option<&'static dyn BatchJobs>,
    /// It gives nodes only to jobs, so a launch from a login node has to be a job. See [`Plan::Queued`].
    pub queue: Option<&'static dyn Queue>,
    /// It runs jobs described by their requirements.
    pub described: Option<BuildArgs>,
    /// It launches ranks that differ from each other.
    pub mixed: Option<PlanMixed>,
    /// The user names its hosts. It can continue without hosts that it could not reach.
    pub host_lists: Option<&'static dyn HostLists>,
    /// gantry can parse its launcher's output.
    pub launcher_output: Option<&'static dyn LauncherOutput>,
    /// Its launcher waits for nodes. That time does not count towards the timeout of a launch.
    pub launcher_waits: Option<&'static dyn LauncherWaits>,
    /// Calls that exist for this WLM only. See [`extras`].
    pub extras: Option<&'static (dyn Any + Send + Sync)>,
}

/// Builds the arguments of a launch that runs this job of a co-allocation. The error names an attribute that the WLM does
/// not support.
pub type BuildArgs = fn(&Wanted) -> Result<Vec<OsString>>;

/// Plans the launch of ranks that differ in program, directory, variables or host. The launch has everything else. Starts
/// nothing. The error names the part that the WLM does not support.
pub type PlanMixed = fn(&Mixed, &Launch, &dyn Host) -> Result<Plan>;

impl Capabilities {
    /// No abilities, for machines of a network.
    pub const NONE: Self = Self {
        reach: Reach::Network,
        jobs: None,
        batch: None,
        queue: None,
        described: None,
        mixed: None,
        host_lists: None,
        launcher_output: None,
        launcher_waits: None,
        extras: None,
    };
}

/// The calls that exist for one WLM only, if `wlm` is that one. `T` is the type of these calls in the WLM's folder.
pub fn extras<T: Any>(wlm: &dyn Wlm) -> Option<&'static T> {
    wlm.capabilities().extras?.downcast_ref()
}

/// Where the nodes of `wlm` are.
pub fn reach(wlm: &dyn Wlm) -> Reach {
    wlm.capabilities().reach
}

/// Whether running things under `wlm` have a name there. A WLM without jobs, on this machine alone, has only processes.
pub fn has_job_names(wlm: &dyn Wlm) -> bool {
    wlm.capabilities().jobs.is_some() || reach(wlm) == Reach::Network
}

/// The batch jobs of `wlm`.
///
/// # Errors
/// It has none.
pub fn find_batch(wlm: &dyn Wlm) -> Result<&'static dyn BatchJobs> {
    wlm.capabilities().batch.ok_or_else(|| {
        let failure = Failure::new(Kind::Unsupported, format!("{} runs no batch jobs", wlm.name()));
        Error::Failed(failure.with_hint("choose a workload manager that does with --wlm"))
    })
}

/// The queue of `wlm`.
///
/// # Errors
/// It has none.
pub fn find_queue(wlm: &dyn Wlm) -> Result<&'static dyn Queue> {
    wlm.capabilities().queue.ok_or_else(|| Error::invalid(format!("{} has no queues", wlm.name())))
}

/// Finds how `wlm` runs a job that starts `program` and is described by its requirements.
///
/// # Errors
/// It runs no such jobs.
pub fn find_described(wlm: &dyn Wlm, program: &Path) -> Result<BuildArgs> {
    wlm.capabilities().described.ok_or_else(|| {
        let message = format!("{} takes no jobs that are described by what they need", wlm.name());
        Error::invalid_with(message, format!("launch {} there by itself", program.display()))
    })
}

/// Finds how `wlm` launches `size` ranks that differ from each other.
///
/// # Errors
/// It launches no such ranks.
pub fn find_mixed(wlm: &dyn Wlm, size: u32) -> Result<PlanMixed> {
    wlm.capabilities().mixed.ok_or_else(|| {
        let message = format!("{} starts no groups of {size} specified processes", wlm.name());
        Error::invalid_with(message, "choose another workload manager, or launch the programs there")
    })
}

/// Reads options that say how to reach the hosts of a running job. The result goes to [`Wlm::adopt`] and
/// [`Wlm::start_agents`]. Pure.
///
/// # Errors
/// `wlm` has no such option.
pub fn read_reach_args(wlm: &dyn Wlm, args: &[OsString]) -> Result<Vec<String>> {
    match (wlm.capabilities().host_lists, args.first()) {
        (Some(lists), _) => lists.read_reach_args(args),
        (None, None) => Ok(Vec::new()),
        (None, Some(arg)) => {
            let message = format!("{} has no option '{}' for what runs already", wlm.name(), arg.display());
            Err(Error::invalid_with(message, "leave out the words after '--'"))
        }
    }
}

/// Explains the end of a launcher of `wlm`. See [`LauncherOutput::explain_end`].
pub fn explain_launcher_end(
    wlm: &dyn Wlm,
    command: &[String],
    status: &str,
    stderr: &str,
) -> Option<Failure> {
    wlm.capabilities().launcher_output?.explain_end(command, status, stderr)
}
