//! Bring-up and ring queue pairs of a memory-model NVMe controller (NVMe base 2.0, sections 3.3 and 3.5).
