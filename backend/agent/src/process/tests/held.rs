//! Ranks of every kind are held before their first instruction, and go on afterwards as if not held.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use crate::process::hold::Hold;
use crate::process::spawn::{Forked, Gate, ProcessSpec, raise_open_files};
use crate::process::test_support::*;
use crate::process::trace::{self, EndWatch};
use crate::process::{ExitStatus, Pinned, procfs, prove_stopping, signal, sys};

#[track_caller]
fn check_held(program: &Path, exe: &Path, has_loader: bool) {
    let rank = hold_one(spec(program, &["7"]));
    let pid = rank.process.pid;
    let proof = rank.proof.unwrap();
    assert_eq!((proof.state, Some(proof.counter)), ('T', proof.entry));
    assert_eq!(procfs::read_status(pid).unwrap().tracer, 0);
    assert_eq!(procfs::read_stat(pid).unwrap().group, pid);
    assert_eq!(rank.exe, fs::canonicalize(exe).unwrap());
    let auxv = procfs::read_auxv(pid, procfs::Width::Bits64).unwrap();
    assert_eq!(auxv.loader_base.is_some(), has_loader);
    assert_eq!(release_and_wait(&rank), ExitStatus::Code(7));
}

const EXIT_WITH_ARGUMENT: &str =
    "#include <stdlib.h>\nint main(int c, char **v) { return c > 1 ? atoi(v[1]) : 99; }\n";

#[test]
fn every_kind_of_program_is_held_at_its_entry() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    for (name, flags, has_loader) in [
        ("static", &["-static"][..], false),
        ("static-pie", &["-static-pie"], false),
        ("non-pie", &["-no-pie"], true),
        ("pie", &["-pie", "-fPIE"], true),
    ] {
        let program = compile(folder.path(), name, EXIT_WITH_ARGUMENT, flags);
        check_held(&program, &program, has_loader);
    }
    let script = folder.path().join("script");
    fs::write(&script, "#!/bin/sh\nexit $1\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    check_held(&script, Path::new("/bin/sh"), true);
    assert_no_child();
}

#[test]
fn bin_true_is_held_like_any_other() {
    let _turn = turn();
    let rank = hold_one(spec("/bin/true", &[]));
    assert_eq!(procfs::read_stat(rank.process.pid).unwrap().state, 'T');
    assert_eq!(release_and_wait(&rank), ExitStatus::Code(0));
    assert_no_child();
}

#[test]
fn no_instruction_runs_before_release() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    // A constructor is the first thing of its own that a program can run.
    let source = "#include <fcntl.h>\n#include <stdlib.h>\n\
        __attribute__((constructor)) static void first(void) { open(getenv(\"MARK\"), O_CREAT, 0600); }\n\
        int main(void) { return 3; }\n";
    let program = compile(folder.path(), "marker", source, &[]);
    let mark = folder.path().join("mark");
    let mut wanted = spec(program, &[]);
    wanted.env.push(text(format!("MARK={}", mark.display())));
    let rank = hold_one(wanted);
    // No library is mapped, as the loader has not run either.
    let maps = fs::read_to_string(format!("/proc/{}/maps", rank.process.pid)).unwrap();
    assert!(!maps.contains("libc"), "{maps}");
    assert!(!mark.exists());
    assert_eq!(release_and_wait(&rank), ExitStatus::Code(3));
    assert!(mark.exists());
    assert_no_child();
}

#[test]
fn sixty_four_ranks_are_held_and_end_with_their_own_codes() {
    let _turn = turn();
    let specs = (0..64).map(|code| shell(&format!("exit {code}"))).collect();
    let ranks = start(specs, Hold::AtEntry).unwrap();
    assert_eq!(ranks.len(), 64);
    for rank in &ranks {
        assert_eq!(procfs::read_stat(rank.process.pid).unwrap().state, 'T');
    }
    for (code, rank) in (0..).zip(&ranks) {
        assert_eq!(release_and_wait(rank), ExitStatus::Code(code));
    }
    assert_no_child();
}

#[test]
fn a_hundred_rounds_of_hold_and_release_lose_nobody() {
    let _turn = turn();
    for _ in 0..100 {
        let ranks = start((0..4).map(|_| spec("/bin/true", &[])).collect(), Hold::AtEntry).unwrap();
        for rank in &ranks {
            assert_eq!(release_and_wait(rank), ExitStatus::Code(0));
        }
    }
    assert_no_child();
}

