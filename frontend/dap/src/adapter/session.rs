//! Editor sessions: start, open partial sessions, and end.

use gantry_gdb::answer::State as RankState;
use gantry_types::rank_set::RankSet;
use serde_json::{Value, json};

use super::parts::regroup;
use super::running::go;
use super::stops::{notice, tell_stops};
use crate::args::{Attach, Common, Disconnect, Initialize, Launch, Open, Part};
use crate::message::{Client, Ticket, console, event};
use crate::state::{Effect, Order, Stage, Start, Started, State, Then};
use crate::threads::{Threads, ranks_text};

/// The maximum number of ranks in a session where each rank is a thread.
const MAX_ALONE: u64 = 4096;

/// Handles `initialize`: returns the capabilities.
pub(crate) fn initialize(state: &mut State, ticket: &Ticket, args: Initialize) {
    if let Some(editor) = state.clients.get_mut(&ticket.client) {
        editor.init = args;
    }
    let capabilities = json!({
        "supportsConfigurationDoneRequest": true,
        "supportsFunctionBreakpoints": true,
        "supportsConditionalBreakpoints": true,
        "supportsHitConditionalBreakpoints": true,
        "supportsLogPoints": true,
        "supportsEvaluateForHovers": true,
        "supportsSetVariable": true,
        "supportsDisassembleRequest": true,
        "supportsReadMemoryRequest": true,
        "supportsSteppingGranularity": true,
        "supportsTerminateRequest": true,
        "supportTerminateDebuggee": true,
        "supportsSingleThreadExecutionRequests": true,
        "supportsDelayedStackTraceLoading": true,
    });
    state.respond(ticket, capabilities);
}

/// Handles `launch`.
///
/// # Errors
/// The token is wrong, there is no program to launch, or a session exists already.
pub(crate) fn launch(state: &mut State, ticket: Ticket, args: Launch) -> Result<(), String> {
    check(state, &ticket, args.common.token.as_deref())?;
    if args.program.is_none() && args.launcher_args.is_empty() {
        return Err("'program' says what is to be launched".to_owned());
    }
    begin(state, ticket, args.common.clone(), true, Start::Launch(args))
}

/// Handles `attach`, also to a partial session.
///
/// # Errors
/// The token is wrong, no target is named, or a session exists already.
pub(crate) fn attach(state: &mut State, ticket: Ticket, args: Attach) -> Result<(), String> {
    if let Some(part) = &args.session {
        return join(state, &ticket, part);
    }
    check(state, &ticket, args.common.token.as_deref())?;
    if args.target.is_none() {
        return Err("'target' says what is to be attached to: a job, process ids, or an app of 'gantry ps'"
            .to_owned());
    }
    begin(state, ticket, args.common.clone(), false, Start::Attach(args))
}

/// Checks whether the editor may use this adapter. An editor that connected by a socket must show the token.
fn check(state: &mut State, ticket: &Ticket, token: Option<&str>) -> Result<(), String> {
    let is_right = token.is_some_and(|token| is_same(token, &state.token));
    let Some(editor) = state.clients.get_mut(&ticket.client) else {
        return Err("there is no session".to_owned());
    };
    editor.is_trusted |= is_right;
    match editor.is_trusted {
        true => Ok(()),
        false => Err("the token is wrong: it is what 'gantry dap --listen' has written".to_owned()),
    }
}

/// Compares in constant time, so that the time does not reveal how much matches.
fn is_same(one: &str, other: &str) -> bool {
    let differs = one.bytes().zip(other.bytes()).fold(0, |all, (one, other)| all | (one ^ other));
    differs == 0 && one.len() == other.len()
}

fn begin(
    state: &mut State,
    ticket: Ticket,
    common: Common,
    is_launched: bool,
    start: Start,
) -> Result<(), String> {
    if state.stage != Stage::Idle {
        return Err("this adapter debugs something already".to_owned());
    }
    if let Some(ranks) = &common.ranks {
        ranks.parse::<RankSet>().map_err(|why| format!("'ranks': {why}"))?;
    }
    state.root = Some(ticket.client);
    state.common = common;
    state.is_launched = is_launched;
    state.stage = Stage::Starting(ticket);
    state.effects.push(Effect::Start(Box::new(start)));
    Ok(())
}

