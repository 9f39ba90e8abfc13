//! Random requests and answers.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// Any request that an editor may send. Its arguments may fit.
fn any_request() -> impl Strategy<Value = (&'static str, Value)> {
    let commands = prop::sample::select(vec![
        "threads",
        "stackTrace",
        "scopes",
        "variables",
        "evaluate",
        "next",
        "stepIn",
        "stepOut",
        "continue",
        "pause",
        "setBreakpoints",
        "setFunctionBreakpoints",
        "setVariable",
        "disassemble",
        "readMemory",
        "configurationDone",
        "gantry/open",
    ]);
    (commands, 0_i64..6, prop::sample::select(vec!["n", "next", "print x", "focus 1", "ranks", "9"]))
        .prop_map(|(command, number, text)| {
            let arguments = json!({
                "threadId": number, "frameId": number, "variablesReference": number, "expression": text,
                "context": if number % 2 == 0 { "repl" } else { "watch" }, "name": text, "value": text,
                "memoryReference": format!("{number:#x}"), "count": number, "instructionCount": number,
                "source": { "path": "/x" },
                "breakpoints": [{ "line": number, "name": text, "logMessage": "a {b}" }],
            });
            (command, arguments)
        })
}

/// Any answer that daemons may give.
fn any_answer() -> impl Strategy<Value = (RankState, String)> {
    let states = prop::sample::select(vec![
        RankState::Held,
        RankState::Free,
        RankState::Coming,
        RankState::Running,
        stop("f", "breakpoint-hit", 1),
        stop("g", "", 0),
        RankState::Ended("exit code 0".to_owned()),
        RankState::Away("its daemon has ended".to_owned()),
    ]);
    let said = prop::sample::select(vec![
        "",
        "^done\n",
        "^running\n",
        "^error,msg=\"no\"\n",
        "^done\n^done,value=\"1\",children=[{exp=\"public\",name=\"x\"}],has_more=\"1\"\n^done\n",
        "^done,stack=[frame={func=\"f\"}],bkpt={number=\"1\",line=\"3\"}\n",
    ]);
    (states, said.prop_map(str::to_owned))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, max_shrink_iters: 500, ..ProptestConfig::default() })]

    #[test]
    fn every_request_has_one_response_whatever_nodes_say(
        requests in proptest::collection::vec(any_request(), 1..20),
        answers in proptest::collection::vec((any_answer(), any_answer()), 100),
    ) {
        let mut bed = Bed::held("0-3", json!({ "program": "a", "stopOnEntry": true }));
        bed.sent.clear();
        let first = bed.seq + 1;
        let mut answers = answers.into_iter();
        let mut settle = |bed: &mut Bed| {
            while let Some(effect) = bed.effects.pop() {
                match effect {
                    Effect::Order { what: What::Stand { .. }, .. } => {
                        // An answer without news.
                        bed.give(Input::Answered(Err("no news".to_owned())));
                    }
                    Effect::Order { .. } => {
                        let Some(((one, said_one), (other, said_other))) = answers.next() else {
                            bed.give(Input::Answered(Err("no more".to_owned())));
                            continue;
                        };
                        bed.answer(&[(answer(one, &said_one), "0-1"), (answer(other, &said_other), "2-3")]);
                    }
                    Effect::Release => bed.give(Input::Released(Ok(()))),
                    _ => {}
                }
            }
        };
        for (command, arguments) in requests {
            bed.ask(command, arguments);
            settle(&mut bed);
        }
        bed.give(Input::Ended(Ok(0)));
        settle(&mut bed);
        let mut answered: Vec<i64> = bed
            .sent
            .iter()
            .filter(|(_, it)| it["type"] == "response")
            .map(|(_, it)| it["request_seq"].as_i64().unwrap())
            .collect();
        answered.sort_unstable();
        prop_assert_eq!(answered, (first..=bed.seq).collect::<Vec<_>>());
    }
}
