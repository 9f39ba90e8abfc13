use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;
use crate::tcp::listen;

const SOON: Duration = Duration::from_secs(10);

/// A door that admits each peer that sends a byte, and takes it as proven.
async fn serve(mut gate: Gate<TcpEar>) {
    let mut tasks = JoinSet::new();
    loop {
        let Arrival { mut stream, seat, eviction } = gate.next().await;
        tasks.spawn(async move {
            let talk = async {
                let mut word = [0; 4];
                if stream.read_exact(&mut word).await.is_ok() && word == *b"word" && seat.reach(Stage::Proven)
                {
                    stream.write_all(b"come").await.ok();
                    stream.read_to_end(&mut Vec::new()).await.ok();
                }
            };
            eviction.or(talk).await
        });
    }
}

async fn come_in(address: std::net::SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"word").await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await?;
    Ok(stream)
}

#[tokio::test]
async fn a_crowd_that_says_nothing_gives_way() {
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let gate = Gate::new(TcpEar::new(listener), Limits::with_places(4));
    let tally = gate.tally();
    let serving = tokio::spawn(serve(gate));
    let mut crowd = Vec::new();
    for _ in 0..300 {
        crowd.push(TcpStream::connect(address).await.unwrap());
    }
    let mut inside = Vec::new();
    for _ in 0..4 {
        inside.push(timeout(SOON, come_in(address)).await.expect("within the deadline").unwrap());
    }
    // Proven peers keep their places.
    let waiting = tokio::spawn(come_in(address));
    for stream in &mut inside {
        stream.write_all(b"more").await.unwrap();
    }
    drop(inside.pop());
    drop(timeout(SOON, waiting).await.expect("within the deadline").unwrap().unwrap());
    let strangers = tally.strangers();
    assert_eq!((strangers.total_of(Reason::Silent), strangers.evicted()), (300, 300), "{strangers}");
    serving.abort();
}

#[tokio::test]
async fn a_place_is_free_again_when_its_seat_is_dropped() {
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let mut gate = Gate::new(TcpEar::new(listener), Limits::with_places(1));
    let _one = TcpStream::connect(address).await.unwrap();
    let first = timeout(SOON, gate.next()).await.unwrap();
    assert!(first.seat.reach(Stage::Proven));
    let _other = TcpStream::connect(address).await.unwrap();
    assert!(timeout(Duration::from_millis(50), gate.next()).await.is_err(), "there is no place");
    drop(first.seat);
    let second = timeout(SOON, gate.next()).await.unwrap();
    // Work continues although its own seat was freed.
    let work = async {
        drop(second.seat);
        tokio::task::yield_now().await;
        7
    };
    assert_eq!(second.eviction.or(work).await, Some(7));
}
