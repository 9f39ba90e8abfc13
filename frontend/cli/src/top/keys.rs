//! The meaning of each key.

use std::path::PathBuf;

use gantry_types::rank_set::RankSet;
use gantry_types::signal::Signal;

use super::model::{Action, Asks, Focus, Model, Prompt, Sort, Table};
use crate::stack::tree::{count, ranks_text};

/// The most letters that can be typed in a line.
const MOST_TYPED: usize = 1000;

/// How many rows a page of the keyboard is.
const PAGE: isize = 10;

/// A key of the keyboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Letter(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl-C.
    Interrupt,
}

/// The keys in the help, and their actions.
pub(crate) const HELP: [(&str, &str); 17] = [
    ("up, down, PgUp, PgDn, Home, End", "move"),
    ("Tab", "go between table and tree"),
    ("n", "nodes or ranks"),
    ("space", "mark a rank, a node or a class; Esc takes all marks away"),
    ("h, H", "hold by SIGSTOP the marked ranks, else those at the cursor; H: all that are shown"),
    ("g, G", "let go by SIGCONT; G: all that are shown"),
    ("s, S", "send a signal; S: to all that are shown"),
    ("Enter", "in the tree: show only the ranks of this line; once more: all"),
    ("/", "show only some ranks, such as 0-3,7"),
    ("o", "sort by the next column"),
    ("i", "sort the other way round"),
    ("r", "read the call paths anew"),
    ("d", "open 'gantry gdb' on the marked ranks, else on those at the cursor"),
    ("w", "write the tree as a page for a browser"),
    ("Esc", "show all ranks again, close this"),
    ("?", "this help"),
    ("q", "leave; ranks that are held stay held"),
];

impl Model {
    /// Handles a key. Returns an action for the caller.
    pub(crate) fn take_key(&mut self, key: Key) -> Option<Action> {
        if key == Key::Interrupt {
            return Some(Action::Quit);
        }
        if let Some(prompt) = self.prompt.take() {
            return self.type_at(prompt, key);
        }
        if self.shows_help {
            self.shows_help = false;
            return None;
        }
        self.message.clear();
        match key {
            Key::Up => self.step(-1),
            Key::Down => self.step(1),
            Key::PageUp => self.step(-PAGE),
            Key::PageDown => self.step(PAGE),
            Key::Home => self.step(isize::MIN),
            Key::End => self.step(isize::MAX),
            Key::Tab => self.focus = if self.focus == Focus::Table { Focus::Tree } else { Focus::Table },
            Key::Enter => self.choose_class(),
            Key::Escape => self.show_all(),
            Key::Letter(letter) => return self.take_letter(letter),
            Key::Backspace | Key::Interrupt => {}
        }
        None
    }

    fn take_letter(&mut self, letter: char) -> Option<Action> {
        match letter {
            'q' => return Some(Action::Quit),
            'r' => {
                self.is_looking = true;
                return Some(Action::Look);
            }
            'h' => return self.send(Signal::STOP, self.chosen()),
            'H' => return self.send(Signal::STOP, self.shown()),
            'g' => return self.send(Signal::CONT, self.chosen()),
            'G' => return self.send(Signal::CONT, self.shown()),
            's' => self.ask_signal(self.chosen()),
            'S' => self.ask_signal(self.shown()),
            'd' => {
                let ranks = self.chosen();
                if !ranks.is_empty() {
                    return Some(Action::Debug(ranks));
                }
                self.say("no rank is chosen");
            }
            'w' if self.found.is_some() => self.ask(Asks::Html, "stacks.html"),
            'w' => self.say("the call paths are not there yet"),
            '/' => {
                let ranks = self.filter.as_ref().map(ToString::to_string).unwrap_or_default();
                self.ask(Asks::Filter, &ranks);
            }
            'n' => {
                self.table = if self.table == Table::Ranks { Table::Nodes } else { Table::Ranks };
                self.cursor = Default::default();
                self.arrange();
            }
            'o' => {
                let next = Sort::ALL.iter().position(|sort| *sort == self.sort).map_or(0, |at| at + 1);
                self.sort = Sort::ALL[next % Sort::ALL.len()];
                self.arrange();
            }
            'i' => {
                self.is_reversed = !self.is_reversed;
                self.arrange();
            }
            ' ' => self.mark(),
            '?' => self.shows_help = true,
            'j' => self.step(1),
            'k' => self.step(-1),
            _ => {}
        }
        None
    }

    fn step(&mut self, by: isize) {
        match self.focus {
            Focus::Table => self.cursor.step(by, self.rows.len()),
            Focus::Tree => self.tree_cursor.step(by, self.tree.len()),
        }
    }

    fn mark(&mut self) {
        let here = self.at_cursor();
        let is_marked = !here.is_empty() && here.difference(&self.marked).is_empty();
        self.marked = if is_marked { self.marked.difference(&here) } else { self.marked.union(&here) };
        self.step(1);
    }

