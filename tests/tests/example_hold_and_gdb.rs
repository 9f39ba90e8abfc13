//! The example `hold_and_gdb` with a real gdb: its printed commands can be typed unchanged, and nothing is left
//! behind.

use std::path::Path;
use std::time::Duration;

use gantry_tests::{Run, World, programs, require, tool, within};

const SOON: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(120);

/// Starts the example on two ranks of `exit_with 3 4`. Returns the lines to type, one per rank, from `gdb` on.
fn hold(world: &World) -> (Run, Vec<String>) {
    let program = programs::get("exit_with");
    let mut run = world.example("hold_and_gdb", ["-n", "2", program.to_str().expect("a path"), "3", "4"]);
    let lines = (0..2).map(|rank| {
        let line = run.next_line(SOON);
        assert!(line.starts_with(&format!("rank {rank}: ")), "{line}");
        line[line.find("gdb -ex").expect("a line to type")..].to_owned()
    });
    let lines = lines.collect();
    (run, lines)
}

/// Types a line into a shell, and the commands into the gdb that it starts. Returns gdb's output.
fn type_in(world: &World, gdb: &Path, line: &str, commands: &[&str]) -> String {
    let typed = line.replacen("gdb", &format!("{} -nx -batch", gdb.display()), 1);
    let commands: String = commands.iter().map(|command| format!(" -ex '{command}'")).collect();
    let mut shell = world.start(Path::new("/bin/sh"), ["-c", &(typed + &commands)]);
    shell.close_stdin();
    shell.wait(SOON).stdout.join("\n")
}

#[test]
fn gdb_breaks_at_main_of_every_held_rank_and_sees_its_exit() {
    let gdb = require!(tool("gdb"));
    require!(tool("gdbserver"));
    within(LIMIT, move || {
        let world = World::new();
        let (mut run, lines) = hold(&world);
        for (line, code) in lines.iter().zip(["03", "04"]) {
            let said = type_in(&world, &gdb, line, &["break main", "continue", "backtrace", "continue"]);
            for expected in ["Breakpoint 1, main (", "#0  main (", &format!("exited with code {code}")] {
                assert!(said.contains(expected), "{expected:?} in\n{said}");
            }
            assert!(!said.contains("SIGSTOP"), "the SIGSTOP of the hold does not get in the way:\n{said}");
        }
        assert_eq!(run.wait(SOON).code(), 4, "the app's own code");
        world.finish();
    });
}

/// The kernel stops a rank again when its debugger detaches, unless the hold's SIGSTOP was undone.
#[test]
fn a_rank_goes_on_when_its_gdb_detaches() {
    let gdb = require!(tool("gdb"));
    require!(tool("gdbserver"));
    within(LIMIT, move || {
        let world = World::new();
        let (mut run, lines) = hold(&world);
        type_in(&world, &gdb, &lines[0], &["detach"]);
        let said = type_in(&world, &gdb, &lines[1], &["break main", "continue", "delete", "detach"]);
        assert!(said.contains("Breakpoint 1, main ("), "{said}");
        assert_eq!(run.wait(SOON).code(), 4);
        world.finish();
    });
}

#[test]
fn tool_killed_while_gdbservers_trace_its_ranks_leaves_nothing() {
    require!(tool("gdbserver"));
    within(LIMIT, || {
        let world = World::new();
        let (mut run, _) = hold(&world);
        run.kill();
        run.exited(SOON);
        world.finish();
    });
}
