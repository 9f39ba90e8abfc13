//! Launchers that start agents on this machine, with real MPI libraries. Every rank is held and released, and the
//! launcher's exit code is passed on.

use std::collections::HashSet;
use std::time::Duration;

use gantry_tests::fault::{guards, running};
use gantry_tests::fds::may_open;
use gantry_tests::programs::Link;
use gantry_tests::slurm::lines_of;
use gantry_tests::{
    Finished, Run, SOON, World, binaries, eventually, in_a_world, proc, programs, require, tool, within,
};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(120);

/// A launcher and its first arguments.
#[derive(Clone, Copy)]
struct By {
    launcher: &'static str,
    options: &'static [&'static str],
}

impl By {
    fn build_launch<'a>(&self, args: &[&'a str]) -> Vec<&'a str> {
        let launch = ["launch", "--hold", "--json", "--launcher", self.launcher, "--"];
        launch.iter().chain(self.options).chain(args).copied().collect()
    }
}

const HYDRA: By = By { launcher: "mpiexec.hydra", options: &[] };

/// Tests may be run as root, and with more ranks than processors.
const OPEN_MPI: By = By { launcher: "mpirun.openmpi", options: &["--allow-run-as-root", "--oversubscribe"] };

/// Launches held, checks this many ranks from outside and releases them. Returns their output, sorted. If `code` is
/// given, the exit code must be that.
#[track_caller]
fn check_by(by: By, world: &World, args: &[&str], ranks: usize, code: Option<i32>) -> Vec<String> {
    check_run(world, world.gantry(by.build_launch(args)), ranks, code)
}

