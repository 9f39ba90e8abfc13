//! One bed for all tests of a file: making one takes seconds, so tests take turns on it.
//!
//! A static is never dropped, and a test process may be killed: so nobody here ends the bed. Its hall's init does, which watches this
//! process and goes when it has gone.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Config, NEEDS, Result, Testbed, cgroup, files};
use crate::{binaries, tool};

static BED: Mutex<Option<Testbed>> = Mutex::new(None);

/// A turn on the bed: while it lasts no other test of this process has it.
#[derive(Debug)]
pub struct Shared(MutexGuard<'static, Option<Testbed>>);

/// Why a bed cannot be made here, as the reason of a skip: `require!(testbed::usable(&config));`.
///
/// # Errors
/// Without root, without the packages, without the cgroups that the configuration needs.
pub fn usable(config: &Config) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Err("the testbed needs root".to_owned());
    }
    // Of Slurm's own nothing is needed where PBS manages the nodes.
    let not_needed =
        |package: &str| config.slurm_nodes().is_empty() && matches!(package, "slurm-wlm" | "munge");
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

/// How much longer a test may take whose bed waits for what only one bed of this machine can have.
#[must_use]
pub fn turn_of(config: &Config) -> Duration {
    if files::needs_cgroup(config) { cgroup::TURN } else { Duration::ZERO }
}

/// Waits for a turn on this process' bed. One that the test before has broken, or of another configuration, is made anew.
///
/// # Panics
/// When it cannot be made, with the last lines of its logs.
#[must_use]
#[track_caller]
pub fn shared(config: &Config) -> Shared {
    let config = &config.clone().with_slurm_of_the_environment();
    // A test that failed during its turn is no reason to fail this one: the bed is looked at anyhow.
    let mut turn = BED.lock().unwrap_or_else(PoisonError::into_inner);
    let good = turn
        .as_ref()
        .is_some_and(|bed| bed.config() == config && bed.leftovers().is_empty() && bed.is_whole());
    if !good {
        // Before the next is made: there is one freezer, and memory is finite.
        drop(turn.take());
        let program = binaries().dir.join("testbed");
        match Testbed::up(config, &program) {
            Ok(bed) => *turn = Some(bed),
            Err(why) => panic!("the testbed does not come up: {why}"),
        }
    }
    Shared(turn)
}

impl Deref for Shared {
    type Target = Testbed;

    fn deref(&self) -> &Testbed {
        match &*self.0 {
            Some(bed) => bed,
            None => unreachable!("a turn is only given with a bed"),
        }
    }
}

impl DerefMut for Shared {
    fn deref_mut(&mut self) -> &mut Testbed {
        match &mut *self.0 {
            Some(bed) => bed,
            None => unreachable!("a turn is only given with a bed"),
        }
    }
}
