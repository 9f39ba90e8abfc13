//! The agent's storage on its node: the app's directory while sessions are open, and the socket for daemons in it.
//!
//! The agent's loop never waits for a file system. Work that reads, creates or removes files runs on threads of its
//! session ([`Jobs`]), and reports when it is done. So a file system that hangs delays only its own session.

mod home;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gantry_shared::storage::agent_socket_name;
use gantry_shared::wire::message::{Answer, Entry, LibcNeeds};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{AppId, NodeId, SessionId};
use gantry_types::session_dirs::SessionDirs;
use tokio::sync::watch;

use self::home::{Home, lock};
use crate::ending::REMOVALS;
use crate::jobs::Jobs;
use crate::overlay::{Piece, Uplink};
use crate::provide::{ContentCache, Provided, provide};
use crate::receive::{Announced, Ended, Receives};
use crate::service::View;
use crate::session::{AppDirName, SessionDir, StageBase};

/// How long files that are still arriving may delay a removal.
const LAST_FILES: Duration = Duration::from_secs(5);

/// The app's storage on this node.
#[derive(Debug)]
pub(crate) struct Storage {
    app: AppId,
    node: NodeId,
    asked: Option<OsString>,
    /// Sessions' threads lock it, the loop never does.
    home: Arc<Mutex<Home>>,
    /// Directories of the open sessions.
    dirs: BTreeMap<SessionId, SessionDirs>,
    /// Sessions that are open or being opened.
    sessions: BTreeMap<SessionId, Session>,
    /// Those that run, and those that have failed.
    removals: Vec<(SessionId, Removal)>,
    contents: ContentCache,
    receives: Receives,
}

/// The state of a session.
#[derive(Debug, Default)]
struct Session {
    jobs: Jobs,
    /// None until it is open.
    dir: Arc<Mutex<Option<SessionDir>>>,
    /// A thread that puts files into the session locks it.
    settling: Arc<Mutex<ContentCache>>,
    /// If the node's C library is too old for its programs: the name of the loader that runs them.
    loader: Arc<Mutex<Option<OsString>>>,
}

/// A session's removal.
#[derive(Debug, Clone)]
struct Removal {
    root: Option<PathBuf>,
    /// Closed when the removal is over.
    result: watch::Receiver<Result<(), Failure>>,
}

impl Removal {
    fn is_running(&self) -> bool {
        self.result.has_changed().is_ok()
    }

    /// Waits until it is over.
    async fn over(mut self) -> Result<(), Failure> {
        while self.result.changed().await.is_ok() {}
        self.result.borrow().clone()
    }
}

/// The place of a session, as the frontend says.
#[derive(Debug)]
pub(crate) struct Where {
    /// The name of the app's directory.
    pub(crate) name: String,
    /// Its parent directory. None: this node chooses it.
    pub(crate) base: Option<OsString>,
}

impl Storage {
    /// No storage yet. `asked` is the requested base.
    pub(crate) fn new(app: AppId, node: NodeId, asked: Option<OsString>) -> Self {
        Self {
            app,
            node,
            asked,
            home: Arc::default(),
            dirs: BTreeMap::new(),
            sessions: BTreeMap::new(),
            removals: Vec::new(),
            contents: ContentCache::default(),
            receives: Receives::new(node),
        }
    }

    /// Creates a session's directories, and for the first session the app's. `done` gets the session's directories.
    ///
    /// The caller then passes the result to [`Storage::opened`].
    pub(crate) fn open_session(
        &mut self,
        session: SessionId,
        place: Where,
        served: (watch::Receiver<View>, Uplink),
        done: impl FnOnce(Result<SessionDirs, Failure>) + Send + 'static,
    ) {
        if self.sessions.contains_key(&session) {
            return done(Err(Failure::new(
                Kind::Invalid,
                format!("open session {session}: it is open already"),
            )));
        }
        let name = match AppDirName::parse(self.app, place.name) {
            Ok(name) => name,
            Err(failure) => return done(Err(failure)),
        };
        let settling = Arc::new(Mutex::new(self.contents.clone()));
        let state = Session { settling, ..Session::default() };
        let (home, dir, node) = (Arc::clone(&self.home), Arc::clone(&state.dir), self.node);
        let (asked, runtime) = (self.asked.clone(), tokio::runtime::Handle::current());
        state.jobs.push(move |turn| {
            let asked = asked.as_deref().map(Path::new);
            let bases = turn.and_then(|()| match &place.base {
                Some(there) => Ok(vec![StageBase::follow(Path::new(there), asked)?]),
                None => StageBase::find_all(asked),
            });
            let open_in = |base: &StageBase| {
                lock(&home).open_session((base, &name, node), session, served.clone(), &runtime)
            };
            let opened = bases.and_then(|bases| StageBase::first_with_room(&bases, open_in));
            done(opened.map(|opened| {
                let dirs = opened.dirs().clone();
                *lock(&dir) = Some(opened);
                dirs
            }));
        });
        self.sessions.insert(session, state);
    }

