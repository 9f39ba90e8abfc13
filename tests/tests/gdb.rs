//! `gantry gdb`: real gdbs on real ranks, held, running, and when what drives them is killed.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]

use std::time::Duration;

use gantry_tests::{
    Finished, Run, World, eventually, in_a_world, in_another_root, proc, programs, require, tool,
};
use nix::sys::signal::Signal;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(120);
const LIMIT: Duration = Duration::from_secs(300);

fn program() -> String {
    programs::get("rounds").to_str().unwrap().to_owned()
}

fn gantry(world: &World, args: &[&str]) -> Finished {
    world.gantry(args).wait(SOON)
}

/// `gantry gdb --batch` with these commands, on what stands behind them.
fn batch(world: &World, commands: &[&str], rest: &[&str]) -> Finished {
    let commands = commands.iter().flat_map(|command| ["-ex", *command]);
    let words: Vec<&str> =
        ["gdb", "--batch"].into_iter().chain(commands).chain(rest.iter().copied()).collect();
    gantry(world, &words)
}

/// Launches in the background, and gives the app's id and its ranks.
#[track_caller]
fn launched(world: &World, options: &[&str], launcher: &[&str]) -> (String, Vec<i32>) {
    let program = program();
    let words = [&["launch", "--background"], options, &["--"], launcher, &[&program, "250"]].concat();
    let done = gantry(world, &words);
    assert_eq!((done.code(), done.stdout.len()), (0, 1), "{done:?}");
    let app = done.stdout[0].clone();
    let ranks = app_of(world, &app)["ranks"].as_array().unwrap().clone();
    (app, ranks.iter().map(|rank| i32::try_from(rank["pid"].as_i64().unwrap()).unwrap()).collect())
}

#[track_caller]
fn app_of(world: &World, app: &str) -> Value {
    let listed = gantry(world, &["ps", "--json"]);
    let apps: Vec<Value> = serde_json::from_str(&listed.stdout[0]).unwrap();
    apps.into_iter().find(|it| it["app"] == app).expect("the app")
}

#[track_caller]
fn kill(world: &World, app: &str) {
    assert_eq!(gantry(world, &["kill", "--yes", app]).code(), 0);
}

#[track_caller]
fn assert_said(done: &Finished, parts: &[&str]) {
    let has = |part: &&str| done.stdout.iter().any(|line| line.contains(*part));
    for part in parts {
        assert!(has(part), "no '{part}' in {}\n{:?}", done.stdout.join("\n"), done.stderr);
    }
}

/// Whether ranks go on by themselves.
fn go_on(ranks: &[i32]) -> bool {
    ranks
        .iter()
        .all(|pid| proc::tracer(*pid).is_none() && !matches!(proc::state(*pid), Some('T' | 't') | None))
}

/// Reads the number of rounds of each rank by another gdb than gantry's.
fn rounds(gdb: &std::path::Path, world: &World, ranks: &[i32]) -> Vec<u64> {
    let one = |pid: &i32| {
        let pid = pid.to_string();
        let done = world.start(gdb, ["-nx", "-batch", "-p", &pid, "-ex", "print rounds"]).wait(SOON);
        let line = done.stdout.iter().find_map(|line| line.strip_prefix("$1 = ")).expect("a number");
        line.parse().unwrap()
    };
    ranks.iter().map(one).collect()
}

/// The processes of this world that are gdbs.
fn gdbs(world: &World) -> Vec<i32> {
    world
        .processes()
        .into_iter()
        .filter(|pid| proc::exe(*pid).is_some_and(|exe| exe.ends_with("gdb")))
        .collect()
}

fn daemon(world: &World) -> Option<i32> {
    let is_it = |pid: &i32| proc::exe(*pid).is_some_and(|exe| exe.ends_with("gantry-gdbd"));
    let all: Vec<i32> = world.processes().into_iter().filter(is_it).collect();
    // Beside it is the process that outlives it.
    let started = |pid: i32| all.iter().any(|other| proc::children(*other).contains(&pid));
    all.iter().copied().find(|pid| !started(*pid))
}

