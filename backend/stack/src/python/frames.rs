//! The frames of a thread.

use std::sync::Arc;

use super::layout::{Entry, Layout, Place, Top};
use super::symbols::Interpreter;
use crate::maps::FileKey;
use crate::memory::{Memory, Pages};

/// The most interpreters of a process, threads of all of them, and frames of a thread that are looked at.
const MAX_INTERPRETERS: usize = 64;
const MAX_THREADS: usize = 4096;
const MAX_FRAMES: usize = 4000;

/// More than a frame has before its variables.
const MAX_FRAME_BYTES: usize = 256;

/// Pointers in a frame have marks in their lowest bits.
const MARKS: u64 = 7;

/// The interpreter of a process.
#[derive(Debug, Clone)]
pub(crate) struct Python {
    pub(super) memory: Memory,
    pub(super) layout: Layout,
    pub(super) code_type: u64,
    file: Arc<FileKey>,
    /// From an address in the file to one in the process.
    bias: u64,
    interpreter: Arc<Interpreter>,
    /// Of each thread: its number in the C library, and its record.
    threads: Vec<(u64, u64)>,
}

/// What a thread runs, innermost first.
pub(crate) type Calls = Vec<Item>;

/// A frame, or what is between frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Item {
    Call(RawCall),
    /// Here a call of the interpreter's machine code begins. Since 3.12 it has something on the stack of the machine, at this address.
    Begin(Option<u64>),
}

/// A frame, without what its names are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawCall {
    /// Its code object.
    pub(super) code: u64,
    /// How far behind the first instruction it is; or the address of that instruction, and which copy of the code that is in.
    pub(super) at: u64,
    pub(super) copy: u32,
}

impl Python {
    /// Of a file that is mapped at `base`; none where it is of a version that is not known, or not at work yet.
    pub(super) fn of_process(
        memory: Memory,
        file: &Arc<FileKey>,
        base: u64,
        interpreter: Arc<Interpreter>,
    ) -> Option<Self> {
        let bias = base.wrapping_sub(interpreter.first);
        let runtime = bias.wrapping_add(interpreter.runtime);
        let layout = Layout::of_itself(memory, runtime).or_else(|| {
            let told = interpreter.version.and_then(|at| memory.word(bias.wrapping_add(at)));
            let told = told.and_then(|version| u32::try_from(version >> 16 & 0xff).ok());
            Layout::of_version(told.or(interpreter.minor_by_name)?)
        })?;
        let code_type = bias.wrapping_add(interpreter.code_type);
        let threads = threads_of(memory, &layout, runtime);
        let file = Arc::clone(file);
        (!threads.is_empty()).then_some(Self { memory, layout, code_type, file, bias, interpreter, threads })
    }

    /// The frames of a thread that stands still, by its number in the C library.
    pub(crate) fn calls(&self, thread: u64) -> Calls {
        let records = self.threads.iter().filter(|(number, _)| *number == thread);
        // A thread that has been in several interpreters has a record in each: one of them is at work.
        let mut pages = Pages::new(self.memory);
        records
            .map(|(_, record)| self.calls_of(&mut pages, *record))
            .find(|calls| !calls.is_empty())
            .unwrap_or_default()
    }

    fn calls_of(&self, pages: &mut Pages, record: u64) -> Calls {
        let mut calls = Calls::new();
        let top = match self.layout.top {
            Top::Direct(at) => pages.word(record.wrapping_add(at)),
            Top::Record(at, frame) => {
                let record = pages.word(record.wrapping_add(at)).filter(|it| *it != 0);
                record.and_then(|record| pages.word(record.wrapping_add(frame)))
            }
        };
        let mut next = top.unwrap_or_default();
        while next != 0 && calls.len() < MAX_FRAMES {
            let Some(frame) = self.frame(pages, next) else { break };
            match frame.owner_is_c {
                true => calls.push(Item::Begin(Some(next))),
                false => calls.push(Item::Call(frame.call)),
            }
            if frame.is_entry {
                calls.push(Item::Begin(None));
            }
            // They are a list: what leads back to itself ends at the bound.
            next = frame.caller;
        }
        calls
    }

    fn frame(&self, pages: &mut Pages, address: u64) -> Option<Frame> {
        let layout = &self.layout.frame;
        let owner = match layout.entry {
            Entry::Each => 0,
            Entry::Flag(at) | Entry::Owner(at, _) => at,
        };
        let length =
            [layout.caller, layout.code, layout.at, layout.copy, owner].into_iter().max()?.checked_add(8)?;
        let mut bytes = [0; MAX_FRAME_BYTES];
        let bytes = bytes.get_mut(..usize::try_from(length).ok()?)?;
        pages.read(address, bytes)?;
        let number = |at: u64, length: usize| {
            let at = usize::try_from(at).ok()?;
            let mut number = [0; 8];
            number.get_mut(..length)?.copy_from_slice(bytes.get(at..at.checked_add(length)?)?);
            Some(u64::from_le_bytes(number))
        };
        let at = match layout.place {
            Place::Address => number(layout.at, 8)?,
            // Before its first instruction it is at -1.
            Place::Index(unit) => {
                let index = u32::try_from(number(layout.at, 4)?).ok()?.cast_signed().max(0);
                u64::from(index.cast_unsigned()) * u64::from(unit)
            }
        };
        let copy = if layout.copy == 0 { 0 } else { u32::try_from(number(layout.copy, 4)?).ok()? };
        let (is_entry, owner_is_c) = match layout.entry {
            Entry::Each => (true, false),
            Entry::Flag(at) => (number(at, 1)? != 0, false),
            Entry::Owner(at, of_c) => (false, number(at, 1)? >= u64::from(of_c)),
        };
        let call = RawCall { code: number(layout.code, 8)? & !MARKS, at, copy };
        Some(Frame { call, caller: number(layout.caller, 8)? & !MARKS, is_entry, owner_is_c })
    }

    /// Whether an instruction is the interpreter's, at work on code.
    pub(super) fn is_machine(&self, file: &FileKey, instruction: u64) -> bool {
        *self.file == *file && self.interpreter.is_machine(instruction.wrapping_sub(self.bias))
    }
}

/// A frame as it lies in memory.
struct Frame {
    call: RawCall,
    caller: u64,
    is_entry: bool,
    owner_is_c: bool,
}

/// The threads of all interpreters.
fn threads_of(memory: Memory, layout: &Layout, runtime: u64) -> Vec<(u64, u64)> {
    let mut threads = Vec::new();
    let first = memory.word(runtime.wrapping_add(layout.interpreters));
    for interpreter in list(memory, first, layout.next_interpreter, MAX_INTERPRETERS) {
        let first = memory.word(interpreter.wrapping_add(layout.threads));
        for thread in list(memory, first, layout.next_thread, MAX_THREADS - threads.len()) {
            let number = memory.word(thread.wrapping_add(layout.thread_id));
            threads.extend(number.map(|number| (number, thread)));
        }
    }
    threads
}

/// The addresses in a list of which each has the next one at this distance.
fn list(memory: Memory, first: Option<u64>, next: u64, most: usize) -> impl Iterator<Item = u64> {
    let follow = move |at: &u64| memory.word(at.wrapping_add(next)).filter(|it| *it != 0);
    std::iter::successors(first.filter(|it| *it != 0), follow).take(most)
}
