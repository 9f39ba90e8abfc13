//! The command line from outside: its output, its exit codes, and access to its apps by other commands.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]

use std::time::Duration;

use gantry_tests::{
    Finished, Run, World, binaries, eventually, in_a_world, proc, record_skip, require, tool,
};
use nix::sys::signal::Signal;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_secs(90);

fn gantry(world: &World, args: &[&str]) -> Finished {
    world.gantry(args).wait(SOON)
}

/// Runs a command that must succeed and print one line.
fn line_of(world: &World, args: &[&str]) -> String {
    let done = gantry(world, args);
    assert_eq!((done.code(), done.stdout.len()), (0, 1), "{args:?}: {done:?}");
    done.stdout[0].clone()
}

fn listed(world: &World) -> Vec<Value> {
    serde_json::from_str(&line_of(world, &["ps", "--json"])).unwrap()
}

fn id_of(event: &Value) -> String {
    event["app"].as_str().unwrap().to_owned()
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["event"].as_str()).collect()
}

fn held(world: &World, args: &[&str]) -> (Run, String) {
    let args = ["launch", "--hold", "--json", "--"].iter().chain(args);
    let mut run = world.gantry(args);
    let id = id_of(&run.next_event("held", SOON));
    (run, id)
}

#[test]
fn a_held_app_is_listed_and_released_by_another_command_and_its_code_passed_on() {
    in_a_world(LIMIT, |world| {
        let (mut launch, id) = held(world, &["-n", "3", "/bin/sh", "-c", "echo $GANTRY_RANK; exit 5"]);
        let apps = listed(world);
        assert_eq!((apps.len(), id_of(&apps[0])), (1, id.clone()));
        assert_eq!((&apps[0]["state"], apps[0]["ranks"].as_array().unwrap().len()), (&"held".into(), 3));
        assert_eq!(gantry(world, &["release", &id[..4]]).code(), 0);
        let end = launch.wait(SOON);
        assert_eq!(end.code(), 5);
        let events = end.events();
        // The ranks' output and the events take different paths, so output may overtake events.
        let (output, others): (Vec<_>, Vec<_>) =
            names(&events).into_iter().partition(|name| *name == "output");
        assert_eq!(output.len(), 3);
        let expected = ["held", "released", "rank_exited", "rank_exited", "rank_exited", "exited"];
        assert_eq!(others, expected);
        assert!(listed(world).is_empty());
    });
}

#[test]
fn an_app_in_the_background_is_released_waited_for_and_leaves_nothing() {
    in_a_world(LIMIT, |world| {
        let script = "echo out; read x; exit 7";
        let launch =
            ["launch", "--hold", "--background", "--output", "log", "--", "-n", "2", "/bin/sh", "-c", script];
        let id = line_of(world, &launch);
        let mut wait = world.gantry(["wait"]);
        // A command that connects after the app's end finds no app.
        eventually(SOON, "'gantry wait' is connected", || {
            let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
            sockets.lines().any(|line| line.contains(&format!("/{id}.")) && line.contains(" 0001 03 "))
        });
        assert_eq!(gantry(world, &["release"]).code(), 0);
        assert_eq!(wait.wait(SOON).code(), 7);
        let again = gantry(world, &["release", &id]);
        assert!([64, 65, 72].contains(&again.code()), "{again:?}");
        eventually(SOON, "the end of the frontend process", || listed(world).is_empty());
        assert_eq!(std::fs::read_to_string(world.work_dir().join("log")).unwrap(), "out\nout\n");
    });
}

