//! Agents that cannot be dialled: the process that started them passes their stream to the frontend.

use gantry_wlm::Reports;
use tokio::net::UnixStream;

use super::*;

#[tokio::test]
async fn where_one_cannot_be_dialled_all_are_children_of_the_root() {
    let (app, secret) = (AppId::random().unwrap(), Secret::random().unwrap());
    let listener = Listener::bind(app, secret.clone(), 1, 2, Reach::ThisMachine).await.unwrap();
    let (address, links) = (listener.addresses()[0], listener.links());
    let hosts = ["a", "b", "c"].map(str::to_owned).to_vec();
    let assembling = tokio::spawn(async move { listener.assemble(&hosts, Instant::now() + SOON).await });
    let stage = Stage { app, secret, address, assembling };
    let mut peers = vec![stage.agent("a").await];
    for host in ["b", "c"] {
        peers.push(passed(&stage, &links, host).await);
    }
    for (index, peer) in (0..).zip(&mut peers) {
        match peer.hear().await {
            Seat::Taken { node, nodes, radix, parent } => {
                assert_eq!((node, nodes, radix, parent), (NodeId(index), 3, 3, None));
            }
            Seat::Refused(failure) => panic!("refused: {failure}"),
        }
    }
    let (overlay, _events) = stage.assembled().await.unwrap();
    overlay.tell(nodes("2"), Order::Release);
    assert_eq!(peers[2].hear::<Down>().await.order, Order::Release);
}

/// Connects an agent over a passed stream, and says hello.
async fn passed(stage: &Stage, links: &Reports<UnixStream>, host: &str) -> Peer {
    let (ours, theirs) = UnixStream::pair().unwrap();
    links.tell(theirs);
    let link = connect(ours, &stage.secret, stage.app.as_str().as_bytes(), Instant::now() + SOON).await;
    let (reader, writer) = link.unwrap().split();
    let mut peer = Peer { reader, writer, owed: 0 };
    let (host, pid) = (host.to_owned(), Pid::new(1).unwrap());
    peer.say(&Dial::Agent(AgentHello { host, pid, listen: Vec::new(), brought: None })).await;
    peer
}
