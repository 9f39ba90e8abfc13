//! A daemon's connection once it has opened its channel: the agent reads its messages and writes those for it.
//!
//! The hub bounds the messages that wait for the daemon. The reader bounds the bytes of an incomplete message.

use gantry_shared::wire::channel::{FromDaemon, MAX_MESSAGE_BYTES, ToDaemon};
use gantry_shared::wire::frame::{FrameBuffer, decode, encode};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::DaemonId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Duration, timeout};

use super::LAST_BYTES;
use crate::overlay::Uplink;

/// The longest frame is a message. The rest is room for the fields around it.
const MAX_FRAME: usize = MAX_MESSAGE_BYTES + 1024;

/// Bytes per read.
const READ_BYTES: usize = 64 * 1024;

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
    mut reader: OwnedReadHalf,
    mut buffer: FrameBuffer,
    mut hear: impl FnMut(FromDaemon) -> Result<(), Failure>,
) -> Option<Failure> {
    let garbage = |why: String| Failure::new(Kind::Protocol, format!("read a daemon's message: {why}"));
    let mut chunk = vec![0; READ_BYTES];
    loop {
        loop {
            let body = match buffer.pop() {
                Ok(Some(body)) => body,
                Ok(None) => break,
                Err(error) => return Some(garbage(error.to_string())),
            };
            let said: FromDaemon = match decode(&body) {
                Ok(said) => said,
                Err(error) => return Some(garbage(error.to_string())),
            };
            if let Err(why) = hear(said) {
                return Some(why);
            }
        }
        if buffer.pending_bytes() > MAX_FRAME {
            return Some(garbage("it sends a message that is too long".to_owned()));
        }
        match reader.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => {
                if let Err(error) = buffer.push(&chunk[..count]) {
                    return Some(garbage(error.to_string()));
                }
            }
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
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "a message for a daemon was not written"),
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
