//! What is found when a log is opened.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::disk::Disk;
use crate::error::{LogError, corrupt, failed};
use crate::format::{BLOCK, FORMAT, FORMAT_BYTES, Header, NoFormat, StoreId, read_format};
use crate::replay::Replay;
use crate::view::{Meter, Segment, View, has_later};

pub(crate) const FORMAT_FILE: &str = "format";
const SEGMENT: &str = "seg-";

pub(crate) fn segment_name(file: u64) -> String {
    format!("{SEGMENT}{file:08}")
}

/// The number of a segment's file.
pub(crate) fn file_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(SEGMENT)?;
    let digits =
        (digits.len() >= 8 && digits.bytes().all(|b| b.is_ascii_digit())).then_some(digits);
    digits?.parse().ok()
}

/// Opens files of a log.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) id: StoreId,
    pub(crate) meter: Arc<Meter>,
    pub(crate) writable: bool,
}

impl Files {
    pub(crate) fn place(&self, name: &str) -> String {
        format!("{}/{name}", self.disk.place())
    }

    pub(crate) fn names(&self) -> Result<Vec<String>, LogError> {
        let names = self.disk.names().map_err(failed(&self.disk.place()))?;
        Ok(names.into_iter().filter(|name| file_number(name).is_some()).collect())
    }

    /// A file, and the header that it begins with. `None` if it just went.
    pub(crate) fn open(&self, name: &str) -> Result<Option<(Segment, Option<Header>)>, LogError> {
        let place = self.place(name);
        let file = match self.disk.open(name, self.writable) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed(&place))?,
        };
        let meter = Arc::clone(&self.meter);
        let mut segment = Segment { number: 0, name: name.to_owned(), place, file, meter };
        let first = segment.header(0, self.id)?;
        let first = first.filter(|header| header.segment < u64::from(u32::MAX));
        segment.number = first.map_or(0, |header| header.segment as u32);
        Ok(Some((segment, first)))
    }
}

/// Reads what says that this is a log.
pub(crate) fn identify(disk: &dyn Disk) -> Result<StoreId, LogError> {
    let place = disk.place();
    let names = disk.names().map_err(failed(&place))?;
    if !names.iter().any(|name| name == FORMAT_FILE) {
        if names.iter().any(|name| file_number(name).is_some()) {
            return Err(corrupt(place, format!("its file {FORMAT_FILE} is missing")));
        }
        return Err(LogError::Missing { place });
    }
    let file = disk.open(FORMAT_FILE, false).map_err(failed(&place))?;
    let mut bytes = [0; FORMAT_BYTES + 1];
    let read = file.read_at(&mut bytes, 0).map_err(failed(&place))?;
    match read_format(&bytes[..read]) {
        Ok(id) if read == FORMAT_BYTES => Ok(id),
        Ok(_) | Err(NoFormat::Damaged) => {
            Err(corrupt(place, format!("its file {FORMAT_FILE} does not match its hash")))
        }
        Err(NoFormat::Unknown(format)) => {
            let what = format!("its format is {format}, and this program knows format {FORMAT}");
            Err(LogError::Foreign { place, what })
        }
        Err(NoFormat::Other) => {
            Err(LogError::Foreign { place, what: format!("its file {FORMAT_FILE} is another one") })
        }
    }
}

/// The last record.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    pub(crate) segment: Arc<Segment>,
    pub(crate) at: u64,
    pub(crate) header: Header,
}

impl Tail {
    pub(crate) const fn end(&self) -> u64 {
        self.at + self.header.len()
    }
}

/// A segment that is needed.
#[derive(Clone, Debug)]
pub(crate) struct Needed {
    pub(crate) segment: Arc<Segment>,
    pub(crate) first: Header,
    pub(crate) end: u64,
}

/// A log as it is found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) view: View,
    pub(crate) replay: Replay,
    /// `None` for a log without a commit.
    pub(crate) tail: Option<Tail>,
    /// Whether the record behind the last one was torn.
    pub(crate) is_torn: bool,
    /// From the oldest that is needed to the newest.
    pub(crate) needed: VecDeque<Needed>,
    /// The others, by number: nobody needs them, but those who read them.
    pub(crate) rest: Vec<Arc<Segment>>,
    pub(crate) segments_max: u64,
    pub(crate) files_max: u64,
}

impl Found {
    fn nothing(rest: Vec<Arc<Segment>>, (segments_max, files_max): (u64, u64)) -> Self {
        Self {
            view: View::default(),
            replay: Replay::onto(Default::default(), 0, Default::default()),
            tail: None,
            is_torn: false,
            needed: VecDeque::new(),
            rest,
            segments_max,
            files_max,
        }
    }
}

