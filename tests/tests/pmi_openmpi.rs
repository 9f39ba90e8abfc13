//! Programs of Open MPI that gantry starts itself are one world, by the PMIx library of the program or of the node: real Open MPI 4.1 and 5.0 on this machine, on hosts that are
//! reached by ssh, and in a job of PBS. The rules are those of the other MPI libraries (suite `pmi`).

use std::path::Path;
use std::time::Duration;

use gantry_tests::launchers::{Installed, OPEN_MPI_4, OPEN_MPI_5};
use gantry_tests::mpi::{failure, notes, results, sorted, sums};
use gantry_tests::pbs::{Script, on_pbs};
use gantry_tests::slurm::{lines_of, text_of};
use gantry_tests::ssh::on_hosts;
use gantry_tests::testbed::Config;
use gantry_tests::{Finished, SOON, World, eventually, in_a_world, proc, require, tool};
use gantry_types::rank_set::RankSet;
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(240);

/// Nodes of one machine reach each other by its loopback alone, which Open MPI leaves out by itself.
const LOOPBACK: [&str; 2] = ["--env", "OMPI_MCA_btl_tcp_if_include=lo"];

/// Launches on this machine, without a launcher.
fn launch(world: &World, args: &[&str]) -> Finished {
    world.gantry(["launch", "--json"].iter().chain(&LOOPBACK).chain(&["--"]).chain(args)).wait(3 * SOON)
}

/// The programs of both versions that are here.
fn both(name: &str) -> Result<Vec<String>, String> {
    [OPEN_MPI_4, OPEN_MPI_5].iter().map(|mpi| mpi.install()?.program(name)).collect()
}

#[track_caller]
fn check_whole_life(mpi: &Installed) {
    let Ok(program) = mpi.program("mpi_world") else { panic!("no program") };
    in_a_world(LIMIT, move |world| {
        for (nodes, ranks) in [("1", 4), ("2", 4), ("3", 7)] {
            let number = ranks.to_string();
            let done = launch(world, &["-N", nodes, "-n", &number, &program, "sum", "finalize"]);
            assert_eq!((done.code(), sorted(lines_of(&done))), (0, sums(ranks)), "{done:?}");
        }
        // Several programs.
        let args =
            ["-N", "2", "-n", "2", &program, "sum", "finalize", ":", "-n", "3", &program, "sum", "finalize"];
        let done = launch(world, &args);
        let expected: Vec<String> = (0..5)
            .map(|it| format!("rank {it} of 5, program {}, places 5, sum 10", u8::from(it > 1)))
            .collect();
        assert_eq!((done.code(), sorted(lines_of(&done))), (0, expected), "{done:?}");
        // What ranks end with after MPI_Finalize is their own.
        let done = launch(world, &["-n", "2", &program, "exit", "3", "1"]);
        assert_eq!(done.code(), 4, "{done:?}");
        assert!(!done.events().iter().any(|event| event["event"] == "mpi_failed"), "{done:?}");
    });
}

#[test]
fn open_mpi_4_begins_and_ends_as_one_world() {
    check_whole_life(&require!(OPEN_MPI_4.install()));
}

#[test]
fn open_mpi_5_begins_and_ends_as_one_world() {
    check_whole_life(&require!(OPEN_MPI_5.install()));
}

#[test]
fn ranks_know_their_place_and_are_held_before_they_ask_for_it() {
    let programs = require!(both("mpi_world"));
    in_a_world(LIMIT, move |world| {
        for program in programs {
            let args = ["launch", "--hold", "--json"];
            let rest = ["--", "-N", "2", "-n", "3", &program, "say", "shared", "sum", "finalize"];
            let mut run = world.gantry(args.iter().chain(&LOOPBACK).chain(&rest));
            let held = run.next_event("held", 2 * SOON);
            for rank in held["ranks"].as_array().expect("ranks") {
                let pid = i32::try_from(rank["pid"].as_i64().expect("a pid")).expect("a pid");
                assert_eq!(proc::why_not_held(pid), None, "{held}");
            }
            let app = held["app"].as_str().expect("an id");
            assert_eq!(world.gantry(["release", app]).wait(SOON).code(), 0);
            let done = run.wait(3 * SOON);
            let mut expected = sums(3);
            let places = [
                "told 0 of 3, 0 of 2 here",
                "told 1 of 3, 1 of 2 here",
                "told 2 of 3, 0 of 1 here",
                "rank 0 shares memory with 2",
                "rank 1 shares memory with 2",
                "rank 2 shares memory with 1",
            ];
            expected.extend(places.map(str::to_owned));
            assert_eq!((done.code(), sorted(lines_of(&done))), (0, sorted(expected)), "{done:?}");
        }
    });
}

