//! The interface of an app for the control server, and its implementation for a live app.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use gantry_shared::deadline::bounded;
use gantry_types::filter::Filter;
use gantry_types::id::{DaemonId, SessionId};
use gantry_types::output::DaemonOutput;
use gantry_types::rank_set::RankSet;
use gantry_types::signal::Signal;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};

use super::protocol::{DaemonNumber, DaemonOrder};
use crate::channel::{Policy, Reduced};
use crate::error::{Error, Result};
use crate::event::{Event, Exit};
use crate::info::AppInfo;
use crate::procgroup::Numbers;
use crate::request::DaemonRequest;
use crate::staging::send::in_time;
use crate::{AppHandle, Daemon, Events, Manifest, OutputStream, Session};

/// How long to wait for more output of an ended daemon: its child may keep the pipe open for ever.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The timeout for removing a session.
const SESSION_END: Duration = Duration::from_secs(20);

/// An app as the server needs it.
#[async_trait]
pub(crate) trait Target: Send + Sync + 'static {
    fn info(&self) -> AppInfo;
    /// The current state, then events; ends when the app is gone.
    fn events(&self) -> Box<dyn Feed>;
    /// The app's sessions so far.
    fn sessions(&self) -> Numbers;
    /// Forgets an ended app.
    fn forget(&self) -> Result<()>;
    /// Waits until output that this process writes is written.
    async fn output_written(&self) {}
    async fn release(&self, timeout: Duration) -> Result<()>;
    async fn signal(&self, signal: Signal, ranks: Option<&RankSet>, timeout: Duration) -> Result<()>;
    async fn kill(&self, timeout: Duration) -> Result<Exit>;
    /// The daemon's events, until it has ended on all nodes. Dropping the feed ends a daemon whose output is forwarded.
    /// Before the start, `news` gets the requested progress of its files. Reports are dropped when `news` is full,
    /// except the last.
    async fn start_daemon(
        &self,
        order: DaemonOrder,
        news: mpsc::Sender<Event>,
        timeout: Duration,
    ) -> Result<(DaemonNumber, Box<dyn Feed>)>;
    /// Starts a daemon and opens its channel. Dropping the channel ends the daemon.
    async fn open_channel(
        &self,
        order: DaemonOrder,
        timeout: Duration,
    ) -> Result<(DaemonNumber, Box<dyn Conversation>)>;
}

/// The channel of a daemon.
#[async_trait]
pub(crate) trait Conversation: Send {
    async fn broadcast(&self, tag: u32, bytes: &[u8], timeout: Duration) -> Result<()>;
    /// Collects the contributions of its processes. The result names those that did not contribute.
    async fn reduce(&self, tag: u32, filter: Filter, timeout: Duration) -> Result<Reduced>;
}

#[async_trait]
impl Conversation for Session {
    async fn broadcast(&self, tag: u32, bytes: &[u8], timeout: Duration) -> Result<()> {
        // A process that did not get the message does not answer. The next reduction reports that.
        self.channel().broadcast(tag, bytes, timeout).await.map(drop)
    }

    async fn reduce(&self, tag: u32, filter: Filter, timeout: Duration) -> Result<Reduced> {
        self.channel().reduce(tag, filter, Policy::BestEffort, timeout).await
    }
}

/// Events, one after the other. `next` is cancel-safe.
#[async_trait]
pub(crate) trait Feed: Send {
    async fn next(&mut self) -> Option<Event>;
}

#[async_trait]
impl Feed for Events {
    async fn next(&mut self) -> Option<Event> {
        Events::next(self).await
    }
}

#[async_trait]
impl Target for AppHandle {
    fn info(&self) -> AppInfo {
        AppHandle::info(self)
    }

    fn events(&self) -> Box<dyn Feed> {
        Box::new(AppHandle::events(self))
    }

    fn sessions(&self) -> Numbers {
        AppHandle::sessions(self)
    }

    fn forget(&self) -> Result<()> {
        Err(Error::Invalid {
            message: format!("app {} has not ended", self.id()),
            hint: Some("wait for it, or kill it, first".to_owned()),
        })
    }

    async fn output_written(&self) {
        AppHandle::output_written(self).await;
    }

