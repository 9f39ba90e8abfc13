//! A caller that stops waiting for an answer must not leave behind the requested object.
//!
//! What broke: a dropped future had already sent its order. The session or the daemon then existed without an owner.
//! A release was carried out, but the app stayed "held" forever. An app whose detach failed was neither detached nor
//! ended. A session did not know of files that nodes had got, and could have no other library of that name.

use std::fs;
use std::path::PathBuf;
use std::task::{Context, Poll};
use std::time::Duration;

use gantry_frontend::info::AppState;
use gantry_frontend::{DaemonRequest, LaunchRequest};
use gantry_tests::{SOON, Site, eventually, on_this_machine, pids, proc, require, tool};
use gantry_types::error::Kind;
use gantry_types::id::NodeId;
use gantry_types::status::ExitStatus;
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(90);

/// Polls a future `times` times, lets other tasks run in between, and drops it.
async fn drop_after<T>(times: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    for left in (0..times).rev() {
        let polled = std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if let Poll::Ready(done) = polled {
            return Some(done);
        }
        if left > 0 {
            tokio::task::yield_now().await;
        }
    }
    None
}

/// Polls a future until `seen`, and drops it.
async fn drop_when<T>(seen: impl Fn() -> bool, future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let poll = |context: &mut Context<'_>| match seen() {
        true => Poll::Ready(None),
        false => future.as_mut().poll(context).map(Some),
    };
    std::future::poll_fn(poll).await
}

/// Sessions that have storage on this machine.
fn sessions_there(site: &Site) -> Vec<String> {
    let apps = fs::read_dir(site.world.stage_dir()).expect("a folder").flatten();
    let inside = apps.filter_map(|app| fs::read_dir(app.path()).ok()).flat_map(Iterator::flatten);
    let names = inside.filter(|entry| entry.path().is_dir());
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_session_whose_caller_has_gone_is_not_kept() {
    on_this_machine(LIMIT, async |site| {
        let app = site.held(["/bin/true"]).await;
        let kept = app.session(SOON).await.expect("a session");
        for times in 1..4 {
            drop(drop_after(times, app.session(SOON)).await);
        }
        // This order is answered, so all earlier orders are done.
        drop(app.session(SOON).await.expect("another"));
        eventually(SOON, "only the session that is kept", || sessions_there(site) == ["s1"]);
        drop(kept);
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_daemon_whose_caller_has_gone_does_not_stay() {
    on_this_machine(LIMIT, async |site| {
        let app = site.held(["/bin/true"]).await;
        let agent = proc::stat(pids(&app)[0]).expect("a rank").parent;
        let session = app.session(SOON).await.expect("a session");
        for wait in [0, 1, 2, 3, 5, 8, 13, 20, 30] {
            let start = session.manifest().exec_daemon(DaemonRequest::new("sleep").args(["1000"]), SOON);
            match tokio::time::timeout(Duration::from_millis(wait), start).await {
                Ok(started) => {
                    let daemon = started.expect("a daemon");
                    daemon.signal(gantry_types::signal::Signal::KILL, SOON).await.expect("a signal");
                    daemon.wait().await;
                }
                Err(_given_up) => {}
            }
        }
        eventually(SOON, "no daemon", || proc::children(agent) == pids(&app));
        drop(session);
        app.close(SOON).await.expect("close");
    });
}

/// Makes a program that ends with this code, by a library of this name beside it.
fn make_program(site: &Site, library: &str, code: u8) -> PathBuf {
    let folder = site.world.work_dir().join(format!("{library}-{code}"));
    fs::create_dir(&folder).expect("a folder");
    let make = |source: &str, options: &[&str]| {
        fs::write(folder.join("source.c"), source).expect("a file");
        let mut cc = site.world.command("cc");
        cc.current_dir(&folder).arg("source.c").args(options);
        let done = site.world.spawn(cc).wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
    };
    make(&format!("int code(void) {{ return {code}; }}\n"), &["-shared", "-fPIC", "-o", library]);
    let program = format!("{library}-{code}");
    let text = "int code(void); int main(void) { return code(); }\n";
    make(text, &[library, "-Wl,-rpath,$ORIGIN", "-o", &program]);
    folder.join(program)
}

#[test]
fn a_session_knows_the_files_of_a_manifest_whose_caller_has_gone() {
    let _compiler = require!(tool("cc"));
    on_this_machine(LIMIT, async |site| {
        let app = site.held(["/bin/true"]).await;
        let session = app.session(SOON).await.expect("a session");
        let lib = session.dirs(NodeId(0)).expect("directories").lib.clone();
        // On a busy machine the answer may be there before the caller waits for it. The time of the test limits the
        // rounds.
        for number in 0.. {
            let library = format!("libcode{number}.so");
            let mut manifest = session.manifest();
            manifest.add_binary(make_program(site, &library, 3)).expect("a program");
            // The answer of the node comes after the file, and wakes the caller.
            if drop_when(|| lib.join(&library).exists(), manifest.send(SOON)).await.is_none() {
                let other = make_program(site, &library, 4);
                let started = session.manifest().exec_daemon(DaemonRequest::new(other), SOON).await;
                let ends = started.expect("a place for its library").wait().await;
                assert_eq!(ends, [(NodeId(0), ExitStatus::Code(4))]);
                break;
            }
        }
        drop(session);
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_release_whose_caller_has_gone_is_known_all_the_same() {
    on_this_machine(LIMIT, async |site| {
        let app = site.held(["/bin/sleep", "1000"]).await;
        // A stopped agent cannot answer before the caller stops waiting.
        let agent = proc::stat(pids(&app)[0]).expect("a rank").parent;
        proc::send(agent, Signal::SIGSTOP);
        assert!(drop_after(1, app.release(SOON)).await.is_none(), "dropped before the answer");
        proc::send(agent, Signal::SIGCONT);
        eventually(SOON, "the rank runs", || proc::state(pids(&app)[0]) == Some('S'));
        eventually(SOON, "that is known", || app.state() == AppState::Running);
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn an_app_whose_detaching_was_given_up_ends() {
    on_this_machine(LIMIT, async |site| {
        for late in [false, true] {
            let app = site.launch(LaunchRequest::new(["/bin/sleep", "1000"])).await;
            let handle = (*app).clone();
            let rank = pids(&app)[0];
            // A stopped agent cannot answer before the caller stops waiting.
            let agent = proc::stat(rank).expect("a rank").parent;
            proc::send(agent, Signal::SIGSTOP);
            if late {
                let error = app.detach(Duration::from_millis(50)).await.expect_err("no answer comes");
                assert_eq!(error.kind(), Kind::TimedOut);
            } else {
                assert!(drop_after(1, app.detach(SOON)).await.is_none(), "dropped before the answer");
            }
            proc::send(agent, Signal::SIGCONT);
            tokio::time::timeout(SOON / 3, handle.gone()).await.expect("the app's end");
            assert!(!proc::is_alive(rank));
        }
    });
}
