//! `gantry mpir` under a real gdb, which knows nothing of gantry. gdb sets `MPIR_being_debugged`, stops in
//! `MPIR_Breakpoint`, and reads the table by its types.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gantry_tests::slurm::{Cluster, on_cluster};
use gantry_tests::testbed::Config;
use gantry_tests::{
    Run, World, becomes_true, binaries, eventually, in_a_world, proc, programs, require, tool,
};
use gantry_types::id::Pid;
use gantry_wlm::host::Machine;
use gantry_wlm::mpir::{Table, read_running};
use nix::sys::signal::Signal;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(240);

fn starter() -> PathBuf {
    binaries().dir.join("gantry-mpir")
}

/// A gdb that reads its commands from a pipe.
struct Gdb {
    run: Run,
    asked: usize,
}

/// gdb's options before the program.
const GDB: [&str; 12] = [
    "-q",
    "-nx",
    "-ex",
    "set confirm off",
    "-ex",
    "set width 0",
    "-ex",
    "set print elements 0",
    "-ex",
    "set breakpoint pending on",
    // Keeps gdb's commands away from the stdin of rank 0.
    "-ex",
    "set exec-wrapper sh -c 'exec \"$0\" \"$@\" < /dev/null'",
];

impl Gdb {
    fn new(run: Run) -> Self {
        Self { run, asked: 0 }
    }

    fn command(mut command: Command, program: &Path, args: &[&str]) -> Command {
        command.args(GDB).arg("--args").arg(program).args(args);
        command
    }

    fn start(world: &World, program: &Path, args: &[&str]) -> Self {
        Self::new(world.spawn(Self::command(world.command("gdb"), program, args)))
    }

    /// The output of these commands, once all of them are done.
    #[track_caller]
    fn ask(&mut self, commands: &[&str]) -> String {
        self.asked += 1;
        let mark = format!("all-done-{}", self.asked);
        let mut text = commands.join("\n");
        text.push_str(&format!("\necho \\n{mark}\\n\n"));
        self.run.write(text.as_bytes());
        let mut said = String::new();
        loop {
            let line = self.run.next_line(SOON);
            if line.contains(&mark) {
                return said;
            }
            said.push_str(&line);
            said.push('\n');
        }
    }

    /// Runs a starter to its breakpoint, as a debugger does.
    #[track_caller]
    fn run_to_breakpoint(&mut self) -> String {
        let said =
            self.ask(&["break MPIR_Breakpoint", "start", "set var MPIR_being_debugged = 1", "continue"]);
        assert!(said.contains("Breakpoint 1, MPIR_Breakpoint ()"), "{said} {:?}", self.run.stderr());
        said
    }

    /// The table, read by its types: host, program, process.
    #[track_caller]
    fn table(&mut self) -> Vec<(String, String, i32)> {
        let said = self.ask(&["p MPIR_debug_state", "p MPIR_debug_abort_string"]);
        assert!(said.contains(" = 1\n"), "{said}");
        let said = self.ask(&["p *MPIR_proctable@MPIR_proctable_size"]);
        let entries = said.split("{host_name = ").skip(1);
        let text = |entry: &str, at: usize| entry.split('"').nth(at).unwrap().to_owned();
        let pid = |entry: &str| {
            let digits = entry.split("pid = ").nth(1).unwrap();
            digits.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
        };
        entries.map(|entry| (text(entry, 1), text(entry, 3), pid(entry))).collect()
    }

    /// The starter that this gdb debugs.
    fn starter(&self) -> i32 {
        proc::children(self.run.pid())
            .into_iter()
            .find(|pid| proc::exe(*pid).is_some_and(|exe| exe.ends_with("gantry-mpir")))
            .expect("a starter below gdb")
    }

    #[track_caller]
    fn quit(mut self) {
        self.run.write(b"quit\n");
        assert_eq!(self.run.wait(SOON).code(), 0);
    }
}

/// All ranks of the table must be held according to /proc.
#[track_caller]
fn assert_held(table: &[(String, String, i32)]) {
    for rank in table {
        assert_eq!(proc::why_not_held(rank.2), None, "{rank:?}");
    }
}