/// Handles the result of the start.
pub(crate) fn started(state: &mut State, result: Result<Started, String>) {
    let Stage::Starting(ticket) = state.stage.clone() else { return };
    let started = match result {
        Ok(started) => started,
        Err(why) => {
            state.stage = Stage::Idle;
            return state.refuse(&ticket, &why);
        }
    };
    let wanted = state.common.ranks.as_ref().and_then(|ranks| ranks.parse::<RankSet>().ok());
    let ranks = wanted.unwrap_or_else(|| started.ranks.clone());
    let strange = ranks.difference(&started.ranks);
    state.session = gantry_debug::session::Session::new(started.ranks.clone());
    state.stage = Stage::Debugging;
    if !strange.is_empty() {
        state.note(&format!("there is no rank {strange}: the ranks are {}", started.ranks));
    }
    let ranks = ranks.intersection(&started.ranks);
    state.session.take(&started.answers);
    state.held = state.of_states(|it| *it == RankState::Held);
    state.is_release_due = !state.held.is_empty();
    state.program = started.program;
    be_there(state, &ticket, ranks, false);
    let method = if state.is_launched { "launch" } else { "attach" };
    let process = json!({ "name": state.program, "startMethod": method, "isLocalProcess": false });
    state.send(ticket.client, event("process", process));
    notice(state);
}

/// Gives an editor its session. The editor sends its breakpoints next.
fn be_there(state: &mut State, ticket: &Ticket, ranks: RankSet, is_part: bool) {
    if let Some(editor) = state.clients.get_mut(&ticket.client) {
        editor.ranks = ranks;
        editor.is_part = is_part;
        editor.threads = Threads::default();
        editor.is_there = true;
    }
    state.respond(ticket, json!({}));
    state.send(ticket.client, event("initialized", json!({})));
    regroup(state, None);
}

/// Gives an editor a partial session.
fn join(state: &mut State, ticket: &Ticket, part: &Part) -> Result<(), String> {
    check(state, ticket, Some(&part.token))?;
    if state.clients.get(&ticket.client).is_some_and(|editor| editor.is_there) {
        return Err("this session has begun already".to_owned());
    }
    if !matches!(state.stage, Stage::Debugging) {
        return Err("the session that this is a part of is over".to_owned());
    }
    let ranks = part.ranks.parse::<RankSet>().map_err(|why| why.to_string())?;
    let all = state.session.sets().resolve("all").unwrap_or_default();
    be_there(state, ticket, ranks.intersection(&all), true);
    Ok(())
}

/// Handles `configurationDone`: launched ranks continue, and the editor gets events for stopped ranks.
pub(crate) fn configuration_done(state: &mut State, ticket: &Ticket) {
    let client = ticket.client;
    let Some(editor) = state.clients.get_mut(&client) else { return };
    editor.is_configured = true;
    let ranks = editor.ranks.clone();
    state.respond(ticket, json!({}));
    let stays = state.common.stop_on_entry || !state.is_launched;
    if Some(client) != state.root || stays {
        let there = state.told.union(&state.held).intersection(&ranks);
        tell_stops(state, &there, Some(client));
    }
    if Some(client) != state.root {
        return;
    }
    match (state.is_launched, state.common.stop_on_entry) {
        (true, false) => go(state, &ranks, "-exec-continue", None),
        (false, true) => {
            let rest = ranks.difference(&state.held);
            state.push(rest.clone(), Order::Prepare { stay: true }, Then::Nothing);
            state.push(rest, Order::Interrupt, Then::Nothing);
        }
        _ => {}
    }
}

/// Handles `gantry/open`: opens a session where each rank is a thread.
///
/// # Errors
/// There is no such thread, or the editor cannot open sessions.
pub(crate) fn open_of(state: &mut State, ticket: &Ticket, args: &Open) -> Result<(), String> {
    let ranks = match (&args.ranks, args.thread_id) {
        (Some(set), _) => state.session.meant(Some(set)).map_err(|why| why.to_string())?,
        (None, Some(id)) => super::running::thread_of(state, ticket.client, id)?.part.ranks,
        (None, None) => return Err("'threadId' or 'ranks' says what is to be opened".to_owned()),
    };
    open(state, ticket.client, &ranks)?;
    state.respond(ticket, json!({}));
    Ok(())
}

/// Makes the editor open a session for these ranks.
///
/// # Errors
/// The editor cannot open sessions, or there are too many ranks.
pub(crate) fn open(state: &mut State, client: Client, ranks: &RankSet) -> Result<(), String> {
    let editor = state.clients.get(&client).ok_or("there is no session")?;
    if !editor.init.supports_start_debugging_request {
        return Err("this editor cannot open a session on demand (startDebugging)".to_owned());
    }
    if ranks.len() > MAX_ALONE {
        return Err(format!("a session of single ranks has {MAX_ALONE} at most"));
    }
    state.to_open.push((client, ranks.clone()));
    match state.port {
        Some(port) => open_all(state, port),
        None => state.effects.push(Effect::Listen),
    }
    Ok(())
}