#[test]
fn held_ranks_of_two_nodes_stop_in_main_and_answer_as_one() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let commands = [
            "break solve",
            "tbreak main",
            "continue",
            "bt",
            "next",
            "continue",
            "bt",
            "print rank",
            "print field",
            "compare 0 1-3 limit",
            "focus class 1",
            "ranks",
            "delete",
            "@all continue",
            "ranks",
            "bt",
        ];
        let program = program();
        let done = batch(world, &commands, &["--", "-n", "4", "-N", "2", &program, "20"]);
        assert_eq!(done.code(), 1, "{done:?}");
        assert_said(&done, &["#0  main (argc=2, argv=[0x", ") at ", "rounds.c:"]);
        assert_said(&done, &["[0-3] $1 = [0;3]", "min 0 (rank 0), max 3 (rank 3), mean 1.5"]);
        assert_said(
            &done,
            &[
                "$2 = {[0;3], [1;4], [2;5], [3;6]}",
                "min 0 (rank 0, element 0), max 6 (rank 3, element 3), mean 3",
            ],
        );
        // Rank 2 alone is called with another number.
        assert_said(&done, &["solve (n=[10;11]) at ", "[0] 10 | [2] 11", "2 pairs are the same"]);
        // What gdb says of the end may be lost with its daemon.
        assert_said(&done, &["[0-3] ended: exit code 0"]);
        assert!(done.stderr.iter().any(|line| line.contains("all ranks have ended")), "{done:?}");
        assert_said(&done, &["[0-3] Temporary breakpoint 2 at [0x"]);
    });
}

#[test]
fn a_condition_stops_one_rank_and_the_others_are_shown_as_running() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let program = program();
        let commands = [
            "break solve if n == 11 && $rank == 2",
            "continue",
            "ranks",
            "@stopped bt",
            "@(at solve) print n",
            "@0 interrupt",
            "ranks",
            "interrupt",
            "ranks",
        ];
        let done = batch(world, &commands, &["--patience", "2", "--", "-n", "3", &program, "100"]);
        assert_eq!(done.code(), 0, "{done:?}");
        assert_said(
            &done,
            &["[0-1] running", "[2] stopped: solve at rounds.c:", "[2] $1 = 11", "(interrupted)"],
        );
        // A set other than the current one is interrupted alone. After the second interrupt, rank 0 may also have a line
        // of its own: its stop may be elsewhere than that of rank 1.
        let stopped_alone =
            |line: &&String| line.starts_with("[0] stopped: ") && line.ends_with("(interrupted)");
        assert!(done.stdout.iter().filter(stopped_alone).count() >= 2, "{done:?}");
        assert!(done.stdout.iter().any(|line| line == "[1] running"), "{done:?}");
        assert!(!done.stdout.iter().any(|line| line.starts_with("[0-1] stopped: solve")), "{done:?}");
    });
}

#[test]
fn ranks_run_until_one_has_another_value() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let commands = [
            "break solve",
            // Rank 2 alone has another limit. The counter is 0 at the first stop.
            "run-until-different rounds == 3 && limit == 11",
            "@(class 1) print rounds",
            "run-until-different no_such_name",
            "delete",
            "run-until-different rank",
        ];
        let program = program();
        let done = batch(world, &commands, &["--", "-n", "3", &program, "4"]);
        assert_eq!(done.code(), 1, "a name is wrong: {done:?}");
        let at = |text: &str| done.stdout.iter().position(|line| line.starts_with(text));
        let places = ["[0-2] $4 = [0;1]", "after 4 stops", "[0-2] $5 = 3", "after 1 stop"].map(at);
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}: {done:?}");
        assert_said(&done, &["odd ranks 2", "No symbol \"no_such_name\"", "after 0 stops"]);
        // The end of the app may come before gdb has said how the ranks ended.
        let ends = ["exited normally]", "[0-2] exit code 0"];
        assert!(done.stdout.iter().any(|line| ends.iter().any(|end| line.contains(end))), "{done:?}");
    });
}

