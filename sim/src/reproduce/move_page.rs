//! The page move of papers/002, section 4: what host collection costs the foreground, with and without it.

use super::{Chart, Curve, Figure, LiveMeasurements, PrintedBound, Row, Scale, Subject};
use crate::open_channel::{Collection, HostFtl, HostFtlConfig, HostRequest};
use weir_flash::{Geometry, HostTiming, OpenChannelConfig, Preset, Wire};
use weir_workload::Xoshiro256;

/// Channels, an eighth of the paper's drive; the link is scaled as they are.
const CHANNELS: u32 = 2;
/// The host link that the figure is made with, bytes a second each way: an eighth of what PCIe 2.0 on two lanes carries.
const LINK: u64 = 100_000_000;
/// On four lanes: so much that flash that collects as much as it is written is nearly the bottleneck.
const WIDE: u64 = 2 * LINK;
/// Others, to show what the effect hangs on.
const LINKS: [u64; 5] = [LINK, WIDE, 3 * LINK, 4 * LINK, 8 * LINK];
/// Writers that each wait for their answer.
const WRITERS: u32 = 32;
/// Sectors of a foreground write: a write unit.
const WRITE: u32 = 16;
/// The advanced model's flash (48/64, 900/2400 us, 16 KiB pages, two registers) as the white box: dies of four planes, eight
/// dies a channel, and a 32nd of its blocks' pages.
fn config(collection: Collection, link: u64) -> HostFtlConfig {
    let parts = Preset::FemuOc.parts(false);
    let mut drive = OpenChannelConfig::of(&parts);
    drive.geometry = Geometry { channels: CHANNELS, ways: 8, planes: 4, blocks: 80, pages: 16, ..parts.geometry };
    drive.host = HostTiming::link(Wire::bytes_per_second(link));
    HostFtlConfig { drive, over_provisioning: 0.4, collection, buffer: 4096, start: 6, reserve: 2 }
}

/// Foreground throughput in bytes a second, before collection begins and while it runs, and how many sectors it moves for
/// each that the foreground writes.
struct Measured {
    quiet: f64,
    collecting: f64,
    moved: f64,
    /// Collected sectors that crossed no channel, of all.
    within: f64,
}

/// Random overwrites until `enough`; their throughput.
fn overwrite(
    ftl: &mut HostFtl,
    rng: &mut Xoshiro256,
    sectors: u32,
    requests: u64,
    mut enough: impl FnMut(&HostFtl) -> bool,
) -> f64 {
    let places = u64::from(ftl.sectors() / sectors);
    let mut submit = |ftl: &mut HostFtl, tag| {
        let lpn = rng.below(places) as u32 * sectors;
        ftl.submit(HostRequest { write: true, lpn, sectors, tag });
    };
    let begun = (ftl.now(), ftl.work().written);
    (0..WRITERS).for_each(|tag| submit(ftl, tag));
    let mut answered = 0;
    while let Some((_, tag)) = ftl.next_answer() {
        answered += 1;
        if answered + u64::from(WRITERS) > requests || enough(ftl) {
            break;
        }
        submit(ftl, tag);
    }
    let rate = (ftl.work().written - begun.1) as f64 * 4096.0 / ftl.now().saturating_sub(begun.0).as_secs_f64();
    // The last ones are answered outside of what is measured.
    while ftl.next_answer().is_some_and(|(_, tag)| tag != u32::MAX) {}
    rate
}

fn measure(collection: Collection, link: u64, sectors: u32) -> Measured {
    let mut ftl = HostFtl::new(config(collection, link)).expect("the drive above fits together");
    let mut rng = Xoshiro256::new(7);
    // Every sector is written once, in order.
    for tag in 0..ftl.sectors() / WRITE {
        ftl.submit(HostRequest { write: true, lpn: tag * WRITE, sectors: WRITE, tag });
        ftl.next_answer();
    }
    let start = ftl.config().start;
    let quiet = overwrite(&mut ftl, &mut rng, sectors, u64::MAX, |ftl| ftl.free_lines() <= start);
    let all = u64::from(ftl.sectors() / sectors);
    overwrite(&mut ftl, &mut rng, sectors, all / 2, |_| false);
    let before = (ftl.work(), ftl.drive().work());
    let collecting = overwrite(&mut ftl, &mut rng, sectors, all / 2, |_| false);
    ftl.check();
    let moved = (ftl.work().moved - before.0.moved) as f64;
    let within = (ftl.drive().work().copy_backs - before.1.copy_backs) as f64 * 4.0;
    Measured {
        quiet,
        collecting,
        moved: moved / (ftl.work().written - before.0.written) as f64,
        within: within / moved.max(1.0),
    }
}

/// By how many percent collection lowers the foreground's throughput.
fn drop_of(m: &Measured) -> f64 {
    (1.0 - m.collecting / m.quiet) * 100.0
}