#[test]
fn gdb_finds_held_ranks_with_types_and_lets_them_go_and_the_exit_code_passes_through() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let args = ["-n", "4", "-N", "2", "/bin/sh", "-c", "echo rank; exit 7"];
        let mut gdb = Gdb::start(world, &starter(), &args);
        gdb.run_to_breakpoint();
        let table = gdb.table();
        let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
        assert_eq!(table.len(), 4);
        for (at, program, _) in &table {
            // The names of this machine's simulated nodes do not resolve.
            assert_eq!((at, Path::new(program).is_absolute()), (&host, true));
        }
        assert_held(&table);
        let types = gdb.ask(&["ptype MPIR_PROCDESC", "whatis MPIR_proctable", "p MPIR_i_am_starter"]);
        for part in ["char *host_name;", "char *executable_name;", "int pid;", "MPIR_PROCDESC *"] {
            assert!(types.contains(part), "{part}: {types}");
        }
        // The id that debuggers give their servers is the app's id.
        let id = gdb.ask(&["p totalview_jobid"]);
        let apps: Vec<Value> =
            serde_json::from_str(&world.gantry(["ps", "--json"]).wait(SOON).stdout[0]).unwrap();
        assert!(id.contains(apps[0]["app"].as_str().unwrap()), "{id} {apps:?}");
        // Debuggers that know the process id of their starter alone name the app by it.
        let name = format!("pid:{}", gdb.starter());
        let daemon = world.gantry(["daemon", &name, "--", "/bin/echo", "a daemon"]).wait(SOON);
        assert_eq!((daemon.code(), daemon.stdout.len()), (0, 2), "{daemon:?}");
        assert_eq!(apps[0]["state"], "held");
        let said = gdb.ask(&["continue"]);
        assert!(said.contains("exited with code 07"), "{said}");
        assert_eq!(said.lines().filter(|line| line.ends_with("rank")).count(), 4, "{said}");
        gdb.quit();
    });
}

#[test]
fn a_debugger_that_knows_neither_moved_programs_nor_shared_memory_finds_the_breakpoint() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let mut gdb = Gdb::start(world, &starter(), &["-n", "1", "/bin/true"]);
        // LaunchMON takes the addresses in the file for those of the process. It removes its breakpoints from each new
        // process: from one that vfork has started they would be gone here too.
        let of_file = gdb.ask(&["p &MPIR_proctable_size"]);
        let said = gdb.ask(&["catch fork", "catch vfork", "run"]);
        assert!(said.contains("Catchpoint 1 (forked process"), "{said} {:?}", gdb.run.stderr());
        let address = |said: &str| said.split("0x").nth(1).map(|rest| rest[..6].to_owned());
        let of_process = gdb.ask(&["p &MPIR_proctable_size"]);
        assert!(address(&of_file).is_some(), "{of_file}");
        assert_eq!(address(&of_file), address(&of_process), "{of_file} {of_process}");
        let said = gdb.ask(&["continue"]);
        assert!(said.contains("exited normally"), "{said}");
        gdb.quit();
    });
}

#[test]
fn a_debugger_that_follows_an_exec_starts_the_command_itself() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let args = ["mpir", "-q", "--", "-n", "2", "/bin/sh", "-c", "exit 3"];
        let mut gdb = Gdb::start(world, &binaries().gantry, &args);
        let said = gdb.ask(&[
            "break MPIR_Breakpoint",
            "catch exec",
            "run",
            "set var MPIR_being_debugged = 1",
            "continue",
        ]);
        assert!(said.contains("MPIR_Breakpoint ()"), "{said} {:?}", gdb.run.stderr());
        let table = gdb.table();
        assert_eq!(table.len(), 2);
        assert_held(&table);
        let said = gdb.ask(&["continue"]);
        assert!(said.contains("exited with code 03"), "{said}");
        gdb.quit();
    });
}