/// Handles the port on which editors of partial sessions connect.
pub(crate) fn listening(state: &mut State, result: Result<u16, String>) {
    match result {
        Ok(port) => {
            state.port = Some(port);
            open_all(state, port);
        }
        Err(why) => {
            for (client, _) in std::mem::take(&mut state.to_open) {
                state.send(client, console(&format!("cannot open a session: {why}")));
            }
        }
    }
}

fn open_all(state: &mut State, port: u16) {
    for (client, ranks) in std::mem::take(&mut state.to_open) {
        let configuration = json!({
            "type": "gantry", "name": ranks_text(&ranks),
            "session": { "port": port, "token": state.token, "ranks": ranks.to_string() },
        });
        let arguments = json!({ "request": "attach", "configuration": configuration });
        let request: Value =
            json!({ "type": "request", "command": "startDebugging", "arguments": arguments });
        state.send(client, request);
    }
}

/// Handles the end of all ranks, or their loss.
pub(crate) fn ended(state: &mut State, result: Result<i32, String>) {
    if !matches!(state.stage, Stage::Debugging) {
        return;
    }
    state.stage = Stage::Ended;
    state.ended = state.session.sets().resolve("all").unwrap_or_default();
    regroup(state, None);
    match result {
        Ok(code) => state.tell_all(&event("exited", json!({ "exitCode": code }))),
        Err(why) => state.tell_all(&console(&why)),
    }
    state.tell_all(&event("terminated", json!({})));
}

/// Handles `disconnect`. When the editor that started the session leaves, everything ends.
pub(crate) fn disconnect(state: &mut State, ticket: Ticket, args: &Disconnect) {
    if !is_the_end(state, ticket.client) {
        super::breaking::forget(state, ticket.client);
        state.respond(&ticket, json!({}));
        state.effects.push(Effect::Close(ticket.client));
        return;
    }
    let terminate = args.terminate_debuggee.unwrap_or(state.is_launched);
    end(state, Some(ticket), terminate);
}

/// Whether everything ends when this editor leaves. It does for the editor that started the session, and for a trusted
/// editor if no session was started.
fn is_the_end(state: &State, client: Client) -> bool {
    match state.root {
        Some(root) => root == client,
        None => state.clients.get(&client).is_some_and(|editor| editor.is_trusted),
    }
}

/// Handles `terminate`: sends all ranks a signal.
///
/// # Errors
/// There are no ranks.
pub(crate) fn terminate(state: &mut State, ticket: &Ticket) -> Result<(), String> {
    if !matches!(state.stage, Stage::Debugging) {
        return Err("there are no ranks".to_owned());
    }
    // Ranks stopped in a debugger do not react to SIGTERM.
    let kill = !state.standing().is_empty() || !state.held.is_empty();
    state.effects.push(Effect::Signal { kill });
    state.respond(ticket, json!({}));
    Ok(())
}

/// Handles an editor that disconnects without a request.
pub(crate) fn left(state: &mut State, client: Client) {
    if is_the_end(state, client) {
        let terminate = state.is_launched;
        end(state, None, terminate);
    } else {
        super::breaking::forget(state, client);
    }
    state.clients.remove(&client);
}

fn end(state: &mut State, ticket: Option<Ticket>, terminate: bool) {
    match std::mem::replace(&mut state.stage, Stage::Ending(ticket.clone())) {
        Stage::Idle => over(state, Ok(())),
        Stage::Ending(first) => {
            // The first `disconnect` is answered at the end.
            state.stage = Stage::Ending(first);
            if let Some(ticket) = ticket {
                state.respond(&ticket, json!({}));
            }
        }
        Stage::Starting(begun) => {
            state.refuse(&begun, "the session was ended");
            state.effects.push(Effect::End { terminate: true });
        }
        Stage::Debugging | Stage::Ended => {
            state.jobs.clear();
            state.effects.push(Effect::End { terminate });
        }
    }
}

/// Handles the end of the app's session.
pub(crate) fn over(state: &mut State, result: Result<(), String>) {
    if let Stage::Ending(ticket) = state.stage.clone() {
        if let Err(why) = &result {
            state.note(why);
        }
        if let Some(ticket) = ticket {
            state.respond(&ticket, json!({}));
        }
        state.tell_all(&event("terminated", json!({})));
    }
    let clients: Vec<Client> = state.clients.keys().copied().collect();
    state.effects.extend(clients.into_iter().map(Effect::Close));
    state.effects.push(Effect::Stop);
}
