//! A rank of a co-allocated job. It executes its arguments in order, and ends with 0 if all was correct.
//!
//! Arguments: `barrier`, `mark:FILE`, `exit:CODE`, `exit-of-rank:R`, `wait`, `ring:ROUNDS`, `bootstrap` and so on. The
//! function of the same name describes each.
#![expect(clippy::exit, reason = "a test program ends when it is told to")]

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gantry_backend::runtime::{Message, Peer, Rank, Runtime};

type Done = Result<(), Box<dyn Error>>;

const LIMIT: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    if args.is_empty() {
        // As a program of the document is started.
        args = ["barrier", "bootstrap"].map(str::to_owned).to_vec();
    }
    let mut probe = Probe { runtime: None };
    for arg in &args {
        if let Err(error) = probe.act(arg) {
            let mut causes = format!("{arg}: {error}");
            let mut next = error.source();
            while let Some(cause) = next {
                causes = format!("{causes}: {cause}");
                next = cause.source();
            }
            drop(writeln!(std::io::stderr(), "{causes}"));
            return ExitCode::from(9);
        }
    }
    ExitCode::SUCCESS
}

struct Probe {
    runtime: Option<Runtime>,
}

fn expect(what: bool, why: &str) -> Done {
    if what { Ok(()) } else { Err(why.into()) }
}

/// Bytes that follow from their number.
fn bytes_of(seed: u32, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    };
    std::iter::repeat_with(next).take(count).collect()
}

impl Probe {
    fn act(&mut self, arg: &str) -> Done {
        let (what, how) = arg.split_once(':').unwrap_or((arg, ""));
        match what {
            "exit" => std::process::exit(how.parse()?),
            "mark" => Ok(std::fs::write(how, "")?),
            "await" => {
                gantry_tests::proc::wait_file(std::path::Path::new(how), LIMIT);
                Ok(())
            }
            "wait" => loop {
                std::thread::park();
            },
            _ => {
                if self.runtime.is_none() {
                    self.runtime = Some(Runtime::connect(LIMIT)?);
                }
                let runtime = self.runtime.as_ref().ok_or("no runtime")?;
                match what {
                    "connect" => Ok(()),
                    "disconnect" => {
                        self.runtime = None;
                        Ok(())
                    }
                    "barrier" => Ok(runtime.barrier(LIMIT)?),
                    "exit-of-rank" => exit_of_rank(runtime, how.parse()?),
                    "mark-rank" => Ok(std::fs::write(format!("{how}.{}", runtime.rank()), "")?),
                    "leaves" => leaves(runtime, how.parse()?),
                    "ring" => ring(runtime, how.parse()?),
                    "bootstrap" => bootstrap(runtime),
                    "big" => big(runtime, how.parse()?),
                    "order" => order(runtime),
                    "last-words" => last_words(runtime, how.parse()?),
                    "threads" => threads(runtime),
                    "alone" => alone(runtime),
                    "strangers" => strangers(runtime),
                    "outlive" => outlive(runtime),
                    "patient" => patient(runtime, how),
                    "flow" => flow(runtime, how),
                    "pingpong" => pingpong(runtime, how.parse()?),
                    "stream" => stream(runtime, how.parse()?),
                    "stamp" => stamp(runtime, how),
                    _ => Err(format!("what is {arg}?").into()),
                }
            }
        }
    }
}

fn exit_of_rank(runtime: &Runtime, rank: u32) -> Done {
    if runtime.rank().0 == rank { std::process::exit(7) } else { Ok(()) }
}

/// Rank `rank` of subjob 0 sends a message to rank 0 of each subjob, and ends. All others wait for another message of
/// it, and get the error that it has ended.
fn leaves(runtime: &Runtime, rank: u32) -> Done {
    let (job, rank) = (runtime.structure(LIMIT)?, Rank(rank));
    let whose = Peer { subjob: 0, rank };
    let count = u32::try_from(job.sizes.len())?;
    if job.index == 0 && runtime.rank() == rank {
        for subjob in 0..count {
            runtime.send_to_subjob(subjob, "left", b"x", LIMIT)?;
        }
        std::process::exit(0);
    }
    if runtime.rank() == Rank(0) {
        runtime.receive_from(whose, "left", LIMIT)?;
    }
    let names = |done: Result<Message, gantry_backend::Error>, name: &str| match done {
        Err(gantry_backend::Error::Refused(failure)) => {
            expect(failure.to_string().contains(name), &format!("another error: {failure}"))
        }
        Err(error) => expect(false, &format!("another error: {error}")),
        Ok(_) => expect(false, "a message without a sender"),
    };
    names(runtime.receive_from(whose, "left", LIMIT), &format!("rank {rank} of subjob 0 has ended"))?;
    if job.index == 0 {
        names(runtime.receive_from_rank(rank, "left", LIMIT), &format!("rank {rank} has ended"))?;
        let all = runtime.master_vector(b"x", LIMIT);
        expect(runtime.rank() != Rank(0) || all.is_err(), "a vector without it")?;
    }
    // This checks only for the ended rank. Other ranks may have ended by now, but this process has not.
    let own = Peer { subjob: job.index, rank: runtime.rank() };
    let living = runtime.receive_from(own, "left", Duration::from_millis(1));
    expect(
        matches!(living, Err(gantry_backend::Error::TimedOut { .. })),
        &format!("of a living rank it is said: {living:?}"),
    )
}