#[test]
fn ranks_that_a_debugger_traces_stay_with_it() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let mut gdb = Gdb::start(world, &starter(), &["-n", "2", "/bin/sleep", "0.2"]);
        gdb.run_to_breakpoint();
        let table = gdb.table();
        let pid = table[1].2.to_string();
        let mut other = Gdb::new(world.start(Path::new("gdb"), [&GDB[..], &["-p", &pid]].concat()));
        other.ask(&["info program"]);
        assert_eq!(proc::tracer(table[1].2), Some(other.run.pid()));
        gdb.run.write(b"continue\n");
        // The first rank ends by itself. The second ends when its debugger continues it.
        proc::wait_gone(table[0].2, SOON);
        assert_eq!(proc::state(table[1].2), Some('t'));
        let said = other.ask(&["handle SIGSTOP nostop nopass", "continue"]);
        assert!(said.contains("exited normally"), "{said}");
        let said = gdb.ask(&[]);
        assert!(said.contains("exited normally"), "{said}");
        other.quit();
        gdb.quit();
    });
}

#[test]
fn the_end_of_a_rank_by_a_signal_is_told_as_the_reason_of_an_abort() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let mut gdb = Gdb::start(world, &starter(), &["-q", "-n", "1", "/bin/sh", "-c", "kill -SEGV $$"]);
        gdb.run_to_breakpoint();
        let said = gdb.ask(&["continue", "p MPIR_debug_state", "p MPIR_debug_abort_string"]);
        assert!(said.contains(" = 2\n") && said.contains("rank 0: killed by SIGSEGV"), "{said}");
        let said = gdb.ask(&["continue"]);
        // 139 in octal, as gdb prints it.
        assert!(said.contains("exited with code 0213"), "{said}");
        gdb.quit();
    });
}

#[test]
fn a_launch_that_fails_is_an_abort_with_the_reason() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let mut gdb = Gdb::start(world, &starter(), &["-n", "2", "/no/such/program"]);
        gdb.run_to_breakpoint();
        let said = gdb.ask(&["p MPIR_debug_state", "p MPIR_debug_abort_string", "continue"]);
        assert!(said.contains(" = 2\n") && said.contains("/no/such/program"), "{said}");
        assert!(said.contains("exited with code 0101"), "{said}");
        gdb.quit();
    });
}

#[test]
fn a_starter_killed_at_its_breakpoint_leaves_nothing() {
    require!(tool("gdb"));
    for kill_gdb in [false, true] {
        in_a_world(LIMIT, move |world| {
            let mut gdb = Gdb::start(world, &starter(), &["-n", "4", "-N", "2", "/bin/sleep", "1000"]);
            gdb.run_to_breakpoint();
            let table = gdb.table();
            assert_held(&table);
            let starter = gdb.starter();
            if kill_gdb {
                gdb.run.kill();
            }
            proc::send(starter, Signal::SIGKILL);
            for (_, _, pid) in &table {
                proc::wait_gone(*pid, SOON);
            }
            if !kill_gdb {
                gdb.quit();
            }
            eventually(SOON, "the end of the app", || {
                world.gantry(["ps", "--json"]).wait(SOON).stdout == ["[]"]
            });
        });
    }
}

#[test]
fn without_a_debugger_it_is_a_launch() {
    in_a_world(LIMIT, |world| {
        let done = world.gantry(["mpir", "--", "-n", "3", "/bin/sh", "-c", "echo out; exit 5"]).wait(SOON);
        assert_eq!((done.code(), done.stdout.len()), (5, 3), "{done:?}");
        let mut run = world.gantry(["mpir", "--json", "--hold", "--", "-n", "2", "/bin/cat"]);
        let held = run.next_event("held", SOON);
        assert_eq!(world.gantry(["release", held["app"].as_str().unwrap()]).wait(SOON).code(), 0);
        run.write(b"typed\n");
        run.close_stdin();
        let done = run.wait(SOON);
        assert!(done.code() == 0 && done.stdout.iter().any(|line| line.contains("typed")), "{done:?}");
        for (args, code, part) in [
            (&["mpir"][..], 64, "nothing to launch"),
            (&["mpir", "--background", "--", "-n", "2", "/bin/true"], 64, "background"),
            (&["mpir", "-n", "2", "/no/such/program"], 65, "/no/such/program"),
            (&["mpir", "--starter=0", "x"], 64, "gantry-mpir"),
            (&["mpir", "--starter=77", "x"], 73, "gantry-mpir"),
        ] {
            let done = world.gantry(args).wait(SOON);
            assert!(done.code() == code && done.stderr.join(" ").contains(part), "{done:?}");
        }
    });
}

