//! Ends of callers' timeouts.

use std::time::Duration;

/// Practically no timeout: a hundred years.
pub const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A caller's timeout, cut so that it can be added to the present. `Instant::now() + Duration::MAX` would panic.
#[must_use]
pub fn bounded(timeout: Duration) -> Duration {
    timeout.min(LONGEST)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_longest_timeout_has_an_end() {
        assert!(Instant::now() + bounded(Duration::MAX) > Instant::now());
        assert_eq!(bounded(Duration::from_secs(7)), Duration::from_secs(7));
    }
}
