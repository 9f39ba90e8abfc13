//! The variables of the Python functions that a thread is in, as a hash.
//!
//! The hash tells a loop around a call from one long call. A loop changes a variable, an iterator, or an object that is
//! near one of them. Objects are compared by address and content: a new number often has the place of an old one.
//! Reference counts are left out, as other threads change them.
//!
//! The variables are read after the thread has continued. A thread that waits still has the same ones. One that moves
//! may have any.

use std::collections::{HashMap, HashSet, VecDeque};

use super::frames::{Calls, Item, Python, RawCall};
use super::layout::Count;
use crate::memory::Pages;
use crate::steady::StateHash;

/// The most slots of a frame, and the most objects of all frames. The objects nearest to the variables come first.
const MOST_SLOTS: u64 = 512;
const MOST_OBJECTS: usize = 2000;

/// How far from a variable an object may be, and how far one of a module. A list's item is one step from the list, and
/// an attribute without a slot at most two from its object.
const MOST_STEPS: u8 = 4;
const STEPS_IN_MODULE: u8 = 1;

/// The most bytes of an object, and the most words that it refers to elsewhere.
const MOST_BYTES: u64 = 256;
const MOST_WORDS: u64 = 256;

/// The most bytes of an array that are compared.
const MOST_OF_ARRAY: u64 = 4096;

/// From the end of a type's header. Source: `PyTypeObject` in cpython/object.h.
const TYPE_NAME: u64 = 8;
const BASIC_SIZE: u64 = 16;
const ITEM_SIZE: u64 = 24;
const FLAGS: u64 = 152;

/// Flags of a type. Source: object.h.
const INLINE_VALUES: u64 = 1 << 2;
const MANAGED_DICT: u64 = 1 << 4;
const IS_INT: u64 = 1 << 24;
const IS_LIST: u64 = 1 << 25;
const IS_TEXT: u64 = 1 << 28;
const IS_DICT: u64 = 1 << 29;
const IS_TYPE: u64 = 1 << 31;

/// Objects that lead to the whole program.
const NOT_ENTERED: [&[u8]; 4] = [b"builtin_function_or_method", b"code", b"function", b"module"];

/// The lowest bits of references are flags.
const MARKS: u64 = 7;

/// A type, as far as it matters here.
#[derive(Debug, Clone, Copy)]
struct Type {
    kind: Kind,
    basic_size: u64,
    item_size: u64,
    flags: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Int,
    Text,
    List,
    Dict,
    Array(Array),
    NotEntered,
    Other,
}

/// Arrays of numbers, with what they refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Array {
    /// array.array
    Plain,
    Bytes,
    NumPy,
}

/// A hash of the places and variables of a thread's functions.
pub(crate) fn hash_variables(python: &Python, calls: &Calls) -> u64 {
    let mut walk = Walk {
        python,
        pages: Pages::new(python.memory),
        types: HashMap::new(),
        seen: HashSet::new(),
        ahead: VecDeque::new(),
        hash: StateHash::default(),
    };
    let mut modules = Vec::new();
    for item in calls {
        if let Item::Call(call) = item {
            modules.extend(walk.enter(call));
        }
    }
    // Variables of functions are nearer than those of modules.
    modules.into_iter().for_each(|variables| walk.meet(variables, MOST_STEPS - STEPS_IN_MODULE));
    walk.finish()
}

struct Walk<'p> {
    python: &'p Python,
    pages: Pages,
    /// None: there is no type at this address.
    types: HashMap<u64, Option<Type>>,
    seen: HashSet<u64>,
    /// Objects, with the steps to them.
    ahead: VecDeque<(u64, u8)>,
    hash: StateHash,
}

