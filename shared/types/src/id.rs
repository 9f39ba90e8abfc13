//! Newtypes for every identifier, so that a rank is never passed where a node or a pid is meant.
//!
//! Rank and node numbers are dense and start at 0: they index the app's placement. The text form of each
//! identifier is its `Display`. Environment variables and directory names use it, too.

use std::{fmt, num::NonZeroI32, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Defines an identifier that is a plain number.
macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(
            /// The number itself.
            pub $inner,
        );

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number_id! {
    /// A node of an app: the index into its placement's list of hosts.
    NodeId(u32)
}
number_id! {
    /// A rank of an app, counted from 0.
    Rank(u32)
}
number_id! {
    /// A session, counted per app.
    SessionId(u32)
}
number_id! {
    /// A set of tool daemons started by one order (one daemon per node), counted per app.
    DaemonId(u32)
}
number_id! {
    /// An entry of a manifest: its place in the order that names it.
    EntryIndex(u32)
}
number_id! {
    /// A request on the overlay or a socket: the answer carries the same number.
    RequestId(u64)
}

impl NodeId {
    /// The number as an index into a slice that has one entry per node.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Rank {
    /// The number as an index into a slice that has one entry per rank.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The characters of an app's id: base32 in lower case without `i`, `l`, `o` and `u`, which are easily misread.
const APP_ID_ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// An app: eight characters such as `3kx9w0fz`, chosen at random (40 bits) at the launch or attach.
///
/// It names things (directories, variables, logs) and is no secret. Serialised as a string.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppId([u8; AppId::LEN]);

impl AppId {
    /// How many characters an id has.
    pub const LEN: usize = 8;

    /// A new id from the system's random numbers.
    ///
    /// # Errors
    /// When the system has none to give, which on Linux means a broken sandbox.
    pub fn random() -> Result<Self, NoRandomness> {
        Ok(Self(random_characters()?))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Only characters of the alphabet get in, so the default is never taken.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Characters of the alphabet of apps' ids, five bits each, from the system's random numbers.
fn random_characters<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(NoRandomness)?;
    Ok(bytes.map(|byte| APP_ID_ALPHABET[usize::from(byte % 32)]))
}

/// A name of `N` characters, five random bits each, for files and directories that no other user can guess.
///
/// # Errors
/// As [`AppId::random`].
pub fn random_text<const N: usize>() -> Result<String, NoRandomness> {
    Ok(random_characters::<N>()?.map(char::from).iter().collect())
}

/// The system gave no random numbers.
#[derive(Clone, Debug, thiserror::Error)]
#[error("get random numbers from the system: {0}")]
pub struct NoRandomness(getrandom::Error);

/// A text is not an app's id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseAppIdError {
    /// It has another length.
    #[error("an app id has {} characters, this has {found}", AppId::LEN)]
    Length {
        /// How many characters it has.
        found: usize,
    },
    /// It has a character that no id has.
    #[error(
        "an app id has no {found:?} (character {position}), only digits and lower-case letters but i, l, o, u"
    )]
    Character {
        /// The character.
        found: char,
        /// Where it stands, counted from 1.
        position: usize,
    },
}

impl FromStr for AppId {
    type Err = ParseAppIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let foreign = |c: &char| !u8::try_from(*c).is_ok_and(|byte| APP_ID_ALPHABET.contains(&byte));
        let bytes: [u8; Self::LEN] = text
            .as_bytes()
            .try_into()
            .map_err(|_| ParseAppIdError::Length { found: text.chars().count() })?;
        match text.chars().enumerate().find(|(_, c)| foreign(c)) {
            Some((index, found)) => Err(ParseAppIdError::Character { found, position: index + 1 }),
            None => Ok(Self(bytes)),
        }
    }
}

impl fmt::Display for AppId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for AppId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AppId({self})")
    }
}

