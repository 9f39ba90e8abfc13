//! What becomes of a launch, or an attachment, when some of its hosts cannot be reached.

use std::fmt;
use std::str::FromStr;

use gantry_types::error::Failure;
use tokio::sync::mpsc::UnboundedSender;

use crate::Error;

/// How many of the hosts must be reached. All that are reached in time are used under every policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HostsPolicy {
    /// All.
    #[default]
    All,
    /// So many.
    Quorum(u32),
    /// So many of a hundred, 1 to 100.
    Percent(u8),
    /// One, so that there is something to go on with.
    BestEffort,
}

impl HostsPolicy {
    /// Whether it goes on, with so many hosts of which so many are missing.
    #[must_use]
    pub fn allows(self, of: usize, missing: usize) -> bool {
        let there = of.saturating_sub(missing);
        let enough = match self {
            Self::All => missing == 0,
            Self::Quorum(wanted) => there >= wanted as usize,
            Self::Percent(percent) => there * 100 >= of * usize::from(percent),
            Self::BestEffort => true,
        };
        enough && (there > 0 || missing == 0)
    }
}

impl FromStr for HostsPolicy {
    type Err = Error;

    /// Reads `all`, `quorum=N`, `quorum=P%`, or `best-effort`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            let what = format!("'{text}' is not a policy for unreachable hosts");
            Error::invalid_with(what, "write all, quorum=N, quorum=P%, or best-effort")
        };
        let Some(number) = text.strip_prefix("quorum=") else {
            return match text {
                "all" => Ok(Self::All),
                "best-effort" => Ok(Self::BestEffort),
                _ => Err(wrong()),
            };
        };
        match number.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.parse().ok().filter(|percent| (1..=100).contains(percent));
                percent.map(Self::Percent).ok_or_else(wrong)
            }
            None => {
                let number = number.parse().ok().filter(|number| *number > 0);
                number.map(Self::Quorum).ok_or_else(wrong)
            }
        }
    }
}

impl fmt::Display for HostsPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Quorum(number) => write!(f, "quorum={number}"),
            Self::Percent(percent) => write!(f, "quorum={percent}%"),
            Self::BestEffort => f.write_str("best-effort"),
        }
    }
}

/// Is told of hosts without which it goes on. That nobody listens is fine.
#[derive(Debug, Clone, Default)]
pub struct LeftOut(Option<UnboundedSender<(String, Failure)>>);

impl LeftOut {
    /// Each host, with the reason, is sent there.
    #[must_use]
    pub fn new(to: UnboundedSender<(String, Failure)>) -> Self {
        Self(Some(to))
    }

    /// There is no agent on `host`, and will be none.
    pub fn tell(&self, host: String, why: Failure) {
        if let Some(to) = &self.0 {
            // Nobody listens any more: then nobody goes on.
            drop(to.send((host, why)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_says_how_many_may_be_missing() {
        let most = |policy: &str| {
            let policy: HostsPolicy = policy.parse().unwrap();
            (0..=4).filter(|missing| policy.allows(4, *missing)).max()
        };
        assert_eq!(most("all"), Some(0));
        assert_eq!(most("quorum=3"), Some(1));
        assert_eq!(most("quorum=5"), None);
        assert_eq!(most("quorum=51%"), Some(1));
        assert_eq!(most("quorum=50%"), Some(2));
        assert_eq!(most("best-effort"), Some(3));
    }

    #[test]
    fn policies_are_written_as_they_are_read() {
        for text in ["all", "quorum=3", "quorum=75%", "best-effort"] {
            assert_eq!(text.parse::<HostsPolicy>().unwrap().to_string(), text);
        }
        for wrong in ["", "some", "quorum", "quorum=0", "quorum=x", "quorum=0%", "quorum=101%", "best effort"]
        {
            assert!(wrong.parse::<HostsPolicy>().is_err(), "{wrong}");
        }
    }
}
