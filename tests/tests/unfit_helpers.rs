//! Helpers that are missing, of another build, or something else. Each must cause an immediate error that names the cause
//! and the remedy, and leave nothing running.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gantry_shared::wire::build::{PROTOCOL_VERSION, describe};
use gantry_shared::wire::frame;
use gantry_tests::fault::{Tool, check, check_error};
use gantry_tests::{World, binaries, within};
use gantry_types::id::Pid;

const LIMIT: Duration = Duration::from_secs(90);

/// Makes a folder with a copy of the tool and of the named helpers.
fn installation(world: &World, helpers: &[&str]) -> PathBuf {
    let folder = world.work_dir().join("installed");
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in ["fault_tool"].iter().chain(helpers) {
        copy(&binaries().dir.join(name), &folder.join(name));
    }
    folder
}

/// Copies in a child process, for the reason given at [`World::executable`].
fn copy(from: &Path, to: &Path) {
    #[expect(clippy::disallowed_methods, reason = "a test starts foreign programs")]
    let copied = Command::new("cp").arg(from).arg(to).status().expect("cp");
    assert!(copied.success());
}

fn installed_tool(world: &World, folder: &Path) -> Tool {
    Tool::spawn(world, world.command(folder.join("fault_tool")))
}

#[test]
fn a_helper_that_is_missing_is_named_with_where_it_was_looked_for() {
    within(LIMIT, || {
        for (there, missing) in [(&[][..], "gantry-guard"), (&["gantry-guard"], "gantry-agent")] {
            let world = World::new();
            let folder = installation(&world, there);
            let mut tool = installed_tool(&world, &folder);
            let looked_for = folder.join(missing).display().to_string();
            let text = format!("{missing} was not found");
            check(&mut tool, &world, "hold /bin/true", "not-found", &text, &looked_for);
            check(&mut tool, &world, "launch /bin/true", "not-found", &text, "set GANTRY_INSTALL_DIR");
            // With the variable set, the helper is found.
            let mut command = world.command(folder.join("fault_tool"));
            command.env("GANTRY_INSTALL_DIR", &binaries().dir);
            let mut tool = Tool::spawn(&world, command);
            tool.ask("hold /bin/true");
            tool.ask("close");
        }
    });
}

/// Changes the version number inside the program. Returns the new one.
fn patch_version(program: &Path, world: &World) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let digit = if version.ends_with('9') { '8' } else { '9' };
    let other = format!("{}{digit}", &version[..version.len() - 1]);
    let mut bytes = std::fs::read(program).expect("the program");
    let places: Vec<usize> = bytes
        .windows(version.len())
        .enumerate()
        .filter(|(_, part)| *part == version.as_bytes())
        .map(|(at, _)| at)
        .collect();
    for at in places {
        bytes[at..at + version.len()].copy_from_slice(other.as_bytes());
    }
    let patched = world.executable("patched", &bytes);
    std::fs::rename(patched, program).expect("a rename");
    other
}

#[test]
fn a_guard_of_another_version_is_refused() {
    within(LIMIT, || {
        let world = World::new();
        let folder = installation(&world, &["gantry-guard", "gantry-agent"]);
        let other = patch_version(&folder.join("gantry-guard"), &world);
        let mut tool = installed_tool(&world, &folder);
        let text =
            format!("is version {other} (protocol {PROTOCOL_VERSION}), this library is {}", describe());
        check(&mut tool, &world, "hold /bin/true", "unsupported", &text, "from one version");
    });
}

/// The guard's first message, of a build that told its release only.
#[derive(serde::Serialize)]
enum FromGuard {
    Hello { release: &'static str, pid: Pid },
}

#[test]
fn a_guard_of_another_build_of_this_version_is_refused() {
    within(LIMIT, || {
        let world = World::new();
        let folder = installation(&world, &["gantry-guard", "gantry-agent"]);
        let hello = FromGuard::Hello { release: env!("CARGO_PKG_VERSION"), pid: Pid::new(1).expect("a pid") };
        let said = world.executable("hello", &frame::encode(&hello).expect("a frame"));
        let script = format!("#!/bin/sh\ncat {} >&0\ncat >/dev/null\n", said.display());
        let guard = world.executable("other", script.as_bytes());
        std::fs::rename(guard, folder.join("gantry-guard")).expect("a rename");
        let mut tool = installed_tool(&world, &folder);
        let text = format!("is version {}, this library is {}", env!("CARGO_PKG_VERSION"), describe());
        check(&mut tool, &world, "hold /bin/true", "unsupported", &text, "from one version");
    });
}

#[test]
fn an_agent_of_another_version_is_refused() {
    within(LIMIT, || {
        let world = World::new();
        let folder = installation(&world, &["gantry-guard", "gantry-agent"]);
        let other = patch_version(&folder.join("gantry-agent"), &world);
        let mut tool = installed_tool(&world, &folder);
        let text = format!("the frontend is version {}, this agent is {other}", env!("CARGO_PKG_VERSION"));
        check(&mut tool, &world, "hold /bin/true", "unsupported", &text, "from one version");
        check(&mut tool, &world, "hold -N 3 -n 3 /bin/true", "unsupported", &text, "from one version");
    });
}

#[test]
fn a_helper_that_is_something_else_is_refused() {
    within(LIMIT, || {
        let cases: [(&str, &[u8], &str); 4] = [
            ("gantry-guard", b"#!/bin/sh\nexit 0\n", "ended without a message"),
            (
                "gantry-guard",
                b"#!/bin/sh\necho hello there, I am not a guard >&0\ncat >/dev/null\n",
                "it is not a guard",
            ),
            ("gantry-agent", b"#!/bin/sh\necho I am no agent >&2\nexit 3\n", "I am no agent"),
            ("gantry-agent", b"#!/bin/sh\nexit 3\n", "ended before it reported: exit code 3"),
        ];
        for (name, script, text) in cases {
            let world = World::new();
            let folder = installation(&world, &["gantry-guard", "gantry-agent"]);
            std::fs::rename(world.executable("other", script), folder.join(name)).expect("a rename");
            let mut tool = installed_tool(&world, &folder);
            check(&mut tool, &world, "hold -n 2 /bin/true", "unsupported", text, "from one version");
        }
    });
}

#[test]
fn a_helper_that_cannot_be_executed_is_refused() {
    within(LIMIT, || {
        for name in ["gantry-guard", "gantry-agent"] {
            let world = World::new();
            let folder = installation(&world, &["gantry-guard", "gantry-agent"]);
            std::fs::remove_file(folder.join(name)).expect("the helper");
            std::fs::write(folder.join(name), "no program").expect("a file");
            let mut tool = installed_tool(&world, &folder);
            let error = check_error(&mut tool, "hold /bin/true", "no-access", name, "executed");
            assert!(error["message"].as_str().is_some_and(|text| text.contains("denied")), "{error}");
            tool.assert_alone(&world);
        }
    });
}
