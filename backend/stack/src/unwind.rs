//! Finds the callers of a stopped thread in the copy of its stack.
//!
//! A file's table has rules for each instruction, which restore all registers. Code without a table, such as
//! just-in-time code, is unwound by frame pointers, if these point to a frame. In files, return addresses after calls
//! are the last resort.

use std::sync::Arc;

use gimli::{
    CfaRule, EvaluationResult, Location, Piece, RegisterRule, UnwindContext, UnwindExpression, Value,
};

use crate::calls::find_caller;
use crate::image::{Image, Rules};
use crate::maps::{FileKey, Maps};
use crate::memory::StackCopy;
use crate::registers::{FRAME_POINTER, KEPT, RETURN_ADDRESS, Registers, STACK_POINTER};
use crate::steady::StateHash;

/// The most frames of a stack. The thread runs again before its frames are read, so this limits only the reader's time.
pub(crate) const MAX_FRAMES: usize = 1 << 15;

/// The most steps of one expression: tables come from untrusted files.
const MAX_STEPS: u32 = 1000;

/// The size of the area below the stack pointer for a leaf function's variables. Source: System V ABI, AMD64
/// supplement, 3.2.2.
const RED_ZONE: u64 = 128;

/// The most bytes of a frame's variables that are compared.
const MOST_OF_FRAME: u64 = 16 << 10;

/// A frame: an instruction and its file.
#[derive(Debug, Clone)]
pub(crate) struct RawFrame {
    /// In a caller, this is an address within the call, not after it.
    pub(crate) instruction: u64,
    /// The stack pointer.
    pub(crate) stack: u64,
    /// The file and its load address.
    pub(crate) file: Option<(Arc<FileKey>, Option<Arc<Image>>, u64)>,
    /// A hash of its registers and variables.
    pub(crate) variables: u64,
}

impl RawFrame {
    /// A hash of its instruction, registers and variables.
    pub(crate) fn state(&self) -> u64 {
        let mut state = StateHash::default();
        state.add(self.instruction);
        state.add(self.variables)
    }
}

/// Finds the image of a file that is mapped at an address.
pub(crate) type FindImage<'p> = dyn FnMut(&Arc<FileKey>, u64) -> Option<Arc<Image>> + 'p;

/// The state for finding callers.
pub(crate) struct Unwinder<'p> {
    pub(crate) maps: &'p Maps,
    pub(crate) stack: StackCopy,
    pub(crate) images: &'p mut FindImage<'p>,
}

