//! Apps under a real Slurm, launched by an ordinary user: held by one srun, with a daemon on every node, released,
//! and nothing left.
//!
//! A new testbed is started when the next test needs another configuration. Tests run in the order of their names, so
//! the names of tests for another testbed begin with the reason.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use gantry_tests::proc::eventually;
use gantry_tests::slurm::{Cluster, error_of, lines_of, on_cluster};
use gantry_tests::testbed::Config;
use gantry_tests::testbed::config::Proctrack;
use gantry_tests::{Run, SOON, binaries, programs, require, write_executable};

/// Two tasks on each of two nodes.
const FOUR: [&str; 4] = ["--", "-N2", "-n4", "--ntasks-per-node=2"];

/// A file that every host can access, because the folder of the tests' programs is in the repository.
fn shared_file(name: &str, text: &str) -> PathBuf {
    let folder =
        gantry_tests::target_dir().join("test-programs").join(format!("slurm-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join(name);
    write_executable(&path, text);
    path
}

/// Launches held, checks this many held processes on the nodes and releases them. Returns the output. The exit code
/// must be `code`.
#[track_caller]
fn check_held(cluster: &Cluster, args: &[&str], line: &str, count: usize, code: i32) -> Vec<String> {
    let (mut run, app) = cluster.held(args);
    cluster.assert_held(line, count);
    cluster.ask(&["release", &app]);
    let done = run.wait(SOON);
    assert_eq!(done.code(), code, "{done:?}");
    lines_of(&done)
}

fn four<'a>(words: &[&'a str]) -> Vec<&'a str> {
    FOUR.iter().copied().chain(words.iter().copied()).collect()
}

#[test]
fn an_mpi_program_is_held_and_its_ranks_find_each_other() {
    let hello = require!(programs::get_mpi("mpi_hello", "mpicc.mpich")).display().to_string();
    on_cluster(Config::with_nodes(2), move |cluster| {
        let said = check_held(cluster, &four(&["--mpi=pmi2", &hello]), "mpi_hello", 4, 0);
        let expected: Vec<String> =
            (0..4).map(|rank| format!("rank {rank} of 4 on n00{}", rank / 2 + 1)).collect();
        assert_eq!(said, expected);
    });
}

#[test]
fn a_file_with_programs_is_held_by_its_lines() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let file = shared_file("programs", "0-1 /bin/echo first %t\n2,3 /bin/echo second %o\n")
            .display()
            .to_string();
        let (mut run, app) = cluster.held(&four(&["--multi-prog", &file]));
        for (line, count) in [("first 0", 1), ("first 1", 1), ("second 0", 1), ("second 1", 1)] {
            cluster.assert_held(line, count);
        }
        cluster.ask(&["release", &app]);
        assert_eq!(lines_of(&run.wait(SOON)), ["first 0", "first 1", "second 0", "second 1"]);
    });
}

#[test]
fn parts_of_a_launch_are_held_with_global_ranks() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let args = ["--", "-n1", "/bin/echo", "one", ":", "-n2", "/bin/echo", "two"];
        let mut run = cluster.gantry(["launch", "--json", "--cwd", "/", "--hold"].iter().chain(&args));
        let held = run.next_event("held", SOON);
        let ranks = held["ranks"].as_array().expect("ranks");
        let numbers: Vec<_> = ranks.iter().filter_map(|rank| rank["rank"].as_u64()).collect();
        assert_eq!(numbers, [0, 1, 2], "{held}");
        cluster.assert_held("echo one", 1);
        cluster.assert_held("echo two", 2);
        cluster.ask(&["release", held["app"].as_str().expect("an id")]);
        let said = lines_of(&run.wait(SOON));
        let said: Vec<_> = said.iter().filter(|line| !line.starts_with("srun: ")).collect();
        assert_eq!(said, ["one", "two", "two"]);
    });
}

#[test]
fn tasks_without_the_callers_environment_are_held_too() {
    on_cluster(Config::with_nodes(2), |cluster| {
        check_held(cluster, &four(&["--export=NONE", "/bin/true"]), "/bin/true", 4, 0);
        check_held(cluster, &four(&["--export=MINE=1", "/bin/sh", "-c", "exit $MINE"]), "exit $MINE", 4, 1);
    });
}

