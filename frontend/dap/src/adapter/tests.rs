mod random;

use gantry_gdb::answer::{Reply, Stop};
use serde_json::Value;

use super::*;
use crate::frame::Frames;

const ME: Client = Client(0);

/// An adapter without processes. The test records its effects and answers its orders.
struct Bed {
    adapter: Adapter,
    sent: Vec<(Client, Value)>,
    effects: Vec<Effect>,
    seq: i64,
}

fn set(text: &str) -> RankSet {
    text.parse().unwrap()
}

fn stop(function: &str, why: &str, breakpoint: u32) -> RankState {
    RankState::Stopped(Stop {
        why: why.to_owned(),
        function: function.to_owned(),
        file: "/x/a.c".to_owned(),
        line: 7,
        breakpoint,
    })
}

fn answer(state: RankState, said: &str) -> Answer {
    Answer { state, reply: Some(Reply { said: said.to_owned(), ..Reply::default() }) }
}

impl Bed {
    fn new() -> Self {
        let mut bed = Self {
            adapter: Adapter::new("secret".to_owned()),
            sent: Vec::new(),
            effects: Vec::new(),
            seq: 0,
        };
        bed.give(Input::Joined { client: ME, by_socket: false });
        bed
    }

    /// An adapter that has launched these ranks and holds them.
    fn held(ranks: &str, configuration: Value) -> Self {
        let mut bed = Self::new();
        bed.ask("initialize", json!({ "supportsStartDebuggingRequest": true }));
        bed.ask("launch", configuration);
        assert!(matches!(bed.effects.pop(), Some(Effect::Start(_))));
        bed.start(ranks, RankState::Held);
        bed
    }

    fn start(&mut self, ranks: &str, state: RankState) {
        let answers = vec![(Answer { state, reply: None }, set(ranks))];
        self.give(Input::Started(Ok(Started { ranks: set(ranks), answers, program: "/x/a".to_owned() })));
    }

    fn give(&mut self, input: Input) {
        for effect in self.adapter.handle(input) {
            match effect {
                Effect::Send(client, bytes) => Frames::default().push(&bytes, |frame| match frame {
                    Frame::Body(body) => self.sent.push((client, serde_json::from_slice(&body).unwrap())),
                    Frame::Bad(why) => panic!("{why}"),
                }),
                other => self.effects.push(other),
            }
        }
    }

    fn ask_of(&mut self, client: Client, command: &str, arguments: Value) -> i64 {
        self.seq += 1;
        let body = json!({ "seq": self.seq, "type": "request", "command": command, "arguments": arguments });
        self.give(Input::Frame(client, Frame::Body(body.to_string().into_bytes())));
        self.seq
    }

    fn ask(&mut self, command: &str, arguments: Value) -> i64 {
        self.ask_of(ME, command, arguments)
    }

    /// The pending order. `idle` answers pending `Stand` orders.
    #[track_caller]
    fn order(&mut self) -> What {
        match self.effects.pop() {
            Some(Effect::Order { what, .. }) => what,
            other => panic!("no order: {other:?}"),
        }
    }

    /// The commands of the pending order, and their ranks.
    #[track_caller]
    fn asked(&mut self) -> (String, String) {
        match self.order() {
            What::Ask { ranks, commands, .. } => (ranks.to_string(), commands.join("; ")),
            other => panic!("{other:?}"),
        }
    }

    fn answer(&mut self, answers: &[(Answer, &str)]) {
        let answers = answers.iter().map(|(answer, ranks)| (answer.clone(), set(ranks))).collect();
        self.give(Input::Answered(Ok(answers)));
    }

