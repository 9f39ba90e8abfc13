//! The commands in the documents must run as printed, and produce the page's output.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use gantry_tests::capi;
use gantry_tests::documents::{Block, Desk, REASONS, blocks, pages};
use gantry_tests::slurm::on_cluster_for;
use gantry_tests::testbed::Config;
use gantry_tests::{Run, SOON, World, proc, programs, within};

/// The timeout for all pages on one testbed.
const LIMIT: Duration = Duration::from_secs(240);

/// The testbeds that commands run on.
const BEDS: [&str; 3] = ["localhost", "slurm", "ssh"];

#[test]
fn every_block_of_commands_runs_or_says_why_not() {
    let all: Vec<_> = pages().iter().flat_map(|page| blocks(page)).collect();
    let commands: Vec<_> = all.iter().filter(|block| block.language() == "sh").collect();
    let is_marked = |block: &Block| match (block.mark("run"), block.mark("no-run")) {
        (Some(bed), None) => BEDS.contains(&bed),
        (None, Some(why)) => REASONS.iter().any(|(reason, _)| *reason == why),
        _ => false,
    };
    let wrong: Vec<String> =
        commands.iter().filter(|block| !is_marked(block)).map(|block| block.to_string()).collect();
    assert!(wrong.is_empty(), "without run=BED or no-run=REASON: {wrong:?}");
    for bed in BEDS {
        let count = commands.iter().filter(|block| block.mark("run") == Some(bed)).count();
        eprintln!("{count} blocks run on {bed}");
        assert!(count > 0, "nothing runs on {bed}");
    }
    for (reason, text) in REASONS {
        let left: Vec<String> = commands
            .iter()
            .filter(|block| block.mark("no-run") == Some(reason))
            .map(|block| block.to_string())
            .collect();
        eprintln!("{} blocks do not run, as {text}: {left:?}", left.len());
    }
}

/// A reader who has only the README must get this far.
#[test]
fn the_readme_leads_to_held_ranks_on_every_bed_and_shows_them() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let all = blocks(&readme);
    for bed in BEDS {
        let shows = |pair: &[Block]| {
            let [commands, output] = pair else { return false };
            let held = ["held", " T "].iter().any(|word| output.text.contains(word));
            commands.mark("run") == Some(bed)
                && commands.text.contains("--hold")
                && output.has("output")
                && held
        };
        assert!(all.windows(2).any(shows), "no held ranks on {bed}");
    }
}

/// The blocks of a language in all documents.
fn blocks_in(language: &str) -> Vec<Block> {
    pages().iter().flat_map(|page| blocks(page)).filter(|block| block.language() == language).collect()
}

/// The documentation tests of `gantry_tests::Documents` compile the pages.
#[test]
fn every_page_with_rust_is_compiled() {
    let compiled = include_str!("../src/lib.rs");
    let rust = blocks_in("rust");
    assert!(!rust.is_empty());
    for block in rust {
        let page = block.page.display().to_string();
        let name = page.rsplit_once("/docs/").map_or(page.as_str(), |(_, name)| name);
        assert!(compiled.contains(&format!("docs/{name}\")]")), "{block} is in no documentation test");
    }
}

#[test]
fn every_block_of_c_compiles() {
    let c = blocks_in("c");
    assert!(!c.is_empty());
    within(LIMIT, move || {
        let world = World::new();
        let headers = format!("-I{}", capi::prefix().join("include").display());
        for (number, block) in c.iter().enumerate() {
            let source = world.work_dir().join(format!("block{number}.c"));
            std::fs::write(&source, &block.text).expect("a file");
            capi::compile(
                "cc",
                &source,
                &source.with_extension("o"),
                &["-c".into(), headers.as_str().into()],
            );
        }
        world.finish();
    });
}

#[test]
fn programs_in_the_documents_are_the_examples() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = 0;
    for block in pages().iter().flat_map(|page| blocks(page)) {
        let Some(file) = &block.file else { continue };
        let text = std::fs::read_to_string(root.join(file)).expect("the file that a block names");
        assert!(text.contains(&block.text), "{block} is not as in {file}");
        assert!(text.lines().count() <= 60, "{file} has {} lines", text.lines().count());
        found += 1;
    }
    assert!(found > 0);
}

