use proptest::prelude::*;

use super::*;

/// Writes numbers in a file's width and byte order.
struct Writer {
    numbers: Numbers,
    bytes: Vec<u8>,
}

impl Writer {
    fn put(&mut self, number: u64, length: usize) {
        let big = number.to_be_bytes();
        let mut bytes = big[8 - length..].to_vec();
        if !self.numbers.big {
            bytes.reverse();
        }
        self.bytes.extend(bytes);
    }

    fn put_address(&mut self, number: u64) {
        self.put(number, if self.numbers.wide { 8 } else { 4 });
    }
}

fn build_notes(numbers: Numbers, align: usize, notes: &[(&[u8], u64, &[u8])]) -> Vec<u8> {
    let mut writer = Writer { numbers, bytes: Vec::new() };
    for (name, kind, id) in notes {
        writer.put(name.len() as u64, 4);
        writer.put(id.len() as u64, 4);
        writer.put(*kind, 4);
        writer.bytes.extend(*name);
        writer.bytes.resize(writer.bytes.len().next_multiple_of(align), 0);
        writer.bytes.extend(*id);
        writer.bytes.resize(writer.bytes.len().next_multiple_of(align), 0);
    }
    writer.bytes
}

/// An ELF file with program headers only: each is a PT_NOTE segment with these bytes and this alignment.
fn build_elf(numbers: Numbers, segments: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let (head, header) = if numbers.wide { (64, 56) } else { (52, 32) };
    let mut writer = Writer { numbers, bytes: b"\x7fELF".to_vec() };
    writer.bytes.extend([if numbers.wide { 2 } else { 1 }, if numbers.big { 2 } else { 1 }, 1]);
    writer.bytes.resize(16, 0);
    writer.put(3, 2);
    writer.put(62, 2);
    writer.put(1, 4);
    writer.put_address(0);
    writer.put_address(head);
    writer.put_address(0);
    writer.put(0, 4);
    for number in [head, header, segments.len() as u64, 0, 0, 0] {
        writer.put(number, 2);
    }
    assert_eq!(writer.bytes.len() as u64, head);
    let mut at = head + header * segments.len() as u64;
    for (align, notes) in segments {
        let length = notes.len() as u64;
        writer.put(PT_NOTE, 4);
        if numbers.wide {
            writer.put(4, 4);
        }
        for number in [at, 0, 0, length, length] {
            writer.put_address(number);
        }
        if !numbers.wide {
            writer.put(4, 4);
        }
        writer.put_address(*align);
        at += length;
    }
    segments.iter().for_each(|(_, notes)| writer.bytes.extend(notes));
    writer.bytes
}

fn find(bytes: &[u8]) -> Option<Vec<u8>> {
    let read_at = |to: &mut [u8], offset: u64| {
        let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
        // A short read, as is allowed.
        let length = rest.len().min(to.len()).min(40);
        to[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    };
    find_build_id(&read_at).unwrap()
}

const LITTLE: Numbers = Numbers { wide: true, big: false };
const EVERY: [Numbers; 4] = [
    LITTLE,
    Numbers { wide: true, big: true },
    Numbers { wide: false, big: false },
    Numbers { wide: false, big: true },
];

#[test]
fn a_build_id_is_found_in_files_of_each_width_and_byte_order() {
    for numbers in EVERY {
        let property = build_notes(numbers, 8, &[(b"GNU\0", 5, &[1; 12]), (b"Go\0", 4, b"x")]);
        let notes = build_notes(
            numbers,
            4,
            &[(b"stapsdt\0", 3, b"no"), (b"GNU\0", 1, b"abi"), (b"GNU\0", 3, b"ident")],
        );
        let elf = build_elf(numbers, &[(8, property), (4, notes.clone())]);
        assert_eq!(find(&elf), Some(b"ident".to_vec()), "{numbers:?}");
        let elf = build_elf(
            numbers,
            &[(8, build_notes(numbers, 8, &[(b"GNU\0", 5, &[1; 12]), (b"GNU\0", 3, b"eight")]))],
        );
        assert_eq!(find(&elf), Some(b"eight".to_vec()), "{numbers:?}");
        assert_eq!(find(&build_elf(numbers, &[(0, notes)])), Some(b"ident".to_vec()), "alignment 0 means 4");
    }
}

#[test]
fn a_file_without_a_valid_build_id_has_none() {
    let check = |what: &str, bytes: &[u8]| assert_eq!(find(bytes), None, "{what}");
    let elf = |notes: &[(&[u8], u64, &[u8])]| build_elf(LITTLE, &[(4, build_notes(LITTLE, 4, notes))]);
    let good = elf(&[(b"GNU\0", 3, b"ident")]);
    assert!(find(&good).is_some());
    check("nothing", b"");
    check("a script", b"#!/bin/sh\n");
    check("no segments", &build_elf(LITTLE, &[]));
    check("no notes", &elf(&[]));
    check("an empty id", &elf(&[(b"GNU\0", 3, b"")]));
    check("a long id", &elf(&[(b"GNU\0", 3, &[7; MAX_BUILD_ID_BYTES + 1])]));
    check("a foreign note", &elf(&[(b"GNUS", 3, b"ident")]));
    check("beyond what is looked at", &elf(&[(b"x", 1, &[0; 20_000]), (b"GNU\0", 3, b"ident")]));
    for (what, at, byte) in
        [("class", 4, 3), ("byte order", 5, 0), ("size of headers", 54, 57), ("too many headers", 57, 0xff)]
    {
        let mut bad = good.clone();
        bad[at] = byte;
        check(what, &bad);
    }
    let mut far = good.clone();
    far[32..40].fill(0xff);
    check("headers beyond the end of all files", &far);
    let mut endless = good.clone();
    let notes = 64 + 56;
    endless[notes + 8] = 1;
    endless[notes + 4..notes + 8].fill(0xff);
    check("a note that is longer than the file", &endless);
    for length in 0..good.len() - 3 {
        check("cut", &good[..length]);
    }
}

#[test]
fn files_are_read_where_they_are() {
    // This test program is an ELF file; its linker may or may not write a build id.
    read_build_id(&File::open("/proc/self/exe").unwrap()).unwrap();
    assert_eq!(read_build_id(&File::open("/etc/passwd").unwrap()).unwrap(), None);
    read_build_id(&File::open("/").unwrap()).unwrap_err();
}

proptest! {
    #[test]
    fn damaged_files_are_read_without_harm(at in 0usize..400, bytes in proptest::collection::vec(any::<u8>(), 1..40)) {
        let notes = build_notes(LITTLE, 4, &[(b"GNU\0", 1, b"abi"), (b"GNU\0", 3, &[9; 20])]);
        let mut elf = build_elf(LITTLE, &[(4, notes.clone()), (8, notes)]);
        let at = at.min(elf.len() - 1);
        let length = bytes.len().min(elf.len() - at);
        elf[at..at + length].copy_from_slice(&bytes[..length]);
        prop_assert!(find(&elf).is_none_or(|id| (1..=MAX_BUILD_ID_BYTES).contains(&id.len())));
    }
}
