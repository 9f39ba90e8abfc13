//! Frames of machine code and of Python, as one stack.

use gantry_stack::frame::Frame;

use super::frames::{Calls, Item, Python};
use super::names::Names;
use crate::unwind::RawFrame;

/// The frames of machine code, innermost first, with what the interpreter runs in them; `name` gives those of machine code.
/// What it runs stands inside of its own frame. What has no place, as a stack could not be followed to its end, stands outside of all.
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
            // Without an address, a frame of the machine is one call of the interpreter.
            if rest.first() == Some(&Item::Begin(None)) {
                break;
            }
        }
        woven.push(name(frame));
    }
    woven.extend(ahead.iter().filter_map(|item| script(item, python, names)));
    woven
}

/// How many functions a frame of machine code runs, if it is the interpreter at work.
fn run_by(python: &Python, frame: &RawFrame, caller_stack: u64, ahead: &[Item]) -> Option<usize> {
    let length = ahead.iter().position(|item| matches!(item, Item::Begin(_)))?;
    let is_it = match ahead[length] {
        // Stacks grow down: what is of this frame is below its caller's.
        Item::Begin(Some(address)) => address < caller_stack,
        _ => frame.file.as_ref().is_some_and(|(file, ..)| python.is_machine(file, frame.instruction)),
    };
    is_it.then_some(length)
}

fn script(item: &Item, python: &Python, names: &mut Names) -> Option<Frame> {
    match item {
        Item::Call(call) => names.of(python, call).map(Frame::Script),
        Item::Begin(_) => None,
    }
}
