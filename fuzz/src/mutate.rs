//! A seeded generator of inputs: the same (seed, target, step) gives the same bytes on every machine.

use crate::Target;

/// SplitMix64: small, fast, and good enough to pick mutations with.
pub struct Rng(u64);

impl Rng {
    /// A generator for one step of one target: streams of different targets and steps do not overlap in practice.
    pub fn new(seed: u64, target: &str, step: u64) -> Self {
        // FNV-1a over the name keeps the stream independent of the registry's order.
        let name =
            target.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        let mut rng = Self(seed ^ name);
        let a = rng.next_u64();
        Self(a ^ step.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 where `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.next_u64() % n as u64) as usize }
    }

    /// True once in `n`.
    fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A length up to `max`, short ones more often: uniform in the number of bits.
    fn length(&mut self, max: usize) -> usize {
        let bits = usize::BITS - max.leading_zeros();
        let cap = (1usize << self.below(bits as usize + 1)).min(max);
        self.below(cap + 1)
    }
}

/// Values at which integer code breaks.
const INTERESTING: [u64; 24] = [
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    16,
    63,
    64,
    127,
    128,
    255,
    256,
    511,
    512,
    4095,
    4096,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    u64::MAX,
];

/// Makes the inputs of one target.
pub struct Mutator {
    name: &'static str,
    dictionary: &'static [&'static [u8]],
    max_len: usize,
    corpus: Vec<Vec<u8>>,
}

impl Mutator {
    /// A mutator over the target's own seeds and `extra` (the files of its corpus).
    pub fn new(target: &Target, extra: Vec<Vec<u8>>) -> Self {
        let mut corpus = (target.seeds)();
        corpus.extend(extra);
        Self { name: target.name, dictionary: target.dictionary, max_len: target.max_len, corpus }
    }

    /// One more to start from.
    pub fn keep(&mut self, input: Vec<u8>) {
        self.corpus.push(input);
    }

    /// How many inputs there are to start from.
    pub fn corpus_len(&self) -> usize {
        self.corpus.len()
    }

    /// The input of `step`. The first steps are the corpus itself, so that what was found once stays fixed.
    pub fn input(&self, seed: u64, step: u64) -> Vec<u8> {
        if let Some(known) = usize::try_from(step).ok().and_then(|i| self.corpus.get(i)) {
            return known.clone();
        }
        let mut rng = Rng::new(seed, self.name, step);
        let mut data = if self.corpus.is_empty() || rng.once_in(8) {
            self.fresh(&mut rng)
        } else {
            self.corpus[rng.below(self.corpus.len())].clone()
        };
        // Mostly few changes, which stay near the well-formed, sometimes many.
        let most = if rng.once_in(4) { 64 } else { 6 };
        let rounds = 1 + rng.length(most);
        for _ in 0..rounds {
            self.mutate(&mut data, &mut rng);
        }
        data.truncate(self.max_len);
        data
    }

    fn fresh(&self, rng: &mut Rng) -> Vec<u8> {
        let len = rng.length(self.max_len);
        match rng.below(4) {
            0 => vec![0; len],
            // Small numbers: for a target that reads operations and indices from its bytes these are the legal ones.
            1 => (0..len).map(|_| rng.below(8) as u8).collect(),
            _ => (0..len).map(|_| rng.next_u64() as u8).collect(),
        }
    }

    fn mutate(&self, data: &mut Vec<u8>, rng: &mut Rng) {
        match rng.below(12) {
            0 => flip_bit(data, rng),
            1 | 2 => overwrite_byte(data, rng),
            3..=5 => overwrite_integer(data, rng),
            6 => nudge(data, rng),
            7 => self.insert_word(data, rng),
            8 => remove_range(data, rng),
            9 => repeat_range(data, rng, self.max_len),
            10 => self.splice(data, rng),
            _ => {
                let extra = rng.length(32);
                data.extend((0..extra).map(|_| rng.next_u64() as u8));
            }
        }
    }

    fn insert_word(&self, data: &mut Vec<u8>, rng: &mut Rng) {
        if self.dictionary.is_empty() {
            return overwrite_integer(data, rng);
        }
        let word = self.dictionary[rng.below(self.dictionary.len())];
        let at = rng.below(data.len() + 1);
        // Insert, or lay over what is there: fields keep their places in the second case.
        let end = if rng.once_in(2) { at } else { (at + word.len()).min(data.len()) };
        data.splice(at..end, word.iter().copied());
    }

    fn splice(&self, data: &mut Vec<u8>, rng: &mut Rng) {
        if self.corpus.is_empty() {
            return;
        }
        let other = &self.corpus[rng.below(self.corpus.len())];
        let from = rng.below(other.len() + 1);
        let cut = rng.below(data.len() + 1);
        data.truncate(cut);
        data.extend_from_slice(&other[from..]);
    }
}

fn flip_bit(data: &mut [u8], rng: &mut Rng) {
    let bit = rng.below(data.len() * 8);
    if let Some(byte) = data.get_mut(bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
}

fn overwrite_byte(data: &mut [u8], rng: &mut Rng) {
    let at = rng.below(data.len());
    if let Some(byte) = data.get_mut(at) {
        *byte = if rng.once_in(2) { rng.below(16) as u8 } else { rng.next_u64() as u8 };
    }
}

fn overwrite_integer(data: &mut [u8], rng: &mut Rng) {
    let width = 1 << rng.below(4);
    let value = INTERESTING[rng.below(INTERESTING.len())].wrapping_add([0, 0, 0, 1, u64::MAX][rng.below(5)]);
    let bytes = if rng.once_in(8) { value.to_be_bytes() } else { value.to_le_bytes() };
    let at = rng.below(data.len());
    for (to, from) in data.iter_mut().skip(at).zip(&bytes[..width]) {
        *to = *from;
    }
}

/// Adds a small number to a byte: lengths and indices that are off by a little.
fn nudge(data: &mut [u8], rng: &mut Rng) {
    let at = rng.below(data.len());
    let by = rng.below(17) as u8;
    if let Some(byte) = data.get_mut(at) {
        *byte = byte.wrapping_add(by).wrapping_sub(8);
    }
}

fn remove_range(data: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.below(data.len() + 1);
    let end = at + rng.length(data.len() - at);
    data.drain(at..end);
}

fn repeat_range(data: &mut Vec<u8>, rng: &mut Rng, max_len: usize) {
    let at = rng.below(data.len() + 1);
    let end = at + rng.length(data.len() - at);
    let piece = data[at..end].to_vec();
    let times = 1 + rng.length(8);
    for _ in 0..times {
        if data.len() + piece.len() > max_len {
            break;
        }
        data.splice(end..end, piece.iter().copied());
    }
}
