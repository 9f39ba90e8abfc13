//! Names of jobs: ids in the forms that Flux prints, and paths of ids that lead into instances. Flux can also write
//! an id in words and in emoji.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// The digits of base 58. Source: RFC 19 of Flux, "FLUID".
const DIGITS: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// The letter before the digits. Flux prints it if the locale has it.
const LETTER: char = 'ƒ';

/// The maximum length of a name, in characters.
const MAX_CHARS: usize = 1024;

/// A job's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    /// Writes `fA1b2`: Flux accepts this form in every locale.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reversed = Vec::new();
        let mut rest = self.0;
        loop {
            let digit = usize::try_from(rest % 58).unwrap_or_default();
            reversed.push(char::from(DIGITS[digit]));
            rest /= 58;
            if rest == 0 {
                break;
            }
        }
        write!(f, "f{}", reversed.iter().rev().collect::<String>())
    }
}

impl FromStr for JobId {
    type Err = Error;

    /// Parses `fA1b2`, `ƒA1b2`, a decimal number, a hexadecimal number (`0x`), or four groups of four hexadecimal
    /// digits with dots between them, also with the prefix `job.`.
    fn from_str(text: &str) -> Result<Self> {
        let number = if let Some(digits) = text.strip_prefix('f').or_else(|| text.strip_prefix(LETTER)) {
            parse_digits(digits)
        } else if let Some(digits) = text.strip_prefix("0x") {
            u64::from_str_radix(digits, 16).ok()
        } else if text.contains('.') {
            parse_groups(text.strip_prefix("job.").unwrap_or(text))
        } else {
            text.parse().ok()
        };
        number.map(Self).ok_or_else(|| {
            let message = format!("'{text}' is no id of a job of Flux");
            Error::invalid_with(
                message,
                "'flux jobs' shows ids: ƒA1b2, or fA1b2; decimal and hexadecimal numbers are ids too",
            )
        })
    }
}

fn parse_digits(digits: &str) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.bytes().try_fold(0_u64, |number, byte| {
        let digit = DIGITS.iter().position(|known| *known == byte)?;
        number.checked_mul(58)?.checked_add(u64::try_from(digit).ok()?)
    })
}

fn parse_groups(text: &str) -> Option<u64> {
    let groups: Vec<&str> = text.split('.').collect();
    let is_group = |group: &&str| group.len() == 4 && group.bytes().all(|byte| byte.is_ascii_hexdigit());
    let fits = groups.len() == 4 && groups.iter().all(is_group);
    fits.then(|| u64::from_str_radix(&groups.concat(), 16).ok()).flatten()
}

/// A job and its instance. The instance is below this process's own one; the path is the ids of the jobs that are
/// instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The jobs that are instances, from the outermost to the innermost. Empty: the job is in this process's own
    /// instance.
    pub instances: Vec<JobId>,
    /// The job itself.
    pub job: JobId,
}

impl Target {
    /// A job inside of the instance that this job is.
    pub(super) fn inside(&self, job: JobId) -> Self {
        let mut instances = self.instances.clone();
        instances.push(self.job);
        Self { instances, job }
    }

    /// The path of the instance, in the form of `flux uri`. `None`: this process's own instance.
    pub(super) fn instance_path(&self) -> Option<String> {
        let path: Vec<String> = self.instances.iter().map(ToString::to_string).collect();
        (!path.is_empty()).then(|| path.join("/"))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for instance in &self.instances {
            write!(f, "{instance}/")?;
        }
        self.job.fmt(f)
    }
}

impl FromStr for Target {
    type Err = Error;

    /// Parses an id, or ids separated by slashes.
    fn from_str(text: &str) -> Result<Self> {
        if text.chars().count() > MAX_CHARS {
            return Err(Error::invalid(format!("the name of a job has more than {MAX_CHARS} characters")));
        }
        let mut instances = text.split('/').map(str::parse).collect::<Result<Vec<JobId>>>()?;
        let job = instances.pop().ok_or_else(|| Error::invalid("no id of a job"))?;
        Ok(Self { instances, job })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<u64>) {
        assert_eq!(text.parse::<JobId>().ok().map(|id| id.0), expected, "{text}");
    }

    /// Each form converts as in `flux job id`.
    #[test]
    fn ids_have_many_forms() {
        for text in [
            "f5k97iNj",
            "ƒ5k97iNj",
            "180589953024",
            "0x2a0c000000",
            "0000.002a.0c00.0000",
            "job.0000.002a.0c00.0000",
        ] {
            check(text, Some(180_589_953_024));
        }
        assert_eq!(JobId(180_589_953_024).to_string(), "f5k97iNj");
        check("f1", Some(0));
        for text in ["", "f", "ƒ0", "fO", "-1", "0x", "1.2", "job.1", "f99999999999999", "zzz"] {
            check(text, None);
        }
    }

    #[test]
    fn a_path_leads_into_instances() {
        let target: Target = "ƒ5k97iNj/f2".parse().unwrap();
        assert_eq!(target.to_string(), "f5k97iNj/f2");
        assert_eq!(target.instance_path().as_deref(), Some("f5k97iNj"));
        assert_eq!(target.inside(JobId(2)).to_string(), "f5k97iNj/f2/f3");
        assert_eq!("f2".parse::<Target>().unwrap().instance_path(), None);
        assert!("f2/".parse::<Target>().is_err() && "/f2".parse::<Target>().is_err());
    }

    proptest! {
        #[test]
        fn every_number_is_an_id(number: u64) {
            prop_assert_eq!(JobId(number).to_string().parse::<JobId>().unwrap(), JobId(number));
        }

        #[test]
        fn any_text_is_a_target_or_an_error(text in "\\PC{0,40}") {
            drop(text.parse::<Target>());
        }
    }
}
