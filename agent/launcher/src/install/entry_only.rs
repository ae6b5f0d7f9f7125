//! Functions of a module whose returns are not seen.

/// How many bytes of one list are told at a time: a limit has to fit into a datagram.
const MOST_BYTES: usize = 200;

/// Functions that are hooked only at their entry, by their places in the module's table.
#[derive(Debug, Clone, Default)]
pub(crate) struct EntryOnly {
    indices: Vec<u32>,
    /// Whether it is all of them that are hooked at all.
    all: bool,
}

impl EntryOnly {
    /// Says whether these are all that are hooked at all.
    pub(super) fn are_all(&mut self, all: bool) {
        self.all = all;
    }

    /// One more. They come in order.
    pub(super) fn add(&mut self, index: u32) {
        self.indices.push(index);
    }

    /// Whether a function is one of them.
    pub(crate) fn contains(&self, index: u32) -> bool {
        self.indices.binary_search(&index).is_ok()
    }

    pub(crate) fn len(&self) -> usize {
        self.indices.len()
    }

    /// What is told of them: `all functions`, or `functions 3,7-9`, each with how many these are.
    pub(crate) fn details(&self) -> Vec<(usize, String)> {
        if self.indices.is_empty() || self.all {
            return self.indices.first().map(|_| (self.len(), "all functions".into())).into_iter().collect();
        }
        let mut details: Vec<(usize, String)> = Vec::new();
        for range in self.indices.chunk_by(|one, next| one + 1 == *next) {
            let (Some(first), Some(last)) = (range.first(), range.last()) else { continue };
            let text = if first == last { first.to_string() } else { format!("{first}-{last}") };
            match details.last_mut() {
                Some((count, list)) if list.len() + text.len() < MOST_BYTES => {
                    *count += range.len();
                    list.push(',');
                    list.push_str(&text);
                }
                _ => details.push((range.len(), format!("functions {text}"))),
            }
        }
        details
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(indices: impl IntoIterator<Item = u32>) -> EntryOnly {
        EntryOnly { indices: indices.into_iter().collect(), all: false }
    }

    #[test]
    fn neighbours_are_ranges() {
        assert_eq!(of([3, 7, 8, 9, 11]).details(), [(5, "functions 3,7-9,11".into())]);
        assert_eq!(of([]).details(), []);
        assert_eq!(EntryOnly { indices: vec![1, 2], all: true }.details(), [(2, "all functions".into())]);
    }

    #[test]
    fn a_long_list_is_told_in_parts_that_fit() {
        let details = of((0..2000).map(|index| index * 2)).details();
        assert!(details.len() > 10 && details.iter().all(|(_, list)| list.len() <= MOST_BYTES + 12));
        assert_eq!(details.iter().map(|(count, _)| count).sum::<usize>(), 2000);
        let told = |list: &str| list.strip_prefix("functions ").map_or(0, |list| list.split(',').count());
        assert!(details.iter().all(|(count, list)| told(list) == *count));
    }
}