    /// A short form of everything sent since the last call.
    fn told(&mut self) -> Vec<String> {
        let short = |(_, message): (Client, Value)| match message["type"].as_str() {
            Some("event") => format!("{} {}", message["event"].as_str().unwrap(), message["body"]),
            Some("response") if message["success"] == true => {
                format!("ok {} {}", message["command"].as_str().unwrap(), message["body"])
            }
            Some("response") => format!("no {}", message["message"].as_str().unwrap()),
            _ => format!("request {} {}", message["command"].as_str().unwrap(), message["arguments"]),
        };
        std::mem::take(&mut self.sent).into_iter().map(short).collect()
    }

    #[track_caller]
    fn assert_told(&mut self, parts: &[&str]) {
        let told = self.told();
        for part in parts {
            assert!(told.iter().any(|it| it.contains(part)), "no '{part}' in {}", told.join("\n"));
        }
    }

    /// Ranks 0-3 are stopped at `solve`, and an editor knows it.
    fn standing() -> Self {
        let mut bed = Self::held("0-3", json!({ "program": "a", "stopOnEntry": true }));
        bed.ask("configurationDone", json!({}));
        bed.ask("continue", json!({ "threadId": 1 }));
        assert_eq!(bed.effects, [Effect::Release]);
        bed.effects.clear();
        bed.give(Input::Released(Ok(())));
        bed.order();
        bed.answer(&[(Answer { state: RankState::Free, reply: None }, "0-3")]);
        bed.ask("pause", json!({ "threadId": 1 }));
        assert_eq!(bed.asked(), ("0-3".to_owned(), "-gdb-show confirm".to_owned()));
        bed.answer(&[(answer(stop("solve", "", 0), "^done\n"), "0-3")]);
        // The adapter asks for their place, and interrupts the running ranks.
        bed.place("0-3", "solve");
        assert!(matches!(bed.order(), What::Interrupt { .. }));
        bed.answer(&[(answer(stop("solve", "", 0), "^done\n"), "0-3")]);
        bed.assert_told(&["\"reason\":\"pause\""]);
        bed
    }

    /// Answers with the place of the ranks.
    #[track_caller]
    fn place(&mut self, ranks: &str, function: &str) {
        let (asked, commands) = self.asked();
        assert_eq!((asked.as_str(), commands.as_str()), (ranks, "-stack-list-frames 0 63"));
        let said = format!("^done,stack=[frame={{level=\"0\",func=\"{function}\"}}]\n");
        let state = self.adapter.state.session.sets().states().to_vec();
        let answers = state.into_iter().map(|(state, of)| (answer(state, &said), of)).collect();
        self.give(Input::Answered(Ok(answers)));
    }
}

#[test]
fn held_ranks_get_breakpoints_and_go_on_and_the_one_that_stops_is_a_thread() {
    let mut bed = Bed::held("0-3", json!({ "program": "a", "launcherArgs": ["-n", "4"] }));
    bed.assert_told(&[
        "ok initialize",
        "ok launch",
        "initialized",
        "process {",
        "\"startMethod\":\"launch\"",
    ]);
    assert!(bed.effects.is_empty(), "no gdb before it is needed: {:?}", bed.effects);
    bed.ask("threads", json!({}));
    bed.assert_told(&["ranks 0-3: held before the first instruction"]);
    let source = json!({ "source": { "path": "/x/a.c" }, "breakpoints": [{ "line": 7 }, { "line": 1, "hitCondition": "x" }] });
    bed.ask("setBreakpoints", source);
    let (ranks, commands) = bed.asked();
    assert_eq!(ranks, "0-3");
    assert!(commands.starts_with("-break-insert -f --source \"/x/a.c\" --line 7; "), "{commands}");
    let said = "^done,bkpt={number=\"1\",line=\"7\"}\n^done\n";
    bed.answer(&[(answer(stop("_start", "", 0), said), "0-3")]);
    bed.assert_told(&["\"verified\":true", "'x' is no count of hits"]);
    bed.ask("configurationDone", json!({}));
    let (ranks, commands) = bed.asked();
    assert_eq!((ranks.as_str(), commands.as_str()), ("0-3", "-stack-select-frame 0; -exec-continue"));
    bed.answer(&[(answer(RankState::Running, "^done\n^running\n"), "0-3")]);
    assert!(bed.effects.contains(&Effect::Release), "the app is held no more: {:?}", bed.effects);
    assert!(matches!(bed.order(), What::Stand { .. }));
    bed.told();
    let stops =
        [(answer(RankState::Running, ""), "0-1,3"), (answer(stop("solve", "breakpoint-hit", 1), ""), "2")];
    bed.answer(&stops);
    // The adapter waits a moment for the other ranks.
    assert!(matches!(bed.order(), What::Stand { ranks } if ranks == set("0-1,3")));
    bed.answer(&stops);
    bed.place("2", "solve");
    bed.assert_told(&[
        "thread {\"reason\":\"started\",\"threadId\":2}",
        "\"hitBreakpointIds\":[1]",
        "\"reason\":\"breakpoint\",\"threadId\":2",
        "\"allThreadsStopped\":false",
    ]);
    bed.ask("threads", json!({}));
    bed.assert_told(&["{\"id\":1,\"name\":\"ranks 0-1,3: running\"},{\"id\":2,\"name\":\"rank 2: solve\"}"]);
}

