//! A real process is read, and continues unchanged.

use std::process::{Command, Stdio};
use std::time::Duration;

use gantry_stack::frame::{Frame, Mark};
use gantry_stack::symbols::{Symbols, identify_file};
use gantry_stackd::reader::Reader;

fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn a_sleeping_process_is_read_again_and_again_and_sleeps_on() {
    #[expect(clippy::disallowed_methods, reason = "a test needs a process of its own")]
    let mut child = Command::new("sleep").arg("300").stdin(Stdio::null()).spawn().expect("sleep");
    let pid = i32::try_from(child.id()).expect("a pid");
    let mut reader = Reader::new().expect("a reader");
    let mut names = Vec::new();
    for _ in 0..1000 {
        let stacks = reader.read(&[pid, i32::MAX - 1], true);
        // A process that does not exist is reported as ended.
        assert_eq!(stacks[1], [vec![Frame::Mark(Mark::Ended)]]);
        names.clear();
        for frame in stacks[0].iter().flatten() {
            let Frame::Code { module, address } = frame else { continue };
            let file = reader.modules().find(|it| it.id == *module).expect("its file");
            let path = Reader::file_of(pid, file);
            if identify_file(&path).is_ok_and(|id| id == *module) && names.len() < 20 {
                names.push((path, *address));
            }
        }
        // The process may not have reached the function yet.
        if names.len() > 2 {
            break;
        }
    }
    assert!(names.len() > 2, "{names:?}");
    for _ in 0..200 {
        reader.read(&[pid], false);
    }
    let functions = names.iter().filter_map(|(path, address)| {
        let symbols = Symbols::open(path, &identify_file(path).ok()?).ok()?;
        symbols.find(*address).pop()?.call.function
    });
    assert!(functions.count() > 0, "no function has a name");
    assert!(matches!(state(pid), Some('S' | 'R')), "{:?}", state(pid));
    assert!(reader.longest_stop() < Duration::from_secs(1), "{:?}", reader.longest_stop());
    eprintln!("longest stop: {:?}", reader.longest_stop());
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}
