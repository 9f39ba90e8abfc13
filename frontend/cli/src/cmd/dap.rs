//! `gantry dap`: connects editors and ranks to the state machine of `gantry-dap`.

mod app;
mod lines;
mod peers;
mod relay;

use std::pin::Pin;

use gantry_dap::adapter::{Adapter, Effect, Input, Start};
use gantry_dap::message::Client;
use gantry_types::signal::Signal;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, Receiver, Sender, UnboundedReceiver, UnboundedSender};

use self::app::{Begun, Debugged};
use self::peers::Peers;
use super::interrupts::Interrupts;
use super::say;
use crate::args::Dap;
use crate::exit::{self, Fault, Outcome, text_of};
use crate::view::Page;

/// The maximum number of waiting inputs. When the queue is full, ranks and editors wait.
const MAX_WAITING: usize = 256;

/// The number of random bytes in a token.
const TOKEN_BYTES: usize = 16;

pub(super) async fn run(args: Dap) -> Outcome {
    let mut interrupts = Interrupts::new()?;
    let (send, inputs) = mpsc::channel(MAX_WAITING);
    let token = random_token()?;
    let peers = Peers::new(send.clone());
    match args.listen {
        Some(port) => {
            let listener = listen(port).await?;
            let address = listener.local_addr().map_err(|error| Fault::io("cannot listen", &error))?;
            say(&Page::line(format_args!("{address} {token}")))?;
            peers.accept(listener);
        }
        None => peers.begin_on_stdio(),
    }
    let adapter = Adapter::new(token);
    let (tell, news) = mpsc::unbounded_channel();
    let driver = Driver { adapter, peers, send, inputs, tell, news, args, debugged: None, beginning: None };
    driver.drive(&mut interrupts).await
}

fn random_token() -> Result<String, Fault> {
    let mut bytes = [0; TOKEN_BYTES];
    gantry_shared::secret::fill_random(&mut bytes)
        .map_err(|error| Fault::io("cannot make a token", &error))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

async fn listen(port: u16) -> Result<TcpListener, Fault> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await;
    listener.map_err(|error| Fault::io(&format!("cannot listen at port {port} of this machine"), &error))
}

type Beginning = Pin<Box<dyn Future<Output = Result<Begun, Fault>> + Send>>;

/// Carries out the effects of the state machine and feeds it with inputs.
struct Driver {
    adapter: Adapter,
    peers: Peers,
    /// Inputs from editors and ranks. The queue is bounded, so that a fast sender waits.
    send: Sender<Input>,
    inputs: Receiver<Input>,
    /// Results of effects. Unbounded: there are no more results than effects.
    tell: UnboundedSender<Input>,
    news: UnboundedReceiver<Input>,
    args: Dap,
    debugged: Option<Debugged>,
    /// The start in progress. Dropping it cancels the start.
    beginning: Option<Beginning>,
}

impl Driver {
    async fn drive(mut self, interrupts: &mut Interrupts) -> Outcome {
        loop {
            let input = tokio::select! {
                Some(input) = self.news.recv() => input,
                Some(input) = self.inputs.recv() => input,
                begun = begun(&mut self.beginning) => {
                    self.beginning = None;
                    match begun {
                        Ok(Begun { debugged, started }) => {
                            self.debugged = Some(debugged);
                            Input::Started(Ok(started))
                        }
                        Err(fault) => Input::Started(Err(text_of(&fault))),
                    }
                }
                interrupt = interrupts.next() => {
                    // The same as if the editor had disconnected.
                    self.leave().await;
                    return Ok(interrupt.code(false));
                }
            };
            if self.take(input).await {
                return Ok(exit::SUCCESS);
            }
        }
    }

    /// Passes an input to the state machine and carries out the effects. True: everything has ended.
    async fn take(&mut self, input: Input) -> bool {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for effect in self.adapter.handle(input) {
                match effect {
                    Effect::Send(client, message) => self.peers.send(client, message).await,
                    Effect::Close(client) => self.peers.close(client).await,
                    Effect::Start(start) => self.start(*start),
                    Effect::Order { what, patience } => match &self.debugged {
                        Some(debugged) => debugged.order(what, patience).await,
                        None => inputs.push(Input::Answered(Err("there are no ranks".to_owned()))),
                    },
                    Effect::Release => self.release(),
                    Effect::Signal { kill } => self.signal(kill),
                    Effect::Listen => inputs.push(Input::Listening(self.listen().await)),
                    Effect::End { terminate } => inputs.push(Input::Over(self.end(terminate).await)),
                    Effect::Stop => return true,
                }
            }
        }
        false
    }

    fn start(&mut self, start: Start) {
        let hosts = self.args.hosts.clone();
        self.beginning = Some(Box::pin(app::begin(start, hosts, self.send.clone(), self.tell.clone())));
    }

    fn release(&self) {
        let Some(debugged) = &self.debugged else { return };
        let (hand, send) = (debugged.hand(), self.tell.clone());
        tokio::spawn(async move {
            let released = app::release(hand).await.map_err(|fault| text_of(&fault));
            send.send(Input::Released(released)).unwrap_or_default();
        });
    }

    fn signal(&self, kill: bool) {
        let Some(debugged) = &self.debugged else { return };
        let (hand, send) = (debugged.hand(), self.tell.clone());
        let signal = if kill { Signal::KILL } else { Signal::TERM };
        tokio::spawn(async move {
            if let Err(fault) = hand.signal(signal, None).await {
                send.send(Input::Note(text_of(&fault))).unwrap_or_default();
            }
        });
    }

    async fn listen(&self) -> Result<u16, String> {
        let listener = listen(0).await.map_err(|fault| text_of(&fault))?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        self.peers.accept(listener);
        Ok(port)
    }

    /// Detaches from the app, or cancels its start.
    async fn end(&mut self, terminate: bool) -> Result<(), String> {
        self.beginning = None;
        // The queue has no reader any more. Ranks blocked on it would not end.
        self.inputs.close();
        match self.debugged.take() {
            Some(debugged) => debugged.end(terminate).await.map_err(|fault| text_of(&fault)),
            None => Ok(()),
        }
    }

    /// Ends as if the editor had disconnected.
    async fn leave(&mut self) {
        for client in self.adapter.root().into_iter().chain([Client(0)]) {
            if self.take(Input::Left(client)).await {
                return;
            }
        }
    }
}

async fn begun(beginning: &mut Option<Beginning>) -> Result<Begun, Fault> {
    match beginning {
        Some(beginning) => beginning.await,
        None => std::future::pending().await,
    }
}
