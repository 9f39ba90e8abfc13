//! Places for the bodies of tests, and the protocol between a body's process and its test's.

use gantry_types::launch::HoldMethod;

/// In the environment of a test's own process: the name of its place.
pub(crate) const INNER: &str = "GANTRY_TEST_INNER_WLM";

/// A variable that selects one place of the bed by name, for example while a workload manager is ported.
const ONLY: &str = "GANTRY_TEST_PLACE";

/// How many ranks each node takes.
pub(crate) const CPUS: u16 = 32;

/// Where a test's body may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// For messages, and in the environment of the body's process.
    pub(crate) name: &'static str,
    /// The workload manager.
    pub(crate) wlm: &'static str,
    /// How ranks are held there.
    pub(crate) hold: HoldMethod,
}

impl Place {
    pub(crate) const fn new(name: &'static str, wlm: &'static str, hold: HoldMethod) -> Self {
        Self { name, wlm, hold }
    }

    /// Whether bodies are to run here.
    pub(crate) fn is_wanted(&self) -> bool {
        std::env::var(ONLY).map_or(true, |only| only == self.name)
    }
}

/// The places on a bed where bodies run.
pub(crate) const PLACES: [Place; 5] = [
    Place::new("slurm", "slurm", HoldMethod::Detect),
    Place::new("slurm by mpir", "slurm", HoldMethod::Mpir),
    Place::new("hosts", "ssh", HoldMethod::Detect),
    Place::new("pbs", "pbs", HoldMethod::Detect),
    Place::new("flux", "flux", HoldMethod::Detect),
];

/// The arguments that make a test binary run one test.
pub(crate) fn words(test: &str) -> [String; 4] {
    ["--exact", test, "--nocapture", "--test-threads=1"].map(str::to_owned)
}

#[track_caller]
pub(crate) fn assert_passed(test: &str, place: &str, passed: bool, text: &str) {
    assert!(passed, "{test} on {place}:\n{text}");
    assert!(text.contains("1 passed"), "no test is named {test}\n{text}");
}
