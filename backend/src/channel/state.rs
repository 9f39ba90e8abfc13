//! The state of a daemon's end of a channel. Pure: it gets messages, and finds those that callers wait for.

use std::collections::{BTreeMap, HashMap, VecDeque};

use gantry_shared::wire::channel::{DaemonFlow, FromDaemon, ToDaemon, cost_of};
use gantry_shared::wire::flow::{Inflow, Outflow, Word};
use gantry_types::error::Failure;

use crate::Error;
use crate::dialogue::Party;

/// The state.
#[derive(Debug)]
pub(super) struct State {
    messages: VecDeque<Message>,
    last: u64,
    inbox: Inflow,
    /// Credit to give to the agent now.
    due: u32,
    outbox: Outflow,
    /// First chunks of contributions that were not requested yet.
    early: Outflow,
    rounds: HashMap<u32, u64>,
    /// Contributions that were not sent completely.
    parts: BTreeMap<(u32, u64), Part>,
    jobs: VecDeque<Job>,
    refused: Option<Failure>,
}

#[derive(Debug)]
struct Message {
    number: u64,
    tag: u32,
    claimed: bool,
    /// The reader has dropped the rest.
    abandoned: bool,
    pieces: VecDeque<(Vec<u8>, u32)>,
    /// It is complete, or was cut off.
    ended: Option<Result<(), Failure>>,
}

/// The next bytes of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) tag: u32,
    pub(super) bytes: Vec<u8>,
    pub(super) last: bool,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    rest: Outflow,
    over: bool,
}

/// Parts that this daemon is to merge.
#[derive(Debug, Default)]
pub(super) struct Job {
    pub(super) filter: String,
    pub(super) operation: u64,
    pub(super) parts: Vec<Vec<u8>>,
    part: Vec<u8>,
    complete: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            messages: VecDeque::new(),
            last: 0,
            inbox: DaemonFlow::Inbox.inflow(),
            due: 0,
            outbox: DaemonFlow::Messages.outflow(),
            early: DaemonFlow::Early.outflow(),
            rounds: HashMap::new(),
            parts: BTreeMap::new(),
            jobs: VecDeque::new(),
            refused: None,
        }
    }
}

impl State {
    fn add(&mut self, tag: u32, bytes: Vec<u8>, last: bool) -> Result<(), Error> {
        let piece_cost = cost_of(bytes.len());
        self.inbox.arrive(piece_cost as usize).map_err(Error::protocol)?;
        if self.messages.back().is_none_or(|message| message.ended.is_some()) {
            self.last += 1;
            let number = self.last;
            let message = Message {
                number,
                tag,
                claimed: false,
                abandoned: false,
                pieces: VecDeque::new(),
                ended: None,
            };
            self.messages.push_back(message);
        }
        let Some(message) = self.messages.back_mut() else { return Ok(()) };
        if message.abandoned {
            if last {
                self.messages.pop_back();
            }
            self.taken(piece_cost);
            return Ok(());
        }
        message.pieces.push_back((bytes, piece_cost));
        if last {
            message.ended = Some(Ok(()));
        }
        Ok(())
    }

    /// Data of this cost was taken or abandoned.
    fn taken(&mut self, cost: u32) {
        let credit = self.inbox.take(cost as usize).unwrap_or(0);
        self.due = self.due.saturating_add(credit);
    }

    /// Claims for the caller the first free message with this tag, or with any.
    pub(super) fn claim(&mut self, tag: Option<u32>) -> Option<u64> {
        let fits = |message: &&mut Message| !message.claimed && tag.is_none_or(|tag| tag == message.tag);
        let message = self.messages.iter_mut().find(fits)?;
        message.claimed = true;
        Some(message.number)
    }

