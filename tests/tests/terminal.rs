//! The command line as a user sees it: at a real terminal, with a keyboard.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use gantry_tests::{Terminal, World, eventually, in_a_world, proc};

const SOON: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_secs(90);

fn at_terminal(world: &World, hold: bool, ranks: &str, script: &str) -> Terminal {
    let hold: &[&str] = if hold { &["--hold"] } else { &[] };
    world.terminal([&["launch"], hold, &["--", "-n", ranks, "/bin/sh", "-c", script]].concat())
}

/// The ranks that have this state in the last table.
fn ranks_in(text: &str, state: &str) -> Vec<String> {
    let table = text.rsplit_once("RANK  HOST").map_or("", |(_, table)| table);
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.get(3) == Some(&state)).map(|row| row[0].to_owned()).collect()
}

/// Waits until the table shows this state for exactly these ranks. The table may be read while it is being drawn.
#[track_caller]
fn wait_ranks(terminal: &Terminal, state: &str, ranks: &[&str]) {
    terminal.wait_for(&format!("{state} {ranks:?}"), SOON, |text| ranks_in(text, state) == ranks);
}

#[test]
fn the_table_shows_held_ranks_enter_releases_and_further_typing_is_rank_0s() {
    in_a_world(LIMIT, |world| {
        let script = "if [ $GANTRY_RANK = 0 ]; then read x; echo \"got $x\"; fi; exit $GANTRY_RANK";
        let mut terminal = at_terminal(world, true, "4", script);
        terminal.wait_text("press Enter to release", SOON);
        wait_ranks(&terminal, "held", &["0", "1", "2", "3"]);
        terminal.wait_text(": 4 ranks on 1 node: 4 held", SOON);
        terminal.type_text("\n");
        terminal.wait_text("gantry: released", SOON);
        terminal.wait_text("1 running, 3 exited", SOON);
        terminal.type_text("some words\n");
        assert_eq!(terminal.wait(SOON).code(), Some(3));
        let text = terminal.text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.contains(&"got some words"), "{text}");
        assert!(lines.contains(&"gantry: rank 3: exit code 3"), "{text}");
        assert_eq!(text.matches("RANK  HOST").count(), 1, "{text}");
        assert!(text.contains(": 4 ranks on 1 node: 4 exited") && !text.contains("<?"), "{text}");
    });
}

#[test]
fn ctrl_c_asks_once_and_ends_all_at_the_second() {
    in_a_world(LIMIT, |world| {
        let mut terminal = at_terminal(world, true, "2", "exit 0");
        terminal.wait_text("press Enter to release", SOON);
        terminal.type_text("\x03");
        terminal.wait_text("2 ranks are held; Ctrl-C once more ends all", SOON);
        wait_ranks(&terminal, "held", &["0", "1"]);
        terminal.type_text("\x03");
        assert_eq!(terminal.wait(SOON).code(), Some(130));
    });
}

#[test]
fn output_is_whole_and_the_table_stays_below_it() {
    in_a_world(LIMIT, |world| {
        // Many short lines on both streams, then lines in pieces. The pieces come on one stream only, after the short
        // lines. The order of writes to two pipes is unknown, so a line of one stream may come between the pieces of
        // the other.
        let script = "i=0; while [ $i -lt 120 ]; do \
            if [ $((i % 5)) = 0 ]; then echo rank $GANTRY_RANK line $i >&2; \
            else echo rank $GANTRY_RANK line $i; fi; i=$((i + 1)); done; read x; \
            while [ $i -lt 150 ]; do printf 'rank %s ' $GANTRY_RANK; printf 'line %s\\n' $i; i=$((i + 1)); done; \
            echo -n 'no end'; sleep 0.6";
        let mut terminal = at_terminal(world, true, "1", script);
        terminal.wait_text("press Enter", SOON);
        terminal.type_text("\n");
        terminal.wait_text("rank 0 line 119\n", SOON);
        terminal.wait_text("rank 0 line 115\n", SOON);
        terminal.type_text("go on\n");
        assert_eq!(terminal.wait(SOON).code(), Some(0));
        let text = terminal.text();
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("rank ")).collect();
        let mut found: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let mut expected: Vec<String> = (0..150).map(|i| format!("rank 0 line {i}")).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{text}");
        // The open line stays, and the final message begins on a new line.
        assert!(text.lines().any(|line| line == "no end"), "{text}");
        assert!(ranks_in(&text, "exit") == ["0"] && !text.contains("<?"), "{text}");
    });
}

#[test]
fn a_launch_that_is_not_held_leaves_nothing_but_the_output() {
    in_a_world(LIMIT, |world| {
        let mut terminal =
            at_terminal(world, false, "2", "sleep 1; [ $GANTRY_RANK = 0 ] && printf 'a\\tb\\r\\nc'; exit 0");
        wait_ranks(&terminal, "running", &["0", "1"]);
        assert_eq!(terminal.wait(SOON).code(), Some(0));
        // The terminal inserts a carriage return before the newline.
        assert!(
            terminal.bytes().windows(7).any(|bytes| bytes == b"a\tb\r\r\nc"),
            "{:?}",
            terminal.bytes().escape_ascii().to_string()
        );
        assert!(!terminal.text().contains("rank"), "{}", terminal.text());
    });
}

