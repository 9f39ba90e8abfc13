//! The matrix of the README: every usual launcher holds its ranks and releases them. It does so on this machine, on
//! hosts that it reaches by ssh, and in jobs of Slurm and PBS. Covers MPI programs and plain ones, several programs,
//! programs in a file, and attaching to a launcher's running ranks.

use std::path::Path;
use std::time::Duration;

use gantry_tests::launchers::{
    HOSTS, INTEL_MPI, Installed, Launcher, MPICH_4, MPICH_5, OPEN_MPI_4, OPEN_MPI_5, OPEN_MPI_5_MPIEXEC,
    PRTERUN, SRUN_NONE, SRUN_PMI2, SRUN_PMIX, Spread,
};
use gantry_tests::pbs::{STARTS, Script, ask_there, on_pbs_together};
use gantry_tests::slurm::{Cluster, lines_of, on_cluster_together};
use gantry_tests::testbed::config::HOME;
use gantry_tests::testbed::pbs::installation;
use gantry_tests::testbed::{Config, program};
use gantry_tests::{Run, SOON, World, becomes_true, binaries, proc, require, within};
use nix::sys::signal::Signal;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(180);

/// Where a launcher starts its ranks.
#[derive(Clone, Copy)]
enum Place<'a> {
    ThisMachine(&'a World),
    Hosts(&'a Cluster),
    SlurmJob(&'a Cluster),
}

impl Place<'_> {
    fn world(&self) -> &World {
        match self {
            Self::ThisMachine(world) => world,
            Self::Hosts(cluster) | Self::SlurmJob(cluster) => &cluster.world,
        }
    }

    fn spread(self) -> Spread {
        match self {
            Self::ThisMachine(_) => Spread::OneMachine,
            Self::Hosts(_) => Spread::Hosts,
            Self::SlurmJob(_) => Spread::Job,
        }
    }

    /// Runs a gantry command at this place.
    fn gantry(self, by: &Installed, args: &[&str]) -> Run {
        match self {
            Self::ThisMachine(world) => {
                let mut command = world.gantry_command(args);
                command.envs(by.variables.iter().cloned());
                world.spawn(command)
            }
            Self::Hosts(cluster) => cluster.run(&binaries().gantry, args, &variables(by)),
            Self::SlurmJob(cluster) => {
                let gantry = binaries().gantry.display().to_string();
                let allocate = ["--quiet", "-N2", "-n2", &gantry];
                cluster.run("salloc", allocate.iter().chain(args), &variables(by))
            }
        }
    }

    /// The pid of a rank on this machine.
    #[track_caller]
    fn process(self, rank: &Value) -> i32 {
        let pid = i32::try_from(rank["pid"].as_i64().expect("a pid")).expect("a pid");
        let (Self::Hosts(cluster) | Self::SlurmJob(cluster)) = self else { return pid };
        let node = cluster.bed.host(rank["host"].as_str().expect("a host")).expect("a node");
        let found = node.user_processes().into_iter().find(|process| process.number == pid);
        found.unwrap_or_else(|| panic!("{rank} is not there")).pid
    }

    /// The pids of both ranks of an event.
    #[track_caller]
    fn both(self, event: &Value) -> [i32; 2] {
        let ranks = event["ranks"].as_array().expect("ranks");
        let [one, other] = ranks.as_slice() else { panic!("{event}") };
        assert_eq!((&one["rank"], &other["rank"]), (&0.into(), &1.into()), "{event}");
        if !matches!(self, Self::ThisMachine(_)) {
            assert_eq!([&one["host"], &other["host"]], HOSTS, "{event}");
        }
        [self.process(one), self.process(other)]
    }
}

fn variables(by: &Installed) -> Vec<(&str, &str)> {
    by.variables.iter().map(|(name, value)| (*name, value.to_str().expect("a path"))).collect()
}

/// Holds two ranks, checks them from outside and releases them. Returns their output, sorted. If `code` is given, the
/// exit code must be that.
#[track_caller]
fn hold(place: Place<'_>, by: &Installed, args: &[String], code: Option<i32>) -> Vec<String> {
    let mut launch = vec!["launch", "--hold", "--json", "--launcher", &by.path];
    match place {
        Place::ThisMachine(_) => launch.extend(["--wlm", "localhost"]),
        Place::Hosts(_) => launch.extend(["--wlm", "ssh", "--cwd", "/"]),
        Place::SlurmJob(_) => launch.extend(["--wlm", "slurm", "--cwd", "/"]),
    }
    launch.push("--");
    launch.extend(args.iter().map(String::as_str));
    let mut run = place.gantry(by, &launch);
    let held = run.next_event("held", 2 * SOON);
    for pid in place.both(&held) {
        assert_eq!(proc::why_not_held(pid), None, "{held}");
    }
    let app = held["app"].as_str().expect("an id");
    match place {
        Place::ThisMachine(world) => assert_eq!(world.gantry(["release", app]).wait(SOON).code(), 0),
        Place::Hosts(cluster) | Place::SlurmJob(cluster) => drop(cluster.ask(&["release", app])),
    }
    let done = run.wait(2 * SOON);
    assert!(code.is_none_or(|code| done.code() == code), "{done:?}");
    assert!(!done.events().iter().any(|event| event["event"] == "table_differs"), "{done:?}");
    // Open MPI 5 prints this warning if its ssh child starts before it has called setpgid.
    lines_of(&done).into_iter().filter(|line| !line.contains("Warning: setpgid(")).collect()
}

/// An MPI program, two plain programs, and two programs in a file.
#[track_caller]
fn hold_all(place: Place<'_>, by: &Installed, hello: &str) {
    let spread = place.spread();
    // Launchers report a program that exits without MPI_Finalize as a failure. The exit code means nothing then.
    let (hello, code): (&[&str], _) =
        if by.finalizes() { (&[hello, "finalize"], Some(0)) } else { (&[hello], None) };
    let said = hold(place, by, &by.two_of(hello, spread), code);
    let of_two = said.iter().filter(|line| line.contains(" of 2 on ")).count();
    assert_eq!(of_two, if by.joins_ranks() { 2 } else { 0 }, "{said:?}");
    if !by.is_srun() {
        let parts = by.one_each(&["/bin/echo", "one"], &["/bin/echo", "two"], spread);
        assert_eq!(hold(place, by, &parts, Some(0)), ["one", "two"]);
    }
    let file = place.world().work_dir().join("programs");
    let (text, args) = by.in_file("/bin/echo one", "/bin/echo two", file.to_str().expect("a path"), spread);
    std::fs::write(&file, text).expect("a file");
    assert_eq!(hold(place, by, &args, Some(0)), ["one", "two"]);
}

/// Attaches to a launcher's running ranks, which must continue unharmed.
#[track_caller]
fn attach(place: Place<'_>, by: &Installed, program_line: &[&str]) {
    let args = by.two_of(program_line, place.spread());
    let (mut launcher, target) = match place {
        Place::ThisMachine(world) => {
            let mut command = world.command(&by.path);
            command.args(args).envs(by.variables.iter().cloned());
            let launcher = world.spawn(command);
            let pid = launcher.pid().to_string();
            (launcher, pid)
        }
        Place::Hosts(cluster) | Place::SlurmJob(cluster) => {
            let job = ["salloc", "--quiet", "-N2", "-n2"];
            let before = if matches!(place, Place::SlurmJob(_)) { &job[..] } else { &["env"] };
            let line = ["/bin/sh", "-c", "cd /; echo $$; exec \"$@\"", "sh", &by.path];
            let words = before[1..].iter().chain(&line).copied().chain(args.iter().map(String::as_str));
            let mut launcher = cluster.run(before[0], words, &variables(by));
            let pid = launcher.next_line(SOON);
            let wlm = if by.is_srun() { "slurm" } else { "ssh" };
            (launcher, format!("{wlm}:{pid}"))
        }
    };
    // Two ranks that write at the same time may share a line.
    let mut said = String::new();
    while said.matches("hanging").count() < 2 {
        said += &launcher.next_line(2 * SOON);
    }
    let attach = ["attach", "--json", &target];
    let mut run = match place {
        Place::ThisMachine(_) => place.gantry(by, &attach),
        Place::Hosts(cluster) | Place::SlurmJob(cluster) => cluster.gantry(attach),
    };
    let ranks = place.both(&run.next_event("attached", 2 * SOON));
    proc::send(tool_of(place, &run), Signal::SIGINT);
    run.exited(SOON);
    for rank in ranks {
        assert!(proc::is_alive(rank) && proc::tracer(rank).is_none(), "rank {rank} is not as it was");
    }
    if program_line.contains(&TILL_TOLD) {
        ranks.into_iter().for_each(|rank| proc::send(rank, Signal::SIGUSR1));
    } else {
        proc::send(process_of(place, &target, &launcher), Signal::SIGTERM);
    }
    launcher.exited(2 * SOON);
}

/// The launcher's own pid on this machine.
#[track_caller]
fn process_of(place: Place<'_>, target: &str, launcher: &Run) -> i32 {
    let (Place::Hosts(cluster) | Place::SlurmJob(cluster)) = place else { return launcher.pid() };
    let number = target.split(':').nth(1).and_then(|pid| pid.parse::<i32>().ok());
    let all = cluster.bed.login().user_processes();
    all.into_iter().find(|process| Some(process.number) == number).expect("the launcher").pid
}

/// The pid of the started tool, behind the testbed's own processes.
fn tool_of(place: Place<'_>, run: &Run) -> i32 {
    match place {
        Place::ThisMachine(_) => run.pid(),
        Place::Hosts(_) | Place::SlurmJob(_) => program(run.pid()).expect("a process"),
    }
}

/// Makes the hanging MPI program end properly on a signal.
const TILL_TOLD: &str = "till-told";

/// The MPI program that hangs until a signal.
fn till_told<'a>(by: &Installed, hang: &'a str) -> Vec<&'a str> {
    if by.finalizes() { vec![hang, TILL_TOLD] } else { vec![hang, TILL_TOLD, "exit"] }
}

