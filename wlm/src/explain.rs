//! Explains why a command of a WLM failed: finds the cause in its messages, and quotes them. The messages are never
//! replaced.

use gantry_types::error::{Failure, Kind};

/// The maximum number of quoted lines.
const MAX_LINES: usize = 6;

/// The maximum number of quoted characters of a command.
const MAX_COMMAND_CHARS: usize = 400;

/// Texts within one line that identify a cause, its kind, and the remedy.
pub(crate) type Cause = (&'static [&'static str], Kind, Option<&'static str>);

/// What the commands of one WLM print.
#[derive(Debug)]
pub(crate) struct Messages {
    /// The known causes. The first matching one counts.
    pub causes: &'static [Cause],
    /// Whether a line comes from the WLM and not from a rank.
    pub is_own: fn(&str) -> bool,
    /// Whether a line says nothing about a failure.
    pub is_noise: fn(&str) -> bool,
}

impl Messages {
    /// The failure of a command, with its command line, its status and its own last messages. `stderr` may also contain
    /// lines of ranks. A rank's message is not the WLM's reason, unless the ranks are agents.
    pub(crate) fn explain(
        &self,
        command: &[String],
        status: &str,
        stderr: &str,
        are_agents: bool,
    ) -> Failure {
        let all: Vec<&str> =
            stderr.lines().map(str::trim_end).filter(|line| !(self.is_noise)(line)).collect();
        let own: Vec<&str> = all.iter().copied().filter(|line| (self.is_own)(line)).collect();
        let fits = |words: &[&str]| own.iter().any(|line| words.iter().all(|word| line.contains(word)));
        let cause = self.causes.iter().find(|(words, _, _)| fits(words));
        let said = if own.is_empty() || are_agents { all } else { own };
        let program = command.first().map_or("the command", String::as_str);
        let words = match said[said.len().saturating_sub(MAX_LINES)..] {
            [] => "it printed nothing".to_owned(),
            ref lines => lines.join("; "),
        };
        let line = shortened(&command.join(" "));
        let message = format!("{program} ended with {status}: {words} (command: {line})");
        let kind = cause.map_or(Kind::LauncherFailed, |(_, kind, _)| *kind);
        Failure::new(kind, message).with_hint_of(cause.and_then(|(_, _, hint)| *hint))
    }
}

fn shortened(command: &str) -> String {
    match command.char_indices().nth(MAX_COMMAND_CHARS) {
        Some((end, _)) => format!("{}...", &command[..end]),
        None => command.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_commands_are_cut() {
        let messages = Messages { causes: &[], is_own: |_| true, is_noise: str::is_empty };
        let command = ["run".to_owned(), "x".repeat(MAX_COMMAND_CHARS + 100)];
        let failure = messages.explain(&command, "1", "", false);
        let cut = "x".repeat(MAX_COMMAND_CHARS - 4);
        assert_eq!(
            failure.message(),
            format!("run ended with 1: it printed nothing (command: run {cut}...)")
        );
    }
}
