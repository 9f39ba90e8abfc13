//! Sets and removes breakpoints.

use gantry_gdb::answer::Answer;
use gantry_types::rank_set::RankSet;
use serde_json::{Value, json};

use crate::args::{SetBreakpoints, SetFunctionBreakpoints};
use crate::breakpoints::{Breakpoint, Kind, MAX_BREAKPOINTS, Wanted, build_deletes};
use crate::message::{Client, Ticket};
use crate::state::{Order, State, Then};
use crate::values::{lines_of, merge_texts, pick};

/// Handles `setBreakpoints`.
///
/// # Errors
/// The file has no path, or there are too many.
pub(crate) fn set_in_source(state: &mut State, ticket: Ticket, args: &SetBreakpoints) -> Result<(), String> {
    let path = args.source.path.clone().ok_or("breakpoints need a file with a path")?;
    let first_line = state.first_line(ticket.client);
    let wanted = args.breakpoints.iter().map(|it| Wanted::of_source(&path, it, first_line)).collect();
    set(state, ticket, &Kind::Source(path), wanted)
}

/// Handles `setFunctionBreakpoints`.
///
/// # Errors
/// There are too many.
pub(crate) fn set_at_functions(
    state: &mut State,
    ticket: Ticket,
    args: &SetFunctionBreakpoints,
) -> Result<(), String> {
    let wanted = args.breakpoints.iter().map(Wanted::of_function).collect();
    set(state, ticket, &Kind::Function, wanted)
}

fn set(
    state: &mut State,
    ticket: Ticket,
    kind: &Kind,
    wanted: Vec<Result<Wanted, String>>,
) -> Result<(), String> {
    if wanted.len() + state.breakpoints.all().len() > MAX_BREAKPOINTS {
        return Err(format!("there are {MAX_BREAKPOINTS} breakpoints at most"));
    }
    let ranks = state.clients.get(&ticket.client).map(|it| it.ranks.clone()).unwrap_or_default();
    let good: Vec<Wanted> = wanted.iter().filter_map(|it| it.as_ref().ok()).cloned().collect();
    let (ids, old) = state.breakpoints.want(ticket.client, kind, &good, &ranks);
    remove(state, &old);
    let new: Vec<i64> = ids.iter().filter(|(_, is_new)| *is_new).map(|(id, _)| *id).collect();
    let mut ids = ids.into_iter().map(|(id, _)| id);
    let all: Vec<Result<i64, String>> =
        wanted.into_iter().map(|it| it.and_then(|_| ids.next().ok_or_else(String::new))).collect();
    match new.is_empty() {
        true => respond(state, &ticket, &all),
        false => {
            let then = Then::Inserted { ids: Vec::new(), ticket: Some((ticket, all)) };
            state.push(ranks, Order::Insert(new), then);
        }
    }
    Ok(())
}

/// Removes breakpoints from the gdbs.
pub(crate) fn remove(state: &mut State, old: &[Breakpoint]) {
    for (command, ranks) in build_deletes(old) {
        let ranks = ranks.intersection(&state.with_gdb);
        state.push(ranks, Order::Ask(vec![command]), Then::Nothing);
    }
}

fn respond(state: &mut State, ticket: &Ticket, all: &[Result<i64, String>]) {
    let first_line = state.first_line(ticket.client);
    let shown: Vec<Value> = all
        .iter()
        .map(|it| match it {
            Ok(id) => state
                .breakpoints
                .get(*id)
                .map_or_else(|| json!({ "verified": false }), |it| it.to_json(first_line)),
            Err(why) => json!({ "verified": false, "message": why }),
        })
        .collect();
    state.respond(ticket, json!({ "breakpoints": shown }));
}

/// The commands that set these breakpoints, and the number of commands of each.
pub(crate) fn commands_of(state: &State, ids: &[i64]) -> (Vec<String>, Vec<(i64, usize)>) {
    let (mut commands, mut counts) = (Vec::new(), Vec::new());
    for breakpoint in ids.iter().filter_map(|id| state.breakpoints.get(*id)) {
        let its = breakpoint.wanted.build_commands(breakpoint.id);
        counts.push((breakpoint.id, its.len()));
        commands.extend(its);
    }
    (commands, counts)
}

/// The commands for new gdbs, and the number of commands of each breakpoint. The user's own gdb commands come first,
/// listed as number 0.
pub(crate) fn commands_for_new(state: &State, ranks: &RankSet) -> (Vec<String>, Vec<(i64, usize)>) {
    let of_people = &state.common.setup_commands;
    let mut commands: Vec<String> = of_people.iter().map(|it| gantry_gdb::mi::build_console(it)).collect();
    let mut counts = vec![(0, commands.len())];
    let is_theirs = |it: &&Breakpoint| !it.ranks.is_disjoint(ranks);
    let ids: Vec<i64> = state.breakpoints.all().iter().filter(is_theirs).map(|it| it.id).collect();
    let (more, its) = commands_of(state, &ids);
    commands.extend(more);
    counts.extend(its);
    (commands, counts)
}

/// Handles the answers of gdbs that set breakpoints.
pub(crate) fn inserted(
    state: &mut State,
    ranks: &RankSet,
    ids: &[(i64, usize)],
    ticket: Option<(Ticket, Vec<Result<i64, String>>)>,
    answers: &[(Answer, RankSet)],
) {
    let lines = lines_of(answers, ranks);
    let mut at = 0;
    for (id, count) in ids {
        at += count;
        if let (0, 1..) = (*id, *count) {
            let (_, bad) = pick(&lines, |lines| lines[..at.min(lines.len())].iter().find(|it| it.is_err()));
            // Ranks without any line are reported below.
            let bad: Vec<(String, RankSet)> =
                bad.into_iter().filter(|(why, _)| why != "gdb has not answered").collect();
            if !bad.is_empty() {
                state.note(&format!("setupCommands: {}", merge_texts(&bad)));
            }
        }
        let Some(breakpoint) = state.breakpoints.get_mut(*id) else { continue };
        // Without a gdb the error is the only line.
        let (good, bad) = pick(&lines, |lines| lines.get(at - 1).or(lines.last()));
        good.iter().for_each(|(fields, ranks)| breakpoint.take(fields, ranks));
        if !bad.is_empty() {
            breakpoint.refuse(&merge_texts(&bad));
        }
    }
    match ticket {
        Some((ticket, all)) => respond(state, &ticket, &all),
        None if ids.len() <= 1 => {
            let (_, bad) = pick(&lines, |lines| lines.last().or(Some(&NOTHING)));
            if !bad.is_empty() {
                state.note(&merge_texts(&bad));
            }
        }
        None => {}
    }
}

/// A missing answer is not an error.
static NOTHING: crate::values::Line = Ok(gantry_gdb::mi::Fields(Vec::new()));

/// Removes the breakpoints of an editor whose session has ended.
pub(crate) fn forget(state: &mut State, client: Client) {
    let old = state.breakpoints.remove_of(client);
    remove(state, &old);
}