    fn choose_class(&mut self) {
        if self.focus != Focus::Tree {
            return;
        }
        let here = self.at_cursor();
        self.class = if self.class.as_ref() == Some(&here) { None } else { Some(here) };
        self.cursor = Default::default();
        self.arrange();
    }

    fn show_all(&mut self) {
        (self.filter, self.class) = (None, None);
        self.marked = RankSet::new();
        self.arrange();
    }

    fn send(&mut self, signal: Signal, ranks: RankSet) -> Option<Action> {
        if ranks.is_empty() {
            self.say("no rank is chosen");
            return None;
        }
        self.say(&format!("{signal} to {} [{}]", count(&ranks), ranks_text(&ranks, 60)));
        Some(Action::Signal(signal, ranks))
    }

    fn ask_signal(&mut self, ranks: RankSet) {
        match ranks.is_empty() {
            true => self.say("no rank is chosen"),
            false => self.ask(Asks::Signal(ranks), "TERM"),
        }
    }

    fn ask(&mut self, asks: Asks, text: &str) {
        self.prompt = Some(Prompt { asks, text: text.to_owned() });
    }

    /// Shows a message until the next key.
    pub(crate) fn say(&mut self, message: &str) {
        message.clone_into(&mut self.message);
    }

    fn type_at(&mut self, mut prompt: Prompt, key: Key) -> Option<Action> {
        match key {
            Key::Letter(letter) if prompt.text.len() < MOST_TYPED => prompt.text.push(letter),
            Key::Backspace => drop(prompt.text.pop()),
            Key::Escape => return None,
            Key::Enter => return self.take_line(prompt),
            _ => {}
        }
        self.prompt = Some(prompt);
        None
    }

