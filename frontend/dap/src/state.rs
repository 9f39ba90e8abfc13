//! What the adapter knows, and what it has to do.

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

/// Something that has happened.
#[derive(Debug)]
pub enum Input {
    /// An editor is there.
    Joined {
        /// Which.
        client: Client,
        /// It has come by a socket, and must show the token.
        by_socket: bool,
    },
    /// An editor has sent something.
    Frame(Client, Frame),
    /// An editor is gone.
    Left(Client),
    /// The ranks are there, or why they are not.
    Started(Result<Started, String>),
    /// What has come of [`Effect::Order`].
    Answered(Result<Vec<(Answer, RankSet)>, String>),
    /// What has come of [`Effect::Release`].
    Released(Result<(), String>),
    /// What has come of [`Effect::Listen`]: the port.
    Listening(Result<u16, String>),
    /// What has come of [`Effect::End`].
    Over(Result<(), String>),
    /// Lines that ranks have written.
    Output {
        /// To standard error.
        is_error: bool,
        /// The text, with the ranks before each line.
        text: String,
    },
    /// Something that people should know, such as a node that does not answer.
    Note(String),
    /// All ranks have ended, or why that will never be known.
    Ended(Result<i32, String>),
}

/// Something that is to be done. What has come of it is an [`Input`].
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send an editor a message. The bytes are those of [`build_frame`](crate::frame::build_frame).
    Send(Client, Vec<u8>),
    /// Launch, or attach.
    Start(Box<Start>),
    /// Tell the daemons.
    Order {
        /// What.
        what: What,
        /// How long they may wait.
        patience: Duration,
    },
    /// Let all ranks go that are held before their first instruction.
    Release,
    /// Listen on this machine for parts of the session.
    Listen,
    /// Send all ranks SIGTERM, or SIGKILL.
    Signal {
        /// SIGKILL.
        kill: bool,
    },
    /// Let go of the app.
    End {
        /// The ranks end. Else they are left as they were.
        terminate: bool,
    },
    /// Close an editor's connection, when all was sent.
    Close(Client),
    /// There is nothing more to do.
    Stop,
}

/// How the ranks come.
#[derive(Debug, Clone, PartialEq)]
pub enum Start {
    /// They are launched, and held.
    Launch(Launch),
    /// They are there.
    Attach(Attach),
}

/// The ranks.
#[derive(Debug, Clone)]
pub struct Started {
    /// All of them.
    pub ranks: RankSet,
    /// How they stand.
    pub answers: Vec<(Answer, RankSet)>,
    /// The first one's program.
    pub program: String,
}

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No editor has said what is to be debugged.
    Idle,
    /// The ranks are on their way.
    Starting(Ticket),
    /// They are there.
    Debugging,
    /// All have ended.
    Ended,
    /// They are being let go.
    Ending(Option<Ticket>),
}

/// An editor.
#[derive(Debug)]
pub(crate) struct Editor {
    pub(crate) init: Initialize,
    /// It need not show the token, or has shown it.
    pub(crate) is_trusted: bool,
    /// It has a session.
    pub(crate) is_there: bool,
    /// Its breakpoints are set, so it is told of stops.
    pub(crate) is_configured: bool,
    /// The ranks that it sees.
    pub(crate) ranks: RankSet,
    /// Each rank is a thread.
    pub(crate) is_part: bool,
    pub(crate) threads: Threads,
    pub(crate) seq: i64,
}

/// Where ranks stand: their call path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) stack: String,
    pub(crate) function: String,
}

/// Something that daemons do for us. One at a time.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) ranks: RankSet,
    pub(crate) order: Order,
    pub(crate) then: Then,
}

/// What they do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    /// Tell how ranks stand.
    Look,
    /// Wait until these ranks stand.
    Stand,
    /// Stop them.
    Interrupt,
    /// Get gdbs for those that have none, with all breakpoints. Ranks that ran go on, unless they are to stay.
    Prepare { stay: bool },
    /// Set these breakpoints, and get gdbs for ranks that have none.
    Insert(Vec<i64>),
    /// Ask gdb.
    Ask(Vec<String>),
    /// The same without addresses, in which ranks differ.
    AskBare(Vec<String>),
    /// Give gdb a line that was typed.
    Tell(String),
    /// Wait for what was typed.
    Wait,
}

