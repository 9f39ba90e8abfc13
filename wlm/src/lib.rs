//! The seam between gantry and workload managers (WLMs).
//!
//! *A WLM knows how to start, find and watch, and nothing else.* No staging, no daemons, no file copying per WLM: all of that
//! goes over the overlay and is the same everywhere. To add one: a folder here, a line in [`WLMS`], a folder of fixtures.
//!
//! | module | what is there |
//! | --- | --- |
//! | [`host`] | [`Host`]: the one door to the machine, so that everything else is tested without a cluster |
//! | [`detect`] | which WLM is used, and why |
//! | `launch` | [`Launch`], what a tool asks for, and [`Plan`], how it will be done |
//! | `hold` | how ranks would be held, for people who ask before they launch |
//! | `policy` | hosts that cannot be reached, and whether it goes on without them |
//! | `job` | what runs already: [`JobRef`], and what a WLM says of it |
//! | [`queue`] | WLMs that give nodes to jobs only |
//! | `waits` | launchers that wait for nodes |
//! | `wanted` | jobs that are described by what they need |
//! | `slots` | hosts that take so many ranks each, and which rank goes where |
//! | [`launcher`] | launchers: where the program stands in their arguments, which rank a process of theirs is |
//! | a folder each | the WLMs: detection, commands, what they print, and what acts; `localhost` is no workload manager: ranks on this machine |
//! | [`mpir`] | launchers that say where their ranks are |

pub mod detect;
pub mod host;
pub mod launcher;
pub mod mpir;
pub mod pbs;
pub mod pmix;
pub mod queue;
pub mod slurm;
pub mod ssh;
mod beneath;
mod error;
mod give;
mod hold;
mod job;
mod launch;
mod localhost;
mod policy;
mod safe;
mod slots;
mod wanted;
mod waits;
#[cfg(test)]
mod skip;

use std::any::Any;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use async_trait::async_trait;
use gantry_shared::error::{Failure, Kind};

pub use detect::{Choice, Evidence, choose};
pub use error::{Error, Result};
pub use give::{FETCHED, Gifts};
pub use hold::{HoldChoice, choose_hold};
pub use host::Host;
pub use job::{Adoption, AppRef, CauseKind, EndCause, EndedApp, HeldScript, JobRef, Submission};
pub use launch::{
    AgentCommand, AgentLinks, AgentWatch, Brought, Direct, Driven, HoldMethod, Launch, Plan, ProcessOwner,
    Queued, SendAgent, StepStart,
};
pub use policy::{HostsPolicy, LeftOut};
pub use queue::{JobStarter, Queue};
pub use waits::{LauncherWait, LauncherWaits, WaitLine};
pub use wanted::{JobType, Mixed, MixedPart, Wanted};

/// Every workload manager, in order of detection. The only list there is.
pub static WLMS: &[&dyn Wlm] = &[&slurm::Slurm, &pbs::Pbs, &ssh::Ssh, &localhost::Localhost];

/// For each of them that has jobs, the variables in which a process finds the job and the step that it belongs to.
pub static WLMS_JOB_VARIABLES: &[&[&str]] = &[slurm::JOB_VARIABLES, pbs::JOB_VARIABLES];

/// What gantry needs of a workload manager. Stateless: everything it works on is passed in.
#[async_trait]
pub trait Wlm: Send + Sync + fmt::Debug {
    /// The name by which users choose it and by which events name it.
    fn name(&self) -> &'static str;

    /// Whether this machine is ruled by this WLM, and what says so. Runs no program.
    fn detect(&self, host: &dyn Host) -> Option<Evidence>;

    /// Whether a launcher that has said this on its standard error cannot start ranks because their nodes do not have gantry's agent, which is then sent.
    fn lacks_agent(&self, _words: &str) -> bool {
        false
    }

    /// Whether this process is in a job of this WLM. That says more than what else is on the machine.
    fn is_in_job(&self, _host: &dyn Host) -> bool {
        false
    }

    /// Whether a launch with these arguments and without a launcher's name is meant for this WLM, wherever it is asked for, and what says so.
    fn is_meant(&self, _args: &[OsString]) -> Option<Evidence> {
        None
    }

    /// Whether it can go on without hosts that it could not reach: [`AgentCommand::policy`].
    fn leaves_out_hosts(&self) -> bool {
        false
    }

    /// Where its nodes are: whether agents come from other machines.
    fn reach(&self) -> Reach {
        Reach::Network
    }

    /// By what it reaches nodes where the agent on this machine is `agent`, and why, for people. None: there is nothing to choose. Starts nothing.
    ///
    /// # Errors
    /// What was asked for is not there.
    fn means(&self, _agent: &Path, _host: &dyn Host) -> Result<Option<String>> {
        Ok(None)
    }