    fn take_line(&mut self, prompt: Prompt) -> Option<Action> {
        let text = prompt.text.trim();
        match prompt.asks {
            Asks::Signal(ranks) => match text.parse::<Signal>() {
                Ok(signal) => return self.send(signal, ranks),
                Err(_) => self.say(&format!("no signal is called '{text}'")),
            },
            Asks::Filter if text.is_empty() => {
                self.filter = None;
                self.arrange();
            }
            Asks::Filter => match text.parse::<RankSet>() {
                Ok(ranks) => {
                    self.filter = Some(ranks);
                    self.cursor = Default::default();
                    self.arrange();
                }
                Err(_) => self.say(&format!("'{text}' are no ranks: write 0-3,7")),
            },
            Asks::Html if text.is_empty() => {}
            Asks::Html => return Some(Action::WriteHtml(PathBuf::from(text))),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::Figures;
    use super::super::figures::tests::{load, ranks};
    use super::*;
    use crate::stack::classes::tests::class;
    use crate::stack::report::Findings;

    fn model() -> Model {
        let mut figures = Figures::new(&ranks(8, 4));
        figures.take(&[load("R 100 500 1", "0-2,4-7"), load("S 3 900 1", "3")], &[]);
        let mut model = Model::new("app".to_owned(), figures);
        let classes = vec![
            class(&[("main", 9), ("solve", 40)], "3"),
            class(&[("main", 9), ("MPI_Wait", 0)], "0-2,4-7"),
        ];
        model.take_found(Findings { samples: 1, classes, ..Findings::default() });
        model
    }

    fn typed(model: &mut Model, text: &str) -> Option<Action> {
        text.chars().map(|letter| model.take_key(Key::Letter(letter))).last().flatten()
    }

    fn shown(model: &Model) -> String {
        model.shown().to_string()
    }

    #[test]
    fn keys_act_on_marks_else_on_the_cursor_and_capitals_on_all_that_is_shown() {
        let mut model = model();
        let stop = |ranks: &str| Some(Action::Signal(Signal::STOP, ranks.parse().unwrap()));
        assert_eq!(typed(&mut model, "h"), stop("0"));
        model.take_key(Key::Down);
        assert_eq!(typed(&mut model, "h"), stop("1"));
        typed(&mut model, "  ");
        assert_eq!(typed(&mut model, "h"), stop("1-2"));
        assert_eq!(typed(&mut model, "H"), stop("0-7"));
        assert_eq!(typed(&mut model, "g"), Some(Action::Signal(Signal::CONT, "1-2".parse().unwrap())));
        model.take_key(Key::Escape);
        assert_eq!((model.marked.len(), model.chosen().to_string().as_str()), (0, "3"));
        // A node selects all its ranks.
        typed(&mut model, "n");
        model.take_key(Key::End);
        assert_eq!(typed(&mut model, "h"), stop("4-7"));
    }

    #[test]
    fn a_line_of_the_tree_chooses_its_ranks() {
        let mut model = model();
        model.take_key(Key::Tab);
        model.take_key(Key::Down);
        model.take_key(Key::Enter);
        assert_eq!(shown(&model), "3");
        assert_eq!(typed(&mut model, "h"), Some(Action::Signal(Signal::STOP, "3".parse().unwrap())));
        model.take_key(Key::Enter);
        assert_eq!(shown(&model), "0-7");
        model.take_key(Key::Enter);
        model.take_key(Key::Escape);
        assert_eq!(shown(&model), "0-7");
        // New paths may have the same line at another place, with another text, or not at all.
        model.take_key(Key::Enter);
        let classes = vec![
            class(&[("main", 9), ("begin", 30)], "0"),
            class(&[("main", 9), ("solve", 40)], "3"),
            class(&[("main", 9), ("MPI_Wait", 0)], "1-2,4-7"),
        ];
        model.take_found(Findings { samples: 1, classes, ..Findings::default() });
        assert_eq!((shown(&model).as_str(), model.tree_cursor.at), ("3", 2));
        let classes = vec![
            class(&[("main", 9), ("solve", 44)], "3"),
            class(&[("main", 9), ("MPI_Wait", 0)], "0-2,4-7"),
        ];
        model.take_found(Findings { samples: 1, classes, ..Findings::default() });
        assert_eq!((shown(&model).as_str(), model.tree_cursor.at), ("3", 1));
        // Paths come without a key: a capital must not act on more ranks than the user sees.
        model.take_found(Findings::default());
        assert_eq!((shown(&model).as_str(), model.tree.len()), ("3", 0));
        assert_eq!(typed(&mut model, "h"), None);
        assert_eq!(model.message, "no rank is chosen");
        model.take_key(Key::Escape);
        assert_eq!(shown(&model), "0-7");
    }

    #[test]
    fn typed_lines_name_signals_ranks_and_files() {
        let mut model = model();
        typed(&mut model, "s");
        (0..4).for_each(|_| drop(model.take_key(Key::Backspace)));
        typed(&mut model, "usr1");
        let sent = model.take_key(Key::Enter);
        assert_eq!(sent, Some(Action::Signal("USR1".parse().unwrap(), "0".parse().unwrap())));
        typed(&mut model, "sX");
        assert_eq!(model.take_key(Key::Enter), None);
        assert_eq!(model.message, "no signal is called 'TERMX'");
        typed(&mut model, "s");
        model.take_key(Key::Escape);
        assert_eq!(model.prompt, None);
        typed(&mut model, "/2-5");
        model.take_key(Key::Enter);
        assert_eq!(shown(&model), "2-5");
        typed(&mut model, "/-x");
        model.take_key(Key::Enter);
        assert_eq!(model.message, "'2-5-x' are no ranks: write 0-3,7");
        typed(&mut model, "w");
        assert_eq!(model.take_key(Key::Enter), Some(Action::WriteHtml("stacks.html".into())));
        // A letter in a line is text, not a command. Ctrl-C stays a command.
        typed(&mut model, "/q");
        assert_eq!(model.take_key(Key::Interrupt), Some(Action::Quit));
    }

    #[test]
    fn rows_are_sorted_and_the_cursor_stays_at_its_rank() {
        let mut model = model();
        typed(&mut model, "ooo");
        assert_eq!((model.sort, model.rows[7]), (Sort::Cpu, 3));
        typed(&mut model, "o");
        assert_eq!((model.sort, model.rows[0]), (Sort::Memory, 3));
        typed(&mut model, "i");
        assert_eq!(model.rows[7], 3);
        model.take_key(Key::End);
        model.take_figures(|figures| figures.take(&[load("R 1 100 1", "3")], &[]));
        assert_eq!((model.cursor.at, model.rank_at_cursor().unwrap().rank.0), (0, 3));
        assert_eq!(typed(&mut model, "d"), Some(Action::Debug("3".parse().unwrap())));
    }

    #[test]
    fn gdb_is_opened_on_what_other_keys_act_on() {
        let debug = |ranks: &str| Some(Action::Debug(ranks.parse().unwrap()));
        let mut model = model();
        typed(&mut model, "jj");
        assert_eq!(typed(&mut model, "d"), debug("2"));
        // The lines are `main`, the odd rank, the others.
        model.take_key(Key::Tab);
        assert_eq!(typed(&mut model, "d"), debug("0-7"));
        assert_eq!(typed(&mut model, "jd"), debug("3"));
        assert_eq!(typed(&mut model, "jd"), debug("0-2,4-7"));
        // Marked ranks come before the cursor.
        assert_eq!(typed(&mut model, "k jd"), debug("3"));
    }

    #[test]
    fn the_help_knows_every_letter() {
        let mut unknown = model();
        for letter in "qrhHgGsSdw/noi ?".chars() {
            let word = if letter == ' ' { "space".to_owned() } else { letter.to_string() };
            let is_known = HELP.iter().any(|(keys, _)| keys.split(", ").any(|key| key == word));
            assert!(is_known, "{letter:?}");
        }
        typed(&mut unknown, "?");
        assert!(unknown.shows_help);
        assert_eq!(typed(&mut unknown, "q"), None);
        assert!(!unknown.shows_help);
    }
}
