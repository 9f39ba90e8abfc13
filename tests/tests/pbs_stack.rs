//! `gantry why` on a job of a real PBS that hangs, by the job's id.

use std::time::{Duration, Instant};

use gantry_tests::pbs::{STARTS, Script, jobs, on_pbs, said_by};
use gantry_tests::{SOON, eventually, programs, record_skip, tool};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_job_that_hangs_tells_the_odd_ranks_and_their_nodes() {
    on_pbs(|cluster| {
        let hang = tool("mpiexec.hydra").and_then(|_| programs::get_mpi("mpi_hang", "mpicc.mpich"));
        let hang = match hang {
            Ok(hang) => hang.display().to_string(),
            Err(why) => return record_skip(&why),
        };
        let script = Script::submit(&cluster.bed, &format!("mpiexec.hydra -n 6 {hang}"));
        let is_rank = |line: &str| line == hang;
        eventually(STARTS, "ranks", || {
            cluster.find(&hang).iter().filter(|(_, it)| is_rank(&it.line)).count() == 6
                || script.code().is_some()
        });
        let until = Instant::now() + LONG;
        let why = loop {
            let why = cluster.gantry(["why", "--wlm", "pbs", &script.id]).wait(LONG);
            assert_eq!(why.code(), 0, "{why:?}");
            let first = why.stdout.first().map(String::as_str).unwrap_or_default();
            if first.starts_with("rank 0 on n001 waits in MPI_Recv called at mpi_hang.c:")
                && first.contains(" while 4 others wait in MPI_Barrier called at mpi_hang.c:")
            {
                break why.stdout;
            }
            assert!(Instant::now() < until, "{why:?}");
        };
        assert!(why.len() == 2 && why[1].starts_with("rank 5 on n003 "), "{why:?}");
        assert_eq!(said_by(&cluster.bed, &["qdel", &script.id]), "");
        eventually(2 * SOON, "the job has ended", || jobs(&cluster.bed).is_empty());
        // Processes of the launcher's ssh are in no session of the job.
        for (_, process) in cluster.find(&hang).into_iter().filter(|(_, it)| is_rank(&it.line)) {
            gantry_tests::proc::send_those_left([process.pid], nix::sys::signal::Signal::SIGKILL);
        }
        eventually(SOON, "no rank is left", || !cluster.find(&hang).iter().any(|(_, it)| is_rank(&it.line)));
    });
}
