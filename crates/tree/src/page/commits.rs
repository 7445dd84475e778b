//! What leaves of a page commit to that its row does not say.
//!
//! The writer tells most pages all of these commitments. So they lie side by side, and the page
//! that takes a page's place gets them by one copy. A page that was read from a store is told none:
//! whoever computes one notes it here for all who come after.

use std::sync::OnceLock;

use spinney_hash::prefetch;

/// The commitments of a page's leaves that its row does not keep, by number.
#[derive(Debug)]
pub(super) struct LeafCommits<C> {
    /// As the page was made; empty if nothing was told.
    told: Box<[Option<C>]>,
    /// Those that somebody had to compute later, once there is one.
    learned: OnceLock<Box<[OnceLock<C>]>>,
    count: u16,
    /// Whether there are some that were not told.
    open: bool,
}

impl<C: Copy> LeafCommits<C> {
    /// So many, of which nothing is told.
    pub(super) fn unknown(count: u16) -> Self {
        Self { told: Box::default(), learned: OnceLock::new(), count, open: count > 0 }
    }

    pub(super) fn told(told: Box<[Option<C>]>) -> Self {
        let open = told.iter().any(Option::is_none);
        Self { count: told.len() as u16, told, learned: OnceLock::new(), open }
    }

    /// The same, but for those in `news`, by number. A number that no leaf has changes nothing.
    pub(super) fn renewed(&self, news: impl Iterator<Item = (u16, C)>) -> Self {
        let mut news = news.filter(|(number, _)| *number < self.count).peekable();
        if self.told.is_empty() && self.learned.get().is_none() && news.peek().is_none() {
            return Self::unknown(self.count);
        }
        let mut told = match self.open {
            false => self.told.clone(),
            true => (0..self.count).map(|number| self.get(number)).collect(),
        };
        for (number, commit) in news {
            if let Some(known) = told.get_mut(usize::from(number)) {
                *known = Some(commit);
            }
        }
        Self::told(told)
    }

    /// How many there are, known or not.
    pub(super) const fn count(&self) -> u16 {
        self.count
    }

    /// Whether none is known.
    pub(super) fn is_unknown(&self) -> bool {
        self.told.is_empty() && self.learned.get().is_none()
    }

    #[inline]
    pub(super) fn get(&self, number: u16) -> Option<C> {
        let number = usize::from(number);
        match self.told.get(number) {
            Some(told @ Some(_)) => *told,
            _ => self.learned.get()?.get(number)?.get().copied(),
        }
    }

    /// Notes one that was not told.
    pub(super) fn learn(&self, number: u16, commit: C) {
        if !self.open || self.get(number).is_some() {
            return;
        }
        let unknown = || (0..self.count).map(|_| OnceLock::new()).collect();
        if let Some(place) = self.learned.get_or_init(unknown).get(usize::from(number)) {
            // Somebody else may have been faster: it is the same.
            let _ = place.set(commit);
        }
    }

    /// Bytes of memory, those counted that it may come to take.
    pub(super) fn bytes(&self) -> usize {
        let learned = if self.open { usize::from(self.count) } else { 0 };
        size_of_val(&*self.told).saturating_add(learned.saturating_mul(size_of::<OnceLock<C>>()))
    }

    /// Asks for all that is known.
    pub(super) fn fetch(&self) {
        prefetch(&self.told);
        self.learned.get().into_iter().for_each(|learned| prefetch(learned));
    }

    /// Asks for one; answers whether there is such a number, and something is known.
    pub(super) fn fetch_one(&self, number: u16) -> bool {
        let number = usize::from(number);
        if let Some(told) = self.told.get(number) {
            prefetch(std::slice::from_ref(told));
            return true;
        }
        let learned = self.learned.get().and_then(|learned| learned.get(number));
        learned.into_iter().for_each(|learned| prefetch(std::slice::from_ref(learned)));
        learned.is_some()
    }
}
