//! Names, files and lines of frames.

use std::collections::HashMap;
use std::sync::Arc;

use gantry_stack::frame::Call;

use super::frames::{Python, RawCall};
use super::layout::Layout;
use super::lines::find_line;
use crate::memory::Memory;

/// Limits for the characters of a name, and for the bytes of a line table.
const MAX_LETTERS: u64 = 1024;
const MAX_TABLE: u64 = 1 << 20;

/// An upper bound for the fields of a code object before its instructions.
const MAX_CODE_BYTES: u64 = 1024;

/// The most code objects in the cache.
const MAX_KNOWN: usize = 20_000;

/// A cache of names.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<(i32, u64), Known>);

/// A code object. Another one may reuse its address, so its bytes are compared.
#[derive(Debug)]
struct Known {
    bytes: Vec<u8>,
    code: Arc<Code>,
}

#[derive(Debug)]
struct Code {
    name: Option<String>,
    file: Option<String>,
    lines: Vec<u8>,
    first_line: u32,
}

impl Names {
    /// The name of a frame. None: its code object is not valid any more.
    pub(crate) fn of(&mut self, python: &Python, call: &RawCall) -> Option<Call> {
        let (memory, layout) = (python.memory, &python.layout);
        let of = &layout.code;
        let length =
            [of.file, of.name, of.lines, of.first_line, of.copies].into_iter().max()?.checked_add(8)?;
        let bytes = memory.read_exactly(call.code, usize::try_from(length.min(MAX_CODE_BYTES)).ok()?)?;
        // Leave out its reference count, which changes all the time.
        let counted = usize::try_from(layout.type_of).ok()?;
        let lasting = bytes.get(counted..)?;
        let field = |at: u64| word(&bytes, at);
        if field(layout.type_of)? != python.code_type {
            return None;
        }
        let key = (memory.pid, call.code);
        let known =
            self.0.get(&key).filter(|known| known.bytes == lasting).map(|known| Arc::clone(&known.code));
        let code = match known {
            Some(code) => code,
            None => {
                let code = Arc::new(Code {
                    name: text(memory, layout, field(of.name)?),
                    file: text(memory, layout, field(of.file)?),
                    lines: table(memory, layout, field(of.lines)?).unwrap_or_default(),
                    first_line: u32::try_from(field(of.first_line)? & u64::from(u32::MAX)).ok()?,
                });
                if self.0.len() >= MAX_KNOWN {
                    self.0.clear();
                }
                self.0.insert(key, Known { bytes: lasting.to_vec(), code: Arc::clone(&code) });
                code
            }
        };
        let at = match of.first {
            0 => Some(call.at),
            first => {
                let own = call.code.wrapping_add(first);
                let copies = if of.copies == 0 { None } else { field(of.copies) };
                let first = copies.and_then(|copies| copy(memory, copies, call.copy)).unwrap_or(own);
                call.at.checked_sub(first)
            }
        };
        let line = at.and_then(|at| find_line(of.table, &code.lines, code.first_line, at));
        Some(Call { function: code.name.clone(), file: code.file.clone(), line })
    }
}

/// The first instruction of a thread's own copy of code. The number of copies comes first.
fn copy(memory: Memory, copies: u64, number: u32) -> Option<u64> {
    let count = memory.word(copies).filter(|_| copies != 0)?;
    let place = copies.checked_add(8 + 8 * u64::from(number))?;
    (u64::from(number) < count).then(|| memory.word(place)).flatten().filter(|first| *first != 0)
}

fn word(bytes: &[u8], at: u64) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// A text. Source: PEP 393.
fn text(memory: Memory, layout: &Layout, address: u64) -> Option<String> {
    const COMPACT: u64 = 8;
    const ASCII: u64 = 16;
    let of = &layout.text;
    let state = memory.word(address.checked_add(of.state)?)? >> of.kind_bit;
    let length = usize::try_from(memory.word(address.checked_add(of.length)?)?.min(MAX_LETTERS)).ok()?;
    let first = if state & ASCII != 0 { of.ascii } else { of.other };
    let letters = |size: usize| memory.read_exactly(address.checked_add(first)?, size.checked_mul(length)?);
    if state & COMPACT == 0 {
        return None;
    }
    match state & 7 {
        1 => Some(letters(1)?.into_iter().map(char::from).collect()),
        2 => {
            let units = letters(2)?;
            let units = units.chunks_exact(2).map(|unit| u32::from(u16::from_le_bytes([unit[0], unit[1]])));
            Some(units.map(letter).collect())
        }
        4 => {
            let units = letters(4)?;
            let units = units.chunks_exact(4).map(|it| u32::from_le_bytes([it[0], it[1], it[2], it[3]]));
            Some(units.map(letter).collect())
        }
        _ => None,
    }
}

fn letter(number: u32) -> char {
    char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn table(memory: Memory, layout: &Layout, address: u64) -> Option<Vec<u8>> {
    let length = memory.word(address.checked_add(layout.bytes_length)?)?;
    let length = usize::try_from(length).ok().filter(|_| length <= MAX_TABLE)?;
    memory.read_exactly(address.checked_add(layout.bytes_first)?, length)
}