/// The user's own task epilog must run once after each rank. gantry adds its own epilog only if agents come with the
/// ranks and need it, because it delays the end of a launch.
fn check_epilogs(config: Config, ours: bool) {
    on_cluster(config, move |cluster| {
        // Slurm discards an epilog's stdout.
        let epilog =
            shared_file("epilog", "#!/bin/sh\necho $SLURM_PROCID >> /tmp/of-epilog\n").display().to_string();
        let option = format!("--task-epilog={epilog}");
        let args: Vec<_> = ["--hold-method=exec"].into_iter().chain(four(&[&option, "/bin/true"])).collect();
        let (mut run, app) = cluster.held(&args);
        let processes = cluster.bed.login().user_processes();
        let srun = processes.iter().find(|process| process.line.contains("/srun -N2")).expect("an srun");
        assert_eq!(srun.line.matches("--task-epilog=").count(), 1 + usize::from(ours), "{srun:?}");
        cluster.ask(&["release", &app]);
        assert_eq!(run.wait(SOON).code(), 0);
        let said = cluster.said("srun", ["-N2", "sort", "/tmp/of-epilog"]);
        // srun itself may print that it has to wait.
        assert_eq!(said.lines().filter(|line| line.parse::<u32>().is_ok()).count(), 4, "{said}");
        cluster.said("srun", ["-N2", "rm", "/tmp/of-epilog"]);
    });
}

#[test]
fn the_users_task_epilog_runs_alone_where_daemonised_processes_survive() {
    check_epilogs(Config::with_nodes(2), false);
}

#[test]
fn where_nothing_survives_the_users_task_epilog_still_runs() {
    check_epilogs(Config { proctrack: Proctrack::Cgroup, ..Config::with_nodes(2) }, true);
}

#[test]
fn gdbserver_attaches_to_a_held_rank() {
    let _gdbserver = require!(gantry_tests::tool("gdbserver"));
    on_cluster(Config::with_nodes(2), |cluster| {
        let (mut run, app) = cluster.held(&["--", "-N2", "-n2", "/bin/sleep", "0"]);
        let ranks = cluster.find("/bin/sleep 0");
        let (node, rank) = &ranks[0];
        let machine = cluster.bed.host(node).expect("a node");
        let mut command = machine.command("gdbserver").expect("a node");
        command.args(["--once", "--attach", "localhost:0", &rank.number.to_string()]);
        command.envs(cluster.world.variables());
        let mut server = cluster.world.spawn(command);
        server.stderr_line("Attached", SOON);
        assert!(gantry_tests::proc::tracer(rank.pid).is_some());
        server.kill();
        server.exited(SOON);
        drop(server);
        gantry_tests::eventually(SOON, "the rank is untraced", || {
            gantry_tests::proc::tracer(rank.pid).is_none()
        });
        cluster.ask(&["kill", &app]);
        run.exited(SOON);
    });
}

/// The launch must fail with Slurm's message, the command and a kind. Nothing may be left.
#[track_caller]
fn check_error(cluster: &Cluster, args: &[&str], parts: &[&str]) {
    let done = cluster.launch(args).wait(2 * SOON);
    assert_ne!(done.code(), 0, "{done:?}");
    let error = error_of(&done);
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
}

#[test]
fn errors_quote_slurms_own_message() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let waits = ["queued and waiting for resources", "(command: ", "--begin", "/bin/true"];
        check_error(cluster, &["--queue-timeout", "3", "--", "--begin=now+1hour", "/bin/true"], &waits);
        check_error(cluster, &["--", "-pnone", "/bin/true"], &["nvalid partition", "sinfo", "-pnone"]);
        check_error(cluster, &["--", "-N2", "/no/program"], &["/no/program"]);
        check_error(cluster, &["--", "--no-such-option", "/bin/true"], &["no-such-option"]);
        check_error(cluster, &["--launcher", "/no/srun", "--", "/bin/true"], &["/no/srun"]);
        let too_many = ["Requested partition configuration not available", "(command: ", "--immediate"];
        check_error(cluster, &["--", "--immediate=1", "-n400", "-c1", "/bin/true"], &too_many);
    });
}

