use crate::{args::FormatArgs, failure::Exit, output::Output};
#[derive(Debug, clap::Args)]
pub(crate) struct VectorsArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}
pub(crate) fn run(_: &VectorsArgs, _: &Output) -> anyhow::Result<Exit> {
    Ok(Exit::Ok)
}
