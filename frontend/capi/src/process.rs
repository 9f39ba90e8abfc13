//! This process's state of the library.
//!
//! The first call that needs it makes it. A forked child makes its own and leaves its parent's alone
//! ([`PerProcess`]).

use std::future::Future;
use std::path::PathBuf;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use gantry_frontend::rendezvous::Multijob;
use gantry_frontend::{Config, Error, Frontend};
use gantry_shared::per_process::PerProcess;
use gantry_shared::storage;
use gantry_shared_capi::Fault;
use gantry_types::error::Kind;
use gantry_wlm::Host;
use gantry_wlm::host::Machine;
use tokio::runtime::{Handle, Runtime};

use crate::attribute_values::Attributes;
use crate::handles::{App, Inbox, Manifest, Owned, Session};
use crate::log;
use crate::table::{Ids, Table, lock};
use crate::threads::start_runtime;

/// The timeout for ending the runtime. A task that still runs then has lost its application already.
const RUNTIME_END: Duration = Duration::from_secs(5);

static CURRENT: PerProcess<Process> = PerProcess::new();

/// This process's state of the library.
#[derive(Debug)]
pub(crate) struct Process {
    runtime: Mutex<Option<Runtime>>,
    pub(crate) ids: Ids,
    pub(crate) apps: Table<App>,
    pub(crate) sessions: Table<Session>,
    pub(crate) manifests: Table<Manifest>,
    pub(crate) inboxes: Table<Inbox>,
    pub(crate) multijobs: Table<Multijob>,
    pub(crate) jobs: Table<Owned>,
    pub(crate) attributes: Attributes,
}

/// This process's state of the library; made if it does not exist.
pub(crate) fn process() -> &'static Process {
    CURRENT.get_or_make(Process::new)
}

impl Process {
    fn new() -> Self {
        Self {
            runtime: Mutex::default(),
            ids: Ids::default(),
            apps: Table::new("application"),
            sessions: Table::new("session"),
            manifests: Table::new("manifest"),
            inboxes: Table::new("inbox"),
            multijobs: Table::new("multijob"),
            jobs: Table::new("job"),
            attributes: Attributes::new(),
        }
    }

    /// The frontend with the environment's current settings.
    pub(crate) fn frontend(&self) -> Frontend {
        log::follow(&self.attributes);
        let ours = Machine.env(storage::GANTRY_STAGE_DIR);
        // GANTRY_STAGE_DIR is the library's own affair.
        let stage_base = match ours {
            Some(_) => None,
            None => Machine.env(storage::CTI_BACKEND_TMPDIR).map(PathBuf::from),
        };
        let wrapper = Machine.env(storage::CTI_BACKEND_WRAPPER);
        let rank_wrapper = wrapper.map(|name| name.to_string_lossy().into_owned());
        Frontend::new(Config { stage_base, rank_wrapper, ..Config::default() })
    }

    fn handle(&self) -> Result<Handle, Fault> {
        let mut runtime = lock(&self.runtime);
        if runtime.is_none() {
            let made = start_runtime().map_err(|error| {
                Fault::of(Kind::LauncherFailed, &error, Some("the library's threads could not be started"))
            })?;
            *runtime = Some(made);
        }
        runtime.as_ref().map(|runtime| runtime.handle().clone()).ok_or_else(|| Fault::invalid("no runtime"))
    }

    /// Has `work` done on the library's threads and waits for it. An error means that `work` has not come to its end.
    pub(crate) fn wait<W>(&self, work: W) -> Result<W::Output, Fault>
    where
        W: Future + Send + 'static,
        W::Output: Send + 'static,
    {
        let (done, answer) = mpsc::sync_channel(1);
        let ended = done.clone();
        // Sent with the last step of `work`: the threads cannot end between both.
        let working = async move { drop(done.send(Ok(work.await))) };
        // A task of its own, so that a panic is told from the end of the threads.
        self.handle()?
            .spawn(async move { tokio::spawn(working).await.map_err(|error| ended.send(Err(error))) });
        match answer.recv() {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(ended)) if ended.is_panic() => Err(Fault::of_panic(&*ended.into_panic())),
            _ => Err(Fault::new(Kind::Gone, "the library was ended meanwhile, by gantry_finalize")),
        }
    }

    /// As [`Process::wait`], for work that the library may refuse.
    pub(crate) fn try_wait<W, T>(&self, work: W) -> Result<T, Fault>
    where
        W: Future<Output = gantry_frontend::Result<T>> + Send + 'static,
        T: Send + 'static,
    {
        self.wait(work)?.map_err(|error| fault(&error))
    }

    /// Starts work in the background.
    pub(crate) fn begin(&self, work: impl Future<Output = ()> + Send + 'static) -> Result<(), Fault> {
        drop(self.handle()?.spawn(work));
        Ok(())
    }

    /// Runs a function inside the runtime that does not block.
    pub(crate) fn inside<T>(&self, what: impl FnOnce() -> T) -> Result<T, Fault> {
        let handle = self.handle()?;
        let _inside = handle.enter();
        Ok(what())
    }

    /// Ends the library's threads. The next call that needs them makes others.
    pub(crate) fn end_threads(&self) {
        let runtime = lock(&self.runtime).take();
        if let Some(runtime) = runtime {
            runtime.shutdown_timeout(RUNTIME_END);
        }
    }
}

/// Converts an error of the library for C.
pub(crate) fn fault(error: &Error) -> Fault {
    tracing::debug!(%error, "refused");
    Fault::of(error.kind(), error, error.hint().as_deref())
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;
    use std::thread;

    use super::*;

    async fn panics() -> u32 {
        panic!("oh")
    }

    #[test]
    fn a_panic_of_work_is_a_bug_and_not_the_end_of_the_library() {
        let process = Process::new();
        let fault = process.wait(panics()).expect_err("a panic");
        assert_eq!((fault.kind(), fault.text()), (Kind::Internal, "a bug in gantry itself: oh"));
        assert_eq!(process.wait(async { 7 }), Ok(7));
        process.end_threads();
    }

    #[test]
    fn a_result_is_not_lost_if_the_threads_are_ended_at_the_last_step_of_the_work() {
        let process = Arc::new(Process::new());
        let other = Arc::clone(&process);
        let work = async move {
            // As many as it takes to know that all tasks before them are cancelled, too.
            let tasks: Vec<_> = (0..100).map(|_| tokio::spawn(pending::<()>())).collect();
            thread::spawn(move || other.end_threads());
            while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
                thread::yield_now();
            }
            7
        };
        assert_eq!(process.wait(work), Ok(7));
    }
}
