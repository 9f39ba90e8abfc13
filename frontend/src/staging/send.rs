//! Asks the nodes of a session which files of a plan they lack, and sends these, once, to the nodes that lack some.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use gantry_shared::wire::message::{Answer, Order, Place};
use gantry_types::id::SessionId;
use gantry_types::rank_set::NodeSet;
use gantry_wlm::{Reach, reach};
use tokio::time::{Instant, timeout_at};

use super::plan::Plan;
use super::progress::Throttle;
use super::squeeze::is_worth_packing;
use super::stream::Archive;
use super::want::Want;
use crate::app::core::Core;
use crate::app::state::Happening;
use crate::error::{Error, Result};
use crate::event::{Staging, StagingEnd};
use crate::lock::lock;
use crate::session::inner::Inner;

/// The most bytes of names in one order: the order must fit into a frame.
const ORDER_BYTES: usize = 256 * 1024;

const ASKING: &str = "asking nodes what they lack";

/// The outcome of sending a manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Staged {
    /// The number of files of the manifest, with all dependencies except the C library.
    pub files: usize,
    /// How many of them were sent because at least one node lacked them.
    pub files_sent: usize,
    /// Bytes that this machine sent on each of its links; every file went once.
    pub bytes_sent: u64,
    /// The nodes that lacked something.
    pub nodes_sent: NodeSet,
}

/// The missing files of nodes.
#[derive(Debug, Default)]
struct Lack {
    /// Indices of wants.
    files: BTreeSet<usize>,
    nodes: NodeSet,
}

/// Makes all files of the plan available on every reachable node of the session.
///
/// # Errors
/// A node cannot store a file, or a file has changed since it was planned.
pub(crate) async fn send(session: &Inner, plan: &mut Plan, deadline: Instant) -> Result<Staged> {
    let mut done = Staged { files: plan.files, ..Staged::default() };
    if plan.wants.is_empty() && plan.libc.is_none() {
        return Ok(done);
    }
    // The C library's family goes with its requirements, so it comes first.
    let mut wants = std::mem::take(&mut plan.wants);
    wants.sort_by_key(|want| want.place != Place::Loader);
    let nodes = session.live_nodes();
    let lack = ask(session, &nodes, &wants, plan, deadline).await?;
    if lack.files.is_empty() {
        return Ok(done);
    }
    let is_part = |index: &usize| wants.get(*index).is_some_and(|want| want.place != Place::Loader);
    // A node that does not need the family has not linked it.
    let linked =
        (0..wants.len()).filter(is_part).count() - lack.files.iter().filter(|index| is_part(index)).count();
    let mut index = 0..;
    wants.retain(|_| index.next().is_some_and(|index| lack.files.contains(&index)));
    let archive = Archive::new(wants)?;
    done.files_sent = archive.files();
    done.nodes_sent = lack.nodes;
    done.bytes_sent = deliver(session, archive, &done.nodes_sent, linked, deadline).await?;
    Ok(done)
}

async fn ask(
    session: &Inner,
    nodes: &NodeSet,
    wants: &[Want],
    plan: &Plan,
    deadline: Instant,
) -> Result<Lack> {
    let mut lack = Lack::default();
    let mut libc = plan.libc.clone();
    let mut begin = 0;
    for portion in in_portions(wants) {
        let (count, entries) = (portion.len(), portion.iter().map(Want::build_entry).collect());
        let order = Order::Provide { session: session.id, entries, libc: libc.take() };
        for (node, answer) in session.core.ask(nodes, order, ASKING, deadline).await? {
            let Answer::Missing(missing) = answer else {
                return Err(Error::Protocol(format!("an agent answered {answer:?} to a manifest")));
            };
            for index in missing.iter().map(|index| index.0 as usize) {
                if index >= count {
                    return Err(Error::Protocol(
                        "an agent reports a missing file that was not offered".to_owned(),
                    ));
                }
                lack.files.insert(begin + index);
                lack.nodes.insert(node);
            }
        }
        begin += count;
    }
    Ok(lack)
}

