//! Handles ranks that have stopped: evaluates log messages, regroups threads and sends stop events.

use std::collections::BTreeMap;

use gantry_gdb::answer::{Answer, State as RankState, Stop};
use gantry_types::rank_set::RankSet;
use serde_json::{Value, json};

use super::parts::regroup;
use crate::breakpoints::Piece;
use crate::message::{Client, console, event};
use crate::state::{Job, Order, Place, State, Then};
use crate::threads::{Thread, ranks_text};
use crate::values::{as_tuple, lines_of, merge_texts, pick};

/// The maximum depth up to which call paths are compared.
const MAX_DEPTH: u32 = 63;

/// Handles the changes since the last answers.
pub(crate) fn notice(state: &mut State) {
    let standing = state.standing();
    notice_ended(state);
    let with_gdb =
        state.of_states(|it| matches!(it, RankState::Running | RankState::Stopped(_) | RankState::Coming));
    let lost = state.with_gdb.difference(&with_gdb).difference(&state.ended);
    state.with_gdb = with_gdb;
    if !lost.is_empty() {
        state.note(&format!(
            "the gdb of {} has ended; the next request starts another one",
            ranks_text(&lost)
        ));
        state.handles.forget(&lost);
    }
    let gone = state.of_states(|it| matches!(it, RankState::Free | RankState::Running | RankState::Ended(_)));
    state.held = state.held.difference(&gone);
    state.told = state.told.intersection(&standing);
    state.places.iter_mut().for_each(|(_, ranks)| *ranks = ranks.intersection(&standing));
    state.places.retain(|(_, ranks)| !ranks.is_empty());
    state.logging = state.logging.intersection(&standing);
    let fresh = standing.difference(&state.told).difference(&state.logging).difference(&state.held);
    if fresh.is_empty() {
        return;
    }
    // Other ranks mostly stop within a moment, and then belong to the same thread.
    let others_run = !state.of_states(|it| *it == RankState::Running).is_empty();
    let waits = others_run && !state.is_settling;
    state.is_settling = waits;
    match waits {
        true => {
            state.jobs.push_front(Job { ranks: RankSet::new(), order: Order::Stand, then: Then::Nothing })
        }
        false => take_fresh(state, &fresh),
    }
}

fn notice_ended(state: &mut State) {
    let ended = state.of_states(|it| matches!(it, RankState::Ended(_) | RankState::Away(_)));
    let newly = ended.difference(&state.ended);
    if newly.is_empty() {
        return;
    }
    state.ended = state.ended.union(&ended);
    state.handles.forget(&newly);
    for standing in state.session.standings(&newly) {
        state.note(&format!("{}: {}", ranks_text(&standing.ranks), standing.state));
    }
}

/// Ranks at a log message evaluate it and continue. The adapter asks for the place of the others.
fn take_fresh(state: &mut State, fresh: &RankSet) {
    let mut logs: BTreeMap<i64, RankSet> = BTreeMap::new();
    let mut found: BTreeMap<i64, u32> = BTreeMap::new();
    let mut rest = fresh.clone();
    for (rank_state, ranks) in state.session.sets().states() {
        let RankState::Stopped(stop) = rank_state else { continue };
        for rank in ranks.intersection(fresh).iter() {
            let Some(hit) = state.breakpoints.of_number(stop.breakpoint, rank) else { continue };
            found.insert(hit.id, stop.line);
            if hit.wanted.log.is_some() {
                logs.entry(hit.id).or_default().insert(rank);
            }
        }
    }
    for (id, line) in found {
        let is_news = state.breakpoints.get_mut(id).is_some_and(|it| it.hit(line));
        let owner = state.breakpoints.get(id).map(|it| it.owner);
        if let Some(owner) = owner.filter(|_| is_news) {
            let first_line = state.first_line(owner);
            let json = state.breakpoints.get(id).map(|it| it.to_json(first_line));
            state.send(owner, event("breakpoint", json!({ "reason": "changed", "breakpoint": json })));
        }
    }
    for (id, ranks) in logs {
        rest = rest.difference(&ranks);
        let steps = ranks.intersection(&state.stepping);
        for (ranks, is_step) in [(ranks.difference(&steps), false), (steps, true)] {
            log(state, id, ranks, is_step);
        }
    }
    place(state, rest);
}

/// Asks ranks for the values of a log message. Stepping ranks stay stopped there: the step ends.
fn log(state: &mut State, id: i64, ranks: RankSet, is_step: bool) {
    let Some(breakpoint) = state.breakpoints.get(id).filter(|_| !ranks.is_empty()) else { return };
    let mut commands: Vec<String> = breakpoint
        .wanted
        .expressions()
        .iter()
        .map(|it| format!("-data-evaluate-expression {}", gantry_gdb::mi::quote(it)))
        .collect();
    if !is_step {
        commands.push("-exec-continue".to_owned());
    }
    state.logging = state.logging.union(&ranks);
    state.jobs.push_front(Job { ranks, order: Order::Ask(commands), then: Then::Logged { id, is_step } });
}

fn place(state: &mut State, ranks: RankSet) {
    if ranks.is_empty() {
        return;
    }
    state.told = state.told.union(&ranks);
    let commands = vec![format!("-stack-list-frames 0 {MAX_DEPTH}")];
    state.jobs.push_front(Job { ranks, order: Order::AskBare(commands), then: Then::Placed });
}

