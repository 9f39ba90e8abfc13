//! The state of a daemon's end of a channel. Pure: it gets messages, and finds those that callers wait for.

use std::collections::{BTreeMap, HashMap, VecDeque};

use gantry_shared::wire::channel::{CHANNEL_WINDOW_BYTES, FromDaemon, ToDaemon, cost_of};
use gantry_types::error::Failure;

use crate::Error;
use crate::dialogue::Party;

/// The state.
#[derive(Debug)]
pub(super) struct State {
    messages: VecDeque<Message>,
    last: u64,
    /// Credit to return to the agent for taken or abandoned data.
    owed: u32,
    /// Credit for sending without a request.
    credit: u32,
    /// Credit for contributions that were not requested yet.
    room: u32,
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

#[derive(Debug, Clone, Copy, Default)]
struct Part {
    /// The cost of its first chunk until it is requested.
    early: u32,
    granted: u32,
    /// There is more than the first chunk.
    long: bool,
    over: bool,
}

/// Parts that this daemon is to merge.
#[derive(Debug, Default)]
pub(super) struct Job {
    pub(super) filter: String,
    pub(super) number: u64,
    pub(super) parts: Vec<Vec<u8>>,
    part: Vec<u8>,
    complete: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            messages: VecDeque::new(),
            last: 0,
            owed: 0,
            credit: CHANNEL_WINDOW_BYTES,
            room: CHANNEL_WINDOW_BYTES,
            rounds: HashMap::new(),
            parts: BTreeMap::new(),
            jobs: VecDeque::new(),
            refused: None,
        }
    }
}

impl State {
    fn add(&mut self, tag: u32, bytes: Vec<u8>, last: bool) {
        let piece_cost = cost_of(bytes.len());
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
        let Some(message) = self.messages.back_mut() else { return };
        if message.abandoned {
            self.owed = self.owed.saturating_add(piece_cost);
            if last {
                self.messages.pop_back();
            }
            return;
        }
        message.pieces.push_back((bytes, piece_cost));
        if last {
            message.ended = Some(Ok(()));
        }
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
            self.owed = self.owed.saturating_add(cost);
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
        self.owed = self.owed.saturating_add(cost);
    }

    pub(super) fn spend(&mut self, cost: u32) -> Option<()> {
        self.credit = self.credit.checked_sub(cost)?;
        Some(())
    }

    /// The number of the next contribution with this tag, if it may be sent.
    pub(super) fn begin(&mut self, tag: u32, cost: u32, long: bool) -> Option<u64> {
        self.room = self.room.checked_sub(cost)?;
        let next = self.rounds.entry(tag).or_default();
        let round = *next;
        *next += 1;
        self.parts.insert((tag, round), Part { early: cost, long, ..Part::default() });
        Some(round)
    }

    /// How much more of a contribution may be sent. `Some(None)`: it is not wanted any more.
    pub(super) fn granted(&mut self, tag: u32, round: u64) -> Option<Option<u32>> {
        let part = self.parts.get_mut(&(tag, round))?;
        if part.over {
            self.forget(tag, round);
            return Some(None);
        }
        (part.granted > 0).then(|| Some(std::mem::take(&mut part.granted)))
    }

