//! What the frontend library and its guard have in common: what they say to each other, and where gantry's own executables are.
//!
//! The guard is one small helper per app on the login side. It outlives a killed tool to clean up after it. The frontend library lives in
//! somebody else's program: it may have no children, no signal handlers and no say in how that program ends. Whatever needs those is done
//! by the guard, which the kernel tells of the tool's end by closing a socket.

pub mod helpers;
pub mod protocol;
