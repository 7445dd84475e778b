//! Honest proofs, taken apart, changed in their parts and put together again: whatever holds says
//! the truth.
//!
//! Random bytes rarely come past a decoder. These changes keep the form: parts are swapped,
//! dropped, told twice, hung deeper or higher, said to be something else, put in another order, or
//! taken from a proof of another tree, and what depends on them is changed with them. The oracle is
//! the tree's entries.
//!
//! `SPINNEY_MUTATIONS` says how many changes are tried; the same number tries the same ones.

mod binary;
mod mpt;
mod sum;
mod verkle;

use crate::mutations::{Chance, Named, mutations};

/// How many changes are tried unless told otherwise.
const MUTATIONS: u64 = 20_000;

/// Proofs of one kind, and what is true of their trees.
trait Kind {
    /// Its name, and how many of 100 changes are tried on it.
    fn name(&self) -> (&'static str, usize);

    /// Every honest proof holds.
    fn check_honest(&self);

    /// Changes an honest proof and answers whether it holds still.
    ///
    /// # Panics
    /// If it holds and says what is not true.
    fn try_change(&self, chance: &mut Chance) -> bool;
}

#[test]
fn a_proof_changed_in_its_parts_is_refused_or_says_the_truth() {
    let kinds: [Box<dyn Kind>; 5] = [
        Box::new(mpt::Tries::new()),
        Box::new(binary::Trees::ubt()),
        Box::new(binary::Trees::pbt()),
        Box::new(verkle::Trees::new()),
        Box::new(sum::Trees::new()),
    ];
    kinds.iter().for_each(|kind| kind.check_honest());
    assert_eq!(kinds.iter().map(|kind| kind.name().1).sum::<usize>(), 100);
    let mut counts = [[0_u64; 2]; 5];
    let count = mutations(MUTATIONS);
    for number in 0..count {
        let _named = Named(number);
        let mut chance = Chance(number);
        let mut at = chance.below(100);
        let drawn = kinds.iter().zip(&mut counts).find(|(kind, _)| {
            let share = kind.name().1;
            let found = at < share;
            at = at.saturating_sub(share);
            found
        });
        let (kind, counts) = drawn.expect("shares add up");
        counts[usize::from(kind.try_change(&mut chance))] += 1;
    }
    for (kind, [refused, held]) in kinds.iter().zip(counts) {
        println!("{}: {refused} refused, {held} hold and say the truth", kind.name().0);
        assert!(refused > held, "{}: {refused} refused, {held} hold", kind.name().0);
    }
    println!("{count} changes: no false claim held");
}

/// One of a list, by chance; nothing of an empty one.
fn pick<'a, T>(chance: &mut Chance, list: &'a [T]) -> Option<&'a T> {
    list.get(chance.below(list.len()))
}

/// Changes the order, the number or one place of a list, of which any may be empty.
fn shuffle<T: Clone>(chance: &mut Chance, list: &mut Vec<T>, others: &[T]) {
    let (at, other) = (chance.below(list.len()), chance.below(list.len()));
    match chance.below(7) {
        0 | 1 if list.len() > 1 => list.swap(at, other),
        2 if !list.is_empty() => drop(list.remove(at)),
        3 if !list.is_empty() => list.insert(other, list[at].clone()),
        4 if list.len() > 1 => list[at] = list[other].clone(),
        5 if !list.is_empty() => {
            if let Some(foreign) = pick(chance, others) {
                list[at] = foreign.clone();
            }
        }
        _ => {
            if let Some(foreign) = pick(chance, others) {
                list.insert(at, foreign.clone());
            }
        }
    }
}
