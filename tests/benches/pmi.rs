//! How fast MPI programs begin under gantry: beside MPICH's launcher, Hydra, in one run.
//!
//! ```sh
//! cargo bench -p gantry-tests --bench pmi            # all
//! cargo bench -p gantry-tests --bench pmi -- init    # init, fence or ssh alone
//! cargo bench -p gantry-tests --bench pmi -- 512     # MPI_Init of 512 ranks, which takes minutes on two cores
//! ```
//!
//! Both columns of a row are measured in turns. `ssh` makes a testbed of 16 hosts, which needs root. Program, library
//! and launcher are MPICH 5.0 of its wheel.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::disallowed_methods, reason = "a bench starts the programs that it compares itself")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gantry_tests::launchers::{Installed, MPICH_5};
use gantry_tests::measured::{Measurement, machine};
use gantry_tests::testbed::{Config, Testbed, usable};
use gantry_tests::{binaries, programs};

/// The first argument of the part of this bench that runs on the testbed's login node. The paths of gantry, Hydra and
/// the program follow.
const INSIDE: &str = "--inside";

/// Hosts of the testbed, and the ranks on each.
const HOSTS: (u16, u16) = (16, 4);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [INSIDE, gantry, hydra, program] = args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return on_hosts([gantry, hydra, program]);
    }
    let mpich = match MPICH_5.install() {
        Ok(mpich) => mpich,
        Err(why) => return println!("not measured: {why}"),
    };
    let program = match mpich.program("mpi_world") {
        Ok(program) => program,
        Err(why) => return println!("not measured: {why}"),
    };
    let only = args.into_iter().find(|arg| !arg.starts_with('-')).unwrap_or_default();
    println!("command: cargo bench -p gantry-tests --bench pmi\nmachine: {}\n", machine());
    println!("| what | gantry | Hydra | ratio |\n| --- | ---: | ---: | ---: |");
    if "init".contains(&only) {
        init(&mpich, &program, &[(1, 21), (64, 7)]);
    }
    if only == "512" {
        init(&mpich, &program, &[(512, 1)]);
    }
    if "fence".contains(&only) {
        fence(&mpich);
    }
    if "ssh".contains(&only) {
        ssh([&binaries().gantry.display().to_string(), &mpich.path, &program]);
    }
}

/// A program that does MPI_Init and MPI_Finalize, from the command to its end.
fn init(mpich: &Installed, program: &str, sizes: &[(u32, u32)]) {
    for (ranks, rounds) in sizes {
        let ranks = ranks.to_string();
        let mut row = Row::default();
        for _ in 0..*rounds {
            row.gantry.push(time(gantry().args(["launch", "--", "-n", &ranks, program, "finalize"])));
            row.hydra.push(time(Command::new(&mpich.path).args(["-n", &ranks, program, "finalize"])));
        }
        row.print(&format!("init {ranks}"), &format!("MPI_Init and MPI_Finalize with MPICH, ranks: {ranks}"));
    }
}

/// A fence in which each rank has put 200 bytes, as rank 0 sees it.
fn fence(mpich: &Installed) {
    let program = programs::get("pmi_fence").display().to_string();
    for ranks in ["64", "512"] {
        let mut row = Row::default();
        for _ in 0..5 {
            row.gantry.push(fences(gantry().args(["launch", "--", "-n", ranks, &program, "9"])));
            row.hydra.push(fences(Command::new(&mpich.path).args(["-n", ranks, &program, "9"])));
        }
        row.print(
            &format!("fence {ranks}"),
            &format!("PMI fence of {ranks} ranks, with 200 bytes of each, 9 in a program"),
        );
    }
}

/// The median of the times that the program of fences prints.
fn fences(command: &mut Command) -> Duration {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().expect("started");
    assert!(output.status.success(), "{command:?}: {output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let micros = text.split_whitespace().map(|word| word.parse().expect("microseconds"));
    median(micros.map(Duration::from_micros).collect())
}

fn ssh(paths: [&str; 3]) {
    let config = Config::with_nodes(HOSTS.0);
    if let Err(why) = usable(&config) {
        return println!("not measured: {why}");
    }
    let bed = Testbed::up(&config, &binaries().dir.join("testbed")).expect("a testbed");
    let mut inside = bed.login().command_in("/", std::env::current_exe().expect("this program"));
    let inside = inside.as_mut().expect("the login node").arg(INSIDE).args(paths);
    time(inside.stdout(Stdio::inherit()));
}

/// The same on hosts that are reached by ssh. Runs on the login node.
fn on_hosts([gantry, hydra, program]: [&str; 3]) {
    let (hosts, each) = HOSTS;
    let ranks = (hosts * each).to_string();
    let names: Vec<String> = (1..=hosts).map(|host| format!("n{host:03}")).collect();
    let (ours, theirs) = (format!("n[001-{hosts:03}]:{each}"), names.join(","));
    let mut row = Row::default();
    for _ in 0..5 {
        let ours = ["launch", "--", "--hosts", &ours, program, "finalize"];
        row.gantry.push(time(Command::new(gantry).args(ours)));
        let mut command = Command::new(hydra);
        command.args(["-launcher", "ssh", "-hosts", &theirs, "-ppn", &each.to_string(), "-n", &ranks]);
        row.hydra.push(time(command.args([program, "finalize"])));
    }
    row.print(
        &format!("ssh {ranks}"),
        &format!("MPI_Init and MPI_Finalize of {ranks} ranks of MPICH on {hosts} hosts, over ssh"),
    );
}

fn gantry() -> Command {
    let gantry: &Path = &binaries().gantry;
    Command::new(gantry)
}

fn time(command: &mut Command) -> Duration {
    let start = Instant::now();
    let status = command.stdin(Stdio::null()).status().expect("started");
    assert!(status.success(), "{command:?}: {status}");
    start.elapsed()
}

#[derive(Default)]
struct Row {
    gantry: Vec<Duration>,
    hydra: Vec<Duration>,
}

impl Row {
    fn print(self, row: &str, what: &str) {
        let [gantry, plain] = [self.gantry, self.hydra].map(|times| median(times).as_secs_f64() * 1e3);
        println!("| {what} | {gantry:.1} ms | {plain:.1} ms | {:.2} |", gantry / plain);
        let way = "Hydra, MPICH's `mpiexec`";
        println!("{}", Measurement { bench: "pmi", row, what, gantry, plain, unit: "ms", way });
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
