//! Only missing files are sent to nodes. Tested with real agents, in roots that lack files of this machine.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_tests::fault::agents;
use gantry_tests::{
    Finished, OtherRoot, Run, World, copy_program, in_another_root, proc, programs, require, tool, within,
    write_executable,
};
use nix::sys::signal::Signal;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(60);
const LIMIT: Duration = OtherRoot::LIMIT;

/// A rank that does nothing, on a node that has no files.
const RANK: [&str; 6] = ["--", "-n", "1", "/bin/sh", "-c", ":"];

/// Launches an app whose ranks are held until its daemons have ended. Returns the events.
fn launch<A: AsRef<OsStr>>(world: &World, other: &OtherRoot, args: impl IntoIterator<Item = A>) -> Finished {
    let mut command = other.gantry_command(world, ["launch", "--json", "--hold-for-daemons"]);
    command.args(args).args(RANK);
    let done = world.spawn(command).wait(SOON);
    assert_eq!(done.code(), 0, "{done:?}");
    done
}

fn of_kind(done: &Finished, kind: &str) -> Vec<Value> {
    done.events().into_iter().filter(|event| event["event"] == kind).collect()
}

/// All output of the daemons.
fn output(done: &Finished) -> String {
    of_kind(done, "output").iter().filter_map(|event| event["text"].as_str()).collect()
}

fn number(event: &Value, key: &str) -> u64 {
    event[key].as_u64().unwrap_or_else(|| panic!("{event} has no {key}"))
}

#[test]
fn a_debugger_comes_with_its_libraries_and_only_once() {
    let _gdb = require!(tool("gdb"));
    in_another_root!(|world, other| {
        let gdb = tool("gdb").unwrap();
        let libraries = libraries_of(world, &gdb);
        let daemon = "gdb --batch -nx --version";
        // Debian's gdb contains a Python, which looks for its library beside itself.
        let library = system_python().map(|(_, library)| library.to_str().unwrap().to_owned());
        let library = library.iter().flat_map(|library| ["--dir", library]);
        let done = launch(world, other, library.chain(["--daemon", daemon, "--daemon", daemon]));
        assert_eq!(output(&done).matches("GNU gdb").count(), 2, "{done:?}");

        let staged = of_kind(&done, "staged");
        assert_eq!(staged.len(), 1, "the second daemon has nothing left to send: {staged:?}");
        let sent = number(&staged[0], "files_sent");
        // The node has some of the libraries for its own shell and agent.
        assert!(sent > libraries / 2, "{sent} files for {libraries} libraries");
        assert!(number(&staged[0], "bytes_sent") > fs::metadata(gdb).unwrap().len());
        assert_eq!(number(&staged[0], "nodes"), 1);

        let steps = of_kind(&done, "staging");
        let bytes: Vec<u64> = steps.iter().map(|step| number(step, "bytes")).collect();
        assert!(bytes.is_sorted() && bytes.len() >= 2, "{bytes:?}");
        assert_eq!(bytes.last(), Some(&number(&steps[0], "total_bytes")));
        assert!(steps.iter().all(|step| number(step, "files") == sent));
    });
}

fn libraries_of(world: &World, program: &Path) -> u64 {
    let listed = world.start(&tool("ldd").unwrap(), [program]).wait(SOON);
    listed.stdout.iter().filter(|line| line.contains("=> /")).count() as u64
}

#[test]
fn a_node_that_has_everything_is_sent_nothing() {
    let gdb = require!(tool("gdb"));
    within(LIMIT, move || {
        let world = World::new();
        let daemon = format!("{} --batch -nx --version", gdb.display());
        let args = ["launch", "--json", "--hold-for-daemons", "--daemon", &daemon];
        let done = world.gantry(args.iter().chain(&RANK)).wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
        assert!(output(&done).contains("GNU gdb"), "{done:?}");
        assert_eq!((of_kind(&done, "staging"), of_kind(&done, "staged")), (vec![], vec![]));
        world.finish();
    });
}