/// Finds the last commit. `None` if files went meanwhile, so that it has to be looked for again.
pub(crate) fn find(files: &Files) -> Result<Option<Found>, LogError> {
    let (mut all, mut rest) = (BTreeMap::new(), Vec::new());
    let mut files_max = 0;
    for name in files.names()? {
        files_max = files_max.max(file_number(&name).unwrap_or_default());
        let Some((segment, first)) = files.open(&name)? else { return Ok(None) };
        let segment = Arc::new(segment);
        match first {
            None => rest.push(segment),
            Some(first) => {
                if let Some((other, _)) = all.insert(segment.number, (Arc::clone(&segment), first))
                {
                    let what = format!("it is segment {}, as {} is", segment.number, other.name);
                    return Err(corrupt(&segment.place, what));
                }
            }
        }
    }
    let maxima = (all.keys().next_back().copied().unwrap_or(0).into(), files_max);
    let mut last = None;
    let mut torn_segments = Vec::new();
    for (segment, _) in all.values().rev() {
        let (tails, is_torn) = last_of(segment, files.id)?;
        if tails.is_none() {
            torn_segments.push(Arc::clone(segment));
            continue;
        }
        if is_torn && !torn_segments.is_empty() {
            let what = "its last record is damaged, and there are later ones";
            return Err(corrupt(&segment.place, what));
        }
        last = tails.map(|tail| (tail, is_torn));
        break;
    }
    // Whatever was later than the last record was lost with damage before it.
    let newest =
        last.as_ref().map_or((0, 0), |(tail, _)| (tail.header.segment, tail.header.commit));
    let unclear = rest.iter().chain(&torn_segments).map(|segment| (segment, BLOCK));
    let unclear = unclear.chain(
        last.iter()
            .map(|(tail, is_torn)| (&tail.segment, tail.end() + if *is_torn { BLOCK } else { 0 })),
    );
    for (segment, from) in unclear {
        if has_later(segment, files.id, from, newest)? {
            let what = "a record is damaged, and there are later ones";
            return Err(corrupt(&segment.place, what));
        }
    }
    let Some((tail, is_torn)) = last else {
        rest.extend(torn_segments);
        return Ok(Some(Found::nothing(rest, maxima)));
    };
    let Some(needed) = chain(&all, &tail)? else {
        let what = format!("segment {} or a later one is missing", tail.header.oldest);
        return Err(corrupt(files.disk.place(), what));
    };
    let segments = needed.iter().map(|needed| (needed.segment.number, &needed.segment));
    let segments: BTreeMap<_, _> =
        segments.map(|(number, one)| (number, Arc::clone(one))).collect();
    rest.extend(
        all.into_values().map(|one| one.0).filter(|one| !segments.contains_key(&one.number)),
    );
    rest.sort_by_key(|segment| segment.number);
    let (segments, commit) = (Arc::new(segments), tail.header.commit);
    let replay = read(files, &needed, &tail)?;
    let view = View { index: replay.index.clone(), segments, commit };
    let (segments_max, files_max) = maxima;
    let tail = Some(tail);
    Ok(Some(Found { view, replay, tail, is_torn, needed, rest, segments_max, files_max }))
}

/// The last whole record of a segment, and whether one behind it was torn. `None` if the first one
/// was.
fn last_of(segment: &Arc<Segment>, id: StoreId) -> Result<(Option<Tail>, bool), LogError> {
    let (mut last, mut before): (Option<Tail>, Option<Tail>) = (None, None);
    let mut at = 0;
    while let Some(header) = segment.header(at, id)? {
        let follows = last.as_ref().is_none_or(|last| last.header.hash() == header.chain);
        if !follows || header.segment != u64::from(segment.number) {
            break;
        }
        before = last.replace(Tail { segment: Arc::clone(segment), at, header });
        at += header.len();
    }
    if let Some(tail) = &last
        && tail.segment.is_whole(tail.at, &tail.header)?
    {
        return Ok((last, false));
    }
    if let Some(tail) = &before
        && !tail.segment.is_whole(tail.at, &tail.header)?
    {
        let what = format!("the record at {} is damaged, and there are later ones", tail.at);
        return Err(corrupt(&segment.place, what));
    }
    Ok((before, true))
}

/// The segments from the oldest that is needed to the last one. `None` if one is missing.
fn chain(
    all: &BTreeMap<u32, (Arc<Segment>, Header)>,
    tail: &Tail,
) -> Result<Option<VecDeque<Needed>>, LogError> {
    let mut needed = VecDeque::new();
    let (mut number, mut end) = (tail.header.segment, tail.end());
    loop {
        let found = u32::try_from(number).ok().and_then(|number| all.get(&number));
        let Some((segment, first)) = found else { return Ok(None) };
        if first.before >= number {
            return Err(corrupt(&segment.place, "it follows a later segment"));
        }
        let segment = Arc::clone(segment);
        needed.push_front(Needed { segment, first: *first, end });
        if number <= tail.header.oldest {
            return Ok((number == tail.header.oldest).then_some(needed));
        }
        (number, end) = (first.before, first.before_end);
    }
}

/// Reads the index as of a record.
pub(crate) fn read(
    files: &Files,
    needed: &VecDeque<Needed>,
    tail: &Tail,
) -> Result<Replay, LogError> {
    let (first, offset) = tail.header.replay;
    let mut replay = Replay::from_nothing();
    let mut chain = None;
    let from = needed.iter().skip_while(|needed| u64::from(needed.segment.number) < first);
    let mut found = false;
    for needed in from {
        let number = u64::from(needed.segment.number);
        if number > tail.header.segment {
            break;
        }
        found |= number == first;
        let at = if number == first { offset } else { 0 };
        let end = if number == tail.header.segment { tail.end() } else { needed.end };
        chain = replay.take_all(&needed.segment, files.id, (at, end), chain)?;
    }
    if !found || !replay.is_whole() {
        return Err(corrupt(&tail.segment.place, "the index that it refers to is not whole"));
    }
    let oldest = needed.front().map_or(0, |needed| needed.segment.number);
    if replay.index.from(&[]).any(|row| row.held().oldest < oldest) {
        return Err(corrupt(&tail.segment.place, "a row lies in a segment that is gone"));
    }
    Ok(replay)
}