/// The MPI program that hangs. When it ends, its library must leave nothing behind. A rank that is its own MPI world
/// has no other rank to wait for.
fn hanging<'a>(by: &Installed, hang: &'a str) -> Vec<&'a str> {
    if by.cleans_up() && by.joins_ranks() { vec![hang] } else { till_told(by, hang) }
}

const PLAIN: [&str; 3] = ["/bin/sh", "-c", "echo hanging; exec sleep 1000"];

fn on_this_machine(by: &Installed, [hello, hang]: &[String; 2]) {
    let (by, hello, hang) = (by.clone(), hello.clone(), hang.clone());
    within(LIMIT, move || {
        let world = World::new();
        let place = Place::ThisMachine(&world);
        hold_all(place, &by, &hello);
        attach(place, &by, &hanging(&by, &hang));
        attach(place, &by, &PLAIN);
        world.finish();
    });
}

fn over_ssh(by: &Installed, [hello, _]: &[String; 2]) {
    let (by, hello) = (by.clone(), hello.clone());
    on_cluster_together(Config::with_nodes(2), move |cluster| hold_all(Place::Hosts(cluster), &by, &hello));
}

fn attached_over_ssh(by: &Installed, [_, hang]: &[String; 2]) {
    let (by, hang) = (by.clone(), hang.clone());
    on_cluster_together(Config::with_nodes(2), move |cluster| {
        attach(Place::Hosts(cluster), &by, &hanging(&by, &hang));
    });
}

