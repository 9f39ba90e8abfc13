//! `gantry top`: the real command at a real terminal, with real ranks, and its table without a terminal.

use std::path::PathBuf;
use std::time::Duration;

use gantry_tests::programs;
use gantry_tests::{Terminal, World, becomes_true, binaries, eventually, in_a_world, proc, require, tool};
use nix::sys::signal::Signal;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(240);

/// The sequences that restore the terminal: leave the alternate screen, show the cursor.
const BACK: [&str; 2] = ["\x1b[?1049l", "\x1b[?25h"];

/// Launches two_paths in the background. Returns the app's id and its ranks. `-N` goes to the launcher, all other
/// options to gantry.
#[track_caller]
fn launched(world: &World, options: &[&str], count: usize) -> (String, Vec<i32>) {
    let program = programs::get("two_paths");
    let ranks = count.to_string();
    let at = options.iter().position(|word| *word == "-N").unwrap_or(options.len());
    let (own, launcher) = options.split_at(at);
    let program = [program.to_str().expect("a path"), "200"];
    let words = [&["launch", "--background"], own, &["--", "-n", &ranks], launcher, &program].concat();
    let done = world.gantry(words).wait(SOON);
    assert_eq!((done.code(), done.stdout.len()), (0, 1), "{done:?}");
    let app = done.stdout[0].clone();
    let listed = world.gantry(["ps", "--json"]).wait(SOON);
    let apps: Vec<Value> = serde_json::from_str(&listed.stdout[0]).expect("a list");
    let all = apps.iter().find(|it| it["app"] == app.as_str()).expect("the app")["ranks"]
        .as_array()
        .expect("ranks");
    let pids = all.iter().map(|rank| i32::try_from(rank["pid"].as_i64().expect("a pid")).expect("a pid"));
    (app, pids.collect())
}

#[track_caller]
fn kill(world: &World, app: &str) {
    assert_eq!(world.gantry(["kill", "--yes", app]).wait(SOON).code(), 0);
}

fn at_terminal(world: &World, words: &[&str]) -> Terminal {
    let mut command = world.command_in_our_group(&binaries().gantry);
    command.args(["top", "--every", "0.2"].iter().chain(words)).env("TERM", "xterm").env_remove("NO_COLOR");
    world.terminal_sized(command, 120, 30)
}

fn is_stopped(pid: i32) -> bool {
    proc::state(pid) == Some('T')
}

/// The column DAEMONS of the table of nodes: the word that ends where the heading ends.
fn daemons(text: &str) -> Vec<String> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with(" NODE"));
    let heading = lines.next().and_then(|head| Some(head.find("DAEMONS")? + "DAEMONS".len()));
    let end = heading.expect("the heading");
    let rows = lines.take_while(|line| !line.starts_with("call paths"));
    let cells = rows.filter_map(|row| row.get(..end)?.split_whitespace().last().map(str::to_owned));
    cells.collect()
}

/// The output after the last frame must restore the terminal.
#[track_caller]
fn assert_is_back(terminal: &Terminal) {
    let bytes = String::from_utf8_lossy(&terminal.bytes()).into_owned();
    let last = bytes.rfind("\x1b[?1049h").expect("a screen of its own");
    for back in BACK {
        assert!(bytes[last..].contains(back), "{:?}", &bytes[last..]);
    }
}

#[test]
fn ranks_are_held_and_let_go_by_keys_and_the_terminal_comes_back() {
    in_a_world(LIMIT, |world| {
        let (app, ranks) = launched(world, &[], 4);
        let mut top = at_terminal(world, &[&app]);
        top.wait_text("4 ranks in 2 classes", SOON);
        top.wait_for("all ranks asleep", SOON, |text| text.contains("4 ranks on 1 node: 4 sleeping"));
        // The second row is rank 1. Capitals act on all shown ranks.
        top.type_text("jh");
        eventually(SOON, "rank 1 is held", || is_stopped(ranks[1]));
        top.wait_text("3 sleeping, 1 stopped", SOON);
        assert!([0, 2, 3].iter().all(|at| !is_stopped(ranks[*at])));
        top.type_text("H");
        eventually(SOON, "all are held", || ranks.iter().all(|pid| is_stopped(*pid)));
        top.type_text("G");
        eventually(SOON, "all go on", || ranks.iter().all(|pid| !is_stopped(*pid)));
        // A class of the tree: the odd ranks.
        top.type_text("r");
        top.wait_for("paths of ranks that sleep", SOON, |text| {
            text.contains("4 ranks in 2 classes") && !text.contains("(stopped")
        });
        top.type_text("\t");
        let odd = |text: &str| text.lines().position(|line| line.contains("odd_path")).expect("a class");
        let first = |text: &str| text.lines().position(|line| line.contains("call paths:")).expect("a head");
        let text = top.text();
        (first(&text) + 1..odd(&text)).for_each(|_| top.type_text("j"));
        top.type_text("\r");
        top.wait_text("class 1,3", SOON);
        top.type_text("\th");
        top.type_text("H");
        eventually(SOON, "the odd ranks are held", || is_stopped(ranks[1]) && is_stopped(ranks[3]));
        assert!(!is_stopped(ranks[0]) && !is_stopped(ranks[2]));
        top.type_text("G\x1b");
        eventually(SOON, "they go on", || !is_stopped(ranks[1]) && !is_stopped(ranks[3]));
        top.type_text("q");
        assert_eq!(top.wait(SOON).code(), Some(0));
        assert_is_back(&top);
        assert!(ranks.iter().all(|pid| proc::is_alive(*pid) && !is_stopped(*pid)));
        kill(world, &app);
    });
}

