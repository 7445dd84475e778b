//! What an error means: how the command ends, and what to do about it, by its causes.

use std::error::Error as StdError;
use std::io::{self, ErrorKind};

use spinney_migrate::{CatchUpError, FileError, MigrateError};
use spinney_postgres::{ServerError, Why};
use spinney_replay::{
    DiffReplayError, GenesisError, ReplayError, SourceError, SszError, WitnessError,
    WitnessFileError,
};
use spinney_state::StateError;
use spinney_state::embed::EmbedError;
use spinney_tree::{StoreError, TreeError};

use crate::failure::{Exit, Failure};

type Replaying = ReplayError<StateError>;
type Diffing = DiffReplayError<StateError>;

pub(crate) fn exit_of(cause: &(dyn StdError + 'static)) -> Option<Exit> {
    if let Some(failure) = cause.downcast_ref::<Failure>() {
        return Some(failure.exit);
    }
    if let Some(WitnessError::Check(_) | WitnessError::Header { .. }) = cause.downcast_ref() {
        return Some(Exit::No);
    }
    if let Some(CatchUpError::List { .. } | CatchUpError::Stranger { .. }) = cause.downcast_ref() {
        return Some(Exit::No);
    }
    if cause.downcast_ref().is_some_and(is_refusal) {
        return Some(Exit::No);
    }
    if let Some(StateError::ChunkRoot { .. }) = cause.downcast_ref() {
        return Some(Exit::No);
    }
    match (replaying(cause), cause.downcast_ref::<Diffing>()) {
        (
            Some(
                ReplayError::BadBlock(_)
                | ReplayError::Source(
                    SourceError::Malformed { .. }
                    | SourceError::NotABlock { .. }
                    | SourceError::TooLong { .. }
                    | SourceError::Truncated { .. },
                )
                | ReplayError::Genesis { .. }
                | ReplayError::StateRoot { .. },
            ),
            _,
        )
        | (_, Some(DiffReplayError::StateRoot { .. } | DiffReplayError::TreeRoot { .. })) => {
            Some(Exit::No)
        }
        _ => None,
    }
}

/// Whether a migration was refused, as it would be again: there is nothing to go on with.
pub(crate) fn is_final(error: &anyhow::Error) -> bool {
    match error.chain().find_map(|cause| cause.downcast_ref::<MigrateError>()) {
        Some(MigrateError::Embed(error)) => !matches!(error, EmbedError::Tree(_)),
        Some(MigrateError::NoTree { .. } | MigrateError::Malformed { .. }) => true,
        Some(error) => is_refusal(error),
        None => error.chain().any(<dyn StdError>::is::<Failure>),
    }
}

/// Whether a migration found that something is not as it should be, rather than failed.
fn is_refusal(error: &MigrateError) -> bool {
    matches!(
        error,
        MigrateError::NoPreimage { .. }
            | MigrateError::SurplusPreimage { .. }
            | MigrateError::NoCode { .. }
            | MigrateError::Code { .. }
            | MigrateError::Leaves { .. }
            | MigrateError::Stray { .. }
            | MigrateError::Count { .. }
            | MigrateError::Root { .. }
            | MigrateError::File(FileError::Invalid { .. })
    )
}

fn catch_up_hint(error: &CatchUpError) -> Option<&'static str> {
    Some(match error {
        CatchUpError::Stranger { .. } => {
            "the lists have to begin right behind the store's block, and a reorganisation within \
             --depth: spinney db info shows the block"
        }
        CatchUpError::List { .. } => "the list is not that of the block: fetch or make it again",
        CatchUpError::NoBlock => "import the snapshot again, with --number and --hash",
        CatchUpError::Tree { source, .. } => return embed_hint(source),
        _ => return None,
    })
}