#[test]
fn abort_ends_all_ranks_with_its_code() {
    let programs = require!(both("mpi_world"));
    in_a_world(LIMIT, move |world| {
        for (program, (nodes, code)) in
            programs.iter().flat_map(|program| [("1", 7), ("2", 200)].map(|it| (program, it)))
        {
            let text = code.to_string();
            let done = launch(world, &["-N", nodes, "-n", "4", program, "abort", "2", &text]);
            let message = format!("rank 2 called MPI_Abort with exit code {code}");
            assert_eq!(failure(&done), (2, code, message), "{done:?}");
            assert_eq!(i64::from(done.code()), code, "{done:?}");
        }
    });
}

#[test]
fn a_rank_that_ends_before_mpi_finalize_ends_all_with_its_name() {
    let programs = require!(both("mpi_world"));
    in_a_world(LIMIT, move |world| {
        for program in &programs {
            let done = launch(world, &["-n", "4", program, "leave", "3", "5"]);
            let message = "rank 3 ended before MPI_Finalize: exit code 5".to_owned();
            assert_eq!((failure(&done), done.code()), ((3, 5, message), 5), "{done:?}");
            let done = launch(world, &["-n", "4", program, "leave", "3", "0"]);
            let message = "rank 3 ended before MPI_Finalize: exit code 0".to_owned();
            assert_eq!((failure(&done), done.code()), ((3, 1, message), 1), "{done:?}");
            // Ranks that lose a connection by TCP call MPI_Abort by themselves. The first news counts.
            let done = launch(world, &["-N", "2", "-n", "4", program, "leave", "3", "5"]);
            let (rank, code, message) = failure(&done);
            assert!((rank, code) == (3, 5) || message.contains("called MPI_Abort"), "{done:?}");
            assert_eq!(i64::from(done.code()), code, "{done:?}");
            let done = launch(world, &["-n", "3", program, "kill", "1", "9"]);
            let (rank, code, _) = failure(&done);
            assert_eq!((rank, code, done.code()), (1, 137, 137), "{done:?}");
        }
    });
}

/// While the others wait in MPI_Init: on its own node, and on another one.
#[test]
fn a_rank_that_is_killed_before_mpi_init_ends_those_that_wait_for_it() {
    let programs = require!(both("mpi_world"));
    in_a_world(LIMIT, move |world| {
        for (program, (nodes, late)) in
            programs.iter().flat_map(|program| [("1", 1), ("4", 2)].map(|it| (program, it)))
        {
            let number = late.to_string();
            let args = ["launch", "--json"];
            let rest = ["--", "-N", nodes, "-n", "4", program, "late", &number, "sum", "finalize"];
            let mut run = world.gantry(args.iter().chain(&LOOPBACK).chain(&rest));
            let started = run.next_event("started", 2 * SOON);
            run.next_event("output", SOON);
            let pid = started["ranks"][late]["pid"].as_i64().expect("a pid");
            proc::send(i32::try_from(pid).expect("a pid"), Signal::SIGKILL);
            let done = run.wait(2 * SOON);
            let (_, code, message) = failure(&done);
            assert!(message.contains(&format!("rank {late} ended")), "{message}");
            assert!(done.code() == i32::try_from(code).expect("a code") && code != 0, "{done:?}");
        }
    });
}

#[test]
fn who_asks_for_further_processes_or_names_is_told_which_launcher_to_use() {
    let mpi = require!(OPEN_MPI_5.install());
    let program = require!(mpi.program("mpi_world"));
    in_a_world(LIMIT, move |world| {
        let done = launch(world, &["-n", "2", &program, "names", "spawn", "1", "finalize"]);
        let expected = ["lookup refused", "publish refused", "spawn refused"];
        assert_eq!(sorted(results(&done)), expected.map(str::to_owned), "{done:?}");
        let told = [
            "rank 0 asks for a published name, and gantry does not keep names",
            "rank 0 asks for MPI_Comm_spawn, and gantry does not start further processes",
        ];
        let remedy = "use the library's launcher, --launcher mpirun";
        assert_eq!(notes(&done), told.map(|it| (0, format!("{it}: {remedy}"))), "once each: {done:?}");
    });
}

/// The processes of a world with these words in front.
fn called(world: &World, words: &str) -> Vec<i32> {
    let line = |pid: i32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_called = |pid: &i32| String::from_utf8_lossy(&line(*pid)).replace('\0', " ").contains(words);
    world.processes().into_iter().filter(is_called).collect()
}

