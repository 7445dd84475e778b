//! The disk itself: files with names, what of them is certain, and what goes wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A damaged file may ask for any length, and here it would be memory.
const FILE_BYTES_MAX: u64 = 1 << 28;

/// How a disk stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// That operation and all later ones fail, as on a full disk.
    Fail,
    /// That operation and all later ones fail, as on a disk that broke.
    Break,
    /// That operation and all later ones seem to succeed, and nothing of them is left after a power
    /// cut: the moment of the cut, seen by a process that does not notice.
    Freeze,
}

/// What goes wrong with one operation. Those after it go well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It fails, as on a full disk.
    Full,
    /// It fails, as on a disk that is broken there.
    Broken,
    /// Of a write the first half is done, and it fails as on a full disk. Others just fail.
    Short,
    /// It seems done. What it did is read back as long as the disk runs, and is not there after a
    /// power cut, whatever was synced since.
    Lost,
    /// As [`Lost`](Self::Lost), but the first half of a write is there.
    Torn,
    /// As [`Lost`](Self::Lost), but a write is there in another place of its file, chosen by this
    /// seed.
    Misdirected(u64),
}

/// What a power cut leaves of the changes made since the last sync. Disks do not write in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Survivors {
    /// All of them.
    All,
    /// None of them.
    Nothing,
    /// Some, chosen by this seed, of the writes perhaps only a part: so later ones without the
    /// earlier.
    Some(u64),
}

/// What changes a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// A file is made.
    Create(PathBuf),
    /// So many bytes are written at an offset: the offset, then the number.
    Write(PathBuf, u64, u64),
    /// A file is given a length in bytes.
    SetLength(PathBuf, u64),
    /// What was written to a file is made certain.
    Sync(PathBuf),
    /// A file or a folder is given another name: from, to.
    Rename(PathBuf, PathBuf),
    /// A file is removed.
    Remove(PathBuf),
    /// The names in a folder are made certain.
    SyncFolder(PathBuf),
}

/// A change of a file since it was synced.
#[derive(Clone, Debug)]
enum FileChange {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl FileChange {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Self::Write(at, data) => {
                if image.len() < at + data.len() {
                    image.resize(at + data.len(), 0);
                }
                image[*at..at + data.len()].copy_from_slice(data);
            }
            Self::Length(length) => image.resize(*length, 0),
        }
    }
}

/// A file, whatever its name is.
#[derive(Clone, Debug, Default)]
struct Node {
    /// What reads see.
    live: Vec<u8>,
    /// What the last sync made certain.
    durable: Vec<u8>,
    /// What was changed since.
    pending: Vec<FileChange>,
}

impl Node {
    fn sync(&mut self) {
        let durable = &mut self.durable;
        self.pending.drain(..).for_each(|change| change.apply(durable));
    }
}

/// A change of names since their folder was synced.
#[derive(Clone, Debug)]
enum Move {
    Create(PathBuf, usize),
    Remove(PathBuf),
    /// A file, or a folder with all in it.
    Rename(PathBuf, PathBuf),
}

type Names = BTreeMap<PathBuf, usize>;

impl Move {
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Create(path, node) => drop(names.insert(path.clone(), *node)),
            Self::Remove(path) => drop(names.remove(path)),
            Self::Rename(from, to) => {
                // Whatever had the name is gone: of a folder only what of its emptying was not
                // certain.
                names.retain(|name, _| !name.starts_with(to) || name.starts_with(from));
                let all: Vec<_> =
                    names.keys().filter(|name| name.starts_with(from)).cloned().collect();
                for name in all {
                    let node = names.remove(&name);
                    let rest = name.strip_prefix(from).unwrap_or(Path::new(""));
                    let name = if rest == Path::new("") { to.clone() } else { to.join(rest) };
                    names.extend(node.map(|node| (name, node)));
                }
            }
        }
    }

    /// The name that it makes or takes.
    fn path(&self) -> &Path {
        let (Self::Create(path, _) | Self::Remove(path) | Self::Rename(_, path)) = self;
        path
    }

    /// Whether it is certain once this folder is synced.
    fn is_in(&self, folder: &Path) -> bool {
        parent(self.path()) == folder
    }
}

/// The folder that a name is in.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// What becomes of an operation.
enum Fate {
    Done,
    /// It seems done, and never reaches the disk.
    Lost,
    /// So much of a write reaches the disk, and all of it seems to.
    Torn,
    /// So much of a write is done, and it fails.
    Short,
    /// It seems done, and reaches the disk elsewhere.
    Misdirected(u64),
}

/// A number of an open file. It stays the file's when its name changes.
pub(super) type NodeId = usize;

#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    nodes: Vec<Node>,
    /// Names as processes see them.
    live: Names,
    /// Names that are certain.
    durable: Names,
    moves: Vec<Move>,
    log: Vec<Operation>,
    faults: BTreeMap<u64, Fault>,
    stop: Option<(u64, Stop)>,
    /// Bytes of all files at most.
    pub(super) room: Option<u64>,
    /// Lock files that somebody holds.
    pub(super) locks: BTreeSet<PathBuf>,
    /// Files that readers of a log hold, and how many.
    pub(super) pins: BTreeMap<NodeId, usize>,
}

