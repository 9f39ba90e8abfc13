//! What editors say with a request. Names are those of the protocol; those of the configurations are gantry's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A configuration with `"request": "launch"`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Launch {
    /// What stands before the program on the launcher's command line: `["-n", "4"]`.
    pub launcher_args: Vec<String>,
    /// The program. None: it stands in `launcherArgs`.
    pub program: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// The launcher. None: the one of the workload manager.
    pub launcher: Option<String>,
    /// Where the ranks start.
    pub cwd: Option<String>,
    /// Variables of the ranks' environment.
    pub env: BTreeMap<String, String>,
    /// How many seconds the launch may wait for nodes. None: as long as it takes.
    pub queue_timeout: Option<u64>,
    /// What launches and attaches have in common.
    #[serde(flatten)]
    pub common: Common,
}

/// A configuration with `"request": "attach"`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Attach {
    /// What is attached to, as for `gantry attach`, or an app of `gantry ps`.
    pub target: Option<Target>,
    /// Options for how nodes are reached.
    pub reach_args: Vec<String>,
    /// A part of another session, which that one has made.
    pub session: Option<Part>,
    /// What launches and attaches have in common.
    #[serde(flatten)]
    pub common: Common,
}

/// What is attached to. People write numbers as numbers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Target {
    /// A job, an app, process ids.
    Text(String),
    /// A process id, or the number of a job.
    Number(u64),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => number.fmt(f),
        }
    }
}

/// What launches and attaches have in common.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Common {
    /// The workload manager. None: the one that is detected.
    pub wlm: Option<String>,
    /// The ranks that are debugged, such as `0-3,7`. None: all.
    pub ranks: Option<String>,
    /// The debugger on the nodes. None: gdb.
    pub gdb: Option<String>,
    /// Commands that each gdb gets before all others.
    pub setup_commands: Vec<String>,
    /// Stop at the entry of the program, or where a rank is when it is attached to.
    pub stop_on_entry: bool,
    /// How many seconds the start, and each answer of the nodes, may take. None: 60.
    pub timeout: Option<u64>,
    /// What a socket asks for.
    pub token: Option<String>,
}

/// A part of another session: ranks that an editor shows in a session of their own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Part {
    /// Where the other one listens, on this machine.
    pub port: u16,
    /// What it asks for.
    pub token: String,
    /// The ranks.
    pub ranks: String,
}

/// `initialize`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Initialize {
    /// Lines begin with 0, where it is false.
    pub lines_start_at1: Option<bool>,
    /// The editor can open sessions.
    pub supports_start_debugging_request: bool,
    /// The editor takes news of threads whose names have changed.
    pub supports_invalidated_event: bool,
}

/// A source file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Source {
    /// Its path.
    pub path: Option<String>,
}

/// `setBreakpoints`.
#[derive(Debug, Clone, Deserialize)]
pub struct SetBreakpoints {
    /// Of this file.
    pub source: Source,
    /// All that there are to be.
    #[serde(default)]
    pub breakpoints: Vec<SourceBreakpoint>,
}

/// One of them.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceBreakpoint {
    /// The line.
    pub line: i64,
    /// It stops where that is so.
    pub condition: Option<String>,
    /// It stops when it was hit as often as that.
    pub hit_condition: Option<String>,
    /// It does not stop, and this is said.
    pub log_message: Option<String>,
}

/// `setFunctionBreakpoints`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SetFunctionBreakpoints {
    /// All that there are to be.
    pub breakpoints: Vec<FunctionBreakpoint>,
}

/// One of them.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FunctionBreakpoint {
    /// The function.
    pub name: String,
    /// It stops where that is so.
    pub condition: Option<String>,
    /// It stops when it was hit as often as that.
    pub hit_condition: Option<String>,
}

/// `next`, `stepIn`, `stepOut`, `continue`, `pause`, and gantry's `gantry/open`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OfThread {
    /// The thread.
    pub thread_id: i64,
    /// This thread and no other.
    #[serde(default)]
    pub single_thread: bool,
    /// `instruction`, or a line.
    pub granularity: Option<String>,
}

/// `stackTrace`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StackTrace {
    /// Of this thread.
    pub thread_id: i64,
    /// From this frame on.
    pub start_frame: Option<u32>,
    /// That many; 0: all.
    pub levels: Option<u32>,
}

/// `scopes`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scopes {
    /// Of this frame.
    pub frame_id: i64,
}

/// `variables`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Variables {
    /// What has them.
    pub variables_reference: i64,
}

/// `evaluate`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Evaluate {
    /// What was typed.
    pub expression: String,
    /// In this frame.
    pub frame_id: Option<i64>,
    /// `repl`, `watch`, `hover` and others.
    pub context: Option<String>,
}

/// `setVariable`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetVariable {
    /// What has the variable.
    pub variables_reference: i64,
    /// Its name.
    pub name: String,
    /// Its new value.
    pub value: String,
}

/// `disassemble`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Disassemble {
    /// An address of ours.
    pub memory_reference: String,
    /// That many bytes behind it.
    #[serde(default)]
    pub offset: i64,
    /// That many instructions behind that.
    #[serde(default)]
    pub instruction_offset: i64,
    /// How many.
    pub instruction_count: u32,
}

/// `readMemory`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadMemory {
    /// An address of ours.
    pub memory_reference: String,
    /// That many bytes behind it.
    #[serde(default)]
    pub offset: i64,
    /// How many bytes.
    pub count: u64,
}

/// `disconnect`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Disconnect {
    /// End the ranks; else leave them. None: end those that were launched for this.
    pub terminate_debuggee: Option<bool>,
}

/// `gantry/open`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Open {
    /// The ranks of this thread.
    pub thread_id: Option<i64>,
    /// Or these ranks.
    pub ranks: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_read_as_people_write_them() {
        let text = r#"{"type":"gantry","name":"x","launcherArgs":["-n","4"],"program":"a","stopOnEntry":true,"env":{"A":"b"}}"#;
        let launch: Launch = serde_json::from_str(text).unwrap();
        assert!(launch.common.stop_on_entry && launch.launcher_args == ["-n", "4"] && launch.env["A"] == "b");
        for (text, expected) in [(r#"{"target":4711}"#, "4711"), (r#"{"target":"1234.0"}"#, "1234.0")] {
            let attach: Attach = serde_json::from_str(text).unwrap();
            assert_eq!(attach.target.unwrap().to_string(), expected);
        }
        assert!(serde_json::from_str::<Launch>(r#"{"launcherArgs":"-n 4"}"#).is_err());
    }

    #[test]
    fn the_extension_of_vs_code_has_the_same_options() {
        let package: serde_json::Value =
            serde_json::from_str(include_str!("../vscode/package.json")).unwrap();
        let attributes = &package["contributes"]["debuggers"][0]["configurationAttributes"];
        let names = |value: &serde_json::Value| -> Vec<String> {
            let mut names: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
            names.sort();
            names
        };
        for (request, ours) in [
            ("launch", serde_json::to_value(Launch::default()).unwrap()),
            ("attach", serde_json::to_value(Attach::default()).unwrap()),
        ] {
            assert_eq!(names(&attributes[request]["properties"]), names(&ours), "{request}");
        }
    }
}
