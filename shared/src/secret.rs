//! The app's secret. Its holders belong to the app. All link and bulk keys are derived from it.

use std::{fmt, io};

use serde::de::{self, Deserializer};
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

impl From<[u8; SECRET_BYTES]> for Secret {
    fn from(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(bytes)
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
        // Formats without a type for bytes write them as a sequence of numbers, and this reads both.
        let bytes = Zeroizing::new(Vec::<u8>::deserialize(deserializer)?);
        let secret = bytes.as_slice().try_into().map(Self);
        secret.map_err(|_| de::Error::invalid_length(bytes.len(), &"the 32 bytes of a secret"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_random_secrets_differ() {
        assert_ne!(Secret::random().unwrap().expose(), Secret::random().unwrap().expose());
    }

    #[test]
    fn debug_shows_nothing_of_it() {
        assert_eq!(format!("{:?}", Secret::random().unwrap()), "Secret(..)");
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
