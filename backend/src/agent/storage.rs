//! What the agent keeps on its node: the app's directory, made when the first session needs it, and the socket for daemons in it.
//!
//! Everything that reads or removes files runs beside the agent's loop and reports when it is done.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gantry_shared::error::{Failure, Kind};
use gantry_shared::id::{AppId, SessionId};
use gantry_shared::storage::SessionDirs;
use gantry_shared::wire::message::{Answer, Entry, LibcNeeds};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::overlay::{Piece, Uplink};
use crate::process::strays;
use crate::provide::{ContentCache, Provided, provide};
use crate::receive::{Announced, Ended, Receives};
use crate::service::{Service, View};
use crate::session::{AppDir, StageBase, sweep};

/// How long files that are being provided may take once all is to be removed.
const LAST_FILES: Duration = Duration::from_secs(5);

/// The app's storage on this node.
#[derive(Debug)]
pub(crate) struct Storage {
    app: AppId,
    asked: Option<OsString>,
    dir: Arc<Mutex<Option<AppDir>>>,
    sessions: BTreeMap<SessionId, SessionDirs>,
    /// Locked by whoever puts files into sessions, or removes them.
    cache: Arc<Mutex<ContentCache>>,
    /// Sessions whose programs run through a loader of their own, and its name there.
    loaders: Arc<Mutex<BTreeMap<SessionId, OsString>>>,
    receives: Receives,
    socket: Option<PathBuf>,
    service: Option<AbortHandle>,
}

/// Chooses where storage goes: where it was asked for, or as the environment says.
pub(crate) fn choose_base(asked: Option<&Path>) -> Result<StageBase, Failure> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the agent is a program of its own and reads its own environment"
    )]
    let env = |name: &str| std::env::var_os(name);
    StageBase::choose(asked, &env)
}

impl Storage {
    /// Nothing yet; `asked` is where it is to go.
    pub(crate) fn new(app: AppId, asked: Option<OsString>) -> Self {
        Self {
            app,
            asked,
            dir: Arc::default(),
            sessions: BTreeMap::new(),
            cache: Arc::default(),
            loaders: Arc::default(),
            receives: Receives::default(),
            socket: None,
            service: None,
        }
    }

    /// Makes a session's directories; before the first one the app's, after sweeping what dead agents have left there.
    pub(crate) fn open_session(
        &mut self,
        session: SessionId,
        served: impl FnOnce() -> (watch::Receiver<View>, Uplink),
    ) -> Result<SessionDirs, Failure> {
        let mut dir = self.dir.lock().unwrap_or_else(PoisonError::into_inner);
        let app_dir = match &mut *dir {
            Some(app_dir) => app_dir,
            None => {
                let base = choose_base(self.asked.as_deref().map(Path::new))?;
                let dead = sweep(&base);
                for swept in &dead {
                    tracing::info!(path = %swept.path.display(), outcome = ?swept.outcome, "swept");
                }
                // An agent that was killed may have left processes, too.
                if !dead.is_empty()
                    && let Err(error) = strays::sweep()
                {
                    tracing::warn!(%error, "looking for processes of dead agents");
                }
                let app_dir = AppDir::create(&base, self.app)?;
                let (view, up) = served();
                let service = Service::bind(&app_dir.socket(), view, Some(up))?;
                self.socket = Some(app_dir.socket());
                self.service = Some(tokio::spawn(service.serve()).abort_handle());
                dir.insert(app_dir)
            }
        };
        let dirs = app_dir.open_session(session)?;
        self.sessions.insert(session, dirs.clone());
        Ok(dirs)
    }

    /// A session's directories.
    pub(crate) fn dirs(&self, session: SessionId) -> Result<SessionDirs, Failure> {
        let gone = || Failure::new(Kind::Gone, format!("session {session} is not open on this node"));
        self.sessions.get(&session).cloned().ok_or_else(gone)
    }

    /// The socket for daemons.
    pub(crate) fn socket(&self) -> Result<PathBuf, Failure> {
        self.socket.clone().ok_or_else(|| Failure::new(Kind::Gone, "no session is open on this node"))
    }

    /// All sessions that are open.
    pub(crate) fn sessions(&self) -> &BTreeMap<SessionId, SessionDirs> {
        &self.sessions
    }

    /// The name of the loader through which the session's programs run, where the node's C library is too old for them.
    pub(crate) fn loader(&self, session: SessionId) -> Option<OsString> {
        self.loaders.lock().unwrap_or_else(PoisonError::into_inner).get(&session).cloned()
    }

