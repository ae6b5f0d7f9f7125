//! How far numbers lie apart.

/// The mean of numbers, and how far they lie from it, told as they come.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spread {
    count: u64,
    mean: f64,
    /// The sum of the squares of how far each is from the mean.
    squares: f64,
}

impl Spread {
    /// Adds a number.
    pub fn add(&mut self, value: u64) {
        self.count = self.count.saturating_add(1);
        let before = value as f64 - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value as f64 - self.mean);
    }

    /// Adds all numbers of another.
    pub fn absorb(&mut self, other: &Self) {
        let (one, two) = (self.count as f64, other.count as f64);
        if other.count > 0 {
            let apart = other.mean - self.mean;
            self.count = self.count.saturating_add(other.count);
            self.mean += apart * two / (one + two);
            self.squares += other.squares + apart * apart * one * two / (one + two);
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// How far the sum of so many numbers is from what it would be on average, squared. None where there are too few to
    /// tell.
    pub fn variance_of_sum(&self) -> Option<f64> {
        let less = self.count.checked_sub(1).filter(|less| *less > 0)?;
        Some(self.squares / less as f64 * self.count as f64)
    }
}

/// By how many standard errors a mean is off at most in nineteen cases of twenty, after Student, for one to ten degrees of
/// freedom. Few numbers may lie close together by chance, and say less of how far others are.
const STUDENT: [f64; 10] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23];

/// The same for any number of degrees of freedom from one on.
pub(crate) fn student(freedom: f64) -> f64 {
    let place = freedom.floor().max(1.0) as usize - 1;
    STUDENT.get(place).copied().unwrap_or(2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_that_of_all_numbers_however_they_came() {
        let numbers = [4, 7, 13, 16, 1_000_000];
        let (mut all, mut first, mut last) = (Spread::default(), Spread::default(), Spread::default());
        numbers.iter().for_each(|number| all.add(*number));
        numbers[..2].iter().for_each(|number| first.add(*number));
        numbers[2..].iter().for_each(|number| last.add(*number));
        first.absorb(&last);
        first.absorb(&Spread::default());
        assert_eq!((first.count(), all.count()), (5, 5));
        assert!((first.mean() - all.mean()).abs() < 1e-6 && (all.mean() - 200_008.0).abs() < 1e-6);
        let [one, other] = [first, all].map(|spread| spread.variance_of_sum().expect("enough"));
        assert!((one - other).abs() < 1.0, "{one} {other}");
        let mut few = Spread::default();
        few.add(3);
        assert_eq!(few.variance_of_sum(), None, "one number says nothing of others");
        few.add(5);
        assert_eq!(few.variance_of_sum(), Some(4.0));
    }
}