#[test]
fn a_debugger_can_attach_to_a_held_rank_and_then_decides_over_it() {
    let _turn = turn();
    let rank = hold_one(shell("exit 5"));
    let pid = rank.process.pid;
    sys::trace_seize(pid).unwrap();
    let own = nix::unistd::gettid().as_raw();
    assert_eq!(procfs::read_status(pid).unwrap().tracer, own);
    assert_eq!(release(rank.process), signal::Released::LeftToDebugger(own));
    // The group-stop is reported to the new tracer: still there, still at the entry.
    let status = sys::wait(pid, libc::__WALL).unwrap().unwrap();
    assert_eq!((libc::WSTOPSIG(status), status >> 16), (libc::SIGSTOP, libc::PTRACE_EVENT_STOP));
    assert_eq!(procfs::read_syscall_pc(pid).unwrap(), Some(rank.proof.unwrap().counter));
    sys::trace_detach(pid, 0).unwrap();
    assert_eq!(release_and_wait(&rank), ExitStatus::Code(5));
    assert_no_child();
}

#[test]
fn a_held_rank_that_is_being_read_is_released_when_its_reader_has_let_go() {
    let _turn = turn();
    let rank = hold_one(shell("exit 7"));
    let other = hold_one(shell("exit 0"));
    let pid = rank.process.pid;
    let (seized, is_seized) = std::sync::mpsc::channel();
    let (done, is_done) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        sys::trace_seize(pid).unwrap();
        sys::wait(pid, libc::__WALL).unwrap();
        seized.send(()).unwrap();
        is_done.recv().unwrap();
        sys::trace_detach(pid, 0).unwrap();
    });
    is_seized.recv().unwrap();
    let ranks = [&other, &rank].map(|rank| signal::HeldRank { process: rank.process, own: true });
    assert!(signal::release(&ranks, true).is_none());
    assert_eq!(procfs::read_stat(other.process.pid).unwrap().state, 'T', "all go or none");
    done.send(()).unwrap();
    reader.join().unwrap();
    let released: Vec<_> = signal::release(&ranks, true).unwrap().into_iter().map(Result::unwrap).collect();
    assert_eq!(released, [signal::Released::Continued; 2]);
    assert_eq!((wait_end(pid), wait_end(other.process.pid)), (ExitStatus::Code(7), ExitStatus::Code(0)));
    assert_no_child();
}

#[test]
fn gdb_attaches_to_a_held_rank_and_leaves_it_held() {
    let _turn = turn();
    let rank = hold_one(shell("exit 6"));
    let pid = rank.process.pid.to_string();
    // Optional: not every machine has a debugger.
    if Path::new("/usr/bin/gdb").exists() {
        let output =
            run("gdb", &["-nx", "-batch", "-p", &pid, "-ex", "printf \"at %#lx\\n\", $pc", "-ex", "detach"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains(&format!("at {:#x}", rank.proof.unwrap().counter)), "{output:?}");
        assert_eq!(procfs::read_status(rank.process.pid).unwrap().tracer, 0);
    } else {
        crate::skip::skip("gdb is not installed");
    }
    sys::kill(rank.process.pid, libc::SIGCONT).unwrap();
    assert_eq!(wait_end(rank.process.pid), ExitStatus::Code(6));
    assert_no_child();
}

#[test]
fn ranks_that_are_not_held_run_at_once() {
    let _turn = turn();
    let ranks = start((0..8).map(|code| shell(&format!("exit {code}"))).collect(), Hold::No).unwrap();
    for (code, rank) in (0..).zip(&ranks) {
        assert_eq!((rank.proof, rank.exe.as_path()), (None, Path::new("/bin/sh")));
        assert_eq!(wait_end(rank.process.pid), ExitStatus::Code(code));
    }
    assert_no_child();
}

/// A process that was started with the agent's memory must have all that a copy would have, and leave the agent
/// unchanged.
#[test]
fn what_is_started_alone_is_its_program_at_once_and_touches_nothing_of_ours() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut wanted = shell(
        "pwd; echo $GREETING; ulimit -Sn; ls /proc/$$/fd | wc -l; ps -o pgid= $$; grep SigBlk /proc/self/status",
    );
    wanted.cwd = Some(text(folder.path()));
    wanted.stdout = writer.into();
    wanted.nofile = Some((77, 88));
    let before = (std::env::current_dir().unwrap(), nix::sys::signal::SigSet::thread_get_mask().unwrap());
    let limits = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    let pid = start_one(wanted).unwrap();
    assert_eq!(procfs::read_exe(pid).unwrap(), std::fs::canonicalize("/bin/sh").unwrap());
    let said = std::io::read_to_string(reader).unwrap();
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let (cwd, group) = (folder.path().canonicalize().unwrap(), pid.to_string());
    assert_eq!(lines[..3], [cwd.to_str().unwrap(), "hello", "77"]);
    // Its stdio, and the descriptors of ls itself.
    assert_eq!((lines[3].parse::<u32>().unwrap() < 6, lines[4]), (true, group.as_str()), "{said}");
    assert!(lines[5].ends_with("0000000000000000"), "{said}");
    assert_eq!(wait_end(pid), ExitStatus::Code(0));
    let after = (std::env::current_dir().unwrap(), nix::sys::signal::SigSet::thread_get_mask().unwrap());
    assert_eq!(before, after);
    let limits_after = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    assert_eq!(limits, limits_after);
    assert_no_child();
}

