//! Hosts with a number of places each, and the ranks on each host: for WLMs whose ranks are started by agents. Pure.

use std::ffi::OsStr;

use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;

use crate::{Error, Result};

/// The maximum number of ranks in a launch.
pub(crate) const MAX_RANKS: u32 = 1_000_000;

/// A host with its number of places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostSlots {
    /// The name by which the WLM knows it.
    pub(crate) name: String,
    /// The number of ranks that fit.
    pub(crate) slots: u32,
    /// Whether the number is explicit, by a number or by repeating the host.
    pub(crate) stated: bool,
}

/// The order in which hosts are filled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum MapBy {
    /// One host after the other.
    #[default]
    Slot,
    /// A rank on each host in turn.
    Node,
}

/// Parses the value of an option for the order in which hosts are filled. `hint` is for invalid values.
///
/// # Errors
/// The value is not one that launchers have in common.
pub(crate) fn parse_map_by(option: &str, value: &OsStr, hint: &str) -> Result<MapBy> {
    match &*value.to_string_lossy() {
        "slot" | "core" | "block" => Ok(MapBy::Slot),
        "node" | "cyclic" => Ok(MapBy::Node),
        other => {
            let what = format!("'{option} {other}': ranks can be mapped by slot or by node");
            Err(Error::invalid_with(what, hint))
        }
    }
}

/// Returns the hosts that get ranks, and the ranks of each. Without a number of ranks all places are used. `per_host`
/// replaces the hosts' own numbers.
///
/// # Errors
/// There are more ranks than explicit places. `hint` is for this error.
pub(crate) fn place(
    hosts: Vec<HostSlots>,
    ranks: Option<u32>,
    per_host: Option<u32>,
    map_by: MapBy,
    hint: &str,
) -> Result<(Vec<String>, Vec<RankSet>)> {
    let counts = build_counts(&hosts, ranks, per_host, map_by, hint)?;
    let layout = build_layout(&counts, map_by);
    let used = hosts.into_iter().zip(layout).filter(|(_, ranks)| !ranks.is_empty());
    Ok(used.map(|(host, ranks)| (host.name, ranks)).unzip())
}

/// The number of ranks on each host.
fn build_counts(
    hosts: &[HostSlots],
    ranks: Option<u32>,
    per_host: Option<u32>,
    map_by: MapBy,
    hint: &str,
) -> Result<Vec<u32>> {
    let slots: Vec<u32> = hosts.iter().map(|host| per_host.unwrap_or(host.slots)).collect();
    let room: u64 = slots.iter().copied().map(u64::from).sum();
    let ranks = match ranks {
        Some(ranks) => u64::from(ranks),
        None => room,
    };
    if ranks > u64::from(MAX_RANKS) {
        return Err(Error::invalid(format!("at most {MAX_RANKS} ranks are possible")));
    }
    let number = hosts.len() as u64;
    let stated = per_host.is_some() || hosts.iter().any(|host| host.stated);
    if ranks > room && stated {
        return Err(Error::invalid_with(format!("{ranks} ranks for {room} places on {number} hosts"), hint));
    }
    let mut counts = vec![0_u32; slots.len()];
    let mut left = ranks;
    if ranks > room {
        // Without explicit places: even blocks. The first hosts get one more.
        for (count, index) in counts.iter_mut().zip(0..) {
            *count = u32::try_from(ranks / number + u64::from(index < ranks % number)).unwrap_or(u32::MAX);
        }
        return Ok(counts);
    }
    while left > 0 {
        for (count, slots) in counts.iter_mut().zip(&slots) {
            let room = slots - *count;
            let taken = match map_by {
                MapBy::Slot => u32::try_from(left).unwrap_or(u32::MAX).min(room),
                MapBy::Node => u32::from(left > 0 && room > 0),
            };
            *count += taken;
            left -= u64::from(taken);
        }
    }
    Ok(counts)
}

/// The ranks of each host.
fn build_layout(counts: &[u32], map_by: MapBy) -> Vec<RankSet> {
    let mut layout = vec![RankSet::new(); counts.len()];
    let mut next = 0;
    match map_by {
        MapBy::Slot => {
            for (ranks, count) in layout.iter_mut().zip(counts).filter(|(_, count)| **count > 0) {
                ranks.insert_range(Rank(next)..=Rank(next + count - 1));
                next += count;
            }
        }
        MapBy::Node => {
            for turn in 0..counts.iter().copied().max().unwrap_or(0) {
                for (ranks, _) in layout.iter_mut().zip(counts).filter(|(_, count)| **count > turn) {
                    ranks.insert(Rank(next));
                    next += 1;
                }
            }
        }
    }
    layout
}