    /// The next bytes of a claimed message.
    pub(super) fn take(&mut self, number: u64) -> Result<Option<Taken>, Failure> {
        let Some(at) = self.messages.iter().position(|message| message.number == number) else {
            return Ok(None);
        };
        let Some(message) = self.messages.get_mut(at) else { return Ok(None) };
        if let Some((bytes, cost)) = message.pieces.pop_front() {
            let (tag, last) = (message.tag, message.pieces.is_empty() && message.ended == Some(Ok(())));
            if last {
                self.messages.remove(at);
            }
            self.taken(cost);
            return Ok(Some(Taken { tag, bytes, last }));
        }
        match message.ended.clone() {
            Some(Err(why)) => {
                self.messages.remove(at);
                Err(why)
            }
            _ => Ok(None),
        }
    }

    /// Returns a claimed message that was not read to its end; `bytes` were taken of it.
    pub(super) fn unclaim(&mut self, number: u64, bytes: Vec<u8>) {
        if let Some(message) = self.messages.iter_mut().find(|message| message.number == number) {
            message.claimed = false;
            if !bytes.is_empty() {
                message.pieces.push_front((bytes, 0));
            }
        }
    }

    /// Drops the rest of a message.
    pub(super) fn abandon(&mut self, number: u64) {
        let Some(message) = self.messages.iter_mut().find(|message| message.number == number) else {
            return;
        };
        let cost = message.pieces.drain(..).map(|(_, cost)| cost).fold(0, u32::saturating_add);
        message.abandoned = message.ended.is_none();
        if !message.abandoned {
            self.messages.retain(|message| message.number != number);
        }
        self.taken(cost);
    }

    /// Counts a message, if it may be sent.
    pub(super) fn send(&mut self, bytes: usize) -> Option<()> {
        self.outbox.has_room(bytes).then(|| self.outbox.send(bytes))
    }

    /// The number of the next contribution with this tag, if its first chunk may be sent. `long`: it has a rest.
    pub(super) fn begin(&mut self, tag: u32, first: usize, long: bool) -> Option<u64> {
        self.early.has_room(first).then(|| self.early.send(first))?;
        let next = self.rounds.entry(tag).or_default();
        let round = *next;
        *next += 1;
        if long {
            let rest = DaemonFlow::Part { tag, round }.outflow();
            self.parts.insert((tag, round), Part { rest, over: false });
        }
        Some(round)
    }

    /// How many of the remaining bytes of a contribution to send now. `Some(None)`: it is not wanted any more.
    pub(super) fn send_rest(&mut self, tag: u32, round: u64, bytes: usize) -> Option<Option<usize>> {
        let part = self.parts.get_mut(&(tag, round))?;
        if part.over {
            self.forget(tag, round);
            return Some(None);
        }
        let fits = part.rest.fits(bytes);
        (fits > 0).then(|| {
            part.rest.send(fits);
            Some(fits)
        })
    }

    /// Forgets a contribution that was sent or cancelled.
    pub(super) fn forget(&mut self, tag: u32, round: u64) {
        self.parts.remove(&(tag, round));
    }

    fn hear_flow(&mut self, flow: DaemonFlow, word: Word) -> Result<(), Error> {
        match (flow, word) {
            (DaemonFlow::Messages, Word::Credit(bytes)) => {
                self.outbox.earn_back(bytes).map_err(Error::protocol)?;
            }
            (DaemonFlow::Early, Word::Credit(bytes)) => {
                self.early.earn_back(bytes).map_err(Error::protocol)?;
            }
            (DaemonFlow::Part { tag, round }, word @ (Word::Credit(_) | Word::End)) => {
                // Without a part: it was sent or given up meanwhile.
                if let Some(part) = self.parts.get_mut(&(tag, round)) {
                    match word {
                        Word::Credit(bytes) => part.rest.earn(bytes),
                        _ => part.over = true,
                    }
                }
            }
            _ => return Err(Error::protocol("it says on a flow what only its other end says")),
        }
        Ok(())
    }