#[test]
fn ranks_that_ran_before_go_on_when_somebody_leaves() {
    let gdb = require!(tool("gdb"));
    in_a_world(LIMIT, move |world| {
        let (app, ranks) = launched(world, &[], &["-n", "3"]);
        let pids: Vec<String> = ranks.iter().map(i32::to_string).collect();
        for target in [pids.join(","), app.clone()] {
            let done = batch(world, &["break solve", "continue", "bt 1", "step"], &["--json", &target]);
            assert_eq!(done.code(), 0, "{done:?}");
            let answers: Vec<Value> =
                done.stdout.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
            let bt = answers.iter().find(|it| it["command"] == "bt 1").expect("an answer");
            assert_eq!((&bt["classes"][0]["ranks"], &bt["running"]), (&"0-2".into(), &"".into()), "{bt}");
            assert!(bt["classes"][0]["text"].as_str().unwrap().contains("solve (n=[10;11])"), "{bt}");
            eventually(SOON, "they go on", || go_on(&ranks));
            eventually(SOON, "no gdb is left", || gdbs(world).is_empty());
        }
        // No breakpoint is left in them: they come to solve again and again.
        let before = rounds(&gdb, world, &ranks);
        eventually(SOON, "they do their rounds", || {
            rounds(&gdb, world, &ranks).iter().zip(&before).all(|(now, before)| now > before)
        });
        kill(world, &app);
    });
}

#[test]
fn two_apps_are_compared_by_their_processes() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        // The second app has the rank with another limit, the first one has not.
        let (one, ranks) = launched(world, &[], &["-n", "2"]);
        let (other, more) = launched(world, &[], &["-n", "3"]);
        let pids: Vec<String> = ranks.iter().chain(&more[1..]).map(i32::to_string).collect();
        let done = batch(world, &["compare 0-1 2-3 limit", "ranks"], &[&pids.join(",")]);
        assert_eq!(done.code(), 0, "{done:?}");
        assert_said(&done, &["[1] 10 | [3] 11", "1 pair is the same"]);
        eventually(SOON, "all go on", || go_on(&ranks) && go_on(&more));
        kill(world, &one);
        kill(world, &other);
    });
}

#[test]
fn held_ranks_stay_held_until_somebody_lets_them_go_on() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let (app, ranks) = launched(world, &["--hold"], &["-n", "3"]);
        let done = batch(world, &["info breakpoints", "print $pc"], &[&app]);
        assert_eq!(done.code(), 0, "{done:?}");
        for pid in &ranks {
            assert_eq!(proc::why_not_held(*pid), None);
        }
        // One goes on and is left: the others are held still.
        let done = batch(world, &["@1 tbreak main", "@1 continue", "ranks"], &[&app]);
        assert_said(&done, &["[1] stopped: main at rounds.c:", "[0,2] held before the first instruction"]);
        eventually(SOON, "it goes on", || go_on(&ranks[1..2]));
        assert_eq!((proc::why_not_held(ranks[0]), proc::why_not_held(ranks[2])), (None, None));
        assert_eq!(app_of(world, &app)["state"], "held");
        let done = batch(world, &["tbreak solve", "continue"], &[&app]);
        assert_eq!(done.code(), 0, "{done:?}");
        eventually(SOON, "they go on", || go_on(&ranks));
        assert_eq!(app_of(world, &app)["state"], "running");
        kill(world, &app);
    });
}

/// `gantry gdb` that has let all ranks go, with a breakpoint that they come to all the time and that stops none.
fn busy(world: &World, app: &str, ranks: &[i32]) -> Run {
    let mut run =
        world.gantry(["gdb", "-ex", "break solve if n == 5", "-ex", "step", "-ex", "continue", app]);
    run.write(b"");
    eventually(SOON, "all have a gdb", || ranks.iter().all(|pid| proc::tracer(*pid).is_some()));
    eventually(SOON, "all go on", || ranks.iter().all(|pid| proc::state(*pid) != Some('t')));
    run
}