fn migrate_hint(error: &MigrateError) -> Option<&'static str> {
    Some(match error {
        MigrateError::NoPreimage { .. } => {
            "addresses and slots of hashed keys come from a replay without --no-preimages, or from \
             --preimages FILE"
        }
        MigrateError::SurplusPreimage { .. } => {
            "the preimage file is of another state: it has to match exactly"
        }
        MigrateError::NoCode { .. } => "the source has to hold the code of every account",
        MigrateError::NoTree { .. } => "spinney db info shows what it holds",
        MigrateError::Stray { .. } => {
            "give --preimages FILE of that state; a store that has mpt too is converted from mpt, \
             which knows the slots of each account"
        }
        MigrateError::Code { .. }
        | MigrateError::Leaves { .. }
        | MigrateError::Count { .. }
        | MigrateError::Root { .. } => {
            "nothing was made: spinney db check looks at all of the source; if a file is named, it \
             is of another state"
        }
        MigrateError::File(_) => "the file is damaged, or none of EIP-8347: fetch or make it again",
        MigrateError::Embed(error) => return embed_hint(error),
        MigrateError::Tree(error) => return tree_hint(error),
        _ => return None,
    })
}

/// A replay's error, also where a witness was being made of the block.
fn replaying<'e>(cause: &'e (dyn StdError + 'static)) -> Option<&'e Replaying> {
    match cause.downcast_ref() {
        Some(WitnessError::Replay(error)) => Some(error),
        _ => cause.downcast_ref(),
    }
}

pub(crate) fn hint_of(cause: &(dyn StdError + 'static)) -> Option<String> {
    if let Some(failure) = cause.downcast_ref::<Failure>() {
        return failure.hint.clone();
    }
    if let Some(StateError::NotKept { block, kept: Some((_, newest)) }) = cause.downcast_ref()
        && block > newest
    {
        return Some(format!("the store ends at block {newest}; a replay takes it further"));
    }
    let hint = cause
        .downcast_ref()
        .map(store_hint)
        .or_else(|| cause.downcast_ref().and_then(witness_hint))
        .or_else(|| cause.downcast_ref().map(witness_file_hint))
        .or_else(|| cause.downcast_ref().map(ssz_hint))
        .or_else(|| cause.downcast_ref().and_then(tree_hint))
        .or_else(|| cause.downcast_ref().and_then(state_hint))
        .or_else(|| cause.downcast_ref().and_then(embed_hint))
        .or_else(|| cause.downcast_ref().and_then(migrate_hint))
        .or_else(|| cause.downcast_ref().and_then(catch_up_hint))
        .or_else(|| cause.downcast_ref().and_then(genesis_hint))
        .or_else(|| replaying(cause).and_then(replay_hint))
        .or_else(|| cause.downcast_ref().and_then(diff_hint))
        .or_else(|| cause.downcast_ref().and_then(io_hint));
    hint.map(str::to_owned)
}

fn store_hint(error: &StoreError) -> &'static str {
    match error {
        StoreError::Busy { .. } => "wait for the other process, or stop it",
        StoreError::Corrupt { .. } => {
            "spinney db check looks at all of it; a damaged store is replaced by replaying into a \
             new directory"
        }
        StoreError::Foreign { .. } => {
            "--db names a store that spinney made, --store its kind; where another version made \
             it, db copy --target-store redb of that version takes it along"
        }
        StoreError::Missing { .. } => "spinney replay --db DIR makes a store",
        StoreError::Backend { source, .. } => {
            match (source.downcast_ref(), source.downcast_ref::<io::Error>()) {
                (Some(error), _) => server_hint(error),
                (_, Some(error)) if error.kind() == ErrorKind::NotFound => PLACE_HINT,
                (_, Some(error)) if error.kind() == ErrorKind::AlreadyExists => THERE_HINT,
                (_, Some(error)) => io_hint(error).unwrap_or(DISK_HINT),
                _ => DISK_HINT,
            }
        }
        _ => DISK_HINT,
    }
}

const PLACE_HINT: &str = "nothing can be made or found at that place: name another one with --db";

const THERE_HINT: &str = "name another place, or remove what is there";

const DISK_HINT: &str = "look at the disk: space, permissions, cables";

const FULL_HINT: &str = "make room, and run the same command again";

fn is_full(error: &io::Error) -> bool {
    use ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// What to do where a server is the reason.
pub(crate) fn server_hint(error: &ServerError) -> &'static str {
    match error.why() {
        Why::Address => {
            "an address is postgres://user@host/database?options=-csearch_path%3Dschema, or \
             host=.. user=.. dbname=..; in URLs some characters are escaped, as @ by %40"
        }
        Why::Password => {
            "give the user's password in PGPASSWORD, in a passfile (~/.pgpass, mode 0600), or in \
             the address"
        }
        Why::Login => "the server's pg_hba.conf says who may log in from where; is the user right?",
        Why::Database => "createdb makes a database; is its name right?",
        Why::Tls => {
            "sslmode=disable|prefer|require|verify-ca|verify-full and sslrootcert=FILE in the \
             address say which connections are good enough"
        }
        Why::Connection => "is the server running, and are its host and port right?",
        Why::Permission => "the user has to be allowed to make and to use tables in the schema",
        Why::Overload => "wait until the server has room, and run the same command again",
        _ => "look at the server: its log, its disk, what the user may do",
    }
}

fn tree_hint(error: &TreeError) -> Option<&'static str> {
    Some(match error {
        TreeError::Store(error) => store_hint(error),
        TreeError::OtherScheme { .. } => {
            "a store of `root` and one of `replay` hold different things: give each its own --db; \
             spinney db info shows what a store holds"
        }
        TreeError::Version { .. } => "use the spinney that wrote it, or a newer one",
        TreeError::Corrupt { .. } | TreeError::OtherRoot { .. } => {
            "spinney db check looks at all of it; a damaged store is replaced by replaying into a \
             new directory"
        }
        TreeError::KeyTooLong { .. } | TreeError::ValueTooLong { .. } => {
            "--hash-keys makes keys of any length fit; values have no such way"
        }
        TreeError::Overweight { .. } => {
            "nothing was changed: a sum tree adds up to 2^64 - 1 at most, and so does a batch by \
             itself"
        }
        _ => return None,
    })
}