#[test]
fn a_script_comes_with_its_interpreter_and_a_directory_stays_as_it_is() {
    let _python = require!(system_python());
    in_another_root!(|world, other| {
        let (python, library) = system_python().unwrap();
        let script = other.hidden().join("tool.py");
        let text = format!(
            "#!{}\nimport json, sys\nprint(json.dumps({{'from': json.__file__, 'arg': sys.argv[1]}}))\n",
            python.display()
        );
        write_executable(&script, &text);
        let daemon = format!("{} word", script.display());
        let done = launch(world, other, ["--dir", library.to_str().unwrap(), "--daemon", &daemon]);
        let said: Value = serde_json::from_str(output(&done).trim()).unwrap_or_else(|_| panic!("{done:?}"));
        assert_eq!(said["arg"], "word");
        let from = said["from"].as_str().unwrap();
        assert!(from.starts_with(world.stage_dir().to_str().unwrap()), "{from}");
    });
}

/// The system's Python and the folder of its library, which has the same name.
fn system_python() -> Result<(PathBuf, PathBuf), String> {
    let python =
        fs::canonicalize("/usr/bin/python3").map_err(|_| "there is no /usr/bin/python3".to_owned())?;
    let library = Path::new("/usr/lib").join(python.file_name().unwrap_or_default());
    match library.join("os.py").is_file() {
        true => Ok((python, library)),
        false => Err(format!("{} has no library in {}", python.display(), library.display())),
    }
}

#[test]
fn a_program_that_needs_a_newer_c_library_than_the_nodes_runs_with_its_own() {
    let _tool = require!(programs::get_as("needs_new_libc", programs::Link::Pie));
    in_another_root!(|world, other| {
        let tool = programs::get("needs_new_libc");
        let daemon = tool.to_str().unwrap();
        // On a node with a C library as new as ours, the program runs unchanged.
        let done = launch(world, other, ["--daemon", daemon]);
        assert!(output(&done).contains("random"), "{done:?}");
        let as_new = number(&of_kind(&done, "staged")[0], "files_sent");
        assert_eq!(as_new, 1, "its C library is not sent");

        other.age_libc("GLIBC_2.36");
        let done = launch(world, other, ["--daemon", daemon]);
        assert!(output(&done).contains("random"), "{done:?}");
        let as_old = number(&of_kind(&done, "staged")[0], "files_sent");
        assert!(as_old > as_new + 1, "{as_old}: the loader and the C library are sent too");
    });
}

/// The file has the same path and content there, and its owner could exchange it for another one at any time.
#[test]
fn a_node_executes_no_file_of_another_user_in_place_of_a_sent_one() {
    in_another_root!(|world, other| {
        let folder = other.hidden().join("tools");
        fs::create_dir(&folder).unwrap();
        let tool = folder.join("tool.sh");
        write_executable(&tool, "#!/bin/sh\n[ -L \"$0\" ] && echo linked || echo sent\n");
        let there = other.inside(&folder);
        fs::create_dir_all(&there).unwrap();
        copy_program(&tool, there.join("tool.sh"));
        let check = |owner: u32, mode: u32, expected: &str| {
            std::os::unix::fs::chown(&there, Some(owner), None).unwrap();
            fs::set_permissions(there.parent().unwrap(), PermissionsExt::from_mode(mode)).unwrap();
            let done = launch(world, other, [OsStr::new("--daemon"), tool.as_os_str()]);
            assert_eq!(output(&done), expected, "{done:?}");
        };
        check(0, 0o1777, "linked\n");
        check(65533, 0o1777, "sent\n");
        // Root has given this user the folder, such as an account that owns a site's software.
        check(65533, 0o755, "linked\n");
    });
}