/// What is done with the answers.
#[derive(Debug)]
pub(crate) enum Then {
    Nothing,
    /// Gdbs have set these breakpoints; with the number of commands of each.
    Inserted {
        ids: Vec<(i64, usize)>,
        ticket: Option<(Ticket, Vec<Result<i64, String>>)>,
    },
    /// Ranks go on.
    Gone {
        ticket: Option<(Ticket, Value)>,
        is_step: bool,
    },
    /// Ranks have come to stand there.
    Placed,
    /// What is to be logged.
    Logged {
        id: i64,
        is_step: bool,
    },
    Stack {
        ticket: Ticket,
        ranks: RankSet,
        start: u32,
    },
    Locals {
        ticket: Ticket,
        level: u32,
        list: i64,
    },
    Registers {
        ticket: Ticket,
    },
    /// Children of an object from that one on, and those that were found already.
    Children {
        ticket: Ticket,
        level: u32,
        list: i64,
        object: String,
        from: u32,
        found: Vec<(Vec<Variable>, RankSet)>,
    },
    Evaluated {
        ticket: Ticket,
        level: u32,
        object: String,
    },
    Assigned {
        ticket: Ticket,
    },
    Disassembled {
        ticket: Ticket,
        address: u64,
        offset: i64,
        count: u32,
    },
    Memory {
        ticket: Ticket,
        address: u64,
        asked: u64,
    },
    Said {
        ticket: Ticket,
        typed: Typed,
    },
    /// Ranks of a thread were asked to stand.
    Paused {
        ticket: Ticket,
    },
}

/// What somebody has typed.
#[derive(Debug, Clone)]
pub(crate) struct Typed {
    pub(crate) line: String,
    pub(crate) round: gantry_debug::round::Round,
    /// How often it was waited for.
    pub(crate) rounds: u32,
    /// The two sets that are compared.
    pub(crate) compare: Option<(RankSet, RankSet)>,
    /// How ranks stood before.
    pub(crate) before: Vec<(RankState, RankSet)>,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) token: String,
    pub(crate) clients: BTreeMap<Client, Editor>,
    /// Who has begun it.
    pub(crate) root: Option<Client>,
    pub(crate) stage: Stage,
    pub(crate) common: Common,
    pub(crate) is_launched: bool,
    pub(crate) program: String,
    pub(crate) session: Session,
    /// Ranks that are held before their first instruction, with a gdb or without.
    pub(crate) held: RankSet,
    /// Some were held, and nothing has released the app.
    pub(crate) is_release_due: bool,
    pub(crate) places: Vec<(Place, RankSet)>,
    /// Ranks that stand, and of which that is known here.
    pub(crate) told: RankSet,
    /// Ranks that are being asked for what is to be logged.
    pub(crate) logging: RankSet,
    /// Ranks that make a step.
    pub(crate) stepping: RankSet,
    /// Ranks that had a gdb, at the last look.
    pub(crate) with_gdb: RankSet,
    pub(crate) ended: RankSet,
    pub(crate) breakpoints: Breakpoints,
    pub(crate) handles: Handles,
    pub(crate) jobs: VecDeque<Job>,
    pub(crate) current: Option<Job>,
    /// Some ranks have come to stand, and others are given a moment.
    pub(crate) is_settling: bool,
    /// Nodes have not answered. They are asked again when an editor wants something.
    pub(crate) is_quiet: bool,
    /// Where parts of the session are waited for.
    pub(crate) port: Option<u16>,
    /// Parts that are to be opened: for whom, and which ranks.
    pub(crate) to_open: Vec<(Client, RankSet)>,
    /// Who waits for the release of all.
    pub(crate) releasing: Option<(Ticket, Value)>,
    pub(crate) effects: Vec<Effect>,
}

impl State {
    pub(crate) fn new(token: String) -> Self {
        Self {
            token,
            clients: BTreeMap::new(),
            root: None,
            stage: Stage::Idle,
            common: Common::default(),
            is_launched: false,
            program: String::new(),
            session: Session::new(RankSet::new()),
            held: RankSet::new(),
            is_release_due: false,
            places: Vec::new(),
            told: RankSet::new(),
            logging: RankSet::new(),
            stepping: RankSet::new(),
            with_gdb: RankSet::new(),
            ended: RankSet::new(),
            breakpoints: Breakpoints::default(),
            handles: Handles::default(),
            jobs: VecDeque::new(),
            current: None,
            is_settling: false,
            is_quiet: false,
            port: None,
            to_open: Vec::new(),
            releasing: None,
            effects: Vec::new(),
        }
    }

    /// Sends an editor a message, which gets its number here.
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

    /// Sends all editors that have a session an event.
    pub(crate) fn tell_all(&mut self, event: &Value) {
        let there: Vec<Client> =
            self.clients.iter().filter(|(_, editor)| editor.is_there).map(|(client, _)| *client).collect();
        there.into_iter().for_each(|client| self.send(client, event.clone()));
    }

    /// Sends who has begun it an event.
    pub(crate) fn tell_root(&mut self, event: Value) {
        if let Some(root) = self.root {
            self.send(root, event);
        }
    }

    /// Words of ours for who has begun it.
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

    /// The ranks whose state is such a one.
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
