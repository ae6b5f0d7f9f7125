//! What text is printed on: a terminal has so many columns, and colours.

use std::{
    borrow::Cow,
    env,
    io::{self, IsTerminal},
};

/// What standard output leads to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Screen {
    /// How many columns it has; a file has no end of them.
    columns: Option<usize>,
    has_colours: bool,
}

/// How something stands out.
#[derive(Debug, Clone, Copy)]
pub(super) enum Style {
    /// The head of a table.
    Head,
    /// What matters less.
    Dim,
    /// What is missing or went wrong.
    Alarm,
}

/// No name is cut shorter than this: columns are left out for it, and where none are left, the line gets too long.
const LEAST_NAME: usize = 16;

impl Screen {
    pub(super) fn of_stdout() -> Self {
        if !io::stdout().is_terminal() {
            return Self::default();
        }
        let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        let columns = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_col));
        Self { columns: Some(columns).filter(|columns| *columns > 0), has_colours: !is_dumb && !is_set("NO_COLOR") }
    }

    /// How many lines a terminal has.
    pub(super) fn lines() -> Option<usize> {
        let lines = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_row));
        Some(lines).filter(|lines| *lines > 0)
    }

    /// Whether a line of so many columns fits, and a name of some length behind it.
    pub(super) fn has_room(&self, columns: usize) -> bool {
        self.columns.is_none_or(|all| columns + LEAST_NAME * 2 <= all)
    }

    /// Whether a name is not cut too short behind so many columns.
    pub(super) fn has_room_for_name(&self, columns: usize) -> bool {
        self.columns.is_none_or(|all| columns + LEAST_NAME <= all)
    }

    /// How far something is indented behind so many columns that should be so far.
    pub(super) fn indent(&self, wanted: usize, taken: usize) -> usize {
        self.columns.map_or(wanted, |all| wanted.min(all.saturating_sub(taken + LEAST_NAME)))
    }

    /// A name, behind so many columns of the line and before so many: if it is too long, without its middle.
    fn fit<'a>(&self, name: &'a str, taken: usize) -> Cow<'a, str> {
        let Some(columns) = self.columns else { return name.into() };
        let (room, long) = (columns.saturating_sub(taken).max(LEAST_NAME), name.chars().count());
        if long <= room {
            return name.into();
        }
        // Names begin with where they are from and end with what they are.
        let end = (room - 1) / 2;
        let head = name.chars().take(room - 1 - end);
        head.chain(['…']).chain(name.chars().skip(long - end)).collect::<String>().into()
    }

    /// A line with a name in it, which is cut first; what is too long even so is cut at its end.
    pub(super) fn line(&self, head: &str, name: &str, tail: &str, style: Style) -> String {
        let wide = |text: &str| text.chars().count();
        let name = self.fit(name, wide(head) + wide(tail));
        match self.columns {
            Some(columns) if wide(head) + wide(&name) + wide(tail) > columns => {
                let whole = [head, &name, tail].concat();
                whole.chars().take(columns - 1).chain(['…']).collect()
            }
            _ => [head, &name, &self.paint(tail, style)].concat(),
        }
    }

    pub(super) fn paint<'a>(&self, text: &'a str, style: Style) -> Cow<'a, str> {
        let code = match style {
            _ if !self.has_colours || text.is_empty() => return text.into(),
            Style::Head => 1,
            Style::Dim => 2,
            Style::Alarm => 31,
        };
        format!("\x1b[{code}m{text}\x1b[0m").into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_loses_its_middle_and_fits() {
        let screen = Screen { columns: Some(40), has_colours: false };
        assert_eq!(screen.fit("short", 20), "short");
        assert_eq!(screen.fit("std::vector<int>::push_back(int)", 20), "std::vecto…back(int)");
        assert_eq!(screen.fit("äöü".repeat(20).as_str(), 10).chars().count(), 30);
        assert_eq!(screen.fit(&"x".repeat(99), 39).chars().count(), LEAST_NAME, "what is too short says nothing");
        assert_eq!(Screen::default().fit(&"x".repeat(99), 0).len(), 99, "files have room");
        assert!(screen.has_room_for_name(24) && !screen.has_room_for_name(25));
        assert_eq!([screen.indent(2, 20), screen.indent(60, 20), screen.indent(60, 39)], [2, 4, 0]);
        assert_eq!(Screen::default().indent(60, 99), 60);
        let line = screen.line(&" ".repeat(30), "a_name", &"y".repeat(30), Style::Dim);
        assert_eq!((line.chars().count(), line.chars().last()), (40, Some('…')));
    }

    #[test]
    fn only_what_has_colours_gets_any() {
        let screen = Screen { columns: None, has_colours: true };
        assert_eq!(screen.paint("x", Style::Alarm), "\x1b[31mx\x1b[0m");
        assert_eq!(Screen::default().paint("x", Style::Alarm), "x");
    }
}