const DROP: &str = "This wastes host-SSD PCIe bandwidth; LightNVM foreground throughput drops by 50% under a GC.";
const MOVE: &str = "\"one can add a new 'pageMove fromAddr toAddr' NVMe command from the OS to FEMU/OC such that the data \
                    movement does not cross the PCIe interface\"";

/// Of the drop that host copies cost, how many percent move-page gives back.
fn undone(host: &Measured, moved: &Measured) -> f64 {
    (moved.collecting - host.collecting) / (host.quiet - host.collecting).max(1.0) * 100.0
}

/// Without and with the page move.
fn pair(link: u64, sectors: u32) -> (Measured, Measured) {
    (measure(Collection::HostCopy, link, sectors), measure(Collection::MovePage, link, sectors))
}

pub(super) fn figure(live: &mut dyn LiveMeasurements) -> Figure {
    let mut begun = 0..;
    let mut both = |link, sectors| {
        live.progress(f64::from(begun.next().unwrap_or(0)) / (LINKS.len() + 1) as f64);
        pair(link, sectors)
    };
    let sweep = LINKS.map(|link| both(link, WRITE));
    let small = both(LINK, 1);
    let [(host, moved), wide, ..] = &sweep;
    let mut rows = vec![
        Row::relation(
            "foreground without collection",
            host.quiet / 1e6,
            "MB/s",
            host.quiet > 0.9 * LINK as f64,
            "the host link is what bounds it",
        ),
        Row::relation(
            "sectors collected for each one written, host copies",
            host.moved,
            "",
            (0.7..1.5).contains(&host.moved),
            "about one: then a link that carries both carries half of each",
        ),
        Row::printed("drop under collection, host copies", drop_of(host), "%", 50.0, PrintedBound::Within(15.0), DROP),
        Row::relation(
            "drop under collection, move-page",
            drop_of(moved),
            "%",
            drop_of(moved) < 10.0,
            format!("roughly undone, that is under a tenth: {MOVE}"),
        ),
        Row::relation(
            "of the drop undone by move-page",
            undone(host, moved),
            "%",
            undone(host, moved) > 80.0,
            "roughly all of it",
        ),
    ];
    rows.push(Row::relation(
        "twice the link: of the drop undone by move-page",
        undone(&wide.0, &wide.1),
        "%",
        undone(&wide.0, &wide.1) > 60.0,
        "most of it, although now the flash is nearly the bottleneck",
    ));
    rows.push(Row::relation(
        "4 KiB writes: drop, host copies",
        drop_of(&small.0),
        "%",
        drop_of(&small.0) > 30.0,
        "single sectors share pages with others; the link is shared all the same",
    ));
    rows.push(Row::relation(
        "4 KiB writes: of the drop undone by move-page",
        undone(&small.0, &small.1),
        "%",
        undone(&small.0, &small.1) > 50.0,
        "most of it, although pages that are partly valid cross the flash channels",
    ));
    rows.push(Row::relation(
        "4 KiB writes: part moved without a channel",
        small.1.within * 100.0,
        "%",
        small.1.within < moved.within,
        "less than of whole write units",
    ));
    Figure { subject: Subject::FemuMovePage, about: about(), rows, notes: Vec::new(), charts: vec![chart(&sweep)] }
}

fn about() -> Vec<String> {
    vec![
        format!(
            "{WRITERS} writers of 64 KiB (and of 4 KiB) at random places, through a translation layer in the host like Linux's \
             pblk: a ring buffer of 16 MiB, lines over all dies, the line with the fewest valid sectors collected, read and \
             written back or moved by move-page. The drive is the advanced model's flash (femu-oc) by physical addresses: \
             {CHANNELS} channels of 8 dies of 4 planes, 16 pages a block, 40 % over-provisioning, {} MB/s of host link each \
             way.",
            LINK / 1_000_000
        ),
        "The paper prints the drop but neither load nor drive. It names the PCIe bandwidth as the reason, so the flash here \
         writes more than twice what the link carries, and the spare flash is such that collection moves about as much as \
         the foreground writes. The chart shows what comes out over faster links: where the flash is the bottleneck, \
         collection costs the same flash time either way, and move-page saves only the channels' share."
            .into(),
    ]
}

fn chart(sweep: &[(Measured, Measured); LINKS.len()]) -> Chart {
    let curve = |name: &str, rate: fn(&(Measured, Measured)) -> f64| {
        let points = LINKS.iter().zip(sweep).map(|(link, both)| (*link as f64 / 1e6, rate(both) / 1e6));
        Curve { name: name.into(), points: points.collect() }
    };
    Chart {
        title: "Foreground throughput over the host link's rate",
        axes: ("host link, MB/s each way", "foreground, MB/s"),
        scales: (Scale::Log, Scale::Linear),
        curves: vec![
            curve("no collection", |(host, _)| host.quiet),
            curve("collecting, host copies", |(host, _)| host.collecting),
            curve("collecting, move-page", |(_, moved)| moved.collecting),
        ],
        marks: Vec::new(),
    }
}
