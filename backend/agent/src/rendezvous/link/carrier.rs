//! What goes where on a rank's link. Nothing in here waits.
//!
//! What a rank has said is cut into frames, which go up or on a lane one after the other: one that cannot go yet keeps back all behind it, and nothing more is read of
//! the rank meanwhile. So the order of what a rank says to another one stays.

use std::collections::VecDeque;

use gantry_shared::wire::bridge::{BridgeNumber, BridgeWord, LANE_WINDOW_BYTES, LaneNumber};
use gantry_shared::wire::frame::{self, MAX_FRAME_BYTES, PREFIX_BYTES, encode_onto};
use gantry_shared::wire::message::Blob;
use gantry_shared::wire::owed::Owed;
use gantry_shared::wire::rendezvous::LinkWord;
use gantry_shared::wire::runtime::{
    Hear, LAST_WORDS_BYTES, LINK_WINDOW_BYTES, Piece, Say, Scope, find_recipient,
};
use gantry_shared::wire::window::Receiver;
use gantry_types::runtime::Peer;
use tokio::sync::mpsc;

use crate::rendezvous::bridges::Bridges;
use crate::rendezvous::input::Input;
use crate::rendezvous::lane::Lane;

/// The most bytes that are taken at a time.
pub(super) const CHUNK_BYTES: usize = 128 * 1024;

/// The most bytes of small frames that go together on a lane.
const BATCH_BYTES: usize = 64 * 1024;

/// A link and its lanes.
pub(super) struct Carrier<'a> {
    link: u32,
    bridges: &'a Bridges,
    own: mpsc::WeakUnboundedSender<Input>,
    up: &'a (dyn Fn(LinkWord) + Sync),
    /// What the rank has said and is not on its way yet.
    said: Vec<u8>,
    /// What of that goes to the frontend, whole frames.
    relay: VecDeque<u8>,
    /// How much the frontend takes; none: it has not answered yet.
    credit: Option<u32>,
    /// The rank has ended, and all of what it has written goes; so many bytes of it are still read.
    last_words: Option<usize>,
    /// How much the frontend may send.
    window: Receiver,
    /// The rank says nothing more.
    ended: bool,
    /// What the rank says are no frames: the frontend tells it so.
    garbled: bool,
    /// The first frame waits for its lane.
    blocked: bool,
    lanes: Vec<Lane>,
    /// Lanes that begin when nothing is on its way to the frontend.
    proposed: Vec<Lane>,
    /// Lanes that end here.
    ins: Vec<Incoming>,
    /// For the rank.
    out: Vec<u8>,
    /// Whose it is that is in there: bytes in there, and what is given back for them.
    of: VecDeque<(Source, usize, u32)>,
    /// What the frontend is to be given back.
    owed: Owed,
    /// The rank reads no more, and may have written something all the same that is still to come.
    deaf: bool,
    /// The frontend wants no more of it.
    closed: bool,
}

/// Whose bytes they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Frontend,
    Lane(LaneNumber),
}

/// A lane that ends here.
struct Incoming {
    lane: LaneNumber,
    bridge: BridgeNumber,
    scope: Scope,
    from: Peer,
    /// What its sender is to be given back.
    owed: Owed,
}

impl<'a> Carrier<'a> {
    pub(super) fn new(
        link: u32,
        bridges: &'a Bridges,
        own: mpsc::WeakUnboundedSender<Input>,
        up: &'a (dyn Fn(LinkWord) + Sync),
    ) -> Self {
        Self {
            link,
            bridges,
            own,
            up,
            said: Vec::new(),
            relay: VecDeque::new(),
            credit: None,
            last_words: None,
            window: Receiver::new(LINK_WINDOW_BYTES),
            ended: false,
            garbled: false,
            blocked: false,
            lanes: Vec::new(),
            proposed: Vec::new(),
            ins: Vec::new(),
            out: Vec::new(),
            of: VecDeque::new(),
            owed: Owed::of(LINK_WINDOW_BYTES),
            deaf: false,
            closed: false,
        }
    }

    /// Whether more of the rank may come.
    pub(super) fn wants_bytes(&self) -> bool {
        !self.ended && !self.blocked && self.credit.is_some() && self.relay.is_empty()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether there is nothing more to do.
    pub(super) fn is_done(&self) -> bool {
        let all_said = self.relay.is_empty() && self.said.is_empty() && self.lanes.is_empty();
        (self.ended && all_said) || (self.closed && self.out.is_empty())
    }

    /// The rank says something.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.said.extend_from_slice(bytes);
        if let Some(left) = &mut self.last_words {
            *left = left.saturating_sub(bytes.len());
            // Somebody else may have the rank's connection, and write for ever.
            self.ended |= *left == 0;
        }
    }

    /// The rank says nothing more.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// What the rank is to be told.
    pub(super) fn out(&self) -> &[u8] {
        &self.out
    }

