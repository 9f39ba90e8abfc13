//! Apps in jobs of a real PBS, launched by the job's script as an ordinary user. Agents are tasks of the job, and
//! start the ranks.

use gantry_tests::pbs::{Script, ask_there, on_pbs, said_by};
use gantry_tests::slurm::Cluster;
use gantry_tests::testbed::Process;
use gantry_tests::{SOON, becomes_true, binaries, eventually, proc, programs, tool};

/// The node and process of each rank with this command line, sorted by node. The tool and launchers have lines with
/// the same end, and do not count.
fn ranks_of(cluster: &Cluster, line: &str) -> Vec<(String, Process)> {
    let mut ranks = cluster.find(line);
    ranks.retain(|(_, process)| process.line.starts_with('/') && process.line.split(' ').count() == 2);
    ranks.sort_by(|one, other| one.0.cmp(&other.0));
    ranks
}

/// Ranks with this command line must be on these nodes, and all must be held according to `/proc`.
#[track_caller]
fn assert_held(cluster: &Cluster, line: &str, nodes: &[&str]) {
    let found = ranks_of(cluster, line);
    let there: Vec<&str> = found.iter().map(|(node, _)| node.as_str()).collect();
    assert_eq!(there, nodes, "{line}: {found:?}");
    for (node, process) in found {
        assert_eq!(proc::why_not_held(process.pid), None, "{node}: {process:?}");
    }
}

/// Two ranks on each node.
const ALL: [&str; 6] = ["n001", "n001", "n002", "n002", "n003", "n003"];

/// Starts a job that holds ranks of a program that exits with 7. Returns the job's script and the app.
#[track_caller]
fn held(cluster: &Cluster, options: &str) -> (Script, String) {
    let program = programs::get("exit_with").display().to_string();
    let script = format!("gantry launch --json --hold -- {options} {program} 7");
    let script = Script::submit(&cluster.bed, &script);
    let event = script.event("held");
    let app = event["app"].as_str().expect("an id").to_owned();
    (script, app)
}

#[test]
fn every_rank_has_the_place_in_the_job_of_its_own_host() {
    on_pbs(|cluster| {
        let say = "echo rank $GANTRY_RANK of $GANTRY_SIZE on $(hostname) host $PBS_NODENUM of job $PBS_JOBID";
        let foreign = "echo at $GANTRY_RANK: $PBS_TASKNUM; [ -z \"$GANTRY_TICKET\" ] || echo secret";
        let script = format!(
            "gantry launch -- --map-by node -n 4 sh -c '{say}; {foreign}'; echo own $PBS_TASKNUM; \
             {} tasks; gantry launch -- --ppn 1 --nodes 2 sh -c 'echo two on $(hostname)'",
            binaries().dir.join("tm_probe").display()
        );
        let script = Script::submit(&cluster.bed, &script);
        let (code, text) = script.wait();
        assert_eq!(code, 0, "{text}");
        for (rank, host, index) in [(0, "n001", 0), (1, "n002", 1), (2, "n003", 2), (3, "n001", 0)] {
            let line = format!("rank {rank} of 4 on {host} host {index} of job {}", script.id);
            assert!(text.lines().any(|it| it == line), "no '{line}':\n{text}");
        }
        let task = |of: &str| text.lines().find_map(|line| line.strip_prefix(of)).map(str::to_owned);
        let tasks = ["at 0: ", "at 1: ", "at 2: ", "own "].map(|of| task(of).expect(of));
        assert_eq!(task("at 3: "), Some(tasks[0].clone()), "of one agent: {text}");
        let distinct: std::collections::BTreeSet<_> = tasks.iter().collect();
        assert_eq!(distinct.len(), 4, "{text}");
        assert!(!text.contains("secret"), "{text}");
        let mut listed: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("task ")).collect();
        listed.sort_unstable();
        let hosts = ["n001", "n002", "n003", "n001"];
        let mut expected: Vec<_> =
            tasks.iter().zip(hosts).map(|(id, host)| format!("{id:0>8} on {host}")).collect();
        expected.sort_unstable();
        assert_eq!(listed, expected, "{text}");
        let outside = cluster.run(binaries().dir.join("tm_probe"), ["tasks"], &[]).wait(SOON);
        assert_eq!(outside.code(), 1);
        assert!(outside.stderr.join(" ").contains("answer its own processes alone"), "{outside:?}");
        let two: Vec<&str> = text.lines().filter(|line| line.starts_with("two on ")).collect();
        assert!(two.len() == 2 && two.contains(&"two on n001") && two.contains(&"two on n002"), "{text}");
    });
}