    /// Parts for the filter of this name.
    pub(super) fn next_job(&mut self, filter: &str) -> Option<Job> {
        let at = self.jobs.iter().position(|job| job.complete && job.filter == filter)?;
        self.jobs.remove(at)
    }
}

impl Party for State {
    type Heard = ToDaemon;
    type Said = FromDaemon;

    fn hear(&mut self, heard: ToDaemon) -> Result<(), Error> {
        match heard {
            ToDaemon::Flow { flow, word } => self.hear_flow(flow, word)?,
            ToDaemon::Message { tag, bytes, last } => self.add(tag, bytes.0, last)?,
            ToDaemon::Cut { why } => {
                if self.messages.back().is_some_and(|message| message.abandoned) {
                    self.messages.pop_back();
                } else if let Some(message) =
                    self.messages.back_mut().filter(|message| message.ended.is_none())
                {
                    message.ended = Some(Err(why));
                }
            }
            ToDaemon::Merge { filter, operation, bytes, part_ends, last } => {
                // The parts of two jobs do not interleave.
                if self.jobs.back().is_none_or(|it| it.complete) {
                    self.jobs.push_back(Job { filter, operation, ..Job::default() });
                }
                if let Some(it) = self.jobs.back_mut() {
                    it.part.extend_from_slice(&bytes.0);
                    if part_ends {
                        it.parts.push(std::mem::take(&mut it.part));
                    }
                    it.complete = last;
                }
            }
            ToDaemon::Refused(why) => self.refused = Some(why),
        }
        Ok(())
    }

    fn next_word(&mut self) -> Option<FromDaemon> {
        let word = Word::Credit(std::mem::take(&mut self.due));
        (word != Word::Credit(0)).then_some(FromDaemon::Flow { flow: DaemonFlow::Inbox, word })
    }

    fn refused(&self) -> Option<Error> {
        self.refused.clone().map(Error::Refused)
    }
}

#[cfg(test)]
mod tests {
    use gantry_shared::wire::message::Blob;
    use gantry_types::error::Kind;

    use super::*;

    /// A message that is longer than a portion of the window, so that it is paid for alone.
    static LONG: [u8; 70_000] = [7; 70_000];

    /// The credit for the agent that is due.
    fn paid(state: &mut State) -> u32 {
        match state.next_word() {
            Some(FromDaemon::Flow { flow: DaemonFlow::Inbox, word: Word::Credit(cost) }) => cost,
            None => 0,
            other => panic!("{other:?}"),
        }
    }

    fn say(state: &mut State, flow: DaemonFlow, word: Word) {
        state.hear(ToDaemon::Flow { flow, word }).unwrap();
    }

    fn message(tag: u32, bytes: &[u8], last: bool) -> ToDaemon {
        ToDaemon::Message { tag, bytes: Blob(bytes.to_vec()), last }
    }

    #[test]
    fn messages_are_found_by_their_tags_and_else_in_their_order() {
        let mut state = State::default();
        for (tag, bytes) in [(1, &b"a"[..]), (2, &LONG), (1, b"c")] {
            state.hear(message(tag, bytes, true)).unwrap();
        }
        let second = state.claim(Some(2)).unwrap();
        assert_eq!(state.take(second).unwrap(), Some(Taken { tag: 2, bytes: LONG.to_vec(), last: true }));
        assert_eq!(paid(&mut state), cost_of(LONG.len()));
        let first = state.claim(None).unwrap();
        assert_eq!(state.take(first).unwrap().unwrap().bytes, b"a");
        assert_eq!(state.claim(Some(2)), None);
        let third = state.claim(Some(1)).unwrap();
        assert_eq!(state.claim(None), None, "another caller has it");
        state.unclaim(third, Vec::new());
        assert_eq!(state.claim(None), Some(third));
    }

