//! Several trees of one store, changed as one.

use spinney_tree::{PageStore, WriteSet};

use super::turns::Turn;
use super::{SumBatch, SumError, SumTree};

/// The root of one tree as a leaf of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nest {
    /// The number of the tree whose root it is.
    pub child: usize,
    /// The number of the tree that has the leaf: greater than the child's.
    pub parent: usize,
    /// The leaf's key.
    pub key: [u8; 32],
}

/// Applies a batch to each of several trees of one store, and commits all of them in one write set.
/// Where trees nest, the new root of a child is put into its parent, as its hash with its sum; a
/// child that is empty is deleted there.
///
/// ```
/// use spinney_state::sum::{Nest, SumBatch, SumTree, commit_together};
/// use spinney_tree::{MemoryStore, sum::{Leaf, Profile}};
///
/// let store = MemoryStore::new();
/// let open = |name| SumTree::create(&store, name, Profile::Compatible, 1 << 20);
/// let (mut issuance, mut all) = (open("issuance-1")?, open("multiverse")?);
/// let mut batch = SumBatch::new();
/// batch.put(&[1; 32], &Leaf { value: b"five".into(), sum: 5 });
/// commit_together(
///     &store,
///     &mut [(&mut issuance, batch), (&mut all, SumBatch::new())],
///     &[Nest { child: 0, parent: 1, key: [9; 32] }],
/// )?;
/// assert_eq!(all.get(&[9; 32])?, Some(issuance.as_leaf()));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a child does not come before its parent, any of the trees refuses its batch, or the store
/// fails. All trees are as they were then.
pub fn commit_together<P: PageStore>(
    store: &P,
    trees: &mut [(&mut SumTree<'_, P>, SumBatch)],
    nests: &[Nest],
) -> Result<(), SumError> {
    let count = trees.len();
    if let Some(Nest { child, parent, .. }) =
        nests.iter().find(|nest| nest.child >= nest.parent || nest.parent >= count)
    {
        return Err(SumError::Nesting { child: *child, parent: *parent, count });
    }
    let mut states = Vec::with_capacity(count);
    for index in 0..count {
        let (tree, batch) = &mut trees[index];
        let pending = tree.prepare(batch)?;
        let (root, profile) = (pending.root().node(), tree.profile());
        states.push(pending);
        for nest in nests.iter().filter(|nest| nest.child == index) {
            let batch = &mut trees[nest.parent].1;
            if root == profile.empty_node(0) {
                batch.delete(&nest.key);
            } else {
                batch.put(&nest.key, &root.into());
            }
        }
    }
    let _turn = Turn::of(trees.iter().map(|(tree, _)| tree.name()));
    trees.iter().try_for_each(|(tree, _)| tree.check_named())?;
    let mut set = WriteSet::new();
    let prepared: Result<Vec<_>, _> = trees
        .iter()
        .zip(&states)
        .map(|((tree, _), state)| tree.prepare_commit(state, &mut set))
        .collect();
    let prepared = prepared?;
    if !set.is_empty() {
        set.sort();
        store.commit(&set)?;
        for ((tree, _), prepared) in trees.iter_mut().zip(prepared) {
            tree.finalize(prepared);
        }
    }
    Ok(())
}
