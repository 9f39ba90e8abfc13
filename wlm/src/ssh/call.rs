//! The call of an ssh client to run a command on a host, independent of the client.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use gantry_types::host_name::HostName;

use super::command::Reaching;
use super::script::COMMAND;
use crate::{Error, Result};

/// The usage of `gantry-ssh`.
const USAGE: &str = "gantry-ssh [--login NAME] [--accept-new] [--connect-timeout SECONDS] -- HOST COMMAND";

/// A command to run on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The host, as users name it for ssh.
    pub host: HostName,
    /// The user's login name there, if it overrides ssh's configuration.
    pub login: Option<String>,
    /// Accept the key of an unknown host, and remember it.
    pub accept_new: bool,
    /// The timeout for the login.
    pub connect: Duration,
    /// The command for the login shell there.
    pub command: OsString,
}

impl Call {
    /// The call that starts an agent on `host`.
    pub(super) fn new(host: &HostName, reaching: &Reaching) -> Self {
        Self {
            host: host.clone(),
            login: reaching.login.clone(),
            accept_new: reaching.accept_new,
            connect: reaching.connect,
            command: COMMAND.into(),
        }
    }

    /// Formats it as arguments of `gantry-ssh`, without its own name.
    pub fn to_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = Vec::new();
        if let Some(login) = &self.login {
            args.extend(["--login".into(), login.into()]);
        }
        if self.accept_new {
            args.push("--accept-new".into());
        }
        args.extend(["--connect-timeout".into(), self.connect.as_secs_f64().to_string().into()]);
        args.extend(["--".into(), OsStr::new(self.host.as_str()).into(), self.command.clone()]);
        args
    }

    /// Parses the arguments of [`Call::to_args`].
    ///
    /// # Errors
    /// The arguments are different.
    pub fn parse_args(args: impl IntoIterator<Item = OsString>) -> Result<Self> {
        let unfit = || Error::invalid_with("gantry-ssh does not know these arguments", USAGE);
        let mut args = args.into_iter();
        let mut next = || args.next().ok_or_else(unfit);
        let mut reaching = Reaching::default();
        loop {
            match next()?.to_str() {
                Some("--login") => reaching.login = Some(next()?.into_string().map_err(|_| unfit())?),
                Some("--accept-new") => reaching.accept_new = true,
                Some("--connect-timeout") => {
                    let seconds = next()?.to_str().and_then(|text| text.parse().ok()).ok_or_else(unfit)?;
                    reaching.connect = Duration::try_from_secs_f64(seconds).map_err(|_| unfit())?;
                }
                Some("--") => break,
                _ => return Err(unfit()),
            }
        }
        // A login name, an option or a shell command is not a host.
        let host = next()?.to_str().and_then(|name| name.parse().ok()).ok_or_else(unfit)?;
        let call = Self { command: next()?, ..Self::new(&host, &reaching) };
        match args.next().is_none() {
            true => Ok(call),
            false => Err(unfit()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_parsed_back() {
        let check = |reaching: &Reaching| {
            let call = Call::new(&"n1".parse().unwrap(), reaching);
            assert_eq!(Call::parse_args(call.to_args()).unwrap(), call);
        };
        check(&Reaching::default());
        let connect = Duration::from_millis(2500);
        check(&Reaching { login: Some("-me".into()), accept_new: true, connect, ..Reaching::default() });
    }

    #[test]
    fn other_arguments_are_refused() {
        let check = |line: &str| {
            let error = Call::parse_args(line.split_whitespace().map(OsString::from)).unwrap_err();
            assert_eq!(error.to_string(), "gantry-ssh does not know these arguments", "{line}");
        };
        for line in [
            "",
            "n1 true",
            "-- n1",
            "-- -n1 true",
            "-- me@n1 true",
            "-- $(id) true",
            "-- n1 true more",
            "--login",
            "--connect-timeout x -- n1 true",
        ] {
            check(line);
        }
        check("--connect-timeout -1 -- n1 true");
    }
}
