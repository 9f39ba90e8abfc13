//! A daemon's connection once it has opened its channel: the agent reads its messages and writes those for it.
//!
//! The hub bounds the messages that wait for the daemon. The reader bounds the bytes of an incomplete message.

use std::io::ErrorKind;

use gantry_shared::wire::channel::{FromDaemon, MAX_MESSAGE_BYTES, ToDaemon};
use gantry_shared::wire::frame::{FrameBuffer, encode};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::DaemonId;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Duration, timeout};

use super::LAST_BYTES;
use crate::framed::{Framed, Limits};
use crate::overlay::Uplink;

/// The longest frame is a message. The rest is room for the fields around it.
const WORDS: Limits = Limits {
    read: 64 * 1024,
    pending: MAX_MESSAGE_BYTES + 1024,
    exceeded: "it sends a message that is too long",
};

/// How long a daemon has to read why the agent closes its channel.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Serves a connection until it ends. `rest` holds the bytes that have already arrived.
pub(crate) async fn attend(stream: UnixStream, rest: FrameBuffer, daemon: DaemonId, up: Uplink) {
    let opened = up.channel(|hub| hub.open(daemon));
    let (reader, mut writer) = stream.into_split();
    let from = match opened {
        Ok(from) => from,
        Err(why) => return refuse(&mut writer, why).await,
    };
    let why = carry(reader, &mut writer, rest, from, |said| up.channel(|hub| hub.hear(daemon, said))).await;
    up.channel(|hub| hub.closed(daemon));
    if let Some(why) = why {
        refuse(&mut writer, why).await;
    }
}

/// Passes the daemon's messages to `hear` and writes those of `from`, until either end closes.
async fn carry(
    reader: OwnedReadHalf,
    writer: &mut OwnedWriteHalf,
    rest: FrameBuffer,
    from: mpsc::UnboundedReceiver<ToDaemon>,
    hear: impl FnMut(FromDaemon) -> Result<(), Failure>,
) -> Option<Failure> {
    tokio::select! {
        why = read(reader, rest, hear) => why,
        () = write(writer, from) => None,
    }
}

async fn refuse(writer: &mut OwnedWriteHalf, why: Failure) {
    if let Ok(frame) = encode(&ToDaemon::Refused(why)) {
        drop(timeout(LAST_WORD, writer.write_all(&frame)).await);
    }
}

/// Reads until the daemon closes its end or violates the protocol.
async fn read(
    reader: OwnedReadHalf,
    rest: FrameBuffer,
    mut hear: impl FnMut(FromDaemon) -> Result<(), Failure>,
) -> Option<Failure> {
    let mut words = Framed::new(reader, rest, WORDS);
    loop {
        match words.next().await {
            Ok(Some(said)) => {
                if let Err(why) = hear(said) {
                    return Some(why);
                }
            }
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return Some(Failure::new(Kind::Protocol, format!("read a daemon's message: {error}")));
            }
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Writes the messages for the daemon until the hub ends their queue, or the daemon no longer reads.
///
/// A daemon that has ended reads nothing, but its last messages may still be in the socket. So this leaves the reader
/// some time to take them.
async fn write(writer: &mut OwnedWriteHalf, mut from: mpsc::UnboundedReceiver<ToDaemon>) {
    while let Some(what) = from.recv().await {
        match encode(&what) {
            Ok(frame) if writer.write_all(&frame).await.is_err() => {
                tokio::time::sleep(LAST_BYTES).await;
                break;
            }
            // Messages have bounds, and fit in a frame.
            Ok(_) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use gantry_shared::wire::channel::DaemonFlow;
    use gantry_shared::wire::message::{Blob, Word};

    use super::*;

    #[tokio::test]
    async fn a_daemons_last_messages_are_read_although_it_reads_nothing_more() {
        // The runtime polls reader and writer in random order.
        for _ in 0..64 {
            let (ours, mut daemons) = UnixStream::pair().unwrap();
            let word = Word::Data { label: 1, bytes: Blob(b"that was all".to_vec()) };
            let said = FromDaemon::Flow { flow: DaemonFlow::Messages, word };
            daemons.write_all(&encode(&said).unwrap()).await.unwrap();
            drop(daemons);
            let (queue, from) = mpsc::unbounded_channel();
            queue.send(ToDaemon::Refused(Failure::new(Kind::Gone, "unread"))).unwrap();
            let (reader, mut writer) = ours.into_split();
            let mut heard = Vec::new();
            let hear = |said| {
                heard.push(said);
                Ok(())
            };
            assert_eq!(carry(reader, &mut writer, FrameBuffer::new(), from, hear).await, None);
            assert_eq!(heard.len(), 1);
        }
    }
}