#[test]
fn signals_to_the_starter_are_those_of_a_launch() {
    in_a_world(LIMIT, |world| {
        for (signals, code) in [(&[Signal::SIGTERM][..], 143), (&[Signal::SIGINT, Signal::SIGINT], 130)] {
            let mut run = world.gantry(["mpir", "--json", "-n", "2", "/bin/sleep", "1000"]);
            run.next_event("started", SOON);
            for (signal, count) in signals.iter().zip(1..) {
                run.signal(*signal);
                if count < signals.len() {
                    run.stderr_line("Ctrl-C once more", SOON);
                }
            }
            assert_eq!(run.wait(SOON).code(), code);
        }
        // A Ctrl-C at the terminal reaches both processes, and must count once.
        let mut terminal = world.terminal(["mpir", "-n", "2", "/bin/sleep", "1000"]);
        // Before that, the launch itself would be interrupted.
        terminal.wait_text("2 running", SOON);
        terminal.type_text("\x03");
        terminal.wait_text("Ctrl-C once more", SOON);
        assert_eq!(world.processes().iter().filter(|pid| is_sleep(**pid)).count(), 2);
        terminal.type_text("\x03");
        assert_eq!(terminal.wait(SOON).code(), Some(130));
    });
}

fn is_sleep(pid: i32) -> bool {
    proc::exe(pid).is_some_and(|exe| exe.ends_with("sleep"))
}

/// Reads the table of a running starter by gantry's own MPIR client, once the table is complete.
#[track_caller]
fn read_table(starter: i32) -> Table {
    let pid = Pid::new(starter).unwrap();
    let mut table = None;
    let is_there = becomes_true(SOON, || {
        table = read_running(pid, &Machine).ok();
        table.is_some()
    });
    assert!(is_there, "{:?}", read_running(pid, &Machine));
    table.unwrap()
}

fn pids_of(ranks: &Value) -> Vec<i64> {
    ranks["ranks"].as_array().unwrap().iter().map(|rank| rank["pid"].as_i64().unwrap()).collect()
}

fn pids_in(table: &Table) -> Vec<i64> {
    table.placement.iter().map(|place| place.pid.unwrap().get().into()).collect()
}

#[test]
fn gantrys_own_client_reads_the_table_of_launched_and_attached_starters() {
    in_a_world(LIMIT, |world| {
        let mut run = world.gantry(["mpir", "--json", "--", "-n", "4", "-N", "2", "/bin/sleep", "1000"]);
        let started = run.next_event("started", SOON);
        let table = read_table(run.pid());
        assert_eq!(pids_in(&table), pids_of(&started));
        // Attaching to running processes also gives a table.
        let ranks: Vec<String> = pids_of(&started).iter().map(i64::to_string).collect();
        let mut beside = world.gantry(["mpir", "--json", &ranks.join(",")]);
        beside.next_event("attached", SOON);
        assert_eq!(pids_in(&read_table(beside.pid())), pids_of(&started));
        beside.signal(Signal::SIGINT);
        assert_eq!(beside.wait(SOON).code(), 0);
        assert!(pids_of(&started).iter().all(|pid| proc::is_alive(i32::try_from(*pid).unwrap())));
        run.signal(Signal::SIGTERM);
        assert_eq!(run.wait(SOON).code(), 143);
    });
}

