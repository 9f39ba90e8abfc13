//! The channel of a session: connects the tool and all its daemons over the overlay.
//!
//! | module | content |
//! | --- | --- |
//! | [`Channel`] | what a tool does with it |
//! | [`Policy`], [`Missing`] | what happens to an operation when members fail |
//! | `sending` | messages to daemons, small ones and large ones |
//! | `collecting` | incoming contributions of daemons |
//! | `taking` | complete parts: kept apart, or merged |
//! | `inbox`, `messages` | what daemons send unasked: the queue, and the stream for the tool |
//! | `hub` | assigns what arrives to its operation or session |
//!
//! Windows bound every queue. A daemon that does not read stops its senders, and a tool that does not read stops the
//! daemons.

mod collecting;
pub(crate) mod hub;
mod inbox;
mod messages;
pub(crate) mod policy;
mod sending;
mod taking;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gantry_shared::deadline::bounded;
use gantry_shared::wire::channel::{ChannelOrder, MemberSet};
use gantry_shared::wire::message::To;
use gantry_types::error::{Failure, Kind};
use gantry_types::filter::{Filter, Reduce};
use tokio::time::{Instant, sleep_until};

pub use gantry_shared::wire::channel::Member;

use self::collecting::{Collecting, Outcome};
pub use self::hub::StartFilter;
use self::hub::{Coming, Operation};
pub use self::inbox::Message;
pub use self::messages::MessageStream;
pub use self::policy::{Missing, Policy};
use self::taking::{Merge, Taking};
use crate::error::{Error, Result};
use crate::lock::lock;
use crate::session::inner::Inner;

/// Longest part of a reduction's timeout kept for forwarding partial results before it expires.
const MOST_HURRY: Duration = Duration::from_secs(1);

/// A session's channel. Clones are the same channel.
///
/// Its members are the daemons that were started in the session and had not ended when an operation begins. A daemon's
/// last contribution counts even if the daemon has ended. Operations with one tag run one after the other, in the order
/// in which they are begun. Operations with different tags run at once. Messages of one sender to one receiver keep
/// their order.
///
/// ```no_run
/// use std::time::Duration;
/// use gantry_frontend::{Config, DaemonRequest, Frontend, LaunchRequest, Policy, filter::Filter};
///
/// # async fn tool() -> gantry_frontend::Result<()> {
/// let minute = Duration::from_secs(60);
/// let app = Frontend::new(Config::default()).launch(LaunchRequest::new(["-n", "4", "./solver"]), minute).await?;
/// let session = app.session(minute).await?;
/// session.manifest().exec_daemon(DaemonRequest::new("./my_daemon"), minute).await?;
///
/// let channel = session.channel();
/// channel.broadcast(1, b"where are you?", minute).await?;
/// let answers = channel.gather(1, Policy::All, minute).await?;
/// for (member, answer) in &answers.parts {
///     println!("node {}: {}", member.node, String::from_utf8_lossy(answer));
/// }
/// let stacks = channel.reduce(2, Filter::PrefixTree, Policy::BestEffort, minute).await?;
/// println!("{} bytes of stacks; {} daemons are missing", stacks.bytes.len(), stacks.missing.len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Channel {
    session: Arc<Inner>,
}

/// The result of a gather.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gathered {
    /// The contribution of each member.
    pub parts: BTreeMap<Member, Vec<u8>>,
    /// The members without a contribution, each with the reason.
    pub missing: Vec<Missing>,
}

/// The result of a reduction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reduced {
    /// The result, in the encoding of the filter. Empty without any contribution.
    pub bytes: Vec<u8>,
    /// The number of members with a contribution in it.
    pub contributed: u64,
    /// The members without one, each with the reason.
    pub missing: Vec<Missing>,
}

impl Channel {
    pub(crate) fn new(session: Arc<Inner>) -> Self {
        Self { session }
    }

    /// The daemons that are members now.
    pub fn members(&self) -> Vec<Member> {
        let state = self.session.core.state();
        self.session.end.members().iter().filter(|member| !state.has_daemon_ended(*member)).collect()
    }

    /// Waits until each member has contributed once with this tag. Returns the contributions.
    ///
    /// One contribution has at most 64 MiB, all together at most 1 GiB.
    ///
    /// # Errors
    /// [`Error::Incomplete`] with the missing members, if the policy does not allow that; [`Error::Gone`] when the
    /// session ends; [`Error::Invalid`] without members or with a quorum of more than there are, when all had ended before and left nothing (but not with
    /// [`Policy::BestEffort`]), or when all contributions together are too large.
    pub async fn gather(&self, tag: u32, policy: Policy, timeout: Duration) -> Result<Gathered> {
        let deadline = Instant::now() + bounded(timeout);
        let mut parts = BTreeMap::new();
        let Outcome { missing, .. } =
            self.collect("gathering contributions", tag, None, policy, deadline, &mut parts).await?;
        Ok(Gathered { parts, missing })
    }

