//! MPI programs that gantry starts itself are one world: real MPICH and Intel MPI on this machine, on hosts that are reached by ssh, and in a job of PBS. Programs that do
//! not keep to PMI, and those that leave too early, end the app with a reason.

use std::time::Duration;

use gantry_tests::launchers::{INTEL_MPI, Installed, MPICH_4, MPICH_5};
use gantry_tests::mpi::{failure, launch, notes, results, sorted, sums};
use gantry_tests::pbs::{Script, on_pbs};
use gantry_tests::slurm::{lines_of, text_of};
use gantry_tests::ssh::on_hosts;
use gantry_tests::testbed::Config;
use gantry_tests::{SOON, becomes_true, eventually, in_a_world, proc, require, tool};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(180);

#[test]
fn ranks_of_mpich_4_on_this_machine_are_one_world() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_world"));
    in_a_world(LIMIT, move |world| {
        for ranks in [1, 4, 16] {
            let done = launch(world, &["-n", &ranks.to_string(), &program, "sum"]);
            assert_eq!((done.code(), sorted(lines_of(&done))), (0, sums(ranks)), "{done:?}");
        }
        // Several nodes: what their ranks put has to meet.
        let done = launch(world, &["-N", "4", "-n", "7", &program, "sum"]);
        assert_eq!((done.code(), sorted(lines_of(&done))), (0, sums(7)), "{done:?}");
    });
}

/// The rank's socket passes through what starts the program: a shell, a container.
#[test]
fn ranks_in_a_container_are_one_world_too() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_world"));
    require!(tool("bwrap"));
    in_a_world(LIMIT, move |world| {
        let inside = format!("exec {program} sum");
        let args = ["-n", "3", "bwrap", "--dev-bind", "/", "/", "--die-with-parent", "sh", "-c", &inside];
        let done = launch(world, &args);
        assert_eq!((done.code(), sorted(lines_of(&done))), (0, sums(3)), "{done:?}");
    });
}

#[test]
fn several_programs_are_one_world_and_know_which_they_are() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_world"));
    in_a_world(LIMIT, move |world| {
        let args = ["-N", "2", "-n", "2", &program, "sum", ":", "-n", "3", &program, "sum"];
        let done = launch(world, &args);
        let expected: Vec<String> = (0..5)
            .map(|it| format!("rank {it} of 5, program {}, places 5, sum 10", u8::from(it > 1)))
            .collect();
        assert_eq!((done.code(), sorted(lines_of(&done))), (0, expected), "{done:?}");
    });
}

#[test]
fn a_program_says_the_same_as_under_its_own_launcher() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_hello"));
    in_a_world(LIMIT, move |world| {
        let mut command = world.command(&mpich.path);
        command.args(["-n", "4", &program]);
        let mut by_hydra = world.spawn(command).wait(2 * SOON).stdout;
        // Hydra does not like programs that end without MPI_Finalize.
        by_hydra.retain(|line| line.starts_with("rank "));
        let done = launch(world, &["-n", "4", &program]);
        assert_eq!((done.code(), lines_of(&done)), (0, by_hydra), "{done:?}");
        assert_eq!(lines_of(&done).len(), 4, "{done:?}");
    });
}

/// Libraries whose MPI_Finalize does not hang now and then.
#[track_caller]
fn check_whole_life(mpi: &Installed) {
    let Ok(program) = mpi.program("mpi_world") else { panic!("no program") };
    let mpi = mpi.clone();
    in_a_world(LIMIT, move |world| {
        for nodes in ["1", "3"] {
            let mut command = world.gantry_command(["launch", "--json", "--", "-N", nodes, "-n", "6"]);
            command.args([&program, "sum", "finalize"]).envs(mpi.variables.iter().cloned());
            let done = world.spawn(command).wait(2 * SOON);
            assert_eq!((done.code(), sorted(lines_of(&done))), (0, sums(6)), "{done:?}");
        }
    });
}

#[test]
fn mpich_5_begins_and_ends_as_one_world() {
    check_whole_life(&require!(MPICH_5.install()));
}

#[test]
fn intel_mpi_begins_and_ends_as_one_world() {
    check_whole_life(&require!(INTEL_MPI.install()));
}