    /// The rank has taken so much of it.
    pub(super) fn written(&mut self, count: usize) {
        self.out.drain(..count);
        let mut left = count;
        while let Some((source, bytes, _)) = self.of.front_mut() {
            let part = left.min(*bytes);
            (left, *bytes) = (left - part, *bytes - part);
            if *bytes > 0 {
                return;
            }
            let source = *source;
            let back = self.of.pop_front().map_or(0, |(.., back)| back);
            self.give_back(source, back);
        }
    }

    fn give_back(&mut self, source: Source, bytes: u32) {
        match source {
            Source::Frontend => {
                if let Some(back) = self.owed.take(bytes) {
                    self.window.grant(back);
                    (self.up)(LinkWord::Credit(back));
                }
            }
            Source::Lane(lane) => {
                let Some(known) = self.ins.iter_mut().find(|known| known.lane == lane) else { return };
                if let Some(bytes) = known.owed.take(bytes) {
                    self.bridges.send(known.bridge, BridgeWord::Taken { lane, bytes });
                }
            }
        }
    }

    /// The rank reads no more.
    pub(super) fn deafen(&mut self) {
        self.deaf = true;
        self.out.clear();
        self.of.clear();
    }

    /// Something has come for this link.
    pub(super) fn hear(&mut self, input: Input) {
        match input {
            Input::Word(word) => self.hear_frontend(word),
            Input::Lane(lane) => self.proposed.push(lane),
            Input::Go(lane) => self.with_lane(lane, Lane::open),
            Input::Taken { lane, bytes } => self.with_lane(lane, |lane| lane.taken(bytes)),
            Input::Ended(lane) => drop(self.remove(lane)),
            Input::Broken(lane) => self.with_lane(lane, Lane::stop),
            Input::Resume { lane, come } => {
                if let Some(lane) = self.remove(lane) {
                    tracing::debug!(lane = lane.number, come, "messages go by the frontend again");
                    // Nothing else of this lane is on its way there.
                    self.relay.extend(lane.rest(come));
                }
            }
            Input::Frames { lane, bytes } => self.hear_rank(lane, &bytes),
        }
    }

    fn hear_frontend(&mut self, word: LinkWord) {
        match word {
            LinkWord::Bytes(_) if self.deaf => {}
            LinkWord::Bytes(Blob(bytes)) => {
                let back = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                if let Err(overrun) = self.window.take(back) {
                    tracing::warn!(link = self.link, %overrun, "the frontend overran a rank's link, which is closed");
                    self.closed = true;
                    return;
                }
                self.of.push_back((Source::Frontend, bytes.len(), back));
                self.out.extend_from_slice(&bytes);
            }
            LinkWord::Credit(more) => self.credit = Some(self.credit.unwrap_or(0).saturating_add(more)),
            LinkWord::LastWords => {
                self.credit.get_or_insert(0);
                self.last_words.get_or_insert(LAST_WORDS_BYTES as usize);
            }
            LinkWord::Lane { lane, bridge, scope, peer } => {
                if let Some(own) = self.own.upgrade()
                    && self.bridges.open(lane, bridge, self.link, own)
                {
                    self.ins.push(Incoming {
                        lane,
                        bridge,
                        scope,
                        from: peer,
                        owed: Owed::of(LANE_WINDOW_BYTES),
                    });
                }
            }
            LinkWord::Close | LinkWord::Open(_) => self.closed = true,
        }
    }

    /// Whole frames of another rank: it is told whose they are.
    fn hear_rank(&mut self, lane: LaneNumber, bytes: &[u8]) {
        let Some(known) = self.ins.iter().find(|known| known.lane == lane).filter(|_| !self.deaf) else {
            return;
        };
        let before = self.out.len();
        let mut rest = bytes;
        while let Ok(Some(frame)) = find_frame(rest) {
            rest = rest.get(frame.len()..).unwrap_or_default();
            let body = frame.get(PREFIX_BYTES..).unwrap_or_default();
            match frame::decode(body) {
                Ok(Say::Piece(piece)) if piece.scope == known.scope => {
                    let heard = Hear::Piece(Piece { peer: known.from, ..piece });
                    // It was a frame before, and is no larger.
                    drop(encode_onto(&heard, &mut self.out));
                }
                _ => tracing::debug!(lane, "a lane carried something that is not a message"),
            }
        }
        let back = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        match self.out.len() - before {
            0 => self.give_back(Source::Lane(lane), back),
            count => self.of.push_back((Source::Lane(lane), count, back)),
        }
    }

    fn with_lane(&mut self, number: LaneNumber, act: impl FnOnce(&mut Lane)) {
        let mut all = self.lanes.iter_mut().chain(&mut self.proposed);
        if let Some(lane) = all.find(|lane| lane.number == number) {
            act(lane);
        }
    }