#[test]
fn a_file_that_several_nodes_lack_is_sent_once() {
    in_another_root!(|world, other| {
        let tool = other.hidden().join("tool.sh");
        write_executable(&tool, "#!/bin/sh\necho I came\n");
        let mut command = other.gantry_command(world, ["launch", "--json", "--hold-for-daemons", "--daemon"]);
        command.arg(&tool).args(["--", "-N", "5", "-n", "5", "/bin/sh", "-c", ":"]);
        let done = world.spawn(command).wait(SOON);
        assert_eq!((done.code(), output(&done).matches("I came").count()), (0, 5), "{done:?}");
        let staged = of_kind(&done, "staged");
        let told = ["nodes", "files_sent", "files_linked", "bytes_sent"].map(|key| number(&staged[0], key));
        // The header, the content and the end of the archive. The node has the shell.
        assert_eq!(told, [5, 1, 1, 512 + 512 + 1024], "{staged:?}");
    });
}

/// Two nodes each have one of three files at its path. They run a daemon that checks all three. Returns the daemons'
/// output. The nodes have separate stage directories, or share one.
#[track_caller]
fn look_at_three_files(world: &World, other: &OtherRoot, own_stage: bool) -> Vec<String> {
    let here = other.hidden();
    for name in ["x", "y", "z"] {
        fs::write(here.join(name), name.repeat(99_999) + "\n").unwrap();
    }
    let tool = here.join("tool.sh");
    let text = "#!/bin/sh\ncd \"$GANTRY_SESSION_DIR\"\nfor it in x y z; do\n\
            [ -L $it ] && how=own || how=sent\nread all < $it\ncase $all in *[!$it]*) how=wrong ;; esac\n\
            told=\"$told$it $how ${#all} \"\ndone\necho $told\n";
    write_executable(&tool, text);
    // Each node gets its own mount at the path of the files.
    other.mount(here.to_str().unwrap(), "size=4m,mode=0755");
    if own_stage {
        other.mount(world.stage_dir().to_str().unwrap(), "size=4m,mode=0700");
    }
    let mut command = other.gantry_command(world, ["launch", "--json", "--hold", "--"]);
    command.args(["-N", "2", "-n", "2", "/bin/sh", "-c", ":"]);
    let mut app = world.spawn(command);
    let name = app.next_event("held", SOON)["app"].as_str().unwrap().to_owned();
    let agents = agents(world);
    assert_eq!(agents.len(), 2);
    for (agent, name) in agents.iter().zip(["x", "y"]) {
        let path = here.join(name);
        fs::copy(&path, format!("/proc/{agent}/root{}", path.display())).unwrap();
    }
    let mut command = other.gantry_command(world, ["daemon", "--json", &name]);
    for name in ["x", "y", "z"] {
        command.arg("--file").arg(here.join(name));
    }
    command.arg("--").arg(&tool);
    let done = world.spawn(command).wait(SOON);
    let mut said: Vec<String> = output(&done).lines().map(str::to_owned).collect();
    said.sort_unstable();
    let staged = of_kind(&done, "staged");
    let told = ["nodes", "files_sent", "bytes_sent"].map(|key| number(&staged[0], key));
    // Three files and the script, each with a header, and the end of the archive.
    assert_eq!(told, [2, 4, 3 * (512 + 100_352) + 2 * 512 + 1024], "{staged:?}");
    app.kill();
    app.exited(SOON);
    world.assert_nothing_left();
    said
}

#[test]
fn each_node_takes_its_own_missing_files_and_all_are_sent_once() {
    in_another_root!(|world, other| {
        let said = look_at_three_files(world, other, true);
        assert_eq!(said, ["x own 99999 y sent 99999 z sent 99999", "x sent 99999 y own 99999 z sent 99999"]);
    });
}

/// A link to the file of one node would be wrong on the other node.
#[test]
fn nodes_that_share_only_a_stage_directory_have_the_sent_files() {
    in_another_root!(|world, other| {
        let said = look_at_three_files(world, other, false);
        assert_eq!(said, ["x sent 99999 y sent 99999 z sent 99999"; 2]);
    });
}