    /// Makes files available, beside the loop; `done` gets the answer.
    pub(crate) fn provide(
        &self,
        session: SessionId,
        entries: Vec<Entry>,
        libc: Option<LibcNeeds>,
        done: impl FnOnce(Result<Answer, Failure>) + Send + 'static,
    ) {
        let dirs = match self.dirs(session) {
            Ok(dirs) => dirs,
            Err(failure) => return done(Err(failure)),
        };
        let (cache, loaders) = (Arc::clone(&self.cache), Arc::clone(&self.loaders));
        tokio::task::spawn_blocking(move || {
            let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
            let provided = provide(&dirs, &entries, libc.as_ref(), &mut cache);
            done(provided.map(|Provided { missing, loader }| {
                if let Some(loader) = loader {
                    loaders.lock().unwrap_or_else(PoisonError::into_inner).insert(session, loader);
                }
                Answer::Missing(missing)
            }));
        });
    }

    /// Unpacks an archive, beside the loop; `done` gets the answer.
    pub(crate) fn receive(
        &mut self,
        announced: Announced,
        done: impl FnOnce(Result<Answer, Failure>) + Send + 'static,
    ) {
        match self.dirs(announced.session) {
            Ok(dirs) => {
                let done = move |unpacked: Result<(), Failure>| done(unpacked.map(|()| Answer::Done));
                self.receives.begin(announced, &dirs, Arc::clone(&self.cache), done);
            }
            Err(failure) => done(Err(failure)),
        }
    }

    /// Takes the next bytes of an archive; gives them back where they belong to none.
    pub(crate) fn take_piece(&mut self, piece: Piece) -> Option<Piece> {
        self.receives.take(piece)
    }

    /// Nobody sends any more: what is still to come, does not.
    pub(crate) fn nobody_sends(&mut self) {
        let why = Failure::new(Kind::Lost, "receive files: nobody sends them any more");
        self.receives.cut_off(None, &why);
    }

    /// A session will be closed: what still comes for it is no longer wanted.
    pub(crate) fn closing(&mut self, session: SessionId) {
        self.receives.cut_off(Some(session), &closed(session));
    }

    /// Removes a session's directories, beside the loop; `done` gets the answer. Its daemons have ended.
    pub(crate) fn close_session(
        &mut self,
        session: SessionId,
        done: impl FnOnce(Result<Answer, Failure>) + Send + 'static,
    ) {
        self.sessions.remove(&session);
        self.loaders.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        let receives = self.receives.end(Some(session), &closed(session));
        let (dir, cache) = (Arc::clone(&self.dir), Arc::clone(&self.cache));
        tokio::task::spawn_blocking(move || {
            Ended::wait_for(receives, Instant::now() + LAST_FILES);
            // Whoever still puts files there would bring back what is being removed.
            let _provided = cache.lock().unwrap_or_else(PoisonError::into_inner);
            let mut dir = dir.lock().unwrap_or_else(PoisonError::into_inner);
            let closed = dir.as_mut().map_or(Ok(()), |dir| dir.close_session(session));
            done(closed.map(|()| Answer::Done));
        });
    }

    /// Removes everything. Waits until it is gone.
    pub(crate) async fn remove(mut self) -> Result<(), Failure> {
        if let Some(service) = self.service {
            service.abort();
        }
        let leaving = Failure::new(Kind::Gone, "receive files: the app is ending on this node");
        let (receives, cache) = (self.receives.end(None, &leaving), self.cache);
        let provided = tokio::task::spawn_blocking(move || {
            Ended::wait_for(receives, Instant::now() + LAST_FILES);
            drop(cache.lock().unwrap_or_else(PoisonError::into_inner));
        });
        // Whoever still puts files there would bring back what is being removed. But a slow disk must not keep the agent.
        drop(tokio::time::timeout(LAST_FILES, provided).await);
        let removed = tokio::task::spawn_blocking(move || {
            let dir = self.dir.lock().unwrap_or_else(PoisonError::into_inner).take();
            dir.map_or(Ok(()), AppDir::remove)
        });
        removed.await.unwrap_or_else(|e| Err(Failure::new(Kind::Lost, e.to_string())))
    }
}

fn closed(session: SessionId) -> Failure {
    Failure::new(Kind::Gone, format!("receive files: session {session} was closed"))
}
