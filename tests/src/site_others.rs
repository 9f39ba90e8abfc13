//! Ranks that gantry has not started: by the means that a place has itself.

use crate::places::CPUS;
use crate::proc::SOON;
use crate::site::Site;
use crate::testbed::pbs::installation;
use crate::{Run, becomes_true, proc, programs};

/// An app that a foreign launcher has started.
#[derive(Debug)]
pub struct Others {
    /// Its launcher.
    pub launcher: Run,
    /// The target to attach to.
    pub target: String,
    /// Its ranks, for [`proc`], sorted.
    pub ranks: Vec<i32>,
}

/// How many ranks it has.
const RANKS: usize = 4;

impl Site {
    /// Cancels the job that a rank belongs to, by the means of this place. False: ranks here have no job of their own.
    ///
    /// # Panics
    /// When it is not cancelled.
    #[track_caller]
    pub fn cancel_job_of(&self, rank: i32) -> bool {
        let (variable, words): (_, &[&str]) = match self.wlm() {
            "slurm" => ("SLURM_JOB_ID", &["scancel"]),
            "flux" => ("FLUX_JOB_ID", &["flux", "cancel"]),
            _ => return false,
        };
        let job = proc::variable(rank, variable).expect("a job");
        let mut command = self.command(words[0]);
        command.args(&words[1..]).arg(job);
        let done = self.world.spawn(command).wait(SOON);
        assert!(done.status.success(), "{done:?}");
        true
    }

    /// Starts four ranks by the means of this place: srun or `flux run` on two nodes, `pbsdsh` on four, `mpiexec` of
    /// MPICH on two hosts, a shell. None: this place has no such program.
    ///
    /// # Panics
    /// When they do not start.
    #[must_use]
    #[track_caller]
    pub fn others(&self) -> Option<Others> {
        let program = programs::get("loop_forever").display().to_string();
        // A name that no other job has.
        let name = self.world.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let job_name = format!("--job-name={name}");
        // `env` sets the tag, because this launcher sets no variables for its ranks.
        let tagged = format!("/usr/bin/env GANTRY_TEST_TAG={} {program}", self.world.tag());
        let pbsdsh = installation().unwrap_or_default().join("bin/pbsdsh").display().to_string();
        let places = format!("0 {} {} {}", CPUS, 2 * CPUS, 3 * CPUS);
        let pbsdsh = format!("for n in {places}; do {pbsdsh} -n $n -- {tagged} & done; wait");
        let words: Vec<&str> = match self.wlm() {
            "slurm" => vec!["srun", &job_name, "--nodes=2", "--ntasks=4", &program],
            "flux" => vec!["flux", "run", &job_name, "--nodes=2", "--ntasks=4", &program],
            "pbs" => vec!["sh", "-c", &pbsdsh],
            "ssh" => vec!["mpiexec.hydra", "-hosts", "n001,n002", "-ppn", "2", "-n", "4", &program],
            "localhost" => vec!["sh", "-c", "$0 & $0 & $0 & $0 & wait", &program],
            _ => return None,
        };
        let mut command = self.command(words[0]);
        command.args(&words[1..]);
        let launcher = self.world.spawn(command);
        let mut ranks = Vec::new();
        let runs = |pid: &i32| proc::exe(*pid).is_some_and(|exe| exe.ends_with("loop_forever"));
        let waits = |pid: &i32| runs(pid) && proc::state(*pid) == Some('S');
        let all_wait = becomes_true(2 * SOON, || {
            ranks = self.world.processes();
            ranks.retain(waits);
            ranks.len() == RANKS
        });
        assert!(
            all_wait,
            "{:?}",
            self.world.processes().into_iter().map(proc::command_line).collect::<Vec<_>>()
        );
        ranks.sort_unstable();
        let target = match self.wlm() {
            "slurm" => {
                let mut squeue = self.command("squeue");
                squeue.args(["--noheader", "--format=%i.0", "--name", &name]);
                self.world.spawn(squeue).next_line(SOON).trim().to_owned()
            }
            "flux" => {
                let mut jobs = self.command("flux");
                jobs.args(["jobs", "--no-header", "--format={id}", "--name", &name]);
                self.world.spawn(jobs).next_line(SOON).trim().to_owned()
            }
            "pbs" => std::env::var("PBS_JOBID").expect("a job"),
            "ssh" => launcher.pid().to_string(),
            _ => ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        };
        Some(Others { launcher, target, ranks })
    }
}