    async fn release(&self, timeout: Duration) -> Result<()> {
        AppHandle::release(self, timeout).await
    }

    async fn signal(&self, signal: Signal, ranks: Option<&RankSet>, timeout: Duration) -> Result<()> {
        AppHandle::signal(self, signal, ranks, timeout).await
    }

    async fn kill(&self, timeout: Duration) -> Result<Exit> {
        AppHandle::kill(self, timeout).await
    }

    async fn start_daemon(
        &self,
        order: DaemonOrder,
        news: mpsc::Sender<Event>,
        timeout: Duration,
    ) -> Result<(DaemonNumber, Box<dyn Feed>)> {
        let (forward, progress) = (order.forward, order.progress);
        let Prepared { session, manifest, program, request } = prepare(self, order, timeout).await?;
        let request = request.output(if forward { DaemonOutput::Forward } else { DaemonOutput::Drop });
        // Subscribe before the start, so that no event of the daemon is missed.
        let events = AppHandle::events(self);
        let starting = manifest.exec_added(&program, request, Instant::now() + bounded(timeout));
        let daemon = match progress {
            true => tell_progress(AppHandle::events(self), session.id(), news, starting).await,
            false => starting.await,
        };
        let daemon = Arc::new(daemon?);
        let number = DaemonNumber { daemon: daemon.id(), left_out: session.left_out().to_vec() };
        let (feed_lives, feed_gone) = oneshot::channel();
        let feed = DaemonFeed {
            daemon: daemon.id(),
            starting: daemon.processes().len(),
            running: daemon.processes().len(),
            events,
            output: daemon.take_output(),
            _lives: feed_lives,
        };
        tokio::spawn(keep(session, daemon, forward.then_some(feed_gone)));
        Ok((number, Box::new(feed)))
    }

    async fn open_channel(
        &self,
        order: DaemonOrder,
        timeout: Duration,
    ) -> Result<(DaemonNumber, Box<dyn Conversation>)> {
        let Prepared { session, manifest, program, request } = prepare(self, order, timeout).await?;
        let request = request.output(DaemonOutput::Drop);
        let daemon = manifest.exec_added(&program, request, Instant::now() + bounded(timeout)).await?;
        let number = DaemonNumber { daemon: daemon.id(), left_out: session.left_out().to_vec() };
        Ok((number, Box::new(session)))
    }
}

/// A daemon whose files were found.
struct Prepared {
    session: Session,
    manifest: Manifest,
    program: PathBuf,
    request: DaemonRequest,
}

/// Opens a session for a daemon and finds its files.
async fn prepare(app: &AppHandle, order: DaemonOrder, timeout: Duration) -> Result<Prepared> {
    let mut request = DaemonRequest::new(order.program.0).args(order.args.into_iter().map(|arg| arg.0));
    for (name, value) in order.env {
        request = request.env(name.0, value.0);
    }
    if let Some(hosts) = &order.hosts {
        request = request.nodes(app.nodes_by_hosts(hosts)?);
    }
    let session = match order.leave_out {
        true => app.session_where_answered(timeout).await?,
        false => app.session(timeout).await?,
    };
    let mut manifest = session.manifest();
    if order.without_dependencies {
        manifest.without_dependencies();
    }
    if order.allow_missing {
        manifest.allow_missing();
    }
    // A client's files may be many, or on a file system that hangs. That concerns only its own request.
    let program = PathBuf::from(&request.program);
    let found = in_time(Instant::now() + bounded(timeout), move || {
        for path in order.files {
            manifest.add_file(path.0)?;
        }
        for path in order.binaries {
            manifest.add_binary(path.0)?;
        }
        for path in order.libraries {
            manifest.add_library(path.0)?;
        }
        for path in order.directories {
            manifest.add_lib_dir(path.0)?;
        }
        let program = manifest.add_program(&program)?;
        Ok((manifest, program))
    });
    let (manifest, program) = found.await?;
    Ok(Prepared { session, manifest, program, request })
}

