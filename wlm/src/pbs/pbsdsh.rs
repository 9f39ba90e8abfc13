//! The tasks that a `pbsdsh` of the job's script is still starting: it asks for them one after another.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::processes::Process;
use crate::host::Host;

/// The program's name.
pub(super) const PBSDSH: &str = "pbsdsh";

/// How long it may take to start its tasks. Those that are missing later have ended, or could not be started.
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// The kernel's ticks in a second: USER_HZ is 100 on every Linux that gantry runs on.
const TICKS: u64 = 100;

/// What to wait for, if the job's `pbsdsh` has been asked for more tasks than are `there`. `places` is the number of lines
/// of the job's node file.
pub(super) fn find_missing(
    all: &[Process],
    places: Option<usize>,
    there: usize,
    host: &dyn Host,
) -> Option<String> {
    let now = read_uptime(host)?;
    let is_new =
        |it: &&Process| it.name == PBSDSH && now.saturating_sub(it.started) < STARTS_WITHIN.as_secs() * TICKS;
    let count = |it: &Process| {
        let words = host.read(&PathBuf::from(format!("/proc/{}/cmdline", it.pid))).ok()?;
        let words: Vec<&OsStr> = words.split(|byte| *byte == 0).map(OsStr::from_bytes).collect();
        Some((it.pid, count_tasks(words.get(1..)?, places)?))
    };
    let asked: Vec<_> = all.iter().filter(is_new).filter_map(count).collect();
    let wanted: usize = asked.iter().map(|(_, tasks)| tasks).sum();
    let (pid, _) = asked.first().filter(|_| there < wanted)?;
    Some(format!("{there} of {wanted} tasks of {PBSDSH} ({pid}) are there"))
}

/// How many tasks it starts at once. None: one after the end of another, or by an option that is not known. Source:
/// pbsdsh(1B).
fn count_tasks(args: &[&OsStr], places: Option<usize>) -> Option<usize> {
    let mut args = args.iter().map(|arg| arg.as_bytes());
    let mut tasks = places;
    while let Some(arg) = args.next().filter(|arg| *arg != b"--") {
        let Some(options) = arg.strip_prefix(b"-").filter(|rest| !rest.is_empty()) else { break };
        for (at, option) in options.iter().enumerate() {
            match option {
                b'v' | b'o' => continue,
                b'c' | b'n' | b'h' => {}
                _ => return None,
            }
            // The rest of the word is the option's value, or the next word is.
            let value = Some(&options[at + 1..]).filter(|rest| !rest.is_empty()).or_else(|| args.next())?;
            let number = || std::str::from_utf8(value).ok()?.parse().ok();
            tasks = if *option == b'c' { Some(number()?) } else { Some(1) };
            break;
        }
    }
    tasks
}

/// The time since the start of the system, in ticks.
fn read_uptime(host: &dyn Host) -> Option<u64> {
    let text = String::from_utf8(host.read(Path::new("/proc/uptime")).ok()?).ok()?;
    let (seconds, hundredths) = text.split_whitespace().next()?.split_once('.')?;
    Some(seconds.parse::<u64>().ok()? * TICKS + hundredths.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::super::processes::find;
    use super::super::processes::tests::with;
    use super::*;
    use crate::host::fake::FakeHost;

    #[track_caller]
    fn check(args: &str, expected: Option<usize>) {
        let words: Vec<&OsStr> = args.split(' ').map(OsStr::new).collect();
        assert_eq!(count_tasks(&words, Some(4)), expected, "{args}");
    }

    #[test]
    fn the_arguments_say_how_many_tasks_there_will_be() {
        check("-- app -c 3", Some(4));
        check("app", Some(4));
        check("-v -o -- app", Some(4));
        check("-c 3 -- app", Some(3));
        check("-vc9 app", Some(9));
        check("-n 2 -- app", Some(1));
        check("-h n1 -- app", Some(1));
        check("-s -- app", None);
        check("-vs -c 3 -- app", None);
        check("-u app", None);
        check("-c many app", None);
        check("-c", None);
        assert_eq!(count_tasks(&[OsStr::new("app")], None), None);
    }

    #[test]
    fn tasks_are_waited_for_until_all_are_there_or_the_starter_is_old() {
        // It was started 12 s after the system.
        let host = with(FakeHost::default(), (12, 11, 10), PBSDSH, 1, "");
        let host = host.with_file("/proc/12/cmdline", "/opt/pbs/bin/pbsdsh\0-c\x003\0--\0app\0");
        let missing = |uptime: &str, there| {
            let host = host.clone().with_file("/proc/uptime", uptime);
            find_missing(&find(b"7.head", &host), Some(4), there, &host)
        };
        assert_eq!(missing("13.50 7.00\n", 2).unwrap(), "2 of 3 tasks of pbsdsh (12) are there");
        assert_eq!(missing("13.50 7.00\n", 3), None);
        assert!(missing("41.99 7.00\n", 0).is_some());
        assert_eq!(missing("42.00 7.00\n", 0), None);
    }
}
