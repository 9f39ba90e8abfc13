//! `cargo record` makes the picture in the README from a real session.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use gantry_tests::documents::is_like;
use gantry_tests::{World, binaries, require, tool, within};

const LIMIT: Duration = Duration::from_secs(120);

/// The width of the picture's terminals.
const COLUMNS: usize = 78;

/// All lines of text in the frames of a picture.
fn lines_of(picture: &str) -> BTreeSet<String> {
    let texts = picture.lines().filter_map(|line| line.strip_prefix("<text ")?.strip_suffix("</text>"));
    let texts = texts.filter_map(|text| text.split_once('>').map(|(_, text)| text));
    texts.map(|text| text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")).collect()
}

/// The lines without machine-specific parts: typed lines, and gantry's answers.
fn typed_and_said(lines: &BTreeSet<String>) -> Vec<&String> {
    let begins = |line: &&String| ["$ ", "(gdb) ", "gantry: "].iter().any(|begin| line.starts_with(begin));
    lines.iter().filter(begins).collect()
}

#[test]
fn the_recorder_shows_the_session_of_the_readme_and_no_temporary_folder() {
    require!(tool("gdb"));
    require!(tool("cc"));
    within(LIMIT, || {
        let world = World::new();
        let file = world.work_dir().join("session.svg");
        let mut record = world.command(binaries().dir.join("record"));
        record.arg(&file).env("GANTRY_BIN_DIR", &binaries().dir);
        let made = world.spawn(record).wait(LIMIT);
        assert_eq!(made.code(), 0, "{made:?}");
        let lines = lines_of(&fs::read_to_string(&file).expect("a picture"));
        for text in [
            "$ gantry launch --hold -n 4 ./solver",
            "gantry: held: press Enter to release",
            "held   /home/me/run/solver",
            "Reading symbols from /home/me/run/solver...",
            "Breakpoint 1, main () at solver.c:6",
            "$1 = 400",
            "Detaching from program: /home/me/run/solver, process ",
            "gantry: released",
            "rank 0: 400 steps",
            "rank 3: 400 steps",
        ] {
            assert!(lines.iter().any(|line| line.contains(text)), "no {text:?} in {lines:#?}");
        }
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/session.svg");
        let kept = lines_of(&fs::read_to_string(kept).expect("the picture of the README"));
        let folder = std::env::temp_dir().display().to_string();
        for line in lines.union(&kept) {
            assert!(!line.contains(&folder) && !line.contains("gantry-t-"), "a temporary folder: {line}");
            assert!(!line.contains("/debug"), "debug information of this machine: {line}");
            assert!(line.chars().count() <= COLUMNS, "too long for the picture: {line}");
        }

        for (from, to) in [(&kept, &lines), (&lines, &kept)] {
            for line in typed_and_said(from) {
                let is_there = to.iter().any(|other| is_like(line, other));
                assert!(
                    is_there,
                    "the README's picture is old ({line}); run: cargo record docs/src/session.svg"
                );
            }
        }
        world.finish();
    });
}
