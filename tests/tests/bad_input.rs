//! User mistakes. Each must cause an immediate error that names the cause and the remedy, and leave nothing running.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gantry_frontend::{Input, LaunchRequest};
use gantry_tests::fault::{Tool, check, check_error, numbers};
use gantry_tests::proc::keep_from_ending;
use gantry_tests::{SOON, World, binaries, on_this_machine, programs, require, skip, tool, within};
use gantry_types::error::Kind;

const LIMIT: Duration = Duration::from_secs(90);

#[track_caller]
fn check_launches(cases: &[(String, &str, String, &str)]) {
    let world = World::new();
    let mut tool = Tool::start(&world);
    for (args, kind, text, hint) in cases {
        for how in ["hold", "launch"] {
            check(&mut tool, &world, &format!("{how} {args}"), kind, text, hint);
        }
    }
    // The tool still works.
    tool.ask("hold -n 2 /bin/true");
    tool.ask("close");
    tool.assert_alone(&world);
}

fn write(world: &World, name: &str, text: &str) -> String {
    let path = world.work_dir().join(name);
    std::fs::write(&path, text).expect("a file");
    path.display().to_string()
}

#[test]
fn a_program_that_is_not_there_is_named() {
    within(LIMIT, || {
        let in_path = "program no-such-program-here: it is not in PATH".to_owned();
        check_launches(&[
            ("no-such-program-here".to_owned(), "not-found", in_path.clone(), "give its path"),
            ("-n 4 no-such-program-here".to_owned(), "not-found", in_path, "give its path"),
            (
                "-n 64 /no/such/program".to_owned(),
                "not-found",
                "\"/no/such/program\": there is no such file".to_owned(),
                "path of a program",
            ),
            ("/bin/true/x".to_owned(), "not-found", "/bin/true/x".to_owned(), "path of a program"),
        ]);
    });
}

#[test]
fn a_program_that_cannot_be_executed_is_named_with_the_reason() {
    within(LIMIT, || {
        let files = World::new();
        let plain = write(&files, "plain", "not a program");
        let text = files.executable("text", b"echo no first line\n").display().to_string();
        let dos = files.executable("dos", b"#!/bin/sh\r\necho hello\r\n").display().to_string();
        let orphan = files.executable("orphan", b"#!/no/such/shell\n").display().to_string();
        let empty = files.executable("empty", b"").display().to_string();
        let foreign = programs::wrong_architecture().display().to_string();
        let folder = files.work_dir().display().to_string();
        check_launches(&[
            (plain.clone(), "no-access", "is not executable".to_owned(), "chmod +x"),
            (folder.clone(), "invalid", format!("{folder:?} is a directory"), "a program in it"),
            (format!("-n 4 {foreign}"), "unsupported", "is built for ".to_owned(), "for this node"),
            (text, "invalid", "neither an ELF file nor a script".to_owned(), "#!/bin/sh"),
            (dos, "not-found", "interpreter".to_owned(), "DOS line ends"),
            (
                orphan,
                "not-found",
                "its interpreter \"/no/such/shell\" is not there".to_owned(),
                "install the interpreter",
            ),
            (empty, "invalid", "an empty file".to_owned(), "#!/bin/sh"),
        ]);
    });
}

#[test]
fn invalid_arguments_are_refused_with_the_valid_ones() {
    within(LIMIT, || {
        let form = "options before the program: -N NODES, -n RANKS";
        let case = |args: &str, text: &str| (args.to_owned(), "invalid", text.to_owned(), form);
        check_launches(&[
            case("-n 0 /bin/true", "'-n 0': not a number from 1 to"),
            case("-n x /bin/true", "'-n x': not a number from 1 to"),
            case("-n -1 /bin/true", "'-n -1'"),
            case("-n 99999999999 /bin/true", "not a number from 1 to"),
            case("-N 0 /bin/true", "'-N 0'"),
            case("-n 4", "no program to launch"),
            case("", "no program to launch"),
            case("--no-such-option /bin/true", "unknown option '--no-such-option'"),
            case("--bind-to socket /bin/true", "'--bind-to socket'"),
            (
                "-n 1 /bin/true : -N 2 /bin/true".to_owned(),
                "invalid",
                "option '-N' is not one of a single program".to_owned(),
                "options for all programs stand before the first one",
            ),
            (
                "-N 3 -n 2 /bin/true".to_owned(),
                "invalid",
                "3 nodes for 2 ranks".to_owned(),
                "ask for fewer nodes, or for more ranks",
            ),
        ]);
    });
}

