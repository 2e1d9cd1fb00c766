//! What is to be said of `slots`, which a drive has from its profile where nothing else says how many.

use super::admission;
use super::config::Config;
use super::device::DeviceConfig;

/// What is right in a configuration and may yet not be what was meant, a line each: `device.ssd0: slots = 24, …`.
pub fn notes(config: &Config) -> Vec<String> {
    let note = |(i, device): (usize, &DeviceConfig)| {
        let flash = device.flash.as_ref()?;
        let (own, profile) = (flash.profile.slots(), &flash.profile);
        let tenants = admission::reach(config, i).len();
        if tenants < 2 || own.shared >= own.alone {
            return None;
        }
        let (name, slots) = (&device.name, device.slots);
        let what = match slots.cmp(&own.shared) {
            std::cmp::Ordering::Less => return None,
            std::cmp::Ordering::Equal => format!(
                "{tenants} tenants share the drive, and what each has in flight beyond that waits where weights count; \
                 profile {profile} has {} for one tenant alone",
                own.alone
            ),
            std::cmp::Ordering::Greater => format!(
                "{tenants} tenants share the drive, and those with no more in flight never wait where weights count; profile \
                 {profile} has {} for that",
                own.shared
            ),
        };
        Some(format!("device.{name}: slots = {slots}: {what}"))
    };
    config.devices.iter().enumerate().filter_map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const TWO: &str = "[[tenant]]\nname = \"a\"\nhosts = [\"nqn.a\"]\n[[tenant]]\nname = \"b\"\nhosts = [\"nqn.b\"]\n";

    fn read(text: &str, base: &Path) -> Config {
        Config::parse(text, "weir.toml", base).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn fewer_where_tenants_share_a_profile() {
        let slots = |device: &str, tenants: &str| {
            let config = read(&format!("[[device]]\n{device}\n{tenants}"), Path::new(""));
            (config.devices[0].slots, notes(&config))
        };
        for profile in ["p3600", "p3700", "p3700-800g", "pm963", "960pro"] {
            let device = format!("profile = \"{profile}\"");
            assert_eq!(slots(&device, ""), (64, Vec::new()), "{profile}");
            let (shared, told) = slots(&device, TWO);
            assert_eq!(shared, 24, "{profile}");
            assert!(told[0].starts_with("device.ssd0: slots = 24: 2 tenants share the drive"), "{told:?}");
            assert!(told[0].ends_with(&format!("profile {profile} has 64 for one tenant alone")), "{told:?}");
            let (written, told) = slots(&(device.clone() + "\nslots = 64"), TWO);
            assert_eq!(written, 64, "{profile}: what is written counts");
            assert!(told[0].contains("never wait where weights count"), "{told:?}");
            assert_eq!(slots(&(device + "\nslots = 8"), TWO), (8, Vec::new()), "{profile}");
        }
        assert_eq!(slots("profile = \"optane-p4800x\"", TWO).0, 8);
        for device in ["latency = \"80us\"", "profile = \"femu-bbssd\"", "kind = \"flash\""] {
            assert_eq!(slots(device, TWO), (64, Vec::new()), "{device}");
        }
        // A tenant that cannot reach the drive does not share it.
        let one = "[[tenant]]\nname = \"a\"\nhosts = [\"nqn.a\"]\n[[tenant]]\nname = \"b\"\n";
        assert_eq!(slots("profile = \"p3600\"", one).0, 64);
    }

    #[test]
    fn those_of_the_calibration() {
        let folder = std::env::temp_dir().join(format!("weir-slots-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let point = "[[point]]\nbs = 4096\nreads = 100\ntests = [{ qd = 1, iops = 12500, mean = \"80us\" }]\n";
        std::fs::write(folder.join("c.toml"), format!("[calibration]\nversion = 1\nslots = 16\n{point}")).unwrap();
        std::fs::write(folder.join("old.toml"), format!("[calibration]\nversion = 1\n{point}")).unwrap();
        let text = |keys: &str| format!("[[device]]\nprofile = \"p3600\"\n{keys}\n{TWO}");
        let slots = |keys: &str| read(&text(keys), &folder).devices[0].slots;
        assert_eq!(slots("calibration = \"c.toml\""), 16);
        assert_eq!(slots("calibration = \"c.toml\"\nslots = 16"), 16);
        assert_eq!((slots("calibration = \"old.toml\""), slots("calibration = \"old.toml\"\nslots = 7")), (24, 7));
        let other = Config::parse(&text("calibration = \"c.toml\"\nslots = 24"), "weir.toml", &folder).unwrap_err();
        let says = "weir.toml:4: device.ssd0.slots: 24, but ";
        let what = "c.toml was measured with 16; write slots = 16, or calibrate again";
        assert!(other.to_string().starts_with(says) && other.to_string().ends_with(what), "{other}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_profile_of_ones_own() {
        let folder = std::env::temp_dir().join(format!("weir-own-slots-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let own = super::super::Profile::named("p3600").unwrap().file(false).unwrap().into_owned();
        let with = |slots: &str| {
            let lines = own.lines().filter(|line| !line.starts_with("shared_slots"));
            std::fs::write(folder.join("my.toml"), format!("{slots}\n{}", lines.collect::<Vec<_>>().join("\n")))
                .unwrap();
            Config::parse(&format!("[[device]]\nprofile = \"./my.toml\"\n{TWO}"), "weir.toml", &folder)
        };
        assert_eq!(with("").unwrap().devices[0].slots, 64);
        assert_eq!(with("slots = 48").unwrap().devices[0].slots, 48);
        assert_eq!(with("slots = 48\nshared_slots = 12").unwrap().devices[0].slots, 12);
        for (slots, says) in [
            ("shared_slots = 65", "shared_slots: 65 is more than the drive has alone, slots = 64"),
            ("slots = 0", "slots: 0 is out of range; 1 to 4096 is allowed"),
        ] {
            let error = with(slots).unwrap_err().to_string();
            assert!(error.contains(says), "{slots}: {error}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
