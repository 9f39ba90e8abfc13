//! `gantry dap` with real gdbs on real ranks, driven by a client of the Debug Adapter Protocol.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]

#[path = "dap/client.rs"]
mod client;

use std::time::Duration;

use gantry_tests::slurm::on_cluster;
use gantry_tests::testbed::Config;
use gantry_tests::{World, binaries, eventually, in_a_world, proc, programs, require, tool};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use self::client::Editor;

const SOON: Duration = Duration::from_secs(120);
const LIMIT: Duration = Duration::from_secs(300);

fn program() -> String {
    programs::get("rounds").to_str().unwrap().to_owned()
}

/// The path of the program's source, and the number of the line that contains this text.
fn source(text: &str) -> (String, usize) {
    let path = programs::sources().join("rounds.c");
    let content = std::fs::read_to_string(&path).unwrap();
    let line = content.lines().position(|line| line.contains(text)).expect("the line");
    (path.to_str().unwrap().to_owned(), line + 1)
}

fn launching(ranks: u32) -> Value {
    json!({ "launcherArgs": ["-n", ranks.to_string()], "program": program(), "args": ["250"] })
}

/// Launches in the background. Returns the app's id and the pids of its ranks.
#[track_caller]
fn launched(world: &World, options: &[&str], ranks: &str) -> (String, Vec<i32>) {
    let program = program();
    let words = [&["launch", "--background"], options, &["--", "-n", ranks, &program, "250"]].concat();
    let done = world.gantry(words).wait(SOON);
    assert_eq!((done.code(), done.stdout.len()), (0, 1), "{done:?}");
    let app = done.stdout[0].clone();
    let ranks = app_of(world, &app)["ranks"].as_array().unwrap().clone();
    (app, ranks.iter().map(|rank| i32::try_from(rank["pid"].as_i64().unwrap()).unwrap()).collect())
}

#[track_caller]
fn app_of(world: &World, app: &str) -> Value {
    let listed = world.gantry(["ps", "--json"]).wait(SOON);
    let apps: Vec<Value> = serde_json::from_str(&listed.stdout[0]).unwrap();
    apps.into_iter().find(|it| it["app"] == app).expect("the app")
}

#[track_caller]
fn kill(world: &World, app: &str) {
    assert_eq!(world.gantry(["kill", "--yes", app]).wait(SOON).code(), 0);
}

/// Whether all ranks run without a tracer.
fn go_on(ranks: &[i32]) -> bool {
    let goes_on =
        |pid: &i32| proc::tracer(*pid).is_none() && !matches!(proc::state(*pid), Some('T' | 't') | None);
    ranks.iter().all(goes_on)
}

fn of_program(world: &World, name: &str) -> Vec<i32> {
    let is_it = |pid: &i32| proc::exe(*pid).is_some_and(|exe| exe.ends_with(name));
    world.processes().into_iter().filter(is_it).collect()
}