fn in_a_slurm_job(by: &Installed, [hello, hang]: &[String; 2]) {
    let (by, hello, hang) = (by.clone(), hello.clone(), hang.clone());
    on_cluster_together(Config::with_nodes(2), move |cluster| {
        let place = Place::SlurmJob(cluster);
        hold_all(place, &by, &hello);
        attach(place, &by, &hanging(&by, &hang));
    });
}

/// The same launches as at the other places, one after the other in one job, because a job takes a while to start.
fn within_a_pbs_job(by: &Installed, [hello, hang]: &[String; 2]) {
    let (by, hello, hang) = (by.clone(), hello.clone(), hang.clone());
    on_pbs_together(move |cluster| {
        let file = format!("{HOME}/programs-{}", by.path.replace('/', "-"));
        let (text, args) = by.in_file("/bin/echo one", "/bin/echo two", &file, Spread::PbsJob);
        let file = cluster.bed.login().path(&file).expect("a home");
        std::fs::write(&file, text).expect("a file");
        let parts = by.one_each(&["/bin/echo", "one"], &["/bin/echo", "two"], Spread::PbsJob);
        // A library that sometimes hangs in MPI_Finalize is not asked to finalize. Its program's exit code means
        // nothing then.
        let (hello, code): (&[&str], _) =
            if by.finalizes() { (&[&hello, "finalize"], BAD) } else { (&[&hello], "true") };
        let launches = [(by.two_of(hello, Spread::PbsJob), code), (parts, BAD), (args, BAD)];
        // Intel's launcher starts its proxies by pbsdsh, which it searches in PATH.
        let commands = installation().expect("PBS").join("bin").display().to_string();
        let exports = variables(&by).into_iter().map(|(name, value)| format!("export {name}={value}; "));
        let exports = exports.chain([format!("export PATH={commands}:$PATH; ")]);
        let launches = launches.map(|(args, bad)| {
            let args = args.join(" ");
            format!("gantry launch --json --hold --launcher {} -- {args} || {bad}", by.path)
        });
        let runs = by.two_of(&till_told(&by, &hang), Spread::PbsJob).join(" ");
        let script = exports.collect::<String>() + &launches.join("; ");
        let script = format!("{script}; {} {runs}", by.path);
        let places = HOSTS.map(|host| format!("1:ncpus=1:mpiprocs=1:host={host}")).join("+");
        let places = format!("select={places}");
        let script = Script::submit_on(&cluster.bed, &places, &script);
        for number in 0..launches.len() {
            let nth = || script.events().into_iter().filter(|event| event["event"] == "held").nth(number);
            let _told = becomes_true(STARTS, || nth().is_some() || script.code().is_some());
            let held = nth().unwrap_or_else(|| panic!("launch {number}:\n{}", script.text()));
            for pid in Place::Hosts(cluster).both(&held) {
                assert_eq!(proc::why_not_held(pid), None, "{held}");
            }
            ask_there(&cluster.bed, ["release", held["app"].as_str().expect("an id")]);
        }
        attach_to_job(cluster, &script);
        let (_, text) = script.wait();
        assert!(!text.contains("ends badly"), "{text}");
        let said: String = script.events().iter().filter_map(|event| event["text"].as_str()).collect();
        let count = |part: &str| said.matches(part).count();
        assert_eq!((count(" of 2 on "), count("one\n"), count("two\n")), (2, 2, 2), "{text}");
        std::fs::remove_file(&file).expect("the file");
    });
}

