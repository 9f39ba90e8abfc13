//! A launch: the environment of ranks, and reports of their ends.

use std::time::Duration;

use gantry_frontend::info::AppState;
use gantry_frontend::{Event, LaunchRequest, OutputTo};
use gantry_tests::{SOON, Site, on_every_wlm, on_every_wlm_but, on_this_machine, pids, proc, programs};
use gantry_types::error::Kind;
use gantry_types::id::NodeId;
use gantry_types::signal::Signal;

const LIMIT: Duration = Duration::from_secs(90);

/// Launches with a stream of output, and returns each rank's output and the app's code.
async fn outputs(site: &Site, request: LaunchRequest) -> (Vec<String>, i32) {
    let app = site.launch(request.output(OutputTo::Stream)).await;
    let texts = site.texts(&app).await;
    let code = app.wait().await.expect("the end").code;
    app.close(SOON).await.expect("close");
    (texts.into_iter().map(|text| String::from_utf8(text).expect("text")).collect(), code)
}

fn line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

#[test]
fn ranks_run_and_are_where_the_app_says() {
    on_every_wlm(LIMIT, async |site| {
        let program = programs::get("loop_forever").display().to_string();
        let app = site.launch(LaunchRequest::new(["-n", "3", &program])).await;
        assert_eq!(app.state(), AppState::Running);
        let info = app.info();
        let (placement, processes) = (app.placement(), pids(&app));
        assert_eq!((info.ranks.len(), placement.rank_count(), app.node_count()), (3, 3, 1));
        assert_eq!(info.owner.get().unsigned_abs(), std::process::id());
        assert_eq!((info.app, info.wlm.as_str(), info.attached), (app.id(), app.wlm(), false));
        assert_eq!(info.command, ["-n", "3", &program]);
        for ((rank, place), pid) in info.ranks.iter().zip(placement.iter()).zip(&processes) {
            assert_eq!((rank.pid, rank.host.as_str()), (place.pid, place.host));
            let exe = proc::exe(*pid).map(|exe| exe.display().to_string());
            assert_eq!(exe.as_deref(), Some(rank.exe.as_str()));
        }
        app.close(SOON).await.expect("close");
        assert!(!processes.iter().any(|pid| proc::is_alive(*pid)), "{info:?}");
    });
}

#[test]
fn ranks_get_their_identity() {
    on_every_wlm(LIMIT, async |site| {
        let program = programs::get("say").display().to_string();
        let request = LaunchRequest::new(site.spread(2, 4, &[&program, "a b", "", "-n"]));
        let app_of = |text: &str| line(text, "GANTRY_APP").map(str::to_owned);
        let (texts, code) = outputs(site, request).await;
        assert_eq!(code, 0);
        for (rank, text) in texts.iter().enumerate() {
            let expected = |name: &str, value: String| {
                assert_eq!(line(text, name), Some(value.as_str()), "{name} of {text}")
            };
            let [number, size, on_node, node] = site.rank_variables();
            expected(number, rank.to_string());
            expected(size, "4".to_owned());
            expected(on_node, (rank % 2).to_string());
            expected(node, (rank / 2).to_string());
            expected("argc", "4".to_owned());
            expected("arg1", "a b".to_owned());
            expected("arg2", String::new());
            expected("arg3", "-n".to_owned());
            assert_eq!(app_of(text), app_of(&texts[0]));
            // Ranks that a launcher has started have the launcher's variables.
            assert!(
                site.comes_by_one_pipe()
                    || app_of(text).is_some_and(|app| app.parse::<gantry_types::id::AppId>().is_ok())
            );
        }
    });
}

#[test]
fn ranks_start_in_the_directory_and_environment_that_were_asked_for() {
    on_every_wlm(LIMIT, async |site| {
        let program = programs::get("say").display().to_string();
        let own = std::env::current_dir().expect("a directory").display().to_string();
        let (texts, _) = outputs(site, LaunchRequest::new(["-n", "2", &program])).await;
        assert!(texts.iter().all(|text| line(text, "cwd") == Some(&own)), "{texts:?}");

        let other = site.world.runtime_dir().canonicalize().expect("a directory");
        let request = LaunchRequest::new(["-n", "2", &program]).cwd(&other);
        let request = request.env("GANTRY_MINE", "first").env("GANTRY_MINE", "a=b c");
        // The tool must not set a rank's identity.
        let [number, ..] = site.rank_variables();
        let request = request.env(number, "77").env_string("GANTRY_EMPTY=").expect("a good string");
        let (texts, _) = outputs(site, request).await;
        for (rank, text) in texts.iter().enumerate() {
            assert_eq!(line(text, "cwd"), other.to_str());
            assert_eq!(line(text, "GANTRY_MINE"), Some("a=b c"));
            assert_eq!(line(text, "GANTRY_EMPTY"), Some(""));
            assert_eq!(line(text, number), Some(rank.to_string().as_str()));
            assert_eq!(text.matches(&format!("\n{number}=")).count(), 1);
            assert_eq!(line(text, "GANTRY_TEST_TAG"), Some(site.world.tag()), "the tool's own environment");
        }
    });
}

#[test]
fn a_program_is_looked_up_in_the_path_that_ranks_get() {
    on_every_wlm(LIMIT, async |site| {
        site.world.executable("only-here", b"#!/bin/sh\necho found $0\n");
        let path = format!("{}:/usr/bin:/bin", site.world.work_dir().display());
        let (texts, code) =
            outputs(site, LaunchRequest::new(["-n", "1", "only-here"]).env("PATH", &path)).await;
        assert_eq!((code, texts.len()), (0, 1));
        assert!(texts[0].starts_with("found "), "{texts:?}");
        let (texts, _) =
            outputs(site, LaunchRequest::new(["-n", "1", "./only-here"]).cwd(site.world.work_dir())).await;
        assert!(texts[0].starts_with("found "), "{texts:?}");
    });
}