impl Serialize for AppId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for AppId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = AppId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an app id of {} characters", AppId::LEN)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<AppId, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// A process, by its number on its node. Always positive: 0 and negative numbers mean whole groups to `kill(2)`,
/// and must never get there by way of bad input.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "i32", into = "i32")]
pub struct Pid(NonZeroI32);

impl Pid {
    /// The process of that number, when it is positive.
    #[must_use]
    pub const fn new(number: i32) -> Option<Self> {
        match NonZeroI32::new(number) {
            Some(number) if number.is_positive() => Some(Self(number)),
            _ => None,
        }
    }

    /// The number, greater than 0.
    #[must_use]
    pub const fn get(self) -> i32 {
        self.0.get()
    }
}

/// A number is no process's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pid is greater than 0, this is {0}")]
pub struct NotAPid(
    /// The number.
    pub i32,
);

impl TryFrom<i32> for Pid {
    type Error = NotAPid;

    fn try_from(number: i32) -> Result<Self, NotAPid> {
        Self::new(number).ok_or(NotAPid(number))
    }
}

impl From<Pid> for i32 {
    fn from(pid: Pid) -> Self {
        pid.get()
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn random_app_ids_differ_and_read_back() {
        let id = AppId::random().unwrap();
        assert_ne!(id, AppId::random().unwrap());
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.to_string().len(), AppId::LEN);
    }

    #[test]
    fn a_bad_app_id_is_refused_with_the_reason() {
        let check = |text: &str, expected: &str| {
            assert_eq!(text.parse::<AppId>().unwrap_err().to_string(), expected, "{text:?}");
        };
        check("", "an app id has 8 characters, this has 0");
        check("abcdefgh0", "an app id has 8 characters, this has 9");
        let rest = "only digits and lower-case letters but i, l, o, u";
        check("abcdefgi", &format!("an app id has no 'i' (character 8), {rest}"));
        check("Abcdefgh", &format!("an app id has no 'A' (character 1), {rest}"));
        check("../../ab", &format!("an app id has no '.' (character 1), {rest}"));
        check("abcdefé", &format!("an app id has no 'é' (character 7), {rest}"));
    }

    #[test]
    fn app_ids_travel_as_strings_and_are_checked_on_arrival() {
        let id: AppId = "3kx9w0fz".parse().unwrap();
        assert_eq!(serde_json::to_string(&id).unwrap(), r#""3kx9w0fz""#);
        assert_eq!(serde_json::from_str::<AppId>(r#""3kx9w0fz""#).unwrap(), id);
        assert!(serde_json::from_str::<AppId>(r#""../../..""#).is_err());
        let bytes = postcard::to_stdvec(&id).unwrap();
        assert_eq!(postcard::from_bytes::<AppId>(&bytes).unwrap(), id);
    }

    #[test]
    fn only_positive_numbers_are_pids() {
        for number in [0, -1, i32::MIN] {
            assert_eq!(Pid::new(number), None);
            assert_eq!(Pid::try_from(number), Err(NotAPid(number)));
            assert!(serde_json::from_str::<Pid>(&number.to_string()).is_err());
        }
        assert_eq!(serde_json::to_string(&Pid::new(7)).unwrap(), "7");
        assert_eq!(Pid::new(i32::MAX).map(Pid::get), Some(i32::MAX));
        assert_eq!(size_of::<Option<Pid>>(), 4);
    }

    #[test]
    fn numbers_print_bare() {
        assert_eq!(
            format!("{} {:>3} {}", Rank(3), NodeId(4), RequestId(u64::MAX)),
            format!("3   4 {}", u64::MAX)
        );
        assert_eq!(format!("{:?} {}", SessionId(1), DaemonId(2)), "SessionId(1) 2");
        assert_eq!(serde_json::to_string(&Rank(3)).unwrap(), "3");
    }

    proptest! {
        #[test]
        fn any_text_is_an_app_id_exactly_when_it_prints_back(text in "\\PC{0,9}|[0-9a-z]{8}") {
            if let Ok(id) = text.parse::<AppId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
