use std::fs;
use std::sync::mpsc;

use gantry_shared::storage::session_dir_name;

use super::*;

const DEADLINE: Duration = Duration::from_secs(60);

/// A stream's number and its result.
type Outcome = (u64, Result<(), Failure>);

/// A node with two sessions, and the result of each archive.
struct Fixture {
    _scratch: tempfile::TempDir,
    root: std::path::PathBuf,
    receives: Receives,
    settling: Arc<Mutex<()>>,
    outcomes: (Sender<Outcome>, Receiver<Outcome>),
    runtime: tokio::runtime::Runtime,
}

impl Fixture {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().to_owned();
        for session in [1, 2] {
            fs::create_dir_all(root.join(session_dir_name(SessionId(session))).join("bin")).unwrap();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Self {
            _scratch: scratch,
            root,
            receives: Receives::new(NodeId(0)),
            settling: Arc::default(),
            outcomes: mpsc::channel(),
            runtime,
        }
    }

    fn begin(&mut self, session: u32, stream: u64, compressed: bool) {
        let limits = Limits { bytes: 1 << 20, files: 10, copied_bytes: 0 };
        let session = SessionId(session);
        let dirs = gantry_shared::storage::session_dirs(&self.root, session);
        let outcomes = self.outcomes.0.clone();
        let done = move |outcome| outcomes.send((stream, outcome)).unwrap();
        let _in_runtime = self.runtime.enter();
        let settling = Arc::clone(&self.settling);
        self.receives.begin(Announced { session, stream, limits, compressed }, &dirs, settling, done);
    }

    fn send(&mut self, stream: u64, bytes: &[u8], last: bool) {
        self.receives.take(Piece::of(stream, bytes, last));
    }

    fn outcome(&self) -> Outcome {
        self.outcomes.1.recv_timeout(DEADLINE).unwrap()
    }