/// Slurm's client of PMI-2, which Intel MPI uses where it is told to.
fn find_pmi_2() -> Result<String, String> {
    let found = std::fs::read_dir("/usr/lib").map_err(|error| error.to_string())?;
    let mut found =
        found.flatten().map(|folder| folder.path().join("libpmi2.so.0")).filter(|path| path.is_file());
    found.next().map(|path| path.display().to_string()).ok_or_else(|| "libpmi2-0 is not installed".to_owned())
}

#[test]
fn ranks_that_speak_pmi_2_are_one_world_too() {
    let library = require!(find_pmi_2());
    let intel = require!(INTEL_MPI.install());
    let program = require!(intel.program("mpi_world"));
    in_a_world(LIMIT, move |world| {
        for nodes in ["1", "2"] {
            let mut command = world.gantry_command(["launch", "--json", "--", "-N", nodes, "-n", "4"]);
            command.args([&program, "sum", "finalize"]).envs(intel.variables.iter().cloned());
            command.env("I_MPI_PMI_LIBRARY", &library);
            let done = world.spawn(command).wait(2 * SOON);
            assert_eq!((done.code(), sorted(lines_of(&done))), (0, sums(4)), "{done:?}");
        }
    });
}

#[test]
fn ranks_know_their_place_and_are_held_before_they_ask_for_it() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_world"));
    in_a_world(LIMIT, move |world| {
        let args = ["launch", "--hold", "--json", "--", "-N", "2", "-n", "3", &program, "say", "sum"];
        let mut run = world.gantry(args);
        let held = run.next_event("held", SOON);
        for rank in held["ranks"].as_array().expect("ranks") {
            let pid = i32::try_from(rank["pid"].as_i64().expect("a pid")).expect("a pid");
            assert_eq!(proc::why_not_held(pid), None, "{held}");
        }
        let app = held["app"].as_str().expect("an id");
        assert_eq!(world.gantry(["release", app]).wait(SOON).code(), 0);
        let done = run.wait(2 * SOON);
        let mut expected = sums(3);
        expected.extend(
            ["told 0 of 3, 0 of 2 here", "told 1 of 3, 1 of 2 here", "told 2 of 3, 0 of 1 here"]
                .map(str::to_owned),
        );
        assert_eq!((done.code(), sorted(lines_of(&done))), (0, expected), "{done:?}");
    });
}

/// What the launcher of another program has told it says nothing of ranks that it starts.
#[test]
fn variables_of_another_launcher_do_not_reach_the_ranks() {
    in_a_world(LIMIT, |world| {
        let script = "echo $PMI_RANK/$PMI_SIZE ${PMI_PORT-no} ${PMI_SPAWNED-no} ${PMI_ID-no}; ls -l /proc/$$/fd/$PMI_FD | grep -c socket:";
        let mut command = world.gantry_command(["launch", "--json", "--", "-n", "1", "sh", "-c", script]);
        command.envs([("PMI_RANK", "5"), ("PMI_SIZE", "9"), ("PMI_PORT", "a:1"), ("PMI_FD", "0")]);
        command.envs([("PMI_SPAWNED", "1"), ("PMI_ID", "5")]);
        let done = world.spawn(command).wait(SOON);
        assert_eq!(
            (done.code(), lines_of(&done)),
            (0, vec!["0/1 no no no".to_owned(), "1".to_owned()]),
            "{done:?}"
        );
    });
}

#[test]
fn abort_ends_all_ranks_with_its_code() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_world"));
    in_a_world(LIMIT, move |world| {
        for (nodes, code) in [("1", 7), ("2", 0), ("2", 200)] {
            let text = code.to_string();
            let done = launch(world, &["-N", nodes, "-n", "4", &program, "abort", "2", &text]);
            let message = format!("rank 2 called MPI_Abort with exit code {code}");
            assert_eq!(failure(&done), (2, code, message), "{done:?}");
            assert_eq!(i64::from(done.code()), code, "{done:?}");
            let exited = done.events().into_iter().find(|event| event["event"] == "exited").expect("an end");
            assert_eq!(exited["code"], code, "{exited}");
        }
        // For people.
        let done = world.gantry(["launch", "-n", "2", &program, "abort", "0", "3"]).wait(2 * SOON);
        let said = done.stderr.join("\n");
        assert!(
            said.contains("gantry: rank 0 called MPI_Abort with exit code 3: all ranks are killed"),
            "{said}"
        );
        assert_eq!((done.code(), said.contains("SIGKILL")), (3, false), "{said}");
    });
}

