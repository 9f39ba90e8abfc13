//! The tokens of ssh's configuration, such as `%h`, which `ssh -G` leaves as they are. Source: ssh_config(5), TOKENS.

use std::path::PathBuf;

use gantry_wlm::Host;

/// The values of the tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tokens<'a> {
    /// The host as the user named it.
    pub(crate) host: &'a str,
    pub(crate) hostname: &'a str,
    pub(crate) port: u16,
    pub(crate) user: &'a str,
    pub(crate) known_as: &'a str,
    pub(crate) machine: &'a dyn Host,
}

impl Tokens<'_> {
    /// A text with its tokens replaced.
    ///
    /// # Errors
    /// A token that only the OpenSSH client knows.
    pub(crate) fn expand(&self, text: &str) -> Result<String, String> {
        let mut expanded = String::new();
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                expanded.push(letter);
                continue;
            }
            match letters.next() {
                Some('%') => expanded.push('%'),
                Some('h') => expanded.push_str(self.hostname),
                Some('n') => expanded.push_str(self.host),
                Some('k') => expanded.push_str(self.known_as),
                Some('p') => expanded.push_str(&self.port.to_string()),
                Some('r') => expanded.push_str(self.user),
                Some('d') => expanded.push_str(&home(self.machine)?),
                Some('i') => expanded.push_str(&self.machine.uid().to_string()),
                Some('l') => expanded.push_str(&self.machine.hostname()),
                Some('L') => {
                    expanded.push_str(self.machine.hostname().split('.').next().unwrap_or_default());
                }
                Some('u') => expanded.push_str(&self.variable("USER")?),
                other => {
                    let token = other.map(String::from).unwrap_or_default();
                    return Err(format!("the configuration has the token %{token}"));
                }
            }
        }
        Ok(expanded)
    }

    /// A path with its tokens, `~` and variables replaced.
    ///
    /// # Errors
    /// As [`Tokens::expand`].
    pub(crate) fn expand_path(&self, text: &str) -> Result<PathBuf, String> {
        let text = text.trim_matches('"');
        let mut expanded = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (name, after) = after.split_once('}').ok_or("the configuration has a '${' without an end")?;
            expanded.push_str(before);
            expanded.push_str(&self.variable(name)?);
            rest = after;
        }
        expanded.push_str(rest);
        expand_home(&self.expand(&expanded)?, self.machine)
    }

    fn variable(&self, name: &str) -> Result<String, String> {
        let value = self.machine.env(name).and_then(|value| value.into_string().ok());
        value.ok_or_else(|| format!("the configuration asks for the variable {name}"))
    }
}

/// A path in which `~` is replaced.
///
/// # Errors
/// It is the home of another user, or this user has none.
pub(crate) fn expand_home(text: &str, machine: &dyn Host) -> Result<PathBuf, String> {
    match text.strip_prefix('~') {
        None => Ok(PathBuf::from(text)),
        Some(rest) if rest.is_empty() || rest.starts_with('/') => Ok(PathBuf::from(home(machine)? + rest)),
        Some(_) => Err(format!("the configuration has {text}, a path in another user's home")),
    }
}

/// The user's home, which ssh takes from the user database and not from the environment.
fn home(machine: &dyn Host) -> Result<String, String> {
    let users = machine.read("/etc/passwd".as_ref()).map_err(|error| format!("/etc/passwd: {error}"))?;
    let uid = machine.uid().to_string();
    let found = String::from_utf8_lossy(&users).lines().find_map(|line| {
        let mut fields = line.split(':').skip(2);
        (fields.next()? == uid).then(|| fields.nth(2).map(str::to_owned))?
    });
    // Users from another database may have it in their environment.
    let home = found.or_else(|| machine.env("HOME").and_then(|home| home.into_string().ok()));
    home.ok_or_else(|| "this user has no home".to_owned())
}
