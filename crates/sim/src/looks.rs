//! Verbs that only look: what they answer, and prove, is what the model says.

use std::rc::Rc;

use alloy_primitives::{Address, B256, Bytes, U256};
use fastrand::Rng;
use spinney_state::embed::{BinaryState, Embedding};
use spinney_state::{Change, Changes, EMPTY_CODE_HASH, State, StateError, StateRead};
use spinney_tree::{KeyProofs, PageStore};

use crate::changes::{ADDRESSES, address, changes, slot};
use crate::model::{Block, PBT, UBT, mpt_root};
use crate::site::Tap;
use crate::textbook::{Accounts, Held};
use crate::world::{Done, Stop, World, same, wrong};

/// Everything that a state answers is what the accounts say.
fn is<S: StateRead>(world: &World, state: &S, accounts: &Accounts) -> Done {
    for address in (0..ADDRESSES).map(Address::with_last_byte) {
        let held = accounts.0.get(&address);
        is_account(world, state, address, held)?;
        for (slot, value) in held.iter().flat_map(|held| &held.storage) {
            is_slot(world, state, (address, *slot), *value)?;
        }
    }
    Ok(())
}

fn is_account<S: StateRead>(
    world: &World,
    state: &S,
    address: Address,
    held: Option<&Held>,
) -> Done {
    let found =
        state.account(address).map_err(|error| world.failed("reading an account", error))?;
    same("account", found, held.map(|held| held.account))?;
    let Some(held) = held else { return Ok(()) };
    let code = state.code(held.account.code_hash);
    let code = code.map_err(|error| world.failed("reading code", error))?;
    same("code", code.as_ref(), Some(&held.code))
}

fn is_slot<S: StateRead>(
    world: &World,
    state: &S,
    (address, slot): (Address, B256),
    value: U256,
) -> Done {
    let found =
        state.storage(address, slot).map_err(|error| world.failed("reading a slot", error))?;
    same("slot", found, value)
}

/// Some of what a state answers.
fn some<S: StateRead>(world: &World, state: &S, accounts: &Accounts, rng: &mut Rng) -> Done {
    for _ in 0..3 {
        let (address, slot) = (address(rng), slot(rng));
        let held = accounts.0.get(&address);
        is_account(world, state, address, held)?;
        let value = held.and_then(|held| held.storage.get(&slot)).copied();
        is_slot(world, state, (address, slot), value.unwrap_or_default())?;
    }
    Ok(())
}

/// Reads and proofs of the state as it is.
pub(crate) fn reads<P: PageStore>(
    world: &mut World,
    state: Option<&State<P>>,
    accounts: Rc<Accounts>,
    rng: &mut Rng,
) -> Done {
    let state = state.ok_or(Stop::Down)?;
    some(world, state, &accounts, rng)?;
    let address = address(rng);
    let slots = [slot(rng), slot(rng)];
    let proof = state.prove(address, &slots).map_err(|error| world.failed("prove", error))?;
    world.tally.proofs += 1;
    is_proven(&proof, state.root(), (address, &slots), &accounts)
}

fn is_proven(
    proof: &spinney_tree::mpt::proof::AccountProof,
    root: B256,
    (address, slots): (Address, &[B256]),
    accounts: &Accounts,
) -> Done {
    let verified = match proof.verify(&root.0) {
        Ok(verified) => verified,
        Err(error) => return wrong(format!("a proof of {address} is refused: {error}")),
    };
    let held = accounts.0.get(&address);
    let fields = verified.account().map(|found| (found.nonce, found.balance, found.code_hash));
    let expected = held.map(|held| {
        let account = held.account;
        (account.nonce, account.balance.to_be_bytes(), account.code_hash.0)
    });
    same("proven account", fields, expected)?;
    for slot in slots {
        let value = held.and_then(|held| held.storage.get(slot)).copied().unwrap_or_default();
        same("proven slot", verified.slot(&slot.0).ok(), Some(value.to_be_bytes()))?;
    }
    Ok(())
}

/// A kept block: reads, proofs, candidates on top of it, and what the blocks behind it did.
pub(crate) fn at(world: &mut World, tap: Tap<'_>, state: &State<Tap<'_>>, rng: &mut Rng) -> Done {
    let Some(head) = world.durable.head() else { return Ok(()) };
    let head = head.id.number;
    let number = rng.u64(head.saturating_sub(12)..=head);
    let block = Rc::clone(world.durable.block(number));
    world.tally.looks += 1;
    let kept = match state.at(number) {
        Ok(_) if number < world.durable.oldest => {
            return wrong(format!("block {number} is kept no more, and is there"));
        }
        Ok(kept) => kept,
        Err(StateError::NotKept { .. }) if number < world.durable.oldest => return Ok(()),
        Err(error) => return Err(world.failed("a kept block", error)),
    };
    let book = &block.after;
    same("block that is kept", kept.block(), Some(block.id))?;
    same("root of a kept block", kept.root(), book.mpt_root())?;
    some(world, &kept, &book.accounts, rng)?;
    let address = address(rng);
    let slots = [slot(rng)];
    let proof = kept.prove(address, &slots).map_err(|error| world.failed("prove", error))?;
    world.tally.proofs += 1;
    is_proven(&proof, kept.root(), (address, &slots), &book.accounts)?;
    if rng.bool() {
        let mut accounts = book.accounts.clone();
        let failed = |error: StateError| world.failed("a candidate", error);
        let one = changes(rng);
        let first = kept.apply(&one).map_err(failed)?;
        accounts.apply(&one);
        same("root of a candidate", first.root(), mpt_root(&accounts))?;
        let two = changes(rng);
        let second = first.apply(&two).map_err(failed)?;
        accounts.apply(&two);
        same("root of a candidate on another", second.root(), mpt_root(&accounts))?;
        some(world, &second, &accounts, rng)?;
    }
    drop(kept);
    if rng.u8(0..3) == 0 {
        differences(world, state, &block)?;
    }
    if world.habits.pbt {
        let leaves = block.after.pbt().leaves(PBT.hash);
        let leaves = leaves.into_iter().collect::<Vec<_>>();
        tree_at(world, tap, PBT, (&block, block.after.pbt_root()), &leaves, rng)?;
    }
    if world.habits.ubt {
        let leaves = block.after.ubt.leaves.iter();
        let leaves = leaves.map(|(key, value)| (key.to_vec(), *value)).collect::<Vec<_>>();
        tree_at(world, tap, UBT, (&block, block.after.ubt_root()), &leaves, rng)?;
    }
    Ok(())
}

