//! Messages to daemons. Small ones are orders, bounded by each receiver's window; large ones are bulk data.

use std::time::Duration;

use gantry_shared::deadline::{LONGEST, bounded};
use gantry_shared::wire::channel::{ChannelOrder, MAX_MESSAGE_BYTES, Member, MemberSet, cost_of};
use gantry_shared::wire::message::{Answer, Blob, Order, To};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::NodeId;
use tokio::io::AsyncRead;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::Channel;
use super::policy::Missing;
use crate::error::{Error, Result};
use crate::overlay::Outcome;

const PHASE: &str = "sending a message to daemons";

/// Parts of a scatter that are sent at once.
const AT_ONCE: usize = 64;

impl Channel {
    /// Sends a message to all members. Waits until it has arrived at all of them; they may read it later. Returns the
    /// members that will never get it: they have ended, or their node is lost.
    ///
    /// A message over 128 KiB goes as bulk data: in chunks, down a narrow tree, at the pace of the slowest node. A
    /// daemon that takes none of it for 30 s is dropped from it.
    ///
    /// # Errors
    /// [`Error::TimedOut`] names the nodes whose daemons have not taken it; they may do so later. [`Error::Gone`] when
    /// the session has ended, and for bulk data [`Error::Lost`] when nodes are lost in the middle of it.
    pub async fn broadcast(&self, tag: u32, bytes: &[u8], timeout: Duration) -> Result<Vec<Missing>> {
        self.deliver(self.live_members(), tag, bytes, Instant::now() + bounded(timeout)).await
    }

    /// As [`Channel::broadcast`], with the content of `source` as the message, read in pieces.
    ///
    /// # Errors
    /// As [`Channel::broadcast`], and [`Error::Io`] where `source` fails; daemons learn that the message was abandoned.
    pub async fn broadcast_from(
        &self,
        tag: u32,
        source: impl AsyncRead + Unpin,
        timeout: Duration,
    ) -> Result<Vec<Missing>> {
        self.deliver_stream(self.live_members(), tag, source, Instant::now() + bounded(timeout)).await
    }

    /// Sends a message to one member. Waits until it has arrived.
    ///
    /// # Errors
    /// As [`Channel::broadcast`]; [`Error::Node`] when the member has ended.
    pub async fn send(&self, member: Member, tag: u32, bytes: &[u8], timeout: Duration) -> Result<()> {
        let to = MemberSet::of(member);
        if self.session.end.members().intersection(&to) != to {
            return Err(Error::invalid(format!("the session has no {member}")));
        }
        let missing = self.deliver(to, tag, bytes, Instant::now() + bounded(timeout)).await?;
        match missing.into_iter().next() {
            None => Ok(()),
            Some(Missing { host, why, .. }) => Err(Error::Node { hosts: vec![host], failure: why }),
        }
    }

    /// Sends each of these members its own message. Waits until all messages have arrived. Returns the members that
    /// will never get theirs.
    ///
    /// # Errors
    /// As [`Channel::send`]; some members may have received their messages then.
    pub async fn scatter(
        &self,
        tag: u32,
        parts: impl IntoIterator<Item = (Member, Vec<u8>)>,
        timeout: Duration,
    ) -> Result<Vec<Missing>> {
        let deadline = Instant::now() + bounded(timeout);
        let parts: Vec<(Member, Vec<u8>)> = parts.into_iter().collect();
        let members = self.session.end.members();
        if let Some((member, _)) = parts.iter().find(|(member, _)| !members.contains(*member)) {
            return Err(Error::invalid(format!("the session has no {member}")));
        }
        let (mut sending, mut missing) = (JoinSet::new(), Vec::new());
        for (member, bytes) in parts {
            if sending.len() >= AT_ONCE {
                missing.extend(joined(sending.join_next().await)?);
            }
            let channel = self.clone();
            sending.spawn(async move { channel.deliver(MemberSet::of(member), tag, &bytes, deadline).await });
        }
        while !sending.is_empty() {
            missing.extend(joined(sending.join_next().await)?);
        }
        Ok(missing)
    }

    fn live_members(&self) -> MemberSet {
        self.members().into_iter().collect()
    }

