//! Limits progress reports of staging: at the beginning, at the end, and between them no more often than is readable.
//! The caller provides the clock.

use std::time::Duration;

use tokio::time::Instant;

/// The shortest time between two reports.
const CALM: Duration = Duration::from_millis(100);

/// Decides which steps are reported.
#[derive(Debug)]
pub(crate) struct Throttle {
    total: u64,
    last: Option<(Instant, u64)>,
}

impl Throttle {
    /// For a transfer of `total` bytes.
    pub(crate) fn new(total: u64) -> Self {
        Self { total, last: None }
    }

    /// Whether to report that `bytes` were reached at `now`. The first and the last step are reported, each once.
    pub(crate) fn admit(&mut self, bytes: u64, now: Instant) -> bool {
        let wanted = match self.last {
            None => true,
            Some((_, told)) if told >= bytes => false,
            Some((when, _)) => bytes >= self.total || now.saturating_duration_since(when) >= CALM,
        };
        if wanted {
            self.last = Some((now, bytes));
        }
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_step_and_few_between_are_told() {
        let check = |steps: &[(u64, u64)], expected: &[u64]| {
            let begin = Instant::now();
            let mut throttle = Throttle::new(1000);
            let told = steps
                .iter()
                .filter(|(millis, bytes)| throttle.admit(*bytes, begin + Duration::from_millis(*millis)));
            assert_eq!(told.map(|(_, bytes)| *bytes).collect::<Vec<_>>(), expected, "{steps:?}");
        };
        check(&[(0, 0), (1, 1000)], &[0, 1000]);
        check(&[(0, 0), (50, 10), (99, 20), (100, 30), (150, 40), (201, 50)], &[0, 30, 50]);
        check(&[(0, 0), (500, 0), (900, 5), (901, 1000), (2000, 1000)], &[0, 5, 1000]);
        // A clock that stands still or goes back gives no more reports, and does no harm.
        check(&[(100, 0), (100, 1), (0, 2), (0, 1000)], &[0, 1000]);
    }

    #[test]
    fn a_second_has_ten_reports() {
        let begin = Instant::now();
        let mut throttle = Throttle::new(u64::MAX);
        let told = (0..1000).filter(|step| throttle.admit(*step, begin + Duration::from_millis(*step)));
        assert_eq!(told.count(), 10);
    }
}