#[test]
fn signals_pages_nodes_and_ranks_are_asked_for_by_name() {
    in_a_world(LIMIT, |world| {
        let (app, ranks) = launched(world, &["-N", "2"], 4);
        // Longer than the queue of typed keys. No key may be lost.
        let page: PathBuf = world.work_dir().join(format!("page{}.html", "-of-paths".repeat(20)));
        let mut top = at_terminal(world, &[&app]);
        // Ranks that are just starting are in two classes too, so read the paths once more.
        top.wait_for("all ranks asleep", SOON, |text| text.contains("4 ranks on 2 nodes: 4 sleeping"));
        top.type_text("r");
        top.wait_for("the odd path", SOON, |text| text.contains("odd_path"));
        top.type_text("w");
        top.wait_text("write to: stacks.html_", SOON);
        top.type_text(&"\x7f".repeat(20));
        top.type_text(&format!("{}\r", page.display()));
        eventually(SOON, "the page is there", || {
            std::fs::read_to_string(&page).is_ok_and(|it| it.contains("odd_path"))
        });
        top.type_text("/2-3\r");
        top.wait_text("only 2-3", SOON);
        top.type_text("S");
        top.wait_text("signal for 2-3: TERM_", SOON);
        top.type_text("\x7f\x7f\x7f\x7fkill\r");
        eventually(SOON, "two are killed", || !proc::is_alive(ranks[2]) && !proc::is_alive(ranks[3]));
        assert!(proc::is_alive(ranks[0]) && proc::is_alive(ranks[1]));
        top.wait_text("2 ended", SOON);
        // If a letter followed at once, Escape would turn it into Alt and that letter.
        top.type_text("\x1b");
        top.wait_for("all ranks", SOON, |text| !text.contains("only 2-3"));
        top.type_text("n");
        top.wait_for("both nodes", SOON, |text| {
            text.contains("DAEMONS") && [".0 ", ".1 "].iter().all(|node| text.contains(node))
        });
        // One daemon reads the figures. Each further tool starts its own.
        top.wait_for("a daemon on each node", SOON, |text| daemons(text) == ["1", "1"]);
        let mut watch = world.gantry(["why", "--watch=1h", &app]);
        top.wait_for("the daemons of another tool", SOON, |text| daemons(text) == ["2", "2"]);
        watch.signal(Signal::SIGINT);
        assert_eq!(watch.wait(SOON).code(), 0);
        top.wait_for("the daemons that are left", SOON, |text| daemons(text) == ["1", "1"]);
        top.type_text("?");
        top.wait_text("leave; ranks that are held stay held", SOON);
        top.type_text("?");
        top.resize(60, 14);
        top.wait_for("the small screen", SOON, |text| {
            text.contains("call paths") && !text.contains("leave;")
        });
        kill(world, &app);
        top.wait_text("the job has ended; q leaves", SOON);
        top.type_text("q");
        assert_eq!(top.wait(SOON).code(), Some(0));
        assert_is_back(&top);
    });
}

#[test]
fn signals_end_it_and_the_terminal_comes_back() {
    in_a_world(LIMIT, |world| {
        let (app, ranks) = launched(world, &[], 2);
        let pids: Vec<String> = ranks.iter().map(i32::to_string).collect();
        for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129), (Signal::SIGINT, 0)] {
            // The ranks were attached to, so they stay as they are.
            let mut top = at_terminal(world, &[&pids.join(",")]);
            top.wait_text("2 ranks in 2 classes", SOON);
            proc::send(top.pid(), signal);
            assert_eq!(top.wait(SOON).code(), Some(code), "{signal}");
            assert_is_back(&top);
        }
        // A hold that is typed just before `q` is still sent. Held ranks stay held.
        let mut top = at_terminal(world, &[&pids.join(",")]);
        top.wait_text("2 ranks in 2 classes", SOON);
        top.type_text("hq");
        assert_eq!(top.wait(SOON).code(), Some(0));
        assert!(is_stopped(ranks[0]) && !is_stopped(ranks[1]));
        proc::send(ranks[0], Signal::SIGCONT);
        // The terminal is in raw mode, so Ctrl-C is a key.
        let mut top = at_terminal(world, &[&app]);
        top.wait_text("2 ranks in 2 classes", SOON);
        top.type_text("\x03");
        assert_eq!(top.wait(SOON).code(), Some(0));
        assert!(ranks.iter().all(|pid| proc::is_alive(*pid)));
        kill(world, &app);
    });
}

