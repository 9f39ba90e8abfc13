//! Results of a bench, as lines that `cargo xtask docs --measured FILE` takes into the page of measurements.

use std::fmt;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// A row: gantry next to a plain way to do the same, in one run. It is printed as a line of JSON.
#[derive(Debug, Clone, Copy)]
pub struct Measurement<'a> {
    /// The bench's name.
    pub bench: &'a str,
    /// A name of the row that stays. A later measurement of that bench and row takes its place.
    pub row: &'a str,
    /// The measured operation, for readers.
    pub what: &'a str,
    /// The median for gantry.
    pub gantry: f64,
    /// The median for the plain way.
    pub plain: f64,
    /// `ms` or `s`; `/s` and `MB/s` where more is better.
    pub unit: &'a str,
    /// The plain way, for readers.
    pub way: &'a str,
}

/// The same with where and when.
#[derive(Serialize)]
struct Line<'a> {
    bench: &'a str,
    row: &'a str,
    what: &'a str,
    gantry: f64,
    plain: f64,
    unit: &'a str,
    way: &'a str,
    command: String,
    machine: String,
    date: String,
}

impl fmt::Display for Measurement<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bench, row, what, gantry, plain, unit, way } = *self;
        let line = Line {
            bench,
            row,
            what,
            gantry: rounded(gantry),
            plain: rounded(plain),
            unit,
            way,
            command: format!("cargo bench -p gantry-tests --bench {bench}"),
            machine: machine(),
            date: date_of(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())),
        };
        out.write_str(&serde_json::to_string(&line).map_err(|_| fmt::Error)?)
    }
}

/// To four digits: no median is more exact.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Processors and kernel of this machine.
#[must_use]
pub fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let model = model.trim_start_matches(['\t', ' ', ':']);
    format!("{count} x {model}, Linux {}", read("/proc/sys/kernel/osrelease").trim())
}

/// The day of so many seconds since 1970, in UTC: `2026-11-22`.
fn date_of(seconds: u64) -> String {
    let mut days = seconds / 86_400;
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_that_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_735_689_599, "2024-12-31"),
            (1_735_689_600, "2025-01-01"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(date_of(seconds), date);
        }
    }

    #[test]
    fn a_measurement_is_one_line_of_json() {
        let line = Measurement {
            bench: "launch",
            row: "1",
            what: "a \"launch\"",
            gantry: 4.612_345,
            plain: 0.7,
            unit: "ms",
            way: "fork",
        }
        .to_string();
        let read: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!((read["gantry"].as_f64(), read["what"].as_str()), (Some(4.612), Some("a \"launch\"")));
        assert_eq!(read["command"], "cargo bench -p gantry-tests --bench launch");
        assert!(!line.contains('\n') && read["date"].as_str().is_some_and(|date| date.len() == 10));
    }
}
