//! The names of session directories.

/// The name of a part's directory: that of the session, and from the second part on its number.
pub(super) fn part_name(session: &str, part: u32) -> String {
    match part {
        0 | 1 => session.into(),
        part => format!("{session}.{part}"),
    }
}

/// The name to take where `attempt` others (from 1) were taken already.
pub(super) fn another(name: &str, attempt: u32) -> String {
    match attempt {
        0 | 1 => name.into(),
        attempt => format!("{name}-{attempt}"),
    }
}

/// Whether a collector may have made this name: `YYYYMMDD-HHMMSS-N`, then perhaps `-K`, `.P`, or `.P-K`.
pub(super) fn is_session_name(name: &str) -> bool {
    let (session, part) = match name.split_once('.') {
        Some((session, part)) => (session, Some(part)),
        None => (name, None),
    };
    let mut fields = session.split('-');
    let date = fields.next().is_some_and(|field| field.len() == 8 && is_number(field));
    let time = fields.next().is_some_and(|field| field.len() == 6 && is_number(field));
    let rest = fields.clone().count();
    let part = part.is_none_or(|part| part.split('-').count() <= 2 && part.split('-').all(is_number));
    date && time && (rest == 1 || rest == 2) && fields.all(is_number) && part
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() <= 10 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A session's name as one that stays inside its directory. The collector's names all do.
pub(super) fn inside(name: &str) -> String {
    let clean: String = name.chars().map(|c| if c.is_alphanumeric() || "-_.+".contains(c) { c } else { '_' }).collect();
    match clean.starts_with('.') || clean.is_empty() {
        true => format!("_{clean}"),
        false => clean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_sessions_are_taken_for_such() {
        for name in ["20260101-120000-1", "20260101-120000-12-2", "20260101-120000-1.2", "20260101-120000-1-3.4-5"] {
            assert!(is_session_name(name), "{name}");
        }
        let others = ["", "notes", "20260101-120000", "20260101-120000-", "20260101-120000-a", "2026010-120000-1"];
        for name in others.into_iter().chain(["20260101-120000-1.", "20260101-120000-1.2.3", "20260101-120000-1-2-3"]) {
            assert!(!is_session_name(name), "{name}");
        }
    }

    #[test]
    fn a_name_stays_inside() {
        assert_eq!(inside("20260101-120000-1"), "20260101-120000-1");
        assert_eq!((inside("../x"), inside("/etc"), inside("")), ("_.._x".into(), "_etc".into(), "_".into()));
    }
}
