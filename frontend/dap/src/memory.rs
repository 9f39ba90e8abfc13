//! Converts instructions and memory from gdb's form to that of editors.

use std::collections::BTreeMap;

use gantry_gdb::mi::Fields;
use serde_json::{Value, json};

use crate::values::as_tuple;

/// The maximum number of bytes in one read. Editors request the rest again.
pub(crate) const MAX_READ_BYTES: u64 = 16 << 10;

/// The maximum number of instructions in one response.
pub(crate) const MAX_INSTRUCTIONS: u32 = 400;

/// The longest instruction of any supported processor.
const MAX_INSTRUCTION_BYTES: u64 = 15;

/// Parses an address from an editor.
pub(crate) fn parse_address(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Builds the request for gdb: the function at that address, and the code behind it.
pub(crate) fn build_disassembly(address: u64, count: u32) -> Vec<String> {
    let end = address.saturating_add(u64::from(count) * MAX_INSTRUCTION_BYTES);
    vec![
        format!("-data-disassemble -a {address:#x} -- 2"),
        format!("-data-disassemble -s {address:#x} -e {end:#x} -- 2"),
    ]
}

/// Instructions at `offset` from the address. Editors expect as many as they requested, so unknown ones are marked as
/// such.
pub(crate) fn instructions(listings: &[Fields], address: u64, offset: i64, count: u32) -> Vec<Value> {
    let mut all: BTreeMap<u64, &Fields> = BTreeMap::new();
    for listing in listings {
        for (_, value) in listing.list("asm_insns") {
            let Some(tuple) = as_tuple(value) else { continue };
            if let Some(at) = tuple.text("address").and_then(parse_address) {
                all.insert(at, tuple);
            }
        }
    }
    let before = i64::try_from(all.range(..address).count()).unwrap_or(i64::MAX);
    let known: Vec<(u64, &Fields)> = all.into_iter().collect();
    let wanted = (0..i64::from(count)).map(|at| before.saturating_add(offset).saturating_add(at));
    let first = known.first().map_or(address, |(at, _)| *at);
    let last = known.last().map_or(address, |(at, _)| *at);
    let given = wanted.map(|index| match usize::try_from(index).ok().and_then(|index| known.get(index)) {
        Some((at, tuple)) => instruction(*at, tuple),
        None => {
            let beyond = index.unsigned_abs();
            let at = match index < 0 {
                true => first.saturating_sub(beyond),
                false => last.saturating_add(beyond.saturating_sub(known.len() as u64) + 1),
            };
            json!({ "address": format!("{at:#x}"), "instruction": "??", "presentationHint": "invalid" })
        }
    });
    given.collect()
}

fn instruction(at: u64, tuple: &Fields) -> Value {
    let mut given = json!({
        "address": format!("{at:#x}"), "instruction": tuple.text("inst").unwrap_or_default().replace('\t', " "),
    });
    if let Some(bytes) = tuple.text("opcodes") {
        given["instructionBytes"] = bytes.into();
    }
    if let Some(function) = tuple.text("func-name") {
        given["symbol"] = function.into();
    }
    given
}

/// Parses the result of `-data-read-memory-bytes`: the distance of the first byte from the requested address, and the
/// bytes.
pub(crate) fn parse_memory(fields: &Fields) -> Option<(u64, Vec<u8>)> {
    let tuple = as_tuple(&fields.list("memory").first()?.1)?;
    let offset = parse_address(tuple.text("offset")?)?;
    let digits = tuple.text("contents")?.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes = digits.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?));
    Some((offset, bytes.collect::<Option<Vec<u8>>>()?))
}

/// Encodes bytes in base 64 (RFC 4648).
pub(crate) fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let sign = SIGNS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= chunk.len() { char::from(sign) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use gantry_gdb::mi::{Record, parse_line};

    use super::*;

    fn fields(line: &str) -> Fields {
        match parse_line(line.as_bytes()) {
            Record::Done { results, .. } => results,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bytes_are_read_and_written() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        let memory = "^done,memory=[{begin=\"0x10\",offset=\"0x2\",end=\"0x12\",contents=\"ed01\"}]";
        assert_eq!(parse_memory(&fields(memory)), Some((2, vec![0xed, 1])));
        assert_eq!(parse_memory(&fields("^done,memory=[]")), None);
    }

    #[test]
    fn there_are_as_many_instructions_as_were_asked_for() {
        let line = "^done,asm_insns=[{address=\"0x10\",func-name=\"f\",offset=\"0\",opcodes=\"55\",inst=\"push\\t%rbp\"},{address=\"0x11\",inst=\"nop\"},{address=\"0x12\",inst=\"ret\"}]";
        let given = instructions(&[fields(line), fields(line)], 0x11, -2, 5);
        let shown: Vec<(&str, &str)> = given
            .iter()
            .map(|it| (it["address"].as_str().unwrap(), it["instruction"].as_str().unwrap()))
            .collect();
        assert_eq!(
            shown,
            [("0xf", "??"), ("0x10", "push %rbp"), ("0x11", "nop"), ("0x12", "ret"), ("0x13", "??")]
        );
        assert_eq!((&given[1]["instructionBytes"], &given[1]["symbol"]), (&json!("55"), &json!("f")));
    }
}
