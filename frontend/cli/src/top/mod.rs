//! What ranks and nodes do and use, on a screen that keys act on.
//!
//! - `figures`: what is known of ranks and nodes; `text`: the same as tables and for programs.
//! - `model`: what the screen shows and what keys change; it knows no terminal. `keys`: which key does what.
//! - `draw`: the model on a screen; it changes nothing.
//! - `canvas`: the terminal: taken, given over, given back; `keyboard`: what is typed at it.

pub(crate) mod canvas;
pub(crate) mod draw;
pub(crate) mod figures;
pub(crate) mod keyboard;
pub(crate) mod keys;
pub(crate) mod model;
pub(crate) mod text;