/// A token passes through all ranks of all subjobs. Each rank adds its position.
fn ring(runtime: &Runtime, rounds: u32) -> Done {
    let job = runtime.structure(LIMIT)?;
    let all: u32 = job.sizes.iter().sum();
    let before: u32 = job.sizes.iter().take(usize::try_from(job.index)?).sum();
    let own = before + runtime.rank().0;
    let mut next = (own + 1) % all;
    let mut subjob = 0;
    for size in &job.sizes {
        if next < *size {
            break;
        }
        next -= size;
        subjob += 1;
    }
    let next = Peer { subjob, rank: Rank(next) };
    for round in 0..rounds {
        let mut token =
            if own == 0 { Vec::new() } else { runtime.receive_from_subjobs("ring", LIMIT)?.bytes };
        token.extend((own + round).to_be_bytes());
        runtime.send_to(next, "ring", &token, LIMIT)?;
        if own == 0 {
            let Message { from, bytes } = runtime.receive_from_subjobs("ring", LIMIT)?;
            let expected: Vec<u8> = (0..all).flat_map(|rank| (rank + round).to_be_bytes()).collect();
            expect(bytes == expected, "another token came back")?;
            let last = u32::try_from(job.sizes.len())? - 1;
            expect(from.subjob == last, "it came from another one")?;
        }
    }
    Ok(())
}

/// The start point of a process.
fn start_point(subjob: u32, rank: u32) -> Vec<u8> {
    let mut point = format!("{subjob}/{rank}").into_bytes();
    point.extend(bytes_of(subjob * 1000 + rank, usize::try_from(rank * 700).unwrap_or(0)));
    point
}

fn bootstrap(runtime: &Runtime) -> Done {
    let job = runtime.structure(LIMIT)?;
    let (index, rank) = (job.index, runtime.rank().0);
    for round in 0..3_u32 {
        let said = runtime.exchange(&bytes_of(index + round, 100), LIMIT)?;
        let expected: Vec<_> =
            (0..).take(job.sizes.len()).map(|other| bytes_of(other + round, 100)).collect();
        expect(said == expected, "others have said something else")?;
    }
    let vector = runtime.master_vector(&start_point(index, rank), LIMIT)?;
    let of = |subjob: usize| {
        let size = job.sizes.get(subjob).copied().unwrap_or(0);
        (0..size).map(move |rank| start_point(u32::try_from(subjob).unwrap_or(0), rank))
    };
    let in_order: Vec<_> = (0..job.sizes.len()).flat_map(of).collect();
    expect(vector == (index == 0 && rank == 0).then_some(in_order), "another vector")?;
    // In reverse order.
    let place = u32::try_from(job.sizes.len())? - 1 - index;
    let vector = runtime.ordered_master_vector(&start_point(index, rank), place, LIMIT)?;
    let backwards: Vec<_> = (0..job.sizes.len()).rev().flat_map(of).collect();
    expect(vector == (place == 0 && rank == 0).then_some(backwards), "another vector in another order")?;
    let wrong = runtime.ordered_master_vector(b"", 5, LIMIT);
    expect(wrong.is_err(), "places that are none were taken")
}

/// Rank 0 of every subjob sends so much to all others before it takes anything.
fn big(runtime: &Runtime, bytes: usize) -> Done {
    if runtime.rank().0 != 0 {
        return Ok(());
    }
    let tag = format!("big {bytes}");
    let job = runtime.structure(LIMIT)?;
    let count = u32::try_from(job.sizes.len())?;
    for other in (0..count).filter(|other| *other != job.index) {
        runtime.send_to_subjob(other, &tag, &bytes_of(job.index * 100 + other, bytes), LIMIT)?;
    }
    for _ in 1..count {
        let Message { from, bytes: came } = runtime.receive_from_subjobs(&tag, LIMIT)?;
        expect(came == bytes_of(from.subjob * 100 + job.index, bytes), "other bytes")?;
    }
    Ok(())
}

