//! An agent releases held ranks while another process reads one of them.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use gantry_frontend::{AppHandle, LaunchRequest, measure};
use gantry_tests::{SOON, on_this_machine, pids, proc};
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// A thread that traces a stopped process. Only that thread can let go of it.
struct Reader {
    thread: JoinHandle<()>,
    done: Sender<()>,
}

impl Reader {
    /// Returns when the process is traced.
    fn of(pid: i32) -> Self {
        let (seized, is_seized) = channel();
        let (done, is_done) = channel();
        let thread = std::thread::spawn(move || {
            let process = Pid::from_raw(pid);
            ptrace::seize(process, ptrace::Options::empty()).expect("seized");
            waitpid(process, Some(WaitPidFlag::__WALL)).expect("stopped");
            seized.send(()).expect("the test goes on");
            is_done.recv().expect("the test goes on");
            ptrace::detach(process, None).expect("let go");
        });
        is_seized.recv().expect("seized");
        Self { thread, done }
    }

    fn let_go(self) {
        self.done.send(()).expect("the reader waits");
        self.thread.join().expect("the reader has let go");
    }
}

/// Sends the order to release, and returns when the agent has answered an order that came behind it.
///
/// The agent looks at its ranks' tracers beside its loop: it answers other orders meanwhile.
async fn begin_to_release(app: &AppHandle, release: impl Future<Output: std::fmt::Debug>) {
    let (mut release, mut ping) = (std::pin::pin!(release), std::pin::pin!(measure::ping(app, SOON)));
    // The order to release goes first.
    tokio::select! {
        biased;
        released = &mut release => panic!("released while a rank is traced: {released:?}"),
        answered = &mut ping => assert_eq!(answered.expect("an answer"), 1),
    }
}

#[test]
fn an_agent_answers_while_a_release_waits_for_a_reader_of_a_rank() {
    on_this_machine(Duration::from_secs(60), async |site| {
        let app = site.launch(LaunchRequest::new(["-n", "2", "/bin/sleep", "1000"]).hold(true)).await;
        let reader = Reader::of(pids(&app)[1]);
        {
            let mut release = std::pin::pin!(app.release(SOON));
            begin_to_release(&app, &mut release).await;
            reader.let_go();
            release.await.expect("a release");
        }
        app.close(SOON).await.expect("an end");
    });
}

/// A tool that detaches does not come back to release what it leaves. A rank that is traced is left to its tracer.
#[test]
fn a_detach_releases_at_once_where_a_release_waits_for_a_reader() {
    on_this_machine(Duration::from_secs(60), async |site| {
        let app = site.launch(LaunchRequest::new(["-n", "2", "/bin/sleep", "1000"]).hold(true)).await;
        let ranks = pids(&app);
        let reader = Reader::of(ranks[1]);
        begin_to_release(&app, app.release(SOON)).await;
        app.detach(SOON).await.expect("a detach");
        assert_ne!(proc::state(ranks[0]), Some('T'), "rank 0 is still held after the answer to the detach");
        reader.let_go();
        proc::send_those_left(ranks, Signal::SIGKILL);
    });
}
