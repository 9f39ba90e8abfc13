//! All output of a rank and every end of its input must arrive, even if the tool is slow or leaves early.
//!
//! What broke: an agent left as soon as its ranks had ended. If the tool was slow, it dropped the rest of the output
//! in the ranks' pipes. A rank that read its input after its tool had detached waited forever. Each stream of a rank had
//! a buffer of its own, so the agent of 512 silent ranks needed 30 MB.

use std::time::Duration;

use gantry_frontend::{Input, LaunchRequest, OutputTo};
use gantry_tests::{SOON, on_this_machine, pids, proc, programs};

const LIMIT: Duration = Duration::from_secs(90);

#[test]
fn a_slow_reader_gets_the_last_output() {
    on_this_machine(LIMIT, async |site| {
        // More than the window, with a rest that fits into a pipe. The rank ends without any help of the reader.
        let request = LaunchRequest::new(["/bin/sh", "-c", "head -c 300000 /dev/zero"]);
        let app = site.launch(request.output(OutputTo::Stream)).await;
        let mut stream = app.take_output().expect("the output");
        app.wait().await.expect("the end");
        // The agent has the order to end, and is about to leave.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let mut length = 0;
        while let Some(output) = stream.next().await {
            length += output.data.0.len();
        }
        assert_eq!(length, 300_000);
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn ranks_that_write_nothing_cost_their_agent_little_memory() {
    on_this_machine(LIMIT, async |site| {
        let request = LaunchRequest::new(["-n", "256", "/bin/sleep", "1000"]).output(OutputTo::Stream);
        let app = site.launch(request).await;
        let agents = site.agents(&pids(&app));
        assert_eq!(agents.len(), 1);
        // Nearly all of it is the program itself: a test build has no optimisation.
        let peak_kib = proc::peak_memory_kib(agents[0]);
        assert!((1..20 * 1024).contains(&peak_kib), "{peak_kib} KiB");
        app.kill(SOON).await.expect("kill");
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_rank_that_was_let_go_reads_the_end_of_its_input() {
    on_this_machine(LIMIT, async |site| {
        let (theirs, ours) = std::io::pipe().expect("a pipe");
        let program = programs::get("cat").display().to_string();
        let app = site.launch(LaunchRequest::new([&program]).stdin(Input::Fd(theirs.into()))).await;
        let rank = pids(&app)[0];
        app.detach(SOON).await.expect("detach");
        proc::wait_gone(rank, SOON);
        drop(ours);
    });
}

/// What broke: agents waited until their clean-up's time was over for a tool to take the last output, which never did.
#[test]
fn a_close_does_not_wait_for_a_reader_that_does_not_come() {
    on_this_machine(LIMIT, async |site| {
        // Far less than agents wait for the last output, and far more than the rest of the end takes.
        let soon = Duration::from_secs(5);
        for is_begun in [false, true] {
            let request = LaunchRequest::new(["/bin/sh", "-c", "head -c 300000 /dev/zero"]);
            let app = site.launch(request.output(OutputTo::Stream)).await;
            let mut length = 0;
            let mut stream = app.take_output().expect("the output");
            if is_begun {
                length += stream.next().await.expect("a piece").data.0.len();
            }
            app.wait().await.expect("the end");
            app.close(soon).await.expect("a close");
            // What had come is there nevertheless.
            while let Some(output) = stream.next().await {
                length += output.data.0.len();
            }
            assert!((200_000..=300_000).contains(&length), "{length}");
        }
    });
}
