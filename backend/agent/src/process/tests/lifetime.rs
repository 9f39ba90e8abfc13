//! Which process dies with which, and which code learns of it.

use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::process::adopted::adopt;
use crate::process::alone::{Starter, new_start};
use crate::process::follow::{Follower, Pattern};
use crate::process::hold::{Hold, StartFailure, StartedRank};
use crate::process::reaper::{Exited, Reaper};
use crate::process::signal::{self, HeldRank, Released};
use crate::process::test_support::*;
use crate::process::thread::RanksThread;
use crate::process::{ExitStatus, Pinned, end_orphans, procfs, sys};
use gantry_types::error::{Failure, Kind};

const LONG: Duration = Duration::from_secs(20);

fn with_runtime<F: Future>(test: impl FnOnce() -> F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(LONG, test()).await.expect("in time") })
}

async fn held_by(thread: &RanksThread, scripts: &[&str]) -> Vec<StartedRank> {
    let specs = scripts.iter().map(|script| shell(script)).collect();
    thread.start(specs, Hold::AtEntry, Instant::now() + LONG).await.unwrap()
}

#[test]
fn a_rank_that_others_collect_is_released_and_a_later_process_with_its_pid_is_not() {
    let _turn = turn();
    let rank = hold_one(shell("exit 3"));
    let release = |process| {
        let released = signal::release(&[HeldRank { process, own: false }], true);
        released.unwrap().remove(0).unwrap()
    };
    let later = Pinned { start_time: rank.process.start_time + 1, ..rank.process };
    assert_eq!(release(later), Released::Gone);
    assert_eq!(procfs::read_stat(rank.process.pid).unwrap().state, 'T');
    assert_eq!(release(rank.process), Released::Continued);
    assert_eq!(wait_end(rank.process.pid), ExitStatus::Code(3));
    assert_eq!(release(rank.process), Released::Gone);
}

#[test]
fn rank_killed_while_held_leaves_nothing() {
    let _turn = turn();
    let rank = hold_one(shell("exit 0"));
    // A later process of the same pid would have another start time, and must get no signal.
    let later = Pinned { start_time: rank.process.start_time + 1, ..rank.process };
    assert!(!signal::send(later, libc::SIGKILL).unwrap());
    assert_eq!(release(later), Released::Gone);
    assert_eq!(procfs::read_stat(rank.process.pid).unwrap().state, 'T');
    kill_and_wait(&rank);
    assert!(!rank.process.is_there().unwrap());
    assert_eq!(release(rank.process), Released::Gone);
    assert!(!signal::send(rank.process, libc::SIGTERM).unwrap());
    assert_no_child();
}

#[test]
fn parent_thread_ends_and_its_ranks_die_held_or_not() {
    let _turn = turn();
    with_runtime(|| async {
        let thread = RanksThread::default();
        let mut ranks = held_by(&thread, &["exit 0", "exit 0"]).await;
        let running = vec![shell("exec sleep 1000")];
        ranks.extend(thread.start(running, Hold::No, Instant::now() + LONG).await.unwrap());
        thread.close().await;
        for rank in ranks {
            assert_eq!(wait_end(rank.process.pid), ExitStatus::Signal(gantry_types::signal::Signal::KILL));
        }
    });
    let started = std::thread::spawn(|| start_one(shell("exec sleep 1000")).unwrap());
    let pid = started.join().unwrap();
    assert_eq!(wait_end(pid), ExitStatus::Signal(gantry_types::signal::Signal::KILL));
    assert_no_child();
}

#[test]
fn start_alone_that_is_late_or_that_nobody_waits_for_leaves_no_process() {
    let _turn = turn();
    let end = |pid| {
        sys::kill(pid, libc::SIGKILL).unwrap();
        wait_end(pid);
    };
    with_runtime(|| async {
        let (starters, to_start) = std::sync::mpsc::channel::<Starter<(), StartFailure>>();
        let thread = std::thread::spawn(move || {
            for starter in to_start {
                starter.start(|| Ok(((), shell("exec sleep 1000"))));
            }
        });
        let begin = || {
            let (starter, pending) = new_start("/bin/sh".into());
            starters.send(starter).unwrap();
            pending
        };
        for wait in 0..40 {
            let wait = Duration::from_micros(50 * wait);
            match begin().wait(Instant::now() + wait).await {
                Ok((pid, ())) => end(pid),
                Err(failure) => assert_eq!(failure.error.kind(), Kind::TimedOut, "{failure:?}"),
            }
            if let Ok(started) = timeout(wait, begin().wait(Instant::now() + LONG)).await {
                end(started.unwrap().0);
            }
        }
        // A process whose start has no waiter does not even begin.
        drop(begin());
        drop(starters);
        thread.join().unwrap();
    });
    assert_no_child();
}