#[test]
fn a_job_that_has_ended_is_told_in_slurms_own_words() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let words = cluster.said("srun", ["-n1", "printenv", "SLURM_JOB_ID"]);
        let job = words.lines().find(|line| line.parse::<u32>().is_ok()).expect("a job");
        cluster.bed.wait_idle(2 * SOON).expect("idle");
        let option = format!("--jobid={job}");
        let expired = ["job", job, "(command: ", &option, "launcher-failed"];
        check_error(cluster, &["--", &option, "/bin/true"], &expired[..4]);
        // The situation in a shell whose allocation has expired.
        let args = ["launch", "--json", "--", "-n1", "/bin/true"];
        let done = cluster.run(&binaries().gantry, args, &[("SLURM_JOB_ID", job)]).wait(2 * SOON);
        let error = error_of(&done);
        assert_eq!(error["kind"], "gone", "{error}");
        assert!(error.to_string().contains("xpired"), "{error}");
        assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("launch in another")), "{error}");
    });
}

#[test]
fn a_launch_without_a_controller_ends_with_srun_s_words() {
    on_cluster(Config::with_nodes(2), |cluster| {
        cluster.bed.login().kill_daemon("slurmctld").expect("killed");
        let done = cluster.launch(&["--timeout", "8", "--", "-N2", "/bin/true"]).wait(SOON);
        let error = error_of(&done).to_string();
        assert!(error.contains("srun") && error.contains("timed-out"), "{error}");
        // If an srun still waited for nodes when the controller returns, it would get them.
        eventually(2 * SOON, "no process is left", || cluster.world.processes().is_empty());
        let mut controller = cluster.bed.login().root_command("slurmctld").expect("the login node");
        controller.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(controller.status().expect("slurmctld").success());
        // The killed controller had not saved its state, so its records may show a job of the previous test as
        // running. Cancel that job.
        cluster.said("scancel", ["--me"]);
        cluster.bed.wait_idle(2 * SOON).expect("Slurm is back");
        // Until nodes have registered again, a new controller takes them for older ones. srun 22.05 cannot read the
        // output of those.
        let output = || cluster.said("srun", ["-N2", "-n2", "echo", "here"]);
        eventually(2 * SOON, "output comes again", || {
            output().lines().filter(|it| *it == "here").count() == 2
        });
    });
}

/// Nodes that cannot see the repository, so they have no agent.
fn hidden() -> Config {
    Config::with_nodes(2).without_gantry()
}

#[test]
fn nodes_that_do_not_have_the_agent_are_sent_it_unless_that_is_forbidden_and_it_is_removed() {
    on_cluster(hidden(), |cluster| {
        let never: Vec<&str> = ["--send-agent=never"].into_iter().chain(four(&["/bin/true"])).collect();
        check_error(cluster, &never, &["--send-agent=always", "gantry-agent"]);
        // The input of rank 0 can be read again.
        for more in [&["--input=/dev/null"][..], &["--hold-method=mpir"], &["--send-agent"]] {
            let args: Vec<&str> = more.iter().copied().chain(four(&["/bin/true"])).collect();
            check_held(cluster, &args, "/bin/true", 4, 0);
        }
        // The testbed's leak check finds files that are left. It would not notice if the node had the agent from the
        // start, so check that here.
        assert!(!cluster.bed.node(1).path(&binaries().agent).expect("a node").exists());
    });
}

#[test]
fn a_launch_that_is_made_again_reads_its_input_from_the_beginning() {
    on_cluster(hidden(), |cluster| {
        // The launcher reads the input on the login node.
        let input = cluster.world.work_dir().join("input");
        std::fs::write(&input, "one line\n").expect("a file");
        let input = format!("--input={}", input.display());
        let done = cluster.launch(&[&input, "--", "-N2", "-n2", "/bin/cat"]).wait(2 * SOON);
        assert_eq!(done.code(), 0, "{done:?}");
        let text: String =
            done.events().iter().filter_map(|event| event["text"].as_str()).map(str::to_owned).collect();
        assert!(text.contains("one line"), "{done:?}");
    });
}

