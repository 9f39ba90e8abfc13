//! A progress bar for files on their way to nodes.

use gantry_frontend::event::{Staging, StagingEnd};

/// The most characters of the bar. A shorter one would show nothing.
const MOST: usize = 30;
const LEAST: usize = 5;

/// Such as `sending 61 files to 4 nodes [##########....................]  33% of 120.5 MiB`. None if nothing is sent.
/// The transfers of several sessions are added up.
pub(super) fn build_bar(staging: &[Staging], columns: usize) -> Option<String> {
    let sum = |number: fn(&Staging) -> u64| staging.iter().map(number).fold(0, u64::saturating_add);
    let nodes = staging.iter().map(|it| it.nodes).max()?;
    let (bytes, total) = (sum(|it| it.bytes), sum(|it| it.total_bytes));
    let begin = format!("sending {} to {}", count(sum(|it| it.files), "file"), count(nodes, "node"));
    let end = format!("{:>3}% of {}", share(bytes, total, 100), size(total));
    // Two blanks and two brackets.
    let length = columns.saturating_sub(begin.len() + end.len() + 4).min(MOST);
    if length < LEAST {
        return Some(format!("{begin} {end}"));
    }
    let full = usize::try_from(share(bytes, total, length as u64)).unwrap_or(0);
    Some(format!("{begin} [{}{}] {end}", "#".repeat(full), ".".repeat(length - full)))
}

/// Such as `sent 61 files (120.5 MiB) to 4 nodes`.
pub(crate) fn describe_end(end: &StagingEnd) -> String {
    let (files, nodes) = (count(end.files_sent, "file"), count(end.nodes, "node"));
    format!("sent {files} ({}) to {nodes}", size(end.bytes_sent))
}

fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// The share `bytes / total` of `whole`, rounded down, so only a complete transfer shows as full.
fn share(bytes: u64, total: u64, whole: u64) -> u64 {
    let share = u128::from(bytes.min(total)) * u128::from(whole) / u128::from(total.max(1));
    u64::try_from(share).unwrap_or(whole)
}

fn size(bytes: u64) -> String {
    let mut unit = 0;
    // Tenths, without floating point.
    let mut tenths = u128::from(bytes) * 10;
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    while tenths >= 10240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        unit => format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit]),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// Half of three files for two nodes.
    pub(in super::super) fn half() -> Staging {
        staging(512, 1024, 3, 2)
    }

    fn staging(bytes: u64, total_bytes: u64, files: u64, nodes: u64) -> Staging {
        let told = json!({
            "app": "abcdefgh", "session": 1, "bytes": bytes, "total_bytes": total_bytes, "files": files, "nodes": nodes
        });
        serde_json::from_value(told).unwrap()
    }

    #[test]
    fn the_bar_is_as_long_as_there_is_room() {
        let check = |staging: &[Staging], columns, expected: Option<&str>| {
            assert_eq!(build_bar(staging, columns).as_deref(), expected);
        };
        check(&[], 80, None);
        check(
            &[half()],
            80,
            Some("sending 3 files to 2 nodes [###############...............]  50% of 1.0 KiB"),
        );
        check(&[half()], 53, Some("sending 3 files to 2 nodes [####....]  50% of 1.0 KiB"));
        check(&[half()], 30, Some("sending 3 files to 2 nodes  50% of 1.0 KiB"));
        let one = staging(0, 0, 1, 1);
        check(&[one], 50, Some("sending 1 file to 1 node [...........]   0% of 0 B"));
        let full = staging(2048, 2048, 4, 1);
        check(std::slice::from_ref(&full), 50, Some("sending 4 files to 1 node [######] 100% of 2.0 KiB"));
        check(&[full, half()], 50, Some("sending 7 files to 2 nodes [####.]  83% of 3.0 KiB"));
    }

    #[test]
    fn only_a_complete_transfer_is_shown_as_full() {
        let check = |bytes, expected| assert_eq!(share(bytes, 1000, 100), expected);
        check(999, 99);
        check(1000, 100);
        check(5000, 100);
        assert_eq!(share(u64::MAX - 1, u64::MAX, 100), 99);
    }

    #[test]
    fn sizes() {
        let check = |bytes, expected: &str| assert_eq!(size(bytes), expected);
        check(0, "0 B");
        check(1023, "1023 B");
        check(1024, "1.0 KiB");
        check(1_048_575, "1023.9 KiB");
        check(126_353_408, "120.5 MiB");
        check(u64::MAX, "16777215.9 TiB");
    }
}