    /// Waits until each member has contributed once with this tag. The filter merges contributions on their way up the
    /// tree.
    ///
    /// A daemon that serves a [custom](Filter::Custom) filter merges there. The frontend merges if the filter was
    /// [registered](Channel::register_filter). With [`Filter::Concatenate`] daemons contribute any bytes, and the
    /// result names the daemon of each part.
    ///
    /// # Errors
    /// As [`Channel::gather`]; [`Error::Node`] when the results of different nodes cannot be merged.
    pub async fn reduce(
        &self,
        tag: u32,
        filter: Filter,
        policy: Policy,
        timeout: Duration,
    ) -> Result<Reduced> {
        let deadline = Instant::now() + bounded(timeout);
        let mut one = Merge::new(filter.clone(), self.start_filter(&filter)?);
        let phase = "reducing contributions";
        let Outcome { missing, contributed } =
            self.collect(phase, tag, Some(filter), policy, deadline, &mut one).await?;
        let bytes = one.finish().await.map_err(|failure| Error::Node { hosts: Vec::new(), failure })?;
        Ok(Reduced { bytes, contributed, missing })
    }

    /// Registers a filter of the tool's own for reductions of this session. It merges the parts that no daemon on the
    /// way has merged, on a thread that may block.
    pub fn register_filter(&self, name: &str, start: StartFilter) {
        lock(&self.session.end.filters).insert(name.to_owned(), start);
    }

    /// Messages that daemons send unasked with this tag. A sender stops once 256 KiB of its messages wait here, so take
    /// the messages of all tags that daemons use.
    pub fn messages(&self, tag: u32) -> MessageStream {
        MessageStream::new(Arc::clone(&self.session.end), Arc::clone(&self.session.core), tag)
    }

    fn start_filter(&self, filter: &Filter) -> Result<Option<Box<dyn Reduce>>> {
        match filter {
            Filter::Custom(name) => Ok(lock(&self.session.end.filters).get(name).map(|start| start())),
            filter => match filter.start() {
                Ok(reducer) => Ok(Some(reducer)),
                Err(failure) => Err(Error::Node { hosts: Vec::new(), failure }),
            },
        }
    }

    async fn collect(
        &self,
        phase: &'static str,
        tag: u32,
        filter: Option<Filter>,
        policy: Policy,
        deadline: Instant,
        taking: &mut impl Taking,
    ) -> Result<Outcome> {
        let started = Instant::now();
        self.session.check_alive()?;
        let core = &self.session.core;
        let merges = filter.is_some();
        let (of, ended, lost) = {
            let state = core.state();
            let all = self.session.end.members();
            let live = state.live_nodes();
            let ended: MemberSet = all.iter().filter(|member| state.has_daemon_ended(*member)).collect();
            (all.on(&live), ended.on(&live), all.difference(&all.on(&live)))
        };
        if of.is_empty() {
            let message = if lost.is_empty() {
                "the session has no daemon"
            } else {
                "all nodes with daemons of the session are lost"
            };
            return Err(Error::invalid(message));
        }
        if let Policy::Quorum(wanted) = policy
            && wanted > of.len()
        {
            let message = format!("a quorum of {wanted}, but the session has {} daemons", of.len());
            return Err(Error::Invalid {
                message,
                hint: Some("ask for fewer, or start more daemons".to_owned()),
            });
        }
        let mut operation = core.channels.begin(self.session.id, of.nodes());
        let order = ChannelOrder::Collect {
            session: self.session.id,
            operation: operation.number(),
            tag,
            of: of.clone(),
            filter,
        };
        let mut collecting = Collecting::new(of.clone(), ended, merges);
        operation.tell(To::Nodes(of.nodes()), order);
        let over = run(&mut operation, &mut collecting, policy, (started, deadline, merges), taking).await;
        let host = |member: Member| core.state().host(member.node);
        match over? {
            true => collecting.conclude(phase, policy, &host),
            false => Err(Error::Gone { what: format!("session {} of app {}", self.session.id, core.app) }),
        }
    }
}

/// Handles input until nothing can change the result. False: the session ended first.
async fn run(
    operation: &mut Operation,
    collecting: &mut Collecting,
    policy: Policy,
    (started, deadline, merges): (Instant, Instant, bool),
    taking: &mut impl Taking,
) -> Result<bool> {
    let hurry_time = deadline.saturating_duration_since(started).min(4 * MOST_HURRY) / 4;
    let mut hurried = !merges;
    while !collecting.is_over(policy) {
        let until = if hurried { deadline } else { deadline - hurry_time };
        let coming = tokio::select! {
            biased;
            coming = operation.next() => coming,
            () = sleep_until(until) => {
                if hurried {
                    collecting.expire();
                    break;
                }
                // Use the remaining time to forward what agents have merged of the other contributions.
                hurried = true;
                operation.hurry(hurry_time);
                continue;
            }
        };
        let part = match coming {
            None => return Ok(false),
            Some(Coming::Lost(nodes, reason)) => {
                collecting.lose(&nodes, &reason);
                Ok(None)
            }
            Some(Coming::Notice(node, notice)) => collecting.hear(node, notice),
            Some(Coming::Rest(node, part, bytes)) => collecting.feed(node, part, &bytes),
        };
        for (node, part, bytes) in collecting.take_credit() {
            operation.give_credit(node, part, bytes);
        }
        if let Some(part) = part? {
            let of = part.of.clone();
            if let Err(failure) = taking.take(part).await {
                refuse(collecting, merges, of, failure)?;
            }
        }
    }
    Ok(true)
}

/// Handles a part that cannot be merged. One member's part makes that member missing; a subtree's part fails the
/// reduction.
fn refuse(collecting: &mut Collecting, merges: bool, of: MemberSet, failure: Failure) -> Result<()> {
    if merges && (of.len() > 1 || failure.kind() == Kind::Unsupported) {
        return Err(Error::Node { hosts: Vec::new(), failure });
    }
    collecting.refuse(of, failure);
    Ok(())
}
