//! Groups the ranks into the threads of each editor.

use gantry_types::rank_set::RankSet;
use serde_json::json;

use crate::message::{Client, event};
use crate::state::{Editor, State};
use crate::threads::Part;

/// The label of ranks that are held.
const HELD: &str = "held before the first instruction";

/// The label of running ranks.
const RUNNING: &str = "running";

/// Regroups the threads of all editors and sends the changes. In the editor `merges`, all running ranks become one
/// thread.
pub(crate) fn regroup(state: &mut State, merges: Option<Client>) {
    let there: Vec<Client> =
        state.clients.iter().filter(|(_, editor)| editor.is_there).map(|(client, _)| *client).collect();
    for client in there {
        let Some(parts) = state.clients.get(&client).map(|it| parts_of(state, it, merges == Some(client)))
        else {
            continue;
        };
        let Some(editor) = state.clients.get_mut(&client) else { continue };
        let changes = editor.threads.regroup(parts);
        let is_told = editor.init.supports_invalidated_event && changes.is_renamed;
        for (reason, ids) in [("exited", &changes.exited), ("started", &changes.started)] {
            for id in ids {
                state.send(client, event("thread", json!({ "reason": reason, "threadId": id })));
            }
        }
        if is_told {
            state.send(client, event("invalidated", json!({ "areas": ["threads"] })));
        }
    }
}

fn parts_of(state: &State, editor: &Editor, merges: bool) -> Vec<Part> {
    let alive = editor.ranks.difference(&state.ended);
    let held = state.held.intersection(&alive);
    let mut parts = Vec::new();
    let mut add = |ranks: &RankSet, label: &str, stands: bool| {
        let alone = ranks.iter().map(|rank| RankSet::from_range(rank..=rank));
        let pieces: Vec<RankSet> = match editor.is_part {
            true => alone.collect(),
            false => vec![ranks.clone()],
        };
        parts.extend(pieces.into_iter().filter(|it| !it.is_empty()).map(|ranks| Part {
            ranks,
            label: label.to_owned(),
            stands,
        }));
    };
    add(&held, HELD, true);
    let mut running = alive.difference(&held);
    for (place, ranks) in &state.places {
        let ranks = ranks.intersection(&running);
        running = running.difference(&ranks);
        add(&ranks, if place.function.is_empty() { "??" } else { &place.function }, true);
    }
    match merges {
        true => add(&running, RUNNING, false),
        false => editor.threads.running_parts(&running).iter().for_each(|ranks| add(ranks, RUNNING, false)),
    }
    parts
}