impl Disk {
    /// A disk with these files on it, all of them certain.
    pub(super) fn of(files: impl IntoIterator<Item = (PathBuf, Vec<u8>)>) -> Self {
        let mut disk = Self::default();
        for (path, bytes) in files {
            disk.live.insert(path, disk.nodes.len());
            disk.nodes.push(Node { live: bytes.clone(), durable: bytes, pending: Vec::new() });
        }
        disk.durable = disk.live.clone();
        disk
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.live.iter().map(|(path, node)| (&**path, &self.nodes[*node].live[..]))
    }

    /// The file of this name.
    pub(crate) fn find(&self, path: &Path) -> Option<NodeId> {
        self.live.get(path).copied()
    }

    /// Whether a file or a folder with files in it has this name.
    pub(crate) fn exists(&self, path: &Path) -> bool {
        self.live.keys().any(|name| name.starts_with(path))
    }

    /// What reads of a file see.
    pub(crate) fn bytes(&self, node: NodeId) -> &[u8] {
        self.nodes.get(node).map_or(&[], |node| &node.live)
    }

    pub(super) fn log(&self) -> &[Operation] {
        &self.log
    }

    pub(super) fn operations(&self) -> u64 {
        self.log.len() as u64
    }

    pub(super) fn stop_at(&mut self, stop: Option<(u64, Stop)>) {
        self.stop = stop;
        if stop.is_none() {
            self.faults.clear();
        }
    }

    pub(super) fn fault_at(&mut self, operation: u64, fault: Fault) {
        self.faults.insert(operation, fault);
    }

    pub(super) const fn stop(&self) -> Option<(u64, Stop)> {
        self.stop
    }

    /// Counts an operation, and says what becomes of it.
    fn operate(&mut self, operation: Operation) -> io::Result<Fate> {
        let at = self.operations();
        self.log.push(operation);
        match self.stop {
            Some((from, Stop::Fail)) if at >= from => return Err(ErrorKind::StorageFull.into()),
            Some((from, Stop::Break)) if at >= from => return Err(broken()),
            Some((from, Stop::Freeze)) if at >= from => return Ok(Fate::Lost),
            _ => {}
        }
        match self.faults.get(&at) {
            None => Ok(Fate::Done),
            Some(Fault::Full) => Err(ErrorKind::StorageFull.into()),
            Some(Fault::Broken) => Err(broken()),
            Some(Fault::Short) => Ok(Fate::Short),
            Some(Fault::Lost) => Ok(Fate::Lost),
            Some(Fault::Torn) => Ok(Fate::Torn),
            Some(Fault::Misdirected(seed)) => Ok(Fate::Misdirected(*seed)),
        }
    }

    /// Makes a file of no bytes, which has no name yet.
    pub(super) fn create(&mut self, path: &Path) -> io::Result<NodeId> {
        let fate = self.operate(Operation::Create(path.to_owned()))?;
        let node = self.nodes.len();
        self.rename_by(Move::Create(path.to_owned(), node), &fate)?;
        self.nodes.push(Node::default());
        Ok(node)
    }