#[test]
fn a_rank_that_ends_before_mpi_finalize_ends_all_with_its_name() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_world"));
    in_a_world(LIMIT, move |world| {
        let done = launch(world, &["-N", "2", "-n", "4", &program, "leave", "3", "5"]);
        let message = "rank 3 ended before MPI_Finalize: exit code 5".to_owned();
        assert_eq!((failure(&done), done.code()), ((3, 5, message), 5), "{done:?}");
    });
}

/// The others wait for it outside of PMI, where only the library's messages show it.
#[test]
fn a_rank_that_ends_with_0_before_mpi_finalize_ends_those_that_outlive_it() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_world"));
    in_a_world(LIMIT, move |world| {
        for nodes in ["1", "2"] {
            let done = launch(world, &["-N", nodes, "-n", "4", &program, "leave", "3", "0"]);
            let message = "rank 3 ended before MPI_Finalize: exit code 0".to_owned();
            assert_eq!((failure(&done), done.code()), ((3, 1, message), 1), "{done:?}");
        }
    });
}

/// While the others wait in MPI_Init: on its own node, and on another one.
#[test]
fn a_rank_that_is_killed_before_mpi_init_ends_those_that_wait_for_it() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_world"));
    in_a_world(LIMIT, move |world| {
        for (nodes, late) in [("1", 1), ("4", 2)] {
            let number = late.to_string();
            let args = ["launch", "--json", "--", "-N", nodes, "-n", "4", &program, "late", &number, "sum"];
            let mut run = world.gantry(args);
            let started = run.next_event("started", SOON);
            let said = run.next_event("output", SOON);
            assert_eq!((&said["text"], &said["rank"]), (&"late\n".into(), &late.into()), "{said}");
            let pid = started["ranks"][late]["pid"].as_i64().expect("a pid");
            proc::send(i32::try_from(pid).expect("a pid"), Signal::SIGKILL);
            let done = run.wait(SOON);
            let (rank, code, message) = failure(&done);
            assert!(message.contains(&format!("rank {late} ended")), "{message}");
            // On another node whoever hears of it first speaks.
            let expected = if nodes == "1" { (late as i64, 137) } else { (rank, code) };
            assert_eq!((rank, code), expected, "{done:?}");
            assert!(done.code() == i32::try_from(code).expect("a code") && code != 0, "{done:?}");
        }
    });
}

#[test]
fn further_processes_are_refused_and_the_world_goes_on() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_world"));
    in_a_world(LIMIT, move |world| {
        let done = launch(world, &["-n", "2", &program, "spawn", "1", "sum"]);
        let expected = [sums(2), vec!["spawn refused".to_owned()]].concat();
        assert_eq!((done.code(), sorted(results(&done))), (0, expected), "{done:?}");
    });
}

/// MPICH 4.0 of Debian refuses MPI_Comm_spawn itself, also under its own launcher.
#[test]
fn who_asks_for_further_processes_or_names_is_told_which_launcher_to_use() {
    let mpich = require!(MPICH_5.install());
    let program = require!(mpich.program("mpi_world"));
    in_a_world(LIMIT, move |world| {
        let done = launch(world, &["-n", "2", &program, "names", "spawn", "1", "spawn", "3", "finalize"]);
        let expected = ["lookup refused", "publish refused", "spawn refused", "spawn refused"];
        assert_eq!(
            (done.code(), sorted(results(&done))),
            (0, expected.map(str::to_owned).to_vec()),
            "{done:?}"
        );
        let told = [
            "rank 0 asks for a published name, and gantry does not keep names",
            "rank 0 asks for MPI_Comm_spawn, and gantry does not start further processes",
        ];
        let remedy = "use the library's launcher, --launcher mpiexec";
        assert_eq!(notes(&done), told.map(|it| (0, format!("{it}: {remedy}"))), "once each: {done:?}");
        // For people.
        let done = world.gantry(["launch", "-n", "1", &program, "spawn", "1", "finalize"]).wait(2 * SOON);
        let said = done.stderr.join("\n");
        assert!(said.contains(&format!("gantry: {}: {remedy}", told[1])), "{said}");
    });
}

/// Debian's Python, whose `mpi4py` loads Open MPI. The name of the program does not show it.
fn find_python_with_open_mpi() -> Result<&'static str, String> {
    let packages = std::fs::read_dir("/usr/lib/python3/dist-packages/mpi4py");
    packages.map(|_| "/usr/bin/python3").map_err(|_| "python3-mpi4py is not installed".to_owned())
}

