//! What becomes of the other processes of a rank when the program behind them is held.

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::process::follow::{Follower, Pattern};
use crate::process::hold::StartFailure;
use crate::process::test_support::*;
use crate::process::trace::HeldProof;
use crate::process::{procfs, sys};

const LONG: Duration = Duration::from_secs(30);

/// Does the same thing again and again, and writes its pid and how often it has done it. It ends if that goes wrong, or
/// with its rank.
const HELPER: &str = r#"
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <pthread.h>
    #include <signal.h>
    #include <sys/prctl.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static volatile sig_atomic_t caught;
    static void count(int signal) { (void)signal; caught++; }
    static void *nothing(void *it) { return it; }
    int main(int argc, char **argv) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGUSR1, count);
        int file = open(argv[2], O_CREAT | O_RDWR, 0600), status = 0, pid = -1;
        pthread_t thread;
        for (int done[2] = {getpid(), 1}; argc == 3; done[1]++) {
            switch (argv[1][0]) {
            case 't':
                if (pthread_create(&thread, 0, nothing, 0) || pthread_join(thread, 0)) return 9;
                break;
            case 'f':
                if ((pid = fork()) == 0) _exit(0);
                if (waitpid(pid, &status, 0) != pid || status) return 9;
                break;
            case 'v':
                if ((pid = vfork()) == 0) _exit(0);
                if (waitpid(pid, &status, 0) != pid || status) return 9;
                break;
            case 's':
                raise(SIGUSR1);
                if (caught != done[1]) return 9;
                break;
            default: /* A FIFO: its child waits there with this process's memory. */
                if ((pid = vfork()) == 0) {
                    pwrite(file, done, sizeof done, 0);
                    open(argv[1], O_RDONLY);
                    _exit(0);
                }
                argv[1] = "t";
            }
            pwrite(file, done, sizeof done, 0);
        }
    }
"#;

/// The pid of a helper, and how often it has done its thing.
fn read_helper(file: &Path) -> (i32, i32) {
    let bytes = std::fs::read(file).unwrap();
    let number = |at: usize| i32::from_ne_bytes(*bytes[at..].first_chunk().unwrap());
    (number(0), number(4))
}

fn is_gone(pid: i32) -> bool {
    procfs::read_stat(pid).map_or(true, |stat| stat.state == 'Z')
}

/// Another process collects it. It is killed if it does not end by itself.
fn ends(pid: i32) -> bool {
    let ended = comes_true(|| is_gone(pid));
    if !ended {
        drop(sys::kill(pid, libc::SIGKILL));
    }
    ended
}

/// Collects a child that its tracer may have collected already.
fn collect(pid: i32) {
    while sys::wait(pid, 0).is_ok() {}
}

fn follow<T>(pids: Vec<i32>, pattern: &str, then: impl AsyncFnOnce(Follower) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let follower = Follower::start_held(pids, Pattern::new(pattern)).await.unwrap();
        timeout(2 * LONG, then(follower)).await.expect("in time")
    })
}

fn hold(pids: Vec<i32>, pattern: &str) -> Result<Vec<(i32, HeldProof)>, StartFailure> {
    follow(pids, pattern, async |follower| follower.hold(Instant::now() + LONG).await)
}

/// A shell that starts the helpers, one for each of these files, and becomes `sleep` when all of them are at work.
fn rank_with(folder: &Path, helpers: &[(&str, &Path)]) -> i32 {
    let program = compile(folder, "helper", HELPER, &["-pthread"]);
    let mut script = String::new();
    for (what, file) in helpers {
        script += &format!("{} {what} {} & ", program.display(), file.display());
    }
    for (_, file) in helpers {
        script += &format!("until [ -s {} ]; do :; done; ", file.display());
    }
    hold_one(shell(&(script + "exec sleep 1000"))).process.pid
}

#[track_caller]
fn check_at_work(file: &Path) {
    let (pid, before) = read_helper(file);
    assert!(comes_true(|| read_helper(file).1 > before + 2), "{file:?}: {:?}", procfs::read_stat(pid));
    assert_eq!(procfs::read_status(pid).unwrap().tracer, 0);
}

fn end_with(rank: i32, helpers: &[&Path]) {
    sys::kill(rank, libc::SIGKILL).unwrap();
    wait_end(rank);
    for file in helpers {
        assert!(ends(read_helper(file).0), "{file:?}");
    }
    assert_no_child();
}

/// The exec that is waited for comes while the other processes fork, make threads and get signals. Once, what they had
/// just made was killed, and their signals were lost.
#[test]
fn the_other_processes_of_a_held_rank_go_on_whatever_they_were_doing() {
    const ROUNDS: usize = 10;
    let _turn = turn();
    for _ in 0..ROUNDS {
        let folder = tempfile::tempdir().unwrap();
        let files = ["t", "f", "v", "s"].map(|what| (what, folder.path().join(what)));
        let helpers = files.each_ref().map(|(what, file)| (*what, file.as_path()));
        let rank = rank_with(folder.path(), &helpers);
        assert_eq!(hold(vec![rank], "sleep").unwrap()[0].0, rank);
        for (_, file) in helpers {
            check_at_work(file);
        }
        end_with(rank, &helpers.map(|(_, file)| file));
    }
}

/// A process in `vfork` cannot stop before its child has executed a program. Once, the hold waited for that.
#[test]
fn a_hold_does_not_wait_for_another_process_that_cannot_stop() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let (fifo, file) = (folder.path().join("fifo"), folder.path().join("file"));
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let rank = rank_with(folder.path(), &[(fifo.to_str().unwrap(), &file)]);
    let held = hold(vec![rank], "sleep").map(|held| held[0].0);
    // It opens where a child waits, and lets that go on.
    let open = || std::fs::File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&fifo);
    assert!(comes_true(|| open().is_ok()));
    assert_eq!(held.unwrap(), rank);
    check_at_work(&file);
    end_with(rank, &[&file]);
}

#[test]
fn a_hold_that_is_given_up_ends_the_processes_that_its_rank_has_left() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let rank = hold_one(shell(&format!("sleep 1000 & echo $! > {}", file.display()))).process.pid;
    follow(vec![rank], "none", async |_follower| assert!(comes_true(|| is_gone(rank))));
    let left = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    assert!(ends(left));
    collect(rank);
    assert_no_child();
}

#[test]
fn a_program_that_is_held_behind_a_rank_ends_if_another_rank_fails() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let [file, go] = ["pid", "go"].map(|name| folder.path().join(name));
    // Without the trap, the kernel may end it: with its shell, its process group loses the last parent outside.
    let starts = hold_one(shell(&format!("trap '' HUP; sleep 1000 & echo $! > {}; wait", file.display())));
    let fails = hold_one(shell(&format!("until [ -e {} ]; do :; done", go.display())));
    let pids = vec![starts.process.pid, fails.process.pid];
    let (held, failure) = follow(pids.clone(), "sleep", async |follower| {
        let mut held = 0;
        assert!(comes_true(|| {
            held = std::fs::read_to_string(&file).ok().and_then(|pid| pid.trim().parse().ok()).unwrap_or(0);
            let untraced = || procfs::read_status(held).is_ok_and(|status| status.tracer == 0);
            procfs::read_stat(held).is_ok_and(|stat| stat.state == 'T') && untraced()
        }));
        std::fs::write(&go, "").unwrap();
        (held, follower.hold(Instant::now() + LONG).await.unwrap_err())
    });
    assert_eq!(failure.index, 1, "{failure:?}");
    assert!(ends(held));
    pids.into_iter().for_each(collect);
    assert_no_child();
}
