//! An agent releases held ranks while another process reads one of them.

use std::time::Duration;

use gantry_frontend::{LaunchRequest, measure};
use gantry_tests::{SOON, on_this_machine, pids};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// The agent looks at its ranks' tracers beside its loop: it answers other orders meanwhile.
#[test]
fn an_agent_answers_while_a_release_waits_for_a_reader_of_a_rank() {
    on_this_machine(Duration::from_secs(60), async |site| {
        let app = site.launch(LaunchRequest::new(["-n", "2", "/bin/sleep", "1000"]).hold(true)).await;
        let rank = Pid::from_raw(pids(&app)[1]);
        let (seized, is_seized) = std::sync::mpsc::channel();
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        // Only the thread that traces a process can let go of it.
        let reader = std::thread::spawn(move || {
            ptrace::seize(rank, ptrace::Options::empty()).expect("seized");
            waitpid(rank, Some(WaitPidFlag::__WALL)).expect("stopped");
            seized.send(()).expect("the test goes on");
            is_done.recv().expect("the test goes on");
            ptrace::detach(rank, None).expect("let go");
        });
        is_seized.recv().expect("seized");
        {
            let (release, ping) = (app.release(SOON), measure::ping(&app, SOON));
            let (mut release, mut ping) = (std::pin::pin!(release), std::pin::pin!(ping));
            // The order to release goes first.
            tokio::select! {
                biased;
                released = &mut release => panic!("released while a rank is traced: {released:?}"),
                answered = &mut ping => assert_eq!(answered.expect("an answer"), 1),
            }
            done.send(()).expect("the reader waits");
            reader.join().expect("the reader has let go");
            release.await.expect("a release");
        }
        app.close(SOON).await.expect("an end");
    });
}