#[test]
fn open_files_are_raised_for_us_and_restored_for_ranks() {
    let _turn = turn();
    let (soft, hard) = raise_open_files().unwrap();
    let raised = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    let limits = output_of("ulimit -Sn", |spec| spec.nofile = Some((soft.min(1024), hard)));
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    assert_eq!(raised, (hard, hard));
    assert_eq!(limits, format!("{}\n", soft.min(1024)));
    assert_no_child();
}

/// The output of a shell script whose spec `change` has changed.
fn output_of(script: &str, change: impl FnOnce(&mut ProcessSpec)) -> String {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut wanted = shell(script);
    wanted.stdout = writer.into();
    change(&mut wanted);
    let rank = hold_one(wanted);
    release(rank.process);
    let mut output = String::new();
    reader.read_to_string(&mut output).unwrap();
    assert_eq!(wait_end(rank.process.pid), ExitStatus::Code(0), "{output}");
    output
}

#[test]
fn a_rank_gets_what_was_asked_for_and_nothing_else() {
    let _turn = turn();
    // Not close-on-exec, as a careless library would leave it.
    let stray = std::io::pipe().unwrap();
    nix::fcntl::fcntl(&stray.0, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
    let high = nix::fcntl::fcntl(&stray.0, nix::fcntl::FcntlArg::F_DUPFD(50)).unwrap();

    assert_eq!(output_of("echo $GREETING", |_| ()), "hello\n");
    assert_eq!(output_of("pwd", |spec| spec.cwd = Some(c"/usr".to_owned())), "/usr\n");
    assert_eq!(output_of("ulimit -Sn; ulimit -Hn", |spec| spec.nofile = Some((77, 99))), "77\n99\n");
    let open = "n=0; while [ $n -lt 64 ]; do [ -e /proc/$$/fd/$n ] && echo $n; n=$((n+1)); done; :";
    assert_eq!(output_of(open, |_| ()), "0\n1\n2\n");
    // Its own descriptor is at its place and stays open, whatever number it has here. One of the numbers is its own, if
    // that is free.
    for above in [2, sys::SERVED - 1, 60] {
        let served = std::fs::File::open("/dev/zero").unwrap().into();
        let served = sys::duplicate_above(above, &served).unwrap();
        let read = "head -c 3 <&10 | wc -c";
        let open_too = output_of(&format!("{open}; bash -c '{read}'"), |spec| spec.served = Some(served));
        assert_eq!(open_too, "0\n1\n2\n10\n3\n");
    }
    nix::unistd::close(high).unwrap();
    let signals = output_of("grep -E 'Sig(Blk|Ign)' /proc/self/status", |_| ());
    assert_eq!(signals, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
    assert_no_child();
}

#[test]
fn a_signal_that_arrives_before_the_program_is_delivered_or_ends_it() {
    let _turn = turn();
    // SIGCHLD is ignored by default. It stops the tracee on its way, and the tracer must pass it on.
    let specs: Vec<_> = (0..16).map(|_| shell("exit 0")).collect();
    let nobody = std::sync::atomic::AtomicBool::new(false);
    let own = std::process::id().cast_signed();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !nobody.load(std::sync::atomic::Ordering::Relaxed) {
                for pid in procfs::descendants(own).unwrap_or_default() {
                    drop(sys::kill(pid, libc::SIGCHLD));
                    drop(sys::kill(pid, libc::SIGWINCH));
                }
            }
        });
        let ranks = start(specs, Hold::AtEntry);
        nobody.store(true, std::sync::atomic::Ordering::Relaxed);
        for rank in &ranks.unwrap() {
            assert_eq!(release_and_wait(rank), ExitStatus::Code(0));
        }
    });
    assert_no_child();
}

/// Reports group-stops.
struct GroupStops(mpsc::Sender<i32>);

