//! A frontend that breaks the rules, above a real agent.

use gantry_link::LinkError;
use gantry_link::handshake::accept;
use gantry_link::link::{LinkReader, LinkWriter};
use gantry_shared::secret::Secret;
use gantry_shared::wire::message::{
    Down, FlowId, OUTPUT_WINDOW_BYTES, Order, Program, Seat, StartRanks, Ticket, To, Word,
};
use gantry_types::id::{AppId, NodeId, Rank, RequestId};
use gantry_types::launch::Bind;
use gantry_types::rank_set::RankSet;

use crate::{SOON, World, binaries};

/// The number of bytes in one order.
const PIECE_BYTES: u32 = 32 * 1024;

async fn say<T: serde::Serialize>(writer: &mut LinkWriter, message: &T) {
    writer.send(message).expect("a message");
    writer.flush().await.expect("an open link");
}

/// Starts a real agent with one held rank, and sends twice as many bytes for the rank's standard input as its window
/// allows. Returns the error that ends the link.
///
/// # Panics
/// When the agent does not get that far.
pub async fn overrun_input(world: &World) -> LinkError {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (app, secret) = (AppId::random().expect("an id"), Secret::random().expect("a secret"));
    let ticket = Ticket {
        app,
        secret: secret.clone(),
        frontend: vec![listener.local_addr().expect("an address")],
        host: "n1".to_owned(),
        wlm: "localhost".to_owned(),
        stage_base: None,
        node_variables: Vec::new(),
        patience: SOON,
        subjob: None,
    };
    let mut command = world.command(&binaries().agent);
    command.arg("serve");
    let mut agent = world.spawn(command);
    agent.write(&ticket.to_frame().expect("a ticket"));
    agent.close_stdin();
    let (stream, _) = listener.accept().await.expect("an agent");
    let deadline = tokio::time::Instant::now() + SOON;
    let link = accept(stream, &secret, app.as_str().as_bytes(), deadline).await.expect("a link");
    let (mut reader, mut writer): (LinkReader, LinkWriter) = link.split();
    reader.next().await.expect("a hello");
    say(&mut writer, &Seat::Taken { node: NodeId(0), nodes: 1, radix: 64, parent: None }).await;
    let only = RankSet::from_range(Rank(0)..=Rank(0));
    let program = Program {
        program: "/bin/cat".into(),
        args: Vec::new(),
        env: Vec::new(),
        chosen: 0,
        cwd: Some("/".into()),
    };
    let start = StartRanks {
        programs: vec![(only.clone(), program)],
        size: 1,
        layout: vec![only],
        hold: true,
        stdin: Some(Rank(0)),
        output: false,
        bind: Bind::None,
        joins: false,
        pmix: None,
    };
    say(&mut writer, &Down { request: Some(RequestId(1)), to: To::All, order: Order::StartRanks(start) })
        .await;
    reader.next().await.expect("an answer");
    for _ in 0..2 * OUTPUT_WINDOW_BYTES / PIECE_BYTES {
        let (flow, word) = (FlowId::Input(Rank(0)), Word::data(vec![0; PIECE_BYTES as usize]));
        let order = Order::Flow { flow, word };
        say(&mut writer, &Down { request: None, to: To::All, order }).await;
    }
    loop {
        if let Err(error) = tokio::time::timeout(SOON, reader.next()).await.expect("the end of the link") {
            return error;
        }
    }
}