    pub(crate) fn remove(&mut self, path: &Path) -> io::Result<()> {
        if !self.live.contains_key(path) {
            return Err(ErrorKind::NotFound.into());
        }
        let fate = self.operate(Operation::Remove(path.to_owned()))?;
        self.rename_by(Move::Remove(path.to_owned()), &fate)
    }

    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        if !self.exists(from) {
            return Err(ErrorKind::NotFound.into());
        }
        let fate = self.operate(Operation::Rename(from.to_owned(), to.to_owned()))?;
        self.rename_by(Move::Rename(from.to_owned(), to.to_owned()), &fate)
    }

    fn rename_by(&mut self, change: Move, fate: &Fate) -> io::Result<()> {
        match fate {
            Fate::Short => return Err(ErrorKind::StorageFull.into()),
            // There is no other place for a name, and no part of one.
            Fate::Lost | Fate::Torn | Fate::Misdirected(_) => change.apply(&mut self.live),
            Fate::Done => {
                change.apply(&mut self.live);
                self.moves.push(change);
            }
        }
        Ok(())
    }

    /// Makes the names in a folder certain.
    pub(crate) fn sync_folder(&mut self, folder: &Path) -> io::Result<()> {
        let fate = self.operate(Operation::SyncFolder(folder.to_owned()))?;
        match fate {
            Fate::Short => Err(broken()),
            Fate::Done => {
                let mut rest: Vec<Move> = Vec::new();
                for change in self.moves.drain(..) {
                    if !change.is_in(folder) {
                        rest.push(change);
                        continue;
                    }
                    if let Move::Rename(_, to) = &change {
                        // What was done before in a folder that had the name is over: it is not
                        // done to this one.
                        rest.retain(|earlier| !earlier.path().starts_with(to));
                    }
                    change.apply(&mut self.durable);
                }
                self.moves = rest;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn write(
        &mut self,
        path: &Path,
        node: NodeId,
        at: u64,
        data: &[u8],
    ) -> io::Result<()> {
        let length = data.len() as u64;
        self.fits(node, at.saturating_add(length))?;
        let fate = self.operate(Operation::Write(path.to_owned(), at, length))?;
        let Some(node) = self.nodes.get_mut(node) else { return Err(ErrorKind::NotFound.into()) };
        let change = |at: u64, data: &[u8]| FileChange::Write(at as usize, data.to_vec());
        let half = &data[..data.len() / 2];
        let (seen, kept) = match fate {
            Fate::Done => (data, Some(change(at, data))),
            Fate::Lost => (data, None),
            Fate::Torn => (data, Some(change(at, half))),
            Fate::Short => (half, Some(change(at, half))),
            Fate::Misdirected(seed) => {
                (data, Some(change(elsewhere(at, node.live.len() as u64, seed), data)))
            }
        };
        change(at, seen).apply(&mut node.live);
        node.pending.extend(kept);
        if matches!(fate, Fate::Short) { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    pub(super) fn set_length(&mut self, path: &Path, node: NodeId, length: u64) -> io::Result<()> {
        self.fits(node, length)?;
        let fate = self.operate(Operation::SetLength(path.to_owned(), length))?;
        let Some(node) = self.nodes.get_mut(node) else { return Err(ErrorKind::NotFound.into()) };
        let change = FileChange::Length(length as usize);
        match fate {
            Fate::Short => return Err(ErrorKind::StorageFull.into()),
            Fate::Done => {
                change.apply(&mut node.live);
                node.pending.push(change);
            }
            Fate::Lost | Fate::Torn | Fate::Misdirected(_) => change.apply(&mut node.live),
        }
        Ok(())
    }

    pub(super) fn sync(&mut self, path: &Path, node: NodeId) -> io::Result<()> {
        match self.operate(Operation::Sync(path.to_owned()))? {
            Fate::Short => Err(broken()),
            Fate::Done => {
                if let Some(node) = self.nodes.get_mut(node) {
                    node.sync();
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether a file may have this length.
    fn fits(&self, node: NodeId, length: u64) -> io::Result<()> {
        let now = self.bytes(node).len() as u64;
        if length <= now {
            return Ok(());
        }
        let all: u64 = self.live.values().map(|node| self.bytes(*node).len() as u64).sum();
        let full = self.room.is_some_and(|room| all - now.min(all) + length > room);
        if full || length > FILE_BYTES_MAX { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    /// The files that are found when the power comes back.
    pub(super) fn after_power_cut(&self, survivors: Survivors) -> Self {
        let mut draw = Draw::of(survivors);
        let mut names = self.durable.clone();
        for change in &self.moves {
            if draw.chance() != Kept::Nothing {
                change.apply(&mut names);
            }
        }
        let image = |node: &Node, draw: &mut Draw| {
            let mut image = node.durable.clone();
            for change in &node.pending {
                match (draw.chance(), change) {
                    (Kept::Nothing, _) => {}
                    (Kept::Part, FileChange::Write(at, data)) => {
                        let kept = draw.below(data.len() as u64 + 1) as usize;
                        FileChange::Write(*at, data[..kept].to_vec()).apply(&mut image);
                    }
                    _ => change.apply(&mut image),
                }
            }
            image
        };
        let images: Vec<_> = self.nodes.iter().map(|node| image(node, &mut draw)).collect();
        Self::of(names.into_iter().map(|(path, node)| (path, images[node].clone())))
    }

    /// The same disk, where nobody has a file open any more.
    pub(super) fn after_kill(&self) -> Self {
        let locks = BTreeSet::new();
        let pins = BTreeMap::new();
        Self { locks, pins, faults: BTreeMap::new(), stop: None, log: Vec::new(), ..self.clone() }
    }
}

fn broken() -> io::Error {
    io::Error::other("the test disk is broken")
}

/// Another place of a file, as far from its end as the right one is from its beginning, or a page
/// further.
fn elsewhere(at: u64, length: u64, seed: u64) -> u64 {
    const PAGE: u64 = 4_096;
    let pages = (length / PAGE).max(2);
    let page = (at / PAGE + 1 + seed % (pages - 1)) % pages;
    page * PAGE + at % PAGE
}

/// How much of a change survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Nothing,
    Part,
    All,
}

/// Chance from a seed, or none.
struct Draw {
    survivors: Survivors,
    state: u64,
}

impl Draw {
    const fn of(survivors: Survivors) -> Self {
        let seed = if let Survivors::Some(seed) = survivors { seed } else { 0 };
        Self { survivors, state: seed.wrapping_mul(2).wrapping_add(1) }
    }

    const fn below(&mut self, end: u64) -> u64 {
        // xorshift64
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % end
    }

    const fn chance(&mut self) -> Kept {
        match self.survivors {
            Survivors::Nothing => Kept::Nothing,
            Survivors::All => Kept::All,
            Survivors::Some(_) => match self.below(4) {
                0 | 1 => Kept::Nothing,
                2 => Kept::Part,
                _ => Kept::All,
            },
        }
    }
}
