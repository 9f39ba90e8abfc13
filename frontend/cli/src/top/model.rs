//! What the screen shows, and what changes it. It knows neither terminal nor network.

use std::cmp::Reverse;
use std::path::PathBuf;

use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;
use gantry_types::signal::Signal;

use super::figures::{Figures, NodeFigures, RankFigures};
use crate::stack::report::Findings;
use crate::stack::text::{TreeLine, tree_lines};

/// The whole of what is shown.
#[derive(Debug, Default)]
pub(crate) struct Model {
    /// What the app is called, as it was typed, by its id and its WLM.
    pub(crate) title: String,
    pub(crate) figures: Figures,
    /// The call paths of the last look.
    pub(crate) found: Option<Findings>,
    pub(crate) tree: Vec<TreeLine>,
    /// They are being read.
    pub(crate) is_looking: bool,
    pub(crate) table: Table,
    pub(crate) focus: Focus,
    pub(crate) sort: Sort,
    pub(crate) is_reversed: bool,
    /// Only these ranks.
    pub(crate) filter: Option<RankSet>,
    /// Only those of a line of the tree.
    pub(crate) class: Option<RankSet>,
    /// Ranks that are chosen, whichever row the cursor is at.
    pub(crate) marked: RankSet,
    /// The rows of the table, by their places in the figures.
    pub(crate) rows: Vec<usize>,
    pub(crate) cursor: Cursor,
    pub(crate) tree_cursor: Cursor,
    pub(crate) prompt: Option<Prompt>,
    pub(crate) message: String,
    pub(crate) shows_help: bool,
    pub(crate) has_ended: bool,
}

/// What the table has in its rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Table {
    #[default]
    Ranks,
    Nodes,
}

/// Where keys act.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Focus {
    #[default]
    Table,
    Tree,
}

/// The column that rows are sorted by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    #[default]
    Rank,
    Host,
    State,
    Cpu,
    Memory,
}

impl Sort {
    pub(crate) const ALL: [Self; 5] = [Self::Rank, Self::Host, Self::State, Self::Cpu, Self::Memory];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Rank => "rank",
            Self::Host => "host",
            Self::State => "state",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }
}

/// A row that is chosen, and the first one that is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) at: usize,
    pub(crate) first: usize,
}

impl Cursor {
    /// Moves it, within so many rows.
    pub(crate) fn step(&mut self, by: isize, rows: usize) {
        self.at = self.at.saturating_add_signed(by).min(rows.saturating_sub(1));
    }

    /// The first row of a page that has the chosen one.
    pub(crate) fn first_of(&self, height: usize) -> usize {
        let lowest = (self.at + 1).saturating_sub(height);
        self.first.clamp(lowest, self.at.max(lowest))
    }
}

/// A line that is being typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prompt {
    pub(crate) asks: Asks,
    pub(crate) text: String,
}

/// What it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asks {
    /// The name of a signal for ranks.
    Signal(RankSet),
    /// Which ranks are shown.
    Filter,
    /// The file for the page with the tree.
    Html,
}

/// What is to be done outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Quit,
    /// Reads the call paths anew.
    Look,
    Signal(Signal, RankSet),
    /// A debugger for a rank.
    Debug(Rank),
    WriteHtml(PathBuf),
}

impl Model {
    pub(crate) fn new(title: String, figures: Figures) -> Self {
        let mut model = Self { title, figures, ..Self::default() };
        model.arrange();
        model
    }

    /// Takes new figures.
    pub(crate) fn take_figures(&mut self, change: impl FnOnce(&mut Figures)) {
        let chosen = self.chosen_row();
        change(&mut self.figures);
        self.arrange();
        // The cursor stays at its rank, wherever that stands now.
        if let Some(at) = chosen.and_then(|row| self.rows.iter().position(|it| *it == row)) {
            self.cursor.at = at;
        }
    }

    /// Takes new call paths. The cursor stays at its line, and the class that was chosen stays chosen, where they are still there.
    pub(crate) fn take_found(&mut self, found: Findings) {
        let before = self.tree.get(self.tree_cursor.at).map(|line| line.text.clone());
        self.tree = tree_lines(&found);
        self.found = Some(found);
        self.is_looking = false;
        let same = self.tree.iter().position(|line| Some(&line.text) == before.as_ref());
        self.tree_cursor.at = same.unwrap_or_default();
        self.class = self.class.take().filter(|class| self.tree.iter().any(|line| line.ranks == *class));
        self.arrange();
    }