#[test]
fn without_breakpoints_ranks_are_released_and_get_no_gdb() {
    let mut bed = Bed::held("0-511", json!({ "program": "a" }));
    bed.ask("setBreakpoints", json!({ "source": { "path": "/x" }, "breakpoints": [] }));
    bed.assert_told(&["ok setBreakpoints {\"breakpoints\":[]}"]);
    bed.ask("configurationDone", json!({}));
    assert_eq!(bed.effects, [Effect::Release]);
}

#[test]
fn a_step_is_one_threads_and_continue_is_for_all() {
    let mut bed = Bed::standing();
    bed.ask("next", json!({ "threadId": 1 }));
    assert_eq!(bed.asked(), ("0-3".to_owned(), "-stack-select-frame 0; -exec-next".to_owned()));
    bed.answer(&[(answer(RankState::Running, "^done\n^running\n"), "0-3")]);
    bed.assert_told(&["ok next"]);
    bed.order();
    // The ranks stop at two places.
    bed.answer(&[
        (answer(stop("solve", "end-stepping-range", 0), ""), "0-2"),
        (answer(stop("other", "signal SIGSEGV", 0), ""), "3"),
    ]);
    let (ranks, _) = bed.asked();
    assert_eq!(ranks, "0-3");
    let frame = |function| format!("^done,stack=[frame={{func=\"{function}\"}}]\n");
    bed.answer(&[
        (answer(stop("solve", "end-stepping-range", 0), &frame("solve")), "0-2"),
        (answer(stop("other", "signal SIGSEGV", 0), &frame("other")), "3"),
    ]);
    let told = bed.told();
    let stops: Vec<&String> = told.iter().filter(|it| it.starts_with("stopped")).collect();
    // The most important stop comes first, and the editor moves there.
    assert!(
        stops[0].contains("\"reason\":\"exception\",\"text\":\"signal SIGSEGV\",\"threadId\":2"),
        "{told:?}"
    );
    assert!(
        stops[1].contains("\"preserveFocusHint\":true") && stops[1].contains("\"threadId\":1"),
        "{told:?}"
    );
    bed.ask("continue", json!({ "threadId": 2, "singleThread": true }));
    assert_eq!(bed.asked().0, "3");
    bed.answer(&[(answer(RankState::Running, "^running\n"), "3"), (answer(stop("solve", "", 0), ""), "0-2")]);
    bed.assert_told(&["ok continue {\"allThreadsContinued\":false}"]);
    assert!(matches!(bed.order(), What::Stand { ranks } if ranks == set("3")));
    bed.ask("continue", json!({ "threadId": 1 }));
    bed.answer(&[(answer(RankState::Running, ""), "3"), (answer(stop("solve", "", 0), ""), "0-2")]);
    // Rank 3 is already running.
    assert_eq!(bed.asked().0, "0-2");
    bed.answer(&[(answer(RankState::Running, "^running\n"), "0-3")]);
    bed.assert_told(&[
        "ok continue {\"allThreadsContinued\":true}",
        "thread {\"reason\":\"exited\",\"threadId\":2}",
    ]);
    bed.ask("next", json!({ "threadId": 1 }));
    bed.assert_told(&["no ranks 0-3: running: pause them first"]);
}