#[test]
fn every_rank_has_its_code_and_the_app_has_the_highest() {
    on_every_wlm(LIMIT, async |site| {
        let program = programs::get("exit_with").display().to_string();
        let app = site.held(["-n", "4", &program, "0", "3", "255", "7"]).await;
        app.release(SOON).await.expect("release");
        let exit = app.wait().await.expect("the end");
        let codes: Vec<_> =
            exit.ranks.iter().map(|rank| (rank.rank.0, rank.status.code, rank.status.signal)).collect();
        assert_eq!(codes, [(0, Some(0), None), (1, Some(3), None), (2, Some(255), None), (3, Some(7), None)]);
        assert_eq!(exit.code, 255);
        assert_eq!(app.info().exit.as_ref(), Some(&exit));
        assert_eq!(app.wait().await.expect("the end again"), exit);
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_rank_that_a_signal_ends_is_told_with_the_signal() {
    on_every_wlm(LIMIT, async |site| {
        let program = programs::get("crash").display().to_string();
        let signals = [
            ("abort", libc::SIGABRT),
            ("segv", libc::SIGSEGV),
            ("trap", libc::SIGTRAP),
            ("kill", libc::SIGKILL),
        ];
        for (how, number) in signals {
            let app = site.launch(LaunchRequest::new(["-n", "3", &program, how, "1"])).await;
            let exit = app.wait().await.expect("the end");
            assert_eq!(exit.code, 128 + number, "{exit:?}");
            assert_eq!(exit.ranks[1].status.signal, Signal::new(number));
            assert_eq!((exit.ranks[0].status.code, exit.ranks[2].status.code), (Some(0), Some(0)));
            app.close(SOON).await.expect("close");
        }
    });
}

#[test]
fn events_come_in_order_and_nothing_comes_after_the_end() {
    on_every_wlm(LIMIT, async |site| {
        let program = programs::get("exit_with").display().to_string();
        let app = site.held(["-n", "3", &program, "1"]).await;
        let mut events = app.events();
        app.release(SOON).await.expect("release");
        app.wait().await.expect("the end");
        let mut late = app.events();
        app.close(SOON).await.expect("close");
        let names = async |events: &mut gantry_frontend::Events| {
            let mut names = Vec::new();
            while let Some(event) = events.next().await {
                let value = serde_json::to_value(&event).expect("JSON");
                names.push(value["event"].as_str().unwrap_or("?").to_owned());
                if let Event::Held { ranks, .. } = event {
                    assert_eq!(ranks.iter().map(|rank| rank.rank.0).collect::<Vec<_>>(), [0, 1, 2]);
                }
            }
            names
        };
        assert_eq!(
            names(&mut events).await,
            ["held", "released", "rank_exited", "rank_exited", "rank_exited", "exited"]
        );
        assert_eq!(names(&mut late).await, ["started", "exited"], "a late listener is told how it stands");
    });
}

#[test]
fn many_ranks_that_end_at_once_are_all_told() {
    // On a bed a thousand more processes of this machine show nothing more.
    on_this_machine(LIMIT, async |site| {
        for _ in 0..5 {
            let app = site.launch(LaunchRequest::new(["-n", "100", "/bin/true"])).await;
            let exit = app.wait().await.expect("the end");
            assert!(exit.ranks.iter().all(|rank| rank.status.code == Some(0)), "{exit:?}");
            app.close(SOON).await.expect("close");
        }
    });
}

#[test]
fn nodes_are_found_by_their_names() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(site.spread(3, 6, &["/bin/true"])).await;
        let placement = app.placement();
        let hosts: Vec<String> = placement.hosts().map(str::to_owned).collect();
        assert_eq!((hosts.len(), app.node_count()), (3, 3));
        let found = app.nodes_by_hosts(&hosts[1..]).expect("two nodes");
        assert_eq!(found.to_string(), "1-2");
        let error = app.nodes_by_hosts(&["nowhere"]).expect_err("no such node");
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.hint().is_some_and(|hint| hint.contains("its nodes: ")), "{:?}", error.hint());
        let ranks: Vec<_> = (0..3).map(|node| placement.ranks_on(NodeId(node)).to_string()).collect();
        assert_eq!(ranks, ["0-1", "2-3", "4-5"]);
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn background_children_of_ranks_end_with_the_app() {
    // srun waits for processes that hold its pipes, and its ranks have no mark for agents beside them.
    on_every_wlm_but("slurm by mpir", LIMIT, async |site| {
        let program = programs::get("fork_child").display().to_string();
        for how in ["", "session"] {
            let mut request = LaunchRequest::new(["-n", "2", &program]).output(OutputTo::Stream);
            if !how.is_empty() {
                request = LaunchRequest::new(["-n", "2", &program, how]).output(OutputTo::Stream);
            }
            let app = site.launch(request).await;
            assert_eq!(app.wait().await.expect("the end").code, 0);
            app.close(SOON).await.expect("close");
        }
        // The leak check finds the children, in any session.
        site.world.assert_nothing_left();
    });
}

#[test]
fn an_owner_that_is_dropped_takes_its_app_along() {
    on_every_wlm(LIMIT, async |site| {
        let program = programs::get("loop_forever").display().to_string();
        let app = site.launch(LaunchRequest::new(["-n", "2", &program])).await;
        let ranks = pids(&app);
        let seen = gantry_frontend::AppHandle::clone(&app);
        drop(app);
        seen.gone().await;
        assert!(ranks.iter().all(|pid| !proc::is_alive(*pid)));
    });
}
