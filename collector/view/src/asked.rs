//! What a request asks for.

use std::{collections::HashMap, str::FromStr};

use crate::refusal::Refusal;

/// How many rows may be asked for at once.
const MOST_ROWS: usize = 256;

/// The part of an address behind `?`.
#[derive(Debug, Default)]
pub(crate) struct Asked(pub(crate) HashMap<String, String>);

impl Asked {
    /// A text, if it is there.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// A text that has to be there.
    pub(crate) fn needed(&self, key: &str) -> Result<&str, Refusal> {
        self.text(key).ok_or_else(|| Refusal::Wrong(format!("`{key}` is missing")))
    }

    /// A number, if it is there.
    pub(crate) fn number<T: FromStr>(&self, key: &str) -> Result<Option<T>, Refusal> {
        let parse = |text: &str| text.parse().map_err(|_| Refusal::Wrong(format!("`{key}` is not a number that fits")));
        self.text(key).map(parse).transpose()
    }

    /// A number that has to be there.
    pub(crate) fn needed_number<T: FromStr>(&self, key: &str) -> Result<T, Refusal> {
        self.needed(key)?;
        self.number(key)?.ok_or_else(|| Refusal::Wrong(format!("`{key}` is missing")))
    }

    /// How many things are wanted: as many as are asked for, and not more than `most`.
    pub(crate) fn limit(&self, usual: usize, most: usize) -> Result<usize, Refusal> {
        match self.number("limit")? {
            Some(limit) if limit > most => Err(Refusal::TooMuch(format!("`limit` may be {most} at most"))),
            limit => Ok(limit.unwrap_or(usual)),
        }
    }

    /// A part of the time, or else all of it.
    pub(crate) fn range(&self, all: (u64, u64)) -> Result<(u64, u64), Refusal> {
        let from = self.number("from")?.unwrap_or(all.0);
        // The last thing is in it.
        let to = self.number("to")?.unwrap_or_else(|| all.1.saturating_add(1));
        if from >= to {
            return Err(Refusal::Wrong("`from` has to be before `to`".into()));
        }
        Ok((from, to))
    }

    /// Some rows, if they are named, with commas between them.
    pub(crate) fn rows(&self) -> Result<Option<Vec<u32>>, Refusal> {
        let Some(text) = self.text("rows").filter(|text| !text.is_empty()) else { return Ok(None) };
        let rows: Result<Vec<u32>, _> = text.split(',').map(str::parse).collect();
        let rows = rows.map_err(|_| Refusal::Wrong("`rows` are numbers with commas between them".into()))?;
        if rows.len() > MOST_ROWS {
            return Err(Refusal::TooMuch(format!("`rows` may be {MOST_ROWS} at most")));
        }
        let mut rows = rows;
        rows.sort_unstable();
        rows.dedup();
        Ok(Some(rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(parts: &[(&str, &str)]) -> Asked {
        Asked(parts.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect())
    }

    #[test]
    fn what_is_wrong_is_refused_with_words() {
        let is_wrong = |refusal: Option<Refusal>| matches!(refusal, Some(Refusal::Wrong(_)));
        assert!(is_wrong(asked(&[("from", "5"), ("to", "5")]).range((0, 9)).err()));
        assert!(is_wrong(asked(&[("from", "-1")]).range((0, 9)).err()));
        assert!(is_wrong(asked(&[("from", "99999999999999999999")]).range((0, 9)).err()));
        assert!(is_wrong(asked(&[("rows", "1,x")]).rows().err()));
        assert!(is_wrong(asked(&[]).needed("q").err()));
        assert!(is_wrong(asked(&[("limit", "many")]).limit(1, 2).err()));
        let many = vec!["1"; MOST_ROWS + 1].join(",");
        assert!(matches!(asked(&[("rows", &many)]).rows(), Err(Refusal::TooMuch(_))));
        assert!(matches!(asked(&[("limit", "3")]).limit(1, 2), Err(Refusal::TooMuch(_))));
    }

    #[test]
    fn what_is_not_said_is_all() {
        assert_eq!(asked(&[]).range((3, 9)), Ok((3, 10)));
        assert_eq!(asked(&[("to", "5")]).range((3, 9)), Ok((3, 5)));
        assert_eq!(asked(&[("rows", "0,7")]).rows(), Ok(Some(vec![0, 7])));
        assert_eq!(asked(&[]).limit(5, 9), Ok(5));
        assert_eq!(asked(&[]).range((0, u64::MAX)), Ok((0, u64::MAX)));
    }
}