/// A job script prints this if a launch fails.
const BAD: &str = "echo ends badly";

/// Attaches from the login node to the ranks of a job when they hang, and ends them.
#[track_caller]
fn attach_to_job(cluster: &Cluster, script: &Script) {
    let hangs = becomes_true(STARTS, || script.text().matches("hanging").count() == 2);
    assert!(hangs, "{}", script.text());
    let mut run = cluster.gantry(["attach", "--json", "--wlm", "pbs", &script.id]);
    let place = Place::Hosts(cluster);
    let ranks = place.both(&run.next_event("attached", 2 * SOON));
    proc::send(tool_of(place, &run), Signal::SIGINT);
    run.exited(SOON);
    for rank in ranks {
        assert!(proc::is_alive(rank) && proc::tracer(rank).is_none(), "rank {rank} is not as it was");
        proc::send(rank, Signal::SIGUSR1);
    }
}

/// Makes a test of each cell, and a list of them for the table.
macro_rules! cells {
    ($($check:ident { $($name:ident: $launcher:ident),+ $(,)? })+) => {
        const CELLS: &[(&str, &str)] = &[$($((stringify!($check), $launcher.name)),+),+];
        // Tests run in the order of their names. The tests of one place run together and share a testbed.
        $(mod $check {
            use super::*;

            $(
                #[test]
                fn $name() {
                    let by = require!(Launcher::install(&$launcher));
                    let hello = require!(by.program("mpi_hello"));
                    let hang = require!(by.program("mpi_hang"));
                    super::$check(&by, &[hello, hang]);
                }
            )+
        })+
    };
}