#[test]
fn ranks_go_on_when_the_tool_or_the_daemon_is_killed() {
    let gdb = require!(tool("gdb"));
    in_a_world(LIMIT, move |world| {
        let (app, ranks) = launched(world, &[], &["-n", "3"]);
        for kills_tool in [true, false] {
            let run = busy(world, &app, &ranks);
            match kills_tool {
                true => run.kill(),
                false => proc::send(daemon(world).expect("a daemon"), Signal::SIGKILL),
            }
            eventually(SOON, "no gdb is left", || gdbs(world).is_empty());
            eventually(SOON, "they go on", || go_on(&ranks));
            let before = rounds(&gdb, world, &ranks);
            eventually(SOON, "they do their rounds", || {
                rounds(&gdb, world, &ranks).iter().zip(&before).all(|(now, before)| now > before)
            });
            run.kill();
            eventually(SOON, "no daemon is left", || daemon(world).is_none());
        }
        kill(world, &app);
    });
}

#[test]
fn ranks_of_a_node_whose_daemon_is_killed_in_the_middle_of_a_step_are_named_and_go_on() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let (app, ranks) = launched(world, &[], &["-n", "4", "-N", "2"]);
        let mut run = world.gantry(["--json", "gdb", "--patience", "100", &app]);
        run.write(b"tbreak solve\ncontinue\nnext 1000000\n");
        let stopped = [run.next_line(SOON), run.next_line(SOON)].concat();
        assert!(stopped.contains("breakpoint 1, solve"), "{stopped}");
        proc::send(daemon(world).expect("a daemon"), Signal::SIGKILL);
        eventually(SOON, "one daemon and its gdbs are left", || {
            ranks.iter().filter(|pid| proc::tracer(**pid).is_some()).count() == 2
        });
        let said = run.next_line(SOON);
        assert!(said.contains("no answer from") || said.contains("gantry's daemon on"), "{said}");
        proc::send(run.pid(), Signal::SIGINT);
        let answer: Value = serde_json::from_str(&run.next_line(SOON)).expect("JSON");
        assert_eq!(answer["running"], "", "{answer}");
        assert!(answer.to_string().contains("running, and gantry's daemon on"), "{answer}");
        run.write(b"quit\n");
        run.exited(SOON);
        eventually(SOON, "all go on", || go_on(&ranks));
        kill(world, &app);
    });
}

#[test]
fn held_ranks_stay_held_when_the_daemon_is_killed() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let (app, ranks) = launched(world, &["--hold"], &["-n", "2"]);
        let mut run = world.gantry(["gdb", "-ex", "break main", &app]);
        run.write(b"");
        eventually(SOON, "both have a gdb", || ranks.iter().all(|pid| proc::tracer(*pid).is_some()));
        proc::send(daemon(world).expect("a daemon"), Signal::SIGKILL);
        eventually(SOON, "no gdb is left", || gdbs(world).is_empty());
        // Commands after that are refused, and let nobody go.
        run.write(b"print 1\nprint 2\nquit\n");
        run.exited(SOON);
        let refused = run.stderr().iter().any(|line| line.contains("no rank can be asked any more"));
        assert!(refused, "{:?}", run.stderr());
        for pid in &ranks {
            assert_eq!(proc::why_not_held(*pid), None);
        }
        assert_eq!(app_of(world, &app)["state"], "held");
        kill(world, &app);
    });
}