#[test]
fn ranks_that_load_open_mpi_while_they_run_are_told_which_launcher_to_use() {
    let python = require!(find_python_with_open_mpi());
    in_a_world(LIMIT, move |world| {
        let go = world.work_dir().join("go");
        // Each has a folder of its own: two worlds of Open MPI 4.1 that begin at once fail to make the same one.
        let script = format!(
            "import os, tempfile, time\nos.environ['TMPDIR'] = tempfile.mkdtemp()\nimport mpi4py.MPI as M\nprint(f'world of {{M.COMM_WORLD.size}}', flush=True)\nwhile not os.path.exists('{}'): time.sleep(0.01)",
            go.display()
        );
        let script = script.as_str();
        let temporary = format!("TMPDIR={}", world.work_dir().display());
        let check = |args: &[&str], told: usize| {
            drop(std::fs::remove_file(&go));
            let launch = ["launch", "--json", "--env", &temporary, "--"];
            let mut run = world.gantry(launch.iter().chain(args));
            if told > 0 {
                run.next_event("mpi_note", 2 * SOON);
            } else {
                let mut has = |what: &str| run.stdout().iter().any(|line| line.contains(what));
                eventually(2 * SOON, "they have loaded it", || has("world of"));
                // Long enough for several looks.
                assert!(!becomes_true(Duration::from_millis(700), || has("mpi_note")));
            }
            std::fs::write(&go, "").expect("a file");
            let done = run.wait(2 * SOON);
            let notes = notes(&done);
            assert_eq!((done.code(), notes.len()), (0, told), "{done:?}");
            for (rank, note) in notes {
                // Whichever node has noticed it first.
                let begin = format!("rank {rank} has loaded Open MPI (libmpi.so.40");
                assert!(note.starts_with(&begin), "{note}");
                assert!(note.contains("ask for PMIx by --mpi pmix before the program, or name its launcher: --launcher mpirun"), "{note}");
            }
            done
        };
        let done = check(&["-n", "2", python, "-c", script], 1);
        assert_eq!(text_of(&done).matches("world of 1").count(), 2, "{done:?}");
        // Behind a wrapper, and on several nodes.
        check(&["-N", "2", "-n", "2", "sh", "-c", &format!("{python} -c \"{script}\"; true")], 1);
        // One rank is a world anyway. What a launcher below has started is served by it.
        check(&["-n", "1", python, "-c", script], 0);
        if tool("mpirun.openmpi").is_ok() {
            // Two of them at once may not make one folder: the second one fails.
            let below = format!(
                "export TMPDIR=$TMPDIR/$GANTRY_RANK; mkdir -p $TMPDIR; \
                 mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 {python} -c \"{script}\"; true"
            );
            let done = check(&["-n", "2", "sh", "-c", &below], 0);
            assert_eq!(text_of(&done).matches("world of 2").count(), 4, "{done:?}");
        }
        // Held ranks load it after their release.
        drop(std::fs::remove_file(&go));
        let args = ["launch", "--hold", "--json", "--env", &temporary, "--", "-n", "2", python, "-c", script];
        let mut run = world.gantry(args);
        let held = run.next_event("held", SOON);
        let app = held["app"].as_str().expect("an id");
        assert_eq!(world.gantry(["release", app]).wait(SOON).code(), 0);
        run.next_event("mpi_note", SOON);
        std::fs::write(&go, "").expect("a file");
        assert_eq!(run.wait(SOON).code(), 0);
    });
}

/// Ranks that are scripts, and speak PMI as badly as they can.
#[test]
fn ranks_that_break_the_rules_of_pmi_end_the_app_with_a_reason() {
    require!(tool("bash"));
    in_a_world(LIMIT, |world| {
        let check = |nodes: &str, script: &str, reason: &str| {
            // Only rank 1 is bad; the others wait for a long time.
            let script = format!("[ $PMI_RANK = 1 ] || exec sleep 300; {script}");
            let done = launch(world, &["-N", nodes, "-n", "3", "bash", "-c", &script]);
            let (rank, code, message) = failure(&done);
            assert_eq!((rank, code), (1, 1), "{done:?}");
            assert!(message.contains(reason), "{message}");
            assert_eq!(done.code(), 1, "{done:?}");
        };
        check("1", "echo 'hello, world' >&10; sleep 300", "begins neither with 'cmd=' nor with a length");
        check("3", "echo cmd=get_maxes >&10; sleep 300", "before it has begun");
        let begin = "echo cmd=init pmi_version=1 pmi_subversion=1 >&10; read -r answer <&10";
        check(
            "3",
            &format!("{begin}; echo cmd=dance >&10; sleep 300"),
            "a command that gantry does not know",
        );
        let long = "head -c 70000 /dev/zero | tr '\\0' x >&10";
        check("1", &format!("{begin}; printf cmd= >&10; {long}; sleep 300"), "is longer than 65536 bytes");
    });
}

