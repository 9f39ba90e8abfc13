//! Where ranks are: reads their stacks by daemons on the nodes, gives frames their names, and shows the classes of ranks that are at one place.
//!
//! - `daemons`: asks the daemons; `resolve`: names and lines of places; `aside`: a wait for files that ends.
//! - `classes`: ranks with one call path are one class; `tree`: the classes as one tree.
//! - `step`: one function of a path; `essential`: the part of a path that its author knows.
//! - `waiting`: functions in which a program waits for others.
//! - `sets`: many sets of ranks as one.
//! - `stillness`: which ranks have not moved from one look to the next.
//! - `why`: which ranks are at another place than the others, in words.
//! - `text`, `report`: the tree for people and for programs; `html`, `svg`, `dot`, `folded`: in files.

pub(crate) mod aside;
pub(crate) mod classes;
pub(crate) mod daemons;
pub(crate) mod dot;
mod essential;
pub(crate) mod folded;
pub(crate) mod html;
mod markup;
pub(crate) mod report;
pub(crate) mod resolve;
mod sets;
pub(crate) mod stillness;
mod step;
pub(crate) mod svg;
pub(crate) mod text;
pub(crate) mod tree;
mod waiting;
pub(crate) mod why;