#[test]
fn kill_waits_until_nothing_is_left() {
    in_a_world(LIMIT, |world| {
        let id = line_of(
            world,
            &["launch", "--background", "--daemon", "sleep 1000", "--", "-n", "2", "sleep", "1000"],
        );
        let pids: Vec<i64> = listed(world)[0]["ranks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rank| rank["pid"].as_i64().unwrap())
            .collect();
        assert_eq!(gantry(world, &["kill", &id, "-s", "USR2", "--ranks", "7"]).code(), 64);
        assert_eq!(gantry(world, &["kill", &id]).code(), 0);
        assert!(listed(world).is_empty());
        assert!(pids.iter().all(|pid| !proc::is_alive(i32::try_from(*pid).unwrap())));
        assert_eq!(gantry(world, &["kill", &id]).code(), 65);
    });
}

#[test]
fn daemons_speak_with_a_label_and_their_highest_code_is_passed_on() {
    in_a_world(LIMIT, |world| {
        let daemon = "/bin/sh -c 'echo from $GANTRY_APP'";
        let launch = gantry(world, &["launch", "--daemon", daemon, "--", "-n", "2", "/bin/echo", "app"]);
        assert_eq!(launch.code(), 0, "{launch:?}");
        assert_eq!(launch.stdout.iter().filter(|line| *line == "app").count(), 2);
        assert!(launch.stdout.iter().any(|line| line.starts_with("[daemon 1 ") && line.contains("] from ")));

        let (mut launch, id) = held(world, &["-n", "1", "/bin/sleep", "1000"]);
        std::fs::write(world.work_dir().join("conf"), "staged\n").unwrap();
        let command = "cat $GANTRY_SESSION_DIR/conf; echo $V; exit 4";
        let args = ["daemon", &id, "--file", "conf", "--env", "V=set", "--json", "--", "sh", "-c", command];
        let daemon = gantry(world, &args);
        assert_eq!(daemon.code(), 4, "{daemon:?}");
        let events = daemon.events();
        let said: String = events.iter().filter_map(|event| event["text"].as_str()).collect();
        assert_eq!(said, "staged\nset\n");
        assert_eq!(
            (names(&events).first(), names(&events).contains(&"daemon_exited")),
            (Some(&"daemon_started"), true)
        );
        assert_eq!(gantry(world, &["daemon", &id, "--nodes", "nowhere", "--", "true"]).code(), 64);

        // A foreground daemon ends with its command.
        let mut stays = world.gantry(["daemon", &id, "--json", "--", "sleep", "1000"]);
        let pid = i32::try_from(stays.next_event("daemon_started", SOON)["pid"].as_i64().unwrap()).unwrap();
        stays.signal(Signal::SIGINT);
        eventually(SOON, "the daemon's end", || !proc::is_alive(pid));
        assert_eq!(gantry(world, &["kill", &id]).code(), 0);
        assert_eq!(launch.wait(SOON).code(), 137);
    });
}

#[test]
fn bad_input_is_an_event_and_a_code_of_its_kind() {
    in_a_world(LIMIT, |world| {
        let check = |args: &[&str], code: i32, kind: &str| {
            let done = gantry(world, &[&["--json"], args].concat());
            let events = done.events();
            let error = events.last().unwrap_or_else(|| panic!("{args:?}: {done:?}"));
            assert_eq!(
                (done.code(), error["event"].as_str(), error["kind"].as_str()),
                (code, Some("error"), Some(kind))
            );
            assert!(!error["message"].as_str().unwrap().is_empty());
        };
        for background in [&[][..], &["--background"]] {
            check(&[&["launch"], background, &["--", "-n", "2", "/no/such"]].concat(), 65, "not-found");
            check(&[&["launch"], background, &["--", "-n", "0", "true"]].concat(), 64, "invalid");
            check(
                &[&["launch", "--env", "A"], background, &["--", "-n", "1", "true"]].concat(),
                64,
                "invalid",
            );
        }
        check(&["launch", "--wlm", "abacus", "--", "-n", "1", "true"], 64, "invalid");
        check(&["launch", "--daemon", "'", "--", "-n", "1", "true"], 64, "invalid");
        check(&["launch", "--daemon", "/no/such", "--", "-n", "1", "sleep", "1000"], 65, "not-found");
        check(&["release"], 65, "not-found");
        check(&["wait", "zzzz"], 65, "not-found");
        let usage = gantry(world, &["launch"]);
        assert_eq!((usage.code(), usage.stdout.len()), (2, 0));
    });
}

/// A script cannot tell a short job from a mistyped id otherwise.
#[test]
fn the_end_of_an_app_in_the_background_is_known_after_it() {
    in_a_world(LIMIT, |world| {
        let launch = |script: &str| {
            let done = gantry(world, &["launch", "--background", "--", "-n", "2", "/bin/sh", "-c", script]);
            let id = done.stdout.first().expect("an id").clone();
            let runs = || listed(world).iter().any(|app| app["app"] == id.as_str());
            eventually(SOON, "its end", || !runs());
            id
        };
        let id = launch("exit $((7 * GANTRY_RANK))");
        for name in [&id, &id[..4], &id.to_uppercase()] {
            assert_eq!(gantry(world, &["wait", name]).code(), 7, "{name}");
        }
        let events = gantry(world, &["wait", "--json", &id]).events();
        assert_eq!(names(&events), ["exited"]);
        let [first, second] = [0, 1].map(|rank| events[0]["ranks"][rank]["code"].clone());
        assert_eq!((first, second, &events[0]["code"]), (0.into(), 7.into(), &7.into()), "{events:?}");
        assert_eq!(gantry(world, &["wait", &launch("kill -9 $$")]).code(), 137);
        // Others than `wait` need an app that runs.
        assert_eq!(gantry(world, &["release", &id]).code(), 65);
        assert_eq!(gantry(world, &["wait", "zzzz"]).code(), 65);
        // An hour later it is forgotten.
        let record = world.runtime_dir().join("ended").join(format!("{id}.json"));
        let long_ago = std::time::SystemTime::now() - Duration::from_secs(3601);
        std::fs::File::open(&record).and_then(|it| it.set_modified(long_ago)).expect("a record");
        assert_eq!(gantry(world, &["wait", &id]).code(), 65);
        assert!(!record.exists());
    });
}

#[test]
fn ctrl_c_asks_once_and_ends_all_at_the_second() {
    in_a_world(LIMIT, |world| {
        let (mut launch, _) = held(world, &["-n", "2", "/bin/sleep", "1000"]);
        launch.signal(Signal::SIGINT);
        launch.stderr_line("2 ranks are held; Ctrl-C once more ends all", SOON);
        launch.signal(Signal::SIGINT);
        assert_eq!(launch.wait(SOON).code(), 130);
        let (mut launch, _) = held(world, &["-n", "2", "/bin/sleep", "1000"]);
        launch.signal(Signal::SIGTERM);
        assert_eq!(launch.wait(SOON).code(), 143);
    });
}

#[test]
fn attached_processes_are_left_as_they_were_found() {
    in_a_world(LIMIT, |world| {
        let mut found = world.start("/bin/sleep".as_ref(), ["1000"]);
        let pid = found.pid().to_string();
        let mut attach = world.gantry(["attach", &pid, "--json", "--daemon", "sleep 1000"]);
        attach.next_event("attached", SOON);
        attach.next_event("daemon_started", SOON);
        attach.signal(Signal::SIGINT);
        let end = attach.wait(SOON);
        assert_eq!((end.code(), names(&end.events()).last()), (0, Some(&"detached")));
        assert!(proc::is_alive(found.pid()));
        found.kill();
        found.wait(SOON);
    });
}

#[test]
fn the_socket_of_a_killed_frontend_is_swept() {
    in_a_world(LIMIT, |world| {
        let (mut launch, id) = held(world, &["-n", "1", "/bin/sleep", "1000"]);
        let socket = world.runtime_dir().join(format!("{id}.sock"));
        assert!(socket.exists());
        launch.kill();
        launch.wait(SOON);
        assert_eq!(gantry(world, &["release", &id]).code(), 65);
        assert!(listed(world).is_empty());
        assert!(!socket.exists());
    });
}

#[test]
fn doctor_names_failures_and_really_holds_a_program() {
    in_a_world(LIMIT, |world| {
        let checks: Vec<Value> =
            serde_json::from_str(&gantry(world, &["doctor", "--json"]).stdout[0]).unwrap();
        let helpers = checks.iter().filter(|check| check["check"].as_str().unwrap().starts_with("gantry-"));
        assert_eq!(helpers.filter(|check| check["result"] == "ok").count(), 2, "{checks:?}");
        let hold = checks.iter().find(|check| check["check"] == "hold").unwrap();
        assert_eq!(hold["result"], "ok", "{hold}");
        let method = checks.iter().find(|check| check["check"] == "hold method").unwrap();
        assert!(method["found"].as_str().unwrap().starts_with("direct, because "), "{method}");
        let mut command = world.gantry_command(["doctor"]);
        command.env("GANTRY_STAGE_DIR", "/no/such");
        let unfit = world.spawn(command).wait(SOON);
        assert_eq!(unfit.code(), 1);
        assert!(unfit.stdout.iter().any(|line| line.starts_with("fail  stage directory: /no/such")));
        // The attempt fails with the product's own error text and hint.
        let at = unfit.stdout.iter().position(|line| line.starts_with("fail  hold: ")).unwrap();
        assert!(unfit.stdout[at].contains("/no/such"), "{unfit:?}");
        assert!(unfit.stdout[at + 1].starts_with("      "), "{unfit:?}");
        let mut command = world.gantry_command(["doctor", "--json"]);
        command.env("GANTRY_WLM", "abacus");
        let unfit = world.spawn(command).wait(SOON);
        let checks: Vec<Value> = serde_json::from_str(&unfit.stdout[0]).unwrap();
        let hold = checks.iter().find(|check| check["check"] == "hold").unwrap();
        assert_eq!((unfit.code(), &hold["result"]), (1, &"fail".into()), "{hold}");
        assert!(hold["found"].as_str().unwrap().contains("abacus") && hold["remedy"].is_string(), "{hold}");
    });
}

/// A cluster's configuration may be on its controller only. Where nothing else is detected, this machine is used.
#[test]
fn a_launch_here_that_may_be_meant_for_a_cluster_says_so() {
    in_a_world(LIMIT, |world| {
        let folder = world.work_dir().join("programs");
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink("/bin/false", folder.join("srun")).unwrap();
        let begin = |args: &[&str]| {
            let mut command = world.gantry_command(args);
            for name in ["CTI_WLM_IMPL", "GANTRY_WLM", "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JOB_ID"] {
                command.env_remove(name);
            }
            command.env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
            world.spawn(command)
        };
        let run = |args: &[&str]| begin(args).wait(SOON);
        let report: Value = serde_json::from_str(&run(&["wlm", "--json"]).stdout[0]).unwrap();
        if report["wlm"] != "localhost" {
            return record_skip("this machine belongs to a cluster");
        }
        let expected = format!(
            "srun is {}/srun, but no configuration of Slurm was found; choose slurm by --wlm slurm or GANTRY_WLM=slurm, or localhost by GANTRY_WLM=localhost",
            folder.display()
        );
        assert_eq!(report["doubt"], expected, "{report}");
        let said = |args: &[&str]| run(args).stderr.iter().any(|line| line.ends_with(&expected));
        assert!(said(&["launch", "--", "-n", "1", "/bin/true"]));
        assert!(said(&["stack", "--launch", "--", "-n", "1", "/bin/true"]));
        assert!(said(&["submit", "--", "job.sh"]));
        // These know their app by its id.
        let mut launch = begin(&["launch", "--json", "--hold", "--", "-n", "1", "/bin/sleep", "1000"]);
        let id = id_of(&launch.next_event("held", SOON));
        for command in ["ps", "release", "signal CONT", "daemon", "kill", "wait"] {
            let mut words: Vec<&str> = command.split(' ').chain([id.as_str()]).collect();
            match command {
                "ps" => drop(words.pop()),
                "daemon" => words.extend(["--", "/bin/true"]),
                _ => {}
            }
            let done = run(&words);
            assert!(!done.stderr.iter().any(|line| line.contains("srun")), "{done:?}");
        }
        launch.exited(SOON);
        // No process has such a number.
        let meant = "for a job of slurm, add --wlm slurm";
        for command in ["attach", "stack"] {
            let done = run(&[command, "99999999"]);
            let [error, hint] = &done.stderr[..] else { panic!("{done:?}") };
            assert!(error.starts_with("gantry: there is no process 99999999 on "), "{done:?}");
            assert_eq!((done.code(), hint), (65, &format!("hint: {meant}")), "{done:?}");
        }
        // One has, but it may also be that of a job.
        let mut process = world.start("/bin/sleep".as_ref(), ["1000"]);
        let pid = process.pid().to_string();
        let done = run(&["attach", &format!("{pid}.other")]);
        let hints = format!("of at most 15 characters; {meant}");
        assert!(done.stderr.iter().any(|line| line.ends_with(&hints)), "{done:?}");
        assert!(said(&["stack", &pid]));
        let sure = run(&["stack", "--wlm", "localhost", &pid]);
        assert_eq!((sure.code(), sure.stderr.len()), (0, 0), "{sure:?}");
        let mut attached = begin(&["attach", &pid]);
        eventually(SOON, "a note", || attached.stderr().iter().any(|line| line.ends_with(&expected)));
        process.signal(Signal::SIGTERM);
        process.exited(SOON);
        attached.exited(SOON);
        assert!(!said(&["launch", "--wlm", "localhost", "--", "-n", "1", "/bin/true"]));
    });
}

#[test]
fn output_that_cannot_be_written_is_told_and_is_no_success() {
    in_a_world(LIMIT, |world| {
        let check = |args: &str, label: &str, code: i32| {
            let script = format!("exec {} {args} >/dev/full", binaries().gantry.display());
            let done = world.start("/bin/sh".as_ref(), ["-c", &script]).wait(SOON);
            let lost =
                format!("{label}cannot write to standard output: No space left on device (os error 28)");
            let told = done.stderr.iter().filter(|line| **line == lost).count();
            let hints = done.stderr.iter().filter(|line| line.starts_with("hint: ")).count();
            assert_eq!((done.code(), told, hints), (code, 1, 1), "{args}: {done:?}");
        };
        for options in ["", "--quiet", "--label", "--json"] {
            check(&format!("launch {options} -n 2 /bin/echo hello"), "gantry: ", 73);
        }
        check("launch -n 2 /bin/sh -c 'echo hello; exit 3'", "gantry: ", 3);
        check("ps --json", "gantry: ", 73);
        let part = "(&(resourceManagerContact=localhost)(executable=/bin/echo)(arguments=hello))";
        check(&format!("coalloc -s '+{part}'"), "gantry: subjob 0: ", 73);
        let (_launch, id) = held(world, &["-n", "1", "/bin/sleep", "1000"]);
        check(&format!("daemon {id} -- /bin/echo hello"), "gantry: ", 73);
    });
}

#[test]
fn a_wait_tells_that_output_of_an_app_in_the_background_was_lost() {
    in_a_world(LIMIT, |world| {
        let go = world.work_dir().join("go");
        nix::unistd::mkfifo(&go, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let waited = |code: u32, options: &[&str]| {
            let script = format!("read -r _ < {}; echo hello; exit {code}", go.display());
            let launch = ["launch", "--background", "--output", "/dev/full", "--", "-n", "1"];
            let run = ["/bin/sh", "-c", &script];
            let begun = world.gantry(launch.into_iter().chain(run)).wait(SOON);
            let id = begun.stdout.first().expect("an id").clone();
            let mut wait = world.gantry([&["wait", &id][..], options].concat());
            // Two sockets are the runtime's own.
            let sockets = || {
                let open =
                    std::fs::read_dir(format!("/proc/{}/fd", wait.pid())).into_iter().flatten().flatten();
                let targets = open.filter_map(|it| std::fs::read_link(it.path()).ok());
                targets.filter(|it| it.to_string_lossy().starts_with("socket:")).count()
            };
            eventually(SOON, "a connection", || sockets() > 2);
            std::fs::write(&go, "go\n").unwrap();
            wait.wait(SOON)
        };
        let lost = "the app's standard output could not be written: No space left on device (os error 28)";
        let done = waited(0, &[]);
        assert_eq!(
            (done.code(), done.stderr[0].as_str()),
            (73, format!("gantry: {lost}").as_str()),
            "{done:?}"
        );
        assert_eq!(waited(3, &[]).code(), 3);
        let done = waited(0, &["--json"]);
        let names: Vec<String> = done.events().iter().map(|it| it["event"].to_string()).collect();
        assert_eq!(
            (done.code(), names.as_slice()),
            (73, ["\"output_lost\"", "\"exited\""].map(String::from).as_slice())
        );
    });
}

#[test]
fn an_app_that_is_not_named_or_unknown_leads_to_those_that_run() {
    in_a_world(LIMIT, |world| {
        let check = |args: &[&str], code: i32, expected: &[String]| {
            let done = gantry(world, args);
            let from = done.stderr.iter().position(|line| *line == expected[0]);
            let told = from.map(|from| &done.stderr[from..]).unwrap_or_default();
            assert_eq!((done.code(), told), (code, expected), "{args:?}: {done:?}");
        };
        let unknown = "gantry: no app 'zzzz' of yours runs here".to_owned();
        check(
            &["kill", "zzzz"],
            65,
            &[unknown.clone(), "hint: 'gantry ps' lists the apps that run".to_owned()],
        );
        let (mut holder, held) = held(world, &["-n", "1", "/bin/sleep", "1000"]);
        let mut runner = world.gantry(["launch", "--json", "--", "/bin/sh", "-c", "exec sleep 1000\n"]);
        let running = id_of(&runner.next_event("started", SOON));
        let mut apps = [
            format!("  {held}  held     -n 1 /bin/sleep 1000"),
            format!("  {running}  running  /bin/sh -c exec sleep 1000\\n"),
        ];
        apps.sort();
        let [one, two] = apps.clone();
        let mut ids = [held.as_str(), running.as_str()];
        ids.sort_unstable();
        let several = format!("gantry: no app is named, and 2 of yours run: {}", ids.join(", "));
        for command in ["release", "wait"] {
            let hint = "hint: name one of them:".to_owned();
            check(&[command], 64, &[several.clone(), hint, one.clone(), two.clone()]);
        }
        for args in
            [&["kill", "zzzz"][..], &["wait", "zzzz"], &["stack", "zzzz"], &["daemon", "zzzz", "--", "a"]]
        {
            check(args, 65, &[unknown.clone(), "hint: these run:".to_owned(), one.clone(), two.clone()]);
        }
        for args in [&["kill"][..], &["signal", "USR1"], &["daemon", "--", "a"]] {
            check(args, 2, &["gantry: these apps run:".to_owned(), one.clone(), two.clone()]);
        }
        let table = gantry(world, &["ps"]).stdout;
        assert!(table[0].contains("  OWNER PID  COMMAND"), "{table:?}");
        for (id, run) in [(&held, &mut holder), (&running, &mut runner)] {
            assert_eq!(gantry(world, &["kill", id]).code(), 0);
            run.exited(SOON);
        }
    });
}

#[test]
fn a_reader_that_wants_no_more_is_no_loss() {
    in_a_world(LIMIT, |world| {
        for options in ["", "--label", "--json"] {
            let gantry = binaries().gantry.display();
            let launch = format!("launch {options} -n 1 /bin/sh -c 'yes | head -n 100000'");
            let script = format!("{{ {gantry} {launch}; echo $? >&2; }} | head -n 1");
            let done = world.start("/bin/sh".as_ref(), ["-c", &script]).wait(SOON);
            assert_eq!((done.stdout.len(), done.stderr), (1, vec!["0".to_owned()]), "{options}");
        }
    });
}

#[test]
fn bash_takes_the_completions_and_completes_commands() {
    let bash = require!(tool("bash"));
    in_a_world(LIMIT, move |world| {
        let script = gantry(world, &["completions", "bash"]).stdout.join("\n");
        std::fs::write(world.work_dir().join("gantry.bash"), script).unwrap();
        let check = |args: &[&str], expected: &[&str]| {
            let done = world.start(&bash, args).wait(SOON);
            assert_eq!((done.code(), done.stderr.len()), (0, 0), "{args:?}: {done:?}");
            let missing = expected.iter().find(|word| !done.stdout.iter().any(|line| line == *word));
            assert_eq!(missing, None, "{done:?}");
        };
        check(&["-n", "gantry.bash"], &[]);
        let ask = "source ./gantry.bash; COMP_WORDS=(gantry la); COMP_CWORD=1; \
            _gantry gantry la gantry; printf '%s\\n' \"${COMPREPLY[@]}\"";
        check(&["--norc", "-c", ask], &["launch"]);
        let ask = "source ./gantry.bash; COMP_WORDS=(gantry launch --hold); COMP_CWORD=2; \
            _gantry gantry --hold launch; printf '%s\\n' \"${COMPREPLY[@]}\"";
        check(&["--norc", "-c", ask], &["--hold", "--hold-for-daemons"]);
    });
}

#[test]
fn every_command_has_a_manual_page_that_formats() {
    in_a_world(LIMIT, |world| {
        assert_eq!(gantry(world, &["man", "pages"]).code(), 0);
        let pages: Vec<_> = std::fs::read_dir(world.work_dir().join("pages")).unwrap().flatten().collect();
        let names: Vec<_> = pages.iter().map(|page| page.file_name().into_string().unwrap()).collect();
        for command in ["", "-launch", "-attach", "-ps", "-release", "-kill", "-wait", "-daemon", "-doctor"] {
            assert!(names.contains(&format!("gantry{command}.1")), "{command}: {names:?}");
        }
        for page in pages {
            let text = std::fs::read_to_string(page.path()).unwrap();
            assert!(text.lines().any(|line| line.starts_with(".TH ")), "{page:?}");
            // If a formatter is installed, it must accept the pages.
            if let Ok(groff) = tool("groff") {
                let page = page.path().into_os_string();
                let args = ["-man".into(), "-ww".into(), "-Tutf8".into(), page.clone()];
                let done = world.start(&groff, args).wait(SOON);
                assert_eq!((done.code(), done.stderr.len()), (0, 0), "{}: {done:?}", page.display());
            }
        }
    });
}

#[test]
fn logs_of_a_launch_in_the_background_go_to_its_output() {
    in_a_world(LIMIT, |world| {
        let hold =
            ["launch", "-v", "--hold", "--background", "--output", "log", "--", "-n", "1", "/bin/echo"];
        let id = line_of(world, &hold);
        assert_eq!(gantry(world, &["release", &id]).code(), 0);
        eventually(SOON, "the end of the frontend process", || listed(world).is_empty());
        let log = std::fs::read_to_string(world.work_dir().join("log")).unwrap();
        assert!(log.contains("DEBUG gantry") && log.contains("exited"), "{log:?}");
        assert!(!log.contains('\x1b'), "{log:?}");
    });
}
