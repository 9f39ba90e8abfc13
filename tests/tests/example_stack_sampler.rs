//! The example `stack_sampler` on ranks that are known to be in different functions: running, held, and of a program that hangs.

use std::fs;
use std::time::{Duration, Instant};

use gantry_tests::{Run, World, proc, programs, require, skip, tool, within};
use nix::sys::signal::Signal;

const SOON: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(240);

fn has_reader() -> bool {
    tool("eu-stack").is_ok() || tool("gdb").is_ok()
}

/// The next tree: what follows its head, of so many lines. What ranks write goes to the same place, and is left out.
fn next_tree(run: &mut Run, head: &str, lines: usize) -> Vec<String> {
    while run.next_line(SOON) != head {}
    let mut tree = Vec::new();
    while tree.len() < lines {
        let line = run.next_line(SOON);
        if line != "waiting" {
            tree.push(line);
        }
    }
    tree
}

fn all_wait(run: &mut Run, ranks: usize) {
    proc::eventually(SOON, "all ranks wait", || {
        run.stdout().iter().filter(|line| *line == "waiting").count() == ranks
    });
}

#[track_caller]
fn check(line: &str, start: &str, end: &str) {
    assert!(line.starts_with(start) && line.ends_with(end), "{line:?} is not {start:?} to {end:?}");
}

#[test]
fn two_paths_of_64_ranks_on_four_nodes_are_one_tree() {
    if !has_reader() {
        skip!("neither eu-stack nor gdb is installed");
    }
    within(LIMIT, || {
        let world = World::new();
        let program = programs::get("two_paths");
        let (dot, svg) = (world.work_dir().join("stacks.dot"), world.work_dir().join("stacks.svg"));
        let path = |path: &std::path::Path| path.to_str().expect("a path").to_owned();
        let options = ["--after".to_owned(), "0".to_owned(), "--dot".to_owned(), path(&dot)];
        let pictures = ["--svg".to_owned(), path(&svg), "--".to_owned()];
        let launch = ["-N", "4", "-n", "64", &path(&program), "200"].map(ToOwned::to_owned);
        let mut run = world.example("stack_sampler", options.into_iter().chain(pictures).chain(launch));
        // The first tree came while ranks were on their way.
        next_tree(&mut run, "64 ranks", 1);
        all_wait(&mut run, 64);
        run.write(b"\n");
        let tree = next_tree(&mut run, "64 ranks", 3);
        assert_eq!(tree[0], "main [0-63]");
        check(&tree[1], "├─ even_path > work > wait_here", " [0-62:2]");
        check(&tree[2], "└─ odd_path > wait_here", " [1-63:2]");
        run.close_stdin();
        assert_eq!(run.wait(SOON).code(), 0);
        let dot = fs::read_to_string(dot).expect("a file for Graphviz");
        assert!(dot.contains(r#"label="main\l64 ranks: 0-63\l""#), "{dot}");
        assert!(dot.contains(r"32 ranks: 0-62:2\l") && dot.contains(r"32 ranks: 1-63:2\l"), "{dot}");
        let svg = fs::read_to_string(svg).expect("a picture");
        assert_eq!(svg.matches("<g>").count(), 3, "{svg}");
        assert!(svg.contains(">odd_path</text>") && svg.contains(">32 ranks: 0-62:2</text>"), "{svg}");
        world.finish();
    });
}

#[test]
fn held_ranks_are_seen_before_main_and_then_in_it() {
    if !has_reader() {
        skip!("neither eu-stack nor gdb is installed");
    }
    within(LIMIT, || {
        let world = World::new();
        let program = programs::get("two_paths");
        let launch = ["--hold", "--", "-n", "4", program.to_str().expect("a path"), "200"];
        let mut run = world.example("stack_sampler", launch);
        let held = next_tree(&mut run, "4 ranks", 1);
        assert!(held[0].ends_with(" [0-3]") && !held[0].contains("main"), "{held:?}");
        all_wait(&mut run, 4);
        run.write(b"\n");
        let tree = next_tree(&mut run, "4 ranks", 3);
        assert_eq!(tree[0], "main [0-3]");
        check(&tree[1], "├─ even_path > work > wait_here", " [0,2]");
        check(&tree[2], "└─ odd_path > wait_here", " [1,3]");
        run.close_stdin();
        assert_eq!(run.wait(SOON).code(), 0);
        world.finish();
    });
}

#[test]
fn a_hanging_mpi_program_shows_who_waits_for_whom_and_hangs_on() {
    if !has_reader() {
        skip!("neither eu-stack nor gdb is installed");
    }
    let program = require!(programs::get_mpi("mpi_hang", "mpicc.mpich"));
    let mpiexec = require!(tool("mpiexec.mpich").or_else(|_| tool("mpiexec.hydra")));
    within(LIMIT, move || {
        let world = World::new();
        let mut hanging = world.start(&mpiexec, ["-n".as_ref(), "4".as_ref(), program.as_os_str()]);
        // The launcher may mix its ranks' lines.
        proc::eventually(SOON, "all ranks hang", || {
            hanging.stdout().iter().map(|line| line.matches("hanging").count()).sum::<usize>() == 4
        });
        let launcher = hanging.pid().to_string();
        let seen = |tree: &[String], function: &str, ranks: &str| {
            tree.iter().any(|line| line.contains(function) && line.ends_with(ranks))
        };
        let until = Instant::now() + SOON;
        // They say that they hang right before they do.
        loop {
            let mut run = world.example("stack_sampler", ["--samples", "3", "--every", "10", &launcher]);
            let finished = run.wait(SOON);
            assert_eq!(finished.code(), 0, "{finished:?}");
            let tree = finished.stdout;
            assert!(tree.contains(&"4 ranks, 3 samples".to_owned()), "{tree:?}");
            let all = [("wait_for_nobody", "[0]"), ("meet_the_others", "[1-2]"), ("turn_for_ever", "[3]")];
            if all.iter().all(|(function, ranks)| seen(&tree, function, ranks)) {
                break;
            }
            assert!(Instant::now() < until, "{tree:?}");
        }
        let ranks: Vec<i32> = world.processes().into_iter().filter(|pid| *pid != hanging.pid()).collect();
        assert!(ranks.iter().all(|pid| proc::state(*pid).is_none_or(|state| state != 'T' && state != 't')));
        hanging.signal(Signal::SIGINT);
        hanging.exited(SOON);
        world.finish();
    });
}