#[test]
fn a_directory_or_input_that_is_not_there_is_named() {
    on_this_machine(LIMIT, async |site| {
        let nowhere = site.world.work_dir().join("nowhere");
        let true_in = |cwd: &Path| LaunchRequest::new(["-n", "2", "/bin/true"]).cwd(cwd);
        let error = site.frontend().launch(true_in(&nowhere), SOON).await.expect_err("no directory");
        assert_eq!(error.kind(), Kind::NotFound, "{error}");
        assert!(error.to_string().contains(&format!("change to directory {nowhere:?}")), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("name a directory")), "{:?}", error.hint());
        let error =
            site.frontend().launch(true_in(Path::new("/bin/true")), SOON).await.expect_err("no directory");
        assert!(error.to_string().contains("change to directory"), "{error}");

        let reading = |path: PathBuf| LaunchRequest::new(["/bin/true"]).stdin(Input::File(path));
        let error = site.frontend().launch(reading(nowhere.clone()), SOON).await.expect_err("no input");
        assert_eq!(error.kind(), Kind::NotFound, "{error}");
        assert!(error.to_string().contains(&format!("cannot read {}", nowhere.display())), "{error}");
        let error = site.frontend().launch(reading(site.world.work_dir()), SOON).await.expect_err("no input");
        assert!(error.to_string().contains("directory"), "{error}");
        site.world.assert_nothing_left();
    });
}

#[test]
fn an_environment_string_without_a_value_is_refused() {
    within(LIMIT, || {
        let world = World::new();
        let mut tool = Tool::start(&world);
        check(
            &mut tool,
            &world,
            "env JUST_A_NAME",
            "invalid",
            "bad environment string 'JUST_A_NAME'",
            "write NAME=VALUE",
        );
        check(
            &mut tool,
            &world,
            "env =value",
            "invalid",
            "bad environment string '=value'",
            "write NAME=VALUE",
        );
        tool.ask("env NAME=");
    });
}

#[test]
fn an_unknown_workload_manager_is_refused_with_those_there_are() {
    within(LIMIT, || {
        for (variable, value) in
            [("FAULT_TOOL_WLM", "nowlm"), ("GANTRY_WLM", "nowlm"), ("CTI_WLM_IMPL", "nowlm")]
        {
            let world = World::new();
            let mut command = Tool::command(&world);
            command.env(variable, value);
            let mut tool = Tool::spawn(&world, command);
            check(
                &mut tool,
                &world,
                "hold /bin/true",
                "invalid",
                "no workload manager is named 'nowlm'",
                "localhost",
            );
        }
    });
}

/// Launches an app and asks for a session, which must fail because it cannot have storage. The app must still be
/// closable.
#[track_caller]
fn check_stage(world: &World, mut tool: Tool, kind: &str, text: &str, hint: &str) {
    tool.ask("hold -n 2 /bin/true");
    check_error(&mut tool, "session", kind, text, hint);
    tool.ask("release");
    assert_eq!(tool.event("exited")["code"], 0);
    tool.ask("close");
    tool.assert_alone(world);
}

#[test]
fn a_stage_directory_that_will_not_do_is_named_with_the_reason() {
    within(LIMIT, || {
        let world = World::new();
        let file = write(&world, "file", "");
        let cases = [
            ("/no/such/place", "not-found", "missing", "create the directory"),
            (file.as_str(), "invalid", "not a directory", "name a directory"),
            ("relative", "invalid", "not an absolute path", "absolute"),
        ];
        for (place, kind, reason, hint) in cases {
            for variable in ["FAULT_TOOL_STAGE", "GANTRY_STAGE_DIR"] {
                let mut command = Tool::command(&world);
                command.env(variable, place);
                let text = format!("use {place} (");
                check_stage(&world, Tool::spawn(&world, command), kind, &text, hint);
                let mut command = Tool::command(&world);
                command.env(variable, place);
                check_stage(&world, Tool::spawn(&world, command), kind, reason, hint);
            }
        }
    });
}

/// Runs the tool in its own mount namespace, with a file system with these options mounted on the stage directory.
fn tool_on_mount(world: &World, options: &str) -> Command {
    let mut command = world.command("unshare");
    let script = format!("mount -t tmpfs -o {options} none \"$GANTRY_STAGE_DIR\" && exec \"$0\"");
    command.args(["-m", "--propagation", "private", "/bin/sh", "-c", &script]);
    command.arg(binaries().dir.join("fault_tool"));
    command
}

/// Whether this machine allows mounts.
fn mounting() -> Result<(), String> {
    let unshare = tool("unshare")?;
    let world = World::new();
    let mut command = world.command(unshare);
    command.args(["-m", "/bin/sh", "-c", "mount -t tmpfs none \"$GANTRY_STAGE_DIR\""]);
    let finished = world.spawn(command).wait(SOON);
    if finished.status.success() {
        Ok(())
    } else {
        Err(format!("nothing can be mounted here: {:?}", finished.stderr))
    }
}

