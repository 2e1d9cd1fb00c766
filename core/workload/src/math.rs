//! Logarithm, exponential and power of `f64`: `core` has none, and these give the same bits on every machine.

const LN_2: f64 = core::f64::consts::LN_2;
/// ln 2 in two parts; the first has so many trailing zeroes that small multiples of it are exact.
const LN_2_HIGH: f64 = 0.693_147_180_369_123_8;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
/// 1, 1/3, 1/5 ...
const ODD: [f64; 11] = {
    let (mut parts, mut k) = ([0.0; 11], 0);
    while k < 11 {
        parts[k] = 1.0 / (2 * k + 1) as f64;
        k += 1;
    }
    parts
};
const MANTISSA: u64 = (1 << 52) - 1;

/// The natural logarithm of a finite, normal, positive number, to 1e-15 relative.
pub fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut mantissa = f64::from_bits(bits & MANTISSA | 1023 << 52);
    if mantissa > core::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    // ln m = 2 artanh s with |s| < 0.172: eleven terms leave 1e-18.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let series = ODD.iter().rev().fold(0.0, |sum, part| sum * square + part);
    exponent as f64 * LN_2 + 2.0 * s * series
}

/// e to the power `x` for |x| < 700, to 1e-14 relative.
pub fn exp(x: f64) -> f64 {
    let half = if x < 0.0 { -0.5 } else { 0.5 };
    let k = (x / LN_2 + half) as i64;
    let r = (x - k as f64 * LN_2_HIGH) - k as f64 * LN_2_LOW;
    // Taylor's series in Horner's form with |r| < 0.347: fifteen terms leave 1e-19.
    let series = (1..15).rev().fold(1.0, |sum, n| 1.0 + r / f64::from(n) * sum);
    series * f64::from_bits(((k + 1023) as u64) << 52)
}

/// The square root of a number that is not negative, to the last bits.
pub fn sqrt(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    // Newton's iteration from the exponential's guess is exact after one step.
    let guess = exp(0.5 * ln(x));
    0.5 * (guess + x / guess)
}

/// `x` to the power `y`, for positive `x`.
pub fn pow(x: f64, y: f64) -> f64 {
    exp(y * ln(x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_system_has_it() {
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-13 * b.abs().max(1e-3);
        for i in 1..20_000u32 {
            let x = f64::from(i) * 0.37;
            for x in [x, 1.0 / x, x * 1e30] {
                assert!(near(ln(x), x.ln()), "ln {x}: {} {}", ln(x), x.ln());
            }
            let y = f64::from(i) * 0.034 - 340.0;
            assert!((exp(y) / y.exp() - 1.0).abs() < 1e-13, "exp {y}: {} {}", exp(y), y.exp());
            assert!((pow(x, -0.99) / x.powf(-0.99) - 1.0).abs() < 1e-13, "{x}");
        }
        assert_eq!((ln(1.0), exp(0.0)), (0.0, 1.0));
        for x in [0.0, 1.0, 2.0, 1e-9, 4e20] {
            assert!(near(sqrt(x), x.sqrt()), "sqrt {x}: {}", sqrt(x));
        }
    }
}