cells! {
    on_this_machine {
        mpich_4_holds_and_is_attached_to: MPICH_4,
        mpich_5_holds_and_is_attached_to: MPICH_5,
        intel_mpi_holds_and_is_attached_to: INTEL_MPI,
        open_mpi_4_holds_and_is_attached_to: OPEN_MPI_4,
        open_mpi_5_holds_and_is_attached_to: OPEN_MPI_5,
        mpiexec_of_open_mpi_5_holds_and_is_attached_to: OPEN_MPI_5_MPIEXEC,
        prterun_holds_and_is_attached_to: PRTERUN,
    }
    over_ssh {
        mpich_4_holds: MPICH_4,
        mpich_5_holds: MPICH_5,
        intel_mpi_holds: INTEL_MPI,
        open_mpi_4_holds: OPEN_MPI_4,
        open_mpi_5_holds: OPEN_MPI_5,
        prterun_holds: PRTERUN,
    }
    attached_over_ssh {
        mpich_4_on_two_hosts_is_attached_to: MPICH_4,
        mpich_5_on_two_hosts_is_attached_to: MPICH_5,
        intel_mpi_on_two_hosts_is_attached_to: INTEL_MPI,
        open_mpi_4_on_two_hosts_is_attached_to: OPEN_MPI_4,
        open_mpi_5_on_two_hosts_is_attached_to: OPEN_MPI_5,
        prterun_on_two_hosts_is_attached_to: PRTERUN,
    }
    in_a_slurm_job {
        mpich_4_holds_and_is_attached_to: MPICH_4,
        mpich_5_holds_and_is_attached_to: MPICH_5,
        intel_mpi_holds_and_is_attached_to: INTEL_MPI,
        open_mpi_4_holds_and_is_attached_to: OPEN_MPI_4,
        open_mpi_5_holds_and_is_attached_to: OPEN_MPI_5,
        prterun_holds_and_is_attached_to: PRTERUN,
        srun_with_pmi2_holds_and_is_attached_to: SRUN_PMI2,
        srun_with_pmix_holds_and_is_attached_to: SRUN_PMIX,
        srun_without_mpi_holds_and_is_attached_to: SRUN_NONE,
    }
    within_a_pbs_job {
        mpich_4_holds_and_is_attached_to: MPICH_4,
        mpich_5_holds_and_is_attached_to: MPICH_5,
        intel_mpi_holds_and_is_attached_to: INTEL_MPI,
        open_mpi_4_holds_and_is_attached_to: OPEN_MPI_4,
        open_mpi_5_holds_and_is_attached_to: OPEN_MPI_5,
        prterun_holds_and_is_attached_to: PRTERUN,
    }
}

#[test]
fn a_program_under_prterun_does_not_see_the_variable_for_its_number_of_ranks() {
    let by = require!(PRTERUN.install());
    within(LIMIT, move || {
        let world = World::new();
        let place = Place::ThisMachine(&world);
        let said = hold(place, &by, &by.two_of(&["/usr/bin/env"], Spread::OneMachine), Some(0));
        assert_eq!(said.iter().filter(|line| line.starts_with("PMIX_RANK=")).count(), 2, "{said:?}");
        assert!(!said.iter().any(|line| line.starts_with("OMPI_")), "{said:?}");
        world.finish();
    });
}

#[test]
fn a_pmix_servers_ranks_agree_while_they_are_held() {
    let by = require!(OPEN_MPI_5.install());
    within(LIMIT, move || {
        let world = World::new();
        let args = by.two_of(&["/bin/true"], Spread::OneMachine);
        let launch =
            ["launch", "--hold", "-vv", "--json", "--wlm", "localhost", "--launcher", &by.path, "--"];
        let mut run = world.gantry(launch.into_iter().chain(args.iter().map(String::as_str)));
        let held = run.next_event("held", 2 * SOON);
        run.stderr_line("the launcher's own proctable agrees", 2 * SOON);
        assert_eq!(world.gantry(["release", held["app"].as_str().expect("an id")]).wait(SOON).code(), 0);
        assert_eq!(run.wait(2 * SOON).code(), 0);
        world.finish();
    });
}

#[test]
fn the_table_in_the_readme_agrees_with_the_tests() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(readme).expect("README.md");
    let mut names: Vec<&str> = Vec::new();
    CELLS.iter().for_each(|(_, name)| {
        if !names.contains(name) {
            names.push(name)
        }
    });
    for name in names {
        let cell = |check: &str| if CELLS.contains(&(check, name)) { "yes" } else { "no" };
        let checks =
            ["on_this_machine", "over_ssh", "attached_over_ssh", "in_a_slurm_job", "within_a_pbs_job"];
        let row = checks.map(cell).join(" | ");
        let row = format!("| {name} | {row} |");
        assert!(readme.contains(&row), "README.md lacks the row: {row}");
    }
}
