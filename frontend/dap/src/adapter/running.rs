//! Lets ranks continue and step, and interrupts them.

use gantry_gdb::answer::Answer;
use gantry_types::rank_set::RankSet;
use serde_json::{Value, json};

use super::parts::regroup;
use crate::args::OfThread;
use crate::message::{Client, Ticket, event};
use crate::state::{Effect, Order, Response, State, Then};
use crate::threads::Thread;
use crate::values::{lines_of, merge_texts, pick};

/// The thread that a request names.
///
/// # Errors
/// There is no such thread.
pub(crate) fn thread_of(state: &State, client: Client, id: i64) -> Result<Thread, String> {
    let editor = state.clients.get(&client).ok_or("there is no session")?;
    editor.threads.find(id).cloned().ok_or_else(|| format!("there is no thread {id}"))
}

/// The thread that a request names. It must be stopped.
///
/// # Errors
/// There is no such thread, or it is running.
pub(crate) fn standing_thread(state: &State, client: Client, id: i64) -> Result<Thread, String> {
    let thread = thread_of(state, client, id)?;
    match thread.part.stands {
        true => Ok(thread),
        false => Err(format!("{}: pause them first", thread.name())),
    }
}

/// Handles `continue`: all stopped ranks continue, or those of a single thread.
///
/// # Errors
/// There is no such thread, or it is running.
pub(crate) fn go_on(state: &mut State, ticket: Ticket, args: &OfThread) -> Result<(), String> {
    let thread = standing_thread(state, ticket.client, args.thread_id)?;
    let all = state.clients.get(&ticket.client).map(|editor| editor.ranks.clone()).unwrap_or_default();
    let ranks = if args.single_thread { thread.part.ranks } else { all };
    let body = json!({ "allThreadsContinued": !args.single_thread });
    go(state, &ranks, "-exec-continue", Some((ticket, body)));
    Ok(())
}

/// Handles `next`, `stepIn` and `stepOut`: the ranks of one thread step. The others stay as they are.
///
/// # Errors
/// There is no such thread, or it is running.
pub(crate) fn step(state: &mut State, ticket: Ticket, args: &OfThread) -> Result<(), String> {
    let thread = standing_thread(state, ticket.client, args.thread_id)?;
    let by_instruction = args.granularity.as_deref() == Some("instruction");
    let command = match (ticket.command.as_str(), by_instruction) {
        ("next", false) => "-exec-next",
        ("next", true) => "-exec-next-instruction",
        ("stepIn", false) => "-exec-step",
        ("stepIn", true) => "-exec-step-instruction",
        _ => "-exec-finish",
    };
    go(state, &thread.part.ranks, command, Some((ticket, json!({}))));
    Ok(())
}

/// Lets stopped ranks continue. If no rank has or needs a gdb, and all held ranks are meant, it releases the app.
pub(crate) fn go(state: &mut State, ranks: &RankSet, command: &str, ticket: Option<(Ticket, Value)>) {
    let stands = state.standing().union(&state.held);
    let ranks = ranks.intersection(&stands).difference(&state.ended);
    let needs_no_gdb = state.with_gdb.is_empty()
        && state.breakpoints.all().is_empty()
        && state.common.setup_commands.is_empty()
        && state.jobs.is_empty();
    let is_all = !state.held.is_empty() && state.held.difference(&ranks).is_empty();
    if command == "-exec-continue" && needs_no_gdb && is_all && state.is_release_due {
        state.is_release_due = false;
        state.releasing = ticket;
        state.effects.push(Effect::Release);
        return;
    }
    let objects = state.handles.forget(&ranks);
    let mut commands: Vec<String> =
        objects.iter().map(|(object, _)| format!("-var-delete {object}")).collect();
    // gdb would continue from the frame that the user selected last.
    commands.push("-stack-select-frame 0".to_owned());
    commands.push(command.to_owned());
    let is_step = command != "-exec-continue";
    state.push(ranks.clone(), Order::Prepare { stay: true }, Then::Nothing);
    state.push(ranks, Order::Ask(commands), Then::Gone { ticket, is_step });
}

