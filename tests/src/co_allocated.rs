//! Co-allocated jobs whose parts run under several workload managers, and what must hold for each set of managers.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::slurm::Cluster;
use crate::{Run, SOON, becomes_true, binaries, proc};

/// A part whose programs call the barrier.
#[must_use]
pub fn part(label: &str, contact: &str, steps: &str, more: &str) -> String {
    let program = binaries().dir.join("job_probe").display().to_string();
    format!(
        "(&(resourceManagerContact=\"{contact}\")(label={label})(barrierPoint=runtime)(directory=/)(executable=\"{program}\")(arguments={steps}){more})"
    )
}

/// Begins a job of these parts, which takes orders on its standard input.
#[track_caller]
pub fn begin(cluster: &Cluster, parts: &[String]) -> Run {
    cluster.gantry(["coalloc", "-i", &format!("+{}", parts.concat())])
}

/// Runs a job of these parts. Returns its output of errors.
#[track_caller]
fn run(cluster: &Cluster, parts: &[String], timeout: Duration) -> String {
    cluster.gantry(["coalloc", &format!("+{}", parts.concat())]).wait(timeout).stderr.join("\n")
}

/// The same job, with what the ranks of each MPI part print in a file of this folder: `out0`, `out1`, ...
#[must_use]
pub fn into_files(job: &str, folder: &Path) -> String {
    let mut pieces = job.split("(jobType=mpi)");
    let first = pieces.next().unwrap_or_default().to_owned();
    let file = |number: usize| format!("(jobType=mpi)(stdout=\"{}/out{number}\")", folder.display());
    pieces.enumerate().fold(first, |job, (number, piece)| format!("{job}{}{piece}", file(number)))
}

/// Four workload managers: Slurm, ssh, this machine, and the one that a suite is about.
#[derive(Debug, Clone, Copy)]
pub struct FourManagers {
    /// The name of the one that the suite is about, and the label of its part.
    pub name: &'static str,
    /// Its contact.
    pub contact: &'static str,
    /// The jobs that it has.
    pub jobs: fn(&Cluster) -> String,
    /// Timeout for a part to start.
    pub starts: Duration,
}

impl FourManagers {
    /// A part on each of the managers: two ranks on two nodes of each batch system, one rank over ssh, one here.
    #[must_use]
    pub fn parts(&self, steps: &str) -> [String; 4] {
        [
            part(self.name, self.contact, steps, "(count=2)(hostCount=2)"),
            part("slurm", "slurm", steps, "(count=2)(hostCount=2)"),
            part("ssh", "ssh://n003", steps, ""),
            part("here", "localhost", steps, ""),
        ]
    }

    /// The same parts as a job that is one MPI world.
    #[must_use]
    pub fn job_of_mpi(&self, program: &str, arguments: &str) -> String {
        let of_mpi = |part: String| {
            let part = part.replace("(barrierPoint=runtime)", "(jobType=mpi)");
            part.replace(&binaries().dir.join("job_probe").display().to_string(), program)
        };
        format!("+{}", self.parts(arguments).map(of_mpi).concat())
    }

    /// Waits until all parts have reached this state.
    #[track_caller]
    pub fn reach(&self, run: &mut Run, state: &str) {
        run.stderr_line(&format!("{0} on {0}: {state}", self.name), self.starts);
        for part in ["slurm on slurm", "ssh on ssh", "here on localhost"] {
            run.stderr_line(&format!("{part}: {state}"), self.starts);
        }
    }

    /// Waits until no program of the job runs, and the manager has no job.
    ///
    /// # Panics
    /// If this takes too long.
    #[track_caller]
    pub fn nothing_runs(&self, cluster: &Cluster, steps: &str) {
        let jobs = || (self.jobs)(cluster);
        let gone = becomes_true(2 * SOON, || cluster.find(steps).is_empty() && jobs().is_empty());
        assert!(gone, "{:?}, {}", cluster.find(steps), jobs());
    }

    /// All parts are held at one barrier. `look` sees them there.
    ///
    /// # Panics
    /// If they are not.
    #[track_caller]
    pub fn are_held_at_one_barrier(&self, cluster: &Cluster, look: impl FnOnce()) {
        let steps = "barrier bootstrap ring:5 big:300000 order";
        let mut run = begin(cluster, &self.parts(steps));
        self.reach(&mut run, "checked in");
        let mut nodes: Vec<String> = cluster.find(steps).into_iter().map(|(node, _)| node).collect();
        nodes.sort_unstable();
        assert_eq!(nodes, ["n001", "n002", "n003", "n003", "n004"]);
        look();
        run.write(b"C\n");
        let done = run.wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
    }

