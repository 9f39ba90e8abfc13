//! The frames of a thread.

use std::sync::Arc;

use super::layout::{Entry, Layout, Place, Top};
use super::symbols::Interpreter;
use crate::maps::FileKey;
use crate::memory::{Memory, Pages};

/// Limits for the interpreters of a process, the threads of all of them, and the frames and markers of a thread.
const MAX_INTERPRETERS: usize = 64;
const MAX_THREADS: usize = 4096;
const MAX_ITEMS: usize = 4000;

/// An upper bound for the fields of a frame before its variables.
const MAX_FRAME_BYTES: usize = 256;

/// The lowest bits of pointers in a frame are flags.
const MARKS: u64 = 7;

/// The interpreter of a process.
#[derive(Debug, Clone)]
pub(crate) struct Python {
    pub(super) memory: Memory,
    pub(super) layout: Layout,
    pub(super) code_type: u64,
    file: Arc<FileKey>,
    /// The difference between an address in the process and one in the file.
    bias: u64,
    interpreter: Arc<Interpreter>,
    /// For each thread: its id in the C library, and its record.
    threads: Vec<(u64, u64)>,
}

/// A thread's frames, innermost first.
pub(crate) type Calls = Vec<Item>;

/// A frame, or a marker between or behind frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Item {
    Call(RawCall),
    /// A call of the interpreter's machine code begins here. Since 3.12 it has an entry on the machine stack, at this
    /// address.
    Begin(Option<u64>),
    /// There are more frames, which were not read.
    More,
}

/// A frame without its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawCall {
    /// Its address.
    pub(super) frame: u64,
    /// Its code object.
    pub(super) code: u64,
    /// The offset from the first instruction; or the address of the instruction, and the number of the code's copy.
    pub(super) at: u64,
    pub(super) copy: u32,
}

impl Python {
    /// The interpreter in the file that is mapped at `base`. None: its version is unknown, or it is not initialised
    /// yet.
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

    /// The frames of a stopped thread, by its id in the C library.
    pub(crate) fn calls(&self, thread: u64) -> Calls {
        let records = self.threads.iter().filter(|(number, _)| *number == thread);
        // A thread that used several interpreters has a record in each. One of them is active.
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
        while next != 0 {
            // The thread is stopped, and a damaged list may be circular.
            if calls.len() >= MAX_ITEMS {
                calls.extend([Item::More, Item::Begin(None)]);
                break;
            }
            let Some(frame) = self.frame(pages, next) else { break };
            match frame.owner_is_c {
                true => calls.push(Item::Begin(Some(next))),
                false => calls.push(Item::Call(frame.call)),
            }
            if frame.is_entry {
                calls.push(Item::Begin(None));
            }
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
            // Before the first instruction the index is -1.
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
        let call = RawCall { frame: address, code: number(layout.code, 8)? & !MARKS, at, copy };
        Some(Frame { call, caller: number(layout.caller, 8)? & !MARKS, is_entry, owner_is_c })
    }

    /// Whether an instruction belongs to the interpreter's evaluation loop.
    pub(super) fn is_machine(&self, file: &FileKey, instruction: u64) -> bool {
        *self.file == *file && self.interpreter.is_machine(instruction.wrapping_sub(self.bias))
    }
}

/// A frame in memory.
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

/// The addresses of a linked list, with the next pointer at offset `next`.
fn list(memory: Memory, first: Option<u64>, next: u64, most: usize) -> impl Iterator<Item = u64> {
    let follow = move |at: &u64| memory.word(at.wrapping_add(next)).filter(|it| *it != 0);
    std::iter::successors(first.filter(|it| *it != 0), follow).take(most)
}
