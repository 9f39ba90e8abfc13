//! `gantry stack` on ranks that are known to be in different functions: running, held, stopped, and of a program that hangs. Nothing but gantry reads them.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]

use std::path::Path;
use std::time::{Duration, Instant};

use gantry_tests::programs::{self, Link};
use gantry_tests::{Finished, Run, World, eventually, in_a_world, proc, require, tool};
use nix::sys::signal::Signal;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(240);

/// The timeout for a command's expected result: ranks may not be there yet.
const PATIENCE: Duration = Duration::from_secs(30);

fn gantry(world: &World, args: &[&str]) -> Finished {
    world.gantry(args).wait(SOON)
}

/// Launches in the background, and gives the app's id.
#[track_caller]
fn launched(world: &World, options: &[&str], program: &Path, arguments: &[&str]) -> String {
    // The launcher's options come after the dashes.
    let at = options.iter().position(|word| *word == "-n").expect("a number of ranks");
    let (own, launcher) = options.split_at(at);
    let program = [program.to_str().unwrap()];
    let words = [&["launch", "--background"], own, &["--"], launcher, &program, arguments].concat();
    let done = gantry(world, &words);
    assert_eq!((done.code(), done.stdout.len()), (0, 1), "{done:?}");
    done.stdout[0].clone()
}

fn ranks_of(world: &World, app: &str) -> Vec<i32> {
    let done = gantry(world, &["ps", "--json"]);
    let apps: Vec<Value> = serde_json::from_str(&done.stdout[0]).unwrap();
    let app = apps.iter().find(|it| it["app"] == app).expect("the app");
    let ranks = app["ranks"].as_array().unwrap().iter();
    ranks.map(|rank| i32::try_from(rank["pid"].as_i64().unwrap()).unwrap()).collect()
}

/// The lines of `gantry stack`, once they are as they should be.
#[track_caller]
fn stack_until(world: &World, args: &[&str], is_right: impl Fn(&[String]) -> bool) -> Vec<String> {
    let until = Instant::now() + PATIENCE;
    loop {
        let done = gantry(world, &[&["stack"], args].concat());
        assert_eq!(done.code(), 0, "{done:?}");
        if is_right(&done.stdout) {
            return done.stdout;
        }
        assert!(Instant::now() < until, "{}", done.stdout.join("\n"));
    }
}

fn has(lines: &[String], parts: &[&str]) -> bool {
    lines.iter().any(|line| parts.iter().all(|part| line.contains(part)))
}

#[track_caller]
fn kill(world: &World, app: &str) {
    assert_eq!(gantry(world, &["kill", "--yes", app]).code(), 0);
}

#[test]
fn an_app_of_64_ranks_on_four_nodes_is_two_classes_with_their_lines() {
    in_a_world(LIMIT, |world| {
        let program = programs::get("two_paths");
        let app = launched(world, &["-n", "64", "-N", "4"], &program, &["200"]);
        let tree = stack_until(world, &[&app], |lines| has(lines, &["pause", "[0-62:2]"]));
        assert_eq!(tree[0], "64 ranks in 2 classes", "{tree:?}");
        assert!(
            has(&tree, &["main (two_paths.c:", "even_path (two_paths.c:", "work (two_paths.c:", "[0-62:2]"]),
            "{tree:?}"
        );
        assert!(
            has(&tree, &["odd_path (two_paths.c:", "wait_here (two_paths.c:", "pause", "[1-63:2]"]),
            "{tree:?}"
        );
        assert!(ranks_of(world, &app).iter().all(|pid| proc::tracer(*pid).is_none()));
        kill(world, &app);
    });
}

#[test]
fn several_who_look_at_once_all_see_every_rank() {
    in_a_world(LIMIT, |world| {
        let app = launched(world, &["--hold", "-n", "64"], &programs::get("two_paths"), &["200"]);
        for _ in 0..8 {
            let mut looks: Vec<_> =
                (0..4).map(|_| world.gantry(["stack", "--samples", "20", "--every", "0.01", &app])).collect();
            for look in &mut looks {
                let done = look.wait(SOON);
                let heading = "64 ranks in 1 class, 20 samples";
                assert_eq!((done.code(), done.stdout[0].as_str()), (0, heading), "{done:?}");
            }
        }
        assert!(ranks_of(world, &app).iter().all(|pid| proc::tracer(*pid).is_none()));
        kill(world, &app);
    });
}