#[test]
fn held_ranks_stop_at_breakpoints_and_are_looked_at_as_one() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let mut editor = Editor::start(world);
        editor.begin("launch", launching(4));
        let (path, line) = source("rounds++;");
        let set = json!({ "source": { "path": path }, "breakpoints": [{ "line": line, "condition": "rounds > 2" }] });
        let set = editor.done("setBreakpoints", set);
        assert_eq!(set["breakpoints"][0], json!({ "id": 1, "verified": true, "line": line }));
        let functions = editor.done("setFunctionBreakpoints", json!({ "breakpoints": [{ "name": "main" }] }));
        assert_eq!(functions["breakpoints"][0]["verified"], true);
        editor.done("configurationDone", json!({}));
        let stop = editor.event("stopped");
        assert_eq!((&stop["reason"], &stop["hitBreakpointIds"]), (&json!("breakpoint"), &json!([2])));
        let main = editor.thread("ranks 0-3: main");
        editor.kept.clear();
        assert_eq!(
            editor.done("continue", json!({ "threadId": main })),
            json!({ "allThreadsContinued": true })
        );
        let thread = editor.thread("ranks 0-3: solve");
        assert_eq!(thread, main, "the number stays");
        let frames = editor.frames(thread);
        assert_eq!((&frames[0]["name"], &frames[1]["name"]), (&json!("solve"), &json!("main")));
        assert_eq!((&frames[0]["source"]["path"], &frames[0]["line"]), (&json!(path), &json!(line)));
        let scopes = editor.done("scopes", json!({ "frameId": frames[0]["id"] }));
        let locals = editor.variables(&scopes["scopes"][0]["variablesReference"]);
        // Only rank 2 is called with another number.
        assert_eq!((&locals[0]["name"], &locals[0]["value"]), (&json!("n"), &json!("[10;11]")));
        let registers = editor.variables(&scopes["scopes"][1]["variablesReference"]);
        assert!(registers.len() > 10, "{registers:?}");
        let watched = json!({ "expression": "field", "context": "watch", "frameId": frames[1]["id"] });
        let field = editor.done("evaluate", watched);
        let elements = editor.variables(&field["variablesReference"]);
        assert_eq!((elements.len(), &elements[3]["name"]), (4, &json!("3")));
        let value = json!({ "variablesReference": field["variablesReference"], "name": "3", "value": "77" });
        assert_eq!(editor.done("setVariable", value), json!({ "value": "77" }));
        assert!(editor.typed("print field[3]").starts_with("[0-3] $1 = 77"));
        assert_eq!(editor.typed("compare 0 1-3 limit"), "[0] 10 | [2] 11\n2 the same");
        assert!(editor.typed("ranks").contains("[0-3] stopped: solve at rounds.c:"));
        let pc = &frames[0]["instructionPointerReference"];
        let asked = json!({ "memoryReference": pc, "instructionOffset": -2, "instructionCount": 5 });
        let code = editor.done("disassemble", asked)["instructions"].clone();
        let third = code[2]["address"].as_str().unwrap().trim_start_matches("0x").to_owned();
        assert!(code.as_array().unwrap().len() == 5 && pc.as_str().unwrap().ends_with(&third), "{code}");
        let memory = editor.done("readMemory", json!({ "memoryReference": pc, "count": 6 }));
        assert_eq!(memory["data"].as_str().unwrap().len(), 8, "{memory}");
        editor.kept.clear();
        editor.done("stepOut", json!({ "threadId": thread }));
        assert_eq!(editor.event("stopped")["reason"], "step");
        editor.thread("ranks 0-3: main");
        editor.leave(json!({}));
        eventually(SOON, "the ranks have ended", || world.processes().is_empty());
    });
}

#[test]
fn an_editor_looks_at_some_of_512_ranks_and_only_those_get_a_gdb() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let mut editor = Editor::start(world);
        let mut configuration = launching(512);
        configuration["ranks"] = json!("2,508-511");
        editor.begin("launch", configuration);
        let (path, line) = source("rounds++;");
        let set = json!({ "source": { "path": path }, "breakpoints": [{ "line": line }] });
        editor.done("setBreakpoints", set);
        editor.done("configurationDone", json!({}));
        let thread = editor.thread("ranks 2,508-511: solve");
        let frames = editor.frames(thread);
        let watched = json!({ "expression": "limit", "context": "watch", "frameId": frames[0]["id"] });
        assert_eq!(editor.done("evaluate", watched)["result"], "[10;11]");
        assert_eq!(of_program(world, "gdb").len(), 5);
        // The others run.
        let others = of_program(world, "rounds");
        let free = others.iter().filter(|pid| go_on(&[**pid])).count();
        assert_eq!((others.len(), free), (512, 507));
        editor.leave(json!({}));
        eventually(SOON, "the ranks have ended", || world.processes().is_empty());
    });
}

#[test]
fn ranks_on_nodes_of_slurm_are_one_thread_from_held_and_while_they_run() {
    require!(tool("srun"));
    require!(tool("gdb"));
    on_cluster(Config::with_nodes(2), |cluster| {
        let start = || {
            let gantry = &binaries().gantry;
            let mut command = cluster.bed.login().command_of(&cluster.world, gantry).expect("the login node");
            command.arg("dap").env_remove("GANTRY_STAGE_DIR").env_remove("TMPDIR");
            Editor::start_with(command)
        };
        let at_solve = json!({ "breakpoints": [{ "name": "solve" }] });
        let stop = |mut editor: Editor, request: &str, configuration: Value| {
            editor.begin(request, configuration);
            editor.done("setFunctionBreakpoints", at_solve.clone());
            editor.done("configurationDone", json!({}));
            let thread = editor.thread("ranks 0-3: solve");
            let frames = editor.frames(thread);
            let scopes = editor.done("scopes", json!({ "frameId": frames[0]["id"] }));
            let locals = editor.variables(&scopes["scopes"][0]["variablesReference"]);
            assert_eq!((&locals[0]["name"], &locals[0]["value"]), (&json!("n"), &json!("[10;11]")));
            editor
        };
        let launched = json!({ "launcherArgs": ["-N2", "-n4"], "program": program(), "args": ["100"] });
        stop(start(), "launch", launched).leave(json!({}));
        let program = program();
        let mut srun = cluster.run("srun", ["-N2", "-n4", &program, "200"], &[]);
        eventually(SOON, "all run", || srun.stdout().len() >= 4);
        let job = cluster.said("squeue", ["--me", "--noheader", "--format=%i"]).trim().to_owned();
        stop(start(), "attach", json!({ "target": job })).leave(json!({}));
        let before = srun.stdout().len();
        eventually(SOON, "they go on", || srun.stdout().len() >= before + 8);
        cluster.said("scancel", [job.as_str()]);
        srun.exited(SOON);
    });
}

