//! Where two chains part.

/// The place of the last block that both chains have, among blocks of ours in their order. Blocks
/// before a shared one are shared, so that few are asked for.
pub(crate) fn last_shared<B, E>(
    blocks: &[B],
    mut is_shared: impl FnMut(&B) -> Result<bool, E>,
) -> Result<Option<usize>, E> {
    // Blocks before `shared` are shared, those from `ours` on are not.
    let (mut shared, mut ours) = (0, blocks.len());
    while shared < ours {
        let middle = shared + (ours - shared) / 2;
        match blocks.get(middle).map(&mut is_shared).transpose()? {
            Some(true) => shared = middle + 1,
            _ => ours = middle,
        }
    }
    Ok(shared.checked_sub(1))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::last_shared;

    #[test]
    fn every_place_is_found_with_few_questions() {
        for len in 0..70_usize {
            let blocks: Vec<usize> = (0..len).collect();
            for shared in 0..=len {
                let mut asked = 0;
                let found = last_shared::<_, Infallible>(&blocks, |block| {
                    asked += 1;
                    Ok(*block < shared)
                });
                assert_eq!(found, Ok(shared.checked_sub(1)), "{shared} of {len}");
                assert!(asked <= 7, "{asked} questions for {len}");
            }
        }
        assert_eq!(last_shared(&[1], |_| Err("away")), Err("away"));
    }
}
