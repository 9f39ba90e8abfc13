//! Output of many processes on one terminal: whole lines, each with a label that names its source.

use std::collections::BTreeMap;

use gantry_frontend::event::Output;
use gantry_types::foreign::ForeignText;
use gantry_types::id::{DaemonId, Rank};
use gantry_types::output::Stream;

/// A longer line is printed in pieces, each with the label.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// Buffers lines that have no end yet.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    open: BTreeMap<Source, Vec<u8>>,
}

/// One stream of one process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    stream: Stream,
    rank: Option<Rank>,
    daemon: Option<DaemonId>,
    host: String,
}

impl Labels {
    /// Takes output in. Returns the complete lines with labels.
    pub(crate) fn push(&mut self, output: &Output) -> Vec<u8> {
        let source = Source {
            stream: output.stream,
            rank: output.rank,
            daemon: output.daemon,
            host: output.host.clone(),
        };
        let label = label(&source);
        let open = self.open.entry(source.clone()).or_default();
        open.extend_from_slice(&output.data.0);
        let mut lines = Vec::with_capacity(open.len() + label.len());
        let mut from = 0;
        while let Some(length) = open[from..].iter().position(|byte| *byte == b'\n') {
            add_line(&mut lines, &label, &open[from..from + length]);
            from += length + 1;
        }
        open.drain(..from);
        if open.len() >= MAX_LINE_BYTES {
            add_line(&mut lines, &label, open);
            open.clear();
        }
        // An empty piece marks the end of a stream.
        if output.data.0.is_empty() && !open.is_empty() {
            add_line(&mut lines, &label, open);
            open.clear();
        }
        if open.is_empty() {
            self.open.remove(&source);
        }
        lines
    }

    /// The rest of standard output and of standard error.
    pub(crate) fn finish(&mut self) -> (Vec<u8>, Vec<u8>) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        for (source, open) in std::mem::take(&mut self.open) {
            let to = if source.stream == Stream::Stdout { &mut out } else { &mut err };
            add_line(to, &label(&source), &open);
        }
        (out, err)
    }
}

fn label(source: &Source) -> String {
    match (source.daemon, source.rank) {
        (Some(daemon), _) => format!("[daemon {daemon} {}] ", ForeignText::from(source.host.as_str())),
        (None, Some(rank)) => format!("{rank}: "),
        (None, None) => String::new(),
    }
}

fn add_line(to: &mut Vec<u8>, label: &str, line: &[u8]) {
    to.extend_from_slice(label.as_bytes());
    to.extend_from_slice(line);
    to.push(b'\n');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn output(rank: Option<u32>, daemon: Option<u32>, stream: Stream, text: &str) -> Output {
        let told = json!({
            "app": "3kx9w0fz", "rank": rank, "daemon": daemon, "host": "n1", "stream": stream, "text": text
        });
        serde_json::from_value(told).unwrap()
    }

    #[test]
    fn lines_come_whole_and_labelled() {
        let mut labels = Labels::default();
        let mut check = |rank, daemon, text: &str, expected: &str| {
            let lines = labels.push(&output(rank, daemon, Stream::Stdout, text));
            assert_eq!(String::from_utf8(lines).unwrap(), expected);
        };
        check(Some(3), None, "a", "");
        check(None, Some(1), "x\ny\nz", "[daemon 1 n1] x\n[daemon 1 n1] y\n");
        check(Some(3), None, "b\n\nc", "3: ab\n3: \n");
        check(Some(3), None, "", "3: c\n");
        check(Some(3), None, "", "");
        assert_eq!(labels.finish(), (b"[daemon 1 n1] z\n".to_vec(), Vec::new()));
        assert!(labels.open.is_empty());
    }

    #[test]
    fn labels_are_escaped_and_output_is_unchanged() {
        let mut written = output(None, Some(1), Stream::Stdout, "\x1b[1mbold\n");
        written.host = "n1] \x1b[2J\n[daemon 2 n2".to_owned();
        let expected = b"[daemon 1 n1] \\x1b[2J\\n[daemon 2 n2] \x1b[1mbold\n";
        assert_eq!(Labels::default().push(&written), expected);
    }

    #[test]
    fn streams_do_not_mix_and_endless_lines_are_bounded() {
        let mut labels = Labels::default();
        assert!(labels.push(&output(Some(0), None, Stream::Stdout, "out")).is_empty());
        assert!(labels.push(&output(Some(0), None, Stream::Stderr, "err")).is_empty());
        assert_eq!(labels.finish(), (b"0: out\n".to_vec(), b"0: err\n".to_vec()));
        let long = "x".repeat(MAX_LINE_BYTES);
        let lines = labels.push(&output(Some(0), None, Stream::Stdout, &long));
        assert_eq!(lines.len(), MAX_LINE_BYTES + 4);
        assert!(labels.open.is_empty());
    }
}
