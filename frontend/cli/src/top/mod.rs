//! The state of ranks and nodes, on a screen with keys.
//!
//! - `figures`: the known state of ranks and nodes; `text`: the same as tables and for programs.
//! - `model`: the content of the screen, and its changes by keys; it knows no terminal. `keys`: their meaning.
//! - `draw`: draws the model; it changes nothing.
//! - `canvas`: takes, lends and restores the terminal; `keyboard`: reads keys; `shared`: what their threads wait for.

pub(crate) mod canvas;
pub(crate) mod draw;
pub(crate) mod figures;
pub(crate) mod keyboard;
pub(crate) mod keys;
pub(crate) mod model;
mod shared;
pub(crate) mod text;