#[test]
fn gdb_has_the_terminal_until_it_ends() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let (app, ranks) = launched(world, &[], 2);
        let mut top = at_terminal(world, &[&app]);
        top.wait_text("2 ranks in 2 classes", SOON);
        top.type_text("d");
        top.wait_text("[0] (gdb)", SOON);
        top.type_text("print 41 + 1\n");
        top.wait_text("[0] $1 = 42", SOON);
        eventually(SOON, "gdb has the rank", || proc::tracer(ranks[0]).is_some());
        // Ctrl-C goes to gdb. What is typed before the next prompt is lost.
        let prompts = |text: &str| text.matches("[0] (gdb)").count();
        let before = prompts(&top.wait_for("a prompt", SOON, |text| text.trim_end().ends_with("(gdb)")));
        top.type_text("\x03");
        top.wait_for("another prompt", SOON, |text| prompts(text) > before);
        top.type_text("quit\n");
        eventually(SOON, "the screen is there again", || {
            let bytes = String::from_utf8_lossy(&top.bytes()).into_owned();
            bytes.matches("\x1b[?1049h").count() == 2
        });
        assert_eq!(proc::tracer(ranks[0]), None);
        top.type_text("q");
        assert_eq!(top.wait(SOON).code(), Some(0));
        assert_is_back(&top);
        kill(world, &app);
    });
}

#[test]
fn a_held_app_is_released_by_the_key_that_lets_go() {
    in_a_world(LIMIT, |world| {
        let (app, ranks) = launched(world, &["--hold"], 2);
        let mut top = at_terminal(world, &[&app]);
        top.wait_text("2 held", SOON);
        top.type_text("G");
        let all_run = becomes_true(SOON, || ranks.iter().all(|pid| !is_stopped(*pid)));
        assert!(all_run, "{}", top.text());
        top.wait_text("2 sleeping", SOON);
        top.type_text("q");
        assert_eq!(top.wait(SOON).code(), Some(0));
        kill(world, &app);
    });
}

#[test]
fn the_tree_is_read_again_without_a_key_unless_that_is_switched_off() {
    in_a_world(LIMIT, |world| {
        for is_live in [true, false] {
            let (app, _) = launched(world, &["--hold"], 2);
            let args: &[&str] = if is_live { &[&app] } else { &["--stacks", "0", &app] };
            let mut top = at_terminal(world, args);
            top.wait_text("(held)", SOON);
            assert_eq!(world.gantry(["release", &app]).wait(SOON).code(), 0);
            if !is_live {
                // Longer than the interval after which the stacks would be read again.
                assert!(!becomes_true(Duration::from_secs(7), || top.text().contains("odd_path")));
                assert!(top.text().contains("(held)"), "{}", top.text());
                top.type_text("r");
            }
            top.wait_for("the ranks' functions", SOON, |text| {
                text.contains("odd_path") && text.contains("even_path") && !text.contains("(held)")
            });
            top.type_text("q");
            assert_eq!(top.wait(SOON).code(), Some(0));
            kill(world, &app);
        }
    });
}

#[test]
fn without_a_terminal_all_is_printed_once() {
    in_a_world(LIMIT, |world| {
        let program = programs::get("loop_forever");
        let words =
            ["launch", "--background", "--", "-n", "2", "-N", "2", program.to_str().expect("a path"), "spin"];
        let done = world.gantry(words).wait(SOON);
        let app = done.stdout[0].clone();
        let done = world.gantry(["top", &app]).wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
        assert!(done.stdout[0].starts_with("NODE") && done.stdout[1].contains(".0 "), "{done:?}");
        assert!(done.stdout.iter().any(|line| line.starts_with("2 ranks in ")), "{done:?}");
        let done = world.gantry(["top", "--json", "--ranks", "1", &app]).wait(SOON);
        let object: Value = serde_json::from_str(&done.stdout[0]).expect("an object");
        let ranks = object["ranks"].as_array().expect("ranks");
        assert_eq!((ranks.len(), &ranks[0]["rank"], &ranks[0]["state"]), (1, &1.into(), &"running".into()));
        // The rank loops, so it uses as much CPU time as it can get.
        assert!(
            ranks[0]["cpu_percent"].as_u64().is_some_and(|percent| (5..=110).contains(&percent)),
            "{object}"
        );
        assert!(ranks[0]["memory_kib"].as_u64().is_some_and(|kib| kib > 100), "{object}");
        assert!(object["nodes"][0]["processors"].as_u64().is_some_and(|count| count > 0), "{object}");
        assert_eq!(object["stacks"]["ranks"], "1");
        kill(world, &app);
    });
}
