//! The terminal: switches to the alternate screen, lends the terminal to another program, and restores it.
//!
//! A thread draws, so a stopped terminal blocks nothing else. Leaving, signals other than SIGKILL, and drawing errors
//! all restore the terminal.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::queue;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use tokio::sync::oneshot;

use super::shared::Shared;
use crate::view::window_size;

/// The shortest time between two frames.
const FRAME: Duration = Duration::from_millis(50);

/// The timeout for the last write to the terminal.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// The size of a terminal that does not know its own.
const USUAL: (usize, usize) = (80, 24);

/// A terminal with a drawn screen, until this is dropped.
#[derive(Debug)]
pub(crate) struct Canvas {
    shared: Arc<Shared<State>>,
    terminal: File,
    before: Termios,
    /// The terminal is restored.
    is_left: bool,
}

#[derive(Debug, Default)]
struct State {
    is_dirty: bool,
    /// Another program has written to the terminal, so the next frame redraws everything.
    is_strange: bool,
    is_paused: bool,
    is_drawing: bool,
    is_over: bool,
}

impl Canvas {
    /// Takes a terminal. `paint` draws each frame. The receiver gets the reason when drawing ends; it gets nothing if
    /// this was dropped.
    ///
    /// # Errors
    /// It is not a terminal, or a thread cannot start.
    pub(crate) fn open(
        terminal: impl AsFd,
        paint: impl FnMut(Rect, &mut Buffer) + Send + 'static,
    ) -> io::Result<(Self, oneshot::Receiver<String>)> {
        let terminal = File::from(terminal.as_fd().try_clone_to_owned()?);
        let before = tcgetattr(&terminal)?;
        let shared = Arc::new(Shared::default());
        let mut canvas = Self { shared: Arc::clone(&shared), terminal, before, is_left: true };
        canvas.enter()?;
        let to = canvas.terminal.try_clone()?;
        let (tell, told) = oneshot::channel();
        std::thread::Builder::new().name("screen".to_owned()).spawn(move || {
            if let Some(why) = draw_until_over(&shared, to, paint) {
                // The receiver may have gone.
                drop(tell.send(why));
            }
        })?;
        Ok((canvas, told))
    }

    /// Requests a new frame.
    pub(crate) fn changed(&self) {
        self.shared.change(|state| state.is_dirty = true);
    }

    /// Lends the terminal to another program, until [`Canvas::resume`].
    pub(crate) fn pause(&mut self) {
        self.shared.change(|state| state.is_paused = true);
        self.leave();
    }

    /// Takes the terminal back.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        self.enter()?;
        self.shared.change(|state| {
            (state.is_paused, state.is_strange, state.is_dirty) = (false, true, true);
        });
        Ok(())
    }

    fn enter(&mut self) -> io::Result<()> {
        let mut raw = self.before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(&self.terminal, SetArg::TCSANOW, &raw)?;
        self.is_left = false;
        let mut begin = Vec::new();
        queue!(begin, EnterAlternateScreen, Hide)?;
        (&self.terminal).write_all(&begin)
    }

    /// Waits for the frame in progress, or until the reader is known to have stopped. Then restores the terminal.
    fn leave(&mut self) {
        if std::mem::replace(&mut self.is_left, true) {
            return;
        }
        let is_read = self.shared.wait_while_for(LAST_WRITE, |state| state.is_drawing);
        if let (true, Ok(mut to)) = (is_read, self.terminal.try_clone()) {
            let (done, told) = std::sync::mpsc::channel::<()>();
            std::thread::spawn(move || {
                let mut end = Vec::new();
                // The reader may have gone.
                drop(queue!(end, LeaveAlternateScreen, Show).and_then(|()| to.write_all(&end)));
                drop(done);
            });
            // The channel closes when the thread ends.
            told.recv_timeout(LAST_WRITE).unwrap_or_default();
        }
        // The terminal may be gone.
        tcsetattr(&self.terminal, SetArg::TCSANOW, &self.before).unwrap_or_default();
    }
}

impl Drop for Canvas {
    fn drop(&mut self) {
        self.shared.change(|state| state.is_over = true);
        self.leave();
    }
}