/// Handles the values of a log message.
pub(crate) fn logged(
    state: &mut State,
    id: i64,
    is_step: bool,
    ranks: &RankSet,
    answers: &[(Answer, RankSet)],
) {
    state.logging = state.logging.difference(ranks);
    if is_step {
        place(state, ranks.clone());
    }
    let Some(breakpoint) = state.breakpoints.get(id) else { return };
    let lines = lines_of(answers, ranks);
    let mut text = String::new();
    let mut at = 0;
    for piece in breakpoint.wanted.log.as_deref().unwrap_or_default() {
        match piece {
            Piece::Text(plain) => text.push_str(plain),
            Piece::Expression(_) => {
                let (good, bad) = pick(&lines, |lines| lines.get(at));
                let values = good.iter().map(|(fields, ranks)| {
                    (fields.text("value").unwrap_or_default().to_owned(), ranks.clone())
                });
                let all: Vec<(String, RankSet)> = values.chain(bad).collect();
                text.push_str(&merge_texts(&all));
                at += 1;
            }
        }
    }
    let told = console(&format!("{}: {text}", ranks_text(ranks)));
    state.tell_all(&told);
}

/// Handles the places of stopped ranks.
pub(crate) fn placed(state: &mut State, ranks: &RankSet, answers: &[(Answer, RankSet)]) {
    // These ranks may have continued meanwhile.
    let ranks = ranks.intersection(&state.told);
    let (good, _) = pick(&lines_of(answers, &ranks), |lines| lines.first());
    let mut left = ranks.clone();
    for (fields, of) in good {
        let top = fields.list("stack").first().and_then(|(_, frame)| as_tuple(frame));
        let function = top.and_then(|frame| frame.text("func")).unwrap_or_default().to_owned();
        left = left.difference(&of);
        put(state, Place { stack: fields.to_string(), function }, &of);
    }
    // Where gdb cannot show a call path, use the place of the stop.
    let stops: Vec<(Stop, RankSet)> = state
        .session
        .sets()
        .states()
        .iter()
        .filter_map(|(it, of)| match it {
            RankState::Stopped(stop) => Some((stop.clone(), of.intersection(&left))),
            _ => None,
        })
        .collect();
    for (stop, of) in stops.into_iter().filter(|(_, of)| !of.is_empty()) {
        put(state, Place { stack: stop.to_string(), function: stop.function.clone() }, &of);
    }
    regroup(state, None);
    tell_stops(state, &ranks, None);
}

fn put(state: &mut State, place: Place, ranks: &RankSet) {
    for (_, of) in &mut state.places {
        *of = of.difference(ranks);
    }
    state.places.retain(|(_, of)| !of.is_empty());
    match state.places.iter_mut().find(|(it, _)| *it == place) {
        Some((_, of)) => *of = of.union(ranks),
        None => state.places.push((place, ranks.clone())),
    }
}

/// Sends stop events for these ranks to all editors, or to one.
pub(crate) fn tell_stops(state: &mut State, fresh: &RankSet, only: Option<Client>) {
    let told: Vec<Client> = state
        .clients
        .iter()
        .filter(|(client, editor)| editor.is_configured && only.is_none_or(|only| only == **client))
        .map(|(client, _)| *client)
        .collect();
    for client in told {
        let Some(editor) = state.clients.get(&client) else { continue };
        let all_stand = editor.threads.all().iter().all(|thread| thread.part.stands);
        let concerned =
            editor.threads.all().iter().filter(|it| it.part.stands && !it.part.ranks.is_disjoint(fresh));
        let mut stops: Vec<(u8, Value)> =
            concerned.map(|thread| describe(state, thread, fresh, all_stand)).collect();
        stops.sort_by_key(|(weight, _)| *weight);
        for (at, (_, mut body)) in stops.into_iter().enumerate() {
            if at > 0 {
                body["preserveFocusHint"] = true.into();
            }
            state.send(client, event("stopped", body));
        }
    }
}

/// The stop event of a thread, and its importance.
fn describe(state: &State, thread: &Thread, fresh: &RankSet, all_stand: bool) -> (u8, Value) {
    let ranks = thread.part.ranks.intersection(fresh);
    let mut found = (9, "pause", String::new());
    let mut ids: Vec<i64> = Vec::new();
    if !state.held.is_disjoint(&ranks) {
        found = (3, "entry", String::new());
    }
    for (rank_state, of) in state.session.sets().states() {
        let RankState::Stopped(stop) = rank_state else { continue };
        let of = of.intersection(&ranks).difference(&state.held);
        let Some(first) = of.first() else { continue };
        if let Some(hit) = state.breakpoints.of_number(stop.breakpoint, first) {
            ids.push(hit.id);
        }
        let next = match stop.why.as_str() {
            why if why.starts_with("signal ") => (0, "exception", why.to_owned()),
            "breakpoint-hit" => (1, "breakpoint", String::new()),
            "end-stepping-range" | "function-finished" | "location-reached" => (2, "step", String::new()),
            _ => (4, "pause", String::new()),
        };
        if next.0 < found.0 {
            found = next;
        }
    }
    ids.sort_unstable();
    ids.dedup();
    let (weight, reason, text) = found;
    let mut body = json!({
        "reason": reason, "threadId": thread.id, "allThreadsStopped": all_stand,
        "description": format!("{}: {reason}", ranks_text(&ranks)),
    });
    if !text.is_empty() {
        body["text"] = text.into();
    }
    if !ids.is_empty() {
        body["hitBreakpointIds"] = ids.into();
    }
    // Other ranks of the thread were stopped before.
    if !thread.part.ranks.difference(&ranks).is_empty() {
        body["preserveFocusHint"] = true.into();
    }
    (weight, body)
}
