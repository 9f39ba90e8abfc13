//! The layout of CPython's objects, by version. Since 3.13 an interpreter describes its layout itself; before, the
//! layout comes from the headers of that version.

use crate::memory::Memory;

/// The first bytes of an interpreter's own description. Source: `_Py_DebugOffsets` in pycore_debug_offsets.h.
const COOKIE: &[u8; 8] = b"xdebugpy";

/// An upper bound for the words of such a description.
const MAX_WORDS: usize = 128;

/// The largest plausible offset in an object.
const MAX_OFFSET: u64 = 1 << 24;

/// Offsets in bytes from the beginning of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Runtime: the first interpreter.
    pub(super) interpreters: u64,
    /// Interpreter.
    pub(super) next_interpreter: u64,
    pub(super) threads: u64,
    /// Thread.
    pub(super) next_thread: u64,
    pub(super) thread_id: u64,
    pub(super) top: Top,
    pub(super) frame: Frame,
    pub(super) code: Code,
    pub(super) text: Text,
    /// Object: its type; a bytes object: its length and first byte.
    pub(super) type_of: u64,
    pub(super) bytes_length: u64,
    pub(super) bytes_first: u64,
}

/// How a thread refers to its innermost frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Top {
    /// A pointer at this offset.
    Direct(u64),
    /// Through a record on the C stack: its offset in the thread, and the frame's offset in the record.
    Record(u64, u64),
}

/// Offsets in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) caller: u64,
    pub(super) code: u64,
    pub(super) at: u64,
    pub(super) place: Place,
    pub(super) entry: Entry,
    /// The number of the code's copy, in free-threaded builds.
    pub(super) copy: u64,
    /// The first slot of a variable.
    pub(super) variables: u64,
    pub(super) count: Count,
    /// Dictionaries of variables without a slot.
    pub(super) globals: u64,
    pub(super) locals: u64,
}

/// Where the number of a frame's slots is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    /// In the frame, at this offset.
    Frame(u64),
    /// In its code object: the largest depth of the stack, which is before the first line, and the number of variables
    /// after it.
    Code,
}

/// How a frame stores its place in the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A 32-bit index, in units of this many bytes.
    Index(u32),
    /// The address of an instruction.
    Address,
}

/// How to recognise the outermost frame of an interpreter call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// Every frame is one.
    Each,
    /// A flag at this offset.
    Flag(u64),
    /// An entry frame without code is around it: its owner is at least this number.
    Owner(u64, u8),
}

/// Offsets in a code object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Code {
    pub(super) file: u64,
    pub(super) name: u64,
    pub(super) lines: u64,
    pub(super) first_line: u64,
    /// The first instruction.
    pub(super) first: u64,
    /// The per-thread copies of the code; 0: there are none.
    pub(super) copies: u64,
    pub(super) table: LineTable,
}

/// The format of line tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineTable {
    /// Up to 3.9. Source: Objects/lnotab_notes.txt.
    Increments,
    /// 3.10. Source: PEP 626.
    Ranges,
    /// Since 3.11. Source: InternalDocs/code_objects.md.
    Locations,
}

/// Offsets in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) length: u64,
    pub(super) state: u64,
    /// The number of the lowest bit of the kind in the state.
    pub(super) kind_bit: u32,
    /// The characters of an ASCII text, and those of others.
    pub(super) ascii: u64,
    pub(super) other: u64,
}

/// The layout of 3.9.
const OF_3_9: Layout = Layout {
    interpreters: 32,
    next_interpreter: 0,
    threads: 8,
    next_thread: 8,
    thread_id: 176,
    top: Top::Direct(24),
    frame: Frame {
        caller: 24,
        code: 32,
        at: 104,
        place: Place::Index(1),
        entry: Entry::Each,
        copy: 0,
        variables: 360,
        count: Count::Frame(16),
        globals: 48,
        locals: 56,
    },
    code: Code {
        file: 104,
        name: 112,
        lines: 120,
        first_line: 40,
        first: 0,
        copies: 0,
        table: LineTable::Increments,
    },
    text: Text { length: 16, state: 32, kind_bit: 2, ascii: 48, other: 72 },
    type_of: 8,
    bytes_length: 16,
    bytes_first: 32,
};