#[test]
fn frames_and_variables_are_those_of_all_ranks_of_the_thread() {
    let mut bed = Bed::standing();
    let at = stop("solve", "", 0);
    bed.ask("stackTrace", json!({ "threadId": 1, "levels": 1 }));
    assert_eq!(bed.asked(), ("0".to_owned(), "-stack-list-frames 0 0; -stack-info-depth 1000".to_owned()));
    let frame = "^done,stack=[frame={level=\"0\",addr=\"0x10\",func=\"solve\",file=\"a.c\",fullname=\"/x/a.c\",line=\"7\"}]\n^done,depth=\"2\"\n";
    bed.answer(&[(answer(at.clone(), frame), "0"), (answer(at.clone(), ""), "1-3")]);
    bed.assert_told(&[
        "\"instructionPointerReference\":\"0x10\"",
        "\"path\":\"/x/a.c\"",
        "\"totalFrames\":2",
    ]);
    bed.ask("scopes", json!({ "frameId": 1 }));
    bed.assert_told(&["\"name\":\"Locals\"", "\"variablesReference\":2"]);
    bed.ask("variables", json!({ "variablesReference": 2 }));
    assert_eq!(
        bed.asked(),
        ("0-3".to_owned(), "-stack-select-frame 0; -stack-list-variables --simple-values".to_owned())
    );
    let locals = |n: u32| {
        format!(
            "^done\n^done,variables=[{{name=\"n\",type=\"int\",value=\"{n}\"}},{{name=\"a\",type=\"int [4]\"}}]\n"
        )
    };
    bed.answer(&[(answer(at.clone(), &locals(1)), "0-2"), (answer(at.clone(), &locals(9)), "3")]);
    bed.assert_told(&["\"name\":\"n\",\"type\":\"int\",\"value\":\"[1;9]\"", "\"variablesReference\":4"]);
    bed.ask("variables", json!({ "variablesReference": 4 }));
    let (_, commands) = bed.asked();
    assert_eq!(
        commands,
        "-stack-select-frame 0; -var-create gantry1 * \"a\"; -var-list-children --all-values gantry1 0 100"
    );
    let children = "^done\n^done\n^done,numchild=\"200\",children=[child={name=\"gantry1.0\",exp=\"0\",numchild=\"0\",value=\"5\",type=\"int\"}],has_more=\"1\"\n";
    bed.answer(&[(answer(at.clone(), children), "0-3")]);
    bed.assert_told(&["\"name\":\"0\",\"type\":\"int\",\"value\":\"5\"", "\"name\":\"[100...]\""]);
    bed.ask("setVariable", json!({ "variablesReference": 4, "name": "0", "value": "6" }));
    assert_eq!(bed.asked().1, "-var-assign gantry1.0 \"6\"");
    bed.answer(&[(answer(at, "^done,value=\"6\"\n"), "0-3")]);
    bed.assert_told(&["ok setVariable {\"value\":\"6\"}"]);
    // The adapter deletes their variable objects when they continue.
    bed.ask("stepOut", json!({ "threadId": 1 }));
    assert_eq!(bed.asked().1, "-var-delete gantry1; -stack-select-frame 0; -exec-finish");
    bed.answer(&[(answer(RankState::Running, "^done\n^done\n^running\n"), "0-3")]);
    bed.ask("scopes", json!({ "frameId": 1 }));
    bed.assert_told(&["no its ranks have gone on since"]);
}

