//! Held: every rank stopped before its first instruction, according to `/proc` and not to the product; and released.

use std::collections::BTreeSet;
use std::time::Duration;

use gantry_frontend::info::AppState;
use gantry_frontend::{Event, LaunchRequest};
use gantry_tests::fds::may_open;
use gantry_tests::programs::{self, Link};
use gantry_tests::{SOON, Site, on_every_wlm, on_this_machine, pids, proc, require};
use gantry_types::error::Kind;
use gantry_types::signal::Signal;

const LIMIT: Duration = Duration::from_secs(90);

/// Launches that many held, judges every rank from outside, lets them go and sees them all end with 0.
async fn check_held(site: &Site, count: &str, program: &str) {
    let app = site.held(["-n", count, program]).await;
    assert_eq!(app.state(), AppState::Held);
    let held = pids(&app);
    assert_eq!(held.len().to_string(), count);
    let mut unique = held.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), held.len(), "a process for every rank");
    // One search, not one for each of hundreds of ranks.
    let parents: BTreeSet<i32> =
        proc::all().into_iter().filter_map(proc::stat).map(|stat| stat.parent).collect();
    for pid in &held {
        assert_eq!(proc::why_not_held(*pid), None);
        assert!(!parents.contains(pid), "something was forked from a held rank");
    }
    app.release(SOON).await.expect("release");
    let exit = app.wait().await.expect("the end");
    assert_eq!(exit.code, 0, "{exit:?}");
    assert_eq!(exit.ranks.len(), held.len());
    assert!(exit.ranks.iter().all(|rank| rank.status.code == Some(0)), "{exit:?}");
    app.close(SOON).await.expect("close");
}

#[test]
fn one_rank_is_held() {
    on_every_wlm(LIMIT, async |site| check_held(site, "1", "/bin/true").await);
}

#[test]
fn four_ranks_are_held() {
    on_every_wlm(LIMIT, async |site| check_held(site, "4", "/bin/true").await);
}

#[test]
fn sixty_four_ranks_are_held() {
    // On a bed they would be this machine's processes all the same, four times as many of them.
    on_this_machine(LIMIT, async |site| check_held(site, "64", "/bin/true").await);
}

#[test]
fn five_hundred_and_twelve_ranks_are_held() {
    // Pipes for the output of each.
    require!(may_open(2048));
    // As above.
    on_this_machine(3 * LIMIT, async |site| check_held(site, "512", "/bin/true").await);
}

#[test]
fn a_program_is_held_however_it_is_linked() {
    for link in Link::ALL {
        let _made = require!(programs::get_as("say", link));
    }
    on_every_wlm(LIMIT, async |site| {
        for link in Link::ALL {
            let program = programs::get_as("say", link).expect("compiled above");
            check_held(site, "3", &program.display().to_string()).await;
        }
    });
}

#[test]
fn a_script_is_held_at_its_interpreter() {
    on_every_wlm(LIMIT, async |site| {
        let script = site.world.executable("script", b"#!/bin/sh\nexit 0\n").display().to_string();
        let app = site.held(["-n", "2", &script]).await;
        let shell = std::fs::canonicalize("/bin/sh").expect("a shell");
        for (info, pid) in app.info().ranks.iter().zip(pids(&app)) {
            assert_eq!(info.exe, shell.display().to_string());
            assert_eq!(proc::exe(pid).as_ref(), Some(&shell));
            assert!(proc::command_line(pid).contains(&script));
        }
        app.close(SOON).await.expect("close");
        check_held(site, "2", &script).await;
    });
}