#[test]
fn one_content_under_several_names_leaves_here_once_and_each_name_has_a_file_of_its_own() {
    in_another_root!(|world, other| {
        let here = other.hidden();
        let content = format!("the same\n{}", "x".repeat(100_000 - 9));
        fs::create_dir(here.join("tree")).unwrap();
        fs::write(here.join("one"), &content).unwrap();
        write_executable(&here.join("two"), &content);
        fs::write(here.join("tree/three"), &content).unwrap();
        let tool = here.join("tool.sh");
        let text = "#!/bin/sh\ncd \"$GANTRY_SESSION_DIR\"\ntest ! -x one && test -x two && echo modes\n\
            echo changed > one\nread two < two\nread three < lib/tree/three\necho $two, $three\n";
        write_executable(&tool, text);
        let options = [("--file", "one"), ("--file", "two"), ("--dir", "tree"), ("--daemon", "tool.sh")];
        let options = options.map(|(option, name)| [OsStr::new(option).to_owned(), here.join(name).into()]);
        let done = launch(world, other, options.into_iter().flatten());
        assert_eq!(output(&done), "modes\nthe same, the same\n", "{done:?}");
        let staged = of_kind(&done, "staged");
        let told = ["files_sent", "bytes_sent"].map(|key| number(&staged[0], key));
        // The script and the content, each with a header. One header for each further name, and the end of the
        // archive.
        assert_eq!(told, [4, 512 + 512 + 512 + 100_352 + 2 * 512 + 1024], "{staged:?}");
    });
}

#[test]
fn a_content_that_the_session_has_is_not_sent_again_under_another_name() {
    in_another_root!(|world, other| {
        let here = other.hidden();
        let text = "#!/bin/sh\nme=${0##*/}\necho I am $me\n\
            [ $me = one ] || [ \"$0\" -ef \"${0%/*}/one\" ] || echo and not one\n";
        write_executable(&here.join("one"), text);
        write_executable(&here.join("two"), text);
        let daemons = [here.join("one"), here.join("two")];
        let daemons = daemons.iter().flat_map(|daemon| [OsStr::new("--daemon"), daemon.as_os_str()]);
        let done = launch(world, other, daemons);
        let mut said: Vec<String> = output(&done).lines().map(str::to_owned).collect();
        said.sort_unstable();
        assert_eq!(said, ["I am one", "I am two", "and not one"], "{done:?}");
        let staged = of_kind(&done, "staged");
        let told: Vec<_> = staged.iter().map(|it| number(it, "files_sent")).collect();
        assert_eq!(told, [1], "the second name costs nothing: {staged:?}");
    });
}

/// A file that is large enough to be in transit for some time.
fn big_file(other: &OtherRoot) -> PathBuf {
    let big = other.hidden().join("big");
    fs::File::create(&big).unwrap().set_len(400_000_000).unwrap();
    big
}

/// Launches an app with a big file, and waits until the file is in transit.
fn send_much(world: &World, other: &OtherRoot) -> (Run, PathBuf) {
    let big = big_file(other);
    let args = ["launch", "--json", "--hold-for-daemons", "--daemon", "sh -c :", "--file"];
    let mut command = other.gantry_command(world, args);
    command.arg(&big).args(RANK);
    let mut run = world.spawn(command);
    run.next_event("staging", SOON);
    (run, big)
}

#[test]
fn a_file_that_changes_on_its_way_comes_nowhere_and_is_named() {
    in_another_root!(|world, other| {
        let (mut run, big) = send_much(world, other);
        fs::File::options().write(true).open(&big).unwrap().set_len(1).unwrap();
        let done = run.wait(SOON);
        assert_ne!(done.code(), 0, "{done:?}");
        let told = of_kind(&done, "error").pop().expect("an error");
        let expected = format!("cannot send {}: it changed while it was being sent", big.display());
        assert_eq!(told["message"], expected.as_str());
        assert!(
            of_kind(&done, "staged").is_empty() && of_kind(&done, "daemon_started").is_empty(),
            "{done:?}"
        );
    });
}

