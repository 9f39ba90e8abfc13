//! The script that starts the agent on a host, for any `sh`, and its messages.
//!
//! The ssh command is always the same, and has no character that any login shell interprets: csh, fish and sh all
//! read it alike. It makes `sh` read one line from its standard input, the script, and run it. So an app's data is in
//! no argument list, and nothing has to be quoted for an unknown shell.
//!
//! ```text
//!  this side                       the host
//!  the script, one line  ------->
//!                        <-------  MARK have                the agent is at the same path with the same content
//!                        <-------  MARK need DIRECTORY      it is not; there is room for it
//!  the agent's bytes     ------->
//!                        <-------  MARK got                 it is all there, and runs here
//!                        <-------  MARK no REASON           it ends here
//!  the ticket            ------->  (the agent reads it)
//!                        <-------  MARK link                it cannot dial: this connection becomes its link
//! ```
//!
//! The mark is the app's id: login shells may print anything before. Each side waits for the other's message before
//! it sends, so that no program reads input for the next one.

use std::path::Path;

use crate::safe::SAFE;

/// The ssh command.
pub(super) const COMMAND: &str = r#"exec /bin/sh -c 'IFS= read -r gantry; eval "$gantry"'"#;

/// The maximum number of bytes read until the host's first message.
pub(super) const MAX_SAID_BYTES: usize = 256 * 1024;

/// The agent to start on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted<'a> {
    /// The prefix of every message of the script.
    pub(super) mark: &'a str,
    /// Its path on this machine. The host may have it at the same path.
    pub(super) path: &'a Path,
    /// Its identity: its release and the hash of its bytes.
    pub(super) identity: &'a str,
    /// Its length.
    pub(super) bytes: u64,
    /// Its arguments.
    pub(super) errand: &'a [String],
}

/// The steps after the parameters. If the script ends before the agent has started, it removes everything that it has
/// created.
const STEPS: [&str; 8] = [
    SAFE,
    r#"say() { printf '\n%s %s\n' "$mark" "$*"; }; same() { [ "$("$1" id 2>/dev/null </dev/null)" = "$identity" ]; }; cd / || :"#,
    // Execute the checked path, with links resolved. An agent that other users can change is not even asked for its
    // identity.
    r#"if [ -n "$path" ] && real=$(cd "${path%/*}/" 2>/dev/null && pwd -P) && real=${real%/}/${path##*/} && [ -f "$real" ] && [ -x "$real" ] && safe "$real" 0 && same "$real"; then say have; exec "$real" "$@"; fi"#,
    r#"old=$(umask); umask 077; why=; into=; for place in "$TMPDIR" /tmp /var/tmp "$XDG_RUNTIME_DIR" /dev/shm "$HOME"; do case $place in /*) ;; *) continue;; esac; real=$(cd "$place" 2>/dev/null && pwd -P) || continue; if ! safe "$real" 2; then why="$why; others can change $place"; continue; fi; place=${real%/}"#,
    r#"if into=$(mktemp -d "$place/gantry-agent-XXXXXXXXXX" 2>/dev/null) && [ -d "$into" ]; then trap 'rm -rf "$into"' 0; trap 'exit 1' 1 2 13 15; printf '#!/bin/sh\nexit 0\n' >"$into/try" 2>/dev/null && chmod 700 "$into/try"; if [ ! -s "$into/try" ]; then why="$why; $place is full"; elif ! "$into/try" 2>/dev/null; then why="$why; $place is mounted noexec"; else free=$(df -Pk "$into" 2>/dev/null | tail -n 1 | sed 's/  */ /g' | cut -d ' ' -f 4); if [ "${free:-$blocks}" -ge "$blocks" ] 2>/dev/null; then break; fi; why="$why; $place has $free KiB left, $blocks are needed"; fi; rm -rf "$into"; else why="$why; $place may not be written"; fi; into=; done"#,
    r#"if [ -z "$into" ]; then say no "no place for the agent${why}"; exit 1; fi; file=$into/gantry-agent; say need "$into"; rm -f "$into/try"; head -c "$bytes" >"$file" 2>"$into/why"; if [ "$(wc -c <"$file" | tr -d ' ')" != "$bytes" ]; then say no "cannot write the agent to $file: $(head -n 1 "$into/why")"; exit 1; fi; rm -f "$into/why"; chmod 700 "$file""#,
    r#"if ! same "$file"; then say no "the agent does not run here: $("$file" id 2>&1 </dev/null | head -n 1)"; exit 1; fi; say got; trap - 0 1 2 13 15; umask "$old""#,
    r#"GANTRY_SENT_AGENT=$file; export GANTRY_SENT_AGENT; exec "$file" "$@""#,
];

/// Builds the script as one line, with its line break.
pub(super) fn build_script(wanted: &Wanted<'_>) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    let path = wanted.path.as_os_str().as_bytes();
    // The script is one line, so a path with a line break cannot be in it. Such an agent is sent.
    let path = if path.contains(&b'\n') { b"" } else { path };
    let blocks = wanted.bytes.div_ceil(1024) + 16;
    let mut script = b"unset IFS; mark=".to_vec();
    quote(wanted.mark.as_bytes(), &mut script);
    script.extend(b"; path=");
    quote(path, &mut script);
    script.extend(b"; identity=");
    quote(wanted.identity.as_bytes(), &mut script);
    script.extend(b"; set --");
    for word in wanted.errand {
        script.push(b' ');
        quote(word.as_bytes(), &mut script);
    }
    script.extend(format!("; bytes={}; blocks={blocks}; ", wanted.bytes).into_bytes());
    script.extend(STEPS.join("; ").into_bytes());
    script.push(b'\n');
    script
}

/// Quotes one word for `sh`.
fn quote(word: &[u8], into: &mut Vec<u8>) {
    into.push(b'\'');
    for byte in word {
        match byte {
            b'\'' => into.extend(b"'\\''"),
            other => into.push(*other),
        }
    }
    into.push(b'\'');
}

/// A message of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// The host has the agent.
    Have,
    /// The host does not have the agent. It has this directory for it.
    Need(String),
    /// The agent's bytes have arrived.
    Got,
    /// The agent cannot be started, for this reason.
    No(String),
    /// The agent has read its ticket. The stream is its link from here on.
    Link,
}

/// The first message, and the number of bytes up to its end.
pub(super) fn parse_said(bytes: &[u8], mark: &str) -> Option<(Said, usize)> {
    let mut start = 0;
    while let Some(length) = bytes.get(start..)?.iter().position(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(&bytes[start..start + length]);
        start += length + 1;
        let Some(words) = line.strip_prefix(mark).and_then(|rest| rest.strip_prefix(' ')) else { continue };
        let (word, rest) = words.split_once(' ').unwrap_or((words, ""));
        let said = match word {
            "have" => Said::Have,
            "need" => Said::Need(rest.to_owned()),
            "got" => Said::Got,
            "no" => Said::No(rest.to_owned()),
            "link" => Said::Link,
            _ => continue,
        };
        return Some((said, start));
    }
    None
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