#[test]
fn processes_are_named_by_their_numbers_and_programs_get_the_classes() {
    in_a_world(LIMIT, |world| {
        let program = programs::get("two_paths");
        let app = launched(world, &["-n", "2"], &program, &["200"]);
        let ranks: Vec<String> = ranks_of(world, &app).iter().map(i32::to_string).collect();
        stack_until(world, &[&app], |lines| lines.iter().filter(|line| line.contains("pause")).count() == 2);
        let done = gantry(world, &["stack", "--json", "--full", &ranks.join(",")]);
        let report: Value = serde_json::from_str(&done.stdout[0]).unwrap();
        assert_eq!(report["ranks"], "0-1");
        let odd = report["classes"].as_array().unwrap().iter().find(|it| it["ranks"] == "1").unwrap();
        let frames = odd["frames"].as_array().unwrap();
        let frame =
            |name: &str| frames.iter().find(|it| it["function"] == name).unwrap_or_else(|| panic!("{odd}"));
        assert!(frame("odd_path")["lines"][0].as_u64().is_some_and(|line| (53..60).contains(&line)), "{odd}");
        assert!(frame("main")["file"].as_str().unwrap().ends_with("two_paths.c"), "{odd}");
        // The whole path begins where the system does.
        assert!(frames[0]["function"].as_str().unwrap().contains("_start"), "{odd}");
        assert_eq!(gantry(world, &["stack", "--ranks", "1", &app]).stdout[0], "1 rank in 1 class");
        let file = |name: &str| world.work_dir().join(name).to_str().unwrap().to_owned();
        let names = ["page.html", "tree.svg", "tree.dot", "folded.txt"].map(file);
        let options = ["--html", &names[0], "--svg", &names[1], "--dot", &names[2], "--flame", &names[3]];
        assert_eq!(gantry(world, &[&["stack", &app], options.as_slice()].concat()).code(), 0);
        for name in &names {
            let text = std::fs::read_to_string(name).unwrap();
            assert!(text.contains("odd_path") && text.contains("even_path"), "{name}: {text}");
        }
        let folded = std::fs::read_to_string(&names[3]).unwrap();
        assert!(folded.lines().all(|line| line.starts_with("main ") && line.ends_with(" 1")), "{folded}");
        let done = gantry(world, &["stack", &app, "--svg", "/nosuchfolder/tree.svg"]);
        assert!(
            done.code() == 65 && done.stderr[0].contains("cannot write /nosuchfolder/tree.svg"),
            "{done:?}"
        );
        kill(world, &app);
    });
}

#[test]
fn threads_are_shown_by_name_and_the_odd_one_is_told() {
    in_a_world(LIMIT, |world| {
        let program = programs::get("named_threads");
        let app = launched(world, &["-n", "3"], &program, &["200"]);
        let tree = stack_until(world, &["--threads", &app], |lines| {
            has(lines, &["(thread reader)", "[0-2]"])
                && has(lines, &["take_the_lock", "pthread_mutex_lock", "[1]"])
                && has(lines, &["pause", "[0,2]"])
        });
        assert_eq!(tree[0], "3 ranks in 4 classes", "{tree:?}");
        assert!(
            has(&tree, &["main (named_threads.c:", "lead (named_threads.c:", "sleep", "[0-2]"]),
            "{tree:?}"
        );
        assert!(
            has(&tree, &["(thread reader)", "read_parts (named_threads.c:", "read", "[0-2]"]),
            "{tree:?}"
        );
        assert!(has(&tree, &["(thread writer)", "[0-2]"]), "{tree:?}");
        let done = gantry(world, &["stack", "--threads", "--json", &app]);
        let report: Value = serde_json::from_str(&done.stdout[0]).unwrap();
        assert_eq!((&report["threads"], &report["ranks"]), (&true.into(), &"0-2".into()));
        let classes = report["classes"].as_array().unwrap();
        let places: Vec<String> = classes
            .iter()
            .map(|class| {
                let frames = class["frames"].as_array().unwrap().iter();
                let names: Vec<&str> = frames.map(|it| it["function"].as_str().unwrap()).collect();
                let state = class["states"][0].as_str().unwrap_or("first");
                format!("{state}: {} {}", names.join(">"), class["ranks"].as_str().unwrap())
            })
            .collect();
        for expected in [
            "first: main>lead>sleep 0-2",
            "thread reader: read_parts>read 0-2",
            "thread writer: write_parts>take_the_lock>pthread_mutex_lock 1",
            "thread writer: write_parts>pause 0,2",
        ] {
            assert!(places.iter().any(|place| place == expected), "{places:?}");
        }
        // Only the first threads.
        assert_eq!(gantry(world, &["stack", &app]).stdout[0], "3 ranks in 1 class");
        let why = gantry(world, &["why", "--threads", &app]);
        assert!(has(&why.stdout[..1], &["all 3 ranks wait in sleep called at named_threads.c:"]), "{why:?}");
        let odd = [
            "thread `writer` of rank 1 waits in pthread_mutex_lock called at named_threads.c:",
            " while 2 others wait in pause called at named_threads.c:",
        ];
        assert!(why.stdout.len() == 2 && has(&why.stdout, &odd), "{why:?}");
        assert_eq!(gantry(world, &["why", &app]).stdout.len(), 1);
        kill(world, &app);
    });
}