    fn remove(&mut self, number: LaneNumber) -> Option<Lane> {
        let of = |lanes: &mut Vec<Lane>| {
            lanes.iter().position(|lane| lane.number == number).map(|at| lanes.swap_remove(at))
        };
        of(&mut self.lanes).or_else(|| of(&mut self.proposed))
    }

    /// Does all that can be done now.
    pub(super) fn advance(&mut self) {
        self.send_up();
        if self.relay.is_empty() && self.credit.is_some() {
            // The last thing that goes by the frontend.
            for lane in std::mem::take(&mut self.proposed) {
                let (scope, peer) = lane.to;
                (self.up)(LinkWord::Lane { lane: lane.number, bridge: lane.bridge, scope, peer });
                self.lanes.push(lane);
            }
        }
        if self.has_last_words() {
            // Nothing has gone on those that are not open yet: all of it goes on as before, and nobody waits for a marker.
            let shut = self.lanes.extract_if(.., |lane| lane.is_shut());
            shut.for_each(|lane| self.bridges.forget_lane(lane.number));
        }
        self.route();
        self.send_up();
        if self.ended && self.said.is_empty() {
            for lane in &mut self.lanes {
                if lane.end() {
                    self.bridges.send(lane.bridge, BridgeWord::End { lane: lane.number });
                }
            }
        }
    }

    /// What the rank says from now on is little, and is taken whether there is room or not: it has closed, or the frontend knows that it has ended.
    fn has_last_words(&self) -> bool {
        self.ended || self.last_words.is_some()
    }

    /// Sends what is for the frontend as far as the credit goes.
    fn send_up(&mut self) {
        while let Some(credit) = self.credit.filter(|_| !self.relay.is_empty()) {
            let most = match self.last_words {
                Some(_) => CHUNK_BYTES,
                None if credit == 0 => return,
                None => usize::try_from(credit).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES),
            };
            let bytes: Vec<u8> = self.relay.drain(..self.relay.len().min(most)).collect();
            self.credit = Some(credit.saturating_sub(u32::try_from(bytes.len()).unwrap_or(credit)));
            (self.up)(LinkWord::Bytes(Blob(bytes)));
        }
    }

    /// Gives every frame its way, as far as that is free.
    fn route(&mut self) {
        let last_words = self.has_last_words();
        let (mut done, mut batch) = (0, Batch::default());
        self.blocked = false;
        while !self.garbled {
            let rest = self.said.get(done..).unwrap_or_default();
            let frame = match find_frame(rest) {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(()) => {
                    self.garbled = true;
                    break;
                }
            };
            let to = match self.lanes.is_empty() {
                true => None,
                false => find_recipient(frame.get(PREFIX_BYTES..).unwrap_or_default()),
            };
            match self.lanes.iter_mut().find(|lane| Some(lane.to) == to) {
                None => self.relay.extend(frame),
                Some(lane) if lane.takes(frame.len(), last_words) => {
                    lane.send(frame);
                    batch.add(self.bridges, (lane.bridge, lane.number), frame);
                }
                Some(_) => {
                    self.blocked = true;
                    break;
                }
            }
            done += frame.len();
        }
        batch.flush(self.bridges);
        if self.garbled || (self.ended && !self.blocked) {
            // What is no frame says nothing to us.
            self.relay.extend(self.said.get(done..).unwrap_or_default());
            done = self.said.len();
        }
        self.said.drain(..done);
    }

    /// The link ends, in whatever state.
    pub(super) fn leave(&mut self) {
        for lane in &mut self.lanes {
            if lane.end() {
                self.bridges.send(lane.bridge, BridgeWord::End { lane: lane.number });
            }
        }
    }
}

/// Frames for one lane that go together.
#[derive(Default)]
struct Batch {
    of: Option<(BridgeNumber, LaneNumber)>,
    bytes: Vec<u8>,
}

impl Batch {
    fn add(&mut self, bridges: &Bridges, of: (BridgeNumber, LaneNumber), frame: &[u8]) {
        if self.of != Some(of) || self.bytes.len() + frame.len() > BATCH_BYTES {
            self.flush(bridges);
        }
        self.of = Some(of);
        self.bytes.extend_from_slice(frame);
    }

    fn flush(&mut self, bridges: &Bridges) {
        if let Some((bridge, lane)) = self.of.take().filter(|_| !self.bytes.is_empty()) {
            let bytes = Blob(std::mem::take(&mut self.bytes));
            bridges.send(bridge, BridgeWord::Frames { lane, bytes });
        }
    }
}

/// The first frame, with its prefix, if all of it is there. An error: there is none.
fn find_frame(bytes: &[u8]) -> Result<Option<&[u8]>, ()> {
    let Some(prefix) = bytes.first_chunk() else { return Ok(None) };
    let body = usize::try_from(u32::from_be_bytes(*prefix)).map_err(drop)?;
    if body > MAX_FRAME_BYTES {
        return Err(());
    }
    Ok(bytes.get(..PREFIX_BYTES + body))
}
