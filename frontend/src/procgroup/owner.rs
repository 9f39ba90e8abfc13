//! The process that owns a group which a message has started, from the start until the group is forgotten.
//!
//! It is the command line in a hidden mode. It is no child of the requesting process, and has its own session. When
//! its group has ended, it keeps the record for an hour, or until a client has it forgotten.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use gantry_types::error::{Failure, Kind};
use gantry_types::id::NodeId;
use gantry_types::rank_set::NodeSet;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::time::timeout;

use super::create::{Order, plan, program_of};
use super::request::CreateGroup;
use crate::control::protocol::Answer;
use crate::control::{Registry, keep, user_name};
use crate::error::{Error, Result};
use crate::{App, Config, DaemonRequest, Event, Frontend, LaunchRequest, OutputTo, Session};

/// How long the record of an ended group is kept.
const KEPT: Duration = Duration::from_secs(3600);

/// The timeout for ending everything: the daemons' grace period and a margin.
const END: Duration = Duration::from_secs(30);

/// The longest order: a message and a margin.
const MAX_ORDER_BYTES: u64 = 64 << 20;

/// How long the starting process may take to send the order.
const SILENT: Duration = Duration::from_secs(30);

/// Owns a group: reads its order from `asker`, starts it, reports that to `asker`, and stays until the group is
/// forgotten. Completion of `interrupted` ends the group. Must be called within a tokio runtime.
///
/// # Errors
/// There is no order. `asker` gets all other failures.
pub async fn own(asker: UnixStream, interrupted: impl Future<Output = ()>) -> Result<()> {
    let failed = |e| Error::io("cannot read which group to start", e);
    asker.set_nonblocking(true).map_err(failed)?;
    let (from, mut to) = tokio::net::UnixStream::from_std(asker).map_err(failed)?.into_split();
    let mut line = String::new();
    let mut from = BufReader::new(from.take(MAX_ORDER_BYTES));
    let read = timeout(SILENT, from.read_line(&mut line)).await;
    read.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(failed)?;
    let order: Order = serde_json::from_str(&line).map_err(|e| Error::Protocol(e.to_string()))?;
    tokio::pin!(interrupted);
    let started = tokio::select! {
        started = start(&order) => started,
        () = &mut interrupted => return Ok(()),
    };
    let (answer, started) = match started {
        Ok(started) => (Answer::Ok(started.pgid), Some(started)),
        Err(error) => (Answer::Error(error.to_failure()), None),
    };
    let mut said = serde_json::to_vec(&answer).map_err(|e| Error::Internal(e.to_string()))?;
    said.push(b'\n');
    let told = to.write_all(&said).await;
    drop((from, to));
    let Some(started) = started else { return Ok(()) };
    if told.is_err() {
        // The requesting process has gone without the group's number.
        return started.app.close(END).await;
    }
    stay(started, interrupted).await
}

/// A running group.
struct Started {
    app: App,
    pgid: u32,
    submitter: String,
    registry: Registry,
    /// The storage of its co-processes, which lives as long as the group.
    _session: Option<Session>,
}

async fn start(order: &Order) -> Result<Started> {
    let Order { create, dir, runtime_dir, timeout_ms } = order;
    let deadline = Duration::from_millis(*timeout_ms);
    let registry = Registry::open(Some(runtime_dir))?;
    let submitter = create.submitter.clone().unwrap_or_else(|| user_name(registry.uid()));
    let daemons = co_processes(create, dir)?;
    let request = LaunchRequest::of_mixed(plan(create, dir)?)
        .cwd(dir)
        .submitter(&submitter)
        .output(open_output(create)?)
        .hold(!daemons.is_empty());
    let config =
        Config { runtime_dir: Some(runtime_dir.clone()), wlm: create.wlm.clone(), ..Config::default() };
    let app = Frontend::new(config).launch(request, deadline).await?;
    let pgid = app.pgid().ok_or_else(|| Error::Internal("the group has no number".to_owned()))?;
    let session = match start_beside(&app, create, daemons, deadline).await {
        Ok(session) => session,
        Err(error) => {
            drop(app.close(END).await);
            return Err(error);
        }
    };
    Ok(Started { app, pgid, submitter, registry, _session: session })
}