    #[test]
    fn the_kept_part_of_a_late_message_comes_first_and_costs_no_credit() {
        let mut state = State::default();
        state.hear(message(1, b"so", false)).unwrap();
        let number = state.claim(Some(1)).unwrap();
        assert_eq!(state.take(number).unwrap().unwrap().bytes, b"so");
        state.unclaim(number, b"so".to_vec());
        state.hear(message(1, &LONG, true)).unwrap();
        let number = state.claim(Some(1)).unwrap();
        assert_eq!(state.take(number).unwrap(), Some(Taken { tag: 1, bytes: b"so".to_vec(), last: false }));
        assert_eq!(state.take(number).unwrap(), Some(Taken { tag: 1, bytes: LONG.to_vec(), last: true }));
        assert_eq!(paid(&mut state), cost_of(2) + cost_of(LONG.len()));
    }

    #[test]
    fn the_rest_of_an_abandoned_message_is_dropped_and_paid_for() {
        let mut state = State::default();
        state.hear(message(1, b"so", false)).unwrap();
        let number = state.claim(Some(1)).unwrap();
        state.abandon(number);
        assert_eq!(paid(&mut state), 0, "less than a portion");
        state.hear(message(1, &LONG, true)).unwrap();
        state.hear(message(2, b"next", true)).unwrap();
        assert_eq!((paid(&mut state), paid(&mut state)), (cost_of(2) + cost_of(LONG.len()), 0));
        assert_eq!((state.claim(Some(1)), state.claim(Some(2)).is_some()), (None, true));
    }

    #[test]
    fn a_message_that_does_not_come_to_its_end_is_an_error_for_its_reader_only() {
        let mut state = State::default();
        state.hear(message(1, b"so", false)).unwrap();
        state.hear(ToDaemon::Cut { why: Failure::new(Kind::Gone, "given up") }).unwrap();
        state.hear(message(1, b"next", true)).unwrap();
        let number = state.claim(Some(1)).unwrap();
        assert!(!state.take(number).unwrap().unwrap().last);
        assert!(state.take(number).is_err());
        let number = state.claim(Some(1)).unwrap();
        assert_eq!(state.take(number).unwrap().unwrap().bytes, b"next");
    }

    #[test]
    fn contributions_count_by_tag_and_wait_when_too_many_do() {
        let mut state = State::default();
        assert_eq!(
            (state.begin(1, 10, false), state.begin(1, 10, false), state.begin(2, 10, true)),
            (Some(0), Some(1), Some(0))
        );
        let window = DaemonFlow::Early.window();
        let most = (window - cost_of(0)) as usize;
        assert_eq!(state.begin(1, most, false), None);
        let rest = DaemonFlow::Part { tag: 2, round: 0 };
        assert_eq!(state.send_rest(2, 0, 8), None);
        say(&mut state, rest, Word::Credit(5));
        assert_eq!((state.send_rest(2, 0, 8), state.send_rest(2, 0, 3)), (Some(Some(5)), None));
        say(&mut state, rest, Word::End);
        assert_eq!(state.send_rest(2, 0, 3), Some(None));
        say(&mut state, DaemonFlow::Early, Word::Credit(3 * cost_of(10)));
        assert!(state.parts.is_empty() && state.begin(3, most, false).is_some());
    }

    #[test]
    fn an_agent_that_breaks_the_rules_of_flows_is_found() {
        let mut state = State::default();
        for _ in 0..3 {
            state.hear(message(1, &LONG, true)).unwrap();
        }
        assert!(state.hear(message(1, &LONG, true)).is_err(), "a window and more");
        let credit = |flow| ToDaemon::Flow { flow, word: Word::Credit(1) };
        assert!(state.hear(credit(DaemonFlow::Early)).is_err(), "nothing was sent");
        assert!(state.hear(credit(DaemonFlow::Messages)).is_err(), "nothing was sent");
        assert!(state.hear(credit(DaemonFlow::Inbox)).is_err(), "the daemon gives this credit");
        assert!(state.hear(credit(DaemonFlow::Part { tag: 1, round: 7 })).is_ok(), "it was sent meanwhile");
    }
}