    /// The files of a session, below its directories.
    fn list(&self, session: u32) -> Vec<String> {
        let root = self.root.join(session_dir_name(SessionId(session)));
        let names = |dir: &std::path::Path| -> Vec<String> {
            let entries = fs::read_dir(dir).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        let mut all = names(&root);
        all.extend(names(&root.join("bin")).iter().map(|name| format!("bin/{name}")));
        all.retain(|name| name != "bin");
        all.sort();
        all
    }
}

fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        builder.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn archives_come_in_pieces_side_by_side() {
    let mut node = Fixture::new();
    let one = archive(&[("bin/one", &"1".repeat(5000))]);
    let two = zstd::encode_all(&archive(&[("bin/two", &"2".repeat(5000))])[..], 3).unwrap();
    let three = archive(&[("bin/three", "3")]);
    node.begin(1, 11, false);
    node.begin(1, 12, true);
    node.begin(2, 13, false);
    // The archive was never begun.
    node.send(99, b"x", true);
    for at in 0..one.len() {
        node.send(11, &one[at..=at], at + 1 == one.len());
        if let Some(byte) = two.get(at) {
            node.send(12, &[*byte], false);
        }
    }
    node.send(12, b"", true);
    let (middle, end) = three.split_at(700);
    node.send(13, middle, false);
    node.send(13, end, true);
    for _ in 0..3 {
        node.outcome().1.unwrap();
    }
    assert_eq!(
        (node.list(1), node.list(2)),
        (vec!["bin/one".to_owned(), "bin/two".to_owned()], vec!["bin/three".to_owned()])
    );
}

#[test]
fn a_failure_is_told_at_once_and_the_rest_comes_to_nothing() {
    let mut node = Fixture::new();
    node.begin(1, 11, false);
    let bad = archive(&[("bin/one", "1"), ("bin/one", "2")]);
    node.send(11, &bad, false);
    let (stream, outcome) = node.outcome();
    assert_eq!((stream, outcome.unwrap_err().kind()), (11, Kind::Invalid));
    for _ in 0..100 {
        node.send(11, &[7; 1000], false);
    }
    node.send(11, b"", true);
    assert_eq!(node.list(1), [""; 0]);
    // Another archive with the same number may follow.
    node.begin(1, 11, false);
    node.send(11, &archive(&[("bin/one", "1")]), true);
    assert_eq!(node.outcome(), (11, Ok(())));
}

#[test]
fn an_archive_that_is_given_up_leaves_nothing() {
    let mut node = Fixture::new();
    node.begin(1, 11, false);
    let bytes = archive(&[("bin/one", &"1".repeat(5000))]);
    node.send(11, &bytes[..3000], false);
    let why = Failure::new(Kind::Gone, "given up");
    let mut end = Piece::of(11, b"", false);
    end.aborted = Some(why.clone());
    node.receives.take(end);
    assert_eq!(node.outcome(), (11, Err(why)));
    let ended = node.receives.end(None, &Failure::new(Kind::Gone, "later"));
    Ended::wait_for(ended, Instant::now() + DEADLINE);
    assert_eq!(node.list(1), [""; 0]);
}

#[test]
fn a_session_that_closes_gets_nothing_more_and_others_do() {
    let mut node = Fixture::new();
    node.begin(1, 11, false);
    node.begin(2, 12, false);
    let bytes = archive(&[("bin/one", "1")]);
    // One that has all its pieces and only waits for its turn.
    let settling = Arc::clone(&node.settling);
    let lock = settling.lock().unwrap();
    node.begin(1, 13, false);
    node.send(13, &bytes, true);
    node.send(11, &bytes[..100], false);
    let waiting = node.root.join("s1/.incoming-3/bin/one");
    let deadline = Instant::now() + DEADLINE;
    while !waiting.exists() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let why = Failure::new(Kind::Gone, "closed");
    let ended = node.receives.end(Some(SessionId(1)), &why);
    assert_eq!(ended.len(), 2);
    drop(lock);
    Ended::wait_for(ended, Instant::now() + DEADLINE);
    let mut outcomes = [node.outcome(), node.outcome()];
    outcomes.sort_by_key(|(stream, _)| *stream);
    assert_eq!(outcomes, [(11, Err(why.clone())), (13, Err(why))]);
    assert_eq!(node.list(1), [""; 0]);
    node.send(12, &bytes, true);
    assert_eq!(node.outcome(), (12, Ok(())));
}

#[test]
fn damaged_and_boundless_compression_is_refused() {
    let mut node = Fixture::new();
    let good = zstd::encode_all(&archive(&[("bin/one", &"1".repeat(5000))])[..], 3).unwrap();
    // A megabyte is allowed; this is a thousand, of a few thousand bytes.
    let mut bomb = zstd::Encoder::new(Vec::new(), 3).unwrap();
    let zeros = archive(&[("bin/bomb", "")]);
    std::io::Write::write_all(&mut bomb, &zeros).unwrap();
    for _ in 0..1000 {
        std::io::Write::write_all(&mut bomb, &vec![0; 1 << 20]).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    assert!(bomb.len() < 100_000);
    let mut wide = zstd::Encoder::new(Vec::new(), 3).unwrap();
    wide.window_log(25).unwrap();
    std::io::Write::write_all(&mut wide, &vec![7; 1 << 20]).unwrap();
    let wide = wide.finish().unwrap();
    let cut = &good[..good.len() - 1];
    let trailing = [&good[..], b"x"].concat();
    let cases: [(&[u8], &str); 6] = [
        (b"this is no zstd frame", "cannot be decompressed"),
        (cut, "cannot be decompressed"),
        (b"", "cannot be decompressed"),
        (&trailing, "cannot be decompressed"),
        (&bomb, "more bytes than were announced"),
        (&wide, "cannot be decompressed"),
    ];
    for (at, (bytes, expected)) in (20..).zip(cases) {
        node.begin(1, at, true);
        node.send(at, bytes, true);
        let failure = node.outcome().1.unwrap_err();
        assert_eq!(failure.kind(), Kind::Protocol, "{failure}");
        assert!(failure.message().contains(expected), "{failure} has no {expected}");
        assert_eq!(node.list(1), [""; 0]);
    }
}

#[test]
fn when_nobody_sends_any_more_it_ends() {
    let mut node = Fixture::new();
    node.begin(1, 11, false);
    node.begin(2, 12, true);
    node.send(11, b"", false);
    drop(std::mem::replace(&mut node.receives, Receives::new(NodeId(0))));
    for _ in 0..2 {
        assert_eq!(node.outcome().1.unwrap_err().kind(), Kind::Lost);
    }
    assert_eq!((node.list(1), node.list(2)), (vec![], vec![]));
}

#[test]
fn there_is_a_limit_to_how_many_come_at_once() {
    let mut node = Fixture::new();
    for stream in 0..MAX_RECEIVES as u64 {
        node.begin(1, stream, false);
    }
    node.begin(1, 99, false);
    let (stream, outcome) = node.outcome();
    assert_eq!((stream, outcome.unwrap_err().kind()), (99, Kind::Unsupported));
    node.receives.cut_off(None, &Failure::new(Kind::Gone, "x"));
    for _ in 0..MAX_RECEIVES {
        node.outcome().1.unwrap_err();
    }
}

#[test]
fn a_session_that_is_gone_is_said_to_be() {
    let mut node = Fixture::new();
    fs::remove_dir_all(node.root.join("s1")).unwrap();
    node.begin(1, 11, false);
    assert_eq!(node.outcome().1.unwrap_err().kind(), Kind::NotFound);
}