#[test]
fn members_of_a_class_stand_where_the_class_stands() {
    let mut bed = Bed::standing();
    let at = stop("solve", "", 0);
    bed.ask("stackTrace", json!({ "threadId": 1 }));
    bed.order();
    bed.answer(&[(answer(at.clone(), "^done,stack=[frame={func=\"solve\"}]\n^done,depth=\"1\"\n"), "0-3")]);
    bed.ask("evaluate", json!({ "frameId": 1, "expression": "it", "context": "watch" }));
    bed.order();
    bed.answer(&[(
        answer(at.clone(), "^done\n^done,name=\"gantry1\",numchild=\"1\",value=\"{...}\",type=\"It\"\n"),
        "0-3",
    )]);
    bed.assert_told(&["\"result\":\"{...}\",\"type\":\"It\",\"variablesReference\":2"]);
    bed.ask("variables", json!({ "variablesReference": 2 }));
    bed.order();
    let heading =
        "^done,children=[child={name=\"gantry1.public\",exp=\"public\",numchild=\"1\"}],has_more=\"0\"\n";
    bed.answer(&[(answer(at.clone(), heading), "0-3")]);
    assert_eq!(bed.asked().1, "-var-list-children --all-values gantry1.public 0 100");
    let member = "^done,children=[child={name=\"gantry1.public.x\",exp=\"x\",numchild=\"0\",value=\"1\",type=\"int\"}],has_more=\"0\"\n";
    bed.answer(&[(answer(at, member), "0-3")]);
    bed.assert_told(&[
        "{\"variables\":[{\"name\":\"x\",\"type\":\"int\",\"value\":\"1\",\"variablesReference\":0}]}",
    ]);
}

#[test]
fn a_log_message_is_said_and_its_ranks_go_on() {
    let mut bed = Bed::standing();
    let log =
        json!({ "source": { "path": "/x/a.c" }, "breakpoints": [{ "line": 7, "logMessage": "n is {n}" }] });
    bed.ask("setBreakpoints", log);
    bed.order();
    bed.answer(&[(answer(stop("solve", "", 0), "^done,bkpt={number=\"1\",line=\"7\"}\n"), "0-3")]);
    bed.ask("continue", json!({ "threadId": 1 }));
    bed.order();
    bed.answer(&[(answer(RankState::Running, "^done\n^running\n"), "0-3")]);
    bed.order();
    bed.told();
    bed.answer(&[(answer(stop("solve", "breakpoint-hit", 1), ""), "0-3")]);
    assert_eq!(bed.asked(), ("0-3".to_owned(), "-data-evaluate-expression \"n\"; -exec-continue".to_owned()));
    let said = |n: u32| format!("^done,value=\"{n}\"\n^running\n");
    bed.answer(&[
        (answer(RankState::Running, &said(1)), "0-1"),
        (answer(RankState::Running, &said(2)), "2-3"),
    ]);
    let told = bed.told();
    assert!(told.iter().any(|it| it.contains("ranks 0-3: n is [1;2]")), "{told:?}");
    assert!(!told.iter().any(|it| it.starts_with("stopped")), "{told:?}");
}

