//! Python programs that hang, under each installed version of CPython: those in PATH and those of pyenv. Stacks show
//! Python functions between those of machine code.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]

use std::path::Path;
use std::time::{Duration, Instant};

use gantry_tests::programs::sources;
use gantry_tests::pythons::python;
use gantry_tests::{World, eventually, proc, skip, within};
use nix::sys::signal::Signal;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(240);

macro_rules! versions {
    ($($name:ident: $minor:literal;)*) => {
        $(
            #[test]
            fn $name() {
                match python($minor) {
                    Some(python) => check(&python),
                    None => skip!("Python 3.{} is not here", $minor),
                }
            }
        )*
    };
}

versions! {
    python_3_9: 9;
    python_3_10: 10;
    python_3_11: 11;
    python_3_12: 12;
    python_3_13: 13;
    python_3_14: 14;
}

/// The number of the source line with this mark.
fn line_of(text: &str, mark: &str) -> usize {
    1 + text.lines().position(|line| line.ends_with(&format!("# {mark}"))).unwrap()
}

fn check(python: &Path) {
    let python = python.to_path_buf();
    within(LIMIT, move || {
        let world = World::new();
        let script = sources().join("hung/waits.py");
        let text = std::fs::read_to_string(&script).unwrap();
        let (odd, others) = (line_of(&text, "odd"), line_of(&text, "others"));
        let words = ["launch", "--", "-n", "3", python.to_str().unwrap(), script.to_str().unwrap()];
        let mut run = world.gantry(words);
        let ranks = || -> Vec<i32> {
            let all = world.processes().into_iter();
            all.filter(|pid| proc::command_line(*pid).starts_with(python.to_str().unwrap())).collect()
        };
        eventually(SOON, "all ranks are there", || {
            run.stdout().iter().map(|line| line.matches("there").count()).sum::<usize>() == 3
        });
        let target = ranks().iter().map(i32::to_string).collect::<Vec<_>>().join(",");
        let until = Instant::now() + SOON;
        let why = loop {
            let why = world.gantry(["why", &target]).wait(SOON);
            let line = why.stdout.first().cloned().unwrap_or_default();
            if line.contains(&format!("called at waits.py:{odd} while 2 others wait in "))
                && line.ends_with(&format!("called at waits.py:{others}"))
            {
                break line;
            }
            if Instant::now() > until {
                let tree = world.gantry(["stack", "--full", &target]).wait(SOON);
                panic!("{why:?}\n{}", tree.stdout.join("\n"));
            }
        };
        assert!(why.starts_with("rank 1 waits in Py"), "{why}");
        // A function of the library runs the generator. A function of the script calls that function.
        let done = world.gantry(["stack", "--json", "--full", &target]).wait(SOON);
        let report: Value = serde_json::from_str(&done.stdout[0]).unwrap();
        let classes = report["classes"].as_array().unwrap();
        let of = |names: &[&str]| {
            let has = |class: &&Value| {
                let frames: Vec<&str> = class["frames"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter_map(|it| it["function"].as_str())
                    .collect();
                // Each function is called by the one before, with machine frames between.
                let mut ahead = frames.iter();
                names.iter().all(|name| ahead.any(|frame| frame == name))
            };
            classes.iter().filter(has).map(|class| class["rank_count"].as_u64().unwrap()).sum::<u64>()
        };
        assert_eq!(
            of(&["PyEval_EvalCode", "<module>", "main", "balance", "PySequence_Tuple", "entries"]),
            1,
            "{report:#}"
        );
        assert_eq!(of(&["PyEval_EvalCode", "<module>", "main", "wait_for_the_others"]), 2, "{report:#}");
        let tree = world.gantry(["stack", &target]).wait(SOON).stdout.join("\n");
        assert!(
            tree.contains(&format!("entries (waits.py:{odd}) > ")) && !tree.contains("_PyEval"),
            "{tree}"
        );
        proc::send_those_left(ranks(), Signal::SIGUSR1);
        let done = run.wait(SOON);
        let right = done.stdout.iter().filter(|line| line.ends_with("result 7")).count();
        assert_eq!((done.code(), right), (0, 3), "{done:?}");
        world.finish();
    });
}