impl EndWatch for GroupStops {
    fn collect(&self, pid: i32) -> std::io::Result<Option<i32>> {
        let status = sys::wait(pid, libc::__WALL | libc::WUNTRACED | libc::WNOHANG)?;
        if status.is_some_and(|status| status >> 8 == libc::SIGSTOP | (libc::PTRACE_EVENT_STOP << 8)) {
            self.0.send(pid).unwrap();
        }
        Ok(status)
    }
}

#[test]
fn a_rank_that_is_stopped_on_its_way_goes_on_when_it_is_told_to_and_is_held() {
    let _turn = turn();
    let (stopped, stops) = mpsc::channel();
    let (done, is_done) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let watch = GroupStops(stopped);
            let gate = Gate::new().unwrap();
            let mut wanted = shell("exit 8");
            wanted.die_with_parent = false;
            let pid = Forked::fork(wanted, &gate).unwrap().pid;
            sys::trace_seize(pid).unwrap();
            sys::kill(pid, libc::SIGSTOP).unwrap();
            gate.open(1).unwrap();
            let place = trace::run_to_exec(pid, &watch).unwrap();
            done.send((pid, trace::prove_held(pid, place, &watch).unwrap())).unwrap();
        });
        let deadline = Duration::from_secs(20);
        let pid = stops.recv_timeout(deadline).unwrap();
        // It does not go on by itself.
        assert!(is_done.recv_timeout(Duration::from_millis(50)).is_err());
        sys::kill(pid, libc::SIGCONT).unwrap();
        let (pid, proof) = is_done.recv_timeout(deadline).unwrap();
        assert_eq!(proof.state, 'T');
        release(Pinned::now(pid).unwrap());
        assert_eq!(wait_end(pid), ExitStatus::Code(8));
    });
    assert_no_child();
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_32_bit_program_is_held_where_the_kernel_runs_such() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("narrow");
    // An ELF header, one program header for everything, and exit(7).
    let words: [u32; 17] = [
        0x0003_0002,
        1,
        0x0804_8054,
        52,
        0,
        0,
        0x0020_0034,
        1,
        0,
        1,
        0,
        0x0804_8000,
        0x0804_8000,
        96,
        96,
        5,
        4096,
    ];
    let mut elf = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    elf.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    elf.extend(b"\xb8\x01\0\0\0\xbb\x07\0\0\0\xcd\x80");
    fs::write(&path, elf).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    match start(vec![spec(&path, &[])], Hold::AtEntry) {
        Ok(ranks) => {
            assert_eq!(ranks[0].proof.unwrap().entry, Some(0x0804_8054));
            assert_eq!(release_and_wait(&ranks[0]), ExitStatus::Code(7));
        }
        Err(failure) => {
            crate::skip::skip(&failure.error.to_string());
            assert!(failure.error.to_string().contains("built for x86 (32 bit)"), "{failure:?}");
        }
    }
    assert_no_child();
}

#[test]
fn five_hundred_and_twelve_ranks_are_held_at_once() {
    let _turn = turn();
    // Each rank has its own stdio here.
    let (soft, hard) = raise_open_files().unwrap();
    if hard < 4 * 512 {
        return crate::skip::skip(&format!("there may be {hard} open files only"));
    }
    let specs = (0..512).map(|_| spec("/bin/true", &[])).collect();
    let before = std::time::Instant::now();
    let ranks = start(specs, Hold::AtEntry).unwrap();
    println!("512 ranks held in {:?}", before.elapsed());
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    assert!(ranks.iter().all(|rank| procfs::read_stat(rank.process.pid).unwrap().state == 'T'));
    for rank in &ranks {
        assert_eq!(release_and_wait(rank), ExitStatus::Code(0));
    }
    assert_no_child();
}

/// The time for which this thread has had a processor.
fn own_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn who_waits_for_a_stop_leaves_the_processor_to_others() {
    let _turn = turn();
    let rank = start(vec![spec("/bin/sleep", &["1000"])], Hold::No).unwrap().remove(0);
    let pid = rank.process.pid;
    let stopper = std::thread::spawn(move || {
        let (_open, never) = mpsc::channel::<()>();
        never.recv_timeout(Duration::from_millis(600)).unwrap_err();
        sys::kill(pid, libc::SIGSTOP).unwrap();
    });
    let before = own_time();
    // It is stopped somewhere in its program, which is enough here.
    prove_stopping(pid).unwrap();
    let used = own_time() - before;
    stopper.join().unwrap();
    assert!(used < Duration::from_millis(120), "{used:?} of 600 ms");
    kill_and_wait(&rank);
    assert_no_child();
}
