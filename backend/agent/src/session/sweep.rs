//! Cleans up after agents that were killed: the next agent of the same user on that node removes their directories.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::SystemTime;

use gantry_shared::storage::{is_new_since, parse_app_dir_name};
use gantry_types::error::Failure;
use nix::errno::Errno;
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::geteuid;

use super::StageBase;
use super::app_dir::{is_named, remove_leased};
use super::lease::{self, Owner, Verdict};
use crate::{failure, tree};

/// A dead agent's directory, and the result of its removal.
#[derive(Debug)]
pub(crate) struct Swept {
    /// Its path.
    pub(crate) path: PathBuf,
    /// Whether all of it could be removed.
    pub(crate) outcome: Result<(), Failure>,
}

/// Removes the directories in `base` whose agents are dead.
///
/// Four conditions must hold: the name is one that an agent gives, it is a directory (not a link to one), it belongs to
/// our own user, and its lease can be locked. A directory without a lease may be under construction. One of another
/// machine is left alone until it has been unchanged for a minute. One of this machine is removed, and its agent makes
/// another one. A directory whose lease names another machine is left to that machine.
///
/// Two sweeps at once share the work: the sweep that holds a lease's lock removes the directory.
pub(crate) fn sweep(base: &StageBase) -> Vec<Swept> {
    sweep_at(base, SystemTime::now())
}

fn sweep_at(base: &StageBase, now: SystemTime) -> Vec<Swept> {
    let path = base.path();
    let listed = Owner::this_process().and_then(|here| {
        let dir = base.open()?;
        let names = tree::names(&dir)?;
        Ok((here, dir, names))
    });
    let (here, dir, names) = match listed {
        Ok(listed) => listed,
        Err(error) => {
            let outcome = Err(failure::from_io(
                format_args!("search {} for sessions of dead agents", path.display()),
                &error,
            ));
            return vec![Swept { path: path.to_owned(), outcome }];
        }
    };
    let swept = |name: CString| {
        let place = path.join(OsStr::from_bytes(name.to_bytes()));
        let outcome = match sweep_one(dir.as_fd(), &name, &here, now) {
            Ok(false) => return None,
            Ok(true) => Ok(()),
            Err(error) => {
                Err(failure::from_io(format_args!("remove the dead session {}", place.display()), &error))
            }
        };
        Some(Swept { path: place, outcome })
    };
    names.into_iter().filter(|name| is_app_dir_name(name)).filter_map(swept).collect()
}

fn is_app_dir_name(name: &CStr) -> bool {
    name.to_str().is_ok_and(|name| parse_app_dir_name(name).is_some())
}