    /// All parts are one MPI world.
    ///
    /// # Panics
    /// If they are not.
    #[track_caller]
    pub fn are_one_mpi_world(&self, cluster: &Cluster, program: &str) {
        let job = self.job_of_mpi(program, "ring 3 allreduce 2 stencil 20");
        let done = cluster.gantry(["coalloc", "-s", &job]).wait(self.starts.max(3 * SOON));
        let right = done.stdout.iter().filter(|line| line.starts_with("rank ") && line.ends_with(" right"));
        assert_eq!((done.code(), right.count()), (0, 18), "{done:?}");
        let of_first = "rank 1 of 6, program 0: stencil right";
        assert!(done.stdout.iter().any(|line| line == of_first), "{done:?}");
    }

    /// A rank of this manager's part that is killed ends the MPI world. The other parts are told which part it was.
    ///
    /// # Panics
    /// If anything else happens.
    #[track_caller]
    pub fn a_killed_rank_ends_the_mpi_world(&self, cluster: &Cluster, program: &str) {
        let folder = cluster.world.work_dir();
        let job = into_files(&self.job_of_mpi(program, "ring 1 wait"), &folder);
        let mut run = cluster.gantry(["coalloc", &job]);
        // After MPI_Init: a rank that is killed within it leaves UCX's file in /dev/shm.
        let all_wait = becomes_true(self.starts.max(2 * SOON), || {
            let files = (0..4).map(|part| folder.join(format!("out{part}")));
            let texts = files.filter_map(|file| std::fs::read_to_string(file).ok());
            texts.map(|text| text.matches(" waits\n").count()).sum::<usize>() == 6
        });
        assert!(all_wait, "{:?} {:?}", run.stdout().to_vec(), run.stderr().to_vec());
        let ranks = cluster.find("mpi_work ring 1 wait").into_iter().map(|(_, process)| process.pid);
        let is_first = |pid: &i32| proc::variable(*pid, "PMI_RANK").as_deref() == Some("0");
        proc::send(ranks.into_iter().find(is_first).expect("rank 0"), Signal::SIGKILL);
        let done = run.wait(2 * SOON);
        assert_eq!(done.code(), 137, "{done:?}");
        for other in ["slurm on slurm", "ssh on ssh", "here on localhost"] {
            let line = done.stderr.iter().find(|line| line.contains(&format!("{other}: done: ")));
            let of_this = format!("subjob {}: rank ", self.name);
            assert!(line.is_some_and(|line| line.contains(&of_this)), "{other}: {done:?}");
        }
        self.nothing_runs(cluster, "mpi_work ring 1 wait");
    }

    /// A part that fails before the barrier ends the job if the part is strict, and itself alone if it is not.
    ///
    /// # Panics
    /// If it does anything else.
    #[track_caller]
    pub fn a_part_that_fails_ends_a_strict_job_alone(&self, cluster: &Cluster) {
        for (start, ends_all) in [("strict-barrier", true), ("loose-barrier", false)] {
            let mut parts = self.parts("barrier");
            let more =
                format!("(count=2)(hostCount=2)(subjobStartType={start})(subjobCommsType=independent)");
            parts[0] = part(self.name, self.name, "exit-of-rank:1 barrier", &more);
            let said = run(cluster, &parts, self.starts.max(2 * SOON));
            let killed = format!("the job was killed: subjob {} failed", self.name);
            assert_eq!(said.contains(&killed), ends_all, "{start}: {said}");
            assert_eq!(said.contains("slurm on slurm: done"), !ends_all, "{start}: {said}");
            assert!(!ends_all || !said.contains("slurm on slurm: released"), "{said}");
            self.nothing_runs(cluster, "barrier");
        }
    }

    /// If the control side is killed, everything ends on every manager.
    ///
    /// # Panics
    /// If it does not.
    #[track_caller]
    pub fn everything_ends_with_the_control_side(&self, cluster: &Cluster) {
        for released in [false, true] {
            let mut run = begin(cluster, &self.parts("barrier wait"));
            self.reach(&mut run, "checked in");
            if released {
                run.write(b"C\n");
                self.reach(&mut run, "released");
            }
            assert_eq!(cluster.find("barrier wait").len(), 5);
            run.kill();
            self.nothing_runs(cluster, "barrier wait");
        }
    }

    /// A part that the manager does not start stays in its queue until the job is killed.
    ///
    /// # Panics
    /// If a job stays, or never came.
    #[track_caller]
    pub fn a_part_that_never_starts_leaves_no_job(&self, cluster: &Cluster, resources: &str) {
        let parts = [
            part("never", self.name, "barrier wait", resources),
            part("here", "localhost", "barrier wait", ""),
        ];
        let mut run = begin(cluster, &parts);
        run.stderr_line("here on localhost: checked in", SOON);
        let queued = becomes_true(SOON, || !(self.jobs)(cluster).is_empty());
        assert!(queued, "{} was not asked for it", self.name);
        run.write(b"K\n");
        assert_eq!(run.wait(SOON).code(), 68);
        self.nothing_runs(cluster, "barrier wait");
    }
}