/// Three ranks that end after some seconds by themselves, their app, and what stops them at their very end.
fn ending(world: &World) -> (Run, String, Vec<i32>, String) {
    let mut run = world.gantry(["launch", "-v", "--", "-n", "3", &program(), "15"]);
    let mut apps = Vec::new();
    eventually(SOON, "they run", || {
        let listed = gantry(world, &["ps", "--json"]);
        apps = serde_json::from_str::<Vec<Value>>(&listed.stdout[0]).unwrap();
        apps.len() == 1 && apps[0]["state"] == "running" && run.stdout().len() >= 3
    });
    let app = apps[0]["app"].as_str().unwrap().to_owned();
    let pid = |rank: &Value| i32::try_from(rank["pid"].as_i64().unwrap()).unwrap();
    let ranks = apps[0]["ranks"].as_array().unwrap().iter().map(pid).collect();
    let text = include_str!("../programs/rounds.c");
    let last = 1 + text.lines().position(|line| line.contains("return 0;")).unwrap();
    (run, app, ranks, format!("break rounds.c:{last}"))
}

#[test]
fn ranks_go_on_to_their_right_end_when_a_gdb_is_killed_while_they_run() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        for with_daemon in [false, true] {
            let (mut launch, app, ranks, at_the_end) = ending(world);
            let mut run = world.gantry(["gdb", "-ex", &at_the_end, "-ex", "continue", &app]);
            run.write(b"");
            eventually(SOON, "all have a gdb", || ranks.iter().all(|pid| proc::tracer(*pid).is_some()));
            // A gdb that waits for its rank has written its breakpoints.
            eventually(SOON, "all go on", || ranks.iter().all(|pid| proc::state(*pid) == Some('S')));
            if with_daemon {
                // The daemon's watcher cannot let gdb remove them.
                proc::send(daemon(world).expect("a daemon"), Signal::SIGKILL);
            }
            proc::send_those_left(gdbs(world), Signal::SIGKILL);
            eventually(SOON, "they go on", || go_on(&ranks));
            let done = launch.wait(SOON);
            assert_eq!(done.code(), 0, "{done:?}");
            run.kill();
            eventually(SOON, "no daemon is left", || daemon(world).is_none());
        }
    });
}

#[test]
fn ranks_go_on_to_their_right_end_when_a_gdb_is_killed_while_they_stand_at_a_breakpoint() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let (mut launch, app, ranks, _) = ending(world);
        let mut run =
            world.gantry(["gdb", "-ex", "break solve", "-ex", "continue", "-ex", "print 4 * 4", &app]);
        run.write(b"");
        eventually(SOON, "they stand at it", || run.stdout().iter().any(|line| line.contains("= 16")));
        proc::send_those_left(gdbs(world), Signal::SIGKILL);
        eventually(SOON, "they go on", || go_on(&ranks));
        // The next gdb has no breakpoint, and finds none.
        let done = batch(world, &["info breakpoints", "next", "print rank"], &[&app]);
        assert_said(&done, &["No breakpoints", "[0-2] $1 = [0;2]"]);
        run.kill();
        let done = launch.wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
    });
}

#[test]
fn held_ranks_stay_held_when_a_gdb_is_killed() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let (app, ranks) = launched(world, &["--hold"], &["-n", "2"]);
        let mut run = world.gantry(["gdb", "-ex", "break main", &app]);
        run.write(b"");
        eventually(SOON, "both have a gdb", || ranks.iter().all(|pid| proc::tracer(*pid).is_some()));
        proc::send_those_left(gdbs(world), Signal::SIGKILL);
        eventually(SOON, "they are held", || ranks.iter().all(|pid| proc::why_not_held(*pid).is_none()));
        run.kill();
        let done = batch(world, &["tbreak main", "continue"], &[&app]);
        assert_said(&done, &["main (argc=2"]);
        kill(world, &app);
    });
}

/// Runs objcopy.
#[track_caller]
fn objcopy(world: &World, args: &[&str]) {
    let done = world.start(&tool("objcopy").unwrap(), args).wait(SOON);
    assert_eq!(done.code(), 0, "{done:?}");
}

