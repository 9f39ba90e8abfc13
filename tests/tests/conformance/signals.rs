//! Signals to all and to some, and letting go.

use std::time::Duration;

use gantry_frontend::info::AppState;
use gantry_frontend::{Event, LaunchRequest, OutputTo};
use gantry_tests::{
    SOON, Site, daemon_pids, on_every_wlm, on_every_wlm_but, on_this_machine, outside, path_on, pids,
    pids_of_first_node, proc, programs,
};
use gantry_types::error::Kind;
use gantry_types::id::NodeId;
use gantry_types::signal::Signal;

const LIMIT: Duration = Duration::from_secs(90);

/// Ranks that say which signal ends them, all ready to take one.
async fn listening(site: &Site, count: u32) -> gantry_frontend::App {
    let program = programs::get("report_signal").display().to_string();
    let request = LaunchRequest::new(["-n", &count.to_string(), &program]).output(OutputTo::Stream);
    let app = site.launch(request).await;
    let mut stream = app.take_output().expect("the output");
    let count = usize::try_from(count).expect("a small number");
    assert_eq!(site.lines(&mut stream, count).await, vec!["ready"; count]);
    tokio::spawn(async move { while stream.next().await.is_some() {} });
    app
}

#[test]
fn a_signal_goes_to_all_ranks() {
    on_every_wlm(LIMIT, async |site| {
        for number in [libc::SIGTERM, libc::SIGUSR2, libc::SIGINT] {
            let app = listening(site, 3).await;
            app.signal(Signal::new(number).expect("a signal"), None, SOON).await.expect("a signal");
            let exit = app.wait().await.expect("the end");
            assert!(exit.ranks.iter().all(|rank| rank.status.code == Some(40 + number)), "{exit:?}");
            app.close(SOON).await.expect("close");
        }
    });
}

