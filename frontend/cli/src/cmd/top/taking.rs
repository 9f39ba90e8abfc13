//! Turns the state of an app into figures.

use std::collections::HashMap;

use gantry_frontend::event::RankInfo;
use gantry_frontend::info::AppInfo;
use gantry_stack::orders::Orders;

use super::super::look::{Loads, Looking};
use crate::top::figures::Figures;

/// The requested ranks, without figures yet.
pub(super) fn figures_of(looking: &Looking, orders: &Orders) -> Figures {
    let wanted = |rank: &&RankInfo| orders.ranks.as_ref().is_none_or(|ranks| ranks.contains(rank.rank));
    let ranks: Vec<_> = looking.ranks().iter().filter(wanted).cloned().collect();
    Figures::new(&ranks)
}

/// Takes the nodes' answers and the running daemons.
pub(super) fn take(figures: &mut Figures, loads: Loads, info: &AppInfo) {
    figures.take(&loads.ranks, &loads.machines);
    figures.missing = loads.missing;
    let mut daemons: HashMap<String, usize> = HashMap::new();
    for daemon in info.daemons.iter().filter(|daemon| !daemon.ended) {
        *daemons.entry(daemon.host.clone()).or_default() += 1;
    }
    figures.take_daemons(&daemons);
}
