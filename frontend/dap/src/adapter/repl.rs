//! Lines typed at the prompt: gdb's commands for sets of ranks, and gantry's own commands.

use std::time::Duration;

use gantry_debug::input::{Input as Typing, Line, OWN};
use gantry_debug::round::{Outcome, Round};
use gantry_gdb::answer::{Answer, State as RankState};
use gantry_gdb::order::MAX_LINE_BYTES;
use gantry_types::rank_set::RankSet;
use serde_json::json;

use super::running::has_gone;
use crate::args::Evaluate;
use crate::message::{Ticket, short};
use crate::state::{Job, Order, Response, State, Then, Typed};

/// How long one wait for a gdb command takes.
pub(crate) const STRIDE: Duration = Duration::from_millis(250);

/// The maximum number of waits: one minute together. After that the adapter shows the answers it has.
const MAX_ROUNDS: u32 = 240;

/// The maximum length of a shown answer.
const MAX_SHOWN_BYTES: usize = 32 << 10;

/// gdb commands that let ranks continue, even if they stop at the same place again.
const GOING: [&str; 20] = [
    "c", "continue", "fg", "s", "step", "n", "next", "si", "stepi", "ni", "nexti", "fin", "finish", "u",
    "until", "advance", "jump", "j", "signal", "call",
];

/// Handles `evaluate` at the prompt.
///
/// # Errors
/// The line is invalid here.
pub(crate) fn evaluate(state: &mut State, ticket: Ticket, args: &Evaluate) -> Result<(), String> {
    let text = args.expression.trim();
    if let Some(set) = text.strip_prefix("open ") {
        let ranks = state.session.meant(Some(set)).map_err(|why| why.to_string())?;
        super::session::open(state, ticket.client, &ranks)?;
        state.respond(&ticket, said("".to_owned()));
        return Ok(());
    }
    let line = Line::parse(text).map_err(|why| why.to_string())?;
    let words = |set: &str| state.session.meant(Some(set)).map_err(|why| why.to_string());
    match &line.input {
        Typing::Nothing => state.respond(&ticket, said(String::new())),
        Typing::Help => state.respond(&ticket, said(help())),
        Typing::Focus(Some(set)) => {
            let shown = state.session.set_focus(set).map_err(|why| why.to_string())?.to_string();
            state.respond(&ticket, said(shown));
        }
        Typing::Focus(None) => {
            let shown = state.session.focus().to_string();
            state.respond(&ticket, said(shown));
        }
        Typing::Group(Some((name, set))) => {
            let shown = state.session.sets_mut().name(name, set).map_err(|why| why.to_string())?.to_string();
            state.respond(&ticket, said(shown));
        }
        Typing::Group(None) => {
            let names: Vec<String> =
                state.session.sets().names().map(|(name, ranks)| format!("{name}: {ranks}")).collect();
            state.respond(&ticket, said(names.join("\n")));
        }
        Typing::Ranks => {
            let of = match &line.set {
                Some(set) => words(set)?,
                None => state.session.sets().resolve("all").unwrap_or_default(),
            };
            let rows: Vec<String> = state
                .session
                .standings(&of)
                .iter()
                .map(|it| format!("[{}] {}", it.ranks, it.state))
                .collect();
            state.respond(&ticket, said(rows.join("\n")));
        }
        Typing::Interrupt => {
            let ranks = meant(state, &ticket, line.set.as_deref(), None)?;
            state.push(ranks, Order::Interrupt, Then::Respond(ticket, Response::Paused));
        }
        Typing::Compare { one, other, expression } => {
            let sets = (words(one)?, words(other)?);
            let command = format!("print {expression}");
            tell(state, ticket, &sets.0.union(&sets.1), &command, Some(sets.clone()))?;
        }
        Typing::Gdb(command) => {
            let ranks = meant(state, &ticket, line.set.as_deref(), args.frame_id)?;
            tell(state, ticket, &ranks, command, None)?;
        }
        Typing::RunUntilDifferent(_) => {
            return Err("'gantry gdb' does this; here set a breakpoint with a condition".to_owned());
        }
        Typing::Wait | Typing::Raw(_) | Typing::Quit | Typing::Script(_) => {
            return Err("this is a word of 'gantry gdb'; here the editor does it".to_owned());
        }
    }
    Ok(())
}

fn said(text: String) -> serde_json::Value {
    json!({ "result": text, "variablesReference": 0 })
}

fn help() -> String {
    let mut rows = vec![
        "Commands of gdb go to the ranks of the frame that is chosen. gantry adds:".to_owned(),
        format!("{:28}{}", "open SET", "show each of these ranks as a thread, in a session of its own"),
    ];
    let here = ["focus", "@SET", "group", "ranks", "interrupt", "compare", "help"];
    let own = OWN.iter().filter(|(usage, _)| here.contains(&usage.split(' ').next().unwrap_or_default()));
    rows.extend(own.map(|(usage, meaning)| format!("{usage:28}{meaning}")));
    rows.join("\n")
}