    /// Takes the result of [`Storage::open_session`].
    pub(crate) fn opened(&mut self, session: SessionId, opened: &Result<SessionDirs, Failure>) {
        match opened {
            // Unless the session was closed meanwhile.
            Ok(dirs) if self.sessions.contains_key(&session) => {
                self.dirs.insert(session, dirs.clone());
            }
            Ok(_) => {}
            Err(_) => drop(self.sessions.remove(&session)),
        }
    }

    /// A session's directories.
    pub(crate) fn dirs(&self, session: SessionId) -> Result<SessionDirs, Failure> {
        self.dirs.get(&session).cloned().ok_or_else(|| not_open(session))
    }

    /// Fails if a session is neither open nor being opened.
    pub(crate) fn check(&self, session: SessionId) -> Result<(), Failure> {
        self.sessions.get(&session).map(drop).ok_or_else(|| not_open(session))
    }

    /// The socket for daemons of a session.
    pub(crate) fn socket(&self, session: SessionId) -> Result<PathBuf, Failure> {
        let dirs = self.dirs(session)?;
        let app_dir = dirs.root.parent().unwrap_or(&dirs.root);
        Ok(app_dir.join(agent_socket_name(self.node)))
    }

    /// All open sessions.
    pub(crate) fn sessions(&self) -> &BTreeMap<SessionId, SessionDirs> {
        &self.dirs
    }

    /// If the node's C library is too old for the session's programs: the name of the loader that runs them.
    pub(crate) fn loader(&self, session: SessionId) -> Option<OsString> {
        lock(&self.sessions.get(&session)?.loader).clone()
    }

    /// Runs a job with a session's files on the session's thread.
    ///
    /// # Errors
    /// The session is not open.
    pub(crate) fn in_session(
        &self,
        session: SessionId,
        job: impl FnOnce(Result<(), Failure>) + Send + 'static,
    ) -> Result<(), Failure> {
        let state = self.sessions.get(&session).ok_or_else(|| not_open(session))?;
        state.jobs.push(job);
        Ok(())
    }

    /// Makes files available, on the session's thread. `done` gets the answer.
    pub(crate) fn provide(
        &self,
        session: SessionId,
        entries: Vec<Entry>,
        libc: Option<LibcNeeds>,
        done: impl FnOnce(Result<Answer, Failure>) + Send + 'static,
    ) {
        let (Some(dirs), Some(state)) = (self.dirs.get(&session), self.sessions.get(&session)) else {
            return done(Err(not_open(session)));
        };
        let (dirs, settling, loaders) =
            (dirs.clone(), Arc::clone(&state.settling), Arc::clone(&state.loader));
        state.jobs.push(move |turn| {
            let provided = turn.and_then(|()| provide(&dirs, &entries, libc.as_ref(), &mut lock(&settling)));
            done(provided.map(|Provided { missing, loader }| {
                if let Some(loader) = loader {
                    *lock(&loaders) = Some(loader);
                }
                Answer::Missing(missing)
            }));
        });
    }

    /// Unpacks an archive, on a thread of its own. `done` gets the answer.
    pub(crate) fn receive(
        &mut self,
        announced: Announced,
        done: impl FnOnce(Result<Answer, Failure>) + Send + 'static,
    ) {
        let session = announced.session;
        let (Some(dirs), Some(state)) = (self.dirs.get(&session), self.sessions.get(&session)) else {
            return done(Err(not_open(session)));
        };
        let done = move |unpacked: Result<(), Failure>| done(unpacked.map(|()| Answer::Done));
        self.receives.begin(announced, dirs, Arc::clone(&state.settling), done);
    }

    /// Takes the next bytes of an archive.
    pub(crate) fn take_piece(&mut self, piece: Piece) {
        self.receives.take(piece);
    }

    /// The sender is gone: cuts off all incomplete archives.
    pub(crate) fn nobody_sends(&mut self) {
        let why = Failure::new(Kind::Lost, "receive files: the sender has stopped");
        self.receives.cut_off(None, &why);
    }

    /// A session is about to close: cuts off its incomplete archives.
    pub(crate) fn closing(&mut self, session: SessionId) {
        self.receives.cut_off(Some(session), &closed(session));
    }

    /// Removes a session's directories, on its thread. The session's daemons have ended. The future ends when the
    /// directories are gone, also if an earlier call has begun that.
    pub(crate) fn close_session(
        &mut self,
        session: SessionId,
    ) -> impl Future<Output = Result<Answer, Failure>> + use<> {
        self.removals.retain(|(_, removal)| removal.is_running() || removal.result.borrow().is_err());
        if let Some(state) = self.sessions.remove(&session) {
            let removal = self.start_removal(session, state);
            self.removals.push((session, removal));
        }
        let removal = self.removals.iter().find(|(of, _)| *of == session).map(|(_, removal)| removal.clone());
        async move {
            if let Some(removal) = removal {
                removal.over().await?;
            }
            Ok(Answer::Done)
        }
    }

