//! One MPI world of the parts of a job that request it: the numbers of its ranks, and the steps between the release of
//! the job and that of the ranks.
//!
//! Ranks are numbered through the parts in their order. Before any rank runs, each part checks that its nodes reach the
//! other parts, tells its agents about the world, and waits until all parts have done so.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gantry_shared::wire::message::{Answer, Order};
use gantry_shared::wire::mpi::{JoinWorld, MpiEnd};
use gantry_types::id::{NodeId, Rank};
use gantry_types::placement::Placement;
use gantry_types::rank_set::{NodeSet, RankSet};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::mpi_failure::MpiFailure;
use crate::app::AppHandle;
use crate::error::{Error, Result};
use crate::rendezvous::{FenceSeat, SharedFences};

/// How long to try to connect to another part.
const TRY_TIME: Duration = Duration::from_secs(5);

/// Variables that make MPI libraries use TCP, which hosts of different managers have in common.
pub(super) const TRANSPORT: [(&str, &str); 2] = [("UCX_TLS", "tcp,self,sm"), ("FI_PROVIDER", "tcp")];

/// A part of a world.
#[derive(Debug)]
pub(super) struct Seat {
    join: JoinWorld,
    fences: FenceSeat,
    meeting: Arc<Meeting>,
}

/// What the parts of a world exchange before their ranks run.
#[derive(Debug)]
struct Meeting {
    labels: Vec<String>,
    seen: watch::Sender<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Where the first node of each part accepts connections.
    listens: Vec<Option<Vec<SocketAddr>>>,
    /// Parts whose agents know the world.
    ready: BTreeSet<usize>,
}

/// Assigns places in a world to these parts, each given with its label.
///
/// # Errors
/// It has more ranks than MPI can number.
pub(super) fn form(parts: &[(String, AppHandle)]) -> Result<Vec<Seat>> {
    let placements: Vec<Placement> = parts.iter().map(|(_, app)| app.placement()).collect();
    let (firsts, layout) = lay_out(&placements)?;
    let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    let fences = Arc::new(SharedFences::new(count));
    let labels: Vec<String> = parts.iter().map(|(label, _)| label.clone()).collect();
    let seen = Seen { listens: vec![None; labels.len()], ready: BTreeSet::new() };
    let meeting = Arc::new(Meeting { labels, seen: watch::Sender::new(seen) });
    let name = parts.first().map(|(_, app)| format!("gantry_job_{}", app.id())).unwrap_or_default();
    let seats = (0..).zip(firsts).zip(parts).map(|((part, first), (label, _))| {
        let (name, layout, label) = (name.clone(), layout.clone(), label.clone());
        Seat {
            join: JoinWorld { name, layout, first, part },
            fences: FenceSeat { fences: Arc::clone(&fences), part, label },
            meeting: Arc::clone(&meeting),
        }
    });
    Ok(seats.collect())
}

/// The number of each app's rank 0, and the ranks of all nodes.
fn lay_out(placements: &[Placement]) -> Result<(Vec<Rank>, Vec<RankSet>)> {
    let (mut firsts, mut layout, mut size) = (Vec::new(), Vec::new(), 0_u32);
    for placement in placements {
        firsts.push(Rank(size));
        for node in (0..placement.node_count()).map(NodeId) {
            let mut ranks = RankSet::new();
            for range in placement.ranks_on(node).ranges() {
                let [start, end] = [range.start(), range.end()].map(|rank| Rank(size.saturating_add(rank.0)));
                ranks.insert_range(start..=end);
            }
            layout.push(ranks);
        }
        let sum = size.checked_add(placement.rank_count()).filter(|sum| i32::try_from(*sum).is_ok());
        size = sum.ok_or_else(too_many)?;
    }
    Ok((firsts, layout))
}

fn too_many() -> Error {
    Error::Invalid {
        message: "the job has more ranks than MPI can number".to_owned(),
        hint: Some("give some parts subjobCommsType=independent: they are worlds of their own".to_owned()),
    }
}

