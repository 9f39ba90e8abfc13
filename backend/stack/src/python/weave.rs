//! Merges frames of machine code and of Python into one stack.

use gantry_stack::frame::Frame;

use super::frames::{Calls, Item, Python};
use super::names::Names;
use crate::unwind::RawFrame;

/// The machine frames, innermost first, with the Python frames that the interpreter runs in them. `name` converts
/// machine frames. Python frames stand inside the interpreter's frame. Those without a place, because the stack could
/// not be unwound to its end, stand outside of all.
pub(crate) fn weave(
    frames: &[RawFrame],
    python: &Python,
    calls: &Calls,
    names: &mut Names,
    mut name: impl FnMut(&RawFrame) -> Frame,
) -> Vec<Frame> {
    let mut woven = Vec::with_capacity(frames.len() + calls.len());
    let mut ahead = calls.as_slice();
    for (at, frame) in frames.iter().enumerate() {
        let caller_stack = frames.get(at + 1).map_or(u64::MAX, |caller| caller.stack);
        while let Some(length) = run_by(python, frame, caller_stack, ahead) {
            let (run, rest) = ahead.split_at(length);
            woven.extend(run.iter().filter_map(|item| script(item, python, names)));
            ahead = &rest[1..];
            // Without an address, each machine frame of the interpreter is one call.
            if rest.first() == Some(&Item::Begin(None)) {
                break;
            }
        }
        woven.push(name(frame));
    }
    woven.extend(ahead.iter().filter_map(|item| script(item, python, names)));
    woven
}

/// How many Python frames a machine frame runs, if it is the evaluation loop.
fn run_by(python: &Python, frame: &RawFrame, caller_stack: u64, ahead: &[Item]) -> Option<usize> {
    let length = ahead.iter().position(|item| matches!(item, Item::Begin(_)))?;
    let is_it = match ahead[length] {
        // Stacks grow down: entries of this frame are below its caller's stack pointer.
        Item::Begin(Some(address)) => address < caller_stack,
        _ => frame.file.as_ref().is_some_and(|(file, ..)| python.is_machine(file, frame.instruction)),
    };
    is_it.then_some(length)
}

fn script(item: &Item, python: &Python, names: &mut Names) -> Option<Frame> {
    match item {
        Item::Call(call) => names.of(python, call).map(Frame::Script),
        Item::Begin(_) => None,
        Item::More => Some(Frame::LeftOut { all: 0, code: 0 }),
    }
}
