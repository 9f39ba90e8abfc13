//! The state of the adapter, and the effects that it requests.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use gantry_debug::session::Session;
use gantry_gdb::answer::{Answer, State as RankState};
use gantry_gdb::order::What;
use gantry_types::rank_set::RankSet;
use serde_json::Value;

use crate::args::{Attach, Common, Initialize, Launch};
use crate::breakpoints::Breakpoints;
use crate::frame::Frame;
use crate::handles::Handles;
use crate::message::{Client, Ticket, response};
use crate::threads::Threads;
use crate::values::Variable;

/// Something that happened outside.
#[derive(Debug)]
pub enum Input {
    /// An editor has connected.
    Joined {
        /// Its connection.
        client: Client,
        /// It connected by a socket, so it must show the token.
        by_socket: bool,
    },
    /// An editor sent a message.
    Frame(Client, Frame),
    /// An editor has disconnected.
    Left(Client),
    /// The ranks are ready, or the start failed.
    Started(Result<Started, String>),
    /// The result of [`Effect::Order`].
    Answered(Result<Vec<(Answer, RankSet)>, String>),
    /// The result of [`Effect::Release`].
    Released(Result<(), String>),
    /// The result of [`Effect::Listen`]: the port.
    Listening(Result<u16, String>),
    /// The result of [`Effect::End`].
    Over(Result<(), String>),
    /// Output lines of ranks.
    Output {
        /// The output is from standard error.
        is_error: bool,
        /// The text, with the ranks before each line.
        text: String,
    },
    /// A message for the user, such as a node that does not answer.
    Note(String),
    /// All ranks have ended, or the frontend has lost them.
    Ended(Result<i32, String>),
}

/// An action for the driver. Its result is an [`Input`].
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send a message to an editor. The bytes come from [`build_frame`](crate::frame::build_frame).
    Send(Client, Vec<u8>),
    /// Launch, or attach.
    Start(Box<Start>),
    /// Send an order to the daemons.
    Order {
        /// The order.
        what: What,
        /// How long the daemons may take.
        patience: Duration,
    },
    /// Release all ranks that are held before their first instruction.
    Release,
    /// Listen on this machine for editors of partial sessions.
    Listen,
    /// Send all ranks SIGTERM, or SIGKILL.
    Signal {
        /// SIGKILL.
        kill: bool,
    },
    /// Detach from the app.
    End {
        /// End the ranks. Otherwise they are left as they were.
        terminate: bool,
    },
    /// Close an editor's connection after all its messages are sent.
    Close(Client),
    /// Stop: there is nothing more to do.
    Stop,
}

/// How to get the ranks.
#[derive(Debug, Clone, PartialEq)]
pub enum Start {
    /// Launch them, and hold them.
    Launch(Launch),
    /// Attach to running ranks.
    Attach(Attach),
}

/// The ranks after the start.
#[derive(Debug, Clone)]
pub struct Started {
    /// All of them.
    pub ranks: RankSet,
    /// Their state.
    pub answers: Vec<(Answer, RankSet)>,
    /// The program of the first rank.
    pub program: String,
}

/// The stage of the session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No editor has named what to debug.
    #[default]
    Idle,
    /// The ranks are being started.
    Starting(Ticket),
    /// The ranks are being debugged.
    Debugging,
    /// All ranks have ended.
    Ended,
    /// The ranks are being released, or ended.
    Ending(Option<Ticket>),
}

/// A connected editor.
#[derive(Debug, Default)]
pub(crate) struct Editor {
    pub(crate) init: Initialize,
    /// It has shown the token, or need not.
    pub(crate) is_trusted: bool,
    /// It has a session.
    pub(crate) is_there: bool,
    /// It has set its breakpoints, so it gets stop events.
    pub(crate) is_configured: bool,
    /// The ranks that it sees.
    pub(crate) ranks: RankSet,
    /// In this session each rank is a thread.
    pub(crate) is_part: bool,
    pub(crate) threads: Threads,
    pub(crate) seq: i64,
}

/// The place of stopped ranks: their call path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) stack: String,
    pub(crate) function: String,
}

/// Work for the daemons. They do one job at a time.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) ranks: RankSet,
    pub(crate) order: Order,
    pub(crate) then: Then,
}

/// The order of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    /// Report the state of the ranks.
    Look,
    /// Wait until these ranks are stopped.
    Stand,
    /// Interrupt these ranks.
    Interrupt,
    /// Start gdbs, with all breakpoints, for ranks that have none. Running ranks continue unless `stay` is set.
    Prepare { stay: bool },
    /// Set these breakpoints, and start gdbs for ranks that have none.
    Insert(Vec<i64>),
    /// Send commands to gdb.
    Ask(Vec<String>),
    /// Send commands to gdb, and strip addresses from the answers: they differ between ranks.
    AskBare(Vec<String>),
    /// Give gdb a line that the user typed.
    Tell(String),
    /// Wait for the typed command to finish.
    Wait,
}

/// How to handle the answers.
#[derive(Debug)]
pub(crate) enum Then {
    Nothing,
    /// Breakpoints were set, each with this number of commands.
    Inserted {
        ids: Vec<(i64, usize)>,
        ticket: Option<(Ticket, Vec<Result<i64, String>>)>,
    },
    /// Ranks have continued.
    Gone {
        ticket: Option<(Ticket, Value)>,
        is_step: bool,
    },
    /// Ranks have stopped at a place.
    Placed,
    /// The values for a log message.
    Logged {
        id: i64,
        is_step: bool,
    },
    /// A request gets its response.
    Respond(Ticket, Response),
}

