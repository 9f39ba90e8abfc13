//! `gantry why` and `gantry stack` on a hung job of a real PBS, by the job's id. Then the job is freed and must print
//! its result.

use std::time::{Duration, Instant};

use gantry_tests::hung::{lost_message, lost_message_says};
use gantry_tests::pbs::{STARTS, Script, jobs, on_pbs};
use gantry_tests::{SOON, eventually, proc, record_skip, tool};
use nix::sys::signal::Signal;

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_job_that_hangs_tells_the_odd_ranks_and_their_nodes_and_has_its_result_once_it_is_freed() {
    on_pbs(|cluster| {
        let hang = match tool("mpiexec.hydra").and_then(|_| lost_message("mpicc.mpich")) {
            Ok(hang) => hang,
            Err(why) => return record_skip(&why),
        };
        let script = Script::submit(&cluster.bed, &format!("mpiexec.hydra -n 6 {hang}"));
        let ranks = || -> Vec<i32> {
            let all = cluster.find(&hang).into_iter().map(|(_, process)| process);
            all.filter(|process| process.line == hang).map(|process| process.pid).collect()
        };
        eventually(STARTS, "ranks", || ranks().len() == 6 || script.code().is_some());
        let says = lost_message_says("n001", "n002", 4);
        let until = Instant::now() + LONG;
        loop {
            let why = cluster.gantry(["why", "--wlm", "pbs", &script.id]).wait(LONG);
            assert_eq!(why.code(), 0, "{why:?}");
            if why.stdout == says {
                break;
            }
            assert!(Instant::now() < until, "{why:?}");
        }
        let tree = cluster.gantry(["stack", "--wlm", "pbs", &script.id]).wait(LONG);
        assert_eq!((tree.code(), tree.stdout[0].as_str()), (0, "6 ranks in 3 classes"), "{tree:?}");
        assert!(tree.stdout.iter().any(|line| line.contains("[3] on n002")), "{tree:?}");
        assert!(ranks().iter().all(|pid| proc::tracer(*pid).is_none()));
        proc::send_those_left(ranks(), Signal::SIGUSR1);
        let (code, text) = script.wait();
        assert_eq!((code, text.matches("result 7").count()), (0, 6), "{text}");
        eventually(2 * SOON, "the job has ended", || jobs(&cluster.bed).is_empty());
        eventually(SOON, "no rank is left", || ranks().is_empty());
    });
}