#[test]
fn what_is_typed_goes_to_sets_of_ranks() {
    let mut bed = Bed::standing();
    let at = stop("solve", "", 0);
    let mut typed = |text: &str, expected: &str| {
        bed.ask("evaluate", json!({ "expression": text, "context": "repl" }));
        match bed.order() {
            What::Tell { ranks, line } => assert_eq!(format!("{ranks} {line}"), expected),
            other => panic!("{other:?}"),
        }
        bed.answer(&[(answer(at.clone(), "$1 = 1\n"), "0-1"), (answer(at.clone(), "$1 = 2\n"), "2-3")]);
        bed.told().join("\n")
    };
    assert!(typed("print rank", "0-3 print rank").contains("[0-3] $1 = [1;2]\\nmin 1"));
    assert!(typed("@(at solve) print rank", "0-3 print rank").contains("[0-3]"));
    assert!(typed("compare 0 1-3 rank", "0-3 print rank").contains("[0] 1 | [2-3] 2"));
    let mut refused = |text: &str, expected: &str| {
        bed.ask("evaluate", json!({ "expression": text, "context": "repl" }));
        bed.assert_told(&[expected]);
    };
    refused("focus 9", "no there is no rank 9");
    refused("run", "no 'run' starts a program");
    refused("focus 1", "ok evaluate {\"result\":\"1\"");
    refused("quit", "no this is a word of 'gantry gdb'");
    // A typed step command counts as a step.
    bed.ask("evaluate", json!({ "expression": "next", "context": "repl" }));
    assert!(matches!(bed.order(), What::Tell { ranks, .. } if ranks == set("1")));
    let stands = stop("solve", "end-stepping-range", 0);
    bed.answer(&[(answer(stands, "8\n"), "1"), (answer(stop("solve", "", 0), ""), "0,2-3")]);
    bed.place("1", "solve");
    bed.assert_told(&["ok evaluate", "\"reason\":\"step\""]);
}

#[test]
fn a_thread_opens_into_a_session_of_single_ranks() {
    let mut bed = Bed::standing();
    bed.ask("gantry/open", json!({ "threadId": 1 }));
    assert_eq!(bed.effects, [Effect::Listen]);
    bed.effects.clear();
    bed.give(Input::Listening(Ok(4711)));
    bed.assert_told(&[
        "request startDebugging",
        "\"port\":4711,\"ranks\":\"0-3\",\"token\":\"secret\"",
        "\"type\":\"gantry\"",
    ]);
    let part = Client(1);
    bed.give(Input::Joined { client: part, by_socket: true });
    bed.ask_of(part, "attach", json!({ "session": { "port": 4711, "token": "wrong", "ranks": "0-1" } }));
    bed.assert_told(&["no the token is wrong"]);
    bed.ask_of(part, "attach", json!({ "session": { "port": 4711, "token": "secret", "ranks": "0-1" } }));
    bed.ask_of(part, "configurationDone", json!({}));
    bed.ask_of(part, "threads", json!({}));
    bed.assert_told(&[
        "initialized",
        "stopped",
        "\"name\":\"rank 0: solve\"}",
        "\"name\":\"rank 1: solve\"}",
    ]);
    // A rank that continues in the partial session continues in this one.
    bed.ask_of(part, "next", json!({ "threadId": 2, "singleThread": true }));
    assert_eq!(bed.asked().0, "1");
    bed.answer(&[
        (answer(RankState::Running, "^done\n^running\n"), "1"),
        (answer(stop("solve", "", 0), ""), "0,2-3"),
    ]);
    let told: Vec<(Client, Value)> = std::mem::take(&mut bed.sent);
    assert!(told.iter().any(|(client, it)| *client == ME && it["event"] == "continued"), "{told:?}");
    bed.effects.clear();
    bed.ask_of(part, "disconnect", json!({}));
    assert!(bed.effects.contains(&Effect::Close(part)) && !bed.effects.contains(&Effect::Stop));
}

#[test]
fn what_comes_by_a_socket_shows_the_token() {
    let mut bed = Bed::new();
    let stranger = Client(5);
    bed.give(Input::Joined { client: stranger, by_socket: true });
    bed.ask_of(stranger, "launch", json!({ "program": "a" }));
    bed.assert_told(&["no the token is wrong"]);
    for command in ["threads", "pause", "evaluate", "terminate", "gantry/open"] {
        bed.ask_of(stranger, command, json!({}));
        bed.assert_told(&["no there are no ranks yet"]);
    }
    bed.ask_of(stranger, "disconnect", json!({}));
    assert_eq!(bed.effects, [Effect::Close(stranger)]);
    bed.give(Input::Left(stranger));
    assert_eq!(bed.effects, [Effect::Close(stranger)]);
    bed.effects.clear();
    let friend = Client(6);
    bed.give(Input::Joined { client: friend, by_socket: true });
    bed.ask_of(friend, "launch", json!({ "program": "a", "token": "secret" }));
    assert!(matches!(bed.effects.pop(), Some(Effect::Start(_))));
    bed.ask("launch", json!({ "program": "b" }));
    bed.assert_told(&["no this adapter debugs something already"]);
}