#[test]
fn every_block_of_json_is_lines_of_json() {
    let json = blocks_in("json");
    assert!(!json.is_empty());
    for block in json {
        for line in block.text.lines() {
            assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{block}: {line}");
        }
    }
}

#[test]
fn commands_run_on_this_machine() {
    within(LIMIT, || {
        for page in pages() {
            let world = World::new();
            let desk = Desk::in_world(&world);
            let wrong = desk.run_page("localhost", &blocks(&page), || {
                let mut command = world.command_in_our_group("env");
                // Open MPI requires two variables to run as root. It also limits ranks to the number of CPUs.
                command.args([
                    "OMPI_ALLOW_RUN_AS_ROOT=1",
                    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                    "OMPI_MCA_rmaps_base_oversubscribe=1",
                ]);
                command
            });
            assert!(wrong.is_empty(), "{}", wrong.join("\n"));
            world.finish();
        }
    });
}

/// Runs the commands for one kind of cluster.
#[track_caller]
fn commands_run_on(bed: &'static str, variables: &'static [&'static str]) {
    on_cluster_for(LIMIT, Config::with_nodes(4), move |cluster| {
        let mut wrong = Vec::new();
        for page in pages() {
            let desk = Desk::on_cluster(cluster);
            wrong.extend(desk.run_page(bed, &blocks(&page), || cluster.user_command("documents", variables)));
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

#[test]
fn commands_run_on_slurm() {
    commands_run_on("slurm", &[]);
}

#[test]
fn commands_run_over_ssh() {
    commands_run_on("ssh", &["GANTRY_WLM=ssh"]);
}

/// Uses waiting programs as ranks. `start` starts a tool on them, which must print a line of each one's status.
#[track_caller]
fn shows_status_of_every_rank(start: impl FnOnce(&World, &str) -> Run + Send + 'static) {
    within(LIMIT, || {
        let world = World::new();
        let mut ranks: Vec<Run> =
            (0..3).map(|_| world.start(&programs::get("loop_forever"), [""; 0])).collect();
        let pids: Vec<String> = ranks.iter().map(|rank| rank.pid().to_string()).collect();
        let done = start(&world, &pids.join(",")).wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
        for rank in 0..3 {
            let begin = format!("rank {rank} on ");
            let line = done.stdout.iter().find(|line| line.starts_with(&begin));
            let line = line.unwrap_or_else(|| panic!("no rank {rank} in {done:?}"));
            assert!(
                line.contains("State:") && line.contains("VmRSS:") && line.contains("Threads:"),
                "{line}"
            );
        }
        for rank in &mut ranks {
            assert!(proc::stat(rank.pid()).is_some(), "the ranks go on");
            rank.kill();
            rank.exited(SOON);
        }
        world.finish();
    });
}

#[test]
fn the_tool_in_rust_reads_the_status_of_every_rank() {
    shows_status_of_every_rank(|world, target| world.example("rank_status", [target]));
}

#[test]
fn the_tool_in_c_reads_the_status_of_every_rank() {
    shows_status_of_every_rank(|world, target| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/c");
        let lib = capi::prefix().join("lib");
        let make = |name: &str, side: &str| {
            let made = world.work_dir().join(name);
            let include = capi::prefix().join("include");
            let args = [
                format!("-I{}", include.display()),
                format!("-L{}", lib.display()),
                format!("-lcommontools_{side}"),
            ];
            let args: Vec<OsString> = args.into_iter().map(OsString::from).collect();
            capi::compile("cc", &root.join(format!("{name}.c")), &made, &args);
            made
        };
        let mut command = world.command(make("rank_status", "fe"));
        command.arg(make("read_status", "be")).arg(target).env("LD_LIBRARY_PATH", &lib);
        world.spawn(command)
    });
}