/// Removes the directory if its agent is dead. True if it was removed.
fn sweep_one(base: BorrowedFd<'_>, name: &CString, here: &Owner, now: SystemTime) -> io::Result<bool> {
    let ours = |stat: &nix::sys::stat::FileStat| {
        tree::is_kind(stat, SFlag::S_IFDIR) && stat.st_uid == geteuid().as_raw()
    };
    // Check before opening: opening a foreign file can have side effects, and a refusal would not be worth reporting.
    match tree::lstat(base, &**name) {
        Ok(stat) if ours(&stat) => {}
        _ => return Ok(false),
    }
    let dir = match tree::open_dir(base, &**name) {
        Ok(dir) => dir,
        // Another sweep was faster.
        Err(error) if error.raw_os_error() == Some(Errno::ENOENT as i32) => return Ok(false),
        Err(error) => return Err(error),
    };
    // Check again: it may have been replaced in between.
    if !ours(&fstat(&dir)?) {
        return Ok(false);
    }
    let is_ours = name.to_str().is_ok_and(|name| is_new_since(&here.boot, name));
    match lease::judge(&dir, here, now, is_ours)? {
        Verdict::Leave => Ok(false),
        // Its owner has renamed it before it ended. The next sweep finds it under that name.
        Verdict::Dead(_) if !is_named(base, name, dir.as_fd())? => Ok(false),
        Verdict::Dead(lease) => match remove_leased(base, dir.as_fd(), name, &lease) {
            // Its owner lives, or another sweep works there.
            Err(error) if is_ours && error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
            removed => removed.map(|()| true),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::time::Duration;

    use gantry_shared::storage::{LEASE_FILE, app_dir_prefix_now};
    use gantry_types::id::{AppId, NodeId, SessionId};

    use super::super::lease::NEW_LEASE;
    use super::super::{AppDir, AppDirName};
    use super::*;

    fn app() -> AppId {
        "3kx9w0fz".parse().unwrap()
    }

    fn in_two_minutes() -> SystemTime {
        SystemTime::now() + Duration::from_secs(120)
    }

    /// The names that a sweep of `base` removes at that time; every removal must have worked.
    fn swept(base: &Path, now: SystemTime) -> Vec<String> {
        let swept = sweep_at(&StageBase::at(base), now);
        let mut names: Vec<String> = swept
            .into_iter()
            .map(|swept| {
                swept.outcome.unwrap();
                swept.path.file_name().unwrap().to_str().unwrap().to_owned()
            })
            .collect();
        names.sort();
        names
    }

    /// A directory as a killed agent leaves it: complete, and its lock is free.
    fn dead(base: &Path, unique: &str, boot: &str, host: &str) -> PathBuf {
        let path = base.join(format!("gantry-3kx9w0fz-{unique}"));
        fs::create_dir_all(path.join("s1/bin")).unwrap();
        fs::write(path.join("s1/bin/tool"), "x").unwrap();
        fs::write(path.join(LEASE_FILE), format!("pid 1\nstart 1\nboot {boot}\nhost {host}\n")).unwrap();
        path
    }

    #[test]
    fn dead_directories_go_and_live_ones_stay() {
        let scratch = tempfile::tempdir().unwrap();
        let base = StageBase::at(scratch.path());
        let here = Owner::this_process().unwrap();
        let name = AppDirName::parse(app(), "gantry-3kx9w0fz-0123456789abcdef".to_owned()).unwrap();
        let live = AppDir::create(&base, &name, NodeId(0)).unwrap();
        let session = live.open_session(SessionId(1)).unwrap();
        let dirs = session.dirs();
        dead(scratch.path(), "killed", &here.boot, &here.host);
        dead(scratch.path(), "reboot", "an-earlier-boot", &here.host);
        let elsewhere = dead(scratch.path(), "remote", "another-boot", "another-host");

        assert_eq!(
            swept(scratch.path(), in_two_minutes()),
            ["gantry-3kx9w0fz-killed", "gantry-3kx9w0fz-reboot"]
        );
        assert!(dirs.bin.exists() && elsewhere.join("s1/bin/tool").exists());
        assert_eq!(swept(scratch.path(), in_two_minutes()), [""; 0]);
        live.leave().unwrap();
    }

    #[test]
    fn a_directory_that_is_being_made_is_left_for_a_minute() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        fs::create_dir(at("gantry-3kx9w0fz-nolock")).unwrap();
        fs::create_dir(at("gantry-3kx9w0fz-halfwy")).unwrap();
        fs::write(at("gantry-3kx9w0fz-halfwy").join(NEW_LEASE), "").unwrap();
        fs::create_dir(at("gantry-3kx9w0fz-nocont")).unwrap();
        fs::write(at("gantry-3kx9w0fz-nocont").join(LEASE_FILE), "").unwrap();
        assert_eq!(swept(scratch.path(), SystemTime::now()), [""; 0]);
        assert_eq!(swept(scratch.path(), SystemTime::now() - Duration::from_secs(3600)), [""; 0]);
        assert_eq!(swept(scratch.path(), in_two_minutes()).len(), 3);
    }

    #[test]
    fn an_owner_that_stands_still_before_its_lease_is_complete_is_not_robbed() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("gantry-3kx9w0fz-slowly");
        fs::create_dir(&path).unwrap();
        let file = fs::File::create(path.join(NEW_LEASE)).unwrap();
        let lock = nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock).unwrap();
        assert_eq!(swept(scratch.path(), in_two_minutes()), [""; 0]);
        assert!(path.join(NEW_LEASE).exists());
        drop(lock);
    }

    #[test]
    fn a_directory_that_an_agent_here_was_killed_over_goes_at_once() {
        let scratch = tempfile::tempdir().unwrap();
        let here = Owner::this_process().unwrap();
        let at = |boot: &str, unique: &str| {
            let path = scratch.path().join(app_dir_prefix_now(app(), boot) + unique);
            fs::create_dir(&path).unwrap();
            path
        };
        at(&here.boot, "nolock");
        fs::write(at(&here.boot, "notext").join(NEW_LEASE), "").unwrap();
        fs::write(at(&here.boot, "sometx").join(NEW_LEASE), "pid 1\n").unwrap();
        let elsewhere = at("3f2504e0-4f89-11d3-9a0c-0305e82c3301", "remote");
        assert_eq!(swept(scratch.path(), SystemTime::now()).len(), 3);
        assert_eq!(swept(scratch.path(), SystemTime::now()), [""; 0]);
        assert!(elsewhere.exists());
        assert_eq!(swept(scratch.path(), in_two_minutes()).len(), 1);
    }

    #[test]
    fn agents_that_begin_while_others_sweep_have_their_directories() {
        let scratch = tempfile::tempdir().unwrap();
        let base = &StageBase::at(scratch.path());
        let (over, is_over) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while is_over.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                    for swept in sweep_at(base, SystemTime::now()) {
                        swept.outcome.unwrap();
                    }
                }
            });
            for number in 0..300 {
                let name =
                    AppDirName::parse(app(), format!("gantry-3kx9w0fz-0123456789abc{number:03}")).unwrap();
                // Several nodes of one machine: one of them makes the directory, and the others remove theirs.
                let made = std::thread::scope(|nodes| {
                    [0, 1, 2]
                        .map(|node| {
                            nodes.spawn({
                                let name = &name;
                                move || AppDir::create(base, name, NodeId(node))
                            })
                        })
                        .map(|node| node.join().unwrap().unwrap())
                });
                assert!(made[0].path().join(LEASE_FILE).exists());
                for node in made {
                    node.leave().unwrap();
                }
            }
            drop(over);
        });
        // An owner that was found between its rename and its end has left the removal to a sweep.
        swept(scratch.path(), SystemTime::now());
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_owner_that_wakes_during_a_sweep_begins_anew_and_removes_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("gantry-3kx9w0fz-slowly");
        fs::create_dir(&path).unwrap();
        let dir = fs::File::open(&path).unwrap();
        let here = Owner::this_process().unwrap();
        let verdict = lease::judge(&dir, &here, in_two_minutes(), false).unwrap();
        assert!(matches!(verdict, Verdict::Dead(_)));
        assert!(lease::take(&dir, &here).unwrap().is_none());
        assert!(path.join(NEW_LEASE).exists());
    }

    #[test]
    fn what_is_not_an_agents_directory_of_ours_is_left_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let here = Owner::this_process().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let target = dead(elsewhere.path(), "target", &here.boot, &here.host);
        symlink(&target, scratch.path().join("gantry-3kx9w0fz-abcdef")).unwrap();
        fs::write(scratch.path().join("gantry-3kx9w0fz-ghijkl"), "a file").unwrap();
        for name in
            ["gantry-mine", "gantry-3kx9w0fz", "my-gantry-3kx9w0fz-abcdef", "gantry-3kx9w0fz-abcdef.old"]
        {
            fs::create_dir(scratch.path().join(name)).unwrap();
            fs::write(scratch.path().join(name).join(LEASE_FILE), "").unwrap();
        }
        if nix::unistd::geteuid().is_root() {
            let foreign = dead(scratch.path(), "foreig", &here.boot, &here.host);
            std::os::unix::fs::chown(&foreign, Some(65534), Some(65534)).unwrap();
        }
        let count = fs::read_dir(scratch.path()).unwrap().count();
        assert_eq!(swept(scratch.path(), in_two_minutes()), [""; 0]);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), count);
        assert!(target.join("s1/bin/tool").exists());
    }

    #[test]
    fn a_lease_that_is_a_link_or_a_pipe_is_reported_and_nothing_is_touched() {
        let scratch = tempfile::tempdir().unwrap();
        let target = scratch.path().join("precious");
        fs::write(&target, "x").unwrap();
        let linked = scratch.path().join("gantry-3kx9w0fz-linked");
        fs::create_dir(&linked).unwrap();
        symlink(&target, linked.join(LEASE_FILE)).unwrap();
        let piped = scratch.path().join("gantry-3kx9w0fz-aapipe");
        fs::create_dir(&piped).unwrap();
        nix::unistd::mkfifo(&piped.join(LEASE_FILE), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let swept = sweep_at(&StageBase::at(scratch.path()), in_two_minutes());
        assert_eq!(swept.iter().filter(|swept| swept.outcome.is_err()).count(), 2);
        assert!(linked.exists() && piped.exists() && target.exists());
    }

    #[test]
    fn a_base_that_cannot_be_read_is_said() {
        let swept = sweep(&StageBase::at(Path::new("/nowhere")));
        assert!(swept[0].outcome.as_ref().unwrap_err().message().contains("/nowhere"));
    }
}