impl Unwinder<'_> {
    /// All frames, innermost first.
    pub(crate) fn frames(&mut self, mut registers: Registers) -> Vec<RawFrame> {
        let mut context = UnwindContext::new();
        let mut frames: Vec<RawFrame> = Vec::new();
        // A return address may be the first instruction of the next function.
        let mut is_exact = true;
        while frames.len() < MAX_FRAMES {
            let instruction = registers.instruction();
            let instruction = if is_exact { instruction } else { instruction.wrapping_sub(1) };
            let is_first = frames.is_empty();
            if !self.maps.is_code(instruction) && !is_first {
                break;
            }
            let file = self.maps.find(instruction).and_then(|region| region.file.clone());
            let file = file.map(|(key, base)| {
                let image = (self.images)(&key, base);
                (key, image, base)
            });
            let place = file.as_ref().and_then(|(_, image, base)| {
                let image = image.as_deref()?;
                Some((image, image.to_file(instruction, *base)))
            });
            let by_table = place.and_then(|(image, address)| {
                let rules = image.rules(address, &mut context)?;
                Some((self.follow(&rules, &registers), rules.is_signal))
            });
            let (next, is_signal) = match by_table {
                Some((next, is_signal)) => (next, is_signal),
                None => {
                    let begin = place.map(|(image, address)| {
                        let begin = image.function_of(address)?;
                        Some(instruction.wrapping_sub(address).wrapping_add(begin))
                    });
                    let by_call = begin.and_then(|begin| self.follow_call(begin, &registers));
                    let by_frame = || self.follow_frame_pointer(&registers, is_first);
                    let next = match by_call {
                        Some((next, true)) => Some(next),
                        Some((next, false)) => by_frame().or(Some(next)),
                        None => by_frame(),
                    };
                    (next, false)
                }
            };
            let variables = self.variables(&registers, next.as_ref());
            frames.push(RawFrame { instruction, stack: registers.stack(), file, variables });
            match next {
                // Stacks grow down, so a caller's is above, except when a signal handler has its own stack.
                Some(next) if next.stack() > registers.stack() || is_signal || is_first => registers = next,
                _ => break,
            }
            if registers.instruction() == 0 {
                break;
            }
            is_exact = is_signal;
        }
        frames
    }

    /// The variables of a frame: its registers, and the memory from its stack pointer to its caller's.
    fn variables(&self, registers: &Registers, caller: Option<&Registers>) -> u64 {
        let mut state = StateHash::default();
        let mut all = 0;
        for number in KEPT {
            all = state.add(registers.get(number).unwrap_or_default());
        }
        let from = registers.stack();
        let end = caller.map_or(from, Registers::stack).min(from.saturating_add(MOST_OF_FRAME));
        for word in self.stack.copied(from, end).chunks_exact(8) {
            all = state.add(word.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        }
        all
    }

    /// The caller's registers by the table's rules. None: this is the outermost frame.
    fn follow(&self, rules: &Rules<'_, '_>, registers: &Registers) -> Option<Registers> {
        let frame = match rules.row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                registers.get(register.0)?.wrapping_add_signed(*offset)
            }
            CfaRule::Expression(expression) => self.evaluate(rules, *expression, registers, None)?,
        };
        let mut caller = *registers;
        // The caller's stack pointer is the end of the frame.
        caller.set(STACK_POINTER, Some(frame));
        caller.set(RETURN_ADDRESS, None);
        for number in Registers::numbers() {
            let Some(rule) = rules.row.register(gimli::Register(number)) else { continue };
            let value = match rule {
                RegisterRule::Undefined => None,
                RegisterRule::SameValue => registers.get(number),
                RegisterRule::Offset(offset) => self.stack.word(frame.wrapping_add_signed(offset)),
                RegisterRule::ValOffset(offset) => Some(frame.wrapping_add_signed(offset)),
                RegisterRule::Register(other) => registers.get(other.0),
                RegisterRule::Expression(expression) => self
                    .evaluate(rules, expression, registers, Some(frame))
                    .and_then(|address| self.stack.word(address)),
                RegisterRule::ValExpression(expression) => {
                    self.evaluate(rules, expression, registers, Some(frame))
                }
                RegisterRule::Constant(value) => Some(value),
                _ => None,
            };
            caller.set(number, value);
        }
        caller.get(RETURN_ADDRESS).map(|_| caller)
    }

    fn evaluate(
        &self,
        rules: &Rules<'_, '_>,
        expression: UnwindExpression<usize>,
        registers: &Registers,
        first: Option<u64>,
    ) -> Option<u64> {
        let mut evaluation = rules.evaluation(expression)?;
        evaluation.set_max_iterations(MAX_STEPS);
        if let Some(first) = first {
            evaluation.set_initial_value(first);
        }
        let mut result = evaluation.evaluate().ok()?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresMemory { address, size, .. } => {
                    let value = self.stack.number(address, usize::from(size))?;
                    evaluation.resume_with_memory(Value::Generic(value)).ok()?
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = registers.get(register.0)?;
                    evaluation.resume_with_register(Value::Generic(value)).ok()?
                }
                _ => return None,
            };
        }
        match evaluation.as_result() {
            [Piece { location: Location::Address { address }, .. }] => Some(*address),
            [Piece { location: Location::Value { value: Value::Generic(value) }, .. }] => Some(*value),
            _ => None,
        }
    }

    /// The caller's registers by the call before a return address on the stack, and whether that is certain. `begin` is
    /// the function's first instruction.
    fn follow_call(&self, begin: Option<u64>, registers: &Registers) -> Option<(Registers, bool)> {
        let (instruction, stack) = (registers.instruction(), registers.stack());
        let caller = find_caller(self.maps, &self.stack, begin, instruction, stack)?;
        let mut next = *registers;
        for (number, place) in caller.saved {
            next.set(number, self.stack.word(place));
        }
        next.set(RETURN_ADDRESS, Some(caller.instruction));
        next.set(STACK_POINTER, Some(caller.stack));
        Some((next, caller.is_sure))
    }

    /// The caller's registers by the frame pointer, for code without a table.
    fn follow_frame_pointer(&self, registers: &Registers, is_first: bool) -> Option<Registers> {
        let by_frame = registers.get(FRAME_POINTER).and_then(|frame| {
            let is_near = frame.is_multiple_of(8) && frame >= registers.stack().saturating_sub(RED_ZONE);
            let caller =
                self.stack.word(frame.checked_add(8)?).filter(|it| is_near && self.maps.is_code(*it))?;
            Some((caller, frame.checked_add(16)?, self.stack.word(frame)))
        });
        // After a call to an invalid address there is no frame yet.
        let by_stack = || {
            let caller =
                self.stack.word(registers.stack()).filter(|it| is_first && self.maps.is_code(*it))?;
            Some((caller, registers.stack().checked_add(8)?, registers.get(FRAME_POINTER)))
        };
        let lost = !self.maps.is_code(registers.instruction());
        let found = if lost { by_stack().or(by_frame) } else { by_frame.or_else(by_stack) };
        let (caller, stack, frame) = found?;
        let mut next = *registers;
        next.set(RETURN_ADDRESS, Some(caller));
        next.set(STACK_POINTER, Some(stack));
        next.set(FRAME_POINTER, frame);
        Some(next)
    }
}
