//! Functions that several commands use.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use gantry_frontend::control::{Client, Registry, list};
use gantry_frontend::frontend::Choice;
use gantry_frontend::info::AppInfo;
use gantry_frontend::{App, Frontend};
use gantry_types::error::Kind;
use gantry_types::id::{AppId, Pid};

use super::interrupts::Interrupts;
use crate::exit::{self, Fault, Outcome};
use crate::view::{self, Page, table};

/// The timeout for ending everything: the daemons' grace period and a margin.
pub(super) const END: Duration = Duration::from_secs(30);

/// The timeout for the answers of frontends whose apps an error names.
const LISTING: Duration = Duration::from_secs(2);

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

/// Connects to the frontend of the app that `name` selects. An error names the apps that can be meant.
pub(super) async fn reach(name: Option<&str>) -> Result<Client, Fault> {
    let registry = Registry::open(None)?;
    let failure = match Client::find(&registry, name).await {
        Ok(client) => return Ok(client),
        Err(error) => error.to_failure(),
    };
    let (start, intro) = match failure.kind() {
        Kind::Invalid => (name.unwrap_or_default().to_ascii_lowercase(), "name one of them"),
        Kind::NotFound => (String::new(), "these run"),
        _ => return Err(Fault(failure)),
    };
    let mut apps = list_apps(&registry).await;
    apps.retain(|info| info.app.as_str().starts_with(&start));
    Err(Fault(match apps.is_empty() {
        true => failure,
        false => failure.with_hint(format!("{intro}:\n{}", table::describe_apps(&apps))),
    }))
}

/// The live app that process `target` owns, such as a `gantry launch`.
pub(super) async fn app_of_process(registry: &Registry, target: &str) -> Option<AppId> {
    let process = Pid::new(target.parse().ok()?)?;
    let mut client = Client::find(registry, Some(&format!("pid:{target}"))).await.ok()?;
    // It may be the app of a child.
    let info = client.info(LISTING).await.ok()?;
    (info.owner == process).then_some(info.app)
}

async fn list_apps(registry: &Registry) -> Vec<AppInfo> {
    list(registry, LISTING).await.map(|listing| listing.apps).unwrap_or_default()
}

/// Names the live apps after an error of the command line that lacks one.
pub(crate) fn name_apps_for(error: &clap::Error) {
    let lacks_app = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(args)) => args.iter().any(|arg| arg.starts_with("<APP")),
        _ => false,
    };
    if error.kind() != ErrorKind::MissingRequiredArgument || !lacks_app {
        return;
    }
    let naming = block_on(async {
        let apps = list_apps(&Registry::open(None)?).await;
        if !apps.is_empty() {
            view::note(&format!("these apps run:\n{}", table::describe_apps(&apps)));
        }
        Ok(exit::SUCCESS)
    });
    // The error of the command line has been reported. Without the list, nothing more is to be said.
    drop(naming);
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
