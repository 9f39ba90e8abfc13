//! The values of attributes, which a tool sets for all its applications.

use std::ffi::{CString, OsStr, OsString, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Mutex;

use gantry_shared_capi::Fault;
use gantry_wlm::Host;
use gantry_wlm::host::Machine;

use crate::table::lock;

const CTI_LOG_DIR: &str = "CTI_LOG_DIR";
const CTI_DEBUG: &str = "CTI_DEBUG";

/// Variables for daemons.
const CTI_PMI_FOPEN_TIMEOUT: &str = "CTI_PMI_FOPEN_TIMEOUT";
const CTI_PMI_EXTRA_SLEEP: &str = "CTI_PMI_EXTRA_SLEEP";

const DEFAULT_FOPEN_TIMEOUT: u64 = 60;

/// The attributes' values.
#[derive(Debug)]
pub(crate) struct Attributes(Mutex<Values>);

#[derive(Debug, Clone)]
struct Values {
    stage_dependencies: bool,
    log_dir: Option<PathBuf>,
    debug: bool,
    fopen_timeout: u64,
    extra_sleep: u64,
}

/// `cti_attr_type_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attribute {
    StageDependencies,
    LogDir,
    Debug,
    FopenTimeout,
    ExtraSleep,
}

impl Attribute {
    pub(crate) fn of(number: c_int) -> Result<Self, Fault> {
        Ok(match number {
            0 => Self::StageDependencies,
            1 => Self::LogDir,
            2 => Self::Debug,
            3 => Self::FopenTimeout,
            4 => Self::ExtraSleep,
            _ => return Err(Fault::invalid(format!("there is no attribute {number}"))),
        })
    }
}

impl Attributes {
    /// As the environment has them.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Values {
            stage_dependencies: true,
            log_dir: Machine.env(CTI_LOG_DIR).map(PathBuf::from),
            debug: Machine.environment().iter().any(|(name, _)| name == CTI_DEBUG),
            fopen_timeout: DEFAULT_FOPEN_TIMEOUT,
            extra_sleep: 0,
        }))
    }

    /// Whether manifests include dependencies.
    pub(crate) fn stages_dependencies(&self) -> bool {
        lock(&self.0).stage_dependencies
    }

    /// The directory of logs: this process's here, and daemons' output on their nodes. None: no logs are written.
    pub(crate) fn log_dir(&self) -> Option<PathBuf> {
        let values = lock(&self.0);
        values.debug.then(|| values.log_dir.clone().unwrap_or_else(|| PathBuf::from("/tmp")))
    }

    /// The attributes in the daemons' environment.
    pub(crate) fn for_daemons(&self) -> Vec<(OsString, OsString)> {
        let values = lock(&self.0);
        let mut found = Vec::new();
        if let Some(dir) = &values.log_dir {
            found.push((CTI_LOG_DIR.into(), dir.clone().into_os_string()));
        }
        if values.fopen_timeout != DEFAULT_FOPEN_TIMEOUT {
            found.push((CTI_PMI_FOPEN_TIMEOUT.into(), values.fopen_timeout.to_string().into()));
        }
        if values.extra_sleep != 0 {
            found.push((CTI_PMI_EXTRA_SLEEP.into(), values.extra_sleep.to_string().into()));
        }
        found
    }

    pub(crate) fn set(&self, attribute: Attribute, value: &OsStr) -> Result<(), Fault> {
        let mut values = lock(&self.0);
        match attribute {
            Attribute::StageDependencies => values.stage_dependencies = parse_switch(value)?,
            Attribute::Debug => values.debug = parse_switch(value)?,
            Attribute::LogDir => values.log_dir = Some(usable_dir(value)?),
            Attribute::FopenTimeout => values.fopen_timeout = parse_number(value)?,
            Attribute::ExtraSleep => values.extra_sleep = parse_number(value)?,
        }
        Ok(())
    }

    pub(crate) fn get(&self, attribute: Attribute) -> Vec<u8> {
        let values = lock(&self.0);
        let switch = |on: bool| (if on { "1" } else { "0" }).to_owned().into_bytes();
        match attribute {
            Attribute::StageDependencies => switch(values.stage_dependencies),
            Attribute::Debug => switch(values.debug),
            Attribute::LogDir => values.log_dir.clone().unwrap_or_default().into_os_string().into_vec(),
            Attribute::FopenTimeout => values.fopen_timeout.to_string().into_bytes(),
            Attribute::ExtraSleep => values.extra_sleep.to_string().into_bytes(),
        }
    }
}

fn parse_switch(value: &OsStr) -> Result<bool, Fault> {
    match value.as_bytes().first() {
        Some(b'0') => Ok(false),
        Some(b'1') => Ok(true),
        _ => Err(Fault::invalid(format!("'{}' is neither 0 nor 1", value.to_string_lossy()))),
    }
}

fn parse_number(value: &OsStr) -> Result<u64, Fault> {
    let number = value.to_str().and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| Fault::invalid(format!("'{}' is not a number of seconds", value.to_string_lossy())))
}

/// A directory that logs can be written to.
fn usable_dir(value: &OsStr) -> Result<PathBuf, Fault> {
    let path = PathBuf::from(value);
    let text = CString::new(value.as_bytes()).map_err(|_| Fault::invalid("a path has a NUL in it"))?;
    // SAFETY: a string of ours.
    let allowed = unsafe { libc::access(text.as_ptr(), libc::R_OK | libc::W_OK | libc::X_OK) } == 0;
    match allowed && path.is_dir() {
        true => Ok(path),
        false => {
            let words = "is not a directory that this user can read, write and search";
            Err(Fault::invalid(format!("'{}' {words}", path.display())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_and_kept() {
        let all = Attributes::new();
        let check = |attribute, value: &str, expected: Option<&str>| {
            let set = all.set(attribute, OsStr::new(value));
            assert_eq!(set.is_ok(), expected.is_some(), "{attribute:?} {value}: {set:?}");
            if let Some(expected) = expected {
                assert_eq!(all.get(attribute), expected.as_bytes(), "{attribute:?}");
            }
        };
        check(Attribute::StageDependencies, "0", Some("0"));
        check(Attribute::StageDependencies, "yes", None);
        check(Attribute::Debug, "1x", Some("1"));
        check(Attribute::Debug, "", None);
        check(Attribute::FopenTimeout, "7", Some("7"));
        check(Attribute::FopenTimeout, "-7", None);
        check(Attribute::ExtraSleep, "3", Some("3"));
        check(Attribute::LogDir, "/no/such/directory", None);
        check(Attribute::LogDir, "/tmp", Some("/tmp"));
        let names: Vec<_> = all.for_daemons().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, [CTI_LOG_DIR, CTI_PMI_FOPEN_TIMEOUT, CTI_PMI_EXTRA_SLEEP]);
        assert!(Attribute::of(5).is_err() && Attribute::of(-1).is_err());
    }
}
