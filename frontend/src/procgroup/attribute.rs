//! Attributes of groups and processes: the names in XML and the columns of tables.

/// An attribute of a group as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupAttribute {
    /// The submitter.
    Submitter,
    /// Its number.
    Pgid,
    /// How many processes it was started with.
    Totalprocs,
    /// Its state: starting, held, running, ended.
    State,
    /// The workload manager that runs it.
    Wlm,
    /// The id of its app.
    App,
    /// Its sessions so far.
    Session,
    /// Its exit code, when it has ended.
    ExitCode,
}

impl GroupAttribute {
    /// All of them, in the order in which they are written.
    pub const ALL: [Self; 8] = [
        Self::Submitter,
        Self::Pgid,
        Self::Totalprocs,
        Self::State,
        Self::Wlm,
        Self::App,
        Self::Session,
        Self::ExitCode,
    ];

    /// The attribute's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Submitter => "submitter",
            Self::Pgid => "pgid",
            Self::Totalprocs => "totalprocs",
            Self::State => "state",
            Self::Wlm => "wlm",
            Self::App => "app",
            Self::Session => "session",
            Self::ExitCode => "exit-code",
        }
    }

    /// Whether it is one number.
    #[must_use]
    pub fn is_number(self) -> bool {
        matches!(self, Self::Pgid | Self::Totalprocs | Self::ExitCode)
    }

    /// The attribute of that name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|attribute| attribute.name() == name)
    }
}

/// An attribute of one process of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProcessAttribute {
    /// Its pid on its host.
    Pid,
    /// Its program.
    Exec,
    /// Its host.
    Host,
    /// Its number in the group, from 0.
    Rank,
    /// Its state: starting, held, running, exited, lost.
    State,
}

impl ProcessAttribute {
    /// All of them, in the order in which they are written.
    pub const ALL: [Self; 5] = [Self::Pid, Self::Exec, Self::Host, Self::Rank, Self::State];

    /// The attribute's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pid => "pid",
            Self::Exec => "exec",
            Self::Host => "host",
            Self::Rank => "rank",
            Self::State => "state",
        }
    }

    /// Whether it is one number.
    #[must_use]
    pub fn is_number(self) -> bool {
        matches!(self, Self::Pid | Self::Rank)
    }

    /// The attribute of that name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|attribute| attribute.name() == name)
    }
}

/// The attributes of groups and processes in an answer. Without a process attribute it lists no processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Columns {
    group: u16,
    process: u16,
}

impl Columns {
    /// Everything.
    #[must_use]
    pub fn all() -> Self {
        let mut all = Self::default();
        GroupAttribute::ALL.into_iter().for_each(|attribute| all.add_group(attribute));
        ProcessAttribute::ALL.into_iter().for_each(|attribute| all.add_process(attribute));
        all
    }

    /// Adds an attribute.
    pub fn add_group(&mut self, attribute: GroupAttribute) {
        self.group |= 1 << attribute as u16;
    }

    /// Adds an attribute.
    pub fn add_process(&mut self, attribute: ProcessAttribute) {
        self.process |= 1 << attribute as u16;
    }

    /// The union of both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self { group: self.group | other.group, process: self.process | other.process }
    }

    /// Whether this attribute is included.
    #[must_use]
    pub fn has_group(self, attribute: GroupAttribute) -> bool {
        self.group & (1 << attribute as u16) != 0
    }

    /// Whether this attribute is included.
    #[must_use]
    pub fn has_process(self, attribute: ProcessAttribute) -> bool {
        self.process & (1 << attribute as u16) != 0
    }

    /// The attributes of a group, in the order of output.
    pub fn of_group(self) -> impl Iterator<Item = GroupAttribute> {
        GroupAttribute::ALL.into_iter().filter(move |attribute| self.has_group(*attribute))
    }

    /// The attributes of a process, in the order of output.
    pub fn of_process(self) -> impl Iterator<Item = ProcessAttribute> {
        ProcessAttribute::ALL.into_iter().filter(move |attribute| self.has_process(*attribute))
    }

    /// Whether processes are listed.
    #[must_use]
    pub fn lists_processes(self) -> bool {
        self.process != 0
    }
}
