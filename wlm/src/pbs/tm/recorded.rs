//! Decodes and encodes every recording of the traffic between tools and moms. A case is a folder under
//! `tests/fixtures/pbs/VERSION/` with a file `exchanges`. Its lines: `#` and the purpose; `connect`; `>` (to the mom)
//! or `<` and the bytes of one side; `=` and the result of an independent decoder for each of their packets, ending
//! in `...` where that knows no more or a mom reads no further; `closed by ...` and `silence`.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use super::dis::{DisError, Reader};
use super::id::EventId;
use super::packet::{self, HEADER_BYTES, LARGEST_REPLY_BYTES};
use super::reply::{Answer, ReplyHead, decode_rest, encode};
use super::request::{Command, Head, PROTOCOL, VERSION, Verb};

/// The decoded packets of one connection, one per line; and how many were encoded again to the same bytes.
#[derive(Default)]
struct Session {
    verbs: HashMap<EventId, Verb>,
    requests: usize,
    replies: usize,
}

impl Session {
    fn line(&mut self, to_mom: bool, packet: &[u8]) -> String {
        let message = &packet[HEADER_BYTES..];
        let mut line = format!("type={} len={}", packet[6], message.len());
        let mut reader = Reader::new(message);
        let whole =
            if to_mom { self.request(&mut reader, &mut line) } else { self.reply(&mut reader, &mut line) };
        match whole.and_then(|again| reader.end().map(|()| again)) {
            Ok(Some(again)) => {
                assert_eq!(message, again, "written again: {line}");
                *(if to_mom { &mut self.requests } else { &mut self.replies }) += 1;
            }
            Ok(None) => {}
            Err(_) => line.push_str(" ..."),
        }
        line
    }

    /// The request's text. None: this client would not write such a request.
    fn request(&mut self, reader: &mut Reader<'_>, line: &mut String) -> Result<Option<Vec<u8>>, DisError> {
        let head = Head::decode(reader)?;
        self.verbs.insert(head.event, head.verb);
        write!(line, " protocol={} version={}", head.protocol, head.version).unwrap();
        write!(line, " job=\"{}\"", head.caller.job.escape_ascii()).unwrap();
        write!(line, " cookie=\"{}\"", head.caller.cookie.expose().escape_ascii()).unwrap();
        write!(line, " command={} event={} from={}", head.verb.number(), head.event.0, head.caller.task.0)
            .unwrap();
        let command = Command::decode(head.verb, reader)?;
        line.push_str(&words(&command));
        let ours = (head.protocol, head.version) == (PROTOCOL, VERSION);
        Ok(ours.then(|| command.encode(&head.caller, head.event).unwrap().to_vec()))
    }

    fn reply(&mut self, reader: &mut Reader<'_>, line: &mut String) -> Result<Option<Vec<u8>>, DisError> {
        let head = ReplyHead::decode(reader)?;
        let ReplyHead { protocol, version, code, event } = head;
        write!(line, " protocol={protocol} version={version} code={code} event={}", event.0).unwrap();
        let verb = self.verbs.get(&event).copied().ok_or(DisError::Short)?;
        let outcome = decode_rest(verb, head, reader)?;
        match &outcome {
            Err(code) => write!(line, " errno={}", code.0).unwrap(),
            Ok(Answer::Done) => {}
            Ok(Answer::Init(roots)) => {
                let nodes: Vec<String> = roots.nodes.iter().map(|node| node.0.to_string()).collect();
                write!(line, " nnodes={} nodes=[{}]", nodes.len(), nodes.join(",")).unwrap();
                write!(line, " parent_job=\"{}\"", roots.parent_job.escape_ascii()).unwrap();
                write!(line, " parent_node={} parent_task={}", roots.parent_node, roots.parent_task).unwrap();
            }
            Ok(Answer::Tasks(tasks)) => {
                let tasks: Vec<String> = tasks.iter().map(|task| task.0.to_string()).collect();
                write!(line, " tasks=[{}]", tasks.join(",")).unwrap();
            }
            Ok(Answer::Task(task)) => write!(line, " task={}", task.0).unwrap(),
            Ok(Answer::Status(status)) => write!(line, " exitstat={status}").unwrap(),
            Ok(Answer::Resources(text)) => write!(line, " resources=\"{}\"", text.escape_ascii()).unwrap(),
            Ok(Answer::Info(info)) => write!(line, " info=\"{}\"", info.escape_ascii()).unwrap(),
        }
        Ok(head.fits().then(|| encode(event, &outcome).unwrap()))
    }
}

