//! The state machine: inputs and their effects.
//!
//! Daemons carry out one order at a time. Jobs for them wait in a queue. Each job says how to handle its answers. While
//! ranks run and the queue is empty, the adapter orders the daemons to wait until the ranks are stopped.

mod breaking;
mod looking;
mod parts;
mod repl;
mod running;
mod session;
mod stops;
#[cfg(test)]
mod tests;

use std::time::Duration;

use gantry_gdb::answer::{Answer, MAX_SAID_BYTES, State as RankState};
use gantry_gdb::order::What;
use gantry_types::rank_set::RankSet;
use serde_json::json;

pub use crate::state::{Effect, Input, Start, Started};

use crate::args::Open;
use crate::frame::Frame;
use crate::message::{Client, Incoming, Ticket, event, refusal};
use crate::state::{Editor, Job, Order, Response, Stage, State, Then};

/// The maximum number of waiting jobs.
const MAX_JOBS: usize = 2000;

/// The timeout for a request to gdbs. It includes the time in which gdb reads symbols.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long daemons wait for ranks to stop before they report the progress.
const STRIDE: Duration = Duration::from_millis(100);

/// The timeout for ranks to stop after an interrupt.
const STOPPING: Duration = Duration::from_secs(2);

/// The total size of the answers of all ranks to one order.
const ROOM_BYTES: usize = 16 << 20;

/// The minimum share of a rank in that size.
const LEAST_ROOM_BYTES: usize = 2 << 10;

/// The debug adapter of one app.
#[derive(Debug)]
pub struct Adapter {
    state: State,
}

impl Adapter {
    /// A new adapter without a session. Editors that connect by a socket must show the token.
    #[must_use]
    pub fn new(token: String) -> Self {
        Self { state: State { token, ..State::default() } }
    }

    /// The editor that started the session, if any.
    #[must_use]
    pub fn root(&self) -> Option<Client> {
        self.state.root
    }

    /// Takes an input. Returns the effects, in order.
    #[must_use]
    pub fn handle(&mut self, input: Input) -> Vec<Effect> {
        let state = &mut self.state;
        match input {
            Input::Joined { client, by_socket } => {
                state.clients.insert(client, Editor { is_trusted: !by_socket, ..Editor::default() });
            }
            Input::Frame(client, frame) => take_frame(state, client, frame),
            Input::Left(client) if state.clients.contains_key(&client) => session::left(state, client),
            Input::Left(_) => {}
            Input::Started(result) => session::started(state, result),
            Input::Answered(result) => answered(state, result),
            Input::Released(result) => running::released(state, result),
            Input::Listening(result) => session::listening(state, result),
            Input::Over(result) => session::over(state, result),
            Input::Output { is_error, text } => {
                let category = if is_error { "stderr" } else { "stdout" };
                state.tell_root(event("output", json!({ "category": category, "output": text })));
            }
            Input::Note(text) => state.note(&text),
            Input::Ended(result) => session::ended(state, result),
        }
        pump(state);
        std::mem::take(&mut state.effects)
    }
}

fn take_frame(state: &mut State, client: Client, frame: Frame) {
    state.is_quiet = false;
    let incoming = match frame {
        Frame::Bad(why) => Err((0, why)),
        Frame::Body(body) => Incoming::parse(&body),
    };
    match incoming {
        Err((seq, why)) => state.send(client, refusal(seq, "", &why)),
        Ok(incoming) if incoming.kind == "request" => {
            let ticket = Ticket { client, seq: incoming.seq, command: incoming.command.clone() };
            if let Err(why) = request(state, &ticket, &incoming) {
                state.refuse(&ticket, &why);
            }
        }
        Ok(incoming) if incoming.kind == "response" => {
            if !incoming.success {
                let why = incoming.message.unwrap_or_default();
                state.note(&format!("the editor did not do '{}': {why}", incoming.command));
            }
        }
        Ok(incoming) => {
            state.send(
                client,
                refusal(incoming.seq, &incoming.command, "this is neither request nor response"),
            );
        }
    }
}

