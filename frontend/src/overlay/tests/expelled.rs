//! Nodes that break the rules: the root closes their link and declares them lost.

use super::*;

async fn refusal(peer: &mut Peer) -> String {
    loop {
        match timeout(SOON, peer.reader.next()).await.unwrap() {
            Ok(Some(_)) => {}
            Err(LinkError::Refused { reason, .. }) => return reason,
            other => panic!("{other:?}"),
        }
    }
}

/// A chain of three nodes. The peer is the first one, over whose link the others speak.
async fn chain() -> (Overlay, mpsc::UnboundedReceiver<OverlayEvent>, Peer) {
    let stage = Stage::new(&["a", "b", "c"], 1, SOON).await;
    let (mut a, mut b, mut c) = (stage.agent("a").await, stage.agent("b").await, stage.agent("c").await);
    assert_eq!((a.seat().await, b.seat().await, c.seat().await), (0, 1, 2));
    for peer in [b, c] {
        peer.writer.close().await.unwrap();
    }
    a.notice(0, Notice::ChildJoined { child: NodeId(1) }).await;
    a.notice(1, Notice::ChildJoined { child: NodeId(2) }).await;
    let (overlay, events) = stage.assembled().await.unwrap();
    (overlay, events, a)
}

#[tokio::test]
async fn a_node_that_answers_for_another_is_lost_and_the_others_answer() {
    let (overlay, mut events, mut peers) = flat(&["a", "b", "c"]).await;
    let asked = ask(&overlay, To::All, SOON);
    let request = peers[0].order().await;
    peers[0].answer(request, 0, Ok(Answer::Done)).await;
    let lie = EncodedReply::of(&Ok(Answer::Missing(EntrySet::first_n(1)))).unwrap();
    let lie = vec![(single(2), lie)];
    peers[1].say(&Up::Answers { request, answers: lie }).await;
    let why = "b answered for c, which is not below it: its link was closed";
    assert_eq!(lost(&mut events).await, ("1".to_owned(), why.to_owned()));
    assert_eq!(refusal(&mut peers[1]).await, "it answered for c, which is not below it");
    peers[2].answer(request, 2, Ok(Answer::Done)).await;
    assert!(
        matches!(asked.await.unwrap(), Err(Error::Lost { what, reason }) if what == ["b"] && reason == why)
    );
    assert_eq!(overlay.reachable(), "0,2".parse().unwrap());
}

#[tokio::test]
async fn a_node_that_answers_what_it_was_not_asked_is_lost() {
    let (overlay, mut events, mut peers) = flat(&["a", "b"]).await;
    let asked = ask(&overlay, nodes("1"), SOON);
    let request = peers[1].order().await;
    peers[0].answer(request, 0, Ok(Answer::Done)).await;
    let why = format!("a answered request {request}, which it was not asked: its link was closed");
    assert_eq!(lost(&mut events).await, ("0".to_owned(), why));
    peers[1].answer(request, 1, Ok(Answer::Done)).await;
    assert_eq!(asked.await.unwrap().unwrap().len(), 1);
    peers[1].answer(RequestId(1000), 1, Ok(Answer::Done)).await;
    let why = "b answered request 1000, which was never made: its link was closed";
    assert_eq!(lost(&mut events).await, ("1".to_owned(), why.to_owned()));
}

#[tokio::test]
async fn a_node_further_down_that_lies_is_cut_off_by_its_parent_and_counts_no_more() {
    let (overlay, mut events, mut a) = chain().await;
    a.notice(2, Notice::NodesLost { nodes: single(0), reason: "a lie".to_owned() }).await;
    let why = "c said that a is lost, which is not below it";
    assert_eq!(lost(&mut events).await, ("2".to_owned(), format!("{why}: its link was closed")));
    let told: Down = a.hear().await;
    let reason = why.replacen('c', "it", 1);
    assert_eq!((told.request, told.to), (None, nodes("1")));
    assert_eq!(told.order, Order::CutChild { child: NodeId(2), reason });
    // What its parent still forwards about it, including the report of its end, is old.
    a.notice(2, news()).await;
    a.notice(1, Notice::NodesLost { nodes: single(2), reason: "closed".to_owned() }).await;
    a.notice(1, news()).await;
    let next = timeout(SOON, events.recv()).await.unwrap();
    assert!(matches!(next, Some(OverlayEvent::Notice(NodeId(1), Notice::Rendezvous(_), _))), "{next:?}");
    assert_eq!(overlay.reachable(), "0-1".parse().unwrap());
}

#[tokio::test]
async fn a_parent_that_speaks_for_nodes_that_are_not_below_it_is_lost_with_those_that_are() {
    let (_overlay, mut events, mut a) = chain().await;
    a.notice(0, Notice::ChildJoined { child: NodeId(2) }).await;
    let (nodes, why) = lost(&mut events).await;
    assert_eq!(nodes, "0-2");
    assert_eq!(why, "a said that node 2 joined it, which is not its child: its link was closed");
    assert_eq!(refusal(&mut a).await, "it said that node 2 joined it, which is not its child");
}

#[tokio::test]
async fn what_is_not_dealt_with_makes_only_its_own_link_wait() {
    let (overlay, mut events, mut peers) = flat(&["a", "b"]).await;
    let mut flood = peers.remove(0);
    let flooding = tokio::spawn(async move {
        loop {
            flood.notice(0, news()).await;
        }
    });
    // The events are not read: the queue fills up, and the other node's answer still arrives.
    let asked = ask(&overlay, nodes("1"), SOON);
    let request = peers[0].order().await;
    peers[0].answer(request, 1, Ok(Answer::Done)).await;
    asked.await.unwrap().unwrap();
    let mut before = 0;
    while before == 0 || (events.len() > before && before < 10_000) {
        before = events.len();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(before < 10_000, "{before} notices wait");
    flooding.abort();
    assert!(timeout(SOON, events.recv()).await.unwrap().is_some());
}

#[tokio::test]
async fn a_node_whose_answer_cannot_be_read_is_lost_and_not_who_passed_it_on() {
    let (overlay, mut events, mut peers) = flat(&["a", "b"]).await;
    let asked = ask(&overlay, To::All, SOON);
    let request = peers[0].order().await;
    // Agents on the way compare answers and do not read them.
    let unread = frame::decode(&frame::encode_body(&Blob(vec![0xff; 3])).unwrap()).unwrap();
    peers[1].say(&Up::Answers { request, answers: vec![(single(1), unread)] }).await;
    let why = "b sent an answer that cannot be read: its link was closed";
    assert_eq!(lost(&mut events).await, ("1".to_owned(), why.to_owned()));
    peers[0].answer(request, 0, Ok(Answer::Done)).await;
    assert!(matches!(asked.await.unwrap(), Err(Error::Lost { what, .. }) if what == ["b"]));
}