#[test]
fn symbols_are_those_of_this_machine_where_a_node_has_none() {
    require!(tool("gdb"));
    require!(tool("objcopy"));
    in_another_root!(LIMIT, |world, other| {
        let daemon = gantry_tests::binaries().dir.join("gantry-gdbd");
        std::fs::hard_link(daemon, other.hidden().join("gantry-gdbd")).unwrap();
        // gdb and what it needs.
        other.bind(std::path::Path::new("/usr"));
        let built = programs::get_with("rounds", "rounds_with_id", &["-g", "-Wl,--build-id"]).unwrap();
        let app = world.work_dir().join("app");
        let debug = world.work_dir().join("app.debug");
        let [built, app, debug] = [&built, &app, &debug].map(|path| path.to_str().unwrap());
        let on_node = other.inside(std::path::Path::new(app));
        std::fs::create_dir_all(on_node.parent().unwrap()).unwrap();
        objcopy(world, &["--strip-all", built, on_node.to_str().unwrap()]);
        let look = |more: &[&str]| {
            let words = [&["gdb", "--batch", "-ex", "break solve"], more, &["--", "-n", "2", app, "100"]];
            world.spawn(other.gantry_command(world, words.concat())).wait(SOON)
        };
        let stop = ["-ex", "continue", "-ex", "print limit", "-ex", "info line main"];
        let found = ["solve (n=10) at ", "[0-1] $1 = 10", "rounds.c\" starts at address"];
        // This machine has the program with its symbols.
        gantry_tests::copy_program(built, app);
        assert_said(&look(&stop), &found);
        // It has them in a file beside the program, which names that file.
        objcopy(world, &["--only-keep-debug", built, debug]);
        objcopy(world, &["--strip-all", &format!("--add-gnu-debuglink={debug}"), built, app]);
        assert_said(&look(&stop), &found);
        // It has another build, or none.
        std::fs::remove_file(debug).unwrap();
        assert_said(&look(&[]), &["Function \"solve\" not defined"]);
    });
}

#[test]
fn what_cannot_be_done_is_said_with_its_cause() {
    let gdb = require!(tool("gdb"));
    in_a_world(LIMIT, move |world| {
        let (app, ranks) = launched(world, &[], &["-n", "2"]);
        let done = batch(world, &["bt"], &["--gdb", "nosuchgdb", &app]);
        assert_eq!(done.code(), 1, "{done:?}");
        assert_said(
            &done,
            &[
                "there is no nosuchgdb on ",
                "hint: install it on the nodes, or name another debugger by --gdb",
            ],
        );
        let done = batch(world, &["print nosuchname", "focus 7", "@nobody bt", "run", "commands"], &[&app]);
        assert_eq!(done.code(), 1, "{done:?}");
        assert_said(&done, &["[0-1] No symbol \"nosuchname\" in current context."]);
        for part in [
            "there is no rank 7: the ranks are 0-1",
            "there is no set 'nobody'",
            "'run' starts a program",
            "'commands' reads more lines",
        ] {
            assert!(done.stderr.iter().any(|line| line.contains(part)), "{part}: {done:?}");
        }
        // Another debugger has it.
        let other = world.start(&gdb, ["-nx", "-p", &ranks[0].to_string()]);
        eventually(SOON, "the other one has it", || proc::tracer(ranks[0]).is_some());
        let done = batch(world, &["print rank"], &[&app]);
        assert_eq!(done.code(), 1, "{done:?}");
        assert_said(&done, &["[1] $1 = 1", "Operation not permitted", "hint: another debugger may have it"]);
        other.kill();
        kill(world, &app);
    });
}

#[test]
fn raw_shows_what_a_gdb_was_told_and_has_said() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let (app, _) = launched(world, &[], &["-n", "2"]);
        let done = batch(world, &["print rank", "raw 1"], &[&app]);
        assert_said(&done, &["-target-attach", "~\"$1 = 1\\n\"", "^done"]);
        assert!(!done.stdout.iter().any(|line| line.contains("$1 = 0\\n")), "{done:?}");
        kill(world, &app);
    });
}

