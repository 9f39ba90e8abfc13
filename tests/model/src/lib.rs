//! Models of what tasks share, for loom.
#![cfg(test)]

mod gate;
