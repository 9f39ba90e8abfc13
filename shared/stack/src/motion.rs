//! Whether a rank has moved since it was asked about before.
//!
//! Each rank has one of few texts, so the ranks of all nodes that are alike have one text together.

use std::fmt;

/// What has changed of a rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Motion {
    /// How many frames of its first thread, the outermost first, have stood in all samples as before: at the same instruction, with the same variables. None:
    /// its stack cannot be read.
    pub steady: Option<u32>,
    /// Variables of its script have changed, or could not be read.
    pub has_other_variables: bool,
    /// Its first thread has used a processor.
    pub is_busy: bool,
    /// Its other threads have, for more than polling.
    pub is_busy_elsewhere: bool,
    /// It has read or written something.
    pub has_read_or_written: bool,
}

impl Motion {
    /// Of a rank of which nothing was known before: it may have done everything.
    pub const UNKNOWN: Self = Self {
        steady: Some(0),
        has_other_variables: true,
        is_busy: true,
        is_busy_elsewhere: true,
        has_read_or_written: true,
    };

    /// Reads such a text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (steady, flags) = text.split_once(' ')?;
        let steady = if steady == "-" { None } else { Some(steady.parse().ok()?) };
        let is = |flag| flags.contains(flag);
        Some(Self {
            steady,
            has_other_variables: is('v'),
            is_busy: is('c'),
            is_busy_elsewhere: is('t'),
            has_read_or_written: is('i'),
        })
    }
}

impl fmt::Display for Motion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.steady {
            Some(steady) => write!(f, "{steady} ")?,
            None => f.write_str("- ")?,
        }
        let flags = [
            (self.has_other_variables, "v"),
            (self.is_busy, "c"),
            (self.is_busy_elsewhere, "t"),
            (self.has_read_or_written, "i"),
        ];
        flags.iter().filter(|(is, _)| *is).try_for_each(|(_, flag)| f.write_str(flag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn motions_read_back() {
        for motion in [
            Motion::UNKNOWN,
            Motion::default(),
            Motion { steady: Some(7), is_busy: true, ..Motion::default() },
            Motion { steady: Some(12), is_busy_elsewhere: true, ..Motion::default() },
            Motion { has_other_variables: true, ..Motion::default() },
            Motion { has_read_or_written: true, ..Motion::default() },
        ] {
            assert_eq!(Motion::parse(&motion.to_string()), Some(motion), "{motion}");
        }
        for bad in ["", "7", "x c", "-1 c"] {
            assert_eq!(Motion::parse(bad), None, "{bad:?}");
        }
    }
}