/// Runs `work` and reports the progress of the session's files. A slow reader gets fewer reports, but always the last
/// one.
async fn tell_progress<T>(
    mut events: Events,
    session: SessionId,
    news: mpsc::Sender<Event>,
    work: impl Future<Output = T>,
) -> T {
    let is_wanted = |event: &Event| match event {
        Event::Staging(staging) => staging.session == session,
        Event::Staged(end) => end.session == session,
        _ => false,
    };
    let telling = async {
        // Take an event only when there is room for it, so that none is lost when the work ends first.
        while let Ok(room) = news.reserve().await
            && let Some(event) = events.next().await
        {
            if is_wanted(&event) {
                room.send(event);
            }
        }
        std::future::pending().await
    };
    let done = tokio::select! {
        never = telling => never,
        done = work => done,
    };
    while let Some(event) = events.try_next() {
        if is_wanted(&event) {
            // The receiver's owner notices its own end.
            drop(news.send(event).await);
        }
    }
    done
}

/// Keeps a daemon's session until the daemon has ended, or `unwanted` reports that its feed was dropped.
async fn keep(session: Session, daemon: Arc<Daemon>, unwanted: Option<oneshot::Receiver<()>>) {
    match unwanted {
        None => drop(daemon.wait().await),
        Some(unwanted) => tokio::select! {
            _ = daemon.wait() => {}
            _ = unwanted => {}
        },
    }
    if let Err(error) = session.destroy(SESSION_END).await {
        tracing::debug!(daemon = %daemon.id(), %error, "its session did not go by order");
    }
}

/// The events of one daemon.
struct DaemonFeed {
    daemon: DaemonId,
    /// On how many nodes its start has not been reported. Its output there comes after that.
    starting: usize,
    /// On how many nodes its end has not been reported.
    running: usize,
    events: Events,
    output: Option<OutputStream>,
    /// Dropped with the feed, which the session's keeper notices.
    _lives: oneshot::Sender<()>,
}

#[async_trait]
impl Feed for DaemonFeed {
    async fn next(&mut self) -> Option<Event> {
        loop {
            tokio::select! {
                // Output comes before the end if both are there.
                biased;
                output = next_output(&mut self.output), if self.output.is_some() && self.starting == 0 => match output {
                    Some(output) => return Some(Event::Output(output)),
                    None => self.output = None,
                },
                event = self.events.next(), if self.running > 0 => match event {
                    None => (self.starting, self.running) = (0, 0),
                    Some(event) if daemon_of(&event) == Some(self.daemon) => {
                        match event {
                            Event::DaemonStarted { .. } => self.starting = self.starting.saturating_sub(1),
                            _ => self.running = self.running.saturating_sub(1),
                        }
                        return Some(event);
                    }
                    Some(_) => {}
                },
                () = sleep(LAST_WORDS), if self.running == 0 && self.output.is_some() => self.output = None,
                else => return None,
            }
        }
    }
}

async fn next_output(output: &mut Option<OutputStream>) -> Option<crate::event::Output> {
    match output {
        Some(output) => output.next().await,
        None => None,
    }
}

/// The daemon of an event.
fn daemon_of(event: &Event) -> Option<DaemonId> {
    match event {
        Event::DaemonStarted { daemon, .. } | Event::DaemonExited { daemon, .. } => Some(*daemon),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use gantry_types::id::AppId;

    use super::*;
    use crate::event::StagingEnd;

    /// The work may end in the same moment as its last report.
    #[tokio::test]
    async fn reports_before_the_end_of_the_work_are_passed_on() {
        let (app, session): (AppId, _) = ("3kx9w0fz".parse().unwrap(), SessionId(1));
        let staged = |session| {
            let (bytes_sent, files_sent, files_linked, nodes) = (1, 1, 0, 1);
            Event::Staged(StagingEnd { app, session, bytes_sent, files_sent, files_linked, nodes })
        };
        let (sink, events) = Events::new(app, 1);
        let (news, mut told) = mpsc::channel(8);
        let work = async {
            assert!(sink.send(staged(SessionId(2))) && sink.send(staged(session)));
            "done"
        };
        assert_eq!(tell_progress(events, session, news, work).await, "done");
        let Some(Event::Staged(end)) = told.recv().await else { panic!("nothing is told") };
        assert_eq!((end.session, told.recv().await.is_none()), (session, true));
    }
}