/// A tool daemon beside the processes of a specification.
struct CoProcess {
    /// The number of the specification.
    spec: usize,
    program: OsString,
    args: Vec<String>,
}

/// The co-processes of a group. Paths are based on the directory of the processes beside them.
fn co_processes(create: &CreateGroup, dir: &Path) -> Result<Vec<CoProcess>> {
    let mut daemons = Vec::new();
    for (at, spec) in create.specs.iter().enumerate() {
        let Some(command) = &spec.co_process else { continue };
        let mut words = command.split_whitespace();
        let program = words.next().ok_or_else(|| Error::invalid("a co-process without a program"))?;
        let dir = spec.cwd.as_ref().map_or_else(|| dir.to_path_buf(), |cwd| dir.join(cwd));
        let args = words.map(str::to_owned).collect();
        daemons.push(CoProcess { spec: at, program: program_of(program, &dir)?, args });
    }
    Ok(daemons)
}

/// Starts the co-processes beside held ranks, and then releases the ranks.
async fn start_beside(
    app: &App,
    create: &CreateGroup,
    daemons: Vec<CoProcess>,
    timeout: Duration,
) -> Result<Option<Session>> {
    if daemons.is_empty() {
        return Ok(None);
    }
    let session = app.session(timeout).await?;
    let mixed = plan(create, Path::new("/"))?;
    let placement = app.placement();
    for CoProcess { spec, program, args } in daemons {
        let Some(part) = mixed.parts.get(spec) else { continue };
        let nodes: NodeSet = (0..placement.node_count())
            .map(NodeId)
            .filter(|node| !placement.ranks_on(*node).is_disjoint(&part.ranks))
            .collect();
        let request = DaemonRequest::new(program).args(args).nodes(nodes);
        session.manifest().exec_daemon(request, timeout).await?;
    }
    app.release(timeout).await?;
    Ok(Some(session))
}

/// The file to which the group's output is appended.
fn open_output(create: &CreateGroup) -> Result<OutputTo> {
    let Some(path) = &create.output else { return Ok(OutputTo::Null) };
    let open = || -> io::Result<File> { OpenOptions::new().create(true).append(true).open(path) };
    let opened = || open().map_err(|e| Error::io(format!("cannot write to {path}"), e));
    Ok(OutputTo::Fds { stdout: opened()?.into(), stderr: opened()?.into() })
}

/// Stays with the group, and then with its record.
async fn stay(started: Started, interrupted: impl Future<Output = ()>) -> Result<()> {
    let Started { app, pgid, submitter, registry, _session } = started;
    tokio::pin!(interrupted);
    let mut events = app.events();
    let ended = async {
        while let Some(event) = events.next().await {
            if matches!(event, Event::Exited(_)) {
                return true;
            }
        }
        false
    };
    let ended = tokio::select! {
        ended = ended => ended,
        () = &mut interrupted => false,
    };
    if !ended {
        return app.close(END).await;
    }
    // Keep the record before the app disappears, so that the group is known at every moment.
    let kept = keep(app.info(), app.sessions(), (pgid, submitter), &registry);
    drop(_session);
    let closed = app.close(END).await;
    let mut kept = kept?;
    tokio::select! {
        () = kept.ended() => {}
        () = &mut interrupted => {}
        () = tokio::time::sleep(KEPT) => {}
    }
    kept.close().await;
    closed
}

/// The answer to an order that cannot be carried out.
#[must_use]
pub fn not_for_people() -> Error {
    let failure = Failure::new(Kind::Invalid, format!("{} is not for people", super::create::OWNER_OPTION));
    Error::Node { hosts: Vec::new(), failure: failure.with_hint("write the message to 'gantry pm'") }
}
