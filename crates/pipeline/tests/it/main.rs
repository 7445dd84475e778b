//! The pipeline through its public face: P1 to P17 as far as they concern a rebuild.

mod child_sets;
mod damage;
mod kills;
mod latest;
mod resume;
mod same;
mod support;
