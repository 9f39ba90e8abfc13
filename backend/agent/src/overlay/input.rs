//! What comes for this agent.

use gantry_shared::wire::message::Order;
use gantry_types::id::RequestId;

use super::bulk::Piece;

/// What comes for this agent.
#[derive(Debug)]
pub(crate) enum Input {
    /// Something to do.
    Order {
        /// The answer bears this number; none: no answer is wanted.
        request: Option<RequestId>,
        /// What.
        order: Order,
    },
    /// Bulk data of a stream that an order has announced. While it is kept, the stream waits.
    Bulk(Piece),
    /// The way to the frontend is closed (orderly) or lost. The last input.
    Gone {
        /// The frontend has said goodbye.
        orderly: bool,
        /// What was seen.
        reason: String,
    },
}
