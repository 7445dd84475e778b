//! `replay --archive` and `follow --archive`: an archive grows beside a store.

use std::sync::Arc;

use clap::Args;
use spinney_archive::{Archive, ArchiveError, GrowEvent, GrowOptions, Growing, place};
use spinney_store::AnyStore;

use super::opened::{check_whole, failure, unadded};
use crate::interrupt::Interrupt;
use crate::ui::Output;

#[derive(Clone, Debug, Args)]
pub(crate) struct GrowArgs {
    /// Add the blocks to an archive meanwhile, which is made if there is none: a directory, or a
    /// URL of a bucket. See archive build.
    #[arg(long, value_name = "ARCHIVE")]
    archive: Option<String>,
    /// Add so many blocks to the archive at a time. The store keeps the history of those that are
    /// not archived yet, whatever --keep-undo says.
    #[arg(long, value_name = "N", default_value_t = 64, requires = "archive")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    archive_every: u64,
    /// Leave out so many blocks before the last one: those that a reorganisation may take back.
    /// Without it, 64 of a chain that is followed, and none of one that is replayed.
    #[arg(long, value_name = "N", requires = "archive")]
    archive_behind: Option<u64>,
}

/// What fills the store, as far as its archive is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filling {
    /// So many blocks are left out unless told otherwise.
    pub(crate) behind: u64,
    /// Whether it ends where the archive cannot go on, and waits while its place fails; else that
    /// is a warning.
    pub(crate) ends: bool,
}

impl GrowArgs {
    /// The archive that is asked for, which has to be one that can grow.
    pub(crate) fn growing(&self, filling: Filling) -> anyhow::Result<Option<Growing>> {
        let Some(name) = &self.archive else { return Ok(None) };
        let objects = place(name).map_err(ArchiveError::from).map_err(failure)?;
        let last = match Archive::open(Arc::clone(&objects), 0) {
            Ok(archive) => {
                check_whole(&archive.manifest(), name, "no blocks are added to it")?;
                Some(archive.manifest().last)
            }
            Err(ArchiveError::Missing { .. }) => None,
            Err(error) => return Err(failure(error)),
        };
        let mut options = GrowOptions::default();
        options.behind = self.archive_behind.unwrap_or(filling.behind);
        (options.every, options.ends) = (self.archive_every, filling.ends);
        Ok(Some(Growing::new(objects, last, options)))
    }

    /// Does what fills a store, and lets its archive grow meanwhile, if there is one.
    pub(crate) fn beside<T>(
        &self,
        growing: Option<&Growing>,
        store: &AnyStore,
        (interrupt, output): (&Interrupt, &Output),
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let (Some(growing), Some(name)) = (growing, &self.archive) else { return work() };
        let warnings = output.warnings();
        let told = |event| match event {
            GrowEvent::Failed { error, pause } => warnings.add(&format!(
                "nothing is archived for now ({name}): {}; it is tried again in {} s",
                unadded(error),
                pause.as_secs()
            )),
            GrowEvent::Ended { error } => {
                let next = match error.is_of_place() {
                    true => "the next run goes on with it",
                    false => "the blocks from here on are not archived",
                };
                warnings.add(&format!("{name} does not grow: {:#}; {next}", unadded(error)));
            }
            _ => {}
        };
        let (done, grown) = growing.beside(store, interrupt.flag(), &told, work)?;
        done.and_then(|done| grown.map(|()| done).map_err(unadded))
    }
}