fn state_hint(error: &StateError) -> Option<&'static str> {
    Some(match error {
        StateError::Tree(error) => return tree_hint(error),
        StateError::ChunkRoot { .. } => {
            "the store stands before the first of them. spinney replay checks every root, and \
             names the block"
        }
        StateError::NoPreimage { .. } => {
            "the store was filled with --no-preimages, or by another tool: it does not know the \
             addresses and slots of hashed keys"
        }
        StateError::NoCode { .. } => {
            "the store is damaged, or was filled from differences that give hashes of code alone: \
             spinney db check names all that it lacks, db dump --allow-missing-code leaves them out"
        }
        StateError::Beside { source, .. } => return embed_hint(source),
        StateError::LeftBehind { .. } | StateError::OtherBlock { .. } => {
            "name the trees that spinney db info shows with --tree, or begin anew in a new --db"
        }
        StateError::Remains { .. } => {
            "the blocks before this one are committed. This block removes an account with slots: \
             replay the chain into a new --db with --tree mpt,.. or pbt:..,.. which remove them"
        }
        StateError::NoMpt { .. } => {
            "replay the blocks into a new --db with --tree mpt,.. to have both"
        }
        StateError::NotKept { .. } => {
            "earlier states come from a replay into a new --db; with --keep-undo N or all, or \
             --keep-commits N or all over a log, a replay keeps more of them"
        }
        StateError::History { .. } | StateError::UndoneRoot { .. } => {
            "nothing was changed. spinney db check looks at the rest; earlier states come from a \
             replay into a new --db"
        }
        _ => return None,
    })
}

fn embed_hint(error: &EmbedError) -> Option<&'static str> {
    Some(match error {
        EmbedError::Tree(error) => return tree_hint(error),
        EmbedError::Balance { .. } | EmbedError::CodeSize { .. } => {
            "leave the tree out of --tree, or end before that block with --to: the tree has no \
             place for it"
        }
        EmbedError::CodeUnknown { .. } => {
            "give the code itself along with its hash, or leave the tree out of --tree"
        }
        EmbedError::Malformed { .. } => {
            "spinney db check looks at all of it; a damaged store is replaced by replaying into a \
             new directory"
        }
        _ => return None,
    })
}

/// What a file of traces is.
pub(crate) const TRACE_HINT: &str = "a line is what debug_traceBlockByNumber answers for one \
                                     block, with {\"tracer\": \"prestateTracer\", \
                                     \"tracerConfig\": {\"diffMode\": true}}";

fn witness_file_hint(error: &WitnessFileError) -> &'static str {
    match error {
        WitnessFileError::Io(_) => "check the file and the disk",
        WitnessFileError::TooLong => "one witness a line, or a file each",
        _ => {
            "a witness is an object with state, codes and headers, as debug_executionWitness \
             answers it, or the SSZ that guests take"
        }
    }
}