#[test]
fn a_tool_that_is_killed_while_it_sends_leaves_nothing() {
    in_another_root!(|world, other| {
        let (mut run, _) = send_much(world, other);
        run.kill();
        run.exited(SOON);
        world.assert_nothing_left();
    });
}

#[test]
fn a_node_that_dies_while_files_are_on_their_way_is_named_and_the_others_can_be_sent_them_again() {
    in_another_root!(|world, other| {
        let mut command = other.gantry_command(world, ["launch", "--json", "--hold", "--"]);
        command.args(["-N", "4", "-n", "4", "/bin/sh", "-c", ":"]);
        let mut app = world.spawn(command);
        let held = app.next_event("held", SOON);
        let name = held["app"].as_str().unwrap().to_owned();
        let big = big_file(other);
        let daemon = || {
            let mut command = other.gantry_command(world, ["daemon", "--json", &name, "--file"]);
            command.arg(&big).args(["--", "sh", "-c", "echo I came"]);
            world.spawn(command)
        };
        let mut first = daemon();
        app.next_event("staging", SOON);
        let rank = i32::try_from(number(&held["ranks"][1], "pid")).unwrap();
        let agent = proc::stat(rank).unwrap().parent;
        proc::send(agent, Signal::SIGKILL);
        let done = first.wait(SOON);
        assert_ne!(done.code(), 0, "{done:?}");
        let told = of_kind(&done, "error").pop().expect("an error");
        assert_eq!(told["kind"], "lost", "{told}");
        let host = held["ranks"][1]["host"].as_str().unwrap();
        assert!(told["message"].as_str().unwrap().contains(host), "{told} does not name {host}");
        app.next_event("nodes_lost", SOON);
        let done = daemon().wait(SOON);
        assert_eq!((done.code(), output(&done).matches("I came").count()), (0, 3), "{done:?}");
        app.kill();
        app.exited(SOON);
        world.assert_nothing_left();
    });
}

#[test]
fn at_a_terminal_a_bar_shows_a_transfer_and_goes_at_its_end() {
    in_another_root!(|world, other| {
        let big = big_file(other);
        let args = ["launch", "--hold-for-daemons", "--daemon", "sh -c :", "--file"];
        let args = args.into_iter().chain([big.to_str().unwrap()]).chain(RANK);
        let mut terminal = other.terminal(world, args);
        terminal.wait_for("a bar", SOON, |text| {
            let bar = text.lines().find(|line| line.starts_with("sending 2 files to 1 node ["));
            bar.is_some_and(|bar| bar.contains("#.") && bar.ends_with("% of 381.5 MiB"))
        });
        assert_eq!(terminal.wait(SOON).code(), Some(0));
        let text = terminal.text();
        assert!(text.contains("gantry: sent 2 files (381.5 MiB) to 1 node"), "{text}");
        assert!(!text.contains("sending"), "{text}");
    });
}

