//! Reads keys from the terminal while this process owns it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

use super::keys::Key;
use super::shared::Shared;

/// How long handing over the keyboard may take.
const GLANCE: Duration = Duration::from_millis(100);

/// The most keys that wait for the receiver. More keys wait in the terminal.
const MOST_KEYS: usize = 64;

/// An event of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Typed {
    Key(Key),
    /// The terminal has another size.
    Resized,
}

/// A thread that reads keys until this is dropped. The stream ends when the terminal is gone.
#[derive(Debug)]
pub(crate) struct Keyboard(Arc<Shared<State>>);

#[derive(Debug, Default)]
struct State {
    is_paused: bool,
    is_reading: bool,
    is_over: bool,
}

impl Keyboard {
    /// Starts reading.
    ///
    /// # Errors
    /// The thread cannot start.
    pub(crate) fn open() -> io::Result<(Self, mpsc::Receiver<Typed>)> {
        let shared = Arc::new(Shared::default());
        let (send, typed) = mpsc::channel(MOST_KEYS);
        let read_by = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("keys".to_owned())
            .spawn(move || read_until_over(&read_by, &send))?;
        Ok((Self(shared), typed))
    }

    /// Leaves the keys to another program, until [`Keyboard::resume`].
    pub(crate) fn pause(&self) {
        self.0.change(|state| state.is_paused = true);
        drop(self.0.wait_while(|state| state.is_reading));
    }

    pub(crate) fn resume(&self) {
        self.0.change(|state| state.is_paused = false);
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        self.0.change(|state| state.is_over = true);
    }
}

fn read_until_over(shared: &Shared<State>, send: &mpsc::Sender<Typed>) {
    loop {
        {
            let mut state = shared.wait_while(|state| state.is_paused && !state.is_over);
            if state.is_over {
                return;
            }
            state.is_reading = true;
        }
        let read = read_one();
        shared.change(|state| state.is_reading = false);
        let has_receiver = match read {
            // Waits while the queue is full: a pasted line may be longer than the queue.
            Ok(Some(typed)) => send.blocking_send(typed).is_ok(),
            Ok(None) => !send.is_closed(),
            Err(_) => return,
        };
        if !has_receiver {
            return;
        }
    }
}

fn read_one() -> io::Result<Option<Typed>> {
    match event::poll(GLANCE)? {
        true => Ok(meaning_of(&event::read()?)),
        false => Ok(None),
    }
}

fn meaning_of(event: &Event) -> Option<Typed> {
    match event {
        Event::Resize(..) => Some(Typed::Resized),
        Event::Key(KeyEvent { kind: KeyEventKind::Release, .. }) => None,
        Event::Key(KeyEvent { code, modifiers, .. }) => key_of(*code, *modifiers).map(Typed::Key),
        _ => None,
    }
}

fn key_of(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
    if modifiers.contains(KeyModifiers::CONTROL) {
        return (code == KeyCode::Char('c')).then_some(Key::Interrupt);
    }
    Some(match code {
        KeyCode::Char(letter) => Key::Letter(letter),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Tab | KeyCode::BackTab => Key::Tab,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_meaning() {
        let check = |code, modifiers, expected: Option<Key>| {
            assert_eq!(meaning_of(&Event::Key(KeyEvent::new(code, modifiers))), expected.map(Typed::Key));
        };
        check(KeyCode::Char('H'), KeyModifiers::SHIFT, Some(Key::Letter('H')));
        check(KeyCode::Char('c'), KeyModifiers::CONTROL, Some(Key::Interrupt));
        check(KeyCode::Char('h'), KeyModifiers::CONTROL, None);
        check(KeyCode::F(1), KeyModifiers::NONE, None);
        check(KeyCode::BackTab, KeyModifiers::SHIFT, Some(Key::Tab));
        let mut up = KeyEvent::new(KeyCode::Up, KeyModifiers::NONE);
        up.kind = KeyEventKind::Release;
        assert_eq!(meaning_of(&Event::Key(up)), None);
        assert_eq!(meaning_of(&Event::Resize(1, 1)), Some(Typed::Resized));
    }
}
