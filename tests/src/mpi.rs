//! What tests of MPI worlds have in common: what the program `mpi_world` says, and what gantry says of a world.

use serde_json::Value;

use crate::slurm::lines_of;
use crate::{Finished, SOON, World};

/// Launches on this machine, without a launcher.
#[must_use]
pub fn launch(world: &World, args: &[&str]) -> Finished {
    world.gantry(["launch", "--json", "--"].iter().chain(args)).wait(2 * SOON)
}

/// The lines in order.
#[must_use]
pub fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort_unstable();
    lines
}

/// What `sum` has every rank of so many say.
#[must_use]
pub fn sums(ranks: u32) -> Vec<String> {
    let sum = ranks * (ranks - 1) / 2;
    sorted(
        (0..ranks).map(|it| format!("rank {it} of {ranks}, program 0, places {ranks}, sum {sum}")).collect(),
    )
}

/// The one `mpi_failed`: its rank, code and message.
///
/// # Panics
/// There is none, or more than one.
#[track_caller]
#[must_use]
pub fn failure(done: &Finished) -> (i64, i64, String) {
    let events = done.events();
    let told: Vec<&Value> = events.iter().filter(|event| event["event"] == "mpi_failed").collect();
    let [one] = told.as_slice() else { panic!("{done:?}") };
    let number = |name: &str| one[name].as_i64().expect("a number");
    (number("rank"), number("code"), one["message"].as_str().expect("a message").to_owned())
}

/// The lines of a rank, without what its library says.
#[must_use]
pub fn results(done: &Finished) -> Vec<String> {
    let is_ours = |line: &String| {
        ["rank ", "spawn ", "publish ", "lookup "].iter().any(|begin| line.starts_with(begin))
    };
    lines_of(done).into_iter().filter(is_ours).collect()
}

/// The notes about the MPI world, each with its rank.
///
/// # Panics
/// A note has no rank or no message.
#[must_use]
pub fn notes(done: &Finished) -> Vec<(i64, String)> {
    let events = done.events();
    let notes = events.iter().filter(|event| event["event"] == "mpi_note");
    let show = |event: &Value| Some((event["rank"].as_i64()?, event["message"].as_str().map(str::to_owned)?));
    notes.map(|event| show(event).expect("a note")).collect()
}