fn words(command: &Command) -> String {
    let node = command.node().map_or_else(String::new, |node| format!(" node={}", node.0));
    let rest = match command {
        Command::Spawn { argv, variables, .. } => {
            let texts = |name: &str, list: &[Vec<u8>]| -> String {
                list.iter().map(|text| format!(" {name}=\"{}\"", text.escape_ascii())).collect()
            };
            format!(" argc={}{}{}", argv.len(), texts("argv", argv), texts("env", variables))
        }
        Command::Signal { task, signal, .. } => format!(" task={} signal={signal}", task.0),
        Command::Obit { task, .. } => format!(" task={}", task.0),
        Command::Subscribe { task, name, .. } => format!(" task={} name=\"{}\"", task.0, name.escape_ascii()),
        Command::Publish { name, info } => {
            format!(" name=\"{}\" info=\"{}\"", name.escape_ascii(), info.escape_ascii())
        }
        Command::Attach { uid, pid } => format!(" uid={uid} pid={pid}"),
        _ => String::new(),
    };
    node + &rest
}

/// Decodes all packets of one side's consecutive bytes to lines; and the remaining bytes.
fn take_lines(session: &mut Session, to_mom: bool, bytes: &mut Vec<u8>) -> Vec<String> {
    let mut lines = Vec::new();
    while let Ok(Some((_, length))) = packet::open(bytes, LARGEST_REPLY_BYTES) {
        let packet: Vec<u8> = bytes.drain(..length).collect();
        lines.push(session.line(to_mom, &packet));
    }
    lines
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.trim().chars().map(|digit| digit.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}

fn check(file: &Path, wrong: &mut String) -> (usize, usize) {
    let text = fs::read_to_string(file).unwrap();
    let mut session = Session::default();
    let mut counts = (0, 0);
    let mut title = "";
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        if let Some(expected) = line.strip_prefix("= ") {
            let found = if found.is_empty() { "nothing".to_owned() } else { found.remove(0) };
            let known = expected.strip_suffix(" ...");
            let same = known.map_or(found == expected, |known| found.starts_with(known));
            // The mom never read a packet that was written in two pieces.
            let cut = known.is_some() && found == "nothing";
            if !same && !cut {
                writeln!(wrong, "{}: {title}\n  found    {found}\n  expected {expected}", file.display())
                    .unwrap();
            }
            continue;
        }
        for unexpected in found.drain(..) {
            writeln!(wrong, "{}: {title}\n  unexpected {unexpected}", file.display()).unwrap();
        }
        match line.split_once(' ') {
            Some(("#", words)) => title = words,
            Some((">", hex)) => found = take_lines(&mut session, true, &mut bytes(hex)),
            Some(("<", hex)) => found = take_lines(&mut session, false, &mut bytes(hex)),
            _ if line == "connect" => {
                counts = (counts.0 + session.requests, counts.1 + session.replies);
                session = Session::default();
            }
            _ => {}
        }
    }
    (counts.0 + session.requests, counts.1 + session.replies)
}

#[test]
fn every_recording_is_read_and_written_the_same() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/pbs");
    let folders = |path: &Path| -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        found.sort();
        found
    };
    let cases: Vec<PathBuf> =
        folders(&root).iter().flat_map(|version| folders(version)).filter(|path| path.is_dir()).collect();
    let mut wrong = String::new();
    let mut all = (0, 0);
    for case in &cases {
        let counts = check(&case.join("exchanges"), &mut wrong);
        all = (all.0 + counts.0, all.1 + counts.1);
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(cases.len() >= 12 && all.0 > 150 && all.1 > 140, "{} recordings, {all:?}", cases.len());
}
