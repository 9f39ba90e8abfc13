//! An editor starts a new adapter process for a partial session. That process forwards everything to the adapter that
//! owns the session.

use gantry_dap::adapter::Input;
use gantry_dap::args::{Attach, Part};
use gantry_dap::frame::{Frame, Frames, build_frame};
use gantry_dap::message::{Client, Incoming};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::Sender;

/// The size of one read.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// The editor of this process.
pub(super) struct Editor<'a> {
    pub(super) client: Client,
    pub(super) to: &'a Sender<Vec<u8>>,
    pub(super) inputs: &'a Sender<Input>,
}

/// The messages of an editor so far.
#[derive(Debug, Default)]
pub(super) struct Relay {
    /// The `initialize` request. The other adapter needs it, too.
    initialize: Option<Vec<u8>>,
    to: Option<tokio::net::tcp::OwnedWriteHalf>,
}

impl Relay {
    /// Takes a message of the editor. Returns it if it is for the adapter of this process.
    pub(super) async fn take(&mut self, frame: Frame, editor: &Editor<'_>) -> Option<Frame> {
        let Frame::Body(body) = &frame else { return Some(frame) };
        if let Some(to) = &mut self.to {
            // The reader notices when the other adapter has gone.
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
                    // The adapter of this process then reports that the session does not exist.
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
                    // The editor has the answer to this request already.
                    if answers_to_skip > 0 {
                        answers_to_skip -= 1;
                        continue;
                    }
                    if editor.send(build_frame(&body)).await.is_err() {
                        return;
                    }
                }
            }
            // The session has ended for this process, too.
            inputs.send(Input::Left(client)).await.unwrap_or_default();
        });
        Ok(())
    }
}