/// Starts a request.
fn request(state: &mut State, ticket: &Ticket, incoming: &Incoming) -> Result<(), String> {
    match incoming.command.as_str() {
        "initialize" => {
            session::initialize(state, ticket, incoming.args()?);
            return Ok(());
        }
        "launch" => return session::launch(state, ticket.clone(), incoming.args()?),
        "attach" => return session::attach(state, ticket.clone(), incoming.args()?),
        "disconnect" => {
            session::disconnect(state, ticket.clone(), &incoming.args()?);
            return Ok(());
        }
        _ => {}
    }
    let is_there = state.clients.get(&ticket.client).is_some_and(|editor| editor.is_there);
    if !is_there {
        return Err("there are no ranks yet: launch or attach first".to_owned());
    }
    match incoming.command.as_str() {
        "configurationDone" => session::configuration_done(state, ticket),
        "threads" => threads(state, ticket),
        // gdb's stops for exceptions are ordinary breakpoints.
        "setExceptionBreakpoints" => state.respond(ticket, json!({})),
        "scopes" => looking::scopes(state, ticket, &incoming.args()?)?,
        "terminate" => session::terminate(state, ticket)?,
        "gantry/open" => session::open_of(state, ticket, &incoming.args::<Open>()?)?,
        _ if state.stage != Stage::Debugging => return Err("all ranks have ended".to_owned()),
        _ if state.jobs.len() >= MAX_JOBS => return Err("too much is asked at once".to_owned()),
        _ => return asking(state, ticket.clone(), incoming),
    }
    Ok(())
}

/// Starts a request that needs an answer from gdb.
fn asking(state: &mut State, ticket: Ticket, incoming: &Incoming) -> Result<(), String> {
    match incoming.command.as_str() {
        "setBreakpoints" => breaking::set_in_source(state, ticket, &incoming.args()?),
        "setFunctionBreakpoints" => breaking::set_at_functions(state, ticket, &incoming.args()?),
        "continue" => running::go_on(state, ticket, &incoming.args()?),
        "next" | "stepIn" | "stepOut" => running::step(state, ticket, &incoming.args()?),
        "pause" => running::pause(state, ticket, &incoming.args()?),
        "stackTrace" => looking::stack_trace(state, ticket, &incoming.args()?),
        "variables" => looking::variables(state, ticket, &incoming.args()?),
        "setVariable" => looking::set_variable(state, ticket, &incoming.args()?),
        "disassemble" => looking::disassemble(state, ticket, &incoming.args()?),
        "readMemory" => looking::read_memory(state, ticket, &incoming.args()?),
        "evaluate" => {
            let args: crate::args::Evaluate = incoming.args()?;
            match args.context.as_deref() {
                Some("repl") => repl::evaluate(state, ticket, &args),
                _ => looking::evaluate(state, ticket, &args),
            }
        }
        other => Err(format!("there is no request '{other}' here")),
    }
}

fn threads(state: &mut State, ticket: &Ticket) {
    let threads: Vec<serde_json::Value> = state
        .clients
        .get(&ticket.client)
        .map(|editor| editor.threads.all())
        .unwrap_or_default()
        .iter()
        .map(|thread| json!({ "id": thread.id, "name": thread.name() }))
        .collect();
    state.respond(ticket, json!({ "threads": threads }));
}

/// Gives the daemons the next order if they are idle.
fn pump(state: &mut State) {
    if state.stage != Stage::Debugging {
        let why = "all ranks have ended";
        while let Some(job) = state.jobs.pop_front() {
            fail(state, job, why);
        }
        return;
    }
    while state.current.is_none() {
        let Some(job) = state.jobs.pop_front() else {
            let running = state.of_states(|it| matches!(it, RankState::Running | RankState::Coming));
            if running.is_empty() || state.is_quiet {
                return;
            }
            return give(state, Job { ranks: running, order: Order::Stand, then: Then::Nothing });
        };
        dispatch(state, job);
    }
}

/// Turns a job into an order, or into other jobs.
fn dispatch(state: &mut State, mut job: Job) {
    job.ranks = job.ranks.difference(&state.ended);
    match &job.order {
        Order::Prepare { stay } => prepare(state, &job.ranks, *stay),
        Order::Insert(ids) => {
            let with = job.ranks.difference(&state.without_gdb());
            let without = job.ranks.difference(&with);
            let (commands, counts) = breaking::commands_of(state, ids);
            let ticket = match job.then {
                Then::Inserted { ticket, .. } => ticket,
                _ => None,
            };
            let then = Then::Inserted { ids: counts, ticket };
            state.jobs.push_front(Job { ranks: with, order: Order::Ask(commands), then });
            prepare(state, &without, false);
        }
        Order::Ask(_) | Order::AskBare(_) | Order::Tell(_) | Order::Wait | Order::Interrupt
            if job.ranks.is_empty() =>
        {
            done(state, job, &[]);
        }
        _ => give(state, job),
    }
}

/// Starts gdbs for ranks that have none. Running ranks continue unless `stay` is set.
fn prepare(state: &mut State, ranks: &RankSet, stay: bool) {
    let without = ranks.intersection(&state.without_gdb());
    let held = without.intersection(&state.of_states(|it| *it == RankState::Held));
    for (ranks, goes_on) in [(without.difference(&held), !stay), (held, false)] {
        if ranks.is_empty() {
            continue;
        }
        let (mut commands, ids) = breaking::commands_for_new(state, &ranks);
        // The last command must be one that gdb answers after it has attached to its rank.
        commands.push(if goes_on { "-exec-continue" } else { "-gdb-show confirm" }.to_owned());
        let then = Then::Inserted { ids, ticket: None };
        state.jobs.push_front(Job { ranks, order: Order::Ask(commands), then });
    }
}

