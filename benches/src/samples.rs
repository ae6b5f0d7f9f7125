//! Figures of several rounds.

/// Figures of the same thing, one for each round.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds the figure of another round.
    pub fn push(&mut self, figure: f64) {
        self.0.push(figure);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The one in the middle. Not a number where there are none.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The lowest one. Not a number where there are none.
    pub fn lowest(&self) -> f64 {
        self.0.iter().copied().min_by(f64::total_cmp).unwrap_or(f64::NAN)
    }

    /// Each divided by what the other was in the same round.
    pub fn by(&self, other: &Self) -> Self {
        self.0.iter().zip(&other.0).map(|(one, other)| one / other).collect()
    }

    /// Each less what the other was in the same round.
    pub fn less(&self, other: &Self) -> Self {
        self.0.iter().zip(&other.0).map(|(one, other)| one - other).collect()
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<T: IntoIterator<Item = f64>>(figures: T) -> Self {
        Self(figures.into_iter().collect())
    }
}

/// A figure with so many digits behind the point, or a dash where there is none.
pub fn figure(value: f64, digits: usize) -> String {
    if value.is_finite() { format!("{value:.digits$}") } else { "–".into() }
}

/// A figure beside what it should be at most.
pub fn at_most(value: f64, most: f64) -> String {
    match value.is_finite() {
        true => format!("{value:.2} (≤ {most}: {})", if value <= most { "met" } else { "**not met**" }),
        false => "–".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_the_same_round() {
        let (one, two): (Samples, Samples) =
            ([4.0, 9.0, 2.0].into_iter().collect(), [2.0, 3.0, 4.0].into_iter().collect());
        assert_eq!((one.median(), one.lowest()), (4.0, 2.0));
        assert_eq!(one.by(&two).median(), 2.0);
        assert_eq!(one.less(&two).lowest(), -2.0);
        assert_eq!(figure(Samples::default().median(), 1), "–");
        assert_eq!(at_most(0.5, 0.35), "0.50 (≤ 0.35: **not met**)");
    }
}
