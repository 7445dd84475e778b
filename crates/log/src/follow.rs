//! Reading a log that another process writes.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use crate::error::{LogError, failed};
use crate::format::Header;
use crate::open::{Files, Found, Tail, find};
use crate::options::Keep;
use crate::replay::{Cycle, Replay};
use crate::view::{Pin, Segment, View};

/// The writer may take segments away while they are looked at: so often it is tried again.
const TRIES: usize = 100;

#[derive(Debug)]
pub(crate) struct Follower {
    tail: Option<Tail>,
    live: u64,
    cycle: Cycle,
    pin: Weak<Pin>,
}

impl Follower {
    pub(crate) fn start(files: &Files) -> Result<(Self, View), LogError> {
        let mut follower = Self { tail: None, live: 0, cycle: Cycle::default(), pin: Weak::new() };
        let (view, _) = follower.load(files)?;
        Ok((follower, view))
    }

    /// What the last record says.
    pub(crate) fn keep(&self) -> Keep {
        Keep::decode(self.tail.as_ref().map_or(1, |tail| tail.header.keep))
    }

    /// Finds the last commit anew.
    fn load(&mut self, files: &Files) -> Result<(View, Option<Arc<Pin>>), LogError> {
        let mut failure = None;
        for _ in 0..TRIES {
            let found = match find(files) {
                // It may be that the writer was at work there.
                Err(error @ LogError::Corrupt { .. }) => {
                    failure = Some(error);
                    continue;
                }
                found => found?,
            };
            let Some(Found { view, replay, tail, .. }) = found else { continue };
            if let Some(tail) = &tail {
                tail.segment.sync()?;
            }
            (self.tail, self.live, self.cycle) = (tail, replay.live, replay.cycle);
            if let Some(pin) = self.pin(files, &view)? {
                return Ok((view, pin));
            }
        }
        Err(failure.unwrap_or_else(|| LogError::Busy { place: files.disk.place() }))
    }

    /// Keeps the segments of the last commit. `None` if one is gone already.
    #[expect(clippy::option_option, reason = "a log without commits needs none")]
    fn pin(&mut self, files: &Files, view: &View) -> Result<Option<Option<Arc<Pin>>>, LogError> {
        let Some(tail) = &self.tail else { return Ok(Some(None)) };
        let oldest = tail.header.oldest;
        if let Some(pin) = self.pin.upgrade()
            && pin.segment == oldest
        {
            return Ok(Some(Some(pin)));
        }
        let segment = view.segments.get(&(oldest as u32));
        let Some(segment) = segment else { return Ok(None) };
        let file = match files.disk.open(&segment.name, false) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(failed(&segment.place))?,
        };
        if !file.try_lock(true).map_err(failed(&segment.place))? {
            return Ok(None);
        }
        // From here on the lock goes with this.
        let pin = Pin { segment: oldest, file };
        let mut head = [0; crate::format::HEADER_BYTES];
        let read = pin.file.read_at(&mut head, 0).map_err(failed(&segment.place))?;
        let first = Header::decode(&head[..read], files.id);
        if first.is_none_or(|first| first.segment != oldest) {
            return Ok(None);
        }
        let pin = Arc::new(pin);
        self.pin = Arc::downgrade(&pin);
        Ok(Some(Some(pin)))
    }

    /// Brings a view up to the last commit.
    pub(crate) fn refresh(
        &mut self,
        files: &Files,
        view: &mut Arc<View>,
    ) -> Result<Option<Arc<Pin>>, LogError> {
        // From here on no file of the view becomes another segment: the writer takes the oldest
        // first, and not one that is locked.
        if self.tail.is_some()
            && let Some(_held) = self.pin(files, view)?
        {
            let before = self.tail.as_ref().map(Tail::end);
            let followed = self.follow(files, view);
            let is_new = self.tail.as_ref().map(Tail::end) != before;
            if is_new && let Some(tail) = &self.tail {
                tail.segment.sync()?;
            }
            // What the writer took away meanwhile is found anew, and damage again.
            if followed.is_ok_and(|followed| followed)
                && let Some(pin) = self.pin(files, view)?
            {
                return Ok(pin);
            }
        }
        let (found, pin) = self.load(files)?;
        *view = Arc::new(found);
        Ok(pin)
    }

    /// Takes the records behind the last one, while the oldest segment of the view is locked.
    /// Answers `false` if the last one has to be looked for anew.
    fn follow(&mut self, files: &Files, view: &mut Arc<View>) -> Result<bool, LogError> {
        while let Some(tail) = self.tail.clone() {
            let next = tail.segment.header(tail.end(), files.id)?.filter(|next| {
                next.segment == tail.header.segment && next.chain == tail.header.hash()
            });
            let (segment, at, header) = match next {
                Some(next) => (Arc::clone(&tail.segment), tail.end(), next),
                None => match next_segment(files, view, &tail)? {
                    Next::Is(found) => (Arc::new(found.0), 0, found.1),
                    Next::None => return Ok(true),
                    Next::Later => return Ok(false),
                },
            };
            if !segment.is_whole(at, &header)? {
                // It is being written.
                return Ok(true);
            }
            let index = segment.index(at, &header)?;
            let view = Arc::make_mut(view);
            let mut replay =
                Replay::onto(std::mem::take(&mut view.index), self.live, self.cycle.clone());
            let taken = replay.take(&segment, at, &header, &index);
            (view.index, self.live, self.cycle) = (replay.index, replay.live, replay.cycle);
            taken?;
            view.commit = header.commit;
            let segments = Arc::make_mut(&mut view.segments);
            segments.insert(segment.number, Arc::clone(&segment));
            segments.retain(|number, _| u64::from(*number) >= header.oldest);
            self.tail = Some(Tail { segment, at, header });
        }
        Ok(false)
    }
}

enum Next {
    Is(Box<(Segment, Header)>),
    None,
    /// There is a later one than the next.
    Later,
}

/// The segment that follows. It is in none of the files that the view has: those stay what they
/// are.
fn next_segment(files: &Files, view: &View, tail: &Tail) -> Result<Next, LogError> {
    let known: HashSet<_> = view.segments.values().map(|segment| segment.name.as_str()).collect();
    let mut later = Next::None;
    for name in files.names()? {
        if known.contains(name.as_str()) {
            continue;
        }
        let Some((segment, Some(first))) = files.open(&name)? else { continue };
        if first.segment > tail.header.segment {
            if first.before == tail.header.segment && first.before_end == tail.end() {
                return Ok(Next::Is(Box::new((segment, first))));
            }
            later = Next::Later;
        }
    }
    Ok(later)
}