/// The processes that serve PMIx in a world.
fn servers(world: &World) -> Vec<i32> {
    called(world, "gantry-agent pmix serve")
}

#[test]
fn the_end_of_the_process_that_serves_pmix_ends_the_world_with_a_reason() {
    let mpi = require!(OPEN_MPI_4.install());
    let program = require!(mpi.program("mpi_hang"));
    in_a_world(LIMIT, move |world| {
        let mut run = world.gantry(["launch", "--json", "--", "-n", "3", &program]);
        let app = run.next_event("started", 2 * SOON)["app"].as_str().expect("an id").to_owned();
        (0..3).for_each(|_| drop(run.next_event("output", 2 * SOON)));
        assert_eq!(memory(&app).len(), 1);
        let [server] = servers(world)[..] else { panic!("one server: {:?}", world.processes()) };
        proc::send(server, Signal::SIGKILL);
        let done = run.wait(2 * SOON);
        let (_, code, message) = failure(&done);
        assert!(message.starts_with("the process that serves PMIx to the ranks, by "), "{message}");
        assert!(message.contains("libpmix.so"), "{message}");
        assert_eq!((code, done.code()), (1, 1), "{done:?}");
        assert_eq!(memory(&app), [""; 0]);
    });
}

/// The directories of an app in the machine's shared memory.
fn memory(app: &str) -> Vec<String> {
    let begin = format!("gantry-{app}-");
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&begin)).collect()
}

/// The process that serves PMIx outlives the agent for a moment, and removes what its ranks leave.
#[test]
fn an_agent_that_is_killed_leaves_neither_the_server_nor_shared_memory() {
    let programs = require!(both("mpi_hang"));
    in_a_world(LIMIT, move |world| {
        for program in programs {
            let mut run = world.gantry(["launch", "--json", "--", "-n", "2", &program]);
            let app = run.next_event("started", 2 * SOON)["app"].as_str().expect("an id").to_owned();
            (0..2).for_each(|_| drop(run.next_event("output", 2 * SOON)));
            called(world, "gantry-agent serve").into_iter().for_each(|pid| proc::send(pid, Signal::SIGKILL));
            assert_ne!(run.wait(2 * SOON).code(), 0);
            eventually(SOON, "the server has ended", || servers(world).is_empty());
            eventually(SOON, "shared memory is removed", || memory(&app).is_empty());
        }
    });
}

/// A library that is none, in the place of the program's own.
#[test]
fn a_library_that_cannot_be_used_is_named() {
    in_a_world(LIMIT, move |world| {
        let folder = world.work_dir();
        std::fs::write(folder.join("libpmix.so.2"), "not a library").expect("a file");
        let path = format!("LD_LIBRARY_PATH={}", folder.display());
        let args = ["launch", "--json", "--env", &path, "--", "--mpi", "pmix", "-n", "2", "/bin/true"];
        let done = world.gantry(args).wait(2 * SOON);
        let said = format!("{:?}", done.events());
        assert!(said.contains("start a PMIx server") && said.contains("libpmix.so.2"), "{done:?}");
        assert_ne!(done.code(), 0, "{done:?}");
    });
}

/// Debian's Python, whose `mpi4py` loads Open MPI. The name of the program does not show it.
fn find_python_with_open_mpi() -> Result<&'static str, String> {
    let packages = std::fs::read_dir("/usr/lib/python3/dist-packages/mpi4py");
    packages.map(|_| "/usr/bin/python3").map_err(|_| "python3-mpi4py is not installed".to_owned())
}

#[test]
fn scripts_that_load_open_mpi_are_one_world_if_the_user_asks_for_pmix() {
    let python = require!(find_python_with_open_mpi());
    in_a_world(LIMIT, move |world| {
        let script = "import os, mpi4py.MPI as M; os.write(1, f'rank {M.COMM_WORLD.rank} of {M.COMM_WORLD.size}\\n'.encode())";
        let done = launch(world, &["--mpi=pmix", "-N", "2", "-n", "3", python, "-c", script]);
        let expected = ["rank 0 of 3", "rank 1 of 3", "rank 2 of 3"];
        assert_eq!(
            (done.code(), sorted(lines_of(&done))),
            (0, expected.map(str::to_owned).to_vec()),
            "{done:?}"
        );
        assert_eq!(notes(&done), [], "{done:?}");
    });
}

