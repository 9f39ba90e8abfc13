//! Why ptrace was refused. EPERM has several causes; this module finds out which one it was.

use super::procfs;

/// Which rule forbids ptrace here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PtraceRefusal {
    /// A thread with this id traces the rank already.
    Traced(i32),
    /// Yama forbids tracing, or allows it to administrators only.
    Yama(u32),
    /// SELinux's boolean `deny_ptrace`.
    Selinux,
    /// A seccomp filter forbids it.
    Seccomp,
    /// None of these.
    Unknown,
}

/// The facts that can be read after ptrace was refused.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PtraceFacts {
    /// The rank's tracer, 0 for none.
    pub(crate) tracer: i32,
    /// `/proc/sys/kernel/yama/ptrace_scope`, where there is Yama.
    pub(crate) yama: Option<u32>,
    /// Whether `/sys/fs/selinux/booleans/deny_ptrace` is on.
    pub(crate) selinux_denies: bool,
    /// `Seccomp:` of our own `/proc/self/status`.
    pub(crate) seccomp: Option<u32>,
}

impl PtraceFacts {
    /// Reads the facts for the rank `pid`.
    pub(crate) fn read(pid: i32) -> Self {
        let number = |path: &str| std::fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok();
        let own = std::process::id().cast_signed();
        Self {
            tracer: procfs::read_status(pid).map_or(0, |status| status.tracer),
            yama: number("/proc/sys/kernel/yama/ptrace_scope"),
            selinux_denies: number("/sys/fs/selinux/booleans/deny_ptrace") == Some(1),
            seccomp: procfs::read_status(own).ok().and_then(|status| status.seccomp),
        }
    }
}

/// The most likely reason. Yama's levels 0 and 1 allow a parent to trace its child, so they are no reason.
pub(crate) fn why_ptrace_refused(facts: PtraceFacts) -> PtraceRefusal {
    match facts {
        PtraceFacts { tracer, .. } if tracer != 0 => PtraceRefusal::Traced(tracer),
        PtraceFacts { yama: Some(scope @ 2..), .. } => PtraceRefusal::Yama(scope),
        PtraceFacts { selinux_denies: true, .. } => PtraceRefusal::Selinux,
        PtraceFacts { seccomp: Some(1..), .. } => PtraceRefusal::Seccomp,
        _ => PtraceRefusal::Unknown,
    }
}

impl std::fmt::Display for PtraceRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Traced(tracer) => write!(f, "it is already traced by process {tracer}"),
            Self::Yama(2) => f.write_str("kernel.yama.ptrace_scope is 2: only administrators may trace"),
            Self::Yama(scope) => write!(f, "kernel.yama.ptrace_scope is {scope}: tracing is disabled"),
            Self::Selinux => f.write_str("SELinux's deny_ptrace is on"),
            Self::Seccomp => f.write_str("a seccomp filter does not let ptrace through"),
            Self::Unknown => f.write_str("the kernel does not let it be traced"),
        }
    }
}

impl PtraceRefusal {
    /// The setting to change.
    pub(crate) fn hint(self) -> Option<String> {
        let text = match self {
            Self::Traced(_) => "do not run the agent under strace -f or a debugger that follows forks",
            Self::Yama(2) => "ask for sysctl kernel.yama.ptrace_scope=1 on this node",
            Self::Yama(_) => "kernel.yama.ptrace_scope=3 stays until a reboot: ask for 1 in /etc/sysctl.d",
            Self::Selinux => "ask for setsebool deny_ptrace off on this node",
            Self::Seccomp => "allow ptrace in the container's seccomp profile (or --cap-add=SYS_PTRACE)",
            Self::Unknown => return None,
        };
        Some(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refusal(facts: PtraceFacts, expected: PtraceRefusal, word: &str) {
        let refusal = why_ptrace_refused(facts);
        assert_eq!(refusal, expected);
        let text = format!("{refusal} {}", refusal.hint().unwrap_or_default());
        assert!(text.contains(word), "{text}");
    }

    #[test]
    fn a_ptrace_refusal_names_its_knob() {
        let none = PtraceFacts::default();
        let yama = |scope| PtraceFacts { yama: Some(scope), seccomp: Some(2), ..none };
        check_refusal(yama(3), PtraceRefusal::Yama(3), "kernel.yama.ptrace_scope is 3: tracing is disabled");
        check_refusal(yama(2), PtraceRefusal::Yama(2), "ptrace_scope is 2: only administrators");
        check_refusal(yama(1), PtraceRefusal::Seccomp, "seccomp");
        check_refusal(PtraceFacts { seccomp: Some(2), ..none }, PtraceRefusal::Seccomp, "SYS_PTRACE");
        check_refusal(PtraceFacts { seccomp: Some(0), ..none }, PtraceRefusal::Unknown, "kernel");
        check_refusal(PtraceFacts { selinux_denies: true, ..none }, PtraceRefusal::Selinux, "deny_ptrace");
        check_refusal(
            PtraceFacts { tracer: 7, yama: Some(3), ..none },
            PtraceRefusal::Traced(7),
            "process 7",
        );
    }
}
