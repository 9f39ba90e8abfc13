//! The protocol between the frontend library and its guard, and the search for gantry's executables.
//!
//! The guard is one small helper per app on the login side. It outlives a killed tool to clean up. The frontend
//! library lives in a foreign program. There it may have no children and no signal handlers, and cannot control how
//! that program ends. The guard does the work that needs those. The kernel tells it of the tool's end by closing a
//! socket.

pub mod helpers;
pub mod protocol;
pub mod submission;
