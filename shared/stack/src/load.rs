//! What ranks and their nodes use: processors and memory.
//!
//! Figures travel rounded, so ranks that are alike have one text together, and an answer grows with the number of different figures.

use std::fmt;

/// How many digits of a figure travel, where there are so many ranks.
#[must_use]
pub fn digits_for(ranks: usize) -> u32 {
    // One digit leaves fewer different texts than a part of a reduction may have.
    if ranks <= 200_000 { 2 } else { 1 }
}

/// What a process does, by the kernel's letter. Source: `proc_pid_stat(5)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doing {
    /// It has a processor, or waits for one.
    Running,
    /// It waits for an event.
    Sleeping,
    /// It waits in the kernel uninterruptibly, mostly for a file.
    Waiting,
    /// A signal has stopped it, or a debugger has.
    Stopped,
    /// gantry holds it.
    Held,
    /// It has ended and its parent has not asked how.
    Zombie,
    /// It has ended.
    Ended,
    /// It cannot be looked at.
    Unknown,
}

/// All of them, and their letters on the way.
const LETTERS: [(Doing, char); 8] = [
    (Doing::Running, 'R'),
    (Doing::Sleeping, 'S'),
    (Doing::Waiting, 'D'),
    (Doing::Stopped, 'T'),
    (Doing::Held, 'H'),
    (Doing::Zombie, 'Z'),
    (Doing::Ended, 'E'),
    (Doing::Unknown, '?'),
];

impl Doing {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        LETTERS.iter().map(|(doing, _)| *doing)
    }

    /// By the kernel's letter.
    #[must_use]
    pub fn of_kernel(letter: char) -> Self {
        match letter {
            'R' => Self::Running,
            'S' | 'I' => Self::Sleeping,
            'D' => Self::Waiting,
            'T' | 't' => Self::Stopped,
            'Z' => Self::Zombie,
            'X' | 'x' => Self::Ended,
            _ => Self::Unknown,
        }
    }

    /// In a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Sleeping => "sleeping",
            Self::Waiting => "disk wait",
            Self::Stopped => "stopped",
            Self::Held => "held",
            Self::Zombie => "zombie",
            Self::Ended => "ended",
            Self::Unknown => "unknown",
        }
    }

    fn letter(self) -> char {
        LETTERS.iter().find(|(doing, _)| *doing == self).map_or('?', |(_, letter)| *letter)
    }

    fn of_letter(letter: char) -> Option<Self> {
        LETTERS.iter().find(|(_, known)| *known == letter).map(|(doing, _)| *doing)
    }
}

/// What a rank uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// What it does.
    pub doing: Doing,
    /// Hundredths of a processor since it was asked about before; none at the first time.
    pub cpu_percent: Option<u64>,
    /// Its resident memory.
    pub memory_kib: u64,
    /// How many threads it has.
    pub threads: u64,
}

impl Load {
    /// Of a rank that is not there.
    #[must_use]
    pub fn nothing(doing: Doing) -> Self {
        Self { doing, cpu_percent: None, memory_kib: 0, threads: 0 }
    }

    /// With that many digits of each figure.
    #[must_use]
    pub fn rounded(self, digits: u32) -> Self {
        Self {
            cpu_percent: self.cpu_percent.map(|figure| round(figure, digits)),
            memory_kib: round(self.memory_kib, digits),
            threads: round(self.threads, digits),
            ..self
        }
    }

    /// Reads such a text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut letters = words.next()?.chars();
        let doing = Doing::of_letter(letters.next()?).filter(|_| letters.as_str().is_empty())?;
        let cpu_percent = match words.next()? {
            "-" => None,
            figure => Some(figure.parse().ok()?),
        };
        let (memory_kib, threads) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        words.next().is_none().then_some(Self { doing, cpu_percent, memory_kib, threads })
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = self.cpu_percent.map_or_else(|| "-".to_owned(), |percent| percent.to_string());
        write!(f, "{} {cpu} {} {}", self.doing.letter(), self.memory_kib, self.threads)
    }
}

/// The machine that ranks are on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostLoad {
    /// How many processors it has.
    pub processors: u64,
    /// How many of its processes ran or wanted to within the last minute, in hundredths.
    pub load_percent: u64,
    /// Its memory.
    pub memory_kib: u64,
    /// As much of it as can be had.
    pub available_kib: u64,
}

impl HostLoad {
    /// Reads such a text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ').map(|word| word.parse().ok());
        let mut next = || words.next().flatten();
        let load =
            Self { processors: next()?, load_percent: next()?, memory_kib: next()?, available_kib: next()? };
        words.next().is_none().then_some(load)
    }
}

impl fmt::Display for HostLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processors, load_percent, memory_kib, available_kib } = self;
        write!(f, "{processors} {load_percent} {memory_kib} {available_kib}")
    }
}

/// A figure of which only that many digits, at least one, are not zero.
fn round(figure: u64, digits: u32) -> u64 {
    let kept = 10_u64.saturating_pow(digits.max(1));
    let mut step = 1_u64;
    while figure / step >= kept {
        step *= 10;
    }
    (figure.saturating_add(step / 2) / step) * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_their_first_digits() {
        let check = |figure, digits, expected| assert_eq!(round(figure, digits), expected, "{figure}");
        check(0, 2, 0);
        check(99, 2, 99);
        check(1249, 2, 1200);
        check(1250, 2, 1300);
        check(997, 2, 1000);
        check(997, 1, 1000);
        check(45, 0, 50);
        assert!(round(u64::MAX, 2) > u64::MAX / 2);
        assert_eq!((digits_for(10_000), digits_for(1_000_000)), (2, 1));
    }

    #[test]
    fn loads_read_back() {
        for doing in Doing::all() {
            let load = Load { doing, cpu_percent: Some(100), memory_kib: 1200, threads: 3 };
            assert_eq!(Load::parse(&load.to_string()), Some(load));
            assert_eq!(Load::parse(&Load::nothing(doing).to_string()), Some(Load::nothing(doing)));
        }
        let host = HostLoad { processors: 2, load_percent: 150, memory_kib: 100, available_kib: 50 };
        assert_eq!(HostLoad::parse(&host.to_string()), Some(host));
        for bad in ["", "R", "RR 1 2 3", "Q 1 2 3", "R -1 2 3", "R 1 2 3 4", "R 1 2"] {
            assert_eq!(Load::parse(bad), None, "{bad:?}");
            assert_eq!(HostLoad::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_kernels_letters_are_known() {
        for (letter, doing) in [
            ('R', Doing::Running),
            ('S', Doing::Sleeping),
            ('D', Doing::Waiting),
            ('t', Doing::Stopped),
            ('Z', Doing::Zombie),
            ('W', Doing::Unknown),
        ] {
            assert_eq!(Doing::of_kernel(letter), doing, "{letter}");
        }
    }
}