#[test]
fn the_end_is_told_and_leaves_ranks_as_is_wanted() {
    let check = |launched: bool, arguments: Value, expected: bool| {
        let mut bed = Bed::new();
        let (command, configuration) = match launched {
            true => ("launch", json!({ "program": "a" })),
            false => ("attach", json!({ "target": 4711 })),
        };
        bed.ask(command, configuration);
        bed.effects.clear();
        bed.start("0", RankState::Free);
        bed.ask("disconnect", arguments);
        assert_eq!(bed.effects.pop(), Some(Effect::End { terminate: expected }));
        bed.told();
        bed.give(Input::Over(Ok(())));
        bed.assert_told(&["ok disconnect", "terminated"]);
        assert_eq!(bed.effects, [Effect::Close(ME), Effect::Stop]);
    };
    check(true, json!({}), true);
    check(true, json!({ "terminateDebuggee": false }), false);
    check(false, json!({}), false);
    check(false, json!({ "terminateDebuggee": true }), true);
    let mut bed = Bed::standing();
    bed.give(Input::Ended(Ok(3)));
    bed.assert_told(&[
        "exited {\"exitCode\":3}",
        "terminated",
        "thread {\"reason\":\"exited\",\"threadId\":1}",
    ]);
    bed.ask("next", json!({ "threadId": 1 }));
    bed.assert_told(&["no all ranks have ended"]);
    bed.give(Input::Left(ME));
    assert_eq!(bed.effects, [Effect::End { terminate: true }]);
}

#[test]
fn a_gdb_that_is_gone_is_told_and_nodes_that_do_not_answer_are_not_asked_all_the_time() {
    let mut bed = Bed::standing();
    bed.ask("next", json!({ "threadId": 1 }));
    bed.order();
    bed.answer(&[
        (answer(RankState::Running, "^done\n^running\n"), "0-2"),
        (answer(RankState::Free, "^done\n^running\n"), "3"),
    ]);
    bed.assert_told(&["the gdb of rank 3 has ended"]);
    bed.order();
    bed.give(Input::Answered(Err("the node is lost".to_owned())));
    bed.assert_told(&["the node is lost"]);
    assert!(bed.effects.is_empty(), "{:?}", bed.effects);
    bed.ask("threads", json!({}));
    assert!(matches!(bed.order(), What::Stand { .. }));
}

#[test]
fn what_makes_no_sense_is_answered_and_what_follows_is_done() {
    let mut bed = Bed::new();
    bed.give(Input::Frame(ME, Frame::Body(b"{".to_vec())));
    bed.give(Input::Frame(ME, Frame::Bad("too long".to_owned())));
    bed.give(Input::Frame(ME, Frame::Body(b"{\"seq\":9,\"type\":\"hello\"}".to_vec())));
    bed.ask("launch", json!({ "launcherArgs": 3 }));
    bed.ask("nosuchthing", json!({}));
    bed.ask("initialize", json!({}));
    bed.assert_told(&[
        "no this is no JSON",
        "no too long",
        "no this is neither request nor response",
        "no arguments of 'launch'",
        "ok initialize",
    ]);
    let mut bed = Bed::standing();
    bed.ask("nosuchthing", json!({}));
    bed.ask("next", json!({ "threadId": 99 }));
    bed.ask("scopes", json!({}));
    bed.assert_told(&[
        "no there is no request 'nosuchthing' here",
        "no there is no thread 99",
        "no arguments of 'scopes'",
    ]);
}