impl Walk<'_> {
    /// Takes a frame. Returns the dictionaries of its variables that have no slot.
    fn enter(&mut self, call: &RawCall) -> Vec<u64> {
        let of = &self.python.layout.frame;
        [call.code, call.at, u64::from(call.copy)].into_iter().for_each(|it| self.add(it));
        let slots = self.slots(call).unwrap_or_default().min(MOST_SLOTS);
        self.take_words(call.frame.wrapping_add(of.variables), slots, 1, 0);
        let others = [of.globals, of.locals].map(|at| self.pages.word(call.frame.wrapping_add(at)));
        others.into_iter().flatten().map(|it| it & !MARKS).filter(|it| *it != 0).collect()
    }

    fn slots(&mut self, call: &RawCall) -> Option<u64> {
        let layout = &self.python.layout;
        match layout.frame.count {
            Count::Frame(at) => self.pages.word(call.frame.wrapping_add(at)),
            Count::Code => {
                let line = call.code.wrapping_add(layout.code.first_line);
                let number = |pages: &mut Pages, at| pages.word(at).map(|word| word & u64::from(u32::MAX));
                let stack = number(&mut self.pages, line.wrapping_sub(4))?;
                Some(stack + number(&mut self.pages, line.wrapping_add(4))?)
            }
        }
    }

    fn finish(mut self) -> u64 {
        while let Some((object, steps)) = self.ahead.pop_front() {
            self.visit(object, steps);
        }
        self.hash.add(0)
    }

    fn add(&mut self, word: u64) {
        self.hash.add(word);
    }

    /// Notes an object that is so many steps away.
    fn meet(&mut self, object: u64, steps: u8) {
        let has_room = steps <= MOST_STEPS && self.seen.len() < MOST_OBJECTS;
        if has_room && object.is_multiple_of(8) && self.seen.insert(object) {
            self.ahead.push_back((object, steps));
        }
    }

    /// Takes words that may refer to objects; only the last one of each `every` does.
    fn take_words(&mut self, from: u64, count: u64, every: u64, steps: u8) {
        for at in 0..count {
            let Some(word) = self.pages.word(from.wrapping_add(8 * at)) else { return };
            self.add(word);
            if word > u64::from(u16::MAX) && (at + 1).is_multiple_of(every) {
                self.meet(word & !MARKS, steps);
            }
        }
    }

    fn visit(&mut self, object: u64, steps: u8) {
        let head = self.python.layout.type_of + 8;
        let Some(of_type) = self.pages.word(object.wrapping_add(head - 8)) else { return };
        let Some(of) = self.find_type(of_type) else { return };
        self.add(of_type);
        let size = match of.kind {
            // Some versions keep other things beside the number of digits. The first digits are enough.
            Kind::Int => head + 16,
            Kind::Text => self.python.layout.text.ascii + 8,
            _ if of.item_size == 0 => of.basic_size,
            _ => {
                let items = self.pages.word(object.wrapping_add(head)).unwrap_or_default();
                of.basic_size.saturating_add(items.cast_signed().unsigned_abs().saturating_mul(of.item_size))
            }
        };
        let words = size.min(MOST_BYTES).saturating_sub(head).div_ceil(8);
        let next = match of.kind {
            Kind::Int | Kind::Text | Kind::NotEntered => MOST_STEPS + 1,
            _ => steps + 1,
        };
        self.take_words(object.wrapping_add(head), words, 1, next);
        // Without a place to read from, there is nothing.
        match of.kind {
            Kind::List => drop(self.take_list(object, next)),
            Kind::Dict => drop(self.take_dict(object, next)),
            Kind::Array(array) => drop(self.take_array(object, array)),
            Kind::Int | Kind::Text | Kind::NotEntered => {}
            Kind::Other => drop(self.take_attributes(object, of, next)),
        }
    }

    /// A word after an object's header.
    fn field(&mut self, object: u64, at: u64) -> Option<u64> {
        let head = self.python.layout.type_of + 8;
        self.pages.word(object.wrapping_add(head + at))
    }

    /// Source: `PyListObject` in cpython/listobject.h.
    fn take_list(&mut self, object: u64, steps: u8) -> Option<()> {
        let (length, items) = (self.field(object, 0)?, self.field(object, 8)?);
        self.take_words(items, length.min(MOST_WORDS), 1, steps);
        Some(())
    }

    /// Source: `PyDictObject` in cpython/dictobject.h, `_dictkeysobject` in pycore_dict.h.
    fn take_dict(&mut self, object: u64, steps: u8) -> Option<()> {
        let (keys, values) = (self.field(object, 16)?, self.field(object, 24)?);
        let (entries, words) = match self.python.layout.frame.count {
            Count::Frame(_) => {
                let size = self.pages.word(keys.wrapping_add(8))?;
                let width = [0xff, 0xffff, 0xffff_ffff].iter().position(|most| size <= *most).unwrap_or(3);
                (size.checked_shl(u32::try_from(width).ok()?)?.wrapping_add(40), 3)
            }
            Count::Code => {
                let sizes = self.pages.word(keys.wrapping_add(8))?.to_le_bytes();
                (32 + 1_u64.checked_shl(sizes[1].into())?, if sizes[2] == 0 { 3 } else { 2 })
            }
        };
        let at =
            if words == 3 && matches!(self.python.layout.frame.count, Count::Frame(_)) { 32 } else { 24 };
        let count = self.pages.word(keys.wrapping_add(at))?.min(MOST_WORDS);
        if values == 0 {
            self.take_words(keys.wrapping_add(entries), count * words, words, steps);
        } else {
            // Since 3.13 a word precedes them.
            self.take_words(values & !MARKS, count + 1, 1, steps);
        }
        Some(())
    }

    /// Attributes without a slot, since 3.11. Source: `_PyObject_ManagedDictPointer` in pycore_object.h.
    fn take_attributes(&mut self, object: u64, of: Type, steps: u8) -> Option<()> {
        if of.flags & INLINE_VALUES != 0 {
            let values = object.wrapping_add(of.basic_size);
            let capacity = self.pages.word(values)? & 0xff;
            self.take_words(values.wrapping_add(8), capacity, 1, steps);
        }
        if of.flags & MANAGED_DICT == 0 {
            return Some(());
        }
        for before in [8, 24, 32] {
            let word = self.pages.word(object.wrapping_sub(before))?;
            match word & 1 {
                // 3.12 marks values so.
                1 => drop(self.take_values(word.wrapping_add(1), steps)),
                _ if before == 32 => drop(self.take_values(word, steps)),
                _ if before == 24 || self.python.layout.type_of > 8 => self.meet(word, steps),
                _ => {}
            }
        }
        Some(())
    }

    /// The values of 3.11 and 3.12. The byte before them is larger than their number.
    fn take_values(&mut self, values: u64, steps: u8) -> Option<()> {
        let before = self.pages.word(values.wrapping_sub(8)).filter(|_| values > 8)?;
        self.take_words(values, (before >> 56).saturating_sub(2), 1, steps);
        Some(())
    }

    /// Source: arraymodule.c, cpython/bytearrayobject.h, `PyArrayObject_fields` in NumPy's ndarraytypes.h.
    fn take_array(&mut self, object: u64, array: Array) -> Option<()> {
        let (items, bytes) = match array {
            Array::Plain => (self.field(object, 8)?, self.field(object, 0)?),
            Array::Bytes => (self.field(object, 24)?, self.field(object, 0)?),
            Array::NumPy => {
                let (dimensions, sizes) = (self.field(object, 8)? & 0xff, self.field(object, 16)?);
                let mut items = 1_u64;
                for at in 0..dimensions {
                    items = items.saturating_mul(self.pages.word(sizes.wrapping_add(8 * at))?);
                }
                (self.field(object, 0)?, items)
            }
        };
        // An item has at least one byte.
        let mut content = vec![0; usize::try_from(bytes.min(MOST_OF_ARRAY)).ok()?];
        self.pages.read(items, &mut content)?;
        content.iter().for_each(|byte| self.add((*byte).into()));
        Some(())
    }

    fn find_type(&mut self, address: u64) -> Option<Type> {
        if let Some(known) = self.types.get(&address) {
            return *known;
        }
        let found = self.read_type(address);
        self.types.insert(address, found);
        found
    }

    /// None: there is no type at this address. The type of a type is `type`, or derived from it.
    fn read_type(&mut self, address: u64) -> Option<Type> {
        let at = self.python.layout.type_of;
        let head = at + 8;
        if !address.is_multiple_of(8) {
            return None;
        }
        let of_type = self.pages.word(address.wrapping_add(at))?;
        let above = self.pages.word(of_type.wrapping_add(at))?;
        let is_one = self.pages.word(of_type.wrapping_add(head + FLAGS))? & IS_TYPE != 0
            && self.pages.word(above.wrapping_add(at))? == above;
        if !is_one {
            return None;
        }
        let mut field = |at: u64| self.pages.word(address.wrapping_add(head + at));
        let (name, flags) = (field(TYPE_NAME)?, field(FLAGS)?);
        let (basic_size, item_size) = (field(BASIC_SIZE)?, field(ITEM_SIZE)?);
        let mut letters = [0; 32];
        self.pages.read(name, &mut letters);
        let name = letters.split(|letter| *letter == 0).next().unwrap_or_default();
        let is = |flag| flags & flag != 0;
        let kind = match name {
            _ if is(IS_INT) => Kind::Int,
            _ if is(IS_TEXT) => Kind::Text,
            _ if is(IS_LIST) => Kind::List,
            _ if is(IS_DICT) => Kind::Dict,
            _ if is(IS_TYPE) || NOT_ENTERED.contains(&name) => Kind::NotEntered,
            b"array.array" => Kind::Array(Array::Plain),
            b"bytearray" => Kind::Array(Array::Bytes),
            b"numpy.ndarray" => Kind::Array(Array::NumPy),
            _ => Kind::Other,
        };
        Some(Type { kind, basic_size, item_size, flags })
    }
}