fn give(state: &mut State, job: Job) {
    let ranks = job.ranks.clone();
    let count = usize::try_from(ranks.len()).unwrap_or(usize::MAX).max(1);
    let room = (ROOM_BYTES / count).clamp(LEAST_ROOM_BYTES, MAX_SAID_BYTES);
    let room_bytes = u32::try_from(room).unwrap_or(u32::MAX);
    let ask = |commands: &[String], without: Vec<String>| What::Ask {
        ranks: ranks.clone(),
        commands: commands.to_vec(),
        room_bytes,
        without,
    };
    let (what, patience) = match &job.order {
        Order::Look | Order::Prepare { .. } | Order::Insert(_) => {
            (What::Wait { ranks: RankSet::new() }, Duration::ZERO)
        }
        // Wait for the ranks that run now.
        Order::Stand => (What::Stand { ranks: state.of_states(|it| *it == RankState::Running) }, STRIDE),
        Order::Interrupt => (What::Interrupt { ranks: ranks.clone() }, STOPPING),
        Order::Ask(commands) => (ask(commands, Vec::new()), PATIENCE),
        Order::AskBare(commands) => (ask(commands, vec!["addr".to_owned()]), PATIENCE),
        Order::Tell(line) => (What::Tell { ranks: ranks.clone(), line: line.clone() }, repl::STRIDE),
        Order::Wait => (What::Wait { ranks: ranks.clone() }, repl::STRIDE),
    };
    state.current = Some(job);
    state.effects.push(Effect::Order { what, patience });
}

/// Handles the answers to an order.
fn answered(state: &mut State, result: Result<Vec<(Answer, RankSet)>, String>) {
    let Some(job) = state.current.take() else { return };
    match result {
        Ok(answers) => {
            state.session.take(&answers);
            done(state, job, &answers);
            stops::notice(state);
            parts::regroup(state, None);
            running::release_if_due(state);
        }
        Err(why) => fail(state, job, &why),
    }
}

/// Handles the answers as the job asks.
fn done(state: &mut State, job: Job, answers: &[(Answer, RankSet)]) {
    let ranks = &job.ranks;
    match job.then {
        Then::Nothing => {}
        Then::Inserted { ids, ticket } => breaking::inserted(state, ranks, &ids, ticket, answers),
        Then::Gone { ticket, is_step } => running::gone(state, ranks, ticket, is_step, answers),
        Then::Placed => stops::placed(state, ranks, answers),
        Then::Logged { id, is_step } => stops::logged(state, id, is_step, ranks, answers),
        Then::Respond(ticket, response) => respond(state, ticket, response, ranks, answers),
    }
}

/// Responds to a request.
fn respond(
    state: &mut State,
    ticket: Ticket,
    response: Response,
    ranks: &RankSet,
    answers: &[(Answer, RankSet)],
) {
    match response {
        Response::Stack { ranks: shown, start } => {
            looking::stack(state, &ticket, ranks, &shown, start, answers);
        }
        Response::Locals { level, list } => looking::locals(state, &ticket, (level, list), ranks, answers),
        Response::Registers => looking::registers(state, &ticket, ranks, answers),
        Response::Children(of) => looking::children(state, ticket, of, ranks, answers),
        Response::Evaluated { level, object } => {
            looking::evaluated(state, &ticket, (level, object), ranks, answers);
        }
        Response::Assigned => looking::assigned(state, &ticket, ranks, answers),
        Response::Disassembled { address, offset, count } => {
            looking::disassembled(state, &ticket, (address, offset, count), ranks, answers);
        }
        Response::Memory { address, asked } => {
            looking::memory(state, &ticket, (address, asked), ranks, answers);
        }
        Response::Said(typed) => repl::take(state, ticket, typed, answers),
        Response::Paused => state.respond(&ticket, json!({})),
    }
}

/// Handles a job that failed because nodes did not answer.
fn fail(state: &mut State, job: Job, why: &str) {
    state.is_quiet = true;
    match job.then {
        Then::Nothing | Then::Inserted { ticket: None, .. } | Then::Gone { ticket: None, .. } => {
            state.note(why)
        }
        // Ask these ranks again later.
        Then::Placed => state.told = state.told.difference(&job.ranks),
        Then::Logged { .. } => state.logging = state.logging.difference(&job.ranks),
        Then::Inserted { ticket: Some((ticket, _)), .. }
        | Then::Gone { ticket: Some((ticket, _)), .. }
        | Then::Respond(ticket, _) => state.refuse(&ticket, why),
    }
}
