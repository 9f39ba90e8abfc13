//! An editor that opens a part of a session starts an adapter for it. That one passes everything on to the adapter that has the session.

use gantry_dap::adapter::Input;
use gantry_dap::args::{Attach, Part};
use gantry_dap::frame::{Frame, Frames, build_frame};
use gantry_dap::message::{Client, Incoming};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::Sender;

/// How much is read at a time.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// An editor, as this process has it.
pub(super) struct Editor<'a> {
    pub(super) client: Client,
    pub(super) to: &'a Sender<Vec<u8>>,
    pub(super) inputs: &'a Sender<Input>,
}

/// What an editor has sent so far.
#[derive(Debug, Default)]
pub(super) struct Relay {
    /// Its first request, which the other adapter has to know, too.
    initialize: Option<Vec<u8>>,
    to: Option<tokio::net::tcp::OwnedWriteHalf>,
}

impl Relay {
    /// Takes a message of the editor. Gives it back where it is for the adapter of this process.
    pub(super) async fn take(&mut self, frame: Frame, editor: &Editor<'_>) -> Option<Frame> {
        let Frame::Body(body) = &frame else { return Some(frame) };
        if let Some(to) = &mut self.to {
            // The reader sees that the other one is gone.
            to.write_all(&build_frame(body)).await.unwrap_or_default();
            return None;
        }
        let Ok(incoming) = Incoming::parse(body) else { return Some(frame) };
        match incoming.command.as_str() {
            "initialize" => {
                self.initialize = Some(body.clone());
                Some(frame)
            }
            "attach" => {
                let Some(part) = incoming.args::<Attach>().ok().and_then(|args| args.session) else {
                    return Some(frame);
                };
                match self.begin(&part, body, editor).await {
                    Ok(()) => None,
                    // The adapter here says that it has no such session.
                    Err(_) => Some(frame),
                }
            }
            _ => Some(frame),
        }
    }

    async fn begin(&mut self, part: &Part, attach: &[u8], editor: &Editor<'_>) -> std::io::Result<()> {
        let stream = TcpStream::connect(("127.0.0.1", part.port)).await?;
        let (mut from, mut to) = stream.into_split();
        let initialize = self.initialize.clone().unwrap_or_default();
        let mut answers_to_skip = usize::from(!initialize.is_empty());
        if !initialize.is_empty() {
            to.write_all(&build_frame(&initialize)).await?;
        }
        to.write_all(&build_frame(attach)).await?;
        self.to = Some(to);
        let (editor, client, inputs) = (editor.to.clone(), editor.client, editor.inputs.clone());
        tokio::spawn(async move {
            let (mut frames, mut piece) = (Frames::default(), vec![0; PIECE_BYTES]);
            while let Ok(length @ 1..) = from.read(&mut piece).await {
                let mut all = Vec::new();
                frames.push(&piece[..length], |frame| all.push(frame));
                for frame in all {
                    let Frame::Body(body) = frame else { continue };
                    // The editor has its answer to that already.
                    if answers_to_skip > 0 {
                        answers_to_skip -= 1;
                        continue;
                    }
                    if editor.send(build_frame(&body)).await.is_err() {
                        return;
                    }
                }
            }
            // It is over here, too.
            inputs.send(Input::Left(client)).await.unwrap_or_default();
        });
        Ok(())
    }
}