#[test]
fn one_rank_stops_and_steps_while_the_others_go_on() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let mut editor = Editor::start(world);
        editor.begin("launch", launching(3));
        let (path, line) = source("rounds++;");
        let condition = json!([{ "line": line, "condition": "$rank == 1", "hitCondition": ">= 3" }]);
        editor.done("setBreakpoints", json!({ "source": { "path": path }, "breakpoints": condition }));
        editor.done("configurationDone", json!({}));
        let one = editor.thread("rank 1: solve");
        editor.thread("ranks 0,2: running");
        let frames = editor.frames(one);
        let rounds = editor.done(
            "evaluate",
            json!({ "expression": "rounds", "context": "hover", "frameId": frames[0]["id"] }),
        );
        assert_eq!(rounds["result"], "2");
        editor.kept.clear();
        editor.done("next", json!({ "threadId": one, "singleThread": true }));
        let stop = editor.event("stopped");
        assert_eq!((&stop["threadId"], &stop["allThreadsStopped"]), (&json!(one), &json!(false)));
        editor.output("0: round");
        // Log messages do not stop ranks.
        let log = json!([{ "line": line, "logMessage": "n is {n} in {rank}" }]);
        editor.done("setBreakpoints", json!({ "source": { "path": path }, "breakpoints": log }));
        editor.output(": n is ");
        editor.done("setBreakpoints", json!({ "source": { "path": path }, "breakpoints": [] }));
        let others = editor.thread("ranks 0,2: running");
        editor.done("pause", json!({ "threadId": others }));
        let refused = editor.ask("stackTrace", json!({ "threadId": 99 }));
        assert_eq!(
            (&refused["success"], &refused["message"]),
            (&json!(false), &json!("there is no thread 99"))
        );
        editor.leave(json!({}));
    });
}

#[test]
fn ranks_that_run_are_paused_and_left_as_they_were() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let (app, ranks) = launched(world, &[], "3");
        let pids: Vec<String> = ranks.iter().map(i32::to_string).collect();
        for target in [json!(app), json!(pids.join(","))] {
            let mut editor = Editor::start(world);
            editor.begin("attach", json!({ "target": target }));
            editor.done("configurationDone", json!({}));
            let thread = editor.thread("ranks 0-2: running");
            assert!(go_on(&ranks), "nobody has a gdb");
            editor.done("pause", json!({ "threadId": thread }));
            assert_eq!(editor.event("stopped")["reason"], "pause");
            assert!(ranks.iter().all(|pid| proc::tracer(*pid).is_some()));
            editor.leave(json!({}));
            eventually(SOON, "they go on", || go_on(&ranks));
            eventually(SOON, "no gdb is left", || of_program(world, "gdb").is_empty());
        }
        let (held_app, held) = launched(world, &["--hold"], "2");
        let mut editor = Editor::start(world);
        editor.begin("attach", json!({ "target": held_app }));
        editor.done("configurationDone", json!({}));
        assert_eq!(editor.event("stopped")["reason"], "entry");
        let thread = editor.thread("ranks 0-1: held before the first instruction");
        assert!(!editor.frames(thread).is_empty());
        editor.leave(json!({}));
        for pid in &held {
            eventually(SOON, "it is held", || proc::why_not_held(*pid).is_none());
        }
        // No gdb is needed without breakpoints.
        let mut editor = Editor::start(world);
        editor.begin("attach", json!({ "target": held_app }));
        editor.done("configurationDone", json!({}));
        let thread = editor.thread("ranks 0-1: held before the first instruction");
        editor.done("continue", json!({ "threadId": thread }));
        eventually(SOON, "they go on", || go_on(&held));
        assert_eq!(app_of(world, &held_app)["state"], "running");
        editor.leave(json!({ "terminateDebuggee": true }));
        eventually(SOON, "they have ended", || held.iter().all(|pid| !proc::is_alive(*pid)));
        kill(world, &app);
    });
}