#[test]
fn a_stage_directory_on_a_noexec_file_system_is_refused() {
    require!(mounting());
    within(LIMIT, || {
        let world = World::new();
        let tool = Tool::spawn(&world, tool_on_mount(&world, "noexec"));
        check_stage(&world, tool, "unsupported", "for storage: mounted noexec", "without noexec");
    });
}

#[test]
fn a_stage_directory_on_a_read_only_file_system_is_refused() {
    require!(mounting());
    within(LIMIT, || {
        let world = World::new();
        let tool = Tool::spawn(&world, tool_on_mount(&world, "ro"));
        check_stage(&world, tool, "no-access", "for storage: not writable", "that you may write to");
    });
}

#[test]
fn a_stage_directory_that_is_full_is_named() {
    require!(mounting());
    within(LIMIT, || {
        let world = World::new();
        // Enough inodes for the directory itself and none for its contents.
        let tool = Tool::spawn(&world, tool_on_mount(&world, "nr_inodes=1"));
        check_stage(&world, tool, "system", "No space left on device", "free some space there");
    });
}

#[test]
fn a_full_directory_that_nobody_named_gives_way_to_the_next() {
    require!(mounting());
    within(LIMIT, || {
        // Full at the directory itself, and at the first byte of a file in it.
        for options in ["nr_inodes=1", "size=4k"] {
            let world = World::new();
            let mut command = world.command("unshare");
            let script = format!(
                "export TMPDIR=\"$GANTRY_STAGE_DIR\" && unset GANTRY_STAGE_DIR &&
                mount -t tmpfs -o {options} none \"$TMPDIR\" &&
                {{ head -c 4096 /dev/zero >\"$TMPDIR/filler\" || true; }} && exec \"$0\""
            );
            command.args(["-m", "--propagation", "private", "/bin/sh", "-c", &script]);
            command.arg(binaries().dir.join("fault_tool"));
            let mut tool = Tool::spawn(&world, command);
            tool.ask("hold -n 2 /bin/true");
            let root = PathBuf::from(tool.ask("session")["root"].as_str().expect("a path"));
            assert!(root.starts_with("/tmp") || root.starts_with("/var/tmp"), "{root:?}");
            tool.ask("release");
            assert_eq!(tool.event("exited")["code"], 0);
            tool.ask("close");
            tool.assert_alone(&world);
            assert!(!root.exists(), "{root:?} is still there");
        }
    });
}

/// Whether this machine allows the mounts of [`tool_on_hung_mount`].
fn hung_mounting() -> Result<(), String> {
    mounting()?;
    Path::new("/dev/fuse").exists().then_some(()).ok_or_else(|| "there is no /dev/fuse".to_owned())
}

/// Runs the tool in its own mount namespace. There the stage directory is a file system whose server never answers,
/// so every access to it hangs.
fn tool_on_hung_mount(world: &World) -> Command {
    let mut command = world.command("unshare");
    let options = "fd=9,rootmode=40000,user_id=0,group_id=0";
    let script = format!(
        "exec 9<>/dev/fuse && mount -i -t fuse -o {options} none \"$GANTRY_STAGE_DIR\" && exec \"$0\""
    );
    command.args(["-m", "--propagation", "private", "/bin/sh", "-c", &script]);
    command.arg(binaries().dir.join("fault_tool"));
    command
}

#[test]
fn a_file_system_that_hangs_holds_up_its_session_and_nothing_else() {
    require!(hung_mounting());
    within(LIMIT, || {
        let world = World::new();
        let mut command = tool_on_hung_mount(&world);
        // With radix 1, requests for the last node pass through the other nodes, which hang as well.
        command.env("FAULT_TOOL_RADIX", "1").env("FAULT_TOOL_SECONDS", "4");
        let mut tool = Tool::spawn(&world, command);
        tool.ask("hold -N 3 -n 3 /bin/true");
        let failed = tool.refused("session");
        assert_eq!(failed["kind"], "timed-out", "{failed}");
        // Threads of the agents still hang. Signals, process exits and the links of other nodes must still work.
        tool.ask("release");
        assert_eq!(tool.event("exited")["code"], 0);
        tool.refused("close");
        tool.assert_alone(&world);
    });
}

#[test]
fn a_rank_that_does_not_end_and_files_that_cannot_be_removed_are_both_named_in_time() {
    require!(hung_mounting());
    within(LIMIT, || {
        let world = World::new();
        let mut command = tool_on_hung_mount(&world);
        command.env("FAULT_TOOL_SECONDS", "4");
        let mut tool = Tool::spawn(&world, command);
        let pids = numbers(&tool.ask("hold -n 1 /bin/true")["pids"]);
        tool.refused("session");
        let (done, tracer) = keep_from_ending(pids.clone());
        tool.refused("close");
        let error = tool.event("error");
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains(&format!("{pids:?}")) && message.contains("remove session"), "{error}");
        drop(done);
        tracer.join().expect("the tracer has let go");
        tool.assert_alone(&world);
    });
}

#[test]
fn a_stage_directory_without_write_permission_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    if nix::unistd::geteuid().is_root() {
        skip!("root may write everywhere; a read-only file system is the test for root");
    }
    within(LIMIT, || {
        let world = World::new();
        let place = world.work_dir().join("closed");
        std::fs::create_dir(&place).expect("a folder");
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o500)).expect("a mode");
        let mut command = Tool::command(&world);
        command.env("GANTRY_STAGE_DIR", &place);
        check_stage(
            &world,
            Tool::spawn(&world, command),
            "no-access",
            "not writable",
            "that you may write to",
        );
    });
}

