//! The inputs of this agent.

use gantry_shared::wire::message::Order;
use gantry_types::id::RequestId;

use super::bulk::Piece;

/// An input of this agent.
#[derive(Debug)]
pub(crate) enum Input {
    /// An order from the frontend.
    Order {
        /// The answer bears this number. None: the frontend wants no answer.
        request: Option<RequestId>,
        /// The order itself.
        order: Order,
    },
    /// Bulk data of a stream that an order has announced. The stream waits while the agent keeps it.
    Bulk(Piece),
    /// The path to the frontend is closed (orderly) or lost. The last input.
    #[cfg_attr(not(test), expect(dead_code, reason = "nobody is left to hear why; tests look at it"))]
    Gone {
        /// The frontend has said goodbye.
        orderly: bool,
        /// What this agent observed.
        reason: String,
    },
}