fn ssz_hint(error: &SszError) -> &'static str {
    match error {
        SszError::Early(_) => "guests take blocks from Amsterdam on: leave out --encoding ssz",
        _ => "the file is damaged, or no input of a guest: make it again",
    }
}

/// Where making a witness differs from a replay: there is no store that anything could be in.
fn witness_hint(error: &WitnessError) -> Option<&'static str> {
    match error {
        WitnessError::Replay(error) => match &**error {
            ReplayError::BadBlock(bad) if bad.number == 1 => {
                Some("is the genesis that of this chain?")
            }
            ReplayError::BadBlock(_) => Some(
                "all blocks before it are good: the file may be damaged there, so export the chain \
                 again; or do the forks in the genesis differ from the chain's?",
            ),
            _ => None,
        },
        _ => None,
    }
}

fn genesis_hint(error: &GenesisError) -> Option<&'static str> {
    match error {
        GenesisError::Json(_) => Some(
            "a whole genesis.json is needed, as geth takes it: config, header and alloc. An \
             allocation alone goes with --alloc and --diffs, or to spinney state-root",
        ),
        GenesisError::Unsupported(_) => Some("no block of such a fork can be checked"),
        _ => None,
    }
}

fn replay_hint(error: &Replaying) -> Option<&'static str> {
    Some(match error {
        ReplayError::Ancestors { .. } => {
            "give blocks from an earlier one on: seven before it are enough"
        }
        ReplayError::BadBlock(bad) if bad.number == 1 => {
            "nothing of it is in the store; is the genesis that of this chain?"
        }
        // Those before it are good, so that the genesis is most likely right.
        ReplayError::BadBlock(_) => {
            "all blocks before it are good, and nothing of it is in the store: the file may be \
             damaged there, so export the chain again; or do the forks in the genesis differ from \
             the chain's?"
        }
        ReplayError::Genesis { .. } => "the allocation was changed after its root was computed",
        ReplayError::Resume { .. } => {
            "these are the blocks of another chain, or not those that are wanted: they may begin \
             with the block that the store stands at, and not later. Where chains part, spinney \
             stage unwind --db DIR --to N goes back; spinney stage status shows how far"
        }
        ReplayError::StateRoot { .. } => {
            "what was imported is not the state of that block, and no block was executed: import \
             it again into a new --db, and give --root, the state root of the header, along"
        }
        ReplayError::Source(SourceError::Truncated { .. }) => {
            "the blocks before it are committed, spinney db info says up to which; export the \
             chain again, and the same command goes on behind them"
        }
        ReplayError::Source(_) => "--blocks takes what geth export writes, plain or zstd",
        ReplayError::State { error, .. } => return state_hint(error),
        ReplayError::Trace(_) => TRACE_HINT,
        ReplayError::TraceMisfit { .. } => {
            "all blocks before it are committed; the traces are those of the same blocks, one a \
             line, from the first one of --blocks on"
        }
        ReplayError::Unsupported { .. } => "replay a chain without it, or up to it with --to",
        _ => return None,
    })
}

fn diff_hint(error: &Diffing) -> Option<&'static str> {
    Some(match error {
        DiffReplayError::StateRoot { .. } | DiffReplayError::TreeRoot { .. } => {
            "all blocks before it are good, and nothing of it is in the store; do the differences \
             start at this genesis?"
        }
        DiffReplayError::Diff(_) => {
            r#"a line is like {"number": 7, "accounts": {"0xaddress": {"balance": "0x5"}}}"#
        }
        DiffReplayError::Gap { .. } => {
            "all blocks before it are committed; give the differences of every block"
        }
        DiffReplayError::Misfit { .. } => "give the account's nonce or balance along, or `fresh`",
        DiffReplayError::State { error, .. } => return state_hint(error),
        _ => return None,
    })
}

fn io_hint(error: &io::Error) -> Option<&'static str> {
    Some(match error.kind() {
        ErrorKind::NotFound => "check the path; - reads standard input",
        ErrorKind::PermissionDenied => {
            "may this user write there, and is it mounted for writing? A store of another user's \
             is read where its --mode allows it"
        }
        ErrorKind::ReadOnlyFilesystem => {
            "that place is mounted read-only: name another one, or mount it for writing"
        }
        _ if is_full(error) => FULL_HINT,
        _ => return None,
    })
}
