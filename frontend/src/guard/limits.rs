//! Open files: a guard that starts many agents needs more than the soft limit that most users have. What it starts gets the limit that it was given.

use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// The limit that this process began with, once it has raised it.
static GIVEN: OnceLock<Option<(rlim_t, rlim_t)>> = OnceLock::new();

/// Raises the soft limit to the hard one. Where that is refused, fewer agents can be started.
pub(super) fn raise() {
    GIVEN.get_or_init(|| {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).ok().map(|()| (soft, hard))
    });
}

/// Soft and hard limit for what is started, where it is not what this process has: programs that use `select` must not inherit more than 1024.
pub(super) fn given() -> Option<(rlim_t, rlim_t)> {
    GIVEN.get().copied().flatten()
}
