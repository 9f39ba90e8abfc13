//! Resource use of processes and their machine, from the kernel.

use std::fs;

use gantry_stack::load::{Doing, HostLoad};

/// The unit of processor time in the kernel's files. Source: `proc_pid_stat(5)`, `time(7)`: the same on all machines.
pub(crate) const TICKS_PER_SECOND: u64 = 100;

/// The fields after the name. Source: `proc_pid_stat(5)`, whose first one here is the third.
const STATE: usize = 0;
const USER_TIME: usize = 11;
const SYSTEM_TIME: usize = 12;
const THREADS: usize = 17;
const RESIDENT_PAGES: usize = 21;

/// The resource use of a process or thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) doing: Doing,
    /// Processor time.
    pub(crate) ticks: u64,
    pub(crate) threads: u64,
    pub(crate) memory_kib: u64,
}

impl Usage {
    /// Of a process with all its threads. None: the process does not exist.
    pub(crate) fn of_process(pid: i32) -> Option<Self> {
        Self::parse(&read(&format!("/proc/{pid}/stat"))?)
    }

    /// Of the first thread only.
    pub(crate) fn of_first_thread(pid: i32) -> Option<Self> {
        Self::parse(&read(&format!("/proc/{pid}/task/{pid}/stat"))?)
    }

    /// Of each thread beside the first one, by its number.
    pub(crate) fn of_other_threads(pid: i32) -> impl Iterator<Item = (i32, Self)> {
        let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let threads = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        threads.filter(move |thread| *thread != pid).filter_map(move |thread: i32| {
            Some((thread, Self::parse(&read(&format!("/proc/{pid}/task/{thread}/stat"))?)?))
        })
    }

    fn parse(stat: &str) -> Option<Self> {
        // A name may contain anything, even parentheses.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        let page_kib =
            u64::try_from(nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok()??).ok()? / 1024;
        Some(Self {
            doing: Doing::of_kernel(fields.get(STATE)?.chars().next()?),
            ticks: number(USER_TIME)?.saturating_add(number(SYSTEM_TIME)?),
            threads: number(THREADS)?,
            memory_kib: number(RESIDENT_PAGES)?.saturating_mul(page_kib),
        })
    }
}

/// How many bytes a process has read and written. None: no permission to know. Source: `proc_pid_io(5)`.
pub(crate) fn bytes_moved(pid: i32) -> Option<u64> {
    let text = read(&format!("/proc/{pid}/io"))?;
    let field =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    Some(field("rchar:")?.saturating_add(field("wchar:")?))
}

/// The load of the machine.
pub(crate) fn of_host() -> HostLoad {
    let file = |path| read(path).unwrap_or_default();
    parse_host(&file("/proc/stat"), &file("/proc/loadavg"), &file("/proc/meminfo"))
}

/// Source: `proc_stat(5)`, `proc_loadavg(5)`, `proc_meminfo(5)`.
fn parse_host(stat: &str, average: &str, memory: &str) -> HostLoad {
    let is_processor = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
    };
    let hundredths = average.split_ascii_whitespace().next().map(|figure| figure.replace('.', ""));
    let kib = |name: &str| {
        let line = memory.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok()).unwrap_or_default()
    };
    HostLoad {
        processors: stat.lines().filter(is_processor).count() as u64,
        load_percent: hundredths.and_then(|figure| figure.parse().ok()).unwrap_or_default(),
        memory_kib: kib("MemTotal:"),
        available_kib: kib("MemAvailable:"),
    }
}

/// Reads a file of the kernel. Names in it may be invalid UTF-8.
fn read(path: &str) -> Option<String> {
    fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_everything_in_it_is_no_field() {
        let stat = "7 (a) R 1 ) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 3 0 99 1000 25 18446744073709551615 1 1";
        let usage = Usage::parse(stat).unwrap();
        assert_eq!((usage.doing, usage.ticks, usage.threads), (Doing::Sleeping, 300, 3));
        assert_eq!(usage.memory_kib % 25, 0);
        assert!(usage.memory_kib >= 100);
        assert_eq!(Usage::parse("7 (a) R 1"), None);
    }

    #[test]
    fn this_process_uses_something() {
        let own = i32::try_from(std::process::id()).unwrap();
        let all = Usage::of_process(own).unwrap();
        assert!(all.memory_kib > 100 && all.threads >= 1, "{all:?}");
        assert!(Usage::of_first_thread(own).unwrap().ticks <= all.ticks);
        let before = bytes_moved(own).unwrap();
        assert!(bytes_moved(own).unwrap() > before);
        assert_eq!(Usage::of_process(i32::MAX), None);
    }

    #[test]
    fn the_machine_has_processors_and_memory() {
        let host = parse_host(
            "cpu  1 2\ncpu0 1 2\ncpu1 1 2\nintr 7\n",
            "1.05 0.9 0.8 1/100 7\n",
            "MemTotal:  2048 kB\nMemFree: 9 kB\nMemAvailable:  1024 kB\n",
        );
        let expected = HostLoad { processors: 2, load_percent: 105, memory_kib: 2048, available_kib: 1024 };
        assert_eq!(host, expected);
        assert!(of_host().processors >= 1 && of_host().memory_kib > 0);
    }
}
