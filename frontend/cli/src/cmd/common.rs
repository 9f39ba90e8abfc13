//! Functions that several commands use.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_frontend::control::{Client, Registry};
use gantry_frontend::frontend::Choice;
use gantry_frontend::{App, Frontend};

use super::interrupts::Interrupts;
use crate::exit::{Fault, Outcome};
use crate::view::{self, Page};

/// The timeout for ending everything: the daemons' grace period and a margin.
pub(super) const END: Duration = Duration::from_secs(30);

/// Worker threads. A write to a stopped terminal blocks one of them.
const THREADS: usize = 4;

pub(super) fn block_on(command: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    let runtime = runtime.map_err(|e| Fault::io("cannot start", &e))?;
    let outcome = runtime.block_on(command);
    // A thread may still write to a stopped terminal. Do not wait for it.
    runtime.shutdown_background();
    outcome
}

/// Connects to the frontend of the app that `name` selects.
pub(super) async fn reach(name: Option<&str>) -> Result<Client, Fault> {
    Ok(Client::find(&Registry::open(None)?, name).await?)
}

/// Ends what this command started, or leaves what it attached to. Another signal skips the wait: the guard and the
/// agents finish the work.
pub(super) async fn close(app: App, interrupts: &mut Interrupts) -> Result<(), Fault> {
    tokio::select! {
        closed = app.close(END) => Ok(closed?),
        _ = interrupts.next() => Ok(()),
    }
}

/// The note for people whose launch may be meant for another workload manager.
pub(super) fn doubt_of(choice: &Choice) -> Option<String> {
    choice.doubt.as_ref().map(|doubt| format!("{} is used: {doubt}", choice.wlm))
}

/// The note for people whose number of a process may be meant as that of another workload manager's job.
pub(super) fn doubt_about(target: &str, frontend: &Frontend) -> Option<String> {
    let is_number = target.bytes().all(|letter| letter.is_ascii_digit());
    let doubt = frontend.choice().ok().filter(|_| is_number)?.doubt?;
    Some(format!("{target} is taken for a process of this machine: {doubt}"))
}

/// Prints the result of a command.
pub(super) fn say(page: &Page) -> Result<(), Fault> {
    view::print(page).map_err(|e| Fault::io("cannot write to standard output", &e))
}

pub(super) fn absolute(path: &Path) -> Result<PathBuf, Fault> {
    std::path::absolute(path).map_err(|e| Fault::io(&format!("bad path '{}'", path.display()), &e))
}
