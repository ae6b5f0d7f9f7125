//! Dispatch queues, which are known by their addresses and told by numbers.

use std::collections::HashMap;

/// The numbers of queues.
#[derive(Debug, Default)]
pub(super) struct Queues {
    by_address: HashMap<u64, Queue>,
    next: u64,
}

#[derive(Debug, Default)]
struct Queue {
    number: u64,
    label: Option<Box<str>>,
}

impl Queues {
    /// The number of the queue at an address.
    pub(super) fn number(&mut self, address: u64) -> u64 {
        let next = &mut self.next;
        let queue = self.by_address.entry(address).or_insert_with(|| {
            *next += 1;
            Queue { number: *next - 1, label: None }
        });
        queue.number
    }

    /// The queue at an address has a label. Its number, if that is news. A queue that had another label is gone, and this
    /// is another one in its place.
    pub(super) fn label(&mut self, address: u64, label: &str) -> Option<u64> {
        self.number(address);
        let queue = self.by_address.get_mut(&address)?;
        match queue.label.as_deref() {
            Some(known) if known == label => return None,
            Some(_) => {
                queue.number = self.next;
                self.next += 1;
            }
            None => {}
        }
        queue.label = Some(label.into());
        Some(queue.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_numbered_as_they_come() {
        let mut queues = Queues::default();
        assert_eq!((queues.number(0x1000), queues.number(0x2000), queues.number(0x1000)), (0, 1, 0));
        assert_eq!(queues.label(0x2000, "main"), Some(1));
        assert_eq!(queues.label(0x2000, "main"), None);
        assert_eq!(queues.label(0x3000, "new"), Some(2));
        // Freed, and another one made at the same address.
        assert_eq!(queues.label(0x2000, "other"), Some(3));
        assert_eq!(queues.number(0x2000), 3);
    }
}