#[test]
fn reaper_tells_every_end_and_no_stop() {
    let _turn = turn();
    with_runtime(|| async {
        let mut reaper = Reaper::new().unwrap();
        let thread = RanksThread::default();
        let ranks = held_by(&thread, &["exit 3", "kill -STOP $$; exit 4", "exit 0"]).await;
        let pids: Vec<i32> = ranks.iter().map(|rank| rank.process.pid).collect();
        pids.iter().for_each(|&pid| reaper.own(pid));
        assert_eq!(release(ranks[0].process), Released::Continued);
        assert_eq!(reaper.next().await, Exited { pid: pids[0], status: ExitStatus::Code(3) });
        assert!(!reaper.owns(pids[0]));
        assert!(!reaper.owns(pids[0]));
        // A stopped process is killed with its whole group.
        assert!(crate::process::signal::kill_group(pids[2], libc::SIGKILL).unwrap());
        let killed = ExitStatus::Signal(gantry_types::signal::Signal::KILL);
        assert_eq!(reaper.next().await, Exited { pid: pids[2], status: killed });
        // This one stops itself: no report until it has gone on and ended.
        release(ranks[1].process);
        while procfs::read_stat(pids[1]).unwrap().state != 'T'
            || procfs::read_syscall_pc(pids[1]).unwrap() == ranks[1].proof.map(|proof| proof.counter)
        {
            assert!(timeout(Duration::from_millis(1), reaper.next()).await.is_err());
        }
        release(ranks[1].process);
        assert_eq!(reaper.next().await, Exited { pid: pids[1], status: ExitStatus::Code(4) });
        thread.close().await;
    });
    assert_no_child();
}

#[test]
fn a_process_that_has_left_its_group_gets_the_signals_of_the_group() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let source =
        "#include <unistd.h>\nint main(void) { if (!setpgid(0, getpgid(getppid()))) pause(); return 1; }\n";
    let program = compile(folder.path(), "moves", source, &[]);
    let pid = start_one(spec(program, &[])).unwrap();
    assert!(comes_true(|| procfs::read_stat(pid).unwrap().group != pid));
    assert!(signal::kill_group(pid, libc::SIGKILL).unwrap());
    assert_eq!(wait_end(pid), ExitStatus::Signal(gantry_types::signal::Signal::KILL));
    assert_no_child();
}

#[test]
fn orphans_are_collected_and_ranks_being_started_are_not() {
    let _turn = turn();
    with_runtime(|| async {
        let mut reaper = Reaper::new().unwrap();
        reaper.adopt_orphans().unwrap();
        let thread = RanksThread::default();
        let (parent, orphan) = foreign("echo $$; exec sleep 1000");
        let orphan = Pinned::now(orphan).unwrap();
        reaper.own(parent.process.pid);
        assert!(crate::process::signal::send(parent.process, libc::SIGKILL).unwrap());
        assert_eq!(reaper.next().await.pid, parent.process.pid);
        let own = std::process::id().cast_signed();
        assert_eq!(procfs::read_stat(orphan.pid).unwrap().parent, own);
        assert!(signal::send(orphan, libc::SIGKILL).unwrap());
        // Ranks start and end meanwhile. The reaper gets a signal for all their stops and must touch none of them.
        while orphan.is_there().unwrap() {
            let start = thread.start(vec![shell("exit 0")], Hold::AtEntry, Instant::now() + LONG);
            let ranks = tokio::select! {
                biased;
                ranks = start => ranks.unwrap(),
                exited = reaper.next() => panic!("{exited:?} is not the reaper's"),
            };
            assert_eq!(release_and_wait(&ranks[0]), ExitStatus::Code(0));
            assert!(timeout(Duration::from_millis(1), reaper.next()).await.is_err());
        }
        nix::sys::prctl::set_child_subreaper(false).unwrap();
        thread.close().await;
    });
    assert_no_child();
}

#[test]
fn orphans_end_beside_one_that_cannot_be_killed_and_the_agent_waits_shortly_for_that() {
    let _turn = turn();
    with_runtime(|| async {
        nix::sys::prctl::set_child_subreaper(true).unwrap();
        let orphan = |script| {
            let (parent, orphan) = foreign(script);
            kill_and_wait(&parent);
            orphan
        };
        let stuck = orphan("echo $$; exec sleep 1000");
        let others = orphan("sleep 1000 & echo $$; wait");
        let others = [vec![others], procfs::descendants(others).unwrap()].concat();
        assert_eq!(others.len(), 2);
        let undying = Undying::of(stuck);
        // On a busy machine they take longer than the agent waits.
        while others.iter().any(|pid| procfs::read_stat(*pid).is_ok()) {
            end_orphans().await;
        }
        assert_eq!(procfs::read_stat(stuck).unwrap().state, 't');
        drop(undying);
        wait_end(stuck);
        nix::sys::prctl::set_child_subreaper(false).unwrap();
    });
    assert_no_child();
}

