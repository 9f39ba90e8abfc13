//! A crowd of unauthenticated clients. `crowd UID FIRST OTHERS` becomes that user. It connects to every TCP port of its
//! network namespace as soon as a program listens there: FIRST times to the first port, OTHERS times to each later one.
//! A third of the connections is silent, a third sends garbage, a third stops halfway in a greeting. When a connection
//! is closed, it connects again after a second.
//!
//! It prints `ready` when it has begun, and `stands` when FIRST connections were accepted. At the end of its input it
//! prints how many were accepted and how many were closed, and ends.
#![expect(clippy::print_stdout, reason = "it tells the test what it has done")]

use std::collections::BTreeSet;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gantry_shared::wire::message::PROTOCOL_VERSION;
use nix::unistd::{Uid, setuid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

const LOOK: Duration = Duration::from_millis(2);
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Seen {
    stood: AtomicUsize,
    closed: AtomicUsize,
}

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let [uid, first, others] = numbers[..] else { panic!("usage: crowd UID FIRST OTHERS") };
    setuid(Uid::from_raw(u32::try_from(uid).expect("a user"))).expect("become that user");
    let seen = Arc::new(Seen::default());
    let told = Arc::clone(&seen);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(besiege(first, others, seen));
    });
    std::io::stdin().read_to_end(&mut Vec::new()).expect("standard input");
    let [stood, closed] = [&told.stood, &told.closed].map(|count| count.load(Ordering::Relaxed));
    println!("{stood} {closed}");
}

async fn besiege(first: usize, others: usize, seen: Arc<Seen>) {
    let mut known = listening();
    let old = known.len();
    println!("ready");
    loop {
        for port in listening() {
            if !known.insert(port) {
                continue;
            }
            let is_first = known.len() == old + 1;
            let count = if is_first { first } else { others };
            let told = if is_first { first } else { usize::MAX };
            if told == 0 {
                println!("stands");
            }
            for number in 0..count {
                tokio::spawn(stay(port, number, told, Arc::clone(&seen)));
            }
        }
        sleep(LOOK).await;
    }
}

/// Keeps a connection open. Reports when `told` connections were accepted.
async fn stay(port: u16, number: usize, told: usize, seen: Arc<Seen>) {
    // If no program listens on the port any more, it ends.
    while let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)).await {
        if seen.stood.fetch_add(1, Ordering::Relaxed) + 1 == told {
            println!("stands");
        }
        let [high, low] = PROTOCOL_VERSION.to_be_bytes();
        let said = match number % 3 {
            0 => Ok(()),
            1 => stream.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").await,
            _ => stream.write_all(&[b'g', b't', b'r', b'y', high, low, 0, 0]).await,
        };
        let mut heard = [0; 512];
        while said.is_ok() && stream.read(&mut heard).await.is_ok_and(|bytes| bytes > 0) {}
        seen.closed.fetch_add(1, Ordering::Relaxed);
        drop(stream);
        sleep(AGAIN).await;
    }
}

/// Ports of this network namespace on which something listens.
fn listening() -> BTreeSet<u16> {
    let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
    let tables = tables.map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let port = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next()?;
        let listens = fields.nth(1)? == "0A";
        listens.then(|| u16::from_str_radix(local.rsplit(':').next()?, 16).ok()).flatten()
    };
    tables.iter().flat_map(|table| table.lines().filter_map(port)).collect()
}