impl Seat {
    /// Makes the app part of its world, once all other parts are ready. Its ranks are held.
    ///
    /// # Errors
    /// Parts do not reach each other, agents refuse the world, or parts are not ready by `deadline`.
    pub(super) async fn take(self, app: &AppHandle, deadline: Instant) -> Result<()> {
        let Self { join, fences, meeting } = self;
        let core = &app.core;
        core.rendezvous.join_fences(fences);
        let own = usize::try_from(join.part).unwrap_or(usize::MAX);
        let first = NodeSet::from_range(NodeId(0)..=NodeId(0));
        let listen = Order::Listen { within: deadline.saturating_duration_since(Instant::now()) };
        let answers = core.ask(&first, listen, "preparing the MPI world", deadline).await?;
        let addresses = answers.into_iter().find_map(|(_, answer)| match answer {
            Answer::Listens(addresses) => Some(addresses),
            _ => None,
        });
        meeting.change(|seen| {
            if let Some(place) = seen.listens.get_mut(own) {
                *place = Some(addresses.unwrap_or_default());
            }
        });
        let all = meeting.wait(deadline, |seen, part| seen.listens.get(part).is_some_and(Option::is_some));
        all.await?;
        meeting.try_others(app, own, deadline).await?;
        let nodes = core.live_nodes();
        core.ask(&nodes, Order::JoinWorld(join), "joining the MPI world", deadline).await?;
        meeting.change(|seen| {
            seen.ready.insert(own);
        });
        meeting.wait(deadline, |seen, part| seen.ready.contains(&part)).await
    }
}

impl Meeting {
    fn change(&self, change: impl FnOnce(&mut Seen)) {
        self.seen.send_modify(change);
    }

    /// Waits until all parts fulfil `is_there`.
    async fn wait(&self, deadline: Instant, is_there: impl Fn(&Seen, usize) -> bool) -> Result<()> {
        let started = Instant::now();
        let parts = 0..self.labels.len();
        let mut seen = self.seen.subscribe();
        let all = seen.wait_for(|seen| parts.clone().all(|part| is_there(seen, part)));
        if timeout_at(deadline, all).await.is_ok() {
            return Ok(());
        }
        let seen = self.seen.borrow();
        let missing = parts.filter(|part| !is_there(&seen, *part));
        let missing = missing.filter_map(|part| self.labels.get(part).cloned()).collect();
        let after = started.elapsed();
        Err(Error::TimedOut { phase: "waiting for the other parts of the MPI world", after, missing })
    }

    /// Checks that all nodes of a part reach the first node of each other part. MPI libraries would wait for ever.
    async fn try_others(&self, app: &AppHandle, own: usize, deadline: Instant) -> Result<()> {
        let listens: Vec<(usize, Vec<SocketAddr>)> = {
            let seen = self.seen.borrow();
            let all = seen.listens.iter().cloned().enumerate();
            all.filter(|(part, _)| *part != own).map(|(part, it)| (part, it.unwrap_or_default())).collect()
        };
        let others = listens.iter().map(|(_, addresses)| addresses.clone()).collect();
        let core = &app.core;
        let order = Order::Reach { others, within: TRY_TIME };
        let answers = core.ask(&core.live_nodes(), order, "trying the way to other parts", deadline).await?;
        for (node, answer) in answers {
            let Answer::Unreached(unreached) = answer else { continue };
            let other = unreached.first().and_then(|it| listens.get(usize::try_from(*it).ok()?));
            if let Some((part, addresses)) = other {
                return Err(self.unreached(&core.state().host(node), *part, addresses));
            }
        }
        Ok(())
    }

    fn unreached(&self, host: &str, part: usize, addresses: &[SocketAddr]) -> Error {
        let label = self.labels.get(part).map_or("", String::as_str);
        let at: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
        let at = if at.is_empty() { "no address".to_owned() } else { at.join(", ") };
        Error::Invalid {
            message: format!(
                "MPI cannot connect the parts: host {host} does not reach subjob {label} at {at} within {} s",
                TRY_TIME.as_secs()
            ),
            hint: Some("let the hosts connect to each other by TCP, or take one part out".to_owned()),
        }
    }
}

/// The failure of a world after an app ended with that code and it is unknown how some of its ranks ended.
pub(super) fn lost(code: i32) -> MpiFailure {
    MpiFailure { code, why: "its ranks are lost".to_owned(), end: MpiEnd::Left }
}

#[cfg(test)]
mod tests {
    use gantry_types::placement::PlacementBuilder;

    use super::*;

    #[test]
    fn ranks_are_numbered_through_the_parts() {
        let place = |hosts: &[&str]| {
            let mut placement = PlacementBuilder::with_capacity(hosts.len());
            for host in hosts {
                placement.push(host, None, "").unwrap();
            }
            placement.build()
        };
        let (firsts, layout) =
            lay_out(&[place(&["a", "b", "a"]), place(&["a"]), place(&["c", "c"])]).unwrap();
        assert_eq!(firsts, [0, 3, 4].map(Rank));
        let layout: Vec<String> = layout.iter().map(ToString::to_string).collect();
        assert_eq!(layout, ["0,2", "1", "3", "4-5"]);
    }
}