/// Sends the archive, reports progress, and returns the number of bytes sent.
async fn deliver(
    session: &Inner,
    archive: Archive,
    nodes: &NodeSet,
    linked: usize,
    deadline: Instant,
) -> Result<u64> {
    let core = &session.core;
    let files = archive.files() as u64;
    let (archive, packed) = choose_packing(archive, reach(core.wlm), deadline).await?;
    let mut over = Over { core, session: session.id, told: Arc::default(), staged: None };
    let news = Staging {
        app: core.app,
        session: session.id,
        bytes: 0,
        total_bytes: archive.bytes(),
        files,
        nodes: nodes.len(),
    };
    let (session_id, total, copied_bytes) = (session.id, archive.bytes(), archive.copied_bytes());
    let announced = u32::try_from(files).map_err(|_| Error::invalid("too many files for one manifest"))?;
    let announce = |stream| Order::Receive {
        session: session_id,
        stream,
        bytes: total,
        files: announced,
        copied_bytes,
        compressed: packed,
    };
    let reader = archive.start(packed, tell(core, Arc::clone(&over.told), news));
    let sent = reader.watch();
    // The archive's builder reports the progress, since it knows the uncompressed size.
    let answers = core.overlay.send_bulk(nodes.clone(), announce, reader, |_| (), deadline).await;
    let answers = answers.and_then(|answers| core.accept(answers).map(drop));
    let (bytes, failure) = {
        let mut sent = lock(&sent);
        (sent.bytes, sent.failure.take())
    };
    // A file that could not be read is the cause of the other failures.
    if let Some(failure) = failure {
        return Err(failure);
    }
    answers?;
    let (files_sent, files_linked) = (files, linked as u64);
    let staged = StagingEnd {
        app: core.app,
        session: session.id,
        bytes_sent: bytes,
        files_sent,
        files_linked,
        nodes: nodes.len(),
    };
    over.staged = Some(staged);
    Ok(bytes)
}

async fn choose_packing(archive: Archive, reach: Reach, deadline: Instant) -> Result<(Archive, bool)> {
    // On this machine compression saves nothing.
    if reach == Reach::ThisMachine {
        return Ok((archive, false));
    }
    in_time(deadline, move || {
        let sample = archive.sample();
        let packed = is_worth_packing(archive.bytes(), sample);
        Ok((archive, packed))
    })
    .await
}

/// Runs blocking work on its own thread.
///
/// # Errors
/// The work's error; [`Error::TimedOut`] when it takes too long. The thread then continues on its own.
pub(crate) async fn in_time<T: Send + 'static>(
    deadline: Instant,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let started = Instant::now();
    match timeout_at(deadline, tokio::task::spawn_blocking(work)).await {
        Ok(done) => done?,
        Err(_late) => Err(Error::TimedOut {
            phase: "reading the files to stage",
            after: deadline.saturating_duration_since(started),
            missing: Vec::new(),
        }),
    }
}

/// Reports how many bytes are sent, at a limited rate.
fn tell(core: &Arc<Core>, over: Arc<Mutex<bool>>, mut news: Staging) -> impl FnMut(u64) + Send + 'static {
    let mut throttle = Throttle::new(news.total_bytes);
    // Hold a weak reference: a thread that hangs in a read must not keep an ended app alive.
    let core = Arc::downgrade(core);
    move |bytes| {
        if throttle.admit(bytes, Instant::now())
            && let Some(core) = core.upgrade()
            // The lock is held during the report, so nothing comes after the end.
            && let over = lock(&over)
            && !*over
        {
            news.bytes = bytes;
            core.happened(Happening::Staging(news.clone()));
        }
    }
}

/// Ends the reports of [`tell`], even if the future is dropped.
struct Over<'a> {
    core: &'a Core,
    session: SessionId,
    told: Arc<Mutex<bool>>,
    staged: Option<StagingEnd>,
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        *lock(&self.told) = true;
        self.core.happened(Happening::StagingOver(self.session, self.staged.take()));
    }
}

/// Splits a long list so that every portion fits into an order. An empty list is one empty portion.
fn in_portions(wants: &[Want]) -> impl Iterator<Item = &[Want]> {
    let mut rest = Some(wants);
    std::iter::from_fn(move || {
        let wants = rest.take()?;
        let mut bytes = 0;
        let fits = |want: &&Want| {
            let known = want.known.as_ref().map_or(0, |(_, name)| name.len());
            bytes += want.name.len() + want.source.path.as_os_str().len() + known + 160;
            bytes <= ORDER_BYTES
        };
        let count = wants.iter().take_while(fits).count().max(1).min(wants.len());
        let (portion, others) = wants.split_at(count);
        rest = Some(others).filter(|others| !others.is_empty());
        Some(portion)
    })
}
