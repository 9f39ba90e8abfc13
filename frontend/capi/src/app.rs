//! Functions of an application: ids, release, signals, the end.

use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex};

use gantry_frontend as library;
use gantry_shared_capi::{Fault, deadline, enter};
use gantry_types::error::Kind;
use gantry_types::signal::Signal;

use crate::gantry::gate::Gate;
use crate::gantry::job;
use crate::handles::App;
use crate::process::{Process, fault, process};
use crate::table::lock;

impl Process {
    /// Registers an application of the Rust library under an id.
    pub(crate) fn add_app(&self, app: library::App) -> i64 {
        let handle = (*app).clone();
        let name = handle.id();
        let id = self.apps.add(&self.ids, App { owner: Mutex::new(Some(app)), handle });
        tracing::debug!(id, %name, "an application");
        id
    }

    /// Attaches to a running application.
    pub(crate) fn attach(
        &self,
        target: String,
        wait: bool,
        deadline: std::time::Duration,
    ) -> Result<i64, Fault> {
        let frontend = self.frontend();
        let app = self.try_wait(async move {
            match wait {
                true => frontend.attach_when_there(&target, deadline).await,
                false => frontend.attach(&target, deadline).await,
            }
        })?;
        Ok(self.add_app(app))
    }

    /// Removes an application's id, and the ids of its sessions and manifests. Returns the owner, which the caller must
    /// end or detach.
    fn forget(&self, id: i64) -> Result<Option<library::App>, Fault> {
        Gate::refuse_inside()?;
        let app = self.apps.take(id)?;
        for (session, entry) in self.sessions.take_all(|session| session.app == id) {
            entry.filters.close();
            self.forget_manifests(session)?;
        }
        Ok(lock(&app.owner).take())
    }

    /// Forgets the manifests of a session.
    pub(crate) fn forget_manifests(&self, session: i64) -> Result<(), Fault> {
        let manifests = self.manifests.take_all(|manifest| manifest.session == session);
        self.inside(|| drop(manifests))
    }

    /// Ends all applications and waits until their processes are gone. Not inside of a filter's call.
    pub(crate) fn close_all(&self) -> Result<(), Fault> {
        let ends = self.apps.take_all(|_| true).into_iter().filter_map(|(_, app)| lock(&app.owner).take());
        let ends: Vec<library::App> = ends.collect();
        let jobs = self.jobs.take_all(|_| true);
        let sessions = self.sessions.take_all(|_| true);
        sessions.iter().for_each(|(_, session)| session.filters.close());
        let manifests = self.manifests.take_all(|_| true);
        drop((self.inboxes.take_all(|_| true), self.multijobs.take_all(|_| true)));
        if ends.is_empty() && sessions.is_empty() && jobs.is_empty() {
            return Ok(());
        }
        let deadline = deadline::of_calls();
        self.try_wait(async move {
            let closing: Vec<_> = ends.into_iter().map(|app| tokio::spawn(app.close(deadline))).collect();
            let jobs: Vec<_> =
                jobs.into_iter().map(|(_, job)| tokio::spawn(job::close(Arc::clone(&job)))).collect();
            for closed in jobs {
                closed.await.map_err(|e| library::Error::Protocol(e.to_string()))?;
            }
            let mut ended = Ok(());
            for closed in closing {
                let closed = closed.await.unwrap_or_else(|e| Err(library::Error::Protocol(e.to_string())));
                ended = ended.and(closed);
            }
            drop((sessions, manifests));
            ended
        })
    }
}

/// Whether the application is there.
#[unsafe(no_mangle)]
pub extern "C" fn cti_appIsValid(app_id: i64) -> c_int {
    enter("cti_appIsValid", 0, || {
        let process = process();
        if !process.apps.get(app_id)?.is_over() {
            return Ok(1);
        }
        // It ends by itself. Only the records about it are left, and they go with its owner.
        let owner = process.forget(app_id)?;
        process.inside(|| drop(owner))?;
        Err(Fault::new(Kind::Gone, format!("application {app_id} has ended")))
    })
}

/// Lets held ranks go.
#[unsafe(no_mangle)]
pub extern "C" fn cti_releaseAppBarrier(app_id: i64) -> c_int {
    enter("cti_releaseAppBarrier", 1, || {
        let handle = process().apps.get(app_id)?.handle.clone();
        let deadline = deadline::of_calls();
        process().try_wait(async move { handle.release(deadline).await })?;
        Ok(0)
    })
}

/// Sends a signal to all ranks.
#[unsafe(no_mangle)]
pub extern "C" fn cti_killApp(app_id: i64, signum: c_int) -> c_int {
    enter("cti_killApp", 1, || {
        let handle = process().apps.get(app_id)?.handle.clone();
        let signal = Signal::new(signum).filter(|signal| *signal != Signal::PROBE);
        let signal =
            signal.ok_or_else(|| Fault::invalid(format!("{signum} is not a signal that can be sent")))?;
        let deadline = deadline::of_calls();
        process().try_wait(async move { handle.signal(signal, None, deadline).await })?;
        Ok(0)
    })
}

/// Ends the application, or leaves it as it was found.
#[unsafe(no_mangle)]
pub extern "C" fn cti_deregisterApp(app_id: i64) {
    enter("cti_deregisterApp", (), || {
        let process = process();
        let Some(owner) = process.forget(app_id)? else { return Ok(()) };
        let deadline = deadline::of_calls();
        process.try_wait(owner.close(deadline))
    });
}

/// Detaches from the application, which continues.
#[unsafe(no_mangle)]
pub extern "C" fn cti_releaseApp(app_id: i64) -> c_int {
    enter("cti_releaseApp", 1, || {
        let process = process();
        Gate::refuse_inside()?;
        let app = process.apps.take(app_id)?;
        let owner = lock(&app.owner).take();
        let owner = owner.ok_or_else(|| Fault::new(Kind::Gone, format!("application {app_id} is ending")))?;
        let deadline = deadline::of_calls();
        let let_go = process.wait(owner.detach(deadline))?;
        // Sessions stay on the nodes. Their handles are dropped only when that does not end them any more.
        for (session, entry) in process.sessions.take_all(|session| session.app == app_id) {
            entry.filters.close();
            process.forget_manifests(session)?;
        }
        let_go.map_err(|error| fault(&error)).map(|()| 0)
    })
}

/// No workload manager of ours has it.
#[unsafe(no_mangle)]
pub extern "C" fn cti_getLauncherHostName(app_id: i64) -> *mut c_char {
    enter("cti_getLauncherHostName", std::ptr::null_mut(), || {
        let app: Arc<App> = process().apps.get(app_id)?;
        Err(Fault::new(
            Kind::Unsupported,
            format!("{} does not tell where its launcher runs", app.handle.wlm()),
        ))
    })
}