/// Handles the answers of ranks that were told to continue.
pub(crate) fn gone(
    state: &mut State,
    ranks: &RankSet,
    ticket: Option<(Ticket, Value)>,
    is_step: bool,
    answers: &[(Answer, RankSet)],
) {
    let lines = lines_of(answers, ranks);
    let (good, bad) = pick(&lines, |lines| lines.last());
    let ran = good.iter().fold(RankSet::new(), |all, (_, ranks)| all.union(ranks));
    let why = merge_texts(&bad);
    if ran.is_empty() && !bad.is_empty() {
        match ticket {
            Some((ticket, _)) => state.refuse(&ticket, &why),
            None => state.note(&why),
        }
        return;
    }
    has_gone(state, &ran);
    state.stepping = match is_step {
        true => state.stepping.union(&ran),
        false => state.stepping.difference(&ran),
    };
    let asker = ticket.as_ref().map(|(ticket, _)| ticket.client);
    tell_others(state, &ran, asker);
    let mut merges = None;
    if let Some((ticket, body)) = ticket {
        merges = (body["allThreadsContinued"] == true).then_some(ticket.client);
        state.respond(&ticket, body);
    }
    if !bad.is_empty() {
        state.note(&why);
    }
    regroup(state, merges);
    release_if_due(state);
}

/// These ranks are running, or will soon stop at another place.
pub(crate) fn has_gone(state: &mut State, ran: &RankSet) {
    state.told = state.told.difference(ran);
    state.held = state.held.difference(ran);
    state.places.iter_mut().for_each(|(_, of)| *of = of.difference(ran));
    state.places.retain(|(_, of)| !of.is_empty());
}

/// Tells the other editors that threads of theirs continue.
fn tell_others(state: &mut State, ran: &RankSet, asker: Option<Client>) {
    let mut events = Vec::new();
    for (client, editor) in &state.clients {
        if Some(*client) == asker || !editor.is_configured {
            continue;
        }
        for thread in editor.threads.all() {
            if thread.part.stands && !thread.part.ranks.is_disjoint(ran) {
                let body = json!({ "threadId": thread.id, "allThreadsContinued": false });
                events.push((*client, event("continued", body)));
            }
        }
    }
    events.into_iter().for_each(|(client, event)| state.send(client, event));
}

/// Releases the held ranks outside the debugged set, once all debugged ranks have continued.
pub(crate) fn release_if_due(state: &mut State) {
    let Some(root) = state.root.and_then(|root| state.clients.get(&root)) else { return };
    let is_held = !state.held.is_disjoint(&root.ranks);
    if state.is_release_due && !is_held && root.is_configured {
        state.is_release_due = false;
        state.effects.push(Effect::Release);
    }
}

/// Handles the release of all ranks that were held without a gdb.
pub(crate) fn released(state: &mut State, done: Result<(), String>) {
    let ticket = state.releasing.take();
    match (done, ticket) {
        (Ok(()), ticket) => {
            let held = state.held.difference(&state.with_gdb);
            has_gone(state, &held);
            let merges = ticket.as_ref().map(|(ticket, _)| ticket.client);
            if let Some((ticket, body)) = ticket {
                state.respond(&ticket, body);
            }
            tell_others(state, &held, merges);
            regroup(state, merges);
            state.push(RankSet::new(), Order::Look, Then::Nothing);
        }
        (Err(why), ticket) => {
            state.is_release_due = true;
            match ticket {
                Some((ticket, _)) => state.refuse(&ticket, &why),
                None => state.note(&why),
            }
        }
    }
}

/// Handles `pause`.
///
/// # Errors
/// There is no such thread.
pub(crate) fn pause(state: &mut State, ticket: Ticket, args: &OfThread) -> Result<(), String> {
    let ranks = thread_of(state, ticket.client, args.thread_id)?.part.ranks;
    state.push(ranks.clone(), Order::Prepare { stay: true }, Then::Nothing);
    state.push(ranks, Order::Interrupt, Then::Respond(ticket, Response::Paused));
    Ok(())
}
