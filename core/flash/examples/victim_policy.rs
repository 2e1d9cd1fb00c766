//! A victim policy of your own, on a drive in virtual time: `cargo run --release -p weir-flash --example victim_policy`.
//! docs/guides/flash-policies.md walks through it.

use weir_flash::{Flash, FlashDriveConfig, FlashOp, PlaneView, Precondition, Preset, SplitMix64, VictimPolicy};
use weir_units::{Bytes, Nanos};

/// Greedy, but blocks that are worn more than the others are spared: a unit of data for each erase that they are ahead.
#[derive(Debug)]
struct SpareTheWorn;

impl VictimPolicy for SpareTheWorn {
    fn pick(&mut self, plane: &PlaneView<'_>, _: &mut SplitMix64) -> Option<usize> {
        let least = plane.erases.iter().copied().min().unwrap_or(0);
        plane.best(|block| -f64::from(plane.valid[block]) - f64::from(plane.erases[block] - least))
    }
}

/// A small drive: 32 MiB of FEMU's black box, 20 % over-provisioned.
fn drive() -> Result<Flash, weir_flash::ConfigError> {
    let mut config = FlashDriveConfig::preset(Preset::FemuBbssd, false);
    (config.geometry.channels, config.geometry.ways, config.geometry.blocks) = (2, 1, 64);
    config.geometry.pages = 64;
    config.ftl.capacity = Some(Bytes(26 << 20));
    Flash::new(&config, Nanos(0))
}

/// Write amplification and the spread of erases after four drive writes, half of them to a tenth of the drive.
fn measure(mut flash: Flash) -> (f64, u32) {
    flash.precondition(Precondition::Steady);
    let mut rng = SplitMix64::new(1);
    let mut now = Nanos(0);
    for _ in 0..4 * flash.units() {
        let part = if rng.below(2) == 0 { flash.units() / 10 } else { flash.units() };
        // Each write follows the one before.
        now = flash.submit(now, FlashOp::Write { fua: false }, rng.below(part), 1);
    }
    let wear = flash.wear();
    (flash.write_amplification(), wear.max - wear.min)
}

fn main() -> Result<(), weir_flash::ConfigError> {
    let (greedy, greedy_spread) = measure(drive()?);
    let mut flash = drive()?;
    flash.set_victim_policy(Box::new(SpareTheWorn));
    let (mine, my_spread) = measure(flash);
    println!("greedy: write amplification {greedy:.3}, erases differ by up to {greedy_spread}");
    println!("mine:   write amplification {mine:.3}, erases differ by up to {my_spread}");
    assert!(my_spread < greedy_spread, "a policy that looks at wear levels it");
    Ok(())
}

#[test]
fn runs() {
    assert_eq!(main(), Ok(()));
}