    /// The rows that are to be shown, in their order.
    pub(crate) fn arrange(&mut self) {
        let sets: Vec<&RankSet> = [&self.filter, &self.class].into_iter().flatten().collect();
        let figures = &self.figures;
        let mut rows: Vec<usize> = match self.table {
            Table::Ranks => {
                let is_shown = |at: &usize| sets.iter().all(|set| set.contains(figures.ranks[*at].rank));
                (0..figures.ranks.len()).filter(is_shown).collect()
            }
            Table::Nodes => {
                let is_shown =
                    |at: &usize| sets.iter().all(|set| !set.is_disjoint(&figures.nodes[*at].ranks));
                (0..figures.nodes.len()).filter(is_shown).collect()
            }
        };
        // Of rows that are alike the first one stays first.
        match (self.table, self.sort) {
            (Table::Ranks, Sort::Rank) => {}
            (Table::Ranks, Sort::Host) => rows.sort_by_key(|at| figures.ranks[*at].node),
            (Table::Ranks, Sort::State) => rows.sort_by_key(|at| figures.ranks[*at].load.doing),
            (Table::Ranks, Sort::Cpu) => rows.sort_by_key(|at| Reverse(figures.ranks[*at].load.cpu_percent)),
            (Table::Ranks, Sort::Memory) => {
                rows.sort_by_key(|at| Reverse(figures.ranks[*at].load.memory_kib))
            }
            (Table::Nodes, Sort::Rank | Sort::State) => {
                rows.sort_by_key(|at| figures.nodes[*at].ranks.first())
            }
            (Table::Nodes, Sort::Host) => {
                rows.sort_by(|a, b| figures.nodes[*a].host.cmp(&figures.nodes[*b].host))
            }
            (Table::Nodes, Sort::Cpu) => rows.sort_by_key(|at| Reverse(figures.nodes[*at].cpu_percent)),
            (Table::Nodes, Sort::Memory) => rows.sort_by_key(|at| Reverse(figures.nodes[*at].memory_kib)),
        }
        if self.is_reversed {
            rows.reverse();
        }
        self.rows = rows;
        self.cursor.step(0, self.rows.len());
    }

    /// The rank at the cursor, in the table of ranks.
    pub(crate) fn rank_at_cursor(&self) -> Option<&RankFigures> {
        self.chosen_row().filter(|_| self.table == Table::Ranks).map(|row| &self.figures.ranks[row])
    }

    fn node_at_cursor(&self) -> Option<&NodeFigures> {
        self.chosen_row().filter(|_| self.table == Table::Nodes).map(|row| &self.figures.nodes[row])
    }

    fn chosen_row(&self) -> Option<usize> {
        self.rows.get(self.cursor.at).copied()
    }

    /// The ranks that a key acts on: those that are marked, else what the cursor is at.
    pub(crate) fn chosen(&self) -> RankSet {
        if !self.marked.is_empty() {
            return self.marked.clone();
        }
        self.at_cursor()
    }

    /// The ranks that the cursor is at.
    pub(crate) fn at_cursor(&self) -> RankSet {
        if self.focus == Focus::Tree {
            return self.tree.get(self.tree_cursor.at).map(|line| line.ranks.clone()).unwrap_or_default();
        }
        match (self.rank_at_cursor(), self.node_at_cursor()) {
            (Some(rank), _) => [rank.rank].into_iter().collect(),
            (_, Some(node)) => node.ranks.clone(),
            (None, None) => RankSet::new(),
        }
    }

    /// All ranks that are shown.
    pub(crate) fn shown(&self) -> RankSet {
        match self.table {
            Table::Ranks => self.rows.iter().map(|at| self.figures.ranks[*at].rank).collect(),
            Table::Nodes => {
                self.rows.iter().fold(RankSet::new(), |all, at| all.union(&self.figures.nodes[*at].ranks))
            }
        }
    }
}
