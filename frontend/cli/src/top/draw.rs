//! Draws the model. The work is bounded by the size of the screen: only visible ranks are examined.

use gantry_stack::load::Doing;
use gantry_types::foreign::ForeignText;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::figures::{NodeFigures, RANK_HEADS, describe_doing, describe_load, describe_memory};
use super::keys::HELP;
use super::model::{Asks, Focus, Model, Table};
use crate::stack::text::title;
use crate::stack::tree::ranks_text;

/// Lines above the table and at the bottom.
const ABOVE: u16 = 2;
const BELOW: u16 = 1;

/// A lower screen has no room for a tree.
const LEAST_FOR_TREE: u16 = 12;

const KEYS: &str = "? help  h hold  g go  s signal  Tab tree  Enter class  / ranks  n nodes  o sort  r read  d gdb  w html  q quit";

/// The areas of table and tree on a screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parts {
    table: Rect,
    tree: Rect,
}

impl Parts {
    /// The headings of table and tree are their first lines.
    pub(crate) fn of(area: Rect) -> Self {
        let left = area.height.saturating_sub(ABOVE + BELOW);
        let tree = if area.height < LEAST_FOR_TREE { 0 } else { left / 2 };
        let table = left - tree;
        Self {
            table: Rect { y: area.y + ABOVE.min(area.height), height: table, ..area },
            tree: Rect { y: area.y + (ABOVE + table).min(area.height), height: tree, ..area },
        }
    }

    fn rows(part: Rect) -> usize {
        usize::from(part.height.saturating_sub(1))
    }
}

/// Scrolls the lists so that the cursors are visible.
pub(crate) fn follow_cursors(model: &mut Model, area: Rect) {
    let parts = Parts::of(area);
    model.cursor.first = model.cursor.first_of(Parts::rows(parts.table).max(1));
    model.tree_cursor.first = model.tree_cursor.first_of(Parts::rows(parts.tree).max(1));
}

/// Draws the whole model. Returns how many rows of the lists were examined.
pub(crate) fn draw(model: &Model, area: Rect, buffer: &mut Buffer) -> usize {
    let parts = Parts::of(area);
    draw_head(model, area, buffer);
    let rows = draw_table(model, parts.table, buffer) + draw_tree(model, parts.tree, buffer);
    draw_foot(model, area, buffer);
    if model.shows_help {
        draw_help(area, buffer);
    }
    rows
}

fn draw_head(model: &Model, area: Rect, buffer: &mut Buffer) {
    let (cpu, memory) = model.figures.total();
    let (ranks, nodes) = (model.figures.ranks.len(), model.figures.nodes.len());
    let end = if model.has_ended { ": it has ended" } else { "" };
    put(buffer, area, 0, &format!("{}{end}", model.title), bold());
    let doing = describe_doing(&model.figures.doing());
    let many = if nodes == 1 { "" } else { "s" };
    let missing = match model.figures.missing.as_slice() {
        [] => String::new(),
        [(host, _)] => format!("; no answer from {host}"),
        some => format!("; no answer from {} nodes", some.len()),
    };
    let counts = format!(
        "{ranks} ranks on {nodes} node{many}: {doing}; cpu {cpu}%, memory {}{missing}",
        describe_memory(memory)
    );
    put(buffer, area, 1, &counts, Style::new());
}

fn draw_table(model: &Model, area: Rect, buffer: &mut Buffer) -> usize {
    let order = if model.is_reversed { ", reversed" } else { "" };
    let mut head = match model.table {
        Table::Ranks => rank_row(RANK_HEADS.map(str::to_owned)),
        Table::Nodes => {
            node_row(["NODE", "RANKS", "CPU%", "MEM", "LOAD", "FREE", "DAEMONS", "STATES"].map(str::to_owned))
        }
    };
    // Rows begin with the column of marks.
    head.insert(0, ' ');
    head.push_str(&format!("  [by {}{order}", model.sort.as_str()));
    if let Some(filter) = &model.filter {
        head.push_str(&format!("; only {}", ranks_text(filter, 30)));
    }
    if let Some(class) = &model.class {
        head.push_str(&format!("; class {}", ranks_text(class, 30)));
    }
    head.push(']');
    put(buffer, area, 0, &head, head_style(model.focus == Focus::Table));
    let height = Parts::rows(area);
    let shown = model.rows.iter().enumerate().skip(model.cursor.first).take(height);
    let mut count = 0;
    for (line, (at, row)) in shown.enumerate() {
        let (text, style, is_marked) = match model.table {
            Table::Ranks => {
                let rank = &model.figures.ranks[*row];
                (
                    rank_row(model.figures.cells(rank).map(|cell| safe(&cell))),
                    doing_style(rank.load.doing),
                    model.marked.contains(rank.rank),
                )
            }
            Table::Nodes => {
                let node = &model.figures.nodes[*row];
                (describe_node(node), Style::new(), !node.ranks.is_disjoint(&model.marked))
            }
        };
        let is_here = at == model.cursor.at && model.focus == Focus::Table;
        let mark = if is_marked { "*" } else { " " };
        put(buffer, area, row_of(line), &format!("{mark}{text}"), row_style(style, is_here));
        count += 1;
    }
    count
}