/// What the blocks behind one did leads from its state to theirs.
fn differences<P: PageStore>(world: &World, state: &State<P>, from: &Block) -> Done {
    let Some(head) = world.durable.head() else { return Ok(()) };
    let mut seen: Vec<(u64, B256, Changes)> = Vec::new();
    let done = state.differences(from.id.number, head.id.number, |block, root, changes| {
        seen.push((block.number, root, changes));
        Ok::<_, StateError>(())
    });
    done.map_err(|error| world.failed("differences", error))?;
    let mut accounts = from.after.accounts.clone();
    for (number, root, mut changes) in seen.into_iter().rev() {
        for change in changes.accounts.values_mut() {
            // The textbook asks for no code by itself, too.
            if let Change::Written(change) = change
                && change.code_hash == Some(EMPTY_CODE_HASH)
            {
                change.code = Some(Bytes::new());
            }
        }
        accounts.apply(&changes);
        let expected = world.durable.block(number).after.mpt_root();
        same("root of a difference", root, expected)?;
        same("root after a difference", mpt_root(&accounts), expected)?;
    }
    same("state after differences", mpt_root(&accounts), head.after.mpt_root())
}

/// A tree beside the trie at a kept block, with proofs.
fn tree_at<S: Embedding + KeyProofs>(
    world: &mut World,
    tap: Tap<'_>,
    scheme: S,
    (block, root): (&Block, B256),
    leaves: &[(Vec<u8>, [u8; 32])],
    rng: &mut Rng,
) -> Done {
    let failed = |error: &dyn std::fmt::Display| world.failed("a kept tree", error);
    let state = BinaryState::open(scheme.clone(), tap, 1).map_err(|error| failed(&error))?;
    let kept = state.at(block.id.number).map_err(|error| failed(&error))?;
    same("root of a kept tree", (kept.block(), kept.root()), (Some(block.id), root))?;
    let mut asked = vec![(scheme.slot_key(&address(rng), &slot(rng)), None)];
    for _ in 0..2 {
        if let Some((key, value)) = rng.choice(leaves) {
            asked.push((key.clone(), Some(*value)));
        }
    }
    let known = leaves.iter().find(|(key, _)| *key == asked[0].0);
    asked[0].1 = known.map(|(_, value)| *value);
    asked.sort();
    asked.dedup();
    let keys: Vec<_> = asked.iter().map(|(key, _)| key.clone()).collect();
    let sent = kept.prove(&keys).map_err(|error| failed(&error))?;
    world.tally.proofs += 1;
    let verified = match scheme.verify_keys(&root.0, &sent) {
        Ok(verified) => verified,
        Err(error) => return wrong(format!("a proof of {} is refused: {error}", scheme.id())),
    };
    for (key, value) in &asked {
        let found = verified.get(key).ok().map(|found| found.copied());
        same("proven leaf", found, Some(*value))?;
    }
    Ok(())
}

/// The last commit is sound: pages as a rebuild makes them, history without gaps, all accounts,
/// some kept blocks.
pub(crate) fn check<P: PageStore>(world: &World, state: &State<P>) -> Done {
    let findings = state.check(|_| {}).map_err(|error| world.failed("check", error))?;
    same("findings", findings, vec![])?;
    let faults = state.check_history().map_err(|error| world.failed("check of history", error))?;
    if let Some(fault) = faults.first() {
        return wrong(format!("the history is not sound: {fault}"));
    }
    let Some(head) = world.durable.head() else { return Ok(()) };
    if state.layer_count() == 0 {
        is(world, state, &head.after.accounts)?;
    }
    let (oldest, newest) = (world.durable.oldest, head.id.number);
    for number in [oldest, (oldest + newest) / 2, newest.saturating_sub(1).max(oldest)] {
        let kept = state.at(number).map_err(|error| world.failed("a kept block", error))?;
        let block = world.durable.block(number);
        same("root of a kept block", kept.root(), block.after.mpt_root())?;
    }
    Ok(())
}

/// The trees beside are sound.
pub(crate) fn check_beside<P: PageStore>(world: &World, store: &P) -> Done {
    if world.habits.pbt {
        check_tree(world, store, PBT)?;
    }
    if world.habits.ubt {
        check_tree(world, store, UBT)?;
    }
    Ok(())
}

pub(crate) fn check_tree<S: Embedding, P: PageStore>(world: &World, store: &P, scheme: S) -> Done {
    let failed = |error: &dyn std::fmt::Display| world.failed("check of a tree", error);
    let state = BinaryState::open(scheme, store, 1).map_err(|error| failed(&error))?;
    same("findings", state.check(|_| {}).map_err(|error| failed(&error))?, vec![])
}
