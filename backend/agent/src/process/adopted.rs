//! Adopted processes: not started by this agent. They are ranks of a job that a tool attaches to, or that a launcher
//! brings.
//!
//! They are not our children. A pidfd reports their end. The kernel reports their exit status only since Linux 6.15. On
//! older kernels the status can be read until the parent has collected the process.

use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use gantry_types::error::{Failure, Kind};

use super::{ExitStatus, Pinned, parse_end, procfs, signal, sys};

/// How often the agent polls for the process where it has no pidfd, or cannot wait for that: on kernels before 5.3, or
/// at a limit of the system.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A process of this user that we watch. Dropping it leaves the process as it is.
#[derive(Debug)]
pub(crate) struct Adopted {
    /// Its pid and start time.
    pub(crate) process: Pinned,
    /// The program that it ran when it was adopted.
    pub(crate) exe: PathBuf,
    pidfd: Option<OwnedFd>,
}

/// Watches a running process of this user without touching it.
///
/// # Errors
/// The process is missing, has ended or belongs to another user, or the number is a thread's.
pub(crate) fn adopt(pid: i32) -> Result<Adopted, Failure> {
    let failed = |kind, why: &dyn Display| Failure::new(kind, format!("adopt process {pid}: {why}"));
    let missing = || failed(Kind::NotFound, &"there is no such process");
    let look = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => missing(),
        _ => failed(Kind::Lost, &error),
    };
    if pid <= 0 {
        return Err(missing());
    }
    // Open the pidfd before reading `/proc`. If the process is still there after the read, `/proc` described this
    // process.
    let pidfd = match sys::pidfd_open(pid) {
        Ok(pidfd) => Some(pidfd),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Err(missing()),
        Err(_) => None,
    };
    let before = procfs::read_stat(pid).map_err(look)?;
    let status = procfs::read_status(pid).map_err(look)?;
    if status.thread_group != pid {
        let why = format_args!("this is a thread of process {}", status.thread_group);
        return Err(failed(Kind::Invalid, &why));
    }
    let own = nix::unistd::geteuid().as_raw();
    if let Some(uid) = [status.real_uid, status.effective_uid].into_iter().find(|&uid| uid != own) {
        let why = format_args!("it belongs to user {uid}, we are user {own}");
        return Err(failed(Kind::NoAccess, &why));
    }
    if matches!(before.state, 'Z' | 'X') {
        // Its parent has not collected it yet.
        return Err(failed(Kind::NotFound, &"it has ended already"));
    }
    let exe = procfs::read_exe(pid).map_err(look)?;
    let process = Pinned { pid, start_time: before.start_time };
    let there = match &pidfd {
        Some(pidfd) => signal::there(sys::pidfd_send_signal(pidfd.as_fd(), 0)).map_err(look)?,
        None => process.is_there().map_err(look)?,
    };
    if !there {
        return Err(missing());
    }
    Ok(Adopted { process, exe, pidfd })
}

impl Adopted {
    /// Waits until it ends. [`ExitStatus::Unknown`] where the kernel does not report the status to processes other than
    /// its parent. A process that cannot be looked at counts as running.
    pub(crate) async fn ended(&self) -> ExitStatus {
        let pidfd = self.pidfd.as_ref().map(OwnedFd::as_fd);
        let watched = match pidfd {
            Some(pidfd) => sys::pidfd_ended(pidfd).await.is_ok(),
            None => false,
        };
        while !watched && !self.has_ended() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let told = || pidfd.and_then(sys::pidfd_exit_status).and_then(parse_end);
        // The parent has collected it, has not yet, or did so between the two calls.
        told().or_else(|| self.status_as_zombie()).or_else(told).unwrap_or(ExitStatus::Unknown)
    }

    /// Sends `signal`; false if it has ended.
    ///
    /// # Errors
    /// When the process belongs to another user now, or there is no such signal.
    pub(crate) fn signal(&self, signal: i32) -> io::Result<bool> {
        match &self.pidfd {
            Some(pidfd) => signal::there(sys::pidfd_send_signal(pidfd.as_fd(), signal)),
            None => signal::send(self.process, signal),
        }
    }

    /// Whether it is gone, or has ended and its status can be read.
    fn has_ended(&self) -> bool {
        match self.process.read_stat() {
            Ok(Some(stat)) => stat.state == 'Z' && self.status_as_zombie().is_some(),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// The status in `/proc/PID/stat` of a process that has ended and was not collected.
    fn status_as_zombie(&self) -> Option<ExitStatus> {
        // A reader without permission reads status 0. Reading this link tells the two cases apart. It fails with EACCES
        // for a reader without permission. For the others the link of a process without memory is missing.
        let link = procfs::read_exe(self.process.pid);
        if link.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            return None;
        }
        let stat = procfs::read_stat(self.process.pid).ok()?;
        if stat.start_time != self.process.start_time || stat.state != 'Z' {
            return None;
        }
        parse_end(stat.exit_status?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::pin::Pin;
    use std::task::Poll;

    use gantry_types::signal::Signal;
    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    use super::*;
    use crate::process::strays::{self, Doomed};
    use crate::process::test_support::{shell, start_one, turn, wait_end};

    #[test]
    fn a_process_that_cannot_be_looked_at_counts_as_running() {
        if crate::testing::rerun_alone(
            "process::adopted::tests::a_process_that_cannot_be_looked_at_counts_as_running",
        ) {
            return;
        }
        let _turn = turn();
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let pid = start_one(shell("exec sleep 1000")).unwrap();
            let (adopted, bare) = (adopt(pid).unwrap(), Adopted { pidfd: None, ..adopt(pid).unwrap() });
            // The runtime watches a descriptor once.
            let mut waits: [Pin<Box<dyn Future<Output = ExitStatus>>>; 3] =
                [Box::pin(adopted.ended()), Box::pin(adopted.ended()), Box::pin(bare.ended())];
            let free = std::fs::File::open("/dev/null").unwrap().as_raw_fd().cast_unsigned().into();
            setrlimit(Resource::RLIMIT_NOFILE, free, hard).unwrap();
            for wait in &mut waits {
                let first = std::future::poll_fn(|context| Poll::Ready(wait.as_mut().poll(context)));
                assert_eq!(first.await, Poll::Pending);
            }
            signal::send(adopted.process, 0).unwrap_err();
            setrlimit(Resource::RLIMIT_NOFILE, free + 1, hard).unwrap();
            assert!(signal::send(adopted.process, 0).unwrap());
            strays::end(&Doomed::default()).unwrap_err();
            setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
            sys::kill(pid, libc::SIGKILL).unwrap();
            for wait in waits {
                assert_eq!(wait.await, ExitStatus::Signal(Signal::KILL));
            }
            wait_end(pid);
        });
    }
}