fn rank_row([rank, host, pid, state, cpu, memory, threads, program]: [String; 8]) -> String {
    format!("{rank:>7} {host:<16.16} {pid:>8} {state:<9} {cpu:>6} {memory:>6} {threads:>4} {program}")
}

fn node_row([node, ranks, cpu, memory, load, free, daemons, states]: [String; 8]) -> String {
    format!("{node:<16.16} {ranks:>6} {cpu:>7} {memory:>6} {load:>11} {free:>6} {daemons:>7}  {states}")
}

fn describe_node(node: &NodeFigures) -> String {
    let (load, free) = node.machine.map_or_else(
        || ("-".to_owned(), "-".to_owned()),
        |machine| {
            let load = format!("{} of {}", describe_load(machine), machine.processors);
            (load, describe_memory(machine.available_kib))
        },
    );
    node_row([
        safe(&node.host),
        node.ranks.len().to_string(),
        node.cpu_percent.to_string(),
        describe_memory(node.memory_kib),
        load,
        free,
        node.daemons.to_string(),
        describe_doing(&node.doing),
    ])
}

fn draw_tree(model: &Model, area: Rect, buffer: &mut Buffer) -> usize {
    let head = match (&model.found, model.is_looking) {
        (_, true) => "call paths: they are being read".to_owned(),
        (None, false) => "call paths: r reads them".to_owned(),
        (Some(found), false) => format!("call paths: {}", title(found)),
    };
    put(buffer, area, 0, &head, head_style(model.focus == Focus::Tree));
    let shown = model.tree.iter().enumerate().skip(model.tree_cursor.first).take(Parts::rows(area));
    let mut count = 0;
    for (line, (at, it)) in shown.enumerate() {
        let is_here = at == model.tree_cursor.at && model.focus == Focus::Tree;
        let is_marked = !model.marked.is_empty() && it.ranks.difference(&model.marked).is_empty();
        let mark = if is_marked { "*" } else { " " };
        put(buffer, area, row_of(line), &format!("{mark}{}", it.text), row_style(Style::new(), is_here));
        count += 1;
    }
    count
}

fn draw_foot(model: &Model, area: Rect, buffer: &mut Buffer) {
    let text = match &model.prompt {
        Some(prompt) => {
            let what = match &prompt.asks {
                Asks::Signal(ranks) => format!("signal for {}", ranks_text(ranks, 40)),
                Asks::Filter => "show only ranks".to_owned(),
                Asks::Html => "write to".to_owned(),
            };
            format!("{what}: {}_", prompt.text)
        }
        None if model.message.is_empty() => KEYS.to_owned(),
        None => model.message.clone(),
    };
    let is_said = model.prompt.is_some() || !model.message.is_empty();
    let style = if is_said { bold() } else { Style::new().add_modifier(Modifier::DIM) };
    put(buffer, area, area.height.saturating_sub(1), &text, style);
}

fn draw_help(area: Rect, buffer: &mut Buffer) {
    let width = HELP.iter().map(|(keys, _)| keys.len()).max().unwrap_or_default();
    let rows = HELP.iter().map(|(keys, what)| format!("  {keys:width$}  {what}"));
    let all = std::iter::once("  keys".to_owned()).chain(rows).chain([String::new()]);
    for (line, text) in all.enumerate() {
        let at = row_of(line);
        if at < area.height {
            put(buffer, area, at, &text, if line == 0 { bold() } else { Style::new() });
        }
    }
}