impl Layout {
    /// The layout of a version that does not describe itself.
    pub(super) fn of_version(minor: u32) -> Option<Self> {
        let inlined = Self {
            interpreters: 40,
            threads: 16,
            thread_id: 152,
            top: Top::Record(56, 8),
            frame: Frame {
                caller: 48,
                code: 32,
                at: 56,
                place: Place::Address,
                entry: Entry::Flag(68),
                copy: 0,
                variables: 72,
                count: Count::Code,
                globals: 8,
                locals: 24,
            },
            code: Code {
                file: 112,
                name: 128,
                lines: 136,
                first_line: 72,
                first: 184,
                copies: 0,
                table: LineTable::Locations,
            },
            ..OF_3_9
        };
        match minor {
            9 => Some(OF_3_9),
            10 => Some(Self {
                frame: Frame { at: 96, place: Place::Index(2), variables: 352, ..OF_3_9.frame },
                code: Code { table: LineTable::Ranges, ..OF_3_9.code },
                ..OF_3_9
            }),
            11 => Some(inlined),
            12 => Some(Self {
                threads: 72,
                thread_id: 136,
                top: Top::Record(56, 0),
                frame: Frame {
                    caller: 8,
                    code: 0,
                    entry: Entry::Owner(70, 3),
                    globals: 24,
                    locals: 40,
                    ..inlined.frame
                },
                code: Code { first_line: 68, first: 192, ..inlined.code },
                text: Text { ascii: 40, other: 56, ..inlined.text },
                ..inlined
            }),
            _ => None,
        }
    }

    /// The layout from an interpreter's own description, at the beginning of its runtime.
    pub(super) fn of_itself(memory: Memory, runtime: u64) -> Option<Self> {
        Self::parse(&memory.read(runtime, 8 * MAX_WORDS))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|word| word.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
            .collect();
        if bytes.get(..8)? != COOKIE {
            return None;
        }
        // The version as in the C interface: major, minor, micro, level.
        let minor = match (words.get(1)? >> 24 & 0xff, words.get(1)? >> 16 & 0xff) {
            (3, minor) => minor,
            _ => return None,
        };
        let is_free_threaded = *words.get(2)? != 0;
        let sections = match minor {
            13 => &SECTIONS_OF_3_13,
            14 => &SECTIONS_OF_3_14,
            _ => return None,
        };
        // The value at index `at` of a section.
        let value = |section: usize, at: usize| {
            let before: usize = sections[..section].iter().sum();
            words.get(3 + before + at).copied().filter(|offset| *offset < MAX_OFFSET)
        };
        let (threads, frame, code) = (2, 3, 4);
        let ascii = value(14, 3)?;
        Some(Self {
            interpreters: value(0, 2)?,
            next_interpreter: value(1, 2)?,
            threads: value(1, 3)?,
            next_thread: value(threads, 2)?,
            thread_id: value(threads, 5)?,
            top: Top::Direct(value(threads, 4)?),
            frame: Frame {
                caller: value(frame, 1)?,
                code: value(frame, 2)?,
                at: value(frame, 3)?,
                place: Place::Address,
                entry: Entry::Owner(value(frame, 5)?, 3),
                copy: if minor > 13 { value(frame, 7)? } else { 0 },
                variables: value(frame, 4)?,
                count: Count::Code,
                // Not in the description. Source: `_PyInterpreterFrame` in pycore_frame.h.
                globals: 24,
                locals: 40,
            },
            code: Code {
                file: value(code, 1)?,
                name: value(code, 3)?,
                lines: value(code, 4)?,
                first_line: value(code, 5)?,
                first: value(code, 9)?,
                copies: if minor > 13 { value(code, 10)? } else { 0 },
                table: LineTable::Locations,
            },
            text: Text {
                length: value(14, 2)?,
                state: value(14, 1)?,
                kind_bit: if is_free_threaded && minor > 13 { 8 } else { 2 },
                ascii,
                other: ascii + 16,
            },
            type_of: value(5, 1)?,
            bytes_length: value(13, 1)?,
            bytes_first: value(13, 2)?,
        })
    }
}

/// How many values each section of the description has: runtime, interpreter, thread, frame, code, object, type,
/// tuple, list, set, dictionary, float, integer, bytes, text.
const SECTIONS_OF_3_13: [usize; 15] = [3, 13, 9, 6, 10, 2, 4, 3, 3, 0, 3, 2, 3, 3, 4];
const SECTIONS_OF_3_14: [usize; 15] = [3, 16, 9, 8, 11, 2, 4, 3, 3, 4, 3, 2, 3, 3, 4];
