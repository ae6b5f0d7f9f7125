//! How durations are spread.

/// Counts numbers in buckets whose width grows with the numbers: up to 64 every number has its own, and beyond that every
/// doubling has 64. So a percentile is at most 1/64, or 1.6 %, above what it is.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    /// The buckets of the last numbers. Of many histograms, each is in the processor's cache only now and then, and takes
    /// all of them at once.
    last: Vec<u16>,
    /// How many of the other numbers are in each bucket, by doubling.
    doublings: Vec<Option<Box<[u64; BUCKETS]>>>,
    count: u64,
    max: u64,
}

/// How many numbers are taken at once.
const AT_ONCE: usize = 64;

/// Buckets for each doubling, as a power of two.
const BITS: u32 = 6;

const BUCKETS: usize = 1 << BITS;

impl Histogram {
    /// Adds a number.
    pub fn add(&mut self, value: u64) {
        self.count = self.count.saturating_add(1);
        self.max = self.max.max(value);
        self.last.push(bucket(value));
        if self.last.len() == AT_ONCE {
            self.take_last();
        }
    }

    #[cold]
    fn take_last(&mut self) {
        for bucket in self.last.drain(..) {
            let (doubling, place) = (usize::from(bucket) / BUCKETS, usize::from(bucket) % BUCKETS);
            if self.doublings.len() <= doubling {
                self.doublings.resize(doubling + 1, None);
            }
            let buckets = self.doublings[doubling].get_or_insert_with(|| Box::new([0; BUCKETS]));
            buckets[place] = buckets[place].saturating_add(1);
        }
    }

    /// How many numbers there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The largest of them.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The number that so many thousandths of all numbers are not above.
    pub fn percentile(&self, thousandths: u64) -> u64 {
        let rank = u128::from(self.count) * u128::from(thousandths);
        let rank = u64::try_from(rank.div_ceil(1000)).unwrap_or(u64::MAX).max(1);
        let mut all = self.clone();
        all.take_last();
        let buckets = all.doublings.iter().zip(0..).flat_map(|(buckets, doubling)| {
            let first: u16 = doubling << BITS;
            buckets.iter().flat_map(move |buckets| (first..).zip(buckets.iter().copied()))
        });
        let mut seen = 0_u64;
        for (bucket, count) in buckets {
            seen = seen.saturating_add(count);
            if seen >= rank {
                return last_of(bucket).min(self.max);
            }
        }
        self.max
    }
}

fn bucket(value: u64) -> u16 {
    let doubling = (u64::BITS - value.leading_zeros()).saturating_sub(BITS + 1);
    // At most 58 doublings of 64 buckets each, behind the first.
    u16::try_from((u64::from(doubling) << BITS) + (value >> doubling)).unwrap_or(u16::MAX)
}

/// The largest number of a bucket.
fn last_of(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    let doubling = (bucket >> BITS).saturating_sub(1);
    let mantissa = bucket - (doubling << BITS);
    ((mantissa + 1) << doubling).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_in_a_bucket_that_is_narrow() {
        for value in (0..64).map(|bit| 1_u64 << bit).flat_map(|power| [power - 1, power, power + power / 3]) {
            let last = last_of(bucket(value));
            assert!(value <= last && last - value <= value / 64, "{value} {last}");
        }
        assert_eq!(last_of(bucket(u64::MAX)), u64::MAX);
    }

    #[test]
    fn percentiles_are_near_what_they_are() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(500), 0);
        (1..=100_000).for_each(|value| histogram.add(value * 17));
        for (thousandths, expected) in [(500, 850_000), (950, 1_615_000), (990, 1_683_000), (1000, 1_700_000)] {
            let found = histogram.percentile(thousandths);
            assert!((expected..=expected + expected / 64).contains(&found), "{thousandths}: {found}");
        }
        assert_eq!((histogram.count(), histogram.max()), (100_000, 1_700_000));
    }
}