#[test]
fn a_launch_that_is_left_goes_on_and_one_that_ends_says_its_code() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let mut editor = Editor::start(world);
        editor.begin("launch", launching(2));
        editor.done("setFunctionBreakpoints", json!({ "breakpoints": [{ "name": "solve" }] }));
        editor.done("configurationDone", json!({}));
        editor.thread("ranks 0-1: solve");
        let ranks = of_program(world, "rounds");
        assert_eq!(ranks.len(), 2);
        editor.leave(json!({ "terminateDebuggee": false }));
        eventually(SOON, "they go on", || go_on(&ranks));
        proc::send_those_left(ranks.iter().copied(), Signal::SIGKILL);
        eventually(SOON, "all is gone", || world.processes().is_empty());
        let mut editor = Editor::start(world);
        editor.begin(
            "launch",
            json!({ "launcherArgs": ["-n", "2"], "program": "/bin/sh", "args": ["-c", "echo said; exit 3"] }),
        );
        editor.done("configurationDone", json!({}));
        editor.output("1: said");
        assert_eq!(editor.event("exited"), json!({ "exitCode": 3 }));
        editor.event("terminated");
        editor.leave(json!({}));
        let mut editor = Editor::start(world);
        editor.done("initialize", json!({}));
        let refused = editor.ask("launch", json!({ "program": "/no/such/program" }));
        assert!(refused["message"].as_str().unwrap().contains("/no/such/program"), "{refused}");
        editor.leave(json!({}));
    });
}

#[test]
fn a_thread_opens_into_a_session_of_its_ranks_through_a_second_adapter() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let mut editor = Editor::start(world);
        editor.begin("launch", launching(3));
        editor.done("setFunctionBreakpoints", json!({ "breakpoints": [{ "name": "solve" }] }));
        editor.done("configurationDone", json!({}));
        let thread = editor.thread("ranks 0-2: solve");
        editor.done("gantry/open", json!({ "threadId": thread }));
        let asked = editor.next("startDebugging", |it| it["command"] == "startDebugging");
        let configuration = asked["arguments"]["configuration"].clone();
        assert_eq!(
            (&asked["arguments"]["request"], &configuration["name"]),
            (&json!("attach"), &json!("ranks 0-2"))
        );
        // Starts a second adapter for the request, as editors do.
        let mut part = Editor::start(world);
        part.begin("attach", configuration.clone());
        part.done("configurationDone", json!({}));
        let one = part.thread("rank 1: solve");
        part.done("stepOut", json!({ "threadId": one, "singleThread": true }));
        editor.thread("rank 1: main");
        editor.thread("ranks 0,2: solve");
        let refused = part.ask("attach", json!({ "session": { "port": 1, "token": "x", "ranks": "0" } }));
        assert_eq!(refused["success"], false);
        part.leave(json!({}));
        // A client on the socket gets nothing without the token.
        let port = u16::try_from(configuration["session"]["port"].as_u64().unwrap()).unwrap();
        let mut stranger = Editor::connect(port);
        let refused =
            stranger.ask("attach", json!({ "session": { "port": port, "token": "x", "ranks": "0" } }));
        assert!(refused["message"].as_str().unwrap().starts_with("the token is wrong"), "{refused}");
        assert_eq!(stranger.ask("threads", json!({}))["success"], false);
        drop(stranger);
        editor.leave(json!({}));
    });
}