#[test]
fn gantrys_own_client_holds_by_it_as_by_any_launcher() {
    in_a_world(LIMIT, |world| {
        let starter = starter().display().to_string();
        for method in ["mpir", "mpir-stop"] {
            let launch =
                ["launch", "--hold", "--json", "--launcher", &starter, "--hold-method", method, "--"];
            let mut run = world.gantry([&launch[..], &["-n", "4", "/bin/sh", "-c", "exit 6"]].concat());
            let held = run.next_event("held", SOON);
            let pids = pids_of(&held);
            assert_eq!(pids.len(), 4, "{method}");
            for pid in pids {
                assert_eq!(proc::why_not_held(i32::try_from(pid).unwrap()), None, "{method}");
            }
            assert_eq!(world.gantry(["release", held["app"].as_str().unwrap()]).wait(SOON).code(), 0);
            assert_eq!(run.wait(SOON).code(), 6, "{method}");
        }
    });
}

/// Launchers on this machine start a program, which is held under gdb and released.
fn check_launcher(options: &[&'static str], launcher: &'static str, compiler: &str) -> Result<(), String> {
    tool("gdb")?;
    tool(launcher)?;
    let hello = programs::get_mpi("mpi_hello", compiler)?.display().to_string();
    let options = options.to_vec();
    in_a_world(LIMIT, move |world| {
        let by = ["--launcher", launcher, "--"];
        let args = [&by[..], &options, &["-n", "4", &hello]].concat();
        let mut gdb = Gdb::start(world, &starter(), &args);
        gdb.run_to_breakpoint();
        let table = gdb.table();
        assert_eq!(table.len(), 4);
        assert!(table.iter().all(|(_, program, _)| program == &hello), "{table:?}");
        assert_held(&table);
        // A launcher may kill a rank that has not disconnected from it. That end is reported as well.
        let said = gdb.ask(&["delete", "continue"]);
        assert!(said.contains("exited"), "{said}");
        assert_eq!(said.lines().filter(|line| line.contains("of 4")).count(), 4, "{said}");
        gdb.quit();
    });
    Ok(())
}

#[test]
fn ranks_of_mpich_are_held_for_a_debugger() {
    require!(check_launcher(&[], "mpiexec.hydra", "mpicc.mpich"));
}

#[test]
fn ranks_of_open_mpi_are_held_for_a_debugger() {
    let options = ["--allow-run-as-root", "--oversubscribe"];
    require!(check_launcher(&options, "mpirun.openmpi", "mpicc.openmpi"));
}

/// gdb on the login node holds ranks on two nodes and releases them.
fn check_on(cluster: &Cluster, args: &[&str]) {
    let starter = starter().display().to_string();
    let words = [&GDB[..], &["--args", &starter], args, &["/bin/sleep", "1.25"]].concat();
    let mut gdb = Gdb::new(cluster.run("gdb", words, &[]));
    gdb.run_to_breakpoint();
    let mut places: Vec<_> = gdb.table().into_iter().map(|(host, _, pid)| (host, pid)).collect();
    cluster.assert_held("/bin/sleep 1.25", 4);
    // Nodes of the testbed have their own pid numbers.
    places.sort_unstable();
    let hosts: Vec<&str> = places.iter().map(|(host, _)| host.as_str()).collect();
    assert_eq!(hosts, ["n001", "n001", "n002", "n002"]);
    let said = gdb.ask(&["continue"]);
    assert!(said.contains("exited normally"), "{said} {:?}", gdb.run.stderr());
    gdb.quit();
}

#[test]
fn ranks_of_a_slurm_job_are_held_for_a_debugger() {
    require!(tool("gdb"));
    require!(tool("srun"));
    on_cluster(Config::with_nodes(2), |cluster| check_on(cluster, &["-N2", "--ntasks-per-node=2"]));
}

#[test]
fn ranks_on_hosts_over_ssh_are_held_for_a_debugger() {
    require!(tool("gdb"));
    on_cluster(Config::with_nodes(2), |cluster| {
        check_on(cluster, &["--wlm", "ssh", "--cwd", "/", "--", "--hosts", "n001:2,n002:2", "-n", "4"]);
    });
}
