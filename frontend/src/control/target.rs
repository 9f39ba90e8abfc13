//! What the control server needs of an app, and how a live app does it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use gantry_types::filter::Filter;
use gantry_types::id::{DaemonId, SessionId};
use gantry_types::output::DaemonOutput;
use gantry_types::rank_set::RankSet;
use gantry_types::signal::Signal;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::protocol::DaemonOrder;
use crate::channel::{Policy, Reduced};
use crate::error::{Error, Result};
use crate::event::{Event, Exit};
use crate::info::AppInfo;
use crate::procgroup::Numbers;
use crate::request::DaemonRequest;
use crate::{AppHandle, Daemon, Events, Manifest, OutputStream, Session};

/// How long to wait for more output of a daemon that has ended: a child of it may keep the pipe open for ever.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long a session may take to go.
const SESSION_END: Duration = Duration::from_secs(20);

/// An app, as far as the server needs it.
#[async_trait]
pub(crate) trait Target: Send + Sync + 'static {
    fn info(&self) -> AppInfo;
    /// How it stands, then what happens; ends when the app is gone.
    fn events(&self) -> Box<dyn Feed>;
    /// The sessions that it has had.
    fn sessions(&self) -> Numbers;
    /// Forgets an app that has ended and is kept.
    fn forget(&self) -> Result<()>;
    async fn release(&self, timeout: Duration) -> Result<()>;
    async fn signal(&self, signal: Signal, ranks: Option<&RankSet>, timeout: Duration) -> Result<()>;
    async fn kill(&self, timeout: Duration) -> Result<Exit>;
    /// What happens to the daemon, until it has ended everywhere. Dropping the feed ends a daemon whose output is forwarded. Until it is started,
    /// `news` gets what is wanted of how far its files are; what finds no room there is dropped, but for the end.
    async fn start_daemon(
        &self,
        order: DaemonOrder,
        news: mpsc::Sender<Event>,
        timeout: Duration,
    ) -> Result<(DaemonId, Box<dyn Feed>)>;
    /// Starts a daemon and opens its channel. The daemon ends when that is dropped.
    async fn open_channel(
        &self,
        order: DaemonOrder,
        timeout: Duration,
    ) -> Result<(DaemonId, Box<dyn Conversation>)>;
}

/// The channel of a daemon.
#[async_trait]
pub(crate) trait Conversation: Send {
    async fn broadcast(&self, tag: u32, bytes: &[u8], timeout: Duration) -> Result<()>;
    /// What its processes contribute; those that do not are in the result too.
    async fn reduce(&self, tag: u32, filter: Filter, timeout: Duration) -> Result<Reduced>;
}

#[async_trait]
impl Conversation for Session {
    async fn broadcast(&self, tag: u32, bytes: &[u8], timeout: Duration) -> Result<()> {
        // Who does not get it does not answer either, which the next reduction tells.
        self.channel().broadcast(tag, bytes, timeout).await.map(drop)
    }

    async fn reduce(&self, tag: u32, filter: Filter, timeout: Duration) -> Result<Reduced> {
        self.channel().reduce(tag, filter, Policy::BestEffort, timeout).await
    }
}

/// Events, one after the other. Nothing is lost when the future of `next` is dropped.
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
    ) -> Result<(DaemonId, Box<dyn Feed>)> {
        let (forward, progress) = (order.forward, order.progress);
        let (session, manifest, request) = prepare(self, order, timeout).await?;
        let request = request.output(if forward { DaemonOutput::Forward } else { DaemonOutput::Drop });
        // Before the start, so that no news of the daemon is missed.
        let events = AppHandle::events(self);
        let starting = manifest.exec_daemon(request, timeout);
        let daemon = match progress {
            true => tell_progress(AppHandle::events(self), session.id(), news, starting).await,
            false => starting.await,
        };
        let daemon = Arc::new(daemon?);
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
        Ok((feed.daemon, Box::new(feed)))
    }

    async fn open_channel(
        &self,
        order: DaemonOrder,
        timeout: Duration,
    ) -> Result<(DaemonId, Box<dyn Conversation>)> {
        let (session, manifest, request) = prepare(self, order, timeout).await?;
        let daemon = manifest.exec_daemon(request.output(DaemonOutput::Drop), timeout).await?;
        Ok((daemon.id(), Box::new(session)))
    }
}

/// A session for a daemon, with what is to be put there.
async fn prepare(
    app: &AppHandle,
    order: DaemonOrder,
    timeout: Duration,
) -> Result<(Session, Manifest, DaemonRequest)> {
    let mut request = DaemonRequest::new(order.program.0).args(order.args.into_iter().map(|arg| arg.0));
    for (name, value) in order.env {
        request = request.env(name.0, value.0);
    }
    if let Some(hosts) = &order.hosts {
        request = request.nodes(app.nodes_by_hosts(hosts)?);
    }
    let session = app.session(timeout).await?;
    let mut manifest = session.manifest();
    if order.without_dependencies {
        manifest.without_dependencies();
    }
    if order.allow_missing {
        manifest.allow_missing();
    }
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
    Ok((session, manifest, request))
}

/// Does `work`, and passes on meanwhile how far the session's files are. Who reads slowly hears of that less often, but always of the end.
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
        // An event is taken when there is room for it, so none is lost when the work ends first.
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
            // Who hears no more is seen by whom this goes to.
            drop(news.send(event).await);
        }
    }
    done
}

/// Keeps a daemon's session until the daemon has ended, or nobody wants it any more.
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

/// What happens to one daemon.
struct DaemonFeed {
    daemon: DaemonId,
    /// On how many nodes its start has not been told. What it writes is told after that.
    starting: usize,
    /// On how many nodes its end has not been told.
    running: usize,
    events: Events,
    output: Option<OutputStream>,
    /// Dropped with the feed, which the session's keeper sees.
    _lives: oneshot::Sender<()>,
}

#[async_trait]
impl Feed for DaemonFeed {
    async fn next(&mut self) -> Option<Event> {
        loop {
            tokio::select! {
                // What it wrote comes before its end where both are there.
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

/// The daemon that an event tells of.
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

    /// The work may end in the moment in which the last of it is told.
    #[tokio::test]
    async fn what_is_told_before_the_work_ends_is_passed_on() {
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