/// Like [`check_by`], for a run that is already started.
#[track_caller]
fn check_run(world: &World, mut run: Run, ranks: usize, code: Option<i32>) -> Vec<String> {
    let held = run.next_event("held", 2 * SOON);
    let list = held["ranks"].as_array().expect("ranks");
    assert_eq!(list.len(), ranks, "{held}");
    for rank in list {
        let pid = i32::try_from(rank["pid"].as_i64().expect("a pid")).expect("a pid");
        assert_eq!(proc::why_not_held(pid), None, "{rank}");
    }
    assert_eq!(world.gantry(["release", held["app"].as_str().expect("an id")]).wait(SOON).code(), 0);
    let done = run.wait(2 * SOON);
    assert!(code.is_none_or(|code| done.code() == code), "{done:?}");
    let events = done.events();
    let text: String = events.iter().filter_map(|event| event["text"].as_str()).collect();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

#[track_caller]
fn check(world: &World, args: &[&str], ranks: usize, code: Option<i32>) -> Vec<String> {
    check_by(HYDRA, world, args, ranks, code)
}

#[test]
fn the_code_of_plain_programs_under_hydra_is_passed_on() {
    require!(tool("mpiexec.hydra"));
    in_a_world(LIMIT, |world| {
        check(world, &["-n", "2", "/bin/sh", "-c", "exit 7"], 2, Some(7));
    });
}

#[test]
fn sixty_four_ranks_under_hydra_are_held_again_and_again() {
    require!(tool("mpiexec.hydra"));
    in_a_world(LIMIT, |world| {
        for _ in 0..2 {
            check(world, &["-n", "64", "/bin/true"], 64, Some(0));
        }
    });
}

/// If Open MPI 4 is called by a path, it takes that path for its prefix and puts the prefix's folders first. It may
/// then find another `srun` than its user does.
#[test]
fn a_launcher_is_called_as_its_user_calls_it() {
    let path = require!(tool(OPEN_MPI.launcher)).display().to_string();
    in_a_world(LIMIT, move |world| {
        let own_name = ["-n", "1", "/bin/sh", "-c", "tr '\\0' '\\n' < /proc/$PPID/cmdline | head -n 1"];
        assert_eq!(check_by(OPEN_MPI, world, &own_name, 1, Some(0)), [OPEN_MPI.launcher]);
        let launch = ["launch", "--hold", "--json", "--launcher", &path, "--"];
        let run = world.gantry(launch.iter().chain(OPEN_MPI.options).chain(&own_name));
        assert_eq!(check_run(world, run, 1, Some(0)), [path.as_str()]);
    });
}

#[test]
fn programs_without_a_loader_are_held() {
    require!(tool("mpiexec.hydra"));
    require!(tool("mpirun.openmpi"));
    let program = require!(programs::get_as("exit_with", Link::Static)).display().to_string();
    in_a_world(LIMIT, move |world| {
        check(world, &["-n", "3", &program, "5"], 3, Some(5));
        check_by(OPEN_MPI, world, &["-n", "3", &program, "5"], 3, Some(5));
    });
}

/// Run it a hundred times by hand: `GANTRY_ROUNDS=100`. With so many ranks, MPICH's own launcher needs more open
/// files than the soft limit of most users.
#[test]
#[expect(clippy::disallowed_methods, reason = "a longer run is requested in the environment")]
fn of_256_ranks_under_either_launcher_none_is_lost() {
    require!(tool("mpiexec.hydra"));
    require!(tool("mpirun.openmpi"));
    require!(may_open(2048));
    let rounds = std::env::var("GANTRY_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let limit = LIMIT * rounds;
    within(limit, move || {
        for _ in 0..rounds {
            let world = World::new();
            for by in [HYDRA, OPEN_MPI] {
                let mut command = world.command("/bin/sh");
                command
                    .args(["-c", r#"ulimit -Sn "$(ulimit -Hn)"; exec "$@""#, "sh"])
                    .arg(&binaries().gantry);
                command.args(by.build_launch(&["-n", "256", "/bin/true"]));
                check_run(&world, world.spawn(command), 256, Some(0));
            }
            world.finish();
        }
    });
}

/// A launcher whose ranks have a low limit. Their agent starts with the same limit.
const HUNDRED: &[u8] = br#"#!/bin/sh
shift 2
ulimit -Sn 40
rank=0
while [ $rank -lt 100 ]; do
    PMI_RANK=$rank PMI_SIZE=100 MPI_LOCALNRANKS=100 MPI_LOCALRANKID=$rank "$@" &
    rank=$((rank + 1))
done
wait
"#;

/// The agent once received only as many ranks as its limit of open files allowed.
#[test]
fn a_soft_limit_of_open_files_does_not_bound_the_ranks_of_a_node_and_stays_what_they_have() {
    in_a_world(LIMIT, |world| {
        let launcher = world.executable("mpiexec.hydra", HUNDRED).display().to_string();
        let args = ["launch", "--launcher", &launcher, "--", "-n", "100", "/bin/sh", "-c", "ulimit -Sn"];
        let done = world.gantry(args).wait(2 * SOON);
        assert_eq!((done.code(), done.stdout), (0, vec!["40".to_owned(); 100]), "{:?}", done.stderr);
    });
}

/// Starts the first of two ranks and kills it as soon as its agent exists. Launchers do that when another node fails.
const GIVES_UP: &[u8] = br#"#!/bin/sh
shift 2
PMI_RANK=0 PMI_SIZE=2 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=0 "$@" &
is_agent() {
    tr '\0' ' ' <"$1/cmdline" | grep -q 'gantry-agent enter ' && tr '\0' '\n' <"$1/environ" | grep -qxF "GANTRY_TEST_TAG=$GANTRY_TEST_TAG"
}
while kill -0 $!; do
    for it in /proc/[0-9]*; do
        if is_agent "$it" 2>/dev/null; then
            kill -KILL $!
            wait
            exit 3
        fi
    done
done
"#;

#[test]
fn a_launcher_that_gives_up_before_all_ranks_have_come_leaves_no_agent_that_waits() {
    in_a_world(LIMIT, |world| {
        let launcher = world.executable("mpiexec.hydra", GIVES_UP).display().to_string();
        let launch = ["launch", "--hold", "--json", "--launcher", &launcher, "--", "-n", "2", "/bin/true"];
        let done = world.gantry(launch).wait(2 * SOON);
        let error = gantry_tests::slurm::error_of(&done).to_string();
        assert!(error.contains("rank 0") || error.contains("code 3"), "{error}");
    });
}

/// Users end their app by its arguments ('pkill -f'). The agent, which begins as a copy of a rank's shim, must not be hit.
#[test]
fn an_agent_does_not_show_the_arguments_of_its_ranks() {
    in_a_world(LIMIT, |world| {
        let mut run = world.gantry(HYDRA.build_launch(&["-n", "2", "/bin/sleep", "0.98765"]));
        let held = run.next_event("held", 2 * SOON);
        let is_agent = |pid: &i32| proc::exe(*pid).is_some_and(|exe| exe.ends_with("gantry-agent"));
        let agents: Vec<i32> = world.processes().into_iter().filter(is_agent).collect();
        assert_eq!(agents.len(), 2, "an agent and its keeper");
        for agent in agents {
            assert_eq!(proc::command_line(agent), format!("{} enter", binaries().agent.display()));
            assert!(proc::ignores(agent, Signal::SIGPIPE), "a rank that closes its input must not end it");
        }
        assert_eq!(world.gantry(["release", held["app"].as_str().expect("an id")]).wait(SOON).code(), 0);
        assert_eq!(run.wait(2 * SOON).code(), 0);
    });
}

/// Loses the first SIGTERM. srun does that if it is submitting its job at that moment.
const LOSES_A_SIGNAL: &[u8] = br#"#!/bin/sh
trap 'trap - TERM' TERM
: >"$0.waits"
while :; do sleep 0.1; done
"#;

#[test]
fn a_launcher_that_loses_the_signal_to_go_ends_soon_after_its_tool() {
    in_a_world(LIMIT, |world| {
        let launcher = world.executable("mpiexec.hydra", LOSES_A_SIGNAL);
        let waits = launcher.with_file_name("mpiexec.hydra.waits");
        let launcher = launcher.display().to_string();
        let run = world.gantry(["launch", "--launcher", &launcher, "--", "-n", "2", "/bin/true"]);
        eventually(SOON, "the launcher waits", || waits.exists());
        run.kill();
    });
}

/// A shell that waits for a child dies by a signal at once. Its launcher must not be killed then: it gives back its nodes.
#[test]
fn a_launcher_that_a_script_has_started_gets_the_signal_to_go_itself() {
    in_a_world(LIMIT, |world| {
        let (run, ended) = launched_by_script(world, "LAUNCHER pause\necho $? >MARK\n");
        let is_there = |pid: &i32| proc::state(*pid) == Some('S');
        eventually(SOON, "the launcher waits", || running(world, "mpir_launcher").iter().any(is_there));
        run.kill();
        eventually(SOON, "the script goes on", || std::fs::read(&ended).is_ok_and(|code| code == b"143\n"));
    });
}

/// The guard inherits such a process, and another thread traces it. A stop that the guard collected would never end.
#[test]
fn what_a_script_leaves_in_the_background_goes_on_while_its_launcher_is_awaited() {
    in_a_world(LIMIT, |world| {
        let busy = "(sh -c 'for i in $(seq 200); do env true; done; echo >MARK' &)\nsleep 1000\n";
        let (run, done) = launched_by_script(world, busy);
        eventually(2 * SOON, "the process in the background ends", || done.exists());
        run.kill();
    });
}

/// The reason alone does not help.
#[test]
fn a_script_whose_child_cannot_be_held_is_told_what_to_write() {
    in_a_world(LIMIT, |world| {
        let (mut run, _) = launched_by_script(world, "/bin/echo rank\n");
        let done = run.wait(SOON);
        let said = done.stderr.join("\n");
        assert_eq!(done.code(), 68, "{said}");
        assert!(said.contains("its child may have started ranks that were not held"), "{said}");
        assert!(
            said.contains("hint: name the launcher itself, or write 'exec' before it in the script"),
            "{said}"
        );
    });
}

/// Launches by MPIR with a script of these lines, in which MARK is the file that is returned.
fn launched_by_script(world: &World, lines: &str) -> (Run, std::path::PathBuf) {
    let mark = world.work_dir().join("mark");
    let launcher = programs::get("mpir_launcher").display().to_string();
    let lines = lines.replace("LAUNCHER", &launcher).replace("MARK", &mark.display().to_string());
    let script = world.executable("site-run", format!("#!/bin/sh\n{lines}").as_bytes());
    let script = script.display().to_string();
    (world.gantry(["launch", "--hold-method", "mpir", "--launcher", &script, "--", "x"]), mark)
}

/// Like [`LOSES_A_SIGNAL`], and records that it got a second signal.
const HEARS_THE_SECOND_SIGNAL: &[u8] = br#"#!/bin/sh
trap 'trap "echo >\"$0.ended\"; exit" TERM' TERM
: >"$0.waits"
while :; do sleep 0.1; done
"#;

/// If a launcher is killed while it submits its job, the job stays in the queue.
#[test]
fn a_launcher_whose_guard_is_killed_ends_in_order() {
    in_a_world(LIMIT, |world| {
        let launcher = world.executable("mpiexec.hydra", HEARS_THE_SECOND_SIGNAL);
        let (waits, ended) =
            ["waits", "ended"].map(|it| launcher.with_extension(format!("hydra.{it}"))).into();
        let launcher = launcher.display().to_string();
        let mut run = world.gantry(["launch", "--launcher", &launcher, "--", "-n", "2", "/bin/true"]);
        eventually(SOON, "the launcher waits", || waits.exists());
        for guard in guards(world) {
            proc::send(guard, Signal::SIGKILL);
        }
        eventually(SOON, "the launcher ends in order", || ended.exists());
        assert_ne!(run.wait(SOON).code(), 0);
    });
}

/// Holds and releases four ranks of a launcher whose table has this error. Returns the report about it.
fn lied_to(world: &World, launcher: &str, lie: &str, more: &[&str]) -> Option<serde_json::Value> {
    let args = ["launch", "-vv", "--json", "--launcher", launcher];
    let rest = ["--", "-n", "4", "-x", lie, "/bin/sh", "-c", "read -r line; exit 3"];
    let mut run = world.gantry(args.iter().chain(more).chain(&rest));
    if !more.is_empty() {
        run.next_event("held", SOON);
        assert_eq!(world.gantry(["release"]).wait(SOON).code(), 0);
    }
    // gantry reads the table in the running launcher, so the app must not end first.
    run.stderr_line("own proctable", SOON);
    run.close_stdin();
    let done = run.wait(SOON);
    assert_eq!(done.code(), 3, "{done:?}");
    let mut told = done.events();
    told.retain(|event| event["event"] == "table_differs");
    assert!(told.len() < 2, "{told:?}");
    told.pop()
}

#[test]
fn a_launcher_whose_table_contradicts_is_told_of_and_its_ranks_run() {
    let launcher =
        require!(programs::get_with("mpir_starter", "orterun", &["-no-pie"])).display().to_string();
    in_a_world(LIMIT, move |world| {
        let told = |lie: &str, more: &[&str]| lied_to(world, &launcher, lie, more);
        assert_eq!(told("LIE=no", &[]), None);
        let pid = told("LIE=pid", &[]).expect("an event");
        assert_eq!((&pid["count"], &pid["table_ranks"]), (&1.into(), &4.into()), "{pid}");
        let rank = &pid["ranks"][0];
        assert_eq!((&rank["rank"], &rank["table_pid"]), (&1.into(), &1.into()), "{pid}");
        assert_ne!(rank["pid"], 1, "{pid}");
        assert_eq!(rank["host"], rank["table_host"], "{pid}");
        let host = told("LIE=host", &[]).expect("an event");
        assert_eq!(
            (&host["count"], &host["ranks"][0]["table_host"]),
            (&1.into(), &"elsewhere".into()),
            "{host}"
        );
        let count = told("LIE=count", &[]).expect("an event");
        assert!(
            count["message"].as_str().is_some_and(|it| it.contains("it has 5 ranks, and 4 are there")),
            "{count}"
        );
        // In this case the launcher's child is not the rank.
        assert_eq!(told("LIE=pid", &["--hold-at", "*/dash"]), None);
    });
}

#[test]
fn the_table_of_open_mpi_agrees_once_its_ranks_have_met() {
    require!(tool("mpirun.openmpi"));
    let hang = require!(programs::get_mpi("mpi_hang", "mpicc.openmpi")).display().to_string();
    in_a_world(LIMIT, move |world| {
        let launch = ["launch", "--hold", "-vv", "--json", "--launcher", "mpirun.openmpi", "--"];
        let mut run = world.gantry(launch.iter().chain(OPEN_MPI.options).chain(&["-n", "4", &hang]));
        let held = run.next_event("held", 2 * SOON);
        let app = held["app"].as_str().expect("an id");
        run.stderr_line("the launcher has filled no table yet", SOON);
        assert_eq!(world.gantry(["release", app]).wait(SOON).code(), 0);
        run.stderr_line("the launcher's own proctable agrees", 2 * SOON);
        assert_eq!(world.gantry(["kill", app]).wait(SOON).code(), 0);
        let done = run.wait(2 * SOON);
        assert!(!done.events().iter().any(|event| event["event"] == "table_differs"), "{done:?}");
    });
}

/// Blocks SIGCHLD, as newer versions of Slurm do when they start tasks.
const BLOCKS: &[u8] = b"#!/bin/sh\nexec env --block-signal=CHLD mpiexec.hydra \"$@\"\n";

#[test]
fn a_rank_that_has_sigchld_blocked_does_not_find_that_of_its_agents_start() {
    require!(tool("mpiexec.hydra"));
    in_a_world(LIMIT, |world| {
        let launcher = world.executable("mpiexec.hydra", BLOCKS).display().to_string();
        let launch = ["launch", "--json", "--launcher", &launcher, "--", "-n", "1"];
        let mut done = world.gantry(launch.iter().chain(&[
            "/bin/grep",
            "-E",
            "^(ShdPnd|SigPnd|SigBlk):",
            "/proc/self/status",
        ]));
        let events = done.wait(2 * SOON).events();
        let text: String = events.iter().filter_map(|event| event["text"].as_str()).collect();
        assert_eq!(text, "SigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\nSigBlk:\t0000000000010000\n");
    });
}

/// Starts the only rank with SIGCHLD ignored, so the kernel reaps what the rank's shim starts.
const IGNORES: &[u8] = br#"#!/bin/sh
shift 2
PMI_RANK=0 PMI_SIZE=1 MPI_LOCALNRANKS=1 MPI_LOCALRANKID=0 env --ignore-signal=CHLD "$@"
"#;

#[test]
fn a_rank_that_ignores_sigchld_is_held() {
    in_a_world(LIMIT, |world| {
        let launcher = world.executable("mpiexec.hydra", IGNORES).display().to_string();
        let launch = ["launch", "--hold", "--json", "--launcher", &launcher, "--", "-n", "1"];
        let run = world.gantry(launch.iter().chain(&["/bin/grep", "SigIgn", "/proc/self/status"]));
        let lines = check_run(world, run, 1, Some(0));
        let ignored =
            lines.first().and_then(|line| u64::from_str_radix(line.strip_prefix("SigIgn:\t")?, 16).ok());
        assert!(ignored.is_some_and(|ignored| ignored & 0x10000 != 0), "{lines:?}");
    });
}

/// Writes much before it starts its ranks, as one that logs in to many hosts with a banner does.
const TALKS: &[u8] = b"#!/bin/sh\nhead -c 1000000 /dev/zero | tr '\\0' x >&2\nexec mpiexec.hydra \"$@\"\n";

#[test]
fn a_launcher_that_writes_much_before_its_ranks_are_there_is_not_stopped_and_nothing_is_lost() {
    require!(tool("mpiexec.hydra"));
    in_a_world(LIMIT, |world| {
        let launcher = world.executable("mpiexec.hydra", TALKS).display().to_string();
        for json in [true, false] {
            let options: &[&str] = if json { &["--json"] } else { &[] };
            let launch = ["launch", "--launcher", &launcher, "--", "-n", "2", "/bin/true"];
            let done = world.gantry([options, &launch].concat()).wait(2 * SOON);
            assert_eq!(done.code(), 0);
            let written = if json { lines_of(&done).concat() } else { done.stderr.concat() };
            assert!(written.contains(&"x".repeat(1_000_000)), "{} bytes", written.len());
        }
    });
}

/// Says why it fails after much else. Each line is written by itself.
const FAILS_LATE: &[u8] = b"#!/bin/sh
for line in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    echo \"retry $line\" >&2
    sleep 0.02
done
echo 'no such partition' >&2
exit 1
";

#[test]
fn the_last_words_of_a_launcher_that_fails_are_in_the_error() {
    in_a_world(LIMIT, |world| {
        let launcher = world.executable("mpiexec.hydra", FAILS_LATE).display().to_string();
        for options in [&["--json"][..], &[]] {
            let launch = ["launch", "--launcher", &launcher, "--", "-n", "2", "/bin/true"];
            let done = world.gantry([options, &launch].concat()).wait(2 * SOON);
            let said = [done.stdout.concat(), done.stderr.concat()].concat();
            assert!(said.contains("no such partition"), "{done:?}");
        }
    });
}

#[test]
fn programs_have_variables_and_folders_of_their_own() {
    in_a_world(LIMIT, |world| {
        let say = ["/bin/sh", "-c", "echo $GANTRY_RANK $A $B $(pwd)"];
        let first = ["-genv", "B", "all", "-n", "2", "-env", "A=one"];
        let second = [":", "-wdir", "/", "-env", "A", "two"];
        let mut launch = world.gantry_command(["launch", "--json", "--"]);
        launch.args(first).args(say).args(second).args(say);
        let done = world.spawn(launch).wait(SOON);
        let mut said = lines_of(&done);
        said.sort_unstable();
        let here = world.work_dir().canonicalize().expect("a folder").display().to_string();
        let expected = [format!("0 one all {here}"), format!("1 one all {here}"), "2 two all /".to_owned()];
        assert_eq!((done.code(), &said[..]), (0, &expected[..]), "{done:?}");
    });
}

#[test]
fn ranks_that_are_bound_have_a_core_each() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    in_a_world(LIMIT, move |world| {
        let launch = |ranks: usize, bind: &[&str]| {
            let ranks = ranks.to_string();
            let mut command = world.gantry_command(["launch", "--json", "--", "-n", &ranks]);
            command.args(bind).args(["/bin/sh", "-c", "grep Cpus_allowed_list: /proc/self/status"]);
            world.spawn(command).wait(SOON)
        };
        let own = |done: &Finished| -> HashSet<String> { lines_of(done).into_iter().collect() };
        let free = own(&launch(2, &[]));
        assert_eq!(free.len(), 1, "{free:?}");
        let alone = own(&launch(1, &["--bind-to", "core"]));
        if cores > 1 {
            assert_ne!(free, alone);
            let bound = own(&launch(2, &["--bind-to", "core"]));
            // If two threads share a core, there may be only one core.
            assert!(bound.len() == 2 && bound.is_superset(&alone) || bound.is_empty(), "{bound:?}");
        }
        let done = launch(cores + 1, &["-bind-to", "core"]);
        let error = gantry_tests::slurm::error_of(&done);
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains("ranks are to be bound to a core each, and this node has"), "{error}");
        assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("--ppn")), "{error}");
    });
}

#[test]
fn one_rank_of_open_mpi_needs_no_server() {
    let hello = require!(programs::get_mpi("mpi_hello", "mpicc.openmpi")).display().to_string();
    in_a_world(LIMIT, move |world| {
        // Open MPI leaves its own empty folder behind.
        let temporary = format!("TMPDIR={}", world.work_dir().display());
        for args in [["-n", "1", &hello], ["-n", "2", "/bin/true"]] {
            let launch = ["launch", "--json", "--env", &temporary, "--"];
            let done = world.gantry(launch.iter().chain(&args)).wait(2 * SOON);
            assert_eq!(done.code(), 0, "{done:?}");
        }
    });
}