/// Messages are asked for in another order than they were sent, within a subjob and between two.
fn order(runtime: &Runtime) -> Done {
    let last = Rank(runtime.size() - 1);
    if runtime.rank().0 == 0 {
        for tag in ["one", "two", "three", "two"] {
            runtime.send_to_rank(last, tag, tag.as_bytes(), LIMIT)?;
        }
    }
    if runtime.rank() == last {
        for tag in ["three", "two", "one", "two"] {
            let Message { from, bytes } = runtime.receive_from_ranks(tag, LIMIT)?;
            expect(bytes == tag.as_bytes() && from.rank == Rank(0), "another message")?;
        }
        // Tags of subjobs are others than those of ranks.
        let none = runtime.receive_from_subjobs("one", Duration::from_millis(1));
        // This fails at the timeout, or at once if all others have ended already.
        expect(none.is_err(), "a message for another rank")?;
    }
    Ok(())
}

/// Subjob 1 sends and ends at once; subjob 0 takes it when it has ended.
fn last_words(runtime: &Runtime, bytes: usize) -> Done {
    let job = runtime.structure(LIMIT)?;
    if job.index == 1 {
        runtime.send_to_subjob(0, "last", &bytes_of(1, bytes), LIMIT)?;
        std::process::exit(0);
    }
    // No message with that tag ever arrives: this call ends when the other subjob has ended.
    let over = runtime.receive_from_subjobs("nothing", LIMIT);
    expect(matches!(over, Err(gantry_backend::Error::Refused(_))), "the end was not told")?;
    let Message { bytes: came, .. } = runtime.receive_from_subjobs("last", LIMIT)?;
    expect(came == bytes_of(1, bytes), "other last words")
}

/// Many threads send and receive at the same time, each with its own tag.
fn threads(runtime: &Runtime) -> Done {
    let job = runtime.structure(LIMIT)?;
    let (count, rank) = (u32::try_from(job.sizes.len())?, runtime.rank());
    let next = (job.index + 1) % count;
    let work = |number: u32| -> Result<(), gantry_backend::Error> {
        let tag = format!("thread {number}");
        for time in 0..40_u32 {
            let bytes = bytes_of(number * 1000 + time, usize::try_from(time * 4000).unwrap_or(0));
            runtime.send_to(Peer { subjob: next, rank }, &tag, &bytes, LIMIT)?;
            let came = runtime.receive_from_subjobs(&tag, LIMIT)?;
            assert_eq!(came.bytes, bytes, "thread {number}, time {time}");
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|number| scope.spawn(move || work(number))).collect();
        all.into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a thread failed")?.map_err(Into::into))
    })
}

/// A subjob that exchanges no messages with others does so among its own ranks.
fn alone(runtime: &Runtime) -> Done {
    expect(runtime.structure(LIMIT).is_err(), "it is told of others")?;
    order_within(runtime)
}

fn order_within(runtime: &Runtime) -> Done {
    let next = Rank((runtime.rank().0 + 1) % runtime.size());
    runtime.send_to_rank(next, "own", b"x", LIMIT)?;
    expect(runtime.receive_from_ranks("own", LIMIT)?.bytes == b"x", "another message")
}

/// Messages that cannot be sent are refused.
fn strangers(runtime: &Runtime) -> Done {
    let refused =
        |done: Result<(), gantry_backend::Error>| matches!(done, Err(gantry_backend::Error::Refused(_)));
    let job = runtime.structure(LIMIT)?;
    let count = u32::try_from(job.sizes.len())?;
    expect(refused(runtime.send_to_subjob(count, "x", b"", LIMIT)), "a subjob that is none")?;
    expect(refused(runtime.send_to_rank(Rank(runtime.size()), "x", b"", LIMIT)), "a rank that is none")?;
    expect(refused(runtime.send_to_subjob(0, &"x".repeat(256), b"", LIMIT)), "a long tag")?;
    expect(Runtime::connect(LIMIT).is_err(), "a second connection")
}

/// Waits until all others have ended, and checks the errors.
fn outlive(runtime: &Runtime) -> Done {
    let over = runtime.receive_from_subjobs("nothing", LIMIT);
    expect(matches!(over, Err(gantry_backend::Error::Refused(_))), "the end was not told")?;
    let gone = runtime.send_to_subjob(1, "x", b"", LIMIT);
    expect(matches!(gone, Err(gantry_backend::Error::Refused(_))), "a message to no process")
}

