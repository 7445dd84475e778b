//! What waits to be answered: a bounded line between connections and those who read the store.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use tokio::sync::oneshot;

/// What is asked for.
#[derive(Debug)]
pub(crate) enum Ask {
    /// The body of a request.
    Answer(Bytes),
    /// The number of the last block, for those who look after the server.
    Head,
}

/// What is sent back.
#[derive(Debug)]
pub(crate) enum Reply {
    /// None where only notifications were sent.
    Answer(Option<Vec<u8>>),
    Head(Result<Option<u64>, String>),
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) ask: Ask,
    /// When nobody waits any more.
    pub(crate) deadline: Instant,
    pub(crate) reply: oneshot::Sender<Reply>,
}

/// A line of jobs.
#[derive(Debug)]
pub(crate) struct Queue {
    line: Mutex<Line>,
    ready: Condvar,
    most: usize,
}

#[derive(Debug, Default)]
struct Line {
    jobs: VecDeque<Job>,
    closed: bool,
}

/// What a worker is to do next.
#[derive(Debug)]
pub(crate) enum Next {
    Job(Job),
    /// Nothing came for a while.
    Idle,
    Closed,
}

impl Queue {
    pub(crate) fn new(most: usize) -> Self {
        Self { line: Mutex::default(), ready: Condvar::new(), most }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a job at the end; gives it back where the line is full or closed.
    pub(crate) fn push(&self, job: Job) -> Result<(), Job> {
        let mut line = self.line();
        if line.closed || line.jobs.len() >= self.most {
            return Err(job);
        }
        line.jobs.push_back(job);
        drop(line);
        self.ready.notify_one();
        Ok(())
    }

    /// Waits for a job, `patience` at most if there is one.
    pub(crate) fn next(&self, patience: Option<Duration>) -> Next {
        let mut line = self.line();
        loop {
            if let Some(job) = line.jobs.pop_front() {
                return Next::Job(job);
            }
            if line.closed {
                return Next::Closed;
            }
            line = match patience {
                None => self.ready.wait(line).unwrap_or_else(PoisonError::into_inner),
                Some(patience) => {
                    let waited = self.ready.wait_timeout(line, patience);
                    let (mut line, waited) = waited.unwrap_or_else(PoisonError::into_inner);
                    if waited.timed_out() {
                        return line.jobs.pop_front().map_or(Next::Idle, Next::Job);
                    }
                    line
                }
            };
        }
    }

    /// Takes no more jobs; those that wait are done.
    pub(crate) fn close(&self) {
        self.line().closed = true;
        self.ready.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tokio::sync::oneshot;

    use super::{Ask, Job, Next, Queue};

    fn job() -> Job {
        Job { ask: Ask::Head, deadline: Instant::now(), reply: oneshot::channel().0 }
    }

    #[test]
    fn a_full_or_closed_line_gives_jobs_back() {
        let queue = Queue::new(2);
        assert!(matches!(queue.next(Some(Duration::ZERO)), Next::Idle));
        assert!(queue.push(job()).is_ok() && queue.push(job()).is_ok());
        assert!(queue.push(job()).is_err());
        assert!(matches!(queue.next(None), Next::Job(_)));
        assert!(queue.push(job()).is_ok());
        queue.close();
        assert!(queue.push(job()).is_err());
        assert!(
            matches!(queue.next(None), Next::Job(_)) && matches!(queue.next(None), Next::Job(_))
        );
        assert!(matches!(queue.next(None), Next::Closed));
    }
}