#[test]
fn a_signal_goes_to_some_ranks_and_to_no_others() {
    on_every_wlm(LIMIT, async |site| {
        let app = listening(site, 5).await;
        let mut events = app.events();
        app.signal(Signal::TERM, Some(&"1,3-4".parse().expect("ranks")), SOON).await.expect("a signal");
        let mut ended = Vec::new();
        while ended.len() < 3 {
            if let Event::RankExited { rank, status, .. } = events.next().await.expect("an event") {
                assert_eq!(status.code, Some(40 + libc::SIGTERM));
                ended.push(rank.0);
            }
        }
        ended.sort_unstable();
        assert_eq!(ended, [1, 3, 4]);
        let all = pids(&app);
        assert!(proc::is_alive(all[0]) && proc::is_alive(all[2]));
        // Ended ranks are skipped; a rank that never existed is an error.
        app.signal(Signal::PROBE, None, SOON).await.expect("a probe");
        app.signal(Signal::TERM, Some(&"0-1".parse().expect("ranks")), SOON).await.expect("a signal");
        let error = app
            .signal(Signal::TERM, Some(&"4-5".parse().expect("ranks")), SOON)
            .await
            .expect_err("no rank 5");
        assert_eq!(error.kind(), Kind::Invalid);
        assert_eq!(error.to_string(), format!("app {} has 5 ranks; rank 5 is not one of them", app.id()));
        app.kill(SOON).await.expect("kill");
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_stopped_app_goes_on_with_sigcont() {
    on_every_wlm(LIMIT, async |site| {
        let app = listening(site, 2).await;
        app.signal(Signal::STOP, None, SOON).await.expect("a signal");
        for pid in pids(&app) {
            proc::eventually(SOON, "the rank is stopped", || proc::state(pid) == Some('T'));
        }
        app.signal(Signal::CONT, None, SOON).await.expect("a signal");
        app.signal(Signal::TERM, None, SOON).await.expect("a signal");
        assert_eq!(app.wait().await.expect("the end").code, 40 + libc::SIGTERM);
        app.close(SOON).await.expect("close");
    });
}

/// A stop that waits for a processor and a signal of a lower number would be taken in the other order.
#[test]
fn busy_ranks_stand_when_the_call_that_stops_them_returns() {
    // They use all processors of this machine; on a bed they would disturb other tests.
    on_this_machine(LIMIT, async |site| {
        let program = programs::get("loop_forever").display().to_string();
        let app = site.launch(LaunchRequest::new(["-n", "32", &program, "spin"])).await;
        for _ in 0..3 {
            app.signal(Signal::STOP, None, SOON).await.expect("a signal");
            let run: Vec<_> = pids(&app).into_iter().filter(|pid| proc::state(*pid) != Some('T')).collect();
            assert_eq!(run, [0; 0], "these have not stopped");
            app.signal(Signal::CONT, None, SOON).await.expect("a signal");
        }
        app.kill(SOON).await.expect("kill");
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_signal_reaches_children_of_a_rank() {
    // srun has started its ranks, which get signals alone: `docs/src/reference/limits.md`.
    on_every_wlm_but("slurm by mpir", LIMIT, async |site| {
        let program = programs::get("fork_child").display().to_string();
        let request = LaunchRequest::new(["-n", "2", &program, "stay"]).output(OutputTo::Stream);
        let app = site.launch(request).await;
        let mut stream = app.take_output().expect("the output");
        let lines = site.lines(&mut stream, 2).await;
        let number = |line: &String| line.trim_start_matches("child ").parse().expect("a pid");
        let children = pids_of_first_node(&app, &lines.iter().map(number).collect::<Vec<_>>());
        assert!(children.iter().all(|pid| proc::is_alive(*pid)));
        app.signal(Signal::TERM, None, SOON).await.expect("a signal");
        assert_eq!(app.wait().await.expect("the end").code, 128 + libc::SIGTERM);
        for child in children {
            proc::eventually(SOON, "the child has ended too", || !proc::is_alive(child));
        }
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn killing_an_app_that_has_ended_tells_its_end() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.launch(LaunchRequest::new(["-n", "2", "/bin/false"])).await;
        assert_eq!(app.wait().await.expect("the end").code, 1);
        assert_eq!(app.kill(SOON).await.expect("kill").code, 1);
        let error = app.signal(Signal::TERM, None, SOON).await.expect_err("it has ended");
        assert_eq!(error.kind(), Kind::Gone);
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn an_app_that_is_let_go_runs_on_and_everything_is_cleaned_up_when_it_ends() {
    on_every_wlm(LIMIT, async |site| {
        let program = programs::get("loop_forever").display().to_string();
        let app = site.launch(LaunchRequest::new(["-n", "2", &program])).await;
        let session = app.session(SOON).await.expect("a session");
        let root = session.dirs(NodeId(0)).expect("directories").root.clone();
        let root = path_on(&app, NodeId(0), root);
        let request = gantry_frontend::DaemonRequest::new(programs::get("loop_forever"));
        let daemon = session.manifest().exec_daemon(request, SOON).await.expect("a daemon");
        let (ranks, daemon) = (pids(&app), daemon_pids(&app, &daemon)[0]);
        let mut events = app.events();
        let seen = gantry_frontend::AppHandle::clone(&app);
        app.detach(SOON).await.expect("detach");
        let mut last = None;
        while let Some(event) = events.next().await {
            last = Some(event);
        }
        assert!(matches!(last, Some(Event::Detached { .. })), "{last:?}");
        assert_eq!(seen.signal(Signal::TERM, None, SOON).await.expect_err("let go").kind(), Kind::Gone);
        assert_eq!(seen.wait().await.expect_err("let go").kind(), Kind::Gone);
        drop(session);
        // A drop has no effect any more.
        assert!(ranks.iter().chain([&daemon]).all(|pid| proc::is_alive(*pid)));
        assert!(outside::exists(root.join("tmp")));
        proc::send_those_left(ranks, nix::sys::signal::Signal::SIGKILL);
        // Its daemon has two seconds, then SIGTERM.
        proc::wait_gone(daemon, SOON);
        proc::eventually(SOON, "the session is removed", || !outside::exists(&root));
    });
}

#[test]
fn a_held_app_stays_held_after_detach_until_it_is_continued() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["-n", "2", "/bin/true"]).await;
        let ranks = pids(&app);
        app.detach(SOON).await.expect("detach");
        for pid in &ranks {
            assert_eq!(proc::why_not_held(*pid), None);
            proc::send(*pid, nix::sys::signal::Signal::SIGCONT);
        }
        for pid in ranks {
            proc::wait_gone(pid, SOON);
        }
    });
}

#[test]
fn handles_of_a_closed_app_answer_gone() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["-n", "2", "/bin/true"]).await;
        let seen = gantry_frontend::AppHandle::clone(&app);
        let session = app.session(SOON).await.expect("a session");
        let (late, mut filled) = (session.manifest(), session.manifest());
        filled.add_binary("true").expect("a binary");
        let daemon = session
            .manifest()
            .exec_daemon(gantry_frontend::DaemonRequest::new("true"), SOON)
            .await
            .expect("a daemon");
        app.close(SOON).await.expect("close");
        assert_eq!(seen.state(), AppState::Ended);
        let gone = |result: gantry_frontend::Result<()>, what: &str| {
            let error = result.expect_err("gone");
            assert_eq!(error.kind(), Kind::Gone, "{what}: {error}");
            assert_eq!(error.to_string(), format!("app {} is gone", seen.id()), "{what}");
        };
        gone(seen.release(SOON).await, "release");
        gone(seen.signal(Signal::KILL, None, SOON).await, "signal");
        gone(seen.session(SOON).await.map(drop), "session");
        gone(
            late.exec_daemon(gantry_frontend::DaemonRequest::new("true"), SOON).await.map(drop),
            "exec_daemon",
        );
        gone(filled.send(SOON).await.map(drop), "send");
        gone(session.destroy(SOON).await, "destroy");
        gone(daemon.signal(Signal::TERM, SOON).await, "a daemon's signal");
        // Known facts stay known.
        assert_eq!(seen.info().ranks.len(), 2);
        assert_eq!(seen.wait().await.expect("the end").code, 137);
        seen.gone().await;
    });
}

#[test]
fn handles_of_a_destroyed_session_answer_gone_and_the_app_goes_on() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["-n", "2", "/bin/true"]).await;
        let session = app.session(SOON).await.expect("a session");
        let id = session.id();
        let (mut late, filled) = (session.manifest(), session.manifest());
        session.destroy(SOON).await.expect("destroy");
        let expected = format!("session {id} of app {} is gone", app.id());
        assert_eq!(late.add_binary("true").expect_err("gone").to_string(), expected);
        assert_eq!(filled.send(SOON).await.expect_err("gone").to_string(), expected);
        let request = gantry_frontend::DaemonRequest::new("true");
        assert_eq!(late.exec_daemon(request, SOON).await.expect_err("gone").kind(), Kind::Gone);
        app.release(SOON).await.expect("release");
        assert_eq!(app.wait().await.expect("the end").code, 0);
        app.close(SOON).await.expect("close");
    });
}
