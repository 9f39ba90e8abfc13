//! The link to the parent: reads the orders from above.

use std::sync::Arc;

use gantry_link::LinkError;
use gantry_link::credit::Credit;
use gantry_link::link::{Incoming, LinkReader};
use gantry_shared::wire::frame;
use gantry_shared::wire::message::{BulkOrder, Down};
use gantry_types::error::{Failure, Kind};

use super::relay::OwnPart;
use super::streams::Streams;

/// Reads the parent's link until it ends.
pub(super) async fn read(mut reader: LinkReader, credit: Arc<Credit>, streams: Streams) {
    let (orderly, reason) = loop {
        let done = match reader.next().await {
            Ok(Some(Incoming::Frame(body))) => take_frame(body, &streams),
            Ok(Some(Incoming::Bulk(chunk))) => {
                credit.arrive().map(|held| streams.take(chunk, held)).map_err(|e| e.to_string())
            }
            Ok(Some(Incoming::Credit(places))) => credit.earn(places).map_err(|e| e.to_string()),
            Ok(None) => break (true, "the parent closed the link".to_owned()),
            Err(error) if error.is_cut() => break (false, "the link to the parent was cut".to_owned()),
            Err(LinkError::Refused { reason, .. }) => break (false, format!("the parent refused: {reason}")),
            Err(error) => Err(error.to_string()),
        };
        if let Err(reason) = done {
            streams.context().relay.lock().refuse_parent(&reason);
            break (false, reason);
        }
    };
    streams.context().relay.lock().parent_ended(orderly, reason);
    streams.end_all(&Failure::new(Kind::Lost, "take bulk data: the path to the frontend is lost"));
}

fn take_frame(body: Vec<u8>, streams: &Streams) -> Result<(), String> {
    let Err(body) = streams.context().relay.lock().pass_flow_down(body) else { return Ok(()) };
    let down: Down = frame::decode(&body).map_err(|e| format!("protocol error: {e}"))?;
    // This statement releases the lock before the streams take theirs.
    let own = streams.context().relay.lock().pass_down(down, body);
    match own {
        None => {}
        Some(OwnPart::Announced { stream, announced }) => streams.announce(stream, announced),
        Some(OwnPart::Bulk { request, order: BulkOrder::Link { stream, seats } }) => {
            // The relay has already passed on the seats of other nodes.
            for seat in seats {
                streams.open(stream, seat, request);
            }
        }
        Some(OwnPart::Bulk { order: BulkOrder::End { stream, why }, .. }) => streams.end(stream, why),
        Some(OwnPart::Bulk { order: BulkOrder::Count, .. }) => {}
    }
    Ok(())
}