/// The ranks that a line is for: its own set, else the focus, else the ranks of the frame, else all stopped ranks.
fn meant(state: &State, ticket: &Ticket, set: Option<&str>, frame: Option<i64>) -> Result<RankSet, String> {
    let seen = state.clients.get(&ticket.client).map(|it| it.ranks.clone()).unwrap_or_default();
    if let Some(set) = set {
        return state.session.meant(Some(set)).map_err(|why| why.to_string());
    }
    let all = state.session.sets().resolve("all").unwrap_or_default();
    if *state.session.focus() != all {
        return Ok(state.session.focus().clone());
    }
    if let Some(owned) = frame.and_then(|frame| state.handles.get(frame)) {
        return Ok(owned.ranks.clone());
    }
    match ticket.command.as_str() {
        _ if state.with_gdb.intersection(&seen).is_empty() => {
            Err("no rank has a gdb: pause some first".to_owned())
        }
        _ => Ok(state.with_gdb.intersection(&seen)),
    }
}

fn tell(
    state: &mut State,
    ticket: Ticket,
    ranks: &RankSet,
    command: &str,
    compare: Option<(RankSet, RankSet)>,
) -> Result<(), String> {
    if command.len() > MAX_LINE_BYTES {
        return Err(format!("a command has {MAX_LINE_BYTES} bytes at most"));
    }
    let before = state.session.sets().states().to_vec();
    let typed =
        Typed { line: command.to_owned(), round: Round::new(ranks.clone()), rounds: 0, compare, before };
    state.push(ranks.clone(), Order::Prepare { stay: true }, Then::Nothing);
    let then = Then::Respond(ticket, Response::Said(typed));
    state.push(ranks.clone(), Order::Tell(command.to_owned()), then);
    Ok(())
}

/// Takes the answers of gdbs. Does not wait for ranks that run.
pub(crate) fn take(state: &mut State, ticket: Ticket, mut typed: Typed, answers: &[(Answer, RankSet)]) {
    typed.round.take(answers);
    let pending = typed.round.pending().clone();
    let running = state.of_states(|it| *it == RankState::Running);
    typed.rounds += 1;
    let is_awaited = !pending.difference(&running).difference(&state.ended).is_empty();
    if is_awaited && typed.rounds < MAX_ROUNDS {
        let then = Then::Respond(ticket, Response::Said(typed));
        state.jobs.push_front(Job { ranks: pending, order: Order::Wait, then });
        return;
    }
    let moved = moved(state, &typed);
    if !moved.is_empty() {
        state.handles.forget(&moved);
        has_gone(state, &moved);
    }
    let outcome = typed.round.outcome(&typed.line);
    state.session.take_classes(&outcome);
    let text = match &typed.compare {
        Some((one, other)) => compared(&typed.round, one, other),
        None => text_of(&outcome),
    };
    match outcome.has_failed() && outcome.classes.iter().all(|class| class.is_error) {
        true => state.refuse(&ticket, &text),
        false => state.respond(&ticket, said(short(&text, MAX_SHOWN_BYTES))),
    }
}

/// The ranks that run, or that ran and stopped elsewhere.
fn moved(state: &State, typed: &Typed) -> RankSet {
    let asked = typed.round.asked();
    let word = typed.line.split([' ', '\t']).next().unwrap_or_default();
    if GOING.contains(&word) {
        return asked.clone();
    }
    let now = state.session.sets().states();
    let same = typed.before.iter().fold(RankSet::new(), |same, (before, ranks)| {
        let still = now.iter().filter(|(it, _)| it == before);
        still.fold(same, |same, (_, of)| same.union(&of.intersection(ranks)))
    });
    asked.difference(&same).difference(&state.held)
}

fn text_of(outcome: &Outcome) -> String {
    let mut rows = Vec::new();
    for class in &outcome.classes {
        let text = class.text.trim_matches('\n');
        match text.contains('\n') {
            _ if text.is_empty() => {}
            true => rows.push(format!("[{}]\n{text}", class.ranks)),
            false => rows.push(format!("[{}] {text}", class.ranks)),
        }
        rows.extend(class.hint.iter().map(|hint| format!("hint: {hint}")));
    }
    if !outcome.running.is_empty() {
        rows.push(format!("[{}] running", outcome.running));
    }
    rows.extend(outcome.statistic.iter().map(ToString::to_string));
    rows.join("\n")
}

fn compared(round: &Round, one: &RankSet, other: &RankSet) -> String {
    let found = match round.compare(one, other) {
        Ok(found) => found,
        Err(why) => return why.to_string(),
    };
    let mut rows: Vec<String> = found.differing.iter().map(ToString::to_string).collect();
    if !found.without.is_empty() {
        rows.push(format!("[{}] no value", found.without));
    }
    rows.push(format!("{} the same", found.same));
    rows.join("\n")
}