#[test]
fn an_editor_comes_by_a_socket_with_the_token_and_bad_messages_lose_nothing() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let mut adapter = world.gantry(["dap", "--listen"]);
        let line = adapter.next_line(SOON);
        let (address, token) = line.split_once(' ').unwrap();
        let port: u16 = address.rsplit(':').next().unwrap().parse().unwrap();
        let mut editor = Editor::connect(port);
        editor.done("initialize", json!({}));
        editor.write(b"hello\r\n\r\n");
        editor.write(b"Content-Length: 999999999\r\n\r\n");
        let mut second = Editor::connect(port);
        second.write(b"Content-Length: 1\r\n\r\n{Content-Length: 99\r\n\r\n");
        let bad = second.next("a refusal", |it| it["success"] == false);
        assert!(bad["message"].as_str().unwrap().contains("no JSON"), "{bad}");
        for _ in 0..2 {
            editor.next("a refusal", |it| it["success"] == false);
        }
        drop((editor, second));
        let mut editor = Editor::connect(port);
        let mut configuration = launching(1);
        configuration["token"] = "wrong".into();
        assert_eq!(editor.ask("launch", configuration.clone())["success"], false);
        configuration["token"] = token.into();
        editor.begin("launch", configuration);
        editor.done("configurationDone", json!({}));
        editor.output("0: round");
        editor.done("disconnect", json!({}));
        assert_eq!(adapter.wait(SOON).code(), 0);
    });
}

/// An editor whose ranks are all stepping, at a breakpoint that they hit continuously.
fn stepping(world: &World, request: &str, configuration: Value, ranks: u32) -> Editor {
    let mut editor = Editor::start(world);
    editor.begin(request, configuration);
    let never = json!({ "breakpoints": [{ "name": "solve", "condition": "n == 5" }] });
    editor.done("setFunctionBreakpoints", never);
    editor.done("configurationDone", json!({}));
    let running = editor.thread(&format!("ranks 0-{}: running", ranks - 1));
    editor.done("pause", json!({ "threadId": running }));
    let thread = editor.event("stopped")["threadId"].as_i64().unwrap();
    // The step leaves the system's library, which takes a while, and hits the breakpoint repeatedly.
    editor.done("stepOut", json!({ "threadId": thread, "singleThread": true }));
    editor
}

#[test]
fn ranks_go_on_when_the_adapter_or_the_daemon_is_killed_in_the_middle_of_a_step() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let (app, ranks) = launched(world, &[], "3");
        for kills_adapter in [true, false] {
            let editor = stepping(world, "attach", json!({ "target": app }), 3);
            match kills_adapter {
                true => proc::send(editor.pid(), Signal::SIGKILL),
                false => {
                    let drives = |pid: &i32| !proc::children(*pid).is_empty();
                    let gdbds = of_program(world, "gantry-gdbd").into_iter().filter(drives);
                    proc::send_those_left(gdbds, Signal::SIGKILL);
                }
            }
            eventually(SOON, "no gdb is left", || of_program(world, "gdb").is_empty());
            eventually(SOON, "they go on", || go_on(&ranks));
            drop(editor);
            eventually(SOON, "no daemon is left", || of_program(world, "gantry-gdbd").is_empty());
        }
        kill(world, &app);
        // An app that the adapter launched ends with the adapter.
        let editor = stepping(world, "launch", launching(2), 2);
        proc::send(editor.pid(), Signal::SIGKILL);
        drop(editor);
        eventually(SOON, "nothing is left", || world.processes().is_empty());
    });
}

#[test]
fn an_agent_that_is_killed_ends_the_session_with_its_reason() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let mut editor = stepping(world, "launch", launching(2), 2);
        let agents = of_program(world, "gantry-agent");
        assert!(!agents.is_empty());
        proc::send_those_left(agents, Signal::SIGKILL);
        editor.event("terminated");
        editor.leave(json!({}));
        eventually(SOON, "nothing is left", || world.processes().is_empty());
    });
}

#[test]
fn an_editor_hears_what_a_launch_waits_for_and_limits_it() {
    in_a_world(LIMIT, |world| {
        let site = world.path().join("site");
        std::fs::create_dir(&site).unwrap();
        std::fs::write(site.join("site.json"), r#"{ "queue_ms": 1000000 }"#).unwrap();
        let mut command = world.gantry_command(["dap"]);
        command.env("GANTRY_FAKE_SITE", &site);
        let mut editor = Editor::start_with(command);
        editor.done("initialize", json!({ "adapterID": "gantry" }));
        let mut configuration = launching(1);
        configuration["wlm"] = json!("fake");
        configuration["queueTimeout"] = json!(1);
        let refused = editor.ask("launch", configuration);
        assert!(refused["success"] == false && refused.to_string().contains("in the queue"), "{refused}");
        editor.output("submitted job 1; ");
        let end = site.join("jobs/1/end");
        eventually(SOON, "the job is cancelled", || end.exists());
        editor.leave(json!({}));
    });
}
