//! Commits before the last one, and all records that are there.
//!
//! Invariants:
//! - what is noted of a segment is what its records say, from its first one on: a segment only gets
//!   longer, and its number comes once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::error::{LogError, corrupt};
use crate::format::NO_MARK;
use crate::open::{Files, Needed, Tail, read};
use crate::view::{Segment, View};

/// The segments of a view, each with its end.
pub(crate) fn needed(files: &Files, view: &View) -> Result<VecDeque<Needed>, LogError> {
    let mut all: VecDeque<Needed> = VecDeque::new();
    let mut end = None;
    for segment in view.segments.values().rev() {
        let Some(first) = segment.header(0, files.id)? else {
            return Err(corrupt(&segment.place, "its first record is damaged"));
        };
        let end = match end.replace(first.before_end) {
            Some(end) => end,
            None => last_end(files, segment, view.commit)?,
        };
        all.push_front(Needed { segment: Arc::clone(segment), first, end });
    }
    Ok(all)
}

/// Where the records of the newest segment end that a view knows of.
fn last_end(files: &Files, segment: &Segment, commit: u64) -> Result<u64, LogError> {
    let (mut at, mut chain) = (0, None);
    while let Some(header) = segment.header(at, files.id)? {
        let follows = chain.is_none_or(|chain| chain == header.chain);
        if !follows || header.segment != u64::from(segment.number) || header.commit > commit {
            break;
        }
        chain = Some(header.hash());
        at += header.len();
    }
    Ok(at)
}

/// The oldest commit whose record and index are there.
pub(crate) fn oldest(files: &Files, view: &View) -> Result<u64, LogError> {
    let Some(segment) = view.segments.values().next() else { return Ok(0) };
    let Some(first) = segment.header(0, files.id)? else {
        return Err(corrupt(&segment.place, "its first record is damaged"));
    };
    let mut at = 0;
    while let Some(header) = segment.header(at, files.id)? {
        if header.oldest >= first.segment {
            return Ok(header.commit);
        }
        at += header.len();
    }
    Ok(view.commit)
}

/// The view as of an earlier commit.
pub(crate) fn find(files: &Files, now: &View, commit: u64) -> Result<View, LogError> {
    let gone = || -> Result<View, LogError> {
        let (oldest, newest) = (oldest(files, now)?, now.commit);
        Err(LogError::Gone { place: files.disk.place(), commit, oldest, newest })
    };
    if commit > now.commit {
        return gone();
    }
    let mut needed = needed(files, now)?;
    // Segments that begin later are of no interest.
    while needed.back().is_some_and(|needed| needed.first.commit > commit) {
        needed.pop_back();
    }
    let Some(last) = needed.back() else { return gone() };
    let mut at = 0;
    let tail = loop {
        let header = if at < last.end { last.segment.header(at, files.id)? } else { None };
        match header {
            Some(header) if header.commit == commit => {
                break Tail { segment: Arc::clone(&last.segment), at, header };
            }
            Some(header) => at += header.len(),
            None => return gone(),
        }
    };
    let oldest = needed.front().map_or(0, |needed| needed.segment.number);
    if tail.header.oldest < u64::from(oldest) {
        return gone();
    }
    while needed.front().is_some_and(|one| u64::from(one.segment.number) < tail.header.oldest) {
        needed.pop_front();
    }
    let index = read(files, &needed, &tail)?.index;
    let segments = needed.iter().map(|one| (one.segment.number, Arc::clone(&one.segment)));
    Ok(View { index, segments: Arc::new(segments.collect()), commit })
}

/// What was read of the records of segments, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Marks(BTreeMap<u32, Marked>);

/// The records of a segment from its first one on.
#[derive(Debug, Default)]
struct Marked {
    commits: Vec<Commit>,
    /// Where the next one begins.
    end: u64,
    /// Where the segment before ends.
    before_end: u64,
}

#[derive(Clone, Copy, Debug)]
struct Commit {
    number: u64,
    mark: u64,
    /// The oldest segment that it needs.
    oldest: u64,
}

impl Marks {
    /// The commit that a mark means: see [`Log::at_mark`](crate::Log::at_mark).
    pub(crate) fn find(
        &mut self,
        files: &Files,
        view: &View,
        mark: u64,
    ) -> Result<Option<u64>, LogError> {
        let mut found = None;
        self.each(files, view, &mut |at, commit| {
            let is_it = at >= mark;
            found = if is_it { Some(commit) } else { found };
            is_it
        })?;
        Ok(found)
    }

    /// Hands each mark that has a commit of its own to `visit`, with that commit, until it answers
    /// `false`: the newest commit first, and then each whose mark is below all that were shown.
    pub(crate) fn each(
        &mut self,
        files: &Files,
        view: &View,
        visit: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<(), LogError> {
        let Some(oldest) = view.segments.keys().next().copied() else { return Ok(()) };
        self.0.retain(|number, _| *number >= oldest);
        let (mut least, mut end) = (NO_MARK, None);
        for segment in view.segments.values().rev() {
            let marked = self.0.entry(segment.number).or_default();
            marked.read_on(files, segment, view.commit)?;
            if end.is_some_and(|end| end != marked.end) {
                let what = format!("the record at {} is damaged", marked.end);
                return Err(corrupt(&segment.place, what));
            }
            end = Some(marked.before_end);
            for one in marked.commits.iter().rev() {
                if one.oldest < u64::from(oldest) {
                    return Ok(());
                }
                if one.mark < least {
                    least = one.mark;
                    if !visit(one.mark, one.number) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}

impl Marked {
    /// Reads the records that came since, up to a commit: what is behind it may be torn.
    fn read_on(&mut self, files: &Files, segment: &Segment, last: u64) -> Result<(), LogError> {
        while let Some(header) = segment.header(self.end, files.id)?
            && header.segment == u64::from(segment.number)
            && header.commit <= last
        {
            let (number, mark, oldest) = (header.commit, header.mark, header.oldest);
            self.before_end = header.before_end;
            self.commits.push(Commit { number, mark, oldest });
            self.end += header.len();
        }
        Ok(())
    }
}

/// Verifies all records of a view.
pub(crate) fn check(files: &Files, view: &View) -> Result<(), LogError> {
    let mut chain = None;
    for needed in needed(files, view)? {
        let segment = &needed.segment;
        let mut at = 0;
        while at < needed.end {
            let header = segment.header(at, files.id)?;
            let header = header.filter(|header| {
                header.segment == u64::from(segment.number)
                    && chain.is_none_or(|chain| chain == header.chain)
            });
            let whole = match &header {
                Some(header) => segment.is_whole(at, header)?,
                None => false,
            };
            let Some(header) = header.filter(|_| whole) else {
                return Err(corrupt(&segment.place, format!("the record at {at} is damaged")));
            };
            chain = Some(header.hash());
            at += header.len();
        }
        if at != needed.end {
            return Err(corrupt(
                &segment.place,
                format!("its records do not end at {}", needed.end),
            ));
        }
    }
    Ok(())
}