    async fn deliver(
        &self,
        to: MemberSet,
        tag: u32,
        bytes: &[u8],
        deadline: Instant,
    ) -> Result<Vec<Missing>> {
        self.session.check_alive()?;
        if bytes.len() > MAX_MESSAGE_BYTES {
            return self.deliver_stream(to, tag, bytes, deadline).await;
        }
        let started = Instant::now();
        let mut places = Vec::new();
        for member in to.iter() {
            let place = self.session.end.window(member).acquire_many_owned(cost_of(bytes.len()));
            match timeout_at(deadline, place).await {
                Ok(Ok(place)) => places.push(place),
                Ok(Err(_closed)) => return Err(self.gone()),
                Err(_late) => return Err(self.late(started, deadline, [member.node])),
            }
        }
        let (overlay, session) = (&self.session.core.overlay, self.session.id);
        let (asked, lost) = loop {
            let nodes = to.nodes().intersection(&overlay.reachable());
            let order = ChannelOrder::Message { session, to: to.clone(), tag, bytes: Blob(bytes.to_vec()) };
            match overlay.ask(To::Nodes(nodes.clone()), Order::Channel(order)) {
                Ok(asked) => break (asked, to.difference(&to.on(&nodes))),
                // Some nodes were lost just now, and no node got the message: try again.
                Err(Error::Lost { .. }) => {}
                Err(error) => return Err(error),
            }
        };
        let request = asked.request();
        let (settled, outcome) = oneshot::channel();
        // The message occupies its places in the windows until it is taken, even if the caller stops waiting.
        tokio::spawn(async move {
            let outcome = asked.outcome(Instant::now() + LONGEST).await;
            drop(places);
            drop(settled.send(outcome));
        });
        match timeout_at(deadline, outcome).await {
            Ok(Ok(outcome)) => Ok(self.undelivered(&to, outcome?, &lost)),
            Ok(Err(_ended)) => Err(self.gone()),
            Err(_late) => Err(self.late(started, deadline, overlay.owed(request))),
        }
    }

    async fn deliver_stream(
        &self,
        to: MemberSet,
        tag: u32,
        source: impl AsyncRead + Unpin,
        deadline: Instant,
    ) -> Result<Vec<Missing>> {
        let started = Instant::now();
        self.session.check_alive()?;
        let _turn = match timeout_at(deadline, self.session.end.streams.acquire()).await {
            Ok(Ok(turn)) => turn,
            Ok(Err(_closed)) => return Err(self.gone()),
            Err(_late) => return Err(self.late(started, deadline, [])),
        };
        let (overlay, session) = (&self.session.core.overlay, self.session.id);
        let nodes = to.nodes().intersection(&overlay.reachable());
        let lost = to.difference(&to.on(&nodes));
        let wanted = to.clone();
        let announce = |stream| Order::Channel(ChannelOrder::Stream { session, to: wanted, tag, stream });
        let answers = overlay.send_bulk(nodes, announce, source, |_| {}, deadline).await?;
        Ok(self.undelivered(&to, Outcome::of(answers), &lost))
    }

    /// The members that have not got a message, each with the reason.
    fn undelivered(&self, to: &MemberSet, outcome: Outcome, lost: &MemberSet) -> Vec<Missing> {
        let state = self.session.core.state();
        let named = |member: Member, why| Missing { member, host: state.host(member.node), why };
        let gone = || Failure::new(Kind::Lost, "its node was lost");
        let mut missing: Vec<Missing> = lost.iter().map(|member| named(member, gone())).collect();
        let on = |node: NodeId| to.daemons_on(node).map(move |daemon| Member { node, daemon });
        missing.extend(outcome.lost.iter().flat_map(|node| on(*node)).map(|member| named(member, gone())));
        for (node, why) in outcome.failed {
            missing.extend(on(node).map(|member| named(member, why.clone())));
        }
        for (node, answer) in outcome.answers {
            if let Answer::Undelivered(failed) = answer {
                missing.extend(failed.into_iter().map(|(daemon, why)| named(Member { node, daemon }, why)));
            }
        }
        missing
    }

    fn gone(&self) -> Error {
        Error::Gone { what: format!("session {} of app {}", self.session.id, self.session.core.app) }
    }

    fn late(&self, started: Instant, deadline: Instant, nodes: impl IntoIterator<Item = NodeId>) -> Error {
        let state = self.session.core.state();
        let missing = nodes.into_iter().map(|node| state.host(node)).collect();
        Error::TimedOut { phase: PHASE, after: deadline.saturating_duration_since(started), missing }
    }
}

type Joined = std::result::Result<Result<Vec<Missing>>, tokio::task::JoinError>;

fn joined(joined: Option<Joined>) -> Result<Vec<Missing>> {
    match joined {
        None => Ok(Vec::new()),
        Some(Ok(sent)) => sent,
        Some(Err(error)) => Err(Error::Internal(format!("a part was not sent: {error}"))),
    }
}
