//! The example `stack_table` on ranks that are known to be in different functions.

use std::time::Duration;

use gantry_tests::{Run, World, proc, programs, skip, tool, within};

const SOON: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_secs(120);

/// The next table: the lines after its head that begin with the ranks from 0 on, without the ranks.
fn next_table(run: &mut Run, ranks: usize) -> Vec<String> {
    while !run.next_line(SOON).starts_with("rank ") {}
    let line_of = |rank: usize| {
        let mut line = run.next_line(SOON);
        // What the ranks write goes to the same place, and comes when it comes.
        while line == "waiting" {
            line = run.next_line(SOON);
        }
        let (number, functions) = line.trim_start().split_once("  ").expect("a rank and its functions");
        assert_eq!(number, rank.to_string(), "{line}");
        functions.to_owned()
    };
    (0..ranks).map(line_of).collect()
}

fn check(table: &[String]) {
    for (rank, functions) in table.iter().enumerate() {
        let expected =
            if rank % 2 == 0 { "wait_here work even_path main" } else { "wait_here odd_path main" };
        assert!(functions.contains(expected), "rank {rank}: {functions}");
    }
}

#[test]
fn ranks_of_a_launched_app_are_seen_in_their_functions() {
    if tool("eu-stack").is_err() && tool("gdb").is_err() {
        skip!("neither eu-stack nor gdb is installed");
    }
    within(LIMIT, || {
        let world = World::new();
        let program = programs::get("two_paths");
        let mut run =
            world.example("stack_table", ["launch", "-n", "3", program.to_str().expect("a path"), "100"]);
        proc::eventually(SOON, "all ranks wait", || {
            run.stdout().iter().filter(|line| *line == "waiting").count() == 3
        });
        // The first table came while ranks were on their way.
        next_table(&mut run, 3);
        run.write(b"\n");
        check(&next_table(&mut run, 3));
        run.close_stdin();
        assert_eq!(run.wait(SOON).code(), 0);
        world.finish();
    });
}

#[test]
fn ranks_that_were_attached_to_are_seen_and_go_on() {
    if tool("eu-stack").is_err() && tool("gdb").is_err() {
        skip!("neither eu-stack nor gdb is installed");
    }
    within(LIMIT, || {
        let world = World::new();
        let start = |rank: usize| {
            let mut command = world.command(programs::get("two_paths"));
            command.arg("100").env("GANTRY_RANK", rank.to_string());
            let mut run = world.spawn(command);
            assert_eq!(run.next_line(SOON), "waiting");
            run
        };
        let mut ranks: Vec<Run> = (0..2).map(start).collect();
        let pids = format!("{},{}", ranks[0].pid(), ranks[1].pid());
        let mut run = world.example("stack_table", ["attach", &pids]);
        check(&next_table(&mut run, 2));
        run.close_stdin();
        assert_eq!(run.wait(SOON).code(), 0);
        for rank in &mut ranks {
            assert_eq!(proc::state(rank.pid()), Some('S'), "left as it was found");
            rank.kill();
            rank.exited(SOON);
        }
        world.finish();
    });
}