/// Puts a text on a whole line of an area. It cuts long texts and escapes control characters.
fn put(buffer: &mut Buffer, area: Rect, line: u16, text: &str, style: Style) {
    if line >= area.height || area.width == 0 {
        return;
    }
    let y = area.y + line;
    let place = Rect { y, height: 1, ..area };
    buffer.set_style(place, Style::reset());
    let width = usize::from(area.width);
    let (end, _) = buffer.set_stringn(area.x, y, safe(text), width, style);
    let blank = usize::from((area.x + area.width).saturating_sub(end));
    buffer.set_stringn(end, y, " ".repeat(blank), blank, style);
}

/// The text without terminal control characters.
fn safe(text: &str) -> String {
    ForeignText::from(text).to_string()
}

fn row_of(line: usize) -> u16 {
    u16::try_from(line + 1).unwrap_or(u16::MAX)
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn head_style(has_focus: bool) -> Style {
    if has_focus {
        bold().add_modifier(Modifier::UNDERLINED)
    } else {
        Style::new().add_modifier(Modifier::UNDERLINED)
    }
}

fn row_style(style: Style, is_here: bool) -> Style {
    if is_here { style.add_modifier(Modifier::REVERSED) } else { style }
}

fn doing_style(doing: Doing) -> Style {
    match doing {
        Doing::Running | Doing::Sleeping => Style::new(),
        Doing::Waiting | Doing::Stopped | Doing::Held => Style::new().fg(Color::Yellow),
        Doing::Zombie | Doing::Ended | Doing::Unknown => Style::new().fg(Color::Red),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gantry_stack::load::HostLoad;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::figures::Figures;
    use super::super::figures::tests::{load, ranks};
    use super::super::keys::Key;
    use super::*;
    use crate::stack::classes::tests::class;
    use crate::stack::report::Findings;

    fn model() -> Model {
        let mut figures = Figures::new(&ranks(6, 4));
        let machine =
            HostLoad { processors: 8, load_percent: 305, memory_kib: 64 << 20, available_kib: 32 << 20 };
        let loads = [load("R 100 120000 1", "0-2,4"), load("T 0 90000 5", "3"), load("E - 0 0", "5")];
        figures.take(&loads, &[(machine, "0".parse().unwrap())]);
        let mut model = Model::new("gantry top 1234.0: /bin/heat".to_owned(), figures);
        let classes = vec![
            class(&[("main", 9), ("solve", 40)], "3"),
            class(&[("main", 9), ("exchange", 12), ("MPI_Wait", 0)], "0-2,4"),
        ];
        model.take_found(Findings {
            samples: 1,
            classes,
            programs: ["/bin/heat".to_owned()].into(),
            ..Findings::default()
        });
        model
    }

    /// The screen as lines, and the inverse lines among them.
    fn screen(model: &mut Model, width: u16, height: u16) -> (Vec<String>, Vec<u16>) {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| {
                follow_cursors(model, frame.area());
                draw(model, frame.area(), frame.buffer_mut());
            })
            .unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        let is_reversed = |y: &u16| buffer[(0, *y)].modifier.contains(Modifier::REVERSED);
        ((0..height).map(line).collect(), (0..height).filter(is_reversed).collect())
    }

    #[test]
    fn the_screen_has_ranks_above_and_their_call_paths_below() {
        let (lines, reversed) = screen(&mut model(), 100, 18);
        let expected = [
            "gantry top 1234.0: /bin/heat",
            "6 ranks on 2 nodes: 4 running, 1 stopped, 1 ended; cpu 400%, memory 557M",
            "    RANK HOST                  PID STATE       CPU%    MEM  THR PROGRAM  [by rank]",
            "       0 n000                 4000 running      100   117M    1 /bin/heat",
            "       1 n000                 4001 running      100   117M    1 /bin/heat",
            "       2 n000                 4002 running      100   117M    1 /bin/heat",
            "       3 n000                 4003 stopped        0    88M    5 /bin/heat",
            "       4 n001                 4004 running      100   117M    1 /bin/heat",
            "       5 n001                 4005 ended          -     0K    0 /bin/heat",
            "",
            "call paths: 5 ranks in 2 classes",
            " main (heat.c:9) [0-4]",
            " ├─ solve (heat.c:40) [3]",
            " └─ exchange (heat.c:12) > MPI_Wait [0-2,4]",
            "",
            "",
            "",
            "? help  h hold  g go  s signal  Tab tree  Enter class  / ranks  n nodes  o sort  r read  d gdb  w ht",
        ];
        assert_eq!(lines, expected);
        assert_eq!(reversed, [3]);
    }

    #[test]
    fn nodes_have_their_sums_and_their_machines() {
        let mut model = model();
        model.take_key(Key::Letter('n'));
        let (lines, _) = screen(&mut model, 100, 14);
        let expected = [
            " NODE              RANKS    CPU%    MEM        LOAD   FREE DAEMONS  STATES  [by rank]",
            " n000                  4     300   439M   3.05 of 8    32G       0  3 running, 1 stopped",
            " n001                  2     100   117M           -      -       0  1 running, 1 ended",
        ];
        assert_eq!(lines[2..5], expected);
    }

    #[test]
    fn the_tree_the_prompt_and_the_help_have_the_keys() {
        let mut model = model();
        model.take_key(Key::Tab);
        model.take_key(Key::Down);
        model.take_key(Key::Letter(' '));
        let (lines, reversed) = screen(&mut model, 80, 18);
        assert_eq!(reversed, [13]);
        assert!(lines[12].starts_with("*├─ solve") && lines[6].starts_with("*      3 n000"), "{lines:?}");
        model.take_key(Key::Letter('s'));
        assert_eq!(screen(&mut model, 80, 18).0[17], "signal for 3: TERM_");
        model.take_key(Key::Escape);
        model.take_key(Key::Letter('?'));
        let (lines, _) = screen(&mut model, 80, 24);
        assert_eq!(lines[1], "  keys");
        assert!(lines[18].contains("leave; ranks that are held stay held"), "{lines:?}");
    }

    #[test]
    fn no_name_is_obeyed_and_no_size_is_too_small() {
        let mut some = ranks(1, 1);
        some[0].host = "n\x1b[2J1".to_owned();
        some[0].exe = "/a\x07\u{202e}b".to_owned();
        let mut model = Model::new("top\x1b]0;x".to_owned(), Figures::new(&some));
        model.figures.missing = vec![("n\x1b1".to_owned(), String::new())];
        let mut odd = class(&[("f\x1b[1m", 0)], "0");
        odd.steps[0].module = None;
        model.take_found(Findings { samples: 1, classes: vec![odd], ..Findings::default() });
        let (lines, _) = screen(&mut model, 120, 14);
        assert!(lines.iter().all(|line| !line.contains(['\x1b', '\x07', '\u{202e}'])), "{lines:?}");
        assert!(lines[0].contains("top\\x1b]0;x") && lines[3].contains("n\\x1b[2J1"), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("f\\x1b[1m")), "{lines:?}");
        for (width, height) in [(0, 0), (1, 1), (3, 2), (80, 3), (10, 13), (1, 40)] {
            screen(&mut model, width, height);
            model.take_key(Key::Letter('?'));
            screen(&mut model, width, height);
        }
    }

    #[test]
    fn ten_thousand_ranks_cost_a_screen_and_no_more() {
        let mut figures = Figures::new(&ranks(10_000, 50));
        let every = |doing: &str, from: u32| {
            let set = (0..10_000).filter(|rank| rank % 4 == from).map(gantry_types::id::Rank).collect();
            (gantry_stack::load::Load::parse(&format!("{doing} {from} 1000 1")).unwrap(), set)
        };
        figures.take(&[every("R", 0), every("S", 1), every("D", 2), every("T", 3)], &[]);
        let mut model = Model::new("top".to_owned(), figures);
        let area = Rect::new(0, 0, 160, 50);
        let mut buffer = Buffer::empty(area);
        let started = std::time::Instant::now();
        const FRAMES: u32 = 600;
        let mut rows = 0;
        for _ in 0..FRAMES {
            model.take_key(Key::PageDown);
            follow_cursors(&mut model, area);
            rows += draw(&model, area, &mut buffer);
        }
        // Ten a second, on any machine that runs tests.
        assert!(started.elapsed() < Duration::from_millis(100) * FRAMES, "{:?}", started.elapsed());
        assert_eq!(model.cursor.at, 6000);
        assert_eq!(rows, FRAMES as usize * Parts::rows(Parts::of(area).table));
    }
}