/// Subjob 0 sends as much as it can, and writes the number of bytes to a file. Subjob 1 receives nothing until that
/// file exists.
fn patient(runtime: &Runtime, file: &str) -> Done {
    let job = runtime.structure(LIMIT)?;
    let piece = bytes_of(3, 200_000);
    if job.index == 0 {
        let mut sent = 0_u64;
        while runtime.send_to_subjob(1, "much", &piece, Duration::from_secs(2)).is_ok() {
            sent += piece.len() as u64;
        }
        std::fs::write(format!("{file}.new"), sent.to_string())?;
        std::fs::rename(format!("{file}.new"), file)?;
        return Ok(runtime.send_to_subjob(1, "end", &sent.to_be_bytes(), LIMIT)?);
    }
    gantry_tests::proc::wait_file(std::path::Path::new(file), LIMIT);
    let sent = runtime.receive_from_subjobs("end", LIMIT)?.bytes;
    let sent = u64::from_be_bytes(sent.as_slice().try_into()?);
    for _ in 0..sent / piece.len() as u64 {
        expect(runtime.receive_from_subjobs("much", LIMIT)?.bytes == piece, "other bytes")?;
    }
    // A late message may still arrive, but only a complete one.
    let more = runtime.receive_from_subjobs("much", Duration::from_millis(50));
    expect(more.is_err() || more.is_ok_and(|more| more.bytes == piece), "a part of one")?;
    expect(runtime.receive_from_subjobs("much", Duration::from_millis(50)).is_err(), "one too many")
}

/// `TIMES:BYTES`: every rank sends so many messages, most of that size, to the next rank of its subjob. Rank 0 also
/// sends them to rank 0 of the next subjob. Each receives as many. They arrive in order.
fn flow(runtime: &Runtime, how: &str) -> Done {
    let (times, bytes) = how.split_once(':').ok_or("TIMES:BYTES")?;
    let (times, bytes): (u32, usize) = (times.parse()?, bytes.parse()?);
    let job = runtime.structure(LIMIT)?;
    let (own, rank) = (job.index, runtime.rank());
    let count = u32::try_from(job.sizes.len())?;
    let next = Peer { subjob: (own + 1) % count, rank: Rank(0) };
    let before = Peer { subjob: (own + count - 1) % count, rank: Rank(0) };
    let near = |step| Rank((rank.0 + step) % runtime.size());
    // Some have many pieces, others have none.
    let size = |time: u32| match time % 8 {
        0 => 0,
        7 => 3 * bytes,
        _ => bytes,
    };
    for time in 0..times {
        let within = bytes_of(1000 * rank.0 + time, size(time));
        runtime.send_to_rank(near(1), "flow", &within, LIMIT)?;
        if rank.0 == 0 {
            runtime.send_to(next, "flow", &bytes_of(500_000 * own + time, size(time)), LIMIT)?;
            let came = runtime.receive_from(before, "flow", LIMIT)?.bytes;
            expect(
                came == bytes_of(500_000 * before.subjob + time, size(time)),
                "other bytes, or another order",
            )?;
        }
        let from = near(runtime.size() - 1);
        let came = runtime.receive_from_rank(from, "flow", LIMIT)?.bytes;
        expect(
            came == bytes_of(1000 * from.0 + time, size(time)),
            "other bytes of a rank, or another order",
        )?;
    }
    Ok(())
}

/// Subjobs 0 and 1 send a small message back and forth. Subjob 0 reports the number of messages per second.
fn pingpong(runtime: &Runtime, times: u32) -> Done {
    let job = runtime.structure(LIMIT)?;
    let begun = Instant::now();
    for _ in 0..times {
        if job.index == 0 {
            runtime.send_to_subjob(1, "p", b"12345678", LIMIT)?;
        }
        runtime.receive_from_subjobs("p", LIMIT)?;
        if job.index == 1 {
            runtime.send_to_subjob(0, "p", b"12345678", LIMIT)?;
        }
    }
    say(job.index == 0, &format!("{}", f64::from(2 * times) / begun.elapsed().as_secs_f64()))
}

/// Subjob 0 sends many small messages to subjob 1, which reports the number of messages per second.
fn stream(runtime: &Runtime, times: u32) -> Done {
    let job = runtime.structure(LIMIT)?;
    let begun = Instant::now();
    for _ in 0..times {
        if job.index == 0 {
            runtime.send_to_subjob(1, "s", b"12345678", LIMIT)?;
        } else {
            runtime.receive_from_subjobs("s", LIMIT)?;
        }
    }
    say(job.index == 1, &format!("{}", f64::from(times) / begun.elapsed().as_secs_f64()))
}

/// Writes the time into a file of this rank's.
fn stamp(runtime: &Runtime, file: &str) -> Done {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    Ok(std::fs::write(format!("{file}.{}", runtime.rank()), now.to_string())?)
}

fn say(whether: bool, what: &str) -> Done {
    if whether {
        writeln!(std::io::stdout(), "{what}")?;
    }
    Ok(())
}