#[test]
fn at_a_terminal_a_bar_shows_a_transfer_for_a_daemon_of_a_running_app() {
    in_another_root!(|world, other| {
        let big = big_file(other);
        let mut command = other.gantry_command(world, ["launch", "--json", "--hold"]);
        command.args(RANK);
        let mut app = world.spawn(command);
        let name = app.next_event("held", SOON)["app"].as_str().unwrap().to_owned();
        let args = |rest: &[&str]| {
            let args = [&["daemon", &name, "--file", big.to_str().unwrap()], rest, &["--", "/bin/sh", "-c"]]
                .concat();
            args.into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        let mut terminal = other.terminal(world, args(&[]).into_iter().chain(["echo I came".to_owned()]));
        terminal.wait_for("a bar", SOON, |text| {
            let bar = text.lines().find(|line| line.starts_with("sending 1 file to 1 node ["));
            bar.is_some_and(|bar| bar.contains("#.") && bar.ends_with("% of 381.4 MiB"))
        });
        assert_eq!(terminal.wait(SOON).code(), Some(0));
        let text = terminal.text();
        assert!(
            text.contains("gantry: sent 1 file (381.4 MiB) to 1 node") && text.contains("] I came"),
            "{text}"
        );
        assert!(!text.contains("sending"), "{text}");

        // With `--json`, also in the background, the same progress comes as events.
        for background in [&["--json"][..], &["--json", "--background"]] {
            let mut command = other.gantry_command(world, args(background));
            command.arg(":");
            let done = world.spawn(command).wait(SOON);
            assert_eq!(done.code(), 0, "{done:?}");
            let steps = of_kind(&done, "staging");
            let bytes: Vec<u64> = steps.iter().map(|step| number(step, "bytes")).collect();
            assert!(bytes.is_sorted() && bytes.len() >= 2, "{bytes:?}");
            assert_eq!(of_kind(&done, "staged").len(), 1, "{done:?}");
            assert_eq!(of_kind(&done, "daemon_started").len(), 1, "{done:?}");
            assert!(done.stderr.is_empty(), "{done:?}");
        }
        app.kill();
        app.exited(SOON);
        world.assert_nothing_left();
    });
}

#[test]
fn a_command_that_leaves_while_files_are_on_their_way_to_its_daemon_leaves_nothing() {
    in_another_root!(|world, other| {
        let mut command = other.gantry_command(world, ["launch", "--json", "--hold"]);
        command.args(RANK);
        let mut app = world.spawn(command);
        let name = app.next_event("held", SOON)["app"].as_str().unwrap().to_owned();
        let big = big_file(other);
        let mut command = other.gantry_command(world, ["daemon", "--json", &name, "--file"]);
        command.arg(&big).args(["--", "sh", "-c", ":"]);
        let mut daemon = world.spawn(command);
        let step = daemon.next_event("staging", SOON);
        assert!(number(&step, "bytes") < number(&step, "total_bytes"), "{step}");
        daemon.kill();
        daemon.exited(SOON);
        proc::eventually(SOON, "its session is removed", || sessions(world).is_empty());
        app.kill();
        app.exited(SOON);
        let told = of_kind(&app.wait(SOON), "daemon_started");
        assert!(told.is_empty(), "{told:?}");
        world.assert_nothing_left();
    });
}

/// Folders of sessions.
fn sessions(world: &World) -> Vec<PathBuf> {
    let below = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
    let is_session = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.strip_prefix('s').is_some_and(|number| number.parse::<u32>().is_ok())
    };
    below(world.stage_dir()).flat_map(below).filter(is_session).collect()
}

#[test]
fn two_libraries_of_one_name_come_to_the_daemons_that_they_belong_to() {
    let _compiler = require!(tool("cc"));
    in_another_root!(|world, other| {
        let here = other.hidden();
        for name in ["one", "two"] {
            let folder = here.join(name);
            fs::create_dir(&folder).unwrap();
            fs::write(
                folder.join("lib.c"),
                format!("const char *name(void) {{ return \"library {name}\"; }}\n"),
            )
            .unwrap();
            let text =
                "#include <stdio.h>\nconst char *name(void);\nint main(void) { puts(name()); return 0; }\n";
            fs::write(folder.join("tool.c"), text).unwrap();
            let make = |args: &[&str]| cc(world, &folder, args);
            make(&["-shared", "-fPIC", "-Wl,-soname,libsame.so.1", "-o", "libsame.so.1", "lib.c"]);
            let path = format!("-Wl,-rpath,{}", folder.display());
            make(&[&path, "-o", &format!("tool-{name}"), "tool.c", "libsame.so.1"]);
        }
        let daemons = ["one", "two", "one"].map(|name| here.join(name).join(format!("tool-{name}")));
        let done = launch(
            world,
            other,
            daemons.iter().flat_map(|daemon| [OsStr::new("--daemon"), daemon.as_os_str()]),
        );
        let said = output(&done);
        assert_eq!(
            (said.matches("library one").count(), said.matches("library two").count()),
            (2, 1),
            "{done:?}"
        );
        assert_eq!(of_kind(&done, "staged").len(), 2, "{done:?}");
    });
}

