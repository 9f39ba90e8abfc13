//! The app's secret. Its holders belong to the app. All link and bulk keys are derived from it.

use std::{fmt, io};

use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use zeroize::{Zeroize, Zeroizing};

/// Bytes in a secret.
pub const SECRET_BYTES: usize = 32;

/// 256 random bits that an app's frontend, guard and agents share.
///
/// It is wiped from memory when dropped, and `Debug` shows nothing of it. It implements serde's traits for one use:
/// the ticket that an agent reads on its standard input. Never put it in a message, an argv or a log.
#[derive(Clone)]
pub struct Secret([u8; SECRET_BYTES]);

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The operating system gave no random bytes.
    #[error("get random bytes for the app's secret")]
    Random(#[source] io::Error),
    /// The text is not 64 hexadecimal digits. The error does not show it: it may be most of a secret.
    #[error("read the app's secret: expected {} hexadecimal digits", SECRET_BYTES * 2)]
    NotHex,
}

impl Secret {
    /// A new secret from the operating system's random numbers.
    ///
    /// # Errors
    /// [`SecretError::Random`] if the system has none.
    pub fn random() -> Result<Self, SecretError> {
        let mut secret = Self([0; SECRET_BYTES]);
        fill_random(&mut secret.0).map_err(SecretError::Random)?;
        Ok(secret)
    }

    /// The secret from 64 hexadecimal digits, upper or lower case.
    ///
    /// # Errors
    /// [`SecretError::NotHex`] for any other text.
    pub fn from_hex(text: &str) -> Result<Self, SecretError> {
        let digits = text.as_bytes();
        if digits.len() != SECRET_BYTES * 2 {
            return Err(SecretError::NotHex);
        }
        let mut secret = Self([0; SECRET_BYTES]);
        for (byte, pair) in secret.0.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
        }
        Ok(secret)
    }

    /// 64 lower-case hexadecimal digits, for an environment variable where standard input is not available. Wiped when
    /// dropped.
    #[must_use]
    pub fn to_hex(&self) -> Zeroizing<String> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        // The capacity is exact, so no reallocation leaves a copy behind.
        let mut text = Zeroizing::new(String::with_capacity(SECRET_BYTES * 2));
        for byte in self.0 {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        text
    }

    /// 32 hexadecimal digits derived from the secret and `purpose`. They cannot be guessed, and reveal nothing of the
    /// secret.
    #[must_use]
    pub fn derive(&self, purpose: &str) -> String {
        let hash = blake3::keyed_hash(&self.0, purpose.as_bytes());
        hash.to_hex().chars().take(32).collect()
    }

    /// The bytes, for the keys of a link.
    #[must_use]
    pub fn expose(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }
}

/// Fills `bytes` with random numbers of the operating system.
///
/// # Errors
/// The system has none.
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(|error| match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::other(error.to_string()),
    })
}

fn hex_digit(digit: u8) -> Result<u8, SecretError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(SecretError::NotHex),
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(SecretVisitor)
    }
}

struct SecretVisitor;

impl<'de> Visitor<'de> for SecretVisitor {
    type Value = Secret;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SECRET_BYTES} bytes")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Secret, E> {
        let mut secret = Secret([0; SECRET_BYTES]);
        if bytes.len() != SECRET_BYTES {
            return Err(E::invalid_length(bytes.len(), &self));
        }
        secret.0.copy_from_slice(bytes);
        Ok(secret)
    }

    fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Secret, E> {
        self.visit_bytes(&Zeroizing::new(bytes))
    }

    // Formats without a type for bytes write them as a sequence of numbers.
    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Secret, A::Error> {
        let mut secret = Secret([0; SECRET_BYTES]);
        for (index, byte) in secret.0.iter_mut().enumerate() {
            *byte = sequence.next_element()?.ok_or_else(|| de::Error::invalid_length(index, &self))?;
        }
        match sequence.next_element::<u8>()? {
            None => Ok(secret),
            Some(_) => Err(de::Error::invalid_length(SECRET_BYTES + 1, &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&[u8; SECRET_BYTES]>) {
        assert_eq!(Secret::from_hex(text).ok().as_ref().map(Secret::expose), expected, "{text:?}");
    }

    #[test]
    fn hex_is_read_in_either_case_and_nothing_else_is() {
        check(&"00".repeat(32), Some(&[0; 32]));
        check(&"aB".repeat(32), Some(&[0xab; 32]));
        check(&"ff".repeat(31), None);
        check(&"ff".repeat(33), None);
        check(&"0g".repeat(32), None);
        check(&" f".repeat(32), None);
        check(&"\u{e9}".repeat(32), None); // two bytes each: the right length, but not digits
        check("", None);
    }

    #[test]
    fn hex_goes_round() {
        let secret = Secret::random().unwrap();
        assert_eq!(Secret::from_hex(&secret.to_hex()).unwrap().expose(), secret.expose());
    }

    #[test]
    fn two_random_secrets_differ() {
        assert_ne!(Secret::random().unwrap().expose(), Secret::random().unwrap().expose());
    }

    #[test]
    fn debug_and_errors_show_nothing_of_it() {
        let secret = Secret::random().unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        let almost = &secret.to_hex()[1..];
        let error = Secret::from_hex(almost).unwrap_err();
        assert!(!format!("{error:?} {error}").contains(almost));
    }

    #[test]
    fn serde_goes_round_as_bytes_and_as_numbers() {
        let secret = Secret::random().unwrap();
        let bytes = postcard::to_stdvec(&secret).unwrap();
        assert_eq!(bytes.len(), 33);
        assert_eq!(postcard::from_bytes::<Secret>(&bytes).unwrap().expose(), secret.expose());
        let text = serde_json::to_string(&secret).unwrap();
        assert_eq!(serde_json::from_str::<Secret>(&text).unwrap().expose(), secret.expose());
    }

    #[test]
    fn serde_refuses_another_length() {
        for length in [0_usize, 31, 33] {
            let bytes = postcard::to_stdvec(&vec![7_u8; length]).unwrap();
            assert!(postcard::from_bytes::<Secret>(&bytes).is_err(), "{length} bytes");
            let text = serde_json::to_string(&vec![7_u8; length]).unwrap();
            assert!(serde_json::from_str::<Secret>(&text).is_err(), "{length} numbers");
        }
    }
}
