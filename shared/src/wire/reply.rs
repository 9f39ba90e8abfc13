//! Answers on their way through the tree.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use gantry_types::error::{Failure, Kind};

use super::blob::Blob;
use super::frame::{self, FrameError, MAX_FRAME_BYTES};

/// The most bytes of an answer. The rest of the frame has room for its number and its nodes.
const MAX_REPLY_BYTES: usize = MAX_FRAME_BYTES - 64 * 1024;

/// An answer as its node has encoded it. Agents on the way compare and group answers, and do not decode them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncodedReply(Blob);

impl EncodedReply {
    /// Encodes an answer. One that is too large for a frame becomes a failure that says so.
    ///
    /// # Errors
    /// That failure cannot be encoded either.
    pub fn of<T: Serialize>(reply: &Result<T, Failure>) -> Result<Self, FrameError> {
        let encoded = frame::encode_body(reply).and_then(|bytes| match bytes.len() > MAX_REPLY_BYTES {
            true => Err(FrameError::Oversized { bytes: None, limit: MAX_REPLY_BYTES }),
            false => Ok(bytes),
        });
        let encoded = encoded.or_else(|error| {
            let why = Failure::new(Kind::Invalid, format!("send the answer: {error}"));
            frame::encode_body(&Err::<T, _>(why))
        });
        encoded.map(|bytes| Self(Blob(bytes)))
    }

    /// How many bytes it has.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.0.len()
    }

    /// The answer.
    ///
    /// # Errors
    /// It is none: [`FrameError::Decode`], [`FrameError::Trailing`].
    pub fn decode<T: DeserializeOwned>(&self) -> Result<Result<T, Failure>, FrameError> {
        frame::decode(&self.0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_too_large_becomes_a_failure() {
        let fits = Ok(Blob(vec![7; MAX_REPLY_BYTES - 10]));
        assert_eq!(EncodedReply::of(&fits).unwrap().decode().unwrap(), fits);
        for bytes in [MAX_REPLY_BYTES, 2 * MAX_FRAME_BYTES] {
            let encoded = EncodedReply::of(&Ok(Blob(vec![7; bytes]))).unwrap();
            let failure = encoded.decode::<Blob>().unwrap().unwrap_err();
            assert!(failure.message().starts_with("send the answer: "), "{failure}");
            assert!(encoded.bytes() < 1000);
        }
    }
}