#[test]
fn a_held_rank_has_run_no_instruction_until_it_is_released() {
    on_every_wlm(LIMIT, async |site| {
        let program = programs::get("touch_and_wait").display().to_string();
        let app = site.held(["-n", "4", &program, "here.%"]).await;
        let files: Vec<_> = (0..4).map(|rank| site.world.work_dir().join(format!("here.{rank}"))).collect();
        assert!(files.iter().all(|file| !file.exists()));
        app.release(SOON).await.expect("release");
        for file in &files {
            proc::wait_file(file, SOON);
        }
        assert_eq!(app.kill(SOON).await.expect("kill").code, 137);
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn an_app_is_released_once() {
    on_every_wlm(LIMIT, async |site| {
        let program = programs::get("loop_forever").display().to_string();
        let app = site.held(["-n", "2", &program]).await;
        app.release(SOON).await.expect("release");
        assert_eq!(app.state(), AppState::Running);
        let error = app.release(SOON).await.expect_err("a second release");
        assert_eq!(error.kind(), Kind::Invalid);
        assert_eq!(error.to_string(), format!("app {} is not held", app.id()));
        assert!(error.hint().is_some_and(|hint| hint.contains("released before")), "{:?}", error.hint());
        for pid in pids(&app) {
            proc::eventually(SOON, "a released rank sleeps in its pause", || proc::state(pid) == Some('S'));
        }
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn an_app_that_was_not_held_cannot_be_released() {
    on_every_wlm(LIMIT, async |site| {
        let program = programs::get("loop_forever").display().to_string();
        let app = site.launch(LaunchRequest::new(["-n", "2", &program])).await;
        assert_eq!(app.state(), AppState::Running);
        assert_eq!(app.release(SOON).await.expect_err("no release").kind(), Kind::Invalid);
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_held_app_refuses_every_signal_but_sigkill_and_is_killed_without_having_run() {
    on_every_wlm(LIMIT, async |site| {
        let program = programs::get("touch_and_wait").display().to_string();
        let app = site.held(["-n", "4", &program, "ran.%"]).await;
        for signal in [Signal::TERM, Signal::CONT, Signal::STOP, Signal::INT] {
            let error = app.signal(signal, None, SOON).await.expect_err("a signal to a held app");
            assert_eq!(error.kind(), Kind::Invalid);
            assert_eq!(error.to_string(), format!("app {} is held and cannot take {signal}", app.id()));
            assert!(error.hint().is_some_and(|hint| hint.contains("SIGKILL")), "{:?}", error.hint());
        }
        for pid in pids(&app) {
            assert_eq!(proc::why_not_held(pid), None, "after refused signals");
        }
        let exit = app.kill(SOON).await.expect("kill");
        assert!(exit.ranks.iter().all(|rank| rank.status.signal == Some(Signal::KILL)), "{exit:?}");
        app.close(SOON).await.expect("close");
        let ran: Vec<_> =
            (0..4).filter(|rank| site.world.work_dir().join(format!("ran.{rank}")).exists()).collect();
        assert_eq!(ran, [0; 0], "ranks that ran before they died");
    });
}

#[test]
fn a_held_app_is_ended_by_its_owner_without_having_run() {
    on_every_wlm(LIMIT, async |site| {
        let program = programs::get("touch_and_wait").display().to_string();
        let closed = site.held(["-n", "2", &program, "closed.%"]).await;
        let dropped = site.held(["-n", "2", &program, "dropped.%"]).await;
        closed.close(SOON).await.expect("close");
        drop(dropped);
        site.world.assert_nothing_left();
        let left: Vec<_> = std::fs::read_dir(site.world.work_dir()).expect("the folder").collect();
        assert!(left.is_empty(), "{left:?}");
    });
}

#[test]
fn one_held_rank_that_is_killed_leaves_the_others_held() {
    on_every_wlm(LIMIT, async |site| {
        let program = programs::get("exit_with").display().to_string();
        let app = site.held(["-n", "3", &program, "0"]).await;
        let mut events = app.events();
        let held = pids(&app);
        app.signal(Signal::KILL, Some(&"1".parse().expect("a rank")), SOON).await.expect("a kill");
        loop {
            let event = events.next().await.expect("an event");
            if let Event::RankExited { rank, status, .. } = event {
                assert_eq!((rank.0, status.signal), (1, Some(Signal::KILL)));
                break;
            }
        }
        assert_eq!(app.state(), AppState::Held);
        assert_eq!((proc::why_not_held(held[0]), proc::why_not_held(held[2])), (None, None));
        app.release(SOON).await.expect("release");
        let exit = app.wait().await.expect("the end");
        assert_eq!(exit.code, 137);
        assert_eq!((exit.ranks[0].status.code, exit.ranks[2].status.code), (Some(0), Some(0)));
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_held_rank_can_be_traced_by_anybody_and_release_leaves_it_to_its_tracer() {
    let gdb = require!(gantry_tests::tool("gdb"));
    // A debugger runs where its rank is.
    on_this_machine(LIMIT, async |site| {
        let program = programs::get("exit_with").display().to_string();
        let app = site.held(["-n", "2", &program, "0"]).await;
        let held = pids(&app);
        let mut command = site.world.command(&gdb);
        command.args(["-q", "-nx", "-batch", "-p", &held[0].to_string()]);
        command.args(["-ex", "echo attached\\n", "-ex", "shell cat", "-ex", "detach", "-ex", "quit"]);
        let mut debugger = site.world.spawn(command);
        proc::eventually(SOON, "gdb traces rank 0", || proc::tracer(held[0]).is_some());
        app.release(SOON).await.expect("release");
        proc::eventually(SOON, "rank 1 has ended", || !proc::is_alive(held[1]));
        assert!(proc::is_alive(held[0]), "a traced rank is left to its tracer");
        debugger.close_stdin();
        debugger.wait(SOON);
        // The debugger decides about the process: gdb leaves a process stopped that it found stopped.
        app.kill(SOON).await.expect("kill");
        app.close(SOON).await.expect("close");
    });
}