#[test]
fn where_one_node_lacks_the_agent_the_launch_does_not_wait_for_its_time_limit() {
    on_cluster(Config::with_nodes(2), |cluster| {
        // Hides the agent's folder from all processes of the first node, and of no other node.
        let agent = binaries().agent.display().to_string();
        let mut hide = cluster.bed.node(1).root_command("mount").expect("a node");
        let folder = binaries().agent.parent().expect("a folder").display().to_string();
        assert!(hide.args(["-t", "tmpfs", "none", &folder]).status().expect("mount").success(), "{agent}");
        let args: Vec<&str> = ["--input=/dev/null"].into_iter().chain(four(&["/bin/true"])).collect();
        check_held(cluster, &args, "/bin/true", 4, 0);
        let mut show = cluster.bed.node(1).root_command("umount").expect("a node");
        assert!(show.arg(&folder).status().expect("umount").success());
    });
}

/// Launches with a daemon on each node, by this hold method, as the job `name`. Returns the run and the app.
fn with_session(cluster: &Cluster, method: &str, name: &str, seconds: &str) -> (Run, String) {
    let name = format!("--job-name={name}");
    let mut args = vec![method, "--daemon", "/bin/sleep 1000"];
    args.extend(four(&[&name, "/bin/sleep", seconds]));
    let (mut run, app) = cluster.held(&args);
    run.next_event("daemon_started", SOON);
    run.next_event("daemon_started", SOON);
    (run, app)
}

/// The sessions' folders must exist on the nodes while the apps live, for each of these hold methods. They must be
/// gone when the apps have ended: by themselves, by their user, or by their time limit.
fn check_sessions(config: Config, methods: &'static [&'static str]) {
    on_cluster(config, move |cluster| {
        for end in ["itself", "cancelled", "limit"] {
            let seconds = if end == "itself" { "0" } else { "999" };
            let name = |index: usize| format!("mine-{index}");
            // All at once, because Slurm checks time limits only every half minute.
            let launched = methods.iter().enumerate();
            let launched = launched.map(|(at, method)| with_session(cluster, method, &name(at), seconds));
            let mut apps: Vec<_> = launched.collect();
            for node in cluster.bed.nodes() {
                assert!(node.user_files().len() >= methods.len(), "{} has sessions", node.name());
            }
            for (index, (_, app)) in apps.iter().enumerate() {
                cluster.ask(&["release", app]);
                match end {
                    "cancelled" => {
                        cluster.said("scancel", ["--name", &name(index)]);
                    }
                    "limit" => limit(cluster, &name(index)),
                    _ => {}
                }
            }
            for (run, _) in &mut apps {
                run.exited(3 * SOON);
            }
            cluster.bed.assert_nothing_left(SOON);
            cluster.bed.wait_idle(2 * SOON).expect("idle nodes");
        }
    });
}

/// Makes Slurm end the job of this name in two seconds, or at its next check after that. Time limits are whole
/// minutes, but the end time of a job can be set to the second.
fn limit(cluster: &Cluster, name: &str) {
    let job = cluster.said("squeue", ["--me", "--noheader", "--format=%A", "--name", name]);
    let job = format!("jobid={}", job.trim());
    let mut update = cluster.bed.login().root_command("scontrol").expect("the login node");
    let done = update.args(["update", &job, "EndTime=now+2"]).stdin(Stdio::null()).output();
    assert!(done.expect("scontrol").status.success());
}

#[test]
fn sessions_are_gone_with_their_app_where_daemonised_processes_survive() {
    check_sessions(Config::with_nodes(2), &["--quiet"]);
}

#[test]
fn where_nothing_survives_sessions_are_gone_with_their_app_under_every_method() {
    check_sessions(
        Config { proctrack: Proctrack::Cgroup, ..Config::with_nodes(2) },
        &["--quiet", "--hold-method=exec"],
    );
}

#[test]
fn where_nothing_survives_agents_that_leave_are_not_lost_however_slow_srun_is() {
    // Slurm checks once a second whether the epilog of a task has ended, one task after the other.
    on_cluster(Config { proctrack: Proctrack::Cgroup, ..Config::with_nodes(2) }, |cluster| {
        let done = cluster.launch(&["--hold-method=exec", "--", "-N1", "-n4", "/bin/true"]).wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
        let lost: Vec<_> = done.events().into_iter().filter(|event| event["event"] == "nodes_lost").collect();
        assert!(lost.is_empty(), "{lost:?}");
    });
}
