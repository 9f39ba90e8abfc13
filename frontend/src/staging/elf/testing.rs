//! Small ELF files for tests, of any width and order of bytes: one segment, a dynamic section and no section headers.

use crate::staging::arch::Arch;

/// The content of the sample file.
pub(crate) struct Sample {
    pub(crate) arch: Arch,
    pub(crate) interpreter: Option<&'static str>,
    pub(crate) needed: Vec<&'static str>,
    pub(crate) soname: Option<&'static str>,
    pub(crate) rpath: Option<&'static str>,
    pub(crate) runpath: Option<&'static str>,
    pub(crate) flags_1: u64,
}

impl Sample {
    pub(crate) fn new(arch: Arch) -> Self {
        Self {
            arch,
            interpreter: None,
            needed: Vec::new(),
            soname: None,
            rpath: None,
            runpath: None,
            flags_1: 0,
        }
    }

    fn number(&self, value: u64, bytes: usize) -> Vec<u8> {
        match self.arch.is_little {
            true => value.to_le_bytes()[..bytes].to_vec(),
            false => value.to_be_bytes()[8 - bytes..].to_vec(),
        }
    }

    /// A number as wide as an address.
    fn address(&self, value: u64) -> Vec<u8> {
        self.number(value, if self.arch.is_64 { 8 } else { 4 })
    }

    fn segment(&self, kind: u64, offset: u64, size: u64) -> Vec<u8> {
        let (address, half) = (|value| self.address(value), self.number(4, 4));
        let kind = self.number(kind, 4);
        let place = [address(offset), address(offset), address(offset), address(size), address(size)];
        let align = address(8);
        match self.arch.is_64 {
            true => [kind, half, place.concat(), align].concat(),
            false => [kind, place.concat(), half, align].concat(),
        }
    }

    pub(crate) fn build(&self) -> Vec<u8> {
        let mut strings = vec![0];
        let mut add = |text: &str| {
            let at = strings.len() as u64;
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
            at
        };
        let interpreter = self.interpreter.map(|text| (add(text), text.len() as u64 + 1));
        let mut entries: Vec<(u64, u64)> = self.needed.iter().map(|name| (1, add(name))).collect();
        for (tag, text) in [(14, self.soname), (15, self.rpath), (29, self.runpath)] {
            entries.extend(text.map(|text| (tag, add(text))));
        }
        let (header, entry) = if self.arch.is_64 { (64, 56) } else { (52, 32) };
        let begin = header + 3 * entry;
        entries.extend([(5, begin), (0x6fff_fffb, self.flags_1), (0, 0)]);
        let dynamic: Vec<u8> = entries
            .iter()
            .flat_map(|(tag, value)| [self.address(*tag), self.address(*value)].concat())
            .collect();
        let dynamic_at = begin + strings.len() as u64;
        let size = dynamic_at + dynamic.len() as u64;
        let (at, length) = interpreter.unwrap_or((0, 0));
        let segments = [
            self.segment(1, 0, size),
            self.segment(2, dynamic_at, dynamic.len() as u64),
            self.segment(if length > 0 { 3 } else { 0 }, begin + at, length),
        ];
        [self.header(header, entry), segments.concat(), strings, dynamic].concat()
    }

    fn header(&self, size: u64, entry: u64) -> Vec<u8> {
        let ident =
            [0x7f, b'E', b'L', b'F', 1 + u8::from(self.arch.is_64), 2 - u8::from(self.arch.is_little), 1];
        let half = |value| self.number(value, 2);
        [
            ident.to_vec(),
            vec![0; 9],
            half(3),
            half(u64::from(self.arch.machine)),
            self.number(1, 4),
            self.address(0),
            self.address(size),
            self.address(0),
            self.number(0, 4),
            half(size),
            half(entry),
            half(3),
            half(0),
            half(0),
            half(0),
        ]
        .concat()
    }
}