#[test]
fn at_the_prompt_there_is_history_completion_and_ctrl_c() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let program = program();
        let script = world.work_dir().join("look.gdb");
        std::fs::write(&script, "# to where it begins\ntbreak main\ncontinue\n").unwrap();
        let mut command = world.command_in_our_group(&gantry_tests::binaries().gantry);
        command.args(["gdb", "-x", script.to_str().unwrap(), "--", "-n", "2", &program, "200"]);
        command.env("TERM", "xterm").env_remove("NO_COLOR");
        let mut terminal = world.terminal_sized(command, 120, 40);
        // Waits for the next prompt, which is that of a set, and types.
        let mut prompts = 0;
        let mut answer = |set: &str, text: &str| {
            let prompt = format!("[{set}] (gdb)");
            prompts += 1;
            terminal.wait_for(&prompt, SOON, |shown| {
                shown.ends_with(&prompt) && shown.matches("(gdb)").count() == prompts
            });
            terminal.type_text(text);
        };
        answer("0-1", "print rank\r");
        answer("0-1", "focus 1\r");
        // What is begun is completed, and what was typed comes back.
        answer("1", "inter\t\r");
        answer("1", "focus al\t\r");
        answer("0-1", "next\r");
        answer("0-1", "\x1b[A\r");
        answer("0-1", "help\r");
        answer("0-1", "continue\r");
        terminal.wait_for("the ranks' output", SOON, |text| {
            text.contains("0: round") && text.contains("1: round")
        });
        terminal.type_text("\x03");
        let prompt = "[0-1] (gdb)";
        let text = terminal.wait_for("the prompt after Ctrl-C", SOON, |text| {
            text.contains("received signal SIGURG") && text.ends_with(prompt)
        });
        for part in [
            "[0-1] $1 = 0",
            "[1] (gdb) interrupt",
            "[1] stopped: main at rounds.c:",
            "[1] (gdb) focus all",
            "one command for another set",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(text.matches("(gdb) next").count(), 2, "{text}");
        terminal.type_text("quit\r");
        assert_eq!(terminal.wait(SOON).code(), Some(0));
        eventually(SOON, "nothing is left", || world.processes().is_empty());
    });
}

#[test]
fn a_mistake_at_the_prompt_ends_neither_the_session_nor_the_ranks() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        std::fs::write(world.work_dir().join("loop.gdb"), "script loop.gdb\n").unwrap();
        let mut command = world.command_in_our_group(&gantry_tests::binaries().gantry);
        command.args(["gdb", "-x", "nosuch.gdb", "--", "-n", "2", &program(), "200"]);
        command.env("TERM", "xterm").env_remove("NO_COLOR");
        let mut terminal = world.terminal_sized(command, 120, 40);
        // The second byte ends the letter that the first one has begun.
        let lines = [b"script lok.gdb\r".as_slice(), b"script loop.gdb\r", b"\xe4\r", b"print 6 * 7\r"];
        for (before, line) in lines.into_iter().enumerate() {
            terminal.wait_for("the next prompt", SOON, |shown| {
                shown.ends_with("[0-1] (gdb)") && shown.matches("(gdb)").count() == before + 1
            });
            terminal.type_bytes(line);
        }
        let text = terminal.wait_text("[0-1] $1 = 42", SOON);
        let told =
            ["cannot read nosuch.gdb: ", "cannot read lok.gdb: ", "scripts call each other", "is not UTF-8"];
        assert!(told.iter().all(|part| text.contains(part)), "{text}");
        terminal.type_text("quit\r");
        assert_eq!(terminal.wait(SOON).code(), Some(0));
        eventually(SOON, "nothing is left", || world.processes().is_empty());
        let done = gantry(world, &["gdb", "--batch", "-x", "nosuch.gdb", "--", "-n", "1", &program(), "200"]);
        assert_eq!(done.code(), 65, "{done:?}");
    });
}
