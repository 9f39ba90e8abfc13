//! Large data of a rendezvous, from the side of the node that takes it.

use gantry_link::credit::WINDOW_CHUNKS;
use gantry_link::limits::MAX_BULK_CHUNK_BYTES;
use gantry_shared::wire::flow::Word;
use gantry_shared::wire::rendezvous::{Gate, Key, RendezvousOrder, Want};
use gantry_types::id::Rank;
use gantry_types::placement::PlacementBuilder;
use gantry_types::rendezvous::Resource;

use super::*;
use crate::rendezvous::Service;

const CHUNKS: usize = 4 * WINDOW_CHUNKS as usize;

/// A rank has registered that many chunks, and its node waits for them. Returns the request that announces them.
async fn waiting(overlay: &Overlay, peer: &mut Peer) -> (Service, RequestId) {
    let mut placement = PlacementBuilder::new();
    placement.push("a", None, "").unwrap();
    let service = Service::new(AppId::random().unwrap(), placement.build(), overlay.clone(), None);
    let (node, of) = (NodeId(0), Gate { resource: Resource::Job, expected: None });
    let data = vec![7; CHUNKS * MAX_BULK_CHUNK_BYTES];
    let (bytes, get) = (data.len() as u64, Key { of: of.clone(), want: Want::All });
    service.take_notice(node, RendezvousNotice::Put { item: 1, of, rank: Rank(0), bytes });
    service.hear(node, Word::Data { label: 1, bytes: Blob(data) });
    service.take_notice(node, RendezvousNotice::Get(get));
    loop {
        match peer.order_past_bulk().await {
            Down { request: Some(request), order: Order::Bulk(BulkOrder::Link { .. }), .. } => {
                peer.answer(request, 0, Ok(Answer::Done)).await;
            }
            Down {
                request: Some(request), order: Order::Rendezvous(RendezvousOrder::Stream { .. }), ..
            } => {
                return (service, request);
            }
            // The receipt of the item, and credit for its bytes.
            _ => {}
        }
    }
}

#[tokio::test]
async fn the_end_waits_for_data_as_long_as_some_of_it_moves() {
    const STALL: Duration = Duration::from_secs(3);
    let (overlay, _events, mut peers) = flat(&["a"]).await;
    let mut peer = peers.remove(0);
    let (service, request) = waiting(&overlay, &mut peer).await;
    let begun = Instant::now();
    let taking = async {
        for last in (0..=CHUNKS).map(|index| index == CHUNKS) {
            match timeout(SOON, peer.reader.next()).await.unwrap().unwrap() {
                Some(Incoming::Bulk(chunk)) => assert_eq!(chunk.is_last(), last),
                other => panic!("{other:?}"),
            }
            // A slow network.
            tokio::time::sleep(STALL / 20).await;
            peer.owed += 1;
            peer.give_credit().await;
        }
        peer.answer(request, 0, Ok(Answer::Done)).await;
    };
    let (finished, ()) = tokio::join!(service.finish_deliveries(STALL), taking);
    assert!(finished && begun.elapsed() > STALL, "{finished} after {:?}", begun.elapsed());
}

#[tokio::test]
async fn the_end_does_not_wait_for_data_that_does_not_move() {
    let (overlay, _events, mut peers) = flat(&["a"]).await;
    let (service, _) = waiting(&overlay, &mut peers[0]).await;
    assert!(!service.finish_deliveries(Duration::from_millis(100)).await);
}