    /// Beginnings of names of variables that tell a process its own place: what an agent finds in its own environment is for the ranks and daemons of its
    /// node, whatever the tool's environment says.
    fn node_variables(&self) -> &'static [&'static str] {
        &[]
    }

    /// How `launch` will be carried out. Starts nothing.
    ///
    /// # Errors
    /// Arguments that the launcher would refuse, a program that cannot be told apart from the options, a hold method that does not fit.
    fn plan(&self, launch: &Launch, host: &dyn Host) -> Result<Plan>;

    /// What a launch of this WLM is given for a job that is described by what it needs.
    ///
    /// # Errors
    /// An attribute that it cannot honour, by its name.
    fn build_args(&self, wanted: &Wanted) -> Result<Vec<OsString>> {
        let message = format!("{} takes no jobs that are described by what they need", self.name());
        let hint = format!("launch {} there by itself", wanted.program.display());
        Err(Error::Invalid { message, hint: Some(hint) })
    }

    /// How a launch of ranks that are not all the same will be carried out, `launch` saying the rest. Starts nothing.
    ///
    /// # Errors
    /// What of it this WLM cannot honour.
    fn plan_mixed(&self, mixed: &Mixed, _launch: &Launch, _host: &dyn Host) -> Result<Plan> {
        let message = format!("{} starts no groups of {} specified processes", self.name(), mixed.size());
        Err(Error::invalid_with(message, "choose another workload manager, or launch the programs there"))
    }

    /// Reads options for how what runs already is reached: those of a launch that say how it reaches nodes. What they say, in words of its own, is told again when it
    /// is asked where the ranks are, and when agents start there. Pure.
    ///
    /// # Errors
    /// It knows no such option.
    fn read_reach_args(&self, args: &[OsString]) -> Result<Vec<String>> {
        match args.first() {
            None => Ok(Vec::new()),
            Some(arg) => {
                let message =
                    format!("{} has no option '{}' for what runs already", self.name(), arg.display());
                Err(Error::invalid_with(message, "leave out the words after '--'"))
            }
        }
    }

    /// Where the ranks of `job` are. Changes nothing about the job. May take as long as a program of the WLM does, and hold up its thread meanwhile. `told` is of
    /// [`Wlm::read_reach_args`], `agent` the agent's path on this machine, for a WLM that has to have one look elsewhere.
    ///
    /// # Errors
    /// The job is unknown, has ended, or belongs to somebody else. [`Error::NotYet`]: it has no ranks yet and may get some.
    async fn adopt(&self, job: &JobRef, told: &[String], agent: &Path, host: &dyn Host) -> Result<Adoption>;

    /// Starts one agent on every node of `app`. Returns when all are started; that they have reported is the overlay's business.
    ///
    /// # Errors
    /// What the WLM or the node said when it refused.
    async fn start_agents(
        &self,
        app: &AppRef,
        agent: &AgentCommand,
        host: &dyn Host,
        owner: &dyn ProcessOwner,
    ) -> Result<()>;

    /// What is to be made of a launcher of this WLM that ended with `status` before its ranks were there; `words` are the last that it wrote on
    /// standard error. None: nothing beyond that is known.
    fn explain(&self, _command: &[String], _status: &str, _words: &str) -> Option<Failure> {
        None
    }

    /// What a line that a launcher of this WLM has written on standard error says of why its ranks were ended, if it is about that.
    fn read_cause(&self, _line: &str) -> Option<EndCause> {
        None
    }

    /// Why an app was ended that no launcher of ours has brought. May take as long as a program of the WLM does, and hold up its thread meanwhile. None: not by
    /// the WLM, as far as it tells.
    ///
    /// # Errors
    /// [`Error::NotYet`] while the job ends; the WLM's own words.
    async fn find_cause(&self, _ended: &EndedApp, _host: &dyn Host) -> Result<Option<EndCause>> {
        Ok(None)
    }

    /// What it can do if it gives nodes to jobs only, and launches from elsewhere have to be jobs: [`Plan::Queued`].
    fn queue(&self) -> Option<&'static dyn Queue> {
        None
    }

    /// Reads the launcher's waits for nodes. That time does not count as time of the launch. None: its launcher does not wait.
    fn launcher_waits(&self) -> Option<&'static dyn LauncherWaits> {
        None
    }

    /// Submits a batch job. May take as long as a program of the WLM does, and hold up its thread meanwhile.
    ///
    /// # Errors
    /// The WLM's own words; a WLM that has no batch jobs says so.
    async fn submit(&self, _submission: &Submission, _host: &dyn Host) -> Result<JobRef> {
        let failure = Failure::new(Kind::Unsupported, format!("{} runs no batch jobs", self.name()));
        Err(Error::Refused(failure.with_hint("choose a workload manager that does with --wlm")))
    }

    /// The command that cancels a job which was submitted. It says nothing where all goes well.
    ///
    /// # Errors
    /// There is no such command on this machine, or none at all.
    fn plan_cancel(&self, job: &JobRef, _host: &dyn Host) -> Result<Vec<OsString>> {
        Err(Error::invalid(format!("{} cannot cancel {}", self.name(), job.0)))
    }

    /// Whether what it runs are jobs with names of the WLM's, by which its own commands know them.
    fn names_jobs(&self) -> bool {
        true
    }

    /// Calls that make sense with this WLM only, as a type of its own folder. [`extras`] gives it.
    fn extras(&self) -> Option<&'static dyn Any> {
        None
    }
}

/// The calls that make sense with one WLM only, if that is `wlm`: `T` is the type that its folder has for them.
pub fn extras<T: Any>(wlm: &dyn Wlm) -> Option<&'static T> {
    wlm.extras()?.downcast_ref()
}

/// Where the nodes of a WLM are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// All is on this machine: nobody else needs to be able to dial.
    ThisMachine,
    /// On machines of a network.
    Network,
}
