//! A frame of a call path, and its text in a prefix tree.

use std::fmt;

use crate::module::ModuleId;

/// The most bytes of a text from a rank, such as the name of a thread.
const MAX_TEXT: usize = 1024;

/// The separator between the parts of a script's frame and of a call.
const SEPARATOR: char = '\t';

/// A frame as a daemon sends it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Frame {
    /// An instruction of a file: `ID+ADDRESS`. In a caller, this is the call, not the instruction after it.
    Code {
        /// The file.
        module: ModuleId,
        /// The address, as in the file's symbols.
        address: u64,
    },
    /// An instruction that is in no file, or in one that is not known.
    Unknown,
    /// A remark about the rank itself.
    Mark(Mark),
    /// A function of a script, with the line that it is at.
    Script(Call),
    /// Frames that are left out of a long path here.
    LeftOut {
        /// How many. 0: the path has more callers, which were not read.
        all: u32,
        /// How many of them are not of a script.
        code: u32,
    },
}

/// A remark about a rank, before its first frame. Only unusual states have one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// gantry holds it.
    Held,
    /// A signal has stopped it.
    Stopped,
    /// It has ended.
    Ended,
    /// A thread that is not the first one, by its name without a number at its end.
    Thread(String),
    /// It waits in the kernel and cannot be stopped, so its stack cannot be read. The function of the kernel, if known.
    Kernel(Option<String>),
    /// Its stack cannot be read, and why.
    Unreadable(String),
}

/// A function and its current line.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call {
    /// Its name, as in the source.
    pub function: Option<String>,
    /// Its source.
    pub file: Option<String>,
    /// The current line.
    pub line: Option<u32>,
}

impl Call {
    /// Formats name, file and line as text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let line = self.line.map(|line| line.to_string()).unwrap_or_default();
        let file = self.file.as_deref().map(cut).unwrap_or_default();
        let function = self.function.as_deref().map(cut).unwrap_or_default();
        format!("{line}{SEPARATOR}{file}{SEPARATOR}{function}")
    }

    /// Parses such a text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (line, rest) = text.split_once(SEPARATOR)?;
        let (file, function) = rest.split_once(SEPARATOR)?;
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let line = if line.is_empty() { None } else { Some(line.parse().ok()?) };
        Some(Self { function: some(function), file: some(file), line })
    }

    /// The last part of the file's path.
    #[must_use]
    pub fn file_name(&self) -> Option<&str> {
        self.file.as_deref().map(|file| file.rsplit('/').next().unwrap_or(file))
    }
}

impl Frame {
    /// Parses the text of a frame. An invalid text becomes [`Frame::Unknown`].
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if let Some(mark) = text.strip_prefix('!') {
            return Self::Mark(Mark::parse(mark));
        }
        if let Some(call) = text.strip_prefix('@') {
            return Call::parse(call).map_or(Self::Unknown, Self::Script);
        }
        if let Some(numbers) = text.strip_prefix('~') {
            let parse = |(all, code): (&str, &str)| {
                Some(Self::LeftOut { all: all.parse().ok()?, code: code.parse().ok()? })
            };
            return numbers.split_once('+').and_then(parse).unwrap_or(Self::Unknown);
        }
        let parts = text.split_once('+');
        let code = parts.and_then(|(id, address)| {
            let address = u64::from_str_radix(address, 16).ok()?;
            Some(Self::Code { module: ModuleId::parse(id)?, address })
        });
        code.unwrap_or(Self::Unknown)
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code { module, address } => write!(f, "{module}+{address:x}"),
            Self::Unknown => f.write_str("?"),
            Self::Mark(mark) => write!(f, "!{}", mark.to_text()),
            Self::Script(call) => write!(f, "@{}", call.to_text()),
            Self::LeftOut { all, code } => write!(f, "~{all}+{code}"),
        }
    }
}

impl Mark {
    fn to_text(&self) -> String {
        match self {
            Self::Held => "held".to_owned(),
            Self::Stopped => "stopped".to_owned(),
            Self::Ended => "ended".to_owned(),
            Self::Thread(name) => format!("thread {}", cut(name)),
            Self::Kernel(function) => format!("kernel {}", cut(function.as_deref().unwrap_or_default())),
            Self::Unreadable(why) => format!("unreadable {}", cut(why)),
        }
    }

    fn parse(text: &str) -> Self {
        match text.split_once(' ').unwrap_or((text, "")) {
            ("held", _) => Self::Held,
            ("stopped", _) => Self::Stopped,
            ("ended", _) => Self::Ended,
            ("thread", name) => Self::Thread(name.to_owned()),
            ("kernel", function) => Self::Kernel((!function.is_empty()).then(|| function.to_owned())),
            (_, why) => Self::Unreadable(why.to_owned()),
        }
    }
}

/// The part of a text that fits.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_read_back() {
        let call =
            Call { function: Some("solve".to_owned()), file: Some("/a/heat.py".to_owned()), line: Some(7) };
        for frame in [
            Frame::Code { module: ModuleId::parse("ab01").unwrap(), address: 0x1f_0000 },
            Frame::Unknown,
            Frame::Mark(Mark::Held),
            Frame::Mark(Mark::Stopped),
            Frame::Mark(Mark::Ended),
            Frame::Mark(Mark::Thread("a worker".to_owned())),
            Frame::Mark(Mark::Kernel(None)),
            Frame::Mark(Mark::Kernel(Some("nfs_wait".to_owned()))),
            Frame::Mark(Mark::Unreadable("it is another user's".to_owned())),
            Frame::Script(call.clone()),
            Frame::LeftOut { all: 8000, code: 7000 },
            Frame::Script(Call { line: None, file: None, ..call }),
        ] {
            assert_eq!(Frame::parse(&frame.to_string()), frame, "{frame}");
        }
        for odd in ["", "x", "zz+1", "ab+", "+1", "@7", "ab+1g", "~7", "~7+x"] {
            assert_eq!(Frame::parse(odd), Frame::Unknown, "{odd:?}");
        }
    }

    #[test]
    fn long_texts_are_cut_between_letters() {
        let mark = Frame::Mark(Mark::Thread("ä".repeat(1000))).to_string();
        assert!(mark.len() < MAX_TEXT + 20, "{}", mark.len());
    }
}