/// Draws frames until the end. Returns the reason.
fn draw_until_over(
    shared: &Shared<State>,
    to: File,
    mut paint: impl FnMut(Rect, &mut Buffer),
) -> Option<String> {
    let size = |file: &File| {
        let (columns, rows) = window_size(file).unwrap_or(USUAL);
        Rect::new(0, 0, u16::try_from(columns).unwrap_or(u16::MAX), u16::try_from(rows).unwrap_or(u16::MAX))
    };
    let asked = match to.try_clone() {
        Ok(asked) => asked,
        Err(error) => return Some(error.to_string()),
    };
    let mut area = size(&asked);
    let options = TerminalOptions { viewport: Viewport::Fixed(area) };
    let mut terminal = match Terminal::with_options(CrosstermBackend::new(to), options) {
        Ok(terminal) => terminal,
        Err(error) => return Some(error.to_string()),
    };
    loop {
        let is_strange = {
            let mut state = shared.wait_while(|state| !state.is_over && (state.is_paused || !state.is_dirty));
            if state.is_over {
                return None;
            }
            (state.is_dirty, state.is_drawing) = (false, true);
            std::mem::take(&mut state.is_strange)
        };
        let now = size(&asked);
        let drawn = catch_unwind(AssertUnwindSafe(|| {
            if is_strange || now != area {
                area = now;
                terminal.resize(area)?;
            }
            terminal.draw(|frame| paint(frame.area(), frame.buffer_mut())).map(drop)
        }));
        shared.change(|state| state.is_drawing = false);
        match drawn {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Some(format!("cannot write to the terminal: {error}")),
            Err(panic) => {
                let word = panic.downcast_ref::<&str>().map(|word| (*word).to_owned());
                let word = word.or_else(|| panic.downcast_ref::<String>().cloned());
                return Some(format!("drawing has failed: {}", word.unwrap_or_default()));
            }
        }
        // The frame rate is bounded, however many changes there are.
        shared.wait_while_for(FRAME, |state| !state.is_over);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::time::Instant;

    use nix::pty::{Winsize, openpty};
    use nix::sys::termios::LocalFlags;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    /// Both ends of a terminal.
    fn terminal() -> (File, OwnedFd) {
        let size = Winsize { ws_row: 5, ws_col: 20, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        (pty.master.into(), pty.slave)
    }

    /// Reads until a text has come.
    fn read_until(screen: &mut File, text: &str) -> String {
        let (until, mut all) = (Instant::now() + SOON, Vec::new());
        while !String::from_utf8_lossy(&all).contains(text) {
            assert!(Instant::now() < until, "{:?}", String::from_utf8_lossy(&all));
            let mut bytes = [0; 4096];
            let read = screen.read(&mut bytes).unwrap();
            all.extend(&bytes[..read]);
        }
        String::from_utf8_lossy(&all).into_owned()
    }

    fn is_raw(terminal: &OwnedFd) -> bool {
        !tcgetattr(terminal).unwrap().local_flags.contains(LocalFlags::ICANON)
    }

    fn paint(text: &'static str) -> impl FnMut(Rect, &mut Buffer) + Send {
        move |area, buffer| {
            assert_eq!((area.width, area.height), (20, 5));
            buffer.set_string(0, 0, text, ratatui::style::Style::new());
        }
    }

    #[test]
    fn a_terminal_is_given_over_and_back_as_it_was() {
        let (mut screen, slave) = terminal();
        let (mut canvas, told) = Canvas::open(&slave, paint("picture")).unwrap();
        canvas.changed();
        let shown = read_until(&mut screen, "picture");
        assert!(shown.contains("\x1b[?1049h") && shown.contains("\x1b[?25l") && is_raw(&slave), "{shown:?}");
        canvas.pause();
        read_until(&mut screen, "\x1b[?25h");
        assert!(!is_raw(&slave));
        canvas.changed();
        canvas.resume().unwrap();
        // Everything is redrawn, since another program may have written to the screen.
        read_until(&mut screen, "picture");
        assert!(is_raw(&slave));
        drop(canvas);
        // The drawing thread may show the cursor of the other screen before that.
        read_until(&mut screen, "\x1b[?1049l\x1b[?25h");
        told.blocking_recv().unwrap_err();
        assert!(!is_raw(&slave));
    }

    #[test]
    fn a_terminal_comes_back_when_drawing_fails() {
        let (mut screen, slave) = terminal();
        let (canvas, told) = Canvas::open(&slave, |_, _| panic!("no paint")).unwrap();
        canvas.changed();
        assert_eq!(told.blocking_recv().unwrap(), "drawing has failed: no paint");
        drop(canvas);
        read_until(&mut screen, "\x1b[?1049l");
        assert!(!is_raw(&slave));
    }

    #[test]
    fn a_terminal_without_a_reader_blocks_nothing() {
        let (screen, slave) = terminal();
        let mut turn = 0_usize;
        let (canvas, _told) = Canvas::open(&slave, move |_area, buffer| {
            turn += 1;
            for (at, cell) in buffer.content.iter_mut().enumerate() {
                cell.set_symbol(if (at + turn).is_multiple_of(2) { "x" } else { "y" });
            }
        })
        .unwrap();
        let until = Instant::now() + SOON;
        while !canvas.shared.lock().is_drawing || canvas.shared.lock().is_dirty {
            canvas.changed();
            assert!(Instant::now() < until);
        }
        let started = Instant::now();
        drop(canvas);
        assert!(started.elapsed() < SOON && !is_raw(&slave));
        drop(screen);
    }
}