#[test]
fn a_job_that_is_deleted_while_ranks_are_held_leaves_nothing_on_any_host() {
    on_pbs(|cluster| {
        let (script, _) = held(cluster, "");
        assert_held(cluster, "exit_with 7", &ALL);
        let said = said_by(&cluster.bed, &["qdel", &script.id]);
        assert_eq!(said, "");
        eventually(2 * SOON, "no rank is left", || ranks_of(cluster, "exit_with 7").is_empty());
    });
}

#[test]
fn failures_in_a_job_have_their_own_errors() {
    on_pbs(|cluster| {
        let script = "\
            PBS_JOBCOOKIE=0123456789ABCDEF0123456789ABCDEF gantry launch --json --wlm pbs -- true; \
            PBS_JOBID=999.login gantry launch --json --wlm pbs -- true; \
            PBS_MOMPORT=9 gantry launch --json --wlm pbs -- true; \
            gantry launch --json -- -n 7 true; \
            gantry launch --json -- no-such-program; \
            gantry launch --json -- -l select=1 true; \
            (unset PBS_NODEFILE; gantry launch --json --wlm pbs -- true); \
            exit 0";
        let script = Script::submit(&cluster.bed, script);
        let (_, text) = script.wait();
        let errors: Vec<_> = script.events().into_iter().filter(|event| event["event"] == "error").collect();
        let expected = [
            ("no-access", "the mom hung up without an answer: the cookie is not that of the job"),
            ("no-access", "the job is not known on this host"),
            ("lost", "connect to the mom at 127.0.0.1:9"),
            ("invalid", "7 ranks for 6 places on 3 hosts"),
            ("not-found", "no-such-program"),
            ("invalid", "'-l' is for qsub, and in a job nothing is submitted"),
            ("invalid", "PBS_NODEFILE is not set"),
        ];
        assert_eq!(errors.len(), expected.len(), "{text}");
        for (error, (kind, words)) in errors.iter().zip(expected) {
            assert_eq!(error["kind"], kind, "{error}");
            assert!(error["message"].as_str().is_some_and(|it| it.contains(words)), "{error}");
        }
    });
}

#[test]
fn an_mpi_launcher_brings_agents_to_the_hosts_of_the_job() {
    on_pbs(|cluster| {
        if let Err(why) = tool("mpiexec.hydra") {
            return gantry_tests::record_skip(&why);
        }
        let program = programs::get("exit_with").display().to_string();
        let script = format!("gantry launch --json --hold --launcher mpiexec.hydra -- -n 6 {program} 5");
        let script = Script::submit(&cluster.bed, &script);
        let app = script.event("held")["app"].as_str().expect("an id").to_owned();
        assert_held(cluster, "exit_with 5", &ALL);
        ask_there(&cluster.bed, ["release", &app]);
        assert!(becomes_true(SOON, || script.code() == Some(5)), "{}", script.text());
    });
}

/// The ranks do not stop by themselves. They wait in the library for their launcher.
#[test]
fn a_launcher_that_says_where_its_ranks_are_holds_them_on_the_hosts_of_the_job() {
    on_pbs(|cluster| {
        if let Err(why) = tool("mpirun.openmpi") {
            return gantry_tests::record_skip(&why);
        }
        let hello = match programs::get_mpi("mpi_hello", "mpicc.openmpi") {
            Ok(hello) => hello.display().to_string(),
            Err(why) => return gantry_tests::record_skip(&why),
        };
        let by = "--hold-method mpir --launcher mpirun.openmpi -- --hostfile $PBS_NODEFILE -n 6";
        let script = format!("gantry launch --json --hold {by} {hello}");
        let script = Script::submit(&cluster.bed, &script);
        let held = script.event("held");
        let mut ranks = cluster.find(&hello);
        ranks.retain(|(_, process)| process.line == hello);
        ranks.sort_by(|one, other| one.0.cmp(&other.0));
        let nodes: Vec<&str> = ranks.iter().map(|(node, _)| node.as_str()).collect();
        assert_eq!(nodes, ALL, "{held}");
        for (node, rank) in &ranks {
            let seen = (proc::state(rank.pid), proc::tracer(rank.pid));
            assert_eq!(seen, (Some('T'), None), "{node}: {rank:?}");
        }
        ask_there(&cluster.bed, ["release", held["app"].as_str().expect("an id")]);
        let (_, text) = script.wait();
        let said: String = script.events().iter().filter_map(|event| event["text"].as_str()).collect();
        for rank in 0..6 {
            assert!(said.contains(&format!("rank {rank} of 6 on ")), "{text}");
        }
    });
}
