//! `witness`: all that blocks need to be executed; made, checked, compared and minimized.

mod doctor;
mod make;
mod source;

use clap::{Args, Subcommand};

use self::{
    doctor::{DiffArgs, MinimizeArgs, WitnessCheckArgs},
    make::MakeArgs,
};
use crate::commands::Command;
use crate::ui::{Answer, Output, Speech};

/// Make the execution witnesses of blocks, and say what is wrong with those of others.
///
/// Without a verb of its own: replays the chain in memory up to the last block asked for, makes
/// witnesses and checks each by executing its block on nothing else. --block prints the witness as
/// debug_executionWitness answers it; --from, --to and --all print a line a block, {"number",
/// "hash", "witness"}.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    override_usage = "\
    spinney witness [OPTIONS] --genesis <FILE> --blocks <FILE> --block <N>\n       \
    spinney witness [OPTIONS] --genesis <FILE> --blocks <FILE>\n           \
    <--from <N>|--to <N>|--range <A..B>|--all>\n       \
    spinney witness <COMMAND>",
    after_help = "Examples:\n  \
    spinney witness --genesis genesis.json --blocks chain.rlp --block 77\n  \
    spinney witness --genesis genesis.json --blocks chain.rlp --from 100 --to 120 --out \
    witnesses.ndjson\n  \
    spinney witness --genesis genesis.json --blocks chain.rlp --block 77 --encoding ssz --out \
    input.ssz\n  \
    spinney witness check witness.json --genesis genesis.json --blocks chain.rlp"
)]
pub(crate) struct WitnessArgs {
    #[command(subcommand)]
    verb: Option<WitnessVerb>,
    #[command(flatten)]
    make: MakeArgs,
}

#[derive(Debug, Subcommand)]
enum WitnessVerb {
    Check(WitnessCheckArgs),
    Diff(DiffArgs),
    Minimize(MinimizeArgs),
}

impl Command for WitnessArgs {
    const NAME: &'static str = "witness";

    fn speech(&self) -> Speech {
        match self.verb {
            // A line of JSON a witness, where that is asked for.
            Some(WitnessVerb::Check(_)) => Speech::Lines,
            _ => Speech::Documents,
        }
    }

    fn run(&self, output: &Output) -> anyhow::Result<Answer> {
        let exit = match &self.verb {
            Some(WitnessVerb::Check(args)) => doctor::check(args, output),
            Some(WitnessVerb::Diff(args)) => doctor::diff(args, output),
            Some(WitnessVerb::Minimize(args)) => doctor::minimize(args, output),
            None => make::run(&self.make, output),
        }?;
        Ok(Answer::documents(exit))
    }
}