#[test]
fn what_a_rank_may_not_put_is_refused_and_harms_nobody() {
    require!(tool("bash"));
    in_a_world(LIMIT, |world| {
        let script = "ask() { echo \"$1\" >&10; read -r answer <&10; echo \"$answer\"; }; \
            key=$(head -c 65 /dev/zero | tr '\\0' k); \
            ask 'cmd=init pmi_version=1 pmi_subversion=1'; \
            ask \"cmd=put kvsname=x key=$key value=1\"; \
            ask 'cmd=put kvsname=x key=PMI_process_mapping value=1'; \
            ask 'cmd=get kvsname=x key=other'; \
            ask 'cmd=put kvsname=x key=mine value=1'; \
            ask cmd=barrier_in; \
            ask 'cmd=get kvsname=x key=mine'; \
            ask cmd=finalize";
        let done = launch(world, &["-N", "1", "-n", "1", "bash", "-c", script]);
        let expected = [
            "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
            "cmd=put_result rc=-1 msg=key_or_value_missing_or_too_long",
            "cmd=put_result rc=-1 msg=keys_that_begin_with_PMI_are_reserved",
            "cmd=get_result rc=-1 msg=key_not_found value=unknown",
            "cmd=put_result rc=0",
            "cmd=barrier_out rc=0",
            "cmd=get_result rc=0 value=1",
            "cmd=finalize_ack rc=0",
        ];
        assert_eq!(
            (done.code(), text_of(&done)),
            (0, expected.map(|line| format!("{line}\n")).concat()),
            "{done:?}"
        );
    });
}

/// In the middle of a fence: on its own node, and on another one.
#[test]
fn a_rank_that_leaves_in_the_middle_of_a_fence_is_named() {
    require!(tool("bash"));
    in_a_world(LIMIT, |world| {
        for nodes in ["1", "2"] {
            let script = "echo cmd=init pmi_version=1 pmi_subversion=1 >&10; read -r answer <&10; \
                if [ $PMI_RANK = 0 ]; then echo cmd=barrier_in >&10; read -r answer <&10; echo \"through: $answer\"; else sleep 0.3; exit 0; fi";
            let done = launch(world, &["-N", nodes, "-n", "2", "bash", "-c", script]);
            let (_, code, message) = failure(&done);
            assert!(message.contains("rank 1 ended"), "{message}");
            assert_eq!((code, done.code(), lines_of(&done)), (1, 1, Vec::new()), "{done:?}");
        }
    });
}

/// A tool that kills its app has no news of an MPI world.
#[test]
fn a_world_that_is_killed_has_not_failed() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_hang"));
    in_a_world(LIMIT, move |world| {
        let mut run = world.gantry(["launch", "--json", "--", "-n", "3", &program]);
        let started = run.next_event("started", SOON);
        (0..3).for_each(|_| drop(run.next_event("output", SOON)));
        let app = started["app"].as_str().expect("an id");
        assert_eq!(world.gantry(["kill", app]).wait(SOON).code(), 0);
        let done = run.wait(2 * SOON);
        assert!(!done.events().iter().any(|event| event["event"] == "mpi_failed"), "{done:?}");
    });
}

