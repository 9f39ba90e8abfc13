//! The content of the screen, and its changes. It knows neither terminal nor network.

use std::cmp::Reverse;
use std::path::PathBuf;

use gantry_types::rank_set::RankSet;
use gantry_types::signal::Signal;

use super::figures::{Figures, NodeFigures, RankFigures};
use crate::stack::report::Findings;
use crate::stack::text::{TreeLine, tree_lines};

/// All content of the screen.
#[derive(Debug, Default)]
pub(crate) struct Model {
    /// The app's name as it was typed, its id and its WLM.
    pub(crate) title: String,
    pub(crate) figures: Figures,
    /// The call paths of the last look.
    pub(crate) found: Option<Findings>,
    pub(crate) tree: Vec<TreeLine>,
    /// A look is in progress.
    pub(crate) is_looking: bool,
    pub(crate) table: Table,
    pub(crate) focus: Focus,
    pub(crate) sort: Sort,
    pub(crate) is_reversed: bool,
    /// Show only these ranks.
    pub(crate) filter: Option<RankSet>,
    /// Show only the ranks of one line of the tree.
    pub(crate) class: Option<RankSet>,
    /// Ranks that the user marked, wherever the cursor is.
    pub(crate) marked: RankSet,
    /// The rows of the table, as indexes into the figures.
    pub(crate) rows: Vec<usize>,
    pub(crate) cursor: Cursor,
    pub(crate) tree_cursor: Cursor,
    pub(crate) prompt: Option<Prompt>,
    pub(crate) message: String,
    pub(crate) shows_help: bool,
    pub(crate) has_ended: bool,
}

/// The kind of rows in the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Table {
    #[default]
    Ranks,
    Nodes,
}

/// The part of the screen that keys act on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Focus {
    #[default]
    Table,
    Tree,
}

/// The column that sorts the rows.
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

/// The chosen row, and the first visible row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) at: usize,
    pub(crate) first: usize,
}

impl Cursor {
    /// Moves the cursor within this many rows.
    pub(crate) fn step(&mut self, by: isize, rows: usize) {
        self.at = self.at.saturating_add_signed(by).min(rows.saturating_sub(1));
    }

    /// The first row of the page with the chosen row.
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

/// The purpose of a typed line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asks {
    /// The name of a signal for ranks.
    Signal(RankSet),
    /// The ranks to show.
    Filter,
    /// The file for the page with the tree.
    Html,
}

/// An action for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Quit,
    /// Reads the call paths again.
    Look,
    Signal(Signal, RankSet),
    /// Opens the debugger of these ranks.
    Debug(RankSet),
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
        // The cursor follows its rank to its new row.
        if let Some(at) = chosen.and_then(|row| self.rows.iter().position(|it| *it == row)) {
            self.cursor.at = at;
        }
    }

    /// Takes new call paths. They come at any time, so keys must still act on the same ranks: the cursor stays at its
    /// line, else at a line with the same ranks, else at its place. The chosen class stays until the user takes it away.
    pub(crate) fn take_found(&mut self, found: Findings) {
        let before = self.tree.get(self.tree_cursor.at).cloned();
        self.tree = tree_lines(&found);
        self.found = Some(found);
        self.is_looking = false;
        let same = before.and_then(|before| {
            let line = |is_same: &dyn Fn(&TreeLine) -> bool| self.tree.iter().position(is_same);
            line(&|it| it.text == before.text).or_else(|| line(&|it| it.ranks == before.ranks))
        });
        match same {
            Some(at) => self.tree_cursor.at = at,
            None => self.tree_cursor.step(0, self.tree.len()),
        }
        self.arrange();
    }

    /// Sorts and filters the rows.
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
        // The sort is stable: equal rows keep their order.
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

    /// The ranks that a key acts on: the marked ones, else those at the cursor.
    pub(crate) fn chosen(&self) -> RankSet {
        if !self.marked.is_empty() {
            return self.marked.clone();
        }
        self.at_cursor()
    }

    /// The ranks at the cursor.
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

    /// All visible ranks.
    pub(crate) fn shown(&self) -> RankSet {
        match self.table {
            Table::Ranks => self.rows.iter().map(|at| self.figures.ranks[*at].rank).collect(),
            Table::Nodes => {
                self.rows.iter().fold(RankSet::new(), |all, at| all.union(&self.figures.nodes[*at].ranks))
            }
        }
    }
}
