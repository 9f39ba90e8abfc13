//! Dialogues with the test as the other side.

use std::io::{Read, Write};
use std::thread;

use gantry_shared::wire::frame::{decode, encode, read_frame};

use super::*;

/// Counts received messages, and answers every tenth.
#[derive(Debug, Default)]
struct Counter {
    heard: Vec<u32>,
    due: Vec<u32>,
    refused: bool,
}

impl Party for Counter {
    type Heard = u32;
    type Said = u32;

    fn hear(&mut self, heard: u32) -> Result<(), Error> {
        self.refused |= heard == u32::MAX;
        self.heard.push(heard);
        if heard.is_multiple_of(10) {
            self.due.push(heard);
        }
        Ok(())
    }

    fn next_word(&mut self) -> Option<u32> {
        self.due.pop()
    }

    fn refused(&self) -> Option<Error> {
        self.refused.then_some(Error::Unusable { reason: "refused" })
    }
}

const LONG: Duration = Duration::from_secs(60);

fn begin() -> (Dialogue<Counter>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Dialogue::new(ours, Counter::default()), theirs)
}

fn patience(timeout: Duration) -> Patience {
    Patience::new("test", timeout)
}

fn wait_for(dialogue: &Dialogue<Counter>, number: u32, timeout: Duration) -> Result<(), Error> {
    dialogue.until(patience(timeout), |counter| counter.heard.contains(&number).then_some(Ok(())))
}

#[test]
fn waiting_threads_read_for_others_and_wake_them() {
    let (dialogue, mut other) = begin();
    thread::scope(|scope| {
        let waiting: Vec<_> = (1..=8)
            .map(|number| {
                scope.spawn({
                    let dialogue = &dialogue;
                    move || wait_for(dialogue, number, LONG)
                })
            })
            .collect();
        // In one piece, and cut at any place.
        let said: Vec<u8> = (1..=8_u32).rev().flat_map(|number| encode(&number).unwrap()).collect();
        let (first, rest) = said.split_at(7);
        other.write_all(first).unwrap();
        thread::yield_now();
        other.write_all(rest).unwrap();
        waiting.into_iter().for_each(|it| it.join().unwrap().unwrap());
    });
}

#[test]
fn a_call_without_time_finds_only_received_data() {
    let (dialogue, mut other) = begin();
    assert!(matches!(wait_for(&dialogue, 1, Duration::ZERO), Err(Error::TimedOut { phase: "test", .. })));
    other.write_all(&encode(&1_u32).unwrap()).unwrap();
    wait_for(&dialogue, 1, Duration::ZERO).unwrap();
}

#[test]
fn a_message_that_was_not_taken_in_time_is_sent_later_and_whole() {
    let (dialogue, mut other) = begin();
    // More than the socket and the room here hold.
    let mut said = 0_u32;
    while dialogue.say(said, patience(Duration::ZERO)).is_ok() {
        said += 1;
    }
    assert!(matches!(dialogue.flush(patience(Duration::ZERO)), Err(Error::TimedOut { .. })));
    thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let mut all = Vec::new();
            while let Some(body) = read_frame(&mut other).unwrap() {
                all.push(decode::<u32>(&body).unwrap());
            }
            all
        });
        dialogue.flush(patience(LONG)).unwrap();
        dialogue.say(said, patience(LONG)).unwrap();
        dialogue.flush(patience(LONG)).unwrap();
        drop(dialogue);
        assert_eq!(reading.join().unwrap(), (0..=said).collect::<Vec<_>>());
    });
}

#[test]
fn consequences_of_received_messages_are_sent_unasked() {
    let (dialogue, mut other) = begin();
    other.write_all(&[encode(&10_u32).unwrap(), encode(&11_u32).unwrap()].concat()).unwrap();
    wait_for(&dialogue, 11, LONG).unwrap();
    let mut answer = vec![0; encode(&10_u32).unwrap().len()];
    other.read_exact(&mut answer).unwrap();
    assert_eq!(answer, encode(&10_u32).unwrap());
}

#[test]
fn the_end_is_an_error_after_all_that_came_before_it_and_a_refusal_is_the_reason() {
    let (dialogue, mut other) = begin();
    other.write_all(&encode(&1_u32).unwrap()).unwrap();
    drop(other);
    wait_for(&dialogue, 1, LONG).unwrap();
    assert!(matches!(wait_for(&dialogue, 2, LONG), Err(Error::Lost(None))));
    assert!(matches!(dialogue.say(1, patience(LONG)), Err(Error::Lost(None))));
    let (dialogue, mut other) = begin();
    other.write_all(&encode(&u32::MAX).unwrap()).unwrap();
    drop(other);
    assert!(matches!(wait_for(&dialogue, 2, LONG), Err(Error::Unusable { .. })));
    assert!(matches!(dialogue.say(1, patience(LONG)), Err(Error::Unusable { .. })));
}

#[test]
fn a_malformed_frame_ends_it_for_all() {
    let (dialogue, mut other) = begin();
    other.write_all(&[0xFF; 16]).unwrap();
    assert!(wait_for(&dialogue, 2, LONG).is_err());
    assert!(matches!(wait_for(&dialogue, 2, LONG), Err(Error::Lost(None))));
}
