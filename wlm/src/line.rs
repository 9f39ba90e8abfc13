//! A value as one line of text. A program of gantry on another machine prints its result in this form.
//!
//! Login shells and libraries may print lines of their own around it.

use std::io;

use gantry_shared::wire::frame::FrameError;
use gantry_shared::wire::hold::{from_hex, to_hex};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The prefix of the line.
const MARK: &str = "gantry-found ";

/// The line of `value`. It starts with a line break, because other output may have left its line open.
///
/// # Errors
/// `value` cannot be encoded.
pub(crate) fn write<T: Serialize>(value: &T) -> io::Result<String> {
    let bytes = postcard::to_stdvec(value).map_err(io::Error::other)?;
    Ok(format!("\n{MARK}{}\n", *to_hex(&bytes)))
}

/// The value of the last such line in `text`. `None`: there is no such line.
///
/// # Errors
/// The line is incomplete, or another version wrote it.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Option<io::Result<T>> {
    let line = text.lines().rev().find_map(|line| line.strip_prefix(MARK))?;
    Some(from_hex(line).map_err(io::Error::other).and_then(|bytes| match postcard::take_from_bytes(&bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(io::Error::other(FrameError::Trailing { bytes: rest.len() })),
        Err(error) => Err(io::Error::other(error)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Found = Result<Vec<(u32, String)>, String>;

    #[test]
    fn the_last_line_counts_whatever_is_beside_it() {
        let found: Found = Ok(vec![(7, "/opt/ünder µ".to_owned()), (0, "line\nend".to_owned())]);
        let text = format!(
            "Welcome{}{}bye",
            write(&Found::Err("first".to_owned())).unwrap(),
            write(&found).unwrap()
        );
        assert_eq!(parse::<Found>(&text).unwrap().unwrap(), found);
        assert!(parse::<Found>("Welcome\n").is_none());
    }

    #[test]
    fn what_is_cut_off_or_goes_on_is_refused() {
        let text = write(&Found::Err("no server".to_owned())).unwrap();
        let line = text.trim_end();
        assert!(parse::<Found>(&line[..line.len() - 2]).unwrap().is_err());
        assert!(parse::<Found>(&format!("{line}00")).unwrap().is_err());
        assert!(parse::<Found>(&format!("{MARK}{{")).unwrap().is_err());
    }
}
