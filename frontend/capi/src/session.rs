//! Sessions.

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::{Arc, Mutex};

use gantry_frontend as library;
use gantry_frontend::info::AppState;
use gantry_shared_capi::{Fault, deadline, enter, memory};
use gantry_types::error::Kind;
use gantry_types::id::NodeId;
use gantry_types::session_dirs::SessionDirs;

use crate::gantry::gate::Gate;
use crate::handles::Session;
use crate::process::{Process, fault, process};
use crate::table::lock;

impl Process {
    /// The session of that id, if its application has not ended.
    pub(crate) fn live_session(&self, id: i64) -> Result<Arc<Session>, Fault> {
        let session = self.sessions.get(id)?;
        match self.apps.get(session.app)?.handle.state() {
            AppState::Ended => Err(Fault::new(Kind::Gone, format!("session {id} went with its application"))),
            _ => Ok(session),
        }
    }
}

/// Makes a session.
#[unsafe(no_mangle)]
pub extern "C" fn cti_createSession(app_id: i64) -> i64 {
    enter("cti_createSession", 0, || {
        let process = process();
        let handle = process.apps.get(app_id)?.handle.clone();
        let deadline = deadline::of_calls();
        let session = process.try_wait(async move { handle.session(deadline).await })?;
        let session = Session {
            app: app_id,
            session: Mutex::new(Some(session)),
            filters: Arc::default(),
            shipped: Mutex::default(),
        };
        Ok(process.sessions.add(&process.ids, session))
    })
}

/// Whether the session is there.
#[unsafe(no_mangle)]
pub extern "C" fn cti_sessionIsValid(sid: i64) -> c_int {
    enter("cti_sessionIsValid", 0, || process().live_session(sid).map(|_| 1))
}

/// Removes the session.
#[unsafe(no_mangle)]
pub extern "C" fn cti_destroySession(sid: i64) -> c_int {
    enter("cti_destroySession", 1, || {
        let process = process();
        Gate::refuse_inside()?;
        let entry = process.sessions.get(sid)?;
        entry.filters.close();
        let session = lock(&entry.session).take();
        let Some(session) = session else {
            return Err(Fault::new(Kind::Gone, format!("session {sid} is being destroyed")));
        };
        let deadline = deadline::of_calls();
        let left = process.wait(async move {
            match session.try_destroy(deadline).await {
                // Its application has ended and has removed it, as requested.
                Ok(()) | Err(library::Error::Gone { .. }) => None,
                Err(error) => Some((session, error)),
            }
        });
        if let Ok(Some((session, error))) = left {
            *lock(&entry.session) = Some(session);
            return Err(fault(&error));
        }
        // Unless gantry_finalize has forgotten it meanwhile.
        drop(process.sessions.take(sid));
        process.forget_manifests(sid)?;
        left.map(|_| 0)
    })
}

/// Lock files that show which manifests are there.
#[unsafe(no_mangle)]
pub extern "C" fn cti_getSessionLockFiles(sid: i64) -> *mut *mut c_char {
    enter("cti_getSessionLockFiles", std::ptr::null_mut(), || {
        let session = process().live_session(sid)?;
        let root = session.dirs(NodeId(0))?.root;
        let shipped = lock(&session.shipped).clone();
        if shipped.is_empty() {
            return Err(Fault::new(Kind::NotFound, format!("nothing was shipped to session {sid} yet")));
        }
        let paths = shipped.into_iter().map(|below| root.join(below).into_os_string().into_vec());
        memory::strings(&paths.collect::<Vec<_>>())
    })
}

fn give(name: &str, sid: i64, which: impl FnOnce(&SessionDirs) -> &Path) -> *mut c_char {
    enter(name, std::ptr::null_mut(), || {
        let dirs = process().live_session(sid)?.dirs(NodeId(0))?;
        memory::string(which(&dirs).as_os_str().as_bytes())
    })
}

/// The session's root on the first node.
#[unsafe(no_mangle)]
pub extern "C" fn cti_getSessionRootDir(sid: i64) -> *mut c_char {
    give("cti_getSessionRootDir", sid, |dirs| &dirs.root)
}

/// Where its programs are.
#[unsafe(no_mangle)]
pub extern "C" fn cti_getSessionBinDir(sid: i64) -> *mut c_char {
    give("cti_getSessionBinDir", sid, |dirs| &dirs.bin)
}

/// Where its libraries are.
#[unsafe(no_mangle)]
pub extern "C" fn cti_getSessionLibDir(sid: i64) -> *mut c_char {
    give("cti_getSessionLibDir", sid, |dirs| &dirs.lib)
}

/// Where its files are.
#[unsafe(no_mangle)]
pub extern "C" fn cti_getSessionFileDir(sid: i64) -> *mut c_char {
    give("cti_getSessionFileDir", sid, |dirs| &dirs.root)
}

/// Where its daemons may write.
#[unsafe(no_mangle)]
pub extern "C" fn cti_getSessionTmpDir(sid: i64) -> *mut c_char {
    give("cti_getSessionTmpDir", sid, |dirs| &dirs.tmp)
}
