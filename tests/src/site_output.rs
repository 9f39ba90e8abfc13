//! The ranks' output, by rank. Some launchers mix all of it in one pipe, with the rank in each line.

use gantry_frontend::{App, OutputStream};
use gantry_types::id::NodeId;
use gantry_types::output::Stream;

use crate::outside;
use crate::site::Site;

impl Site {
    /// The complete standard output of each rank.
    ///
    /// # Panics
    /// When it was not requested, or a line's rank is unknown.
    pub async fn texts(&self, app: &App) -> Vec<Vec<u8>> {
        let mut texts = vec![Vec::new(); app.info().ranks.len()];
        let mut stream = app.take_output().expect("the output");
        assert!(app.take_output().is_none(), "output is taken once");
        let mut labelled = Vec::new();
        while let Some(output) = stream.next().await {
            match output.rank {
                Some(rank) => {
                    assert_eq!(
                        output.stream,
                        Stream::Stdout,
                        "{:?}",
                        String::from_utf8_lossy(&output.data.0)
                    );
                    texts[rank.index()].extend(output.data.0);
                }
                // On standard error a launcher has its own words.
                None if output.stream == Stream::Stderr => {}
                None => labelled.extend(output.data.0),
            }
        }
        for line in labelled.split_inclusive(|byte| *byte == b'\n') {
            let (rank, line) = split_label(line);
            texts[rank].extend_from_slice(line);
        }
        texts
    }

    /// The next lines on standard output, without line breaks: `count` lines, of any ranks.
    ///
    /// # Panics
    /// When there are fewer, or more at once.
    pub async fn lines(&self, stream: &mut OutputStream, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let mut begun = Vec::new();
        while lines.len() < count {
            let output = stream.next().await.expect("a line");
            if output.stream == Stream::Stderr {
                continue;
            }
            begun.extend(output.data.0);
            while let Some(end) = begun.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = begun.drain(..=end).collect();
                let line = if output.rank.is_some() { &line } else { split_label(&line).1 };
                lines.push(String::from_utf8_lossy(line).trim_end().to_owned());
            }
        }
        assert!(lines.len() == count && begun.is_empty(), "{lines:?}");
        lines
    }

    /// A rank's output for a comparison: without line ends that a launcher adds. srun cuts labelled lines where its
    /// buffers end.
    #[must_use]
    pub fn uncut(&self, text: &[u8]) -> Vec<u8> {
        let adds_ends = self.wlm() == "slurm";
        text.iter().copied().filter(|byte| !adds_ends || *byte != b'\n').collect()
    }

    /// A line of a rank without the label that it may have here.
    #[must_use]
    pub fn unlabelled<'a>(&self, line: &'a str) -> &'a str {
        if self.comes_by_one_pipe() { line.split_once(": ").map_or(line, |(_, line)| line) } else { line }
    }

    /// Whether a launcher wrote this line of standard error, and not a rank.
    #[must_use]
    pub fn is_launchers(&self, line: &str) -> bool {
        let marks = ["jobid: ", "flux-job: ", "flux-shell["];
        // A shell puts its time before its name.
        let line = line
            .split_once("s: ")
            .filter(|(_, rest)| rest.starts_with("flux-shell["))
            .map_or(line, |(_, rest)| rest);
        self.wlm() == "flux" && marks.iter().any(|mark| line.starts_with(mark))
    }

    /// Exit codes of ranks that end with 0 and leave their input unread. Flux's launcher may end with 1: "stdin not
    /// accepted by job".
    #[must_use]
    pub fn codes_without_reader(&self) -> &'static [i32] {
        if self.wlm() == "flux" { &[0, 1] } else { &[0] }
    }

    /// How wide the lines of much input are. srun cuts long lines where it labels them, and Flux sends each line of input in a
    /// message of its own.
    #[must_use]
    pub fn line_width(&self) -> u32 {
        if self.wlm() == "flux" { 4096 } else { 64 }
    }

    /// How much is much: so many bytes, or fewer where a launcher is slow with them. Flux keeps each line of input and of output
    /// in the store of its instance, which all tests share.
    #[must_use]
    pub fn much(&self, bytes: u32) -> u32 {
        if self.wlm() == "flux" { bytes / 10 } else { bytes }
    }

    /// The launch option with which a launcher passes input on at once. Without it, Flux keeps input until its end.
    #[must_use]
    pub fn input_at_once(&self) -> &'static [&'static str] {
        if self.wlm() == "flux" { &["--unbuffered"] } else { &[] }
    }

    /// The variables of a rank's identity: its number, the number of ranks, its number on its node, and that of its
    /// node. The starter of ranks sets them.
    #[must_use]
    pub fn rank_variables(&self) -> [&'static str; 4] {
        match self.wlm() {
            "slurm" => ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NODEID"],
            "flux" => ["FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", "TEST_NODE"],
            _ => ["GANTRY_RANK", "GANTRY_SIZE", "GANTRY_LOCAL_RANK", "GANTRY_NODE"],
        }
    }

    /// How many ranks read the app's input: all if the launcher passes it to all, otherwise only rank 0.
    #[must_use]
    pub fn readers(&self, ranks: usize) -> usize {
        if self.comes_by_one_pipe() { ranks } else { 1 }
    }

    /// Whether the output of all ranks comes through one pipe: the workload manager's own launcher is between the tool
    /// and the ranks.
    #[must_use]
    pub fn comes_by_one_pipe(&self) -> bool {
        matches!(self.wlm(), "slurm" | "flux")
    }
}

/// A line of a rank, from `RANK: LINE` as srun and `flux run` label it.
#[track_caller]
fn split_label(line: &[u8]) -> (usize, &[u8]) {
    let colon = line.iter().position(|byte| *byte == b':');
    let label = colon.and_then(|colon| std::str::from_utf8(&line[..colon]).ok()?.trim().parse().ok());
    let (Some(colon), Some(rank)) = (colon, label) else {
        panic!("no rank's line: {:?}", String::from_utf8_lossy(line))
    };
    (rank, &line[colon + 2..])
}

/// The processes of the first node that have these numbers there, for [`proc`](crate::proc).
///
/// # Panics
/// When the app has no node.
#[must_use]
pub fn pids_of_first_node(app: &App, numbers: &[i32]) -> Vec<i32> {
    outside::pids_on(app.placement().host(NodeId(0)).expect("a node"), numbers)
}