/// How to build the response to a request.
#[derive(Debug)]
pub(crate) enum Response {
    Stack {
        ranks: RankSet,
        start: u32,
    },
    Locals {
        level: u32,
        list: i64,
    },
    Registers,
    Children(Children),
    Evaluated {
        level: u32,
        object: String,
    },
    Assigned,
    Disassembled {
        address: u64,
        offset: i64,
        count: u32,
    },
    Memory {
        address: u64,
        asked: u64,
    },
    Said(Typed),
    /// Ranks of a thread were interrupted.
    Paused,
}

/// Children of an object, starting at `from`, and the children found before.
#[derive(Debug)]
pub(crate) struct Children {
    pub(crate) level: u32,
    pub(crate) list: i64,
    pub(crate) object: String,
    pub(crate) from: u32,
    pub(crate) found: Vec<(Vec<Variable>, RankSet)>,
}

/// A line typed by the user.
#[derive(Debug, Clone)]
pub(crate) struct Typed {
    pub(crate) line: String,
    pub(crate) round: gantry_debug::round::Round,
    /// How many times the adapter has waited for it.
    pub(crate) rounds: u32,
    /// The two sets to compare.
    pub(crate) compare: Option<(RankSet, RankSet)>,
    /// The state of the ranks before the command.
    pub(crate) before: Vec<(RankState, RankSet)>,
}

/// The state of the adapter.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) token: String,
    pub(crate) clients: BTreeMap<Client, Editor>,
    /// The editor that started the session.
    pub(crate) root: Option<Client>,
    pub(crate) stage: Stage,
    pub(crate) common: Common,
    pub(crate) is_launched: bool,
    pub(crate) program: String,
    pub(crate) session: Session,
    /// Ranks that are held before their first instruction, with or without a gdb.
    pub(crate) held: RankSet,
    /// Some ranks were held, and the app is not released yet.
    pub(crate) is_release_due: bool,
    pub(crate) places: Vec<(Place, RankSet)>,
    /// Stopped ranks that this adapter has taken note of.
    pub(crate) told: RankSet,
    /// Ranks that are evaluating a log message.
    pub(crate) logging: RankSet,
    /// Ranks that are stepping.
    pub(crate) stepping: RankSet,
    /// Ranks that had a gdb in the last answers.
    pub(crate) with_gdb: RankSet,
    pub(crate) ended: RankSet,
    pub(crate) breakpoints: Breakpoints,
    pub(crate) handles: Handles,
    pub(crate) jobs: VecDeque<Job>,
    pub(crate) current: Option<Job>,
    /// Some ranks have stopped, and the adapter waits a moment for the others.
    pub(crate) is_settling: bool,
    /// Some nodes do not answer. The adapter asks again when an editor needs something.
    pub(crate) is_quiet: bool,
    /// The port for editors of partial sessions.
    pub(crate) port: Option<u16>,
    /// Partial sessions to open: the editor, and the ranks.
    pub(crate) to_open: Vec<(Client, RankSet)>,
    /// The request that waits for the release of all ranks.
    pub(crate) releasing: Option<(Ticket, Value)>,
    pub(crate) effects: Vec<Effect>,
}

impl State {
    /// Sends a message to an editor. This assigns its sequence number.
    pub(crate) fn send(&mut self, client: Client, mut message: Value) {
        let Some(editor) = self.clients.get_mut(&client) else { return };
        editor.seq += 1;
        message["seq"] = editor.seq.into();
        let body = message.to_string();
        self.effects.push(Effect::Send(client, crate::frame::build_frame(body.as_bytes())));
    }

    pub(crate) fn respond(&mut self, ticket: &Ticket, body: Value) {
        self.send(ticket.client, response(ticket, body));
    }

    pub(crate) fn refuse(&mut self, ticket: &Ticket, why: &str) {
        self.send(ticket.client, crate::message::refusal(ticket.seq, &ticket.command, why));
    }

    /// Sends an event to all editors that have a session.
    pub(crate) fn tell_all(&mut self, event: &Value) {
        let there: Vec<Client> =
            self.clients.iter().filter(|(_, editor)| editor.is_there).map(|(client, _)| *client).collect();
        there.into_iter().for_each(|client| self.send(client, event.clone()));
    }

    /// Sends an event to the editor that started the session.
    pub(crate) fn tell_root(&mut self, event: Value) {
        if let Some(root) = self.root {
            self.send(root, event);
        }
    }

    /// Prints our own text in the console of the editor that started the session.
    pub(crate) fn note(&mut self, text: &str) {
        self.tell_root(crate::message::console(text));
    }

    pub(crate) fn first_line(&self, client: Client) -> i64 {
        let starts_at_one = self.clients.get(&client).and_then(|editor| editor.init.lines_start_at1);
        i64::from(starts_at_one != Some(false))
    }

    pub(crate) fn push(&mut self, ranks: RankSet, order: Order, then: Then) {
        self.jobs.push_back(Job { ranks, order, then });
    }

    /// The ranks whose state satisfies the predicate.
    pub(crate) fn of_states(&self, is_meant: impl Fn(&RankState) -> bool) -> RankSet {
        let meant = self.session.sets().states().iter().filter(|(state, _)| is_meant(state));
        meant.fold(RankSet::new(), |all, (_, ranks)| all.union(ranks))
    }

    /// Ranks that gdb has stopped.
    pub(crate) fn standing(&self) -> RankSet {
        self.of_states(|state| matches!(state, RankState::Stopped(_)))
    }

    /// Ranks without a gdb.
    pub(crate) fn without_gdb(&self) -> RankSet {
        self.of_states(|state| matches!(state, RankState::Held | RankState::Free))
    }
}
