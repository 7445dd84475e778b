//! Writes a genesis as geth reads it.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::fmt::Write as _;

use alloy_eips::eip7840::BlobParams;
use alloy_primitives::{B256, hex};
use spinney_state::{AccountChange, Change};

use crate::{config::ChainConfig, genesis::Genesis};

impl Genesis {
    /// geth's `genesis.json`; [`parse`](Self::parse) gives the same genesis back.
    pub fn to_json(&self) -> String {
        let header = &self.header;
        let mut fields = vec![
            format!("\"config\":{}", config(&self.config)),
            format!("\"nonce\":\"{:#x}\"", u64::from_be_bytes(header.nonce.0)),
            format!("\"timestamp\":\"{:#x}\"", header.timestamp),
            format!("\"extraData\":\"{}\"", header.extra_data),
            format!("\"gasLimit\":\"{:#x}\"", header.gas_limit),
            format!("\"difficulty\":\"{:#x}\"", header.difficulty),
            format!("\"mixHash\":\"{}\"", header.mix_hash),
            format!("\"coinbase\":\"{}\"", hex::encode_prefixed(header.beneficiary)),
            "\"number\":\"0x0\"".to_owned(),
            format!("\"gasUsed\":\"{:#x}\"", header.gas_used),
            format!("\"parentHash\":\"{}\"", header.parent_hash),
        ];
        let optional = [
            ("baseFeePerGas", header.base_fee_per_gas),
            ("excessBlobGas", header.excess_blob_gas),
            ("blobGasUsed", header.blob_gas_used),
            ("slotNumber", header.slot_number),
        ];
        for (name, value) in optional {
            fields.extend(value.map(|value| format!("\"{name}\":\"{value:#x}\"")));
        }
        let accounts: Vec<_> = self.alloc.accounts.iter().filter_map(account).collect();
        fields.push(format!("\"alloc\":{{\n{}\n}}", accounts.join(",\n")));
        format!("{{{}}}\n", fields.join(",\n"))
    }
}

fn account((address, change): (&alloy_primitives::Address, &Change)) -> Option<String> {
    let Change::Written(AccountChange { nonce, balance, code, storage, .. }) = change else {
        return None;
    };
    let mut out = format!("\"{}\":{{", hex::encode_prefixed(address));
    // Writing into a string cannot fail.
    let _ = write!(out, "\"balance\":\"{:#x}\"", balance.unwrap_or_default());
    if let Some(nonce) = nonce.filter(|nonce| *nonce != 0) {
        let _ = write!(out, ",\"nonce\":\"{nonce:#x}\"");
    }
    if let Some(code) = code {
        let _ = write!(out, ",\"code\":\"{code}\"");
    }
    if !storage.is_empty() {
        let slots = storage.iter();
        let slots: Vec<_> =
            slots.map(|(slot, value)| format!("\"{slot}\":\"{}\"", B256::from(*value))).collect();
        let _ = write!(out, ",\"storage\":{{{}}}", slots.join(","));
    }
    out.push('}');
    Some(out)
}

fn config(config: &ChainConfig) -> String {
    let mut fields = vec![format!("\"chainId\":{}", config.chain_id)];
    let numbers = [
        ("homesteadBlock", config.homestead_block),
        ("daoForkBlock", config.dao_fork_block),
        ("eip150Block", config.eip150_block),
        ("eip155Block", config.eip158_block),
        ("eip158Block", config.eip158_block),
        ("byzantiumBlock", config.byzantium_block),
        ("constantinopleBlock", config.constantinople_block),
        ("petersburgBlock", config.petersburg_block),
        ("istanbulBlock", config.istanbul_block),
        ("muirGlacierBlock", config.muir_glacier_block),
        ("berlinBlock", config.berlin_block),
        ("londonBlock", config.london_block),
        ("arrowGlacierBlock", config.arrow_glacier_block),
        ("grayGlacierBlock", config.gray_glacier_block),
        ("mergeNetsplitBlock", config.merge_netsplit_block),
        ("shanghaiTime", config.shanghai_time),
        ("cancunTime", config.cancun_time),
        ("pragueTime", config.prague_time),
        ("osakaTime", config.osaka_time),
        ("amsterdamTime", config.amsterdam_time),
    ];
    let unknown = config.unknown_forks.iter();
    fields.extend(unknown.map(|fork| format!("\"{}\":{}", fork.name, fork.first)));
    for (name, value) in numbers {
        fields.extend(value.map(|value| format!("\"{name}\":{value}")));
    }
    if config.dao_fork_block.is_some() {
        fields.push("\"daoForkSupport\":true".to_owned());
    }
    if let Some(terminal) = config.terminal_total_difficulty {
        fields.push(format!("\"terminalTotalDifficulty\":{terminal}"));
    }
    let deposits = hex::encode_prefixed(config.deposit_contract);
    fields.push(format!("\"depositContractAddress\":\"{deposits}\""));
    blobs(config, &mut fields);
    format!("{{{}}}", fields.join(","))
}

/// The blob schedule, by the forks that begin when its entries do; what begins at no fork is a
/// fork of blob parameters only.
fn blobs(config: &ChainConfig, fields: &mut Vec<String>) {
    let named = [
        ("osaka", config.osaka_time),
        ("prague", config.prague_time),
        ("cancun", config.cancun_time),
    ];
    let mut entries = Vec::new();
    let mut bpo_count = 0;
    let entry = |name: &str, params: &BlobParams| {
        format!(
            "\"{name}\":{{\"target\":{},\"max\":{},\"baseFeeUpdateFraction\":{}}}",
            params.target_blob_count, params.max_blob_count, params.update_fraction
        )
    };
    let schedule = &config.blob_schedule;
    for (time, params) in schedule {
        let name = named.iter().find(|(_, begins)| *begins == Some(*time));
        let name = name.map(|(name, _)| (*name).to_owned()).unwrap_or_else(|| {
            bpo_count = u32::saturating_add(bpo_count, 1);
            fields.push(format!("\"bpo{bpo_count}Time\":{time}"));
            format!("bpo{bpo_count}")
        });
        entries.push(entry(&name, params));
    }
    // geth refuses a genesis without those of forks that another one begins with.
    for (name, begins) in &named[1..] {
        let Some(time) =
            begins.filter(|_| !entries.iter().any(|e| e.starts_with(&format!("\"{name}\""))))
        else {
            continue;
        };
        if let Some((_, params)) = schedule.iter().rfind(|(begins, _)| *begins <= time) {
            entries.push(entry(name, params));
        }
    }
    if !entries.is_empty() {
        fields.push(format!("\"blobSchedule\":{{{}}}", entries.join(",")));
    }
}