#[test]
fn many_ranks_are_folded_and_a_new_size_spoils_nothing() {
    in_a_world(LIMIT, |world| {
        let mut terminal = at_terminal(world, true, "64", "exit 0");
        terminal.wait_text("press Enter", SOON);
        let folded = |text: &str| text.contains("held 0-63") && text.contains("64 ranks on 1 node: 64 held");
        terminal.wait_for("folded table", SOON, folded);
        terminal.resize(30, 10);
        terminal.wait_text(": 64 ranks on 1 node..", SOON);
        terminal.resize(100, 30);
        let whole =
            |text: &str| text.ends_with(|last: char| last.is_ascii_digit()) && text.contains(": 64 held");
        let text = terminal.wait_for("whole table", SOON, whole);
        // The heading has room for the host's name between the two words.
        let heads = text.lines().filter(|line| line.contains("HOST ") && line.contains(" RANKS"));
        assert_eq!(heads.count(), 1, "{text}");
        terminal.type_text("\n");
        assert_eq!(terminal.wait(SOON).code(), Some(0));
    });
}

#[test]
fn quiet_and_plain_terminals_have_no_live_table() {
    in_a_world(LIMIT, |world| {
        let mut quiet = world.terminal(["launch", "-q", "--hold", "--", "-n", "2", "/bin/echo", "out"]);
        eventually(SOON, "it is held", || {
            let held = |pid: &i32| proc::why_not_held(*pid).is_none();
            world.processes().iter().filter(|pid| held(pid)).count() == 2
        });
        eventually(SOON, "Enter releases it", || {
            // The terminal buffers an Enter that comes too early.
            quiet.type_text("\n");
            quiet.text().contains("out")
        });
        assert_eq!(quiet.wait(SOON).code(), Some(0));
        assert_eq!(quiet.text().lines().filter(|line| !line.is_empty()).collect::<Vec<_>>(), ["out", "out"]);

        for variable in [("TERM", "dumb"), ("NO_COLOR", "1")] {
            let mut plain =
                world.terminal_with(["launch", "--hold", "--", "-n", "2", "/bin/echo", "out"], [variable]);
            plain.wait_text("press Enter", SOON);
            plain.type_text("\n");
            assert_eq!(plain.wait(SOON).code(), Some(0));
            assert!(!plain.bytes().contains(&0x1b), "{:?}", plain.text());
            assert_eq!(ranks_in(&plain.text(), "held").len(), 2, "{}", plain.text());
        }
    });
}

#[test]
fn attached_processes_have_a_table_that_goes_on_until_they_are_let_go() {
    in_a_world(LIMIT, |world| {
        let mut found = world.start("/bin/sleep".as_ref(), ["1000"]);
        let mut terminal = world.terminal(["attach", &found.pid().to_string()]);
        terminal.wait_text("1 rank on 1 node: 1 running", SOON);
        wait_ranks(&terminal, "running", &["0"]);
        terminal.type_text("\x03");
        assert_eq!(terminal.wait(SOON).code(), Some(0));
        assert!(terminal.text().contains("the app continues on its own"), "{}", terminal.text());
        assert!(proc::is_alive(found.pid()));
        found.kill();
        found.wait(SOON);
    });
}

#[test]
fn a_terminal_without_a_reader_keeps_no_process_and_delays_the_end_for_a_limited_time() {
    in_a_world(LIMIT, |world| {
        // More than the terminal's buffer, and less than the most data in flight.
        let script = "i=0; while [ $i -lt 2000 ]; do echo 0123456789012345678901234567890123456789; i=$((i + 1)); done; exit 4";
        let mut terminal = world.paused_terminal(["launch", "--", "-n", "1", "/bin/sh", "-c", script]);
        let own = terminal.pid();
        eventually(SOON, "only the frontend is left", || {
            let all = world.processes();
            all == [own]
        });
        assert_eq!(terminal.wait(SOON).code(), Some(4));
    });
}

#[test]
fn a_terminal_that_goes_on_gets_all_that_was_written() {
    in_a_world(LIMIT, |world| {
        let script = "i=0; while [ $i -lt 2000 ]; do echo 0123456789012345678901234567890123456789; i=$((i + 1)); done";
        let mut terminal = world.paused_terminal(["launch", "--", "-n", "1", "/bin/sh", "-c", script]);
        let own = terminal.pid();
        eventually(SOON, "only the frontend is left", || world.processes() == [own]);
        terminal.resume();
        let status = terminal.wait(SOON);
        assert_eq!((status.code(), status.signal()), (Some(0), None));
        let text = terminal.text();
        assert_eq!(text.lines().filter(|line| *line == "0123456789".repeat(4)).count(), 2000);
    });
}