/// Runs the compiler in a folder.
fn cc(world: &World, folder: &Path, args: &[&str]) {
    let mut command = world.command(tool("cc").unwrap());
    command.args(args).current_dir(folder);
    let done = world.spawn(command).wait(SOON);
    assert_eq!(done.code(), 0, "{args:?}: {done:?}");
}

#[test]
fn a_plugin_is_found_beside_its_program_and_a_note_tells_the_sent_files() {
    let _compiler = require!(tool("cc"));
    in_another_root!(|world, other| {
        let here = other.hidden();
        let text = "#include <dlfcn.h>\n#include <stdio.h>\n\
            int main(void) { void *it = dlopen(\"plugin.so\", RTLD_NOW); puts(it ? \"found\" : dlerror()); return 0; }\n";
        fs::write(here.join("tool.c"), text).unwrap();
        fs::write(here.join("plugin.c"), "int plugin;\n").unwrap();
        fs::create_dir_all(here.join("plugins/deep")).unwrap();
        cc(world, here, &["-shared", "-fPIC", "-o", "plugins/deep/plugin.so", "plugin.c"]);
        std::os::unix::fs::symlink("deep/plugin.so", here.join("plugins/plugin.so")).unwrap();
        fs::write(here.join("plugins/.hidden"), "too").unwrap();
        cc(world, here, &["-Wl,-rpath,$ORIGIN/../lib/plugins", "-o", "tool", "tool.c"]);
        let args = ["launch", "--hold-for-daemons", "--dir", "plugins", "--daemon", "./tool"];
        let mut command = other.gantry_command(world, args);
        command.args(RANK).current_dir(here);
        fs::create_dir_all(other.inside(here)).unwrap();
        let done = world.spawn(command).wait(SOON);
        assert!(done.stdout.iter().any(|line| line.ends_with("found")), "{done:?}");
        let sent =
            |line: &&String| line.starts_with("gantry: sent 4 files (") && line.ends_with(") to 1 node");
        assert!(done.stderr.iter().any(|line| sent(&line)), "{done:?}");
    });
}

#[test]
fn a_missing_library_is_named_with_its_needing_file_unless_allowed() {
    let _compiler = require!(tool("cc"));
    within(LIMIT, || {
        let world = World::new();
        let work = world.work_dir();
        let make = |args: &[&str]| cc(&world, &work, args);
        fs::write(work.join("lib.c"), "int there(void) { return 0; }\n").unwrap();
        fs::write(work.join("tool.c"), "int there(void);\nint main(void) { return there(); }\n").unwrap();
        make(&["-shared", "-fPIC", "-Wl,-soname,libgantry-gone.so.1", "-o", "libgone.so", "lib.c"]);
        make(&["-o", "tool", "tool.c", "libgone.so"]);
        let launch = |options: &[&str]| {
            let args = ["launch", "--hold-for-daemons"].iter().chain(options);
            world.gantry(args.chain(&["--daemon", "./tool"]).chain(&RANK)).wait(SOON)
        };
        let done = launch(&[]);
        let told = done.stderr.join("\n");
        assert_ne!(done.code(), 0, "{done:?}");
        for part in ["libgantry-gone.so.1", "work/tool", "hint:"] {
            assert!(told.contains(part), "{part:?} is not in {told}");
        }
        // A library that `--lib` names is sent, even if no search would find it.
        let library = work.join("libgantry-gone.so.1");
        fs::rename(work.join("libgone.so"), &library).unwrap();
        let done = launch(&["--lib", library.to_str().unwrap()]);
        assert_eq!(done.code(), 0, "{done:?}");
        fs::remove_file(&library).unwrap();
        // The daemon itself then reports the missing library.
        for option in ["--allow-missing", "--no-deps"] {
            let done = launch(&[option]);
            assert!(done.stderr.join("\n").contains("error while loading shared libraries"), "{done:?}");
        }
        world.finish();
    });
}
