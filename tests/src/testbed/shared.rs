//! One bed for all tests of a file. Making a bed takes seconds, so tests take turns on it, or share it.
//!
//! A static is never dropped, and a test process may be killed, so nothing here ends the bed. Its hall's init watches
//! this process, and ends the bed when this process has ended.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Config, NEEDS, Result, Testbed, cgroup, files, flux};
use crate::{binaries, tool};

static TURN: Mutex<Turn> = Mutex::new(Turn { bed: None, users: 0, alone: false });

static CHANGED: Condvar = Condvar::new();

/// The bed, and the tests that use it.
#[derive(Debug)]
struct Turn {
    /// None: there is no bed yet, or a test uses it exclusively.
    bed: Option<Arc<Testbed>>,
    users: usize,
    alone: bool,
}

impl Turn {
    fn lock() -> MutexGuard<'static, Self> {
        // A test that failed during its turn must not make another one fail. The bed is checked anyway.
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `ready`.
    fn wait(mut ready: impl FnMut(&Self) -> bool) -> MutexGuard<'static, Self> {
        let free = CHANGED.wait_while(Self::lock(), |turn| !ready(turn));
        free.unwrap_or_else(PoisonError::into_inner)
    }
}

/// A turn on the bed. Meanwhile no other test of this process has the bed, unless both have asked to share it.
#[derive(Debug)]
pub struct Shared(Option<Arc<Testbed>>);

/// Checks whether a bed can be made here; the error is the reason of a skip: `require!(testbed::usable(&config));`.
///
/// # Errors
/// Root, a package, or a cgroup that the configuration needs is missing.
pub fn usable(config: &Config) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Err("the testbed needs root".to_owned());
    }
    if std::path::Path::new(files::HOST_KEYS).exists() {
        return Err("this is a host of a testbed, and a testbed makes none inside it".to_owned());
    }
    // Without nodes of Slurm its packages are not needed. An instance of Flux for all users needs munge too.
    let has_slurm = !config.slurm_nodes().is_empty();
    let needs_munge = has_slurm || config.flux.as_deref().is_some_and(flux::is_for_all);
    let not_needed =
        |package: &str| (package == "slurm-wlm" && !has_slurm) || (package == "munge" && !needs_munge);
    for (command, package) in NEEDS.into_iter().filter(|(_, package)| !not_needed(package)) {
        if command != "sshd" {
            tool(command).map_err(|_| format!("{command} (Debian package {package}) is not installed"))?;
        } else if !std::path::Path::new("/usr/sbin/sshd").exists() {
            return Err(format!("sshd (Debian package {package}) is not installed"));
        }
    }
    match cgroup::unusable() {
        Some(why) if files::needs_cgroup(config) => Err(why),
        _ => Ok(()),
    }
}

/// The additional time for a test whose bed needs a resource that only one bed of this machine can have.
#[must_use]
pub fn turn_of(config: &Config) -> Duration {
    if files::needs_cgroup(config) { cgroup::TURN } else { Duration::ZERO }
}

/// Waits for a turn on this process's bed. A bed with another configuration, or one that the previous test has broken,
/// is replaced.
///
/// # Panics
/// It cannot be made; with the last lines of its logs.
#[must_use]
#[track_caller]
pub fn shared(config: &Config) -> Shared {
    let mut turn = Turn::wait(|turn| turn.users == 0);
    (turn.users, turn.alone) = (1, true);
    let last = turn.bed.take();
    drop(turn);
    make(config, Shared(last))
}

/// As [`shared`], but other tests that request a shared bed with this configuration use it at the same time. The first
/// of them gets it with idle nodes.
///
/// # Panics
/// As [`shared`].
#[must_use]
#[track_caller]
pub fn shared_with_others(config: &Config) -> Shared {
    let asked = config.clone().with_slurm_of_the_environment();
    let fits = |turn: &Turn| turn.bed.as_ref().is_some_and(|bed| *bed.config() == asked);
    let mut turn = Turn::wait(|turn| turn.users == 0 || (!turn.alone && fits(turn)));
    if turn.users > 0 {
        turn.users += 1;
        return Shared(turn.bed.clone());
    }
    (turn.users, turn.alone) = (1, true);
    let last = turn.bed.take();
    drop(turn);
    let made = make(config, Shared(last));
    made.wait_idle(2 * crate::SOON).expect("idle nodes");
    let mut turn = Turn::lock();
    turn.alone = false;
    turn.bed.clone_from(&made.0);
    CHANGED.notify_all();
    made
}

/// Makes a bed with this configuration, unless the turn has a usable one.
#[track_caller]
fn make(config: &Config, mut turn: Shared) -> Shared {
    let config = &config.clone().with_slurm_of_the_environment();
    let good = turn
        .0
        .as_ref()
        .is_some_and(|bed| bed.config() == config && bed.leftovers().is_empty() && bed.is_whole());
    if !good {
        // The old bed goes first: there is only one freezer, and memory is limited.
        drop(turn.0.take());
        let program = binaries().dir.join("testbed");
        match Testbed::up(config, &program) {
            Ok(bed) => turn.0 = Some(Arc::new(bed)),
            Err(why) => panic!("the testbed does not come up: {why}"),
        }
    }
    turn
}

impl Shared {
    /// Ends the turn, unless it is the last one on the bed. Then this test gets the bed exclusively.
    #[must_use]
    pub fn last(mut self) -> Option<Self> {
        let mut turn = Turn::lock();
        if turn.users == 1 {
            turn.alone = true;
            turn.bed = None;
            drop(turn);
            return Some(self);
        }
        // Both under one lock: if two tests leave at the same time, exactly one is the last.
        turn.users -= 1;
        drop(self.0.take());
        std::mem::forget(self);
        None
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut turn = Turn::lock();
        turn.users -= 1;
        if turn.alone {
            turn.alone = false;
            turn.bed = self.0.take();
        }
        CHANGED.notify_all();
    }
}

impl Deref for Shared {
    type Target = Testbed;

    fn deref(&self) -> &Testbed {
        match &self.0 {
            Some(bed) => bed,
            None => unreachable!("a turn is only given with a bed"),
        }
    }
}

impl DerefMut for Shared {
    fn deref_mut(&mut self) -> &mut Testbed {
        match self.0.as_mut().and_then(Arc::get_mut) {
            Some(bed) => bed,
            None => unreachable!("a bed that others use too is not changed"),
        }
    }
}