    fn start_removal(&mut self, session: SessionId, state: Session) -> Removal {
        let root = self.dirs.remove(&session).map(|dirs| dirs.root);
        let receives = self.receives.end(Some(session), &closed(session));
        let (home, Session { jobs, dir, settling, .. }) = (Arc::clone(&self.home), state);
        let panicked = Failure::new(Kind::Internal, format!("remove session {session}: its thread ended"))
            .with_hint("report it as a bug, with the output of the same command with -vv");
        let (sender, result) = watch::channel(Err(panicked));
        jobs.push(move |turn| {
            Ended::wait_for(receives, Instant::now() + LAST_FILES);
            // Waits for a job that still puts files there: they would appear in what is being removed.
            drop(lock(&settling));
            let removed = turn.and_then(|()| Home::close_session(&home, lock(&dir).take()));
            drop(sender.send_replace(removed));
        });
        Removal { root, result }
    }

    /// As [`Storage::remove`], once all processes have ended. What hangs there leaves [`REMOVALS`] for the files.
    ///
    /// # Errors
    /// As [`Storage::remove`], and that of the processes' end.
    pub(crate) async fn remove_after(
        self,
        processes: impl Future<Output = Result<(), Failure>>,
        until: tokio::time::Instant,
    ) -> Result<(), Failure> {
        let ended = tokio::time::timeout_at(until - REMOVALS, processes).await.unwrap_or(Ok(()));
        self.remove(until).await.and(ended)
    }

    /// Removes everything. Waits until it is gone, at most until `until`.
    ///
    /// # Errors
    /// Something could not be removed, or not in that time.
    async fn remove(mut self, until: tokio::time::Instant) -> Result<(), Failure> {
        let leaving = Failure::new(Kind::Gone, "receive files: the app is ending on this node");
        self.receives.cut_off(None, &leaving);
        self.removals.retain(|(_, removal)| removal.is_running());
        for session in self.sessions.keys().copied().collect::<Vec<_>>() {
            drop(self.close_session(session));
        }
        let (mut stuck, mut failure) = (Vec::new(), None);
        for (session, removal) in self.removals {
            let root = removal.root.clone();
            match tokio::time::timeout_at(until, removal.over()).await {
                Ok(removed) => failure = removed.err().or(failure),
                Err(_) => {
                    let root = root.map_or_else(String::new, |root| format!(" ({})", root.display()));
                    stuck.push(format!("session {session}{root}"));
                }
            }
        }
        if !stuck.is_empty() {
            return Err(Failure::new(
                Kind::TimedOut,
                format!("remove {}: its file system has not done it in time, so it stays there", stuck.join(", ")),
            )
            .with_hint("see to that file system; your next session on that node removes what is left, as `gantry-agent sweep` does"));
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        Home::leave(self.home, until).await
    }
}

fn not_open(session: SessionId) -> Failure {
    Failure::new(Kind::Gone, format!("session {session} is not open on this node"))
}

fn closed(session: SessionId) -> Failure {
    Failure::new(Kind::Gone, format!("receive files: session {session} was closed"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const SESSION: SessionId = SessionId(1);

    fn with_session() -> Storage {
        let mut storage = Storage::new("3kx9w0fz".parse().unwrap(), NodeId(0), None);
        storage.sessions.insert(SESSION, Session::default());
        storage
    }

    #[tokio::test]
    async fn a_second_call_waits_for_the_removal_that_runs() {
        let mut storage = with_session();
        let (open, gate) = channel::<()>();
        storage.in_session(SESSION, move |_| assert!(gate.recv().is_err())).unwrap();
        let first = storage.close_session(SESSION);
        let mut second = std::pin::pin!(storage.close_session(SESSION));
        assert!(tokio::time::timeout(Duration::ZERO, &mut second).await.is_err());
        drop(open);
        assert_eq!((first.await, second.await), (Ok(Answer::Done), Ok(Answer::Done)));
        assert_eq!(storage.close_session(SESSION).await, Ok(Answer::Done));
        assert!(storage.removals.is_empty());
    }

    #[tokio::test]
    async fn what_hangs_before_a_removal_leaves_it_its_time() {
        let storage = with_session();
        let until = tokio::time::Instant::now() + REMOVALS + Duration::from_millis(10);
        assert_eq!(storage.remove_after(std::future::pending(), until).await, Ok(()));
    }

    #[tokio::test]
    async fn a_removal_that_failed_says_so_to_every_call() {
        let mut storage = with_session();
        storage.in_session(SESSION, |_| panic!("the thread of this session ends here")).unwrap();
        let failure = storage.close_session(SESSION).await.unwrap_err();
        assert_eq!(storage.close_session(SESSION).await, Err(failure));
    }
}
