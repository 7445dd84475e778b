//! `verify`: a proof document against a root, with no store.

use std::path::PathBuf;

use alloy_primitives::{Address, B256, Bytes, U256};
use clap::Args;
use spinney_cli::document::{Claim, Document};
use spinney_tree::mpt::proof::{AccountProof, Proof, ProofError};

use super::words;
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::trees::Name;
use crate::{stores, sums};

/// Check a proof document against a root, without a store.
///
/// Reads what `spinney prove` prints, what eth_getProof answers, and the execution witnesses of Verkle
/// blocks (stateDiff and verkleProof), of which it says the root after the block, too. Exit code 0 if the proof holds, 1 if
/// it does not, 2 if the document is none.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    spinney verify --root 0xd7f8974fb5ac78d9ac099b9ad5018bedc2ce0a72dad1827a1709da30580f0544 proof.json\n  \
    spinney prove --db raw.db 0x646f65 | spinney verify -")]
pub(crate) struct VerifyArgs {
    /// The document; - is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The root that is trusted. Without it the document's own is taken, which proves little.
    #[arg(long, value_name = "ROOT")]
    root: Option<B256>,
    /// The sum of all leaves that is trusted, of a sum tree.
    #[arg(long, value_name = "SUM")]
    root_sum: Option<u64>,
}

pub(crate) fn run(args: &VerifyArgs, output: &Output) -> anyhow::Result<Exit> {
    let bytes = stores::read_file(&args.file)?;
    if sums::is_sum(&bytes) {
        return sums::verify(&bytes, &args.file, (args.root, args.root_sum), output);
    }
    let Document { tree, root: own, claim } = Document::parse(&bytes).map_err(|error| {
        Failure::new(format!("{error} ({})", args.file.display())).hint(
            "the document is one JSON object: what spinney prove prints, the EIP-1186 object that \
                 eth_getProof answers, alone or as the result of a response, or the execution \
                 witness of a Verkle block",
        )
    })?;
    if args.root_sum.is_some() {
        return Err(Failure::new("the document is of a tree without sums (--root-sum)")
            .hint("is it the document you mean?")
            .into());
    }
    let name = Name::parse(tree.as_deref().unwrap_or("mpt"))?;
    // A document names its tree, and what it claims is of that tree; else it is no document.
    if matches!(claim, Claim::Keys { .. } | Claim::Account(_)) && name != Name::Mpt {
        let what = format!("the document says tree {name}, and its proof is of an mpt");
        return Err(Failure::new(what).hint("is it what spinney prove printed?").into());
    }
    let root = match (args.root, own) {
        (Some(root), own) => {
            if let Some(own) = own.filter(|own| *own != root) {
                output.warn(format!("the document was made for another root: {own}"));
            }
            root
        }
        (None, Some(own)) => {
            output
                .warn(format!("checked against the document's own root, {own}; --root trusts one"));
            own
        }
        (None, None) => {
            return Err(Failure::new("there is no root to check against")
                .hint("--root 0x.. names the root that is trusted: a header's state root")
                .into());
        }
    };
    let shown = match claim {
        Claim::Keys { entries, proof } => show_keys(&root, &entries, &proof).map_err(Into::into),
        Claim::Account(proof) => show_account(&root, &proof).map_err(Into::into),
        Claim::Words(claim) => words::verify(&root, name, &claim).map_err(anyhow::Error::from),
        Claim::Witness(claim) => words::verify_witness(&root, &claim).map_err(Into::into),
    };
    let shown = shown.map_err(|error| {
        let what = format!("the proof does not hold under {root}");
        let hint = "proof, claims and root do not belong together: was it made for this root?";
        Failure::new(what).because(error).hint(hint).exit(Exit::No)
    })?;
    output.line(&format!("holds under {root}"))?;
    shown.iter().try_for_each(|line| output.line(line))?;
    Ok(Exit::Ok)
}

fn show_keys(
    root: &B256,
    entries: &[(Bytes, Option<Bytes>)],
    proof: &Proof,
) -> Result<Vec<String>, ProofError> {
    let keys: Vec<_> = entries.iter().map(|(key, _)| key).collect();
    let verified = proof.verify(&root.0, &keys)?;
    let describe = |value: Option<&[u8]>, nothing: &str| match value {
        Some(value) => Bytes::copy_from_slice(value).to_string(),
        None => nothing.to_owned(),
    };
    let line = |(key, claimed): &(Bytes, Option<Bytes>)| {
        let proven = verified.get(key).expect("it was verified for all of the keys");
        let claimed = claimed.as_ref().map(|value| &value[..]);
        if proven != claimed {
            let [proven, claimed] = [proven, claimed].map(|value| describe(value, "nothing"));
            return Err(ProofError::Differs { key: key.to_vec(), proven, claimed });
        }
        Ok(format!("{key}: {}", describe(proven, "absent")))
    };
    entries.iter().map(line).collect()
}

fn show_account(root: &B256, proof: &AccountProof) -> Result<Vec<String>, ProofError> {
    let verified = proof.verify(&root.0)?;
    let address = Address::from(proof.address);
    let mut lines = vec![match verified.account() {
        None => format!("account {address}: absent"),
        Some(account) => format!(
            "account {address}: nonce {}, balance {}, storage hash {}, code hash {}",
            account.nonce,
            U256::from_be_bytes(account.balance),
            B256::from(account.storage_hash),
            B256::from(account.code_hash)
        ),
    }];
    for slot in &proof.storage_proof {
        let value = verified.slot(&slot.key).expect("it was verified for all of the slots");
        lines.push(format!("slot {}: {:#x}", B256::from(slot.key), U256::from_be_bytes(value)));
    }
    Ok(lines)
}
