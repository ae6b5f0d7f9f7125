//! How durations are spread.

/// Counts numbers in buckets whose width grows with the numbers: up to 64 every number has its own, and beyond that every
/// doubling has 64. So a percentile is at most 1/64, or 1.6 %, above what it is.
#[derive(Debug, Clone, Default)]
pub(super) struct Histogram {
    /// The buckets that have something in them, in order.
    buckets: Vec<(u16, u64)>,
    count: u64,
    max: u64,
}

/// Buckets for each doubling, as a power of two.
const BITS: u32 = 6;

impl Histogram {
    pub(super) fn add(&mut self, value: u64) {
        let bucket = bucket(value);
        match self.buckets.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
            Ok(at) => {
                if let Some((_, count)) = self.buckets.get_mut(at) {
                    *count = count.saturating_add(1);
                }
            }
            Err(at) => self.buckets.insert(at, (bucket, 1)),
        }
        self.count = self.count.saturating_add(1);
        self.max = self.max.max(value);
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn max(&self) -> u64 {
        self.max
    }

    /// The number that so many thousandths of all numbers are not above.
    pub(super) fn percentile(&self, thousandths: u64) -> u64 {
        let rank = u128::from(self.count) * u128::from(thousandths);
        let rank = u64::try_from(rank.div_ceil(1000)).unwrap_or(u64::MAX).max(1);
        let mut seen = 0_u64;
        for (bucket, count) in &self.buckets {
            seen = seen.saturating_add(*count);
            if seen >= rank {
                return last_of(*bucket).min(self.max);
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