#[test]
fn static_and_stripped_programs_without_frame_pointers_are_read() {
    in_a_world(LIMIT, |world| {
        for link in [Link::Static, Link::NoPie] {
            let program = require!(programs::get_as("two_paths", link));
            let app = launched(world, &["-n", "2"], &program, &["200"]);
            let lines = |lines: &[String]| {
                has(lines, &["even_path > ", "work"]) || has(lines, &["even_path", "wait_here", "pause"])
            };
            let tree = stack_until(world, &[&app], |tree| lines(tree) && has(tree, &["odd_path"]));
            assert!(has(&tree, &["main (two_paths.c:"]), "{link:?}: {tree:?}");
            kill(world, &app);
        }
        let flags = ["-fPIE", "-pie", "-fomit-frame-pointer", "-s"];
        let program = require!(programs::get_with("two_paths", "bare_paths", &flags));
        let app = launched(world, &["-n", "2"], &program, &["200"]);
        // Without names there are places in the file: four functions of one rank, three of the other.
        let places = |line: &String| line.matches("bare_paths+0x").count();
        let tree = stack_until(world, &[&app], |tree| has(tree, &["pause"]) && tree.len() >= 3);
        let whole: usize = tree.iter().map(places).sum();
        assert!(whole >= 5, "{tree:?}");
        kill(world, &app);
    });
}

