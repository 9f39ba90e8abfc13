//! `record FILE` records a session at two terminals and writes it as an animated picture: hold, look, gdb, release.
//! Real programs print all visible text. Only two things are changed: the pauses, for the reader, and the name of the
//! temporary folder.
//!
//! `cargo run -p gantry-tests --bin record -- docs/src/session.svg`
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it says what it has written, and extends PATH"
)]

mod svg;

use std::fs;
use std::time::Duration;

use gantry_tests::{SOON, Terminal, World, binaries, eventually};

use self::svg::{Frame, draw};

const COLUMNS: u16 = 78;
/// Replaces the temporary folder in the picture.
const SHOWN_FOLDER: &str = "/home/me/run";
const ROWS: [u16; 2] = [10, 18];

/// Times that a reader needs.
const TYPED: Duration = Duration::from_millis(110);
const READ: Duration = Duration::from_millis(1500);
const LONG: Duration = Duration::from_millis(2600);

/// The ranks' program.
const SOLVER: &str = "#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    int steps = 400;
    printf(\"rank %s: %d steps\\n\", getenv(\"GANTRY_RANK\"), steps);
    return 0;
}
";

/// Both terminals, and their content so far.
struct Session {
    panes: [Terminal; 2],
    frames: Vec<Frame>,
    /// The temporary folder as programs print it.
    folder: String,
}

impl Session {
    fn begin(world: &World) -> Self {
        let programs = binaries().dir.display();
        let folder = world.work_dir();
        let folder = folder.to_str().expect("a temporary folder with a plain name");
        // Lines break where they would with the name that is shown.
        let longer = u16::try_from(folder.len().saturating_sub(SHOWN_FOLDER.len())).unwrap_or(u16::MAX);
        let panes = ROWS.map(|rows| {
            let mut shell = world.command_in_our_group("/bin/bash");
            let path = std::env::var("PATH").unwrap_or_default();
            shell
                .args(["--norc", "--noprofile", "-i"])
                .env("PATH", format!("{programs}:{path}"))
                .env("PS1", "$ ");
            shell
                .env("TERM", "xterm")
                .env("NO_COLOR", "1")
                .env("INPUTRC", world.work_dir().join("inputrc"))
                .env("HOME", world.work_dir())
                .env_remove("DEBUGINFOD_URLS");
            let pane = world.terminal_sized(shell, COLUMNS.saturating_add(longer), rows);
            pane.wait_text("$", SOON);
            pane
        });
        Self { panes, frames: Vec::new(), folder: folder.to_owned() }
    }

    /// Records the screens for this long.
    fn keep(&mut self, time: Duration) {
        let screens = [0, 1].map(|pane| {
            let text = self.panes[pane].text().replace(&self.folder, SHOWN_FOLDER);
            let lines: Vec<&str> = text.lines().collect();
            let first = lines.len().saturating_sub(ROWS[pane].into());
            lines[first..].iter().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
        });
        match self.frames.last_mut() {
            Some(last) if last.screens == screens => last.time += time,
            _ => self.frames.push(Frame { screens, time }),
        }
    }

    /// Types words as a person does, and Enter.
    fn type_line(&mut self, pane: usize, line: &str) {
        for word in line.split_inclusive(' ') {
            let before = self.panes[pane].bytes().len();
            self.panes[pane].type_text(word);
            eventually(SOON, "an echo", || self.panes[pane].bytes().len() >= before + word.len());
            self.keep(TYPED);
        }
        self.keep(TYPED);
        self.panes[pane].type_text("\n");
    }

    /// Waits for a text, in gdb for the prompt below it, and records the screens then for this long.
    fn wait(&mut self, pane: usize, text: &str, time: Duration) -> String {
        let is_asked = |seen: &str| pane == 0 || seen.trim_end().ends_with("(gdb)");
        let seen = self.panes[pane].wait_for(text, SOON, |seen| seen.contains(text) && is_asked(seen));
        self.keep(time);
        seen
    }
}

fn main() {
    let file = std::env::args().nth(1).expect("the name of a file");
    let world = World::new();
    fs::write(world.work_dir().join("solver.c"), SOLVER).expect("a file");
    let compiled = world.command("cc").args(["-g", "-o", "solver", "solver.c"]).status();
    assert!(compiled.is_ok_and(|status| status.success()), "cc fails");
    // Leave out the marks around pasted text.
    fs::write(world.work_dir().join("inputrc"), "set enable-bracketed-paste off\n").expect("a file");
    // Without debug information of the system's libraries, because not every machine has it.
    fs::write(world.work_dir().join(".gdbinit"), "set debug-file-directory /nonexistent\n").expect("a file");
    let mut session = Session::begin(&world);
    session.keep(READ);

    session.type_line(0, "gantry launch --hold -n 4 ./solver");
    session.wait(0, "Enter", Duration::ZERO);
    let table = session.wait(0, "3  ", LONG);
    let pid = table.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("2")).then(|| words.nth(1)).flatten().map(str::to_owned)
    });
    let pid = pid.unwrap_or_else(|| panic!("no rank 2 in\n{table}"));
    session.type_line(1, &format!("gdb -q -p {pid} -ex 'handle SIGSTOP nostop noprint nopass'"));
    session.wait(1, "(gdb)", READ);
    session.type_line(1, "break main");
    session.wait(1, "Breakpoint 1 at", READ);
    session.type_line(1, "continue");
    session.wait(1, "Breakpoint 1, main", LONG);
    session.type_line(1, "next");
    session.wait(1, "printf", READ);
    session.type_line(1, "print steps");
    session.wait(1, "$1 =", LONG);
    session.type_line(1, "detach");
    session.wait(1, "detached", READ);
    session.panes[0].type_text("\n");
    session.panes[0].wait_text("released", SOON);
    // In any order.
    for rank in 0..4 {
        session.panes[0].wait_text(&format!("rank {rank}:"), SOON);
    }
    session.keep(2 * LONG);

    let picture = draw(&session.frames, COLUMNS.into(), ROWS.map(usize::from));
    fs::write(&file, &picture).expect("the file");
    println!("{file}: {} bytes, {} frames", picture.len(), session.frames.len());
    session.panes[1].type_text("quit\n");
    drop(session);
    world.finish();
}
