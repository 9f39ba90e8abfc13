//! Stacks of processes, as `eu-stack` or `gdb` print them.

use std::io::{ErrorKind, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use gantry_frontend::types::filter::prefix_tree::{MAX_DEPTH, MAX_NAME_BYTES};

/// How long reading one stack may take. A process that hangs in the kernel cannot be stopped, and so not be read.
const PATIENCE: Duration = Duration::from_secs(20);

/// The most that is taken of what a reader prints.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// In place of a name: there are no symbols.
const NAMELESS: &str = "??";

/// The functions of a process's main thread, outermost first. What stands around `main` is left out. The process is stopped for
/// a moment; one that is stopped already stays so.
///
/// An error is a text for people: it becomes the only frame of its rank.
pub(crate) fn read_stack(pid: i32) -> Result<Vec<String>, String> {
    // Both are asked for whole stacks: what is of interest is the outer end.
    let frames = MAX_DEPTH.to_string();
    let backtrace = format!("backtrace {frames}");
    let pid = pid.to_string();
    let readers = [
        vec!["eu-stack", "-1", "-m", "-n", &frames, "-p", &pid],
        vec!["gdb", "-nx", "-batch", "-ex", &backtrace, "-p", &pid],
    ];
    for reader in &readers {
        if let Some(printed) = run(reader)? {
            let mut functions = parse_stack(&printed);
            functions.truncate(MAX_DEPTH);
            return if functions.is_empty() {
                Err(format!("{} shows no stack", reader[0]))
            } else {
                Ok(functions)
            };
        }
    }
    Err("neither eu-stack nor gdb is installed".to_owned())
}

/// What a program prints; `None` when it is not installed.
fn run(words: &[&str]) -> Result<Option<String>, String> {
    #[expect(clippy::disallowed_methods, reason = "a daemon is a program of its own and may start others")]
    let mut command = Command::new(words[0]);
    // Nothing is to be fetched from a network while a rank stands still.
    command.args(&words[1..]).env_remove("DEBUGINFOD_URLS");
    let mut child = match command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{}: {error}", words[0])),
    };
    let (send, printed) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = stdout.take(MOST_BYTES).read_to_end(&mut bytes);
            send.send(read.map(|_| bytes))
        });
    }
    let outcome = printed.recv_timeout(PATIENCE);
    // It has printed all, or is not waited for any longer; a reader that is killed lets its process go.
    child.kill().and_then(|()| child.wait()).map_err(|error| format!("{}: {error}", words[0]))?;
    match outcome {
        Ok(Ok(bytes)) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Ok(Err(error)) => Err(format!("{}: {error}", words[0])),
        Err(_) => Err(format!("{} says nothing for {} s", words[0], PATIENCE.as_secs())),
    }
}

/// The functions in what either reader prints, outermost first, from `main` on if it is there.
fn parse_stack(printed: &str) -> Vec<String> {
    let mut inner_first: Vec<String> = printed.lines().filter_map(parse_frame).collect();
    // How many functions without names follow each other in a library is nobody's question, and would part ranks.
    inner_first.dedup_by(|name, before| name == before && name.starts_with(NAMELESS));
    let from_main =
        inner_first.iter().rposition(|name| name == "main").map_or(inner_first.len(), |at| at + 1);
    inner_first.into_iter().take(from_main).rev().collect()
}

/// The function in one line. Without symbols an address tells nothing, as it differs from rank to rank: then the file that the code is in.
///
/// Lines of eu-stack: `#1  0x4242 work - /path/app`, `#1  0x4242 - /path/app`; of gdb: `#1  0x4242 in work (n=1) at a.c:3`,
/// `#0  work () at a.c:3`, `#2  0x4242 in ?? () from /path/lib.so`, `#3  <signal handler called>`.
fn parse_frame(line: &str) -> Option<String> {
    let (number, rest) = line.strip_prefix('#')?.split_once(' ')?;
    number.parse::<u32>().ok()?;
    let rest = rest.trim_start();
    let after_address = match rest.strip_prefix("0x") {
        Some(address) => address.split_once(' ').map_or("", |(_, rest)| rest),
        None => rest,
    };
    let (name, file) = if let Some((name, file)) = after_address.rsplit_once("- /") {
        (name, Some(file))
    } else {
        let name = after_address.strip_prefix("in ").unwrap_or(after_address);
        let file = name.rsplit_once(" from /").map(|(_, file)| file);
        (name.split_once(" (").map_or(name, |(name, _)| name), file)
    };
    // A version that the linker has put at a symbol says nothing about where a rank is.
    let name = name.trim().split('@').next().unwrap_or_default();
    if !matches!(name, "" | NAMELESS) {
        return Some(cut(name));
    }
    let file = file.and_then(|file| file.rsplit('/').next());
    Some(file.map_or_else(|| NAMELESS.to_owned(), |file| cut(&format!("{NAMELESS} in {file}"))))
}

/// The name, no longer than names in a tree may be.
fn cut(name: &str) -> String {
    let mut end = name.len().min(MAX_NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eu_stack_is_read() {
        let printed = "TID 4242:\n\
            #0  0x00007fed450cedd0 pause - /usr/lib/libc.so.6\n\
            #1  0x000055f6ec1831d8 ns::wait<int, 2>(char const*) - /tmp/a - b/app\n\
            #2  0x000055f6ec1831d9 - /usr/lib/libmpi.so.12\n\
            #3  0x000055f6ec1831e9 - /usr/lib/libmpi.so.12\n\
            #4  0x000055f6ec183255 main - /tmp/a - b/app\n\
            #5  0x000055f6ec183265 main - /tmp/a - b/app\n\
            #6  0x00007fed45022305 __libc_start_main@@GLIBC_2.34 - /usr/lib/libc.so.6\n";
        let expected = ["main", "main", "?? in libmpi.so.12", "ns::wait<int, 2>(char const*)", "pause"];
        assert_eq!(parse_stack(printed), expected);
    }

    #[test]
    fn gdb_is_read() {
        let printed = "[Thread debugging using libthread_db enabled]\n\
            0x00007fed450cedd0 in __libc_pause () at pause.c:29\n\
            #0  __libc_pause () at pause.c:29\n\
            #1  <signal handler called>\n\
            #2  0x0000556d22f1f4af in ?? () from /lib/libfoo.so.1\n\
            #3  0x0000556d22f1f4af in ?? ()\n\
            #4  0x000055f6ec1831d8 in wait_here (path=0x1 \"/a from /b\") at two.c:24\n\
            #5  0x000055f6ec183265 in main (argc=2, argv=0x7fff) at two.c:55\n\
            [Inferior 1 (process 31869) detached]\n";
        let expected =
            ["main", "wait_here", "??", "?? in libfoo.so.1", "<signal handler called>", "__libc_pause"];
        assert_eq!(parse_stack(printed), expected);
    }

    #[test]
    fn a_stack_without_main_is_shown_whole_and_no_text_is_none() {
        assert_eq!(parse_stack("#0  0x1 a - /x\n#1  0x2 _start - /x\n"), ["_start", "a"]);
        assert!(parse_stack("").is_empty());
        assert!(parse_stack("# 1\n#x y\n#\n").is_empty());
        assert_eq!(parse_frame("#0  0x1"), Some("??".to_owned()));
        assert_eq!(cut(&"é".repeat(MAX_NAME_BYTES)).len(), MAX_NAME_BYTES);
    }
}
