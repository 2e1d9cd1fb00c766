//! A model's own large arrays, nearer to the processor: hints that change nothing but the time that an access takes.

/// The least array for which huge pages are asked for.
const LARGE: usize = 4 * crate::memory::HUGE;

/// Places up to which [`prefetch`] brings words into the first-level cache; more would push out what is at work there.
const FEW: usize = 8;

/// Brings `words[i]` into a cache for each `i` of `at`, without waiting for it; places behind the end are left out.
#[inline]
pub fn prefetch(words: &[u32], at: &[u32]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        for word in at.iter().filter_map(|i| words.get(*i as usize)) {
            let word = std::ptr::from_ref(word).cast();
            // SAFETY: a prefetch changes nothing and cannot fault.
            unsafe {
                if at.len() <= FEW { _mm_prefetch::<_MM_HINT_T0>(word) } else { _mm_prefetch::<_MM_HINT_T1>(word) }
            };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (words, at);
}

/// Has the operating system put the array on huge pages, where it is large and the system can (Linux 6.1); says for how many
/// bytes it did. A map that is read at random places costs a page walk an access otherwise.
pub fn on_huge_pages(words: &[u32]) -> usize {
    use crate::memory::HUGE;
    let bytes = size_of_val(words);
    let begin = words.as_ptr() as usize;
    let (from, to) = (begin.next_multiple_of(HUGE), (begin + bytes) / HUGE * HUGE);
    if bytes < LARGE || from >= to {
        return 0;
    }
    // SAFETY: the range lies inside `words`, which the borrow keeps mapped; its contents stay what they are.
    let answer = unsafe {
        libc::madvise(words.as_ptr().byte_add(from - begin).cast_mut().cast(), to - from, libc::MADV_COLLAPSE)
    };
    if answer == 0 { to - from } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_change_nothing() {
        let words: Vec<u32> = (0..8 << 20).collect();
        prefetch(&words, &[0, 8 << 20, u32::MAX, 77]);
        let huge = on_huge_pages(&words);
        assert!(huge == 0 || (size_of_val(&words[..]) - huge) < 2 * crate::memory::HUGE, "{huge}");
        assert_eq!(on_huge_pages(&words[..1000]), 0, "too small");
        assert_eq!(on_huge_pages(&[]), 0);
        assert!((0..).zip(&words).all(|(i, w)| i == *w));
    }
}