#[test]
fn programs_without_mpi_run_beside_a_pmix_server() {
    require!(tool("mpirun.openmpi"));
    in_a_world(LIMIT, move |world| {
        let done = launch(
            world,
            &["--mpi", "pmix", "-N", "2", "-n", "3", "sh", "-c", "echo $PMIX_RANK ${PMI_FD-no}"],
        );
        let expected = ["0 no", "1 no", "2 no"];
        assert_eq!(
            (done.code(), sorted(lines_of(&done))),
            (0, expected.map(str::to_owned).to_vec()),
            "{done:?}"
        );
    });
}

/// A rank of Open MPI that waits uses a processor, unless it is told to yield.
#[test]
fn more_ranks_than_processors_yield_while_they_wait() {
    require!(tool("mpirun.openmpi"));
    in_a_world(LIMIT, move |world| {
        let status = std::fs::read_to_string("/proc/self/status").expect("a status");
        let allowed =
            status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list");
        let processors = allowed.trim().parse::<RankSet>().expect("a set").iter().count();
        let check = |ranks: usize, more: &[&str], expected: &str| {
            let count = ranks.to_string();
            let script = ["sh", "-c", "echo ${OMPI_MCA_mpi_yield_when_idle-no}"];
            let args = [&["--mpi", "pmix", "-n", &count], more, &script].concat();
            let done = launch(world, &args);
            assert_eq!((done.code(), lines_of(&done)), (0, vec![expected.to_owned(); ranks]), "{done:?}");
        };
        check(processors, &[], "no");
        check(processors + 1, &[], "1");
        check(processors + 1, &["-env", "OMPI_MCA_mpi_yield_when_idle", "0"], "0");
    });
}

#[test]
fn ranks_on_hosts_that_are_reached_by_ssh_are_one_world() {
    let programs = require!(both("mpi_world"));
    on_hosts(Config::with_nodes(3), move |cluster| {
        for program in &programs {
            for (hosts, ranks) in [("n[001-003]:1", 3), ("n[001-003]:2", 6)] {
                let mut run = cluster.launch(&["--", "--hosts", hosts, program, "sum", "finalize"]);
                let done = run.wait(3 * SOON);
                assert_eq!((done.code(), sorted(lines_of(&done))), (0, sums(ranks)), "{done:?}");
            }
            let done =
                cluster.launch(&["--", "--hosts", "n[001-003]", program, "abort", "2", "9"]).wait(3 * SOON);
            assert_eq!((failure(&done).0, done.code()), (2, 9), "{done:?}");
        }
    });
}

#[test]
fn ranks_in_a_job_of_pbs_are_one_world() {
    let mpi = require!(OPEN_MPI_4.install());
    let program = require!(mpi.program("mpi_world"));
    on_pbs(move |cluster| {
        let script = format!("gantry launch -- {program} sum finalize; echo code $?");
        let script = Script::submit(&cluster.bed, &script);
        let (code, text) = script.wait();
        let said = text.lines().filter(|line| line.starts_with("rank ")).map(str::to_owned).collect();
        assert_eq!(sorted(said), sums(6), "{text}");
        assert!(text.lines().any(|line| line == "code 0") && code == 0, "{text}");
    });
}

/// Structures of PMIx, as a C compiler lays them out.
#[test]
fn structures_are_laid_out_as_in_the_header() {
    use gantry_wlm::pmix::abi::{Data, DataArray, Info, Proc, Value};
    let include = Path::new("/usr/lib/x86_64-linux-gnu/pmix2/include");
    require!(
        include
            .join("pmix_server.h")
            .is_file()
            .then_some(())
            .ok_or("libpmix-dev is not installed".to_owned())
    );
    let flags = ["-isystem".to_owned(), include.display().to_string()];
    let program = require!(gantry_tests::programs::get_with("pmix_layout", "pmix_layout", &flags));
    in_a_world(LIMIT, move |world| {
        let program = program.display().to_string();
        let done = world.gantry(["launch", "--json", "--", "-n", "1", &program]).wait(SOON);
        let sizes = [
            size_of::<Proc>(),
            size_of::<Value>(),
            size_of::<Data>(),
            size_of::<Info>(),
            size_of::<DataArray>(),
            std::mem::offset_of!(Proc, rank),
            std::mem::offset_of!(Value, data),
            std::mem::offset_of!(Info, flags),
            std::mem::offset_of!(Info, value),
            std::mem::offset_of!(DataArray, count),
            std::mem::offset_of!(DataArray, items),
        ];
        let expected: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        let text = text_of(&done);
        let (sizes, slots) = text.trim().split_once(';').expect("sizes and places");
        assert_eq!(sizes, expected.join(" "), "{done:?}");
        assert_eq!(slots, " 0 1 2 3 4 5 6 7 8 9 10 19, fewer than 128", "{done:?}");
    });
}
