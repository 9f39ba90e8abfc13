//! Signals that this process ignores because its parent did. `nohup` hands SIGHUP over so, and a shell SIGINT to what a
//! script starts with `&`.
//!
//! A handler would end that: whoever handles a signal here asks first.

use std::fs;

/// Whether this process ignores a signal. Where that cannot be found out, it does not. Source: proc_pid_status(5).
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| has(&status, signal))
}

fn has(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let bit = u32::try_from(signal - 1).ok().and_then(|bit| 1_u64.checked_shl(bit)).unwrap_or(0);
    mask & bit != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_is_the_lowest_bit() {
        let status = "SigBlk:\t0000000000000002\nSigIgn:\t8000000000001001\nSigCgt:\t0000000000000004\n";
        let ignored: Vec<_> = (-1..70).filter(|signal| has(status, *signal)).collect();
        assert_eq!(ignored, [1, 13, 64]);
        assert!(!has("", 1) && !has("SigIgn:\tno", 1));
        // Programs in Rust ignore SIGPIPE.
        assert!(is_ignored(13));
    }
}