/// Two programs in one app are two programs of one world.
#[test]
fn ranks_on_hosts_that_are_reached_by_ssh_are_one_world() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_world"));
    on_hosts(Config::with_nodes(4), move |cluster| {
        for hosts in ["n[001-004]:1", "n[001-004]:2"] {
            let ranks = if hosts.ends_with('1') { 4 } else { 8 };
            let mut run = cluster.launch(&["--", "--hosts", hosts, &program, "sum"]);
            let done = run.wait(2 * SOON);
            assert_eq!((done.code(), sorted(lines_of(&done))), (0, sums(ranks)), "{done:?}");
        }
        // Ranks go round the hosts.
        let args = ["--", "--hosts", "n[001-003]:2", "--map-by", "node", "-n", "5", &program, "sum"];
        let done = cluster.launch(&args).wait(2 * SOON);
        assert_eq!((done.code(), sorted(lines_of(&done))), (0, sums(5)), "{done:?}");
        let done =
            cluster.launch(&["--", "--hosts", "n[001-004]", &program, "abort", "3", "9"]).wait(2 * SOON);
        assert_eq!((failure(&done).0, done.code()), (3, 9), "{done:?}");
    });
}

#[test]
fn a_host_that_is_lost_ends_the_world_that_waits_for_it() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_world"));
    on_hosts(Config::with_nodes(2), move |cluster| {
        let mut run = cluster.launch(&["--", "--hosts", "n[001-002]:2", &program, "late", "3", "sum"]);
        run.next_event("output", SOON);
        let agent = |node: &str| {
            let all = cluster.bed.host(node).expect("a node").user_processes();
            all.into_iter().filter(|it| it.line.contains("gantry-agent")).map(|it| it.pid).collect::<Vec<_>>()
        };
        assert!(becomes_true(SOON, || !agent("n002").is_empty()));
        agent("n002").into_iter().for_each(|pid| proc::send(pid, Signal::SIGKILL));
        let done = run.wait(3 * SOON);
        let (_, code, message) = failure(&done);
        assert!(message.contains("was lost with its node"), "{message}");
        assert!(code != 0 && done.code() != 0, "{done:?}");
    });
}

/// Nobody would notice: the ranks wait in MPI for messages that never come.
#[test]
fn a_host_that_is_lost_ends_the_world_that_computes() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_work"));
    on_hosts(Config::with_nodes(2), move |cluster| {
        let mut run = cluster.launch(&["--", "--hosts", "n[001-002]", &program, "ring", "1", "wait"]);
        let mut waiting = 0;
        while waiting < 2 {
            let said = run.next_event("output", 2 * SOON);
            waiting += said["text"].as_str().expect("text").matches(" waits").count();
        }
        let all = cluster.bed.host("n002").expect("a node").user_processes();
        let agents = all.into_iter().filter(|it| it.line.contains("gantry-agent")).map(|it| it.pid);
        proc::send_those_left(agents, Signal::SIGKILL);
        let done = run.wait(SOON);
        let (rank, code, message) = failure(&done);
        assert_eq!((rank, code, message.as_str()), (1, 1, "rank 1 was lost with its node n002"), "{done:?}");
        assert_eq!(done.code(), 1, "{done:?}");
    });
}

#[test]
fn hosts_that_do_not_reach_each_other_are_named_while_mpi_waits() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_work"));
    on_hosts(Config::with_nodes(2), move |cluster| {
        if let Err(why) = cluster.bed.host("n002").expect("a node").ignore_connections(&[22]) {
            return gantry_tests::record_skip(&format!("no firewall: {why}"));
        }
        let mut run = cluster.launch(&["--", "--hosts", "n[001-002]", &program, "ring", "1", "wait"]);
        let said = run.next_event("mpi_note", 3 * SOON);
        let message = said["message"].as_str().expect("a message");
        assert_eq!(said["rank"], 0, "{said}");
        assert!(message.contains("host n001 does not connect to host n002 at "), "{message}");
        run.signal(Signal::SIGTERM);
        run.wait(SOON);
    });
}

#[test]
fn ranks_in_a_job_of_pbs_are_one_world() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_world"));
    on_pbs(move |cluster| {
        let script = format!(
            "gantry launch -- {program} sum; echo code $?; gantry launch -- --ppn 1 {program} abort 1 6; echo code $?"
        );
        let script = Script::submit(&cluster.bed, &script);
        let (code, text) = script.wait();
        let lines: Vec<&str> = text.lines().collect();
        let sums = sums(6);
        let said: Vec<&str> = lines.iter().copied().filter(|line| line.starts_with("rank ")).collect();
        assert_eq!(sorted(said.into_iter().map(str::to_owned).collect()), sums, "{text}");
        assert!(lines.contains(&"code 0") && lines.contains(&"code 6"), "{text}");
        assert_eq!(code, 0, "{text}");
    });
}