#[test]
fn a_released_app_is_not_released_again() {
    within(LIMIT, || {
        let world = World::new();
        let mut tool = Tool::start(&world);
        let program = programs::get("loop_forever").display().to_string();
        tool.ask(&format!("hold -n 2 {program}"));
        tool.ask("release");
        check_error(&mut tool, "release", "invalid", "is not held", "it was released before");
        tool.ask("close");
        tool.assert_alone(&world);
    });
}

#[test]
fn handles_of_dead_owners_answer_gone() {
    within(LIMIT, || {
        let world = World::new();
        let mut tool = Tool::start(&world);
        tool.ask("hold /bin/true");
        tool.ask("session");
        tool.ask("session");
        tool.ask("release");
        tool.event("exited");
        check_error(&mut tool, "release", "gone", "is gone", "launch or attach anew");
        check_error(&mut tool, "session", "gone", "is gone", "launch or attach anew");
        check_error(&mut tool, "daemon /bin/true", "gone", "is gone", "launch or attach anew");
        check_error(&mut tool, "destroy", "gone", "is gone", "launch or attach anew");
        check_error(&mut tool, "detach", "gone", "is gone", "launch or attach anew");
        tool.assert_alone(&world);
    });
}

#[test]
fn a_daemon_that_cannot_start_is_refused_and_the_session_stays() {
    within(LIMIT, || {
        let world = World::new();
        let mut tool = Tool::start(&world);
        tool.ask("hold -N 2 -n 2 /bin/true");
        tool.ask("session");
        let plain = write(&world, "plain", "no program");
        let folder = world.path().display().to_string();
        let foreign = programs::wrong_architecture().display().to_string();
        let orphan = world.executable("orphan", b"#!/no/such/shell\n").display().to_string();
        check_error(&mut tool, "daemon /no/such/daemon", "not-found", "/no/such/daemon", "path is right");
        check_error(
            &mut tool,
            "daemon no-such-daemon",
            "not-found",
            "'no-such-daemon' is not in PATH",
            "give its path",
        );
        check_error(&mut tool, &format!("daemon {plain}"), "no-access", "not executable", "permissions");
        check_error(&mut tool, &format!("daemon {folder}"), "invalid", "not a regular file", "name a file");
        check_error(&mut tool, &format!("daemon {foreign}"), "unsupported", "is built for", "for this node");
        check_error(
            &mut tool,
            &format!("daemon {orphan}"),
            "not-found",
            "its interpreter",
            "install the interpreter",
        );
        tool.ask("daemon /bin/true");
        assert_eq!(tool.event("daemon_exited")["code"], 0);
        tool.ask("close");
        tool.assert_alone(&world);
    });
}

#[test]
fn where_ptrace_is_forbidden_a_hold_says_so_and_a_launch_works() {
    within(LIMIT, || {
        let world = World::new();
        let mut command = world.command(programs::get("no_ptrace"));
        command.arg(binaries().dir.join("fault_tool"));
        let mut tool = Tool::spawn(&world, command);
        for count in ["1", "64"] {
            let hold = format!("hold -n {count} /bin/true");
            check(
                &mut tool,
                &world,
                &hold,
                "unsupported",
                "a seccomp filter does not let ptrace through",
                "SYS_PTRACE",
            );
        }
        tool.ask("launch -n 4 /bin/true");
        assert_eq!(tool.event("exited")["code"], 0);
    });
}