    /// Forgets a contribution that was sent or cancelled.
    pub(super) fn forget(&mut self, tag: u32, round: u64) {
        if let Some(part) = self.parts.remove(&(tag, round)) {
            self.room += part.early;
        }
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

    fn hear(&mut self, heard: ToDaemon) {
        match heard {
            ToDaemon::Message { tag, bytes, last } => self.add(tag, bytes.0, last),
            ToDaemon::Cut { why } => {
                if self.messages.back().is_some_and(|message| message.abandoned) {
                    self.messages.pop_back();
                } else if let Some(message) =
                    self.messages.back_mut().filter(|message| message.ended.is_none())
                {
                    message.ended = Some(Err(why));
                }
            }
            ToDaemon::Credit { bytes } => self.credit = self.credit.saturating_add(bytes),
            ToDaemon::Begun { tag, round } => {
                if let Some(part) = self.parts.get_mut(&(tag, round)) {
                    self.room += std::mem::take(&mut part.early);
                    if !part.long {
                        self.parts.remove(&(tag, round));
                    }
                }
            }
            ToDaemon::More { tag, round, bytes } => {
                if let Some(part) = self.parts.get_mut(&(tag, round)) {
                    part.granted = part.granted.saturating_add(bytes);
                }
            }
            ToDaemon::Over { tag, round } => {
                if let Some(part) = self.parts.get_mut(&(tag, round)) {
                    part.over = true;
                }
            }
            ToDaemon::Merge { filter, job, bytes, part_ends, last } => {
                if self.jobs.back().is_none_or(|it| it.number != job) {
                    self.jobs.push_back(Job { filter, number: job, ..Job::default() });
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
    }

    fn next_word(&mut self) -> Option<FromDaemon> {
        let cost = std::mem::take(&mut self.owed);
        (cost > 0).then_some(FromDaemon::Taken { cost })
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

    /// The credit to return to the agent.
    fn paid(state: &mut State) -> u32 {
        match state.next_word() {
            Some(FromDaemon::Taken { cost }) => cost,
            _ => 0,
        }
    }

    fn message(tag: u32, bytes: &[u8], last: bool) -> ToDaemon {
        ToDaemon::Message { tag, bytes: Blob(bytes.to_vec()), last }
    }

    #[test]
    fn messages_are_found_by_their_tags_and_else_in_their_order() {
        let mut state = State::default();
        for (tag, bytes) in [(1, b"a"), (2, b"b"), (1, b"c")] {
            state.hear(message(tag, bytes, true));
        }
        let second = state.claim(Some(2)).unwrap();
        assert_eq!(state.take(second).unwrap(), Some(Taken { tag: 2, bytes: b"b".to_vec(), last: true }));
        assert_eq!(paid(&mut state), cost_of(1));
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
        state.hear(message(1, b"so", false));
        let number = state.claim(Some(1)).unwrap();
        assert_eq!(state.take(number).unwrap().unwrap().bytes, b"so");
        state.unclaim(number, b"so".to_vec());
        state.hear(message(1, b" on", true));
        let number = state.claim(Some(1)).unwrap();
        assert_eq!(state.take(number).unwrap(), Some(Taken { tag: 1, bytes: b"so".to_vec(), last: false }));
        assert_eq!(state.take(number).unwrap(), Some(Taken { tag: 1, bytes: b" on".to_vec(), last: true }));
        assert_eq!(paid(&mut state), cost_of(2) + cost_of(3));
    }

    #[test]
    fn the_rest_of_an_abandoned_message_is_dropped_and_paid_for() {
        let mut state = State::default();
        state.hear(message(1, b"so", false));
        let number = state.claim(Some(1)).unwrap();
        state.abandon(number);
        assert_eq!(paid(&mut state), cost_of(2));
        state.hear(message(1, b" on", true));
        state.hear(message(2, b"next", true));
        assert_eq!((paid(&mut state), paid(&mut state)), (cost_of(3), 0));
        assert_eq!((state.claim(Some(1)), state.claim(Some(2)).is_some()), (None, true));
    }

    #[test]
    fn a_message_that_does_not_come_to_its_end_is_an_error_for_its_reader_only() {
        let mut state = State::default();
        state.hear(message(1, b"so", false));
        state.hear(ToDaemon::Cut { why: Failure::new(Kind::Gone, "given up") });
        state.hear(message(1, b"next", true));
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
        assert_eq!(state.begin(1, CHANNEL_WINDOW_BYTES, false), None);
        assert_eq!(state.granted(2, 0), None);
        state.hear(ToDaemon::More { tag: 2, round: 0, bytes: 5 });
        assert_eq!((state.granted(2, 0), state.granted(2, 0)), (Some(Some(5)), None));
        state.hear(ToDaemon::Over { tag: 2, round: 0 });
        assert_eq!(state.granted(2, 0), Some(None));
        for round in 0..2 {
            state.hear(ToDaemon::Begun { tag: 1, round });
        }
        assert!(state.parts.is_empty() && state.begin(3, CHANNEL_WINDOW_BYTES, false).is_some());
    }
}
