//! The system's errors: one table from the kernel's error to what the user can do, and what a service does about one.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use gantry_types::error::{Failure, Kind};

/// A failure that names the action and the system's error.
#[must_use]
pub(crate) fn from_io(doing: impl Display, error: &io::Error) -> Failure {
    use io::ErrorKind as E;
    let (kind, hint) = match error.kind() {
        E::NotFound => (Kind::NotFound, None),
        E::PermissionDenied | E::ReadOnlyFilesystem => (Kind::NoAccess, None),
        E::StorageFull | E::QuotaExceeded => {
            (Kind::System, Some("free some space there, or set GANTRY_STAGE_DIR to another directory"))
        }
        E::TimedOut => (Kind::TimedOut, None),
        E::InvalidInput | E::InvalidFilename | E::AlreadyExists | E::NotADirectory => (Kind::Invalid, None),
        _ => (Kind::Unsupported, None),
    };
    Failure::new(kind, format!("{doing}: {error}")).with_hint_of(hint)
}

/// How often this process could not accept a connection.
#[cfg(test)]
pub(crate) static PAUSES: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// The next connection. Tries again after every failure.
pub(crate) async fn accept<T, F: Future<Output = io::Result<T>>>(next: impl Fn() -> F) -> T {
    accept_telling(next, |_| {}).await
}

/// As [`accept`]. `tell` gets every failure.
pub(crate) async fn accept_telling<T, F: Future<Output = io::Result<T>>>(
    next: impl Fn() -> F,
    mut tell: impl FnMut(io::Error),
) -> T {
    loop {
        match next().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tell(error);
                pause_accepts().await;
            }
        }
    }
}

/// Waits after a failed accept. Nearly always a descriptor is missing, and anything on the machine may return one.
async fn pause_accepts() {
    const PAUSE: Duration = Duration::from_millis(100);
    #[cfg(test)]
    PAUSES.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    tokio::time::sleep(PAUSE).await;
}