#[test]
fn a_thread_that_waits_for_a_process_that_cannot_be_killed_is_left_behind() {
    let _turn = turn();
    with_runtime(|| async {
        let pids = [(); 2].map(|()| start_one(shell("exec sleep 1000")).unwrap());
        let undying = Undying::of(pids[1]);
        let thread = RanksThread::default();
        let mut seize = Box::pin(thread.seize(pids.to_vec()));
        let first = std::future::poll_fn(|context| Poll::Ready(seize.as_mut().poll(context).is_pending()));
        assert!(first.await);
        // The second one has a tracer already. So the thread kills both, and waits for their end.
        while procfs::read_stat(pids[1]).unwrap().state != 't' {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(seize);
        thread.close().await;
        assert_eq!(procfs::read_stat(pids[1]).unwrap().state, 't');
        drop(undying);
        // The thread that was left behind collects them.
        while pids.iter().any(|pid| procfs::read_stat(*pid).is_ok()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert_no_child();
}

#[test]
fn child_that_ended_before_it_was_owned_is_told_too() {
    let _turn = turn();
    with_runtime(|| async {
        let rank = hold_one(shell("exit 9"));
        let ended = adopt(rank.process.pid).unwrap();
        release(rank.process);
        // Not collected yet, but its status is known.
        assert_eq!(ended.ended().await, ExitStatus::Code(9));
        let mut reaper = Reaper::new().unwrap();
        reaper.own(rank.process.pid);
        let status = ExitStatus::Code(9);
        assert_eq!(reaper.next().await, Exited { pid: rank.process.pid, status });
    });
    assert_no_child();
}

#[test]
fn batch_that_misses_its_deadline_is_killed() {
    let _turn = turn();
    with_runtime(|| async {
        let thread = RanksThread::default();
        let specs = (0..200).map(|_| shell("exit 0")).collect();
        let failure = thread.start(specs, Hold::AtEntry, Instant::now()).await.unwrap_err();
        assert_eq!(failure.error.kind(), Kind::TimedOut, "{failure:?}");
        // The thread works as before.
        let ranks = held_by(&thread, &["exit 0"]).await;
        assert_eq!(release_and_wait(&ranks[0]), ExitStatus::Code(0));
        thread.close().await;
    });
    assert_no_child();
}

#[test]
fn start_that_nobody_waits_for_leaves_no_process() {
    let _turn = turn();
    with_runtime(|| async {
        let thread = RanksThread::default();
        for wait in [0, 1, 5, 20] {
            let specs = (0..8).map(|_| shell("exit 0")).collect();
            let start = thread.start(specs, Hold::AtEntry, Instant::now() + LONG);
            if let Ok(Ok(ranks)) = timeout(Duration::from_millis(wait), start).await {
                ranks.iter().for_each(kill_and_wait);
            }
        }
        // The thread handles requests in their order, so this answer comes after all of that.
        held_by(&thread, &["exit 0"]).await.iter().for_each(kill_and_wait);
        thread.close().await;
    });
    assert_no_child();
}

#[test]
fn started_ranks_that_nobody_takes_are_ended() {
    let _turn = turn();
    with_runtime(|| async {
        let thread = RanksThread::default();
        let specs = (0..8).map(|_| shell("exit 0")).collect();
        let mut start = Box::pin(thread.start(specs, Hold::AtEntry, Instant::now() + LONG));
        let first = std::future::poll_fn(|context| Poll::Ready(start.as_mut().poll(context).is_pending()));
        assert!(first.await, "eight ranks do not start in no time");
        // The thread handles requests in their order: now the first answer is there, and the test never reads it.
        held_by(&thread, &["exit 0"]).await.iter().for_each(kill_and_wait);
        let own = std::process::id().cast_signed();
        assert_eq!(procfs::descendants(own).unwrap().len(), 8);
        drop(start);
        held_by(&thread, &["exit 0"]).await.iter().for_each(kill_and_wait);
        assert_no_child();
        thread.close().await;
    });
}

fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// Starts a process that is not our child: its parent is a shell of ours that reaps it. `script` must
/// print its own pid when it is ready.
fn foreign(script: &str) -> (StartedRank, i32) {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut parent = shell(&format!("sh -c '{script}' & wait"));
    parent.stdout = writer.into();
    let rank = start(vec![parent], Hold::No).unwrap().remove(0);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(reader), &mut line).unwrap();
    (rank, line.trim().parse().unwrap())
}

#[test]
fn foreign_process_is_adopted_and_its_end_is_told() {
    let _turn = turn();
    with_runtime(|| async {
        let (parent, pid) = foreign("trap \"exit 42\" TERM; echo $$; while :; do :; done");
        let adopted = adopt(pid).unwrap();
        assert_eq!(adopted.process, Pinned::now(pid).unwrap());
        assert_eq!(adopted.exe, std::fs::canonicalize("/bin/sh").unwrap());
        assert!(timeout(Duration::from_millis(20), adopted.ended()).await.is_err());
        assert!(adopted.signal(libc::SIGTERM).unwrap());
        let status = adopted.ended().await;
        assert!(matches!(status, ExitStatus::Code(42) | ExitStatus::Unknown), "{status}");
        assert_eq!(wait_end(parent.process.pid), ExitStatus::Code(0));
        // Its parent has collected it for sure. Where the kernel keeps the answer, it can be asked again.
        let status = adopted.ended().await;
        let keeps = kernel() >= (6, 15);
        assert_eq!(status, if keeps { ExitStatus::Code(42) } else { ExitStatus::Unknown });
        assert!(!adopted.signal(libc::SIGTERM).unwrap());
        check_not_adopted(pid, Kind::NotFound, "there is no such process");
    });
    assert_no_child();
}

#[track_caller]
fn check_not_adopted(pid: i32, kind: Kind, why: &str) {
    assert_eq!(adopt(pid).unwrap_err(), Failure::new(kind, format!("adopt process {pid}: {why}")));
}

#[test]
fn what_cannot_be_adopted_is_told_apart() {
    let _turn = turn();
    for pid in [i32::MAX, 0, -1] {
        check_not_adopted(pid, Kind::NotFound, "there is no such process");
    }
    let ranks = start(vec![shell("exit 0")], Hold::No).unwrap();
    sys::wait_for_news(ranks[0].process.pid).unwrap();
    check_not_adopted(ranks[0].process.pid, Kind::NotFound, "it has ended already");
    assert_eq!(wait_end(ranks[0].process.pid), ExitStatus::Code(0));
    let own = nix::unistd::geteuid();
    if own.is_root() {
        let rank = start(vec![spec("/usr/bin/setpriv", &["--reuid=65534", "sleep", "1000"])], Hold::No);
        let rank = rank.unwrap().remove(0);
        assert!(comes_true(|| procfs::read_status(rank.process.pid).unwrap().real_uid != 0));
        check_not_adopted(rank.process.pid, Kind::NoAccess, "it belongs to user 65534, we are user 0");
        kill_and_wait(&rank);
    } else {
        check_not_adopted(1, Kind::NoAccess, &format!("it belongs to user 0, we are user {own}"));
    }
    assert_no_child();
}

#[test]
fn held_processes_go_on_until_each_is_the_program_that_is_meant() {
    let _turn = turn();
    with_runtime(|| async {
        let becomes = hold_one(shell("exec sleep 1000"));
        let starts = hold_one(shell("env true; sleep 1000; exit 3"));
        let is_it = hold_one(spec("/bin/sleep", &["1000"]));
        let pids = [becomes, starts, is_it].map(|rank| rank.process.pid);
        let follower = Follower::start_held(pids.to_vec(), Pattern::new("sleep")).await.unwrap();
        let held = follower.hold(Instant::now() + LONG).await.unwrap();
        assert_eq!([held[0].0, held[2].0], [pids[0], pids[2]]);
        assert_eq!(procfs::read_stat(held[1].0).unwrap().parent, pids[1]);
        for (pid, proof) in &held {
            assert_eq!((proof.state, procfs::read_stat(*pid).unwrap().state), ('T', 'T'));
            assert_eq!(procfs::read_exe(*pid).unwrap(), std::fs::canonicalize("/bin/sleep").unwrap());
            assert_eq!(procfs::read_status(*pid).unwrap().tracer, 0);
            sys::kill(*pid, libc::SIGKILL).unwrap();
        }
        let killed = ExitStatus::Signal(gantry_types::signal::Signal::KILL);
        assert_eq!(pids.map(wait_end), [killed, ExitStatus::Code(3), killed]);
        // One that never executes it, and one that waits and is cancelled.
        let ends = hold_one(shell("exit 0")).process.pid;
        let follower = Follower::start_held(vec![ends], Pattern::new("sleep")).await.unwrap();
        let failure = follower.hold(Instant::now() + LONG).await.unwrap_err();
        assert!(failure.error.to_string().contains("sleep"), "{failure:?}");
        // Following a child of its own process collects it, too.
        let is_gone = |pid| sys::wait(pid, 0).is_err() || procfs::read_stat(pid).is_err();
        assert!(is_gone(ends));
        let waits = hold_one(shell("exec sleep 1000")).process.pid;
        let follower = Follower::start_held(vec![waits], Pattern::new("none")).await.unwrap();
        drop(follower);
        assert!(is_gone(waits));
    });
    assert_no_child();
}
