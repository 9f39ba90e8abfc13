//! The programs of `tests/programs/hung`: what `gantry why` must print about them, and their result once they continue.

use std::fs;

use crate::programs::{get_source, sources};
use crate::run::Finished;

/// The folder of the programs.
pub const FOLDER: &str = "hung";

/// An MPI program. Its rank 0 waits for a message with another tag than that of the message from rank 3. All other
/// ranks wait in a barrier. `compiler` is a compiler such as `mpicc.mpich`.
///
/// # Errors
/// The compiler's message, as the reason of a skip.
pub fn lost_message(compiler: &str) -> Result<String, String> {
    let program =
        get_source(&format!("{FOLDER}/lost_message.c"), compiler, &["-O2", "-fomit-frame-pointer"])?;
    Ok(program.display().to_string())
}

/// The sentences about [`lost_message`] with rank 0 and rank 3 on these hosts, and that many ranks in the barrier.
#[must_use]
pub fn lost_message_says(first: &str, third: &str, others: usize) -> [String; 2] {
    [
        said(&format!(
            "rank 0 on {first} waits in MPI_Recv called at {{lost_message.c:odd}} while {others} others wait in MPI_Barrier called at {{lost_message.c:others}}"
        )),
        said(&format!("rank 3 on {third} waits in usleep called at {{lost_message.c:late}}")),
    ]
}

/// Replaces each `{FILE:MARK}` in a sentence by the file and the line that has this mark.
///
/// # Panics
/// When there is no such line.
#[must_use]
#[track_caller]
pub fn said(sentence: &str) -> String {
    let mut parts = sentence.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |said, part| {
        let (place, rest) = part.split_once('}').expect("a place");
        let (file, mark) = place.split_once(':').expect("a mark");
        let text = fs::read_to_string(sources().join(FOLDER).join(file)).expect("the source");
        let is_marked =
            |line: &str| ["/* ", "// ", "! ", "# "].iter().any(|it| line.contains(&format!("{it}{mark}")));
        let line = 1 + text.lines().position(is_marked).unwrap_or_else(|| panic!("no {mark} in {file}"));
        format!("{said}{file}:{line}{rest}")
    })
}

/// Fails unless the program has ended with 0, and each of these ranks has printed its result.
///
/// # Panics
/// With its output.
#[track_caller]
pub fn assert_result(done: &Finished, ranks: usize) {
    let right: usize = done.stdout.iter().map(|line| line.matches("result 7").count()).sum();
    assert_eq!((done.code(), right), (0, ranks), "{done:?}");
}
