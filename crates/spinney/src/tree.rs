//! A tree of a database, by its name.

use std::fmt;
use std::sync::Arc;

use spinney_tree::{PageStore, Value};

use crate::error::Error;
use crate::kind::TreeKind;
use crate::live::Core;
use crate::pending::{PendingState, TreeBatch};
use crate::view::View;

/// A tree of a database: see [`Database::tree`](crate::Database::tree). It is cheap to clone;
/// handles on one tree share its pages in memory.
pub struct DbTree<S: TreeKind, P: PageStore + 'static = crate::AnyStore> {
    core: Arc<Core<S, P>>,
}

impl<S: TreeKind, P: PageStore> Clone for DbTree<S, P> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core) }
    }
}

impl<S: TreeKind, P: PageStore> fmt::Debug for DbTree<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Core { name, scheme, .. } = &*self.core;
        f.debug_struct("DbTree").field("name", name).field("scheme", scheme).finish_non_exhaustive()
    }
}

impl<S: TreeKind, P: PageStore> DbTree<S, P> {
    pub(crate) const fn of(core: Arc<Core<S, P>>) -> Self {
        Self { core }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Its kind, with its hash.
    pub fn kind(&self) -> &S {
        &self.core.scheme
    }

    /// The root of the last commit.
    ///
    /// # Errors
    /// If the store fails, or the tree was dropped.
    pub fn root(&self) -> Result<S::Root, Error> {
        self.view().root()
    }

    /// The value of a key in the last commit.
    ///
    /// # Errors
    /// As those of [`View::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        self.view().get(key)
    }

    /// A view of the last commit. What is committed later does not change it.
    ///
    /// ```
    /// # use spinney::{Database, Mpt};
    /// let tree = Database::memory().tree::<Mpt>("accounts")?;
    /// tree.batch().put(b"doe", b"reindeer").prepare()?.commit()?;
    /// let before = tree.view();
    /// tree.batch().delete(b"doe").prepare()?.commit()?;
    /// assert_eq!(before.get(b"doe")?.as_deref(), Some(&b"reindeer"[..]));
    /// assert_eq!(tree.get(b"doe")?.as_deref(), None);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn view(&self) -> View<'_, S, P> {
        View::of(&self.core, None)
    }

    /// A view of a pending state. It is good for as long as that could be committed, and after it
    /// was, until another state is: then it says [`Error::Stale`].
    pub fn at(&self, pending: &PendingState<S, P>) -> View<'_, S, P> {
        View::of(&self.core, Some(pending.state().clone()))
    }

    /// Operations on the last commit, to be gathered.
    pub fn batch(&self) -> TreeBatch<S, P> {
        TreeBatch::on(Arc::clone(&self.core), None)
    }
}
