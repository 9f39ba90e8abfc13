//! The build that wrote a ticket: its release and its protocol.
//!
//! It stands in clear before the ticket, such as `0.1.0.19:`, because the layout of a ticket may differ between builds.
//! A reader compares it before it decodes anything.

use zeroize::Zeroizing;

/// The version of all messages on a link.
pub const PROTOCOL_VERSION: u16 = 21;

/// Ends the name of a build.
const END: u8 = b':';

/// Most bytes of the name of a build.
const MOST_BYTES: usize = 32;

/// A ticket of another build.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the frontend is version {theirs}, this agent is {ours}")]
pub struct OtherBuild {
    /// The version of the build that wrote it.
    pub theirs: String,
    /// The version of this build.
    pub ours: String,
}

/// This build, for people.
#[must_use]
pub fn describe() -> String {
    format!("{} (protocol {PROTOCOL_VERSION})", env!("CARGO_PKG_VERSION"))
}

fn name() -> String {
    format!("{}.{PROTOCOL_VERSION}", env!("CARGO_PKG_VERSION"))
}

/// A ticket behind the name of this build.
#[must_use]
pub fn stamp(ticket: &[u8]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new([name().as_bytes(), &[END], ticket].concat())
}

/// The ticket that [`stamp`] got.
///
/// # Errors
/// Another build has stamped it, or none.
pub fn check(stamped: &[u8]) -> Result<&[u8], OtherBuild> {
    let ours = name();
    let mut parts = stamped.splitn(2, |byte| *byte == END);
    match (parts.next(), parts.next()) {
        (Some(theirs), Some(ticket)) if theirs == ours.as_bytes() => Ok(ticket),
        (Some(theirs), Some(_)) => Err(OtherBuild::new(theirs, ours)),
        _ => Err(OtherBuild::new(b"", ours)),
    }
}

impl OtherBuild {
    fn new(theirs: &[u8], ours: String) -> Self {
        // What is not a name may be a part of the ticket, which holds a secret.
        let is_name = (1..=MOST_BYTES).contains(&theirs.len()) && theirs.iter().all(u8::is_ascii_graphic);
        let theirs =
            if is_name { String::from_utf8_lossy(theirs).into_owned() } else { "unknown".to_owned() };
        let release =
            |name: &str| name.rsplit_once('.').map_or_else(|| name.to_owned(), |it| it.0.to_owned());
        // Builds between two releases differ in the protocol alone.
        match (release(&theirs), release(&ours)) {
            (their, our) if their != our => Self { theirs: their, ours: our },
            _ => Self { theirs, ours },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_of_another_build_is_told_before_it_is_decoded() {
        let release = env!("CARGO_PKG_VERSION");
        assert_eq!(check(&stamp(b"a:b")).unwrap(), b"a:b");
        let said = |ticket: &str| check(ticket.as_bytes()).unwrap_err().to_string();
        assert_eq!(said("9.9.9.1:"), format!("the frontend is version 9.9.9, this agent is {release}"));
        let expected =
            format!("the frontend is version {release}.9999, this agent is {release}.{PROTOCOL_VERSION}");
        assert_eq!(said(&format!("{release}.9999:xyz")), expected);
        for ticket in ["", "secret", "secr\u{0}et:", &format!("{}:", "1".repeat(MOST_BYTES + 1))] {
            assert_eq!(said(ticket), format!("the frontend is version unknown, this agent is {release}"));
        }
    }
}