/// The loader maps no unwind table for these functions, and they have no frame pointers. Return addresses on the stack
/// lead to the callers.
#[test]
fn functions_without_an_unwind_table_in_memory_are_read() {
    in_a_world(LIMIT, |world| {
        let only_for_debuggers = ["-fPIE", "-pie", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
        let without_index = ["-fno-pie", "-static", "-Wl,--no-eh-frame-hdr"];
        for (name, flags) in [("debug_paths", &only_for_debuggers[..]), ("plain_paths", &without_index)] {
            let flags = [flags, &["-fomit-frame-pointer"]].concat();
            let program = require!(programs::get_with("two_paths", name, &flags));
            let app = launched(world, &["-n", "2"], &program, &["200"]);
            // The names up to the library's function: what the compiler has put in between is known.
            let whole = |lines: &[String]| {
                has(lines, &["even_path > work > wait_here"])
                    || has(lines, &["even_path", "work", "wait_here"])
            };
            let tree = stack_until(world, &[&app], |tree| has(tree, &["odd_path"]) && whole(tree));
            assert!(has(&tree, &["main (two_paths.c:"]), "{name}: {tree:?}");
            kill(world, &app);
        }
    });
}

/// Their variables are too large for a search for return addresses, and they have no frame pointers. So only the
/// debugger's table leads to their callers. The file's other table, with its index, has the functions of the system.
#[test]
fn functions_that_only_the_table_for_debuggers_has_are_read() {
    in_a_world(LIMIT, |world| {
        let flags = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fomit-frame-pointer"];
        let flags = [&["-fPIE", "-pie", "-DROOM=65536"], flags.as_slice()].concat();
        let program = programs::get_with("two_paths", "wide_paths", &flags).unwrap();
        let file = std::fs::read(&program).unwrap();
        let names_section = |name: &[u8]| file.windows(name.len()).any(|it| it == name);
        assert!(names_section(b".eh_frame_hdr") && names_section(b".debug_frame"));
        let app = launched(world, &["-n", "2"], &program, &["200"]);
        let tree = stack_until(world, &[&app], |tree| has(tree, &["odd_path"]) && has(tree, &["even_path"]));
        let even = ["main (two_paths.c:", "even_path (two_paths.c:", "work (two_paths.c:", "pause", "[0]"];
        let odd = ["main (two_paths.c:", "odd_path (two_paths.c:", "wait_here (two_paths.c:", "pause", "[1]"];
        assert!(has(&tree, &even) && has(&tree, &odd), "{tree:?}");
        kill(world, &app);
    });
}

#[test]
fn functions_of_the_kernels_own_library_have_their_names_and_callers() {
    in_a_world(LIMIT, |world| {
        let app = launched(world, &["-n", "1"], &programs::get("clock"), &[]);
        let args = ["--samples", "100", "--every", "0.001", &app];
        let tree = stack_until(world, &args, |tree| has(tree, &["clock_gettime ([vdso])"]));
        assert!(has(&tree, &["main (clock.c:"]) && has(&tree, &["ask_the_time (clock.c:"]), "{tree:?}");
        kill(world, &app);
    });
}

#[test]
fn held_ranks_stay_held_and_stopped_ones_stopped() {
    in_a_world(LIMIT, |world| {
        let program = programs::get("two_paths");
        let app = launched(world, &["--hold", "-n", "3"], &program, &["200"]);
        let held = ranks_of(world, &app);
        let tree = stack_until(world, &[&app], |lines| has(lines, &["(held)", "[0-2]"]));
        assert_eq!(tree[0], "3 ranks in 1 class", "{tree:?}");
        for pid in &held {
            assert_eq!(proc::why_not_held(*pid), None);
        }
        assert_eq!(gantry(world, &["release", &app]).code(), 0);
        stack_until(world, &[&app], |lines| lines.iter().filter(|line| line.contains("pause")).count() == 2);
        proc::send(held[1], Signal::SIGSTOP);
        eventually(SOON, "it is stopped", || proc::state(held[1]) == Some('T'));
        let tree =
            stack_until(world, &[&app], |lines| has(lines, &["(stopped by a signal)", "odd_path", "[1]"]));
        assert!(has(&tree, &["even_path", "[0,2]"]), "{tree:?}");
        let why = gantry(world, &["why", "--json", &app]);
        let why: Value = serde_json::from_str(&why.stdout[0]).unwrap();
        let odd = why["groups"].as_array().unwrap().iter().find(|it| it["ranks"] == "1").unwrap();
        assert_eq!((&odd["states"][0], &odd["waits_in"]), (&"stopped by a signal".into(), &"pause".into()));
        assert_eq!(why["stable"], true, "{why}");
        assert_eq!((proc::state(held[1]), proc::tracer(held[1])), (Some('T'), None));
        proc::send(held[1], Signal::SIGCONT);
        stack_until(world, &[&app], |lines| !has(lines, &["stopped"]));
        kill(world, &app);
    });
}

#[test]
fn a_hanging_mpi_program_shows_waiting_ranks_and_then_ends_as_it_should() {
    let program = require!(programs::get_mpi("mpi_hang", "mpicc.mpich"));
    let mpiexec = require!(tool("mpiexec.mpich").or_else(|_| tool("mpiexec.hydra")));
    in_a_world(LIMIT, move |world| {
        let start = |more: &[&str]| {
            let words = ["-n", "4", program.to_str().unwrap()];
            world.start(&mpiexec, words.iter().chain(more))
        };
        let all_say = |run: &mut Run| {
            eventually(SOON, "all ranks hang", || {
                run.stdout().iter().map(|line| line.matches("hanging").count()).sum::<usize>() == 4
            });
        };
        let mut hanging = start(&[]);
        all_say(&mut hanging);
        let launcher = hanging.pid().to_string();
        let tree = stack_until(world, &[&launcher], |lines| {
            has(lines, &["wait_for_nobody", "[0]"])
                && has(lines, &["meet_the_others", "[1-2]"])
                && has(lines, &["turn_for_ever", "[3]"])
        });
        let why = gantry(world, &["why", &launcher]);
        let odd = [
            "rank 0 waits in MPI_Recv called at mpi_hang.c:",
            " while 2 others wait in MPI_Barrier called at mpi_hang.c:",
        ];
        assert!(why.code() == 0 && has(&why.stdout, &odd), "{why:?}");
        assert!(has(&why.stdout, &["rank 3 "]) && why.stdout.len() == 2, "{why:?}");
        assert!(has(&tree, &["wait_for_nobody (mpi_hang.c:", " > MPI_Recv"]), "{tree:?}");
        assert!(has(&tree, &["meet_the_others (mpi_hang.c:", " > MPI_Barrier"]), "{tree:?}");
        hanging.signal(Signal::SIGINT);
        hanging.exited(SOON);
        // A recursion hides neither the odd rank nor the standstill.
        let mut deep = start(&["deep", "9000"]);
        all_say(&mut deep);
        let launcher = deep.pid().to_string();
        stack_until(world, &[&launcher], |lines| {
            has(lines, &["main (mpi_hang.c:", " > hang_below (", " more) > hang_below ("])
                && has(lines, &["wait_for_nobody", "[0]"])
        });
        let why = gantry(world, &["why", &launcher]);
        assert!(why.code() == 0 && has(&why.stdout, &odd), "{why:?}");
        let others = ["why", "--ranks", "0-2", "--watch=1", "--exit", &launcher];
        assert_eq!(gantry(world, &others).code(), 75);
        deep.signal(Signal::SIGINT);
        deep.exited(SOON);
        // One that is only slow is read again and again, and has its result.
        let mut slow = start(&["till-told"]);
        all_say(&mut slow);
        let launcher = slow.pid().to_string();
        let done = gantry(world, &["stack", "--samples", "100", "--every", "0.005", &launcher]);
        assert!(done.stdout[0].ends_with(", 100 samples"), "{done:?}");
        let ranks: Vec<i32> = world
            .processes()
            .into_iter()
            .filter(|pid| proc::exe(*pid).as_deref() == Some(&program))
            .collect();
        assert_eq!(ranks.len(), 4);
        proc::send_those_left(ranks, Signal::SIGUSR1);
        assert_eq!(slow.wait(SOON).code(), 0);
    });
}

#[test]
fn the_process_of_a_launch_names_its_app_and_only_ranks_of_it_are_read() {
    in_a_world(LIMIT, |world| {
        let program = programs::get("two_paths");
        let mut run = world.gantry(["launch", "-n", "2", program.to_str().unwrap(), "200"]);
        let process = run.pid().to_string();
        eventually(SOON, "the app is known", || {
            gantry(world, &["ps", "--json"]).stdout[0].contains("\"running\"")
        });
        let tree = stack_until(world, &[&process], |lines| has(lines, &["pause"]));
        assert_eq!(tree[0], "2 ranks in 2 classes", "{tree:?}");
        let refused = gantry(world, &["attach", &process]);
        assert!(refused.code() == 64 && has(&refused.stderr, &["process", "is gantry"]), "{refused:?}");
        for command in [&["stack"][..], &["why"], &["top", "--once"]] {
            for (ranks, code) in [("2-3", 64), ("1-3", 0)] {
                let done = gantry(world, &[command, &["--ranks", ranks, &process]].concat());
                assert_eq!(done.code(), code, "{done:?}");
                assert!(has(&done.stderr, &["there is no rank 2-3: the ranks are 0-1"]), "{done:?}");
            }
        }
        // The end of another command's daemon is not this one's news.
        assert!(!has(run.stderr(), &["daemon"]), "{:?}", run.stderr());
        run.signal(Signal::SIGTERM);
        run.exited(SOON);
    });
}

/// In the middle of reading: the command, its agent and the reader beside the ranks.
#[test]
fn whoever_is_killed_while_ranks_are_read_leaves_them_running() {
    in_a_world(LIMIT, |world| {
        let program = programs::get("loop_forever");
        let app = launched(world, &["-n", "2"], &program, &[]);
        let ranks = ranks_of(world, &app);
        let pids: Vec<String> = ranks.iter().map(i32::to_string).collect();
        for who in ["gantry-stackd", "gantry-agent", "gantry"] {
            let before = world.processes();
            let mut run = world.gantry(["stack", "--samples", "9000", "--every", "0.001", &pids.join(",")]);
            // It holds one of them right now.
            eventually(SOON, "a rank is traced", || ranks.iter().any(|pid| proc::tracer(*pid).is_some()));
            let is_meant = |pid: &i32| proc::exe(*pid).is_some_and(|exe| exe.ends_with(who));
            let all = world.processes();
            let meant: Vec<i32> =
                all.into_iter().filter(|pid| !before.contains(pid) && is_meant(pid)).collect();
            assert!(!meant.is_empty(), "{who}");
            proc::send_those_left(meant, Signal::SIGKILL);
            run.exited(SOON);
            let done = run.wait(SOON);
            assert_eq!(done.stderr.is_empty(), who == "gantry", "{who}: {done:?}");
            let is_over = || ranks.iter().all(|pid| proc::tracer(*pid).is_none());
            eventually(SOON, "nobody traces a rank", is_over);
            for pid in &ranks {
                assert!(matches!(proc::state(*pid), Some('R' | 'S')), "{who}: {:?}", proc::state(*pid));
            }
            let left = || world.processes().into_iter().filter(|pid| !before.contains(pid)).count();
            eventually(SOON, "nothing of the command is left", || left() == 0);
        }
        kill(world, &app);
    });
}

#[test]
fn an_unreadable_target_is_an_error_with_the_reason() {
    in_a_world(LIMIT, |world| {
        let check = |target: &str, code: i32, words: &str| {
            let done = gantry(world, &["stack", target]);
            assert_eq!(done.code(), code, "{done:?}");
            assert!(done.stderr.iter().any(|line| line.contains(words)), "{done:?}");
        };
        check("nosuchapp", 65, "no app 'nosuchapp' of yours runs here");
        check("2147483000", 65, "2147483000");
        assert_eq!(gantry(world, &["stack"]).code(), 2);
    });
}

#[test]
fn a_program_that_is_launched_for_it_ends_with_its_own_code() {
    in_a_world(LIMIT, |world| {
        let program = programs::get("two_paths");
        let words = ["stack", "--launch", "--after", "0.5", "--", "-n", "2", program.to_str().unwrap(), "3"];
        let done = gantry(world, &words);
        assert_eq!(done.code(), 0, "{done:?}");
        assert!(has(&done.stdout, &["odd_path", "wait_here", "[1]"]), "{done:?}");
    });
}

#[test]
fn a_signal_ends_a_long_look_at_a_program_that_is_launched_for_it() {
    in_a_world(LIMIT, |world| {
        let program = programs::get("two_paths");
        let words = ["stack", "--launch", "--after", "0.1", "--samples", "10000", "--every", "1", "--"];
        let mut run = world.gantry([&words[..], &["-n", "2", program.to_str().unwrap(), "200"]].concat());
        let is_reader = |pid: &i32| proc::exe(*pid).is_some_and(|exe| exe.ends_with("gantry-stackd"));
        eventually(SOON, "it looks", || world.processes().iter().any(is_reader));
        run.signal(Signal::SIGINT);
        assert_eq!(run.wait(SOON).code(), 130);
        eventually(SOON, "nothing is left", || world.processes().is_empty());
    });
}

/// The longest time for which a rank may be stopped to be read.
const LONGEST_STOP: u64 = 10_000;

#[test]
fn a_rank_that_computes_is_stopped_for_less_than_ten_milliseconds_to_be_read() {
    in_a_world(LIMIT, |world| {
        let program = programs::get("gaps");
        let words = ["stack", "--launch", "--samples", "150", "--every", "0.02", "--after", "0.5", "--"];
        let done = gantry(world, &[&words[..], &["-n", "1", program.to_str().unwrap(), "15"]].concat());
        assert_eq!(done.code(), 0, "{done:?}");
        assert!(has(&done.stdout, &["main", "[0]"]), "{done:?}");
        let median =
            done.stdout.iter().find_map(|line| line.split("median ").nth(1)?.trim().parse::<u64>().ok());
        // The program leaves out the time in which it waits for a processor. Waits of the reader count.
        assert!(median.is_some_and(|median| (1..LONGEST_STOP).contains(&median)), "{done:?}");
    });
}
