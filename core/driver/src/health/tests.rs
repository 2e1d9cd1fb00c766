use super::*;
use proptest::prelude::*;
use std::vec;
use weir_spec::nvme::Status;

const IDENTITY: DriveIdentity =
    DriveIdentity { nguid: [7; 16], eui64: [0; 8], uuid: [0; 16], capacity: 512 << 20, block_size: 512 };
const OTHER: DriveIdentity = DriveIdentity { nguid: [8; 16], ..IDENTITY };
const WORN: SmartReading = SmartReading { critical_warning: 1 << 2, available_spare: 3, media_errors: 40 };

/// The block that is read beside suspects at 8 and 64.
const CONTROL: u64 = 0;

/// A diagnosis and the clock of its drive.
struct Bench {
    health: Health,
    now: Nanos,
    out: Vec<HealthAction>,
}

impl Bench {
    fn new() -> Self {
        Bench { health: Health::new(Policy::default(), IDENTITY), now: Nanos::from_secs(100), out: Vec::new() }
    }

    /// One piece of evidence; what is done about it.
    fn see(&mut self, evidence: Evidence) -> Vec<HealthAction> {
        self.now = Nanos(self.now.0 + 1000);
        self.health.apply(self.now, evidence, &mut self.out);
        self.health.check();
        assert!(self.out.len() <= MOST_ACTIONS, "{} actions", self.out.len());
        core::mem::take(&mut self.out)
    }

    fn wait_until_due(&mut self) -> Vec<HealthAction> {
        self.now = self.now.max(self.health.due());
        assert!(self.now != Nanos::NEVER, "{:?} waits for ever", self.health.state());
        self.see(Evidence::Time)
    }

    fn fail(&mut self, status: Status, lba: u64, retries: u32) -> Vec<HealthAction> {
        let access = if status.same_code(Status::WRITE_FAULT) { Access::Write } else { Access::Read };
        let failure = Failure {
            ticket: Ticket(lba),
            access,
            extent: Extent { lba, blocks: 8 },
            status,
            retry_delay: None,
            retries,
            since: self.now,
        };
        self.see(Evidence::Failed(failure))
    }

    /// A read that fails also when it is sent again.
    fn unreadable(&mut self, lba: u64) -> Vec<HealthAction> {
        assert!(has(&self.fail(Status::UNRECOVERED_READ_ERROR, lba, 0), |a| matches!(a, HealthAction::Retry { .. })));
        self.fail(Status::UNRECOVERED_READ_ERROR, lba, 1)
    }

    fn reset(&mut self, level: ResetLevel) -> Vec<HealthAction> {
        self.see(Evidence::ResetEnded { level, worked: true })
    }

    /// A block is read as often as it takes to believe that it is unreadable.
    fn stays_unreadable(&mut self, lba: u64) -> Vec<HealthAction> {
        loop {
            let actions = self.see(Evidence::ReadAgain { lba, status: Status::UNRECOVERED_READ_ERROR });
            if !has(&actions, |a| matches!(a, HealthAction::ReadAgain(_))) {
                return actions;
            }
        }
    }

    /// A command fails again, and the block that is read beside it as well.
    fn fails_at_all_blocks(&mut self, failure: Failure) {
        assert!(asks(&self.see(Evidence::Failed(failure)), Question::Smart));
        let actions = self.see(Evidence::Smart(SmartReading::default()));
        assert!(has(&actions, |a| *a == HealthAction::ReadAgain(Extent { lba: CONTROL, blocks: 1 })), "{actions:?}");
        self.see(Evidence::ReadAgain { lba: CONTROL, status: Status::INTERNAL_ERROR });
    }

    /// The controller fails at a block as often as that is read, and at no other.
    fn fails_at(&mut self, lba: u64) -> Vec<HealthAction> {
        self.reads_another(4);
        for _ in 1..4 {
            self.see(Evidence::ReadAgain { lba, status: Status::INTERNAL_ERROR });
        }
        self.see(Evidence::ReadAgain { lba, status: Status::INTERNAL_ERROR })
    }

    /// The block that is read beside the suspects can be read, so often.
    fn reads_another(&mut self, times: u32) {
        for _ in 0..times {
            self.see(Evidence::ReadAgain { lba: CONTROL, status: Status::SUCCESS });
        }
    }

    /// A drive that does all that is asked, and whose reads end as told, until commands go on; what is reported.
    fn answer(&mut self, mut actions: Vec<HealthAction>, status_of: impl Fn(u64) -> Status) -> Vec<Verdict> {
        let (mut todo, mut verdicts) = (Vec::new(), Vec::new());
        while self.health.state() != State::Serving {
            todo.extend(heal(&actions, IDENTITY));
            let mut next = todo.remove(0);
            if let Evidence::ReadAgain { lba, status } = &mut next {
                *status = status_of(*lba);
            }
            actions = self.see(next);
            verdicts.extend(verdict(&actions));
        }
        verdicts
    }

    fn present(&mut self, identity: DriveIdentity) -> Vec<HealthAction> {
        self.see(Evidence::Namespace(NamespaceAnswer::Present(identity)))
    }
}

fn has(actions: &[HealthAction], is: impl Fn(&HealthAction) -> bool) -> bool {
    actions.iter().any(is)
}

fn verdict(actions: &[HealthAction]) -> Option<Verdict> {
    actions.iter().find_map(|action| match action {
        HealthAction::Report(report) => Some(report.verdict),
        _ => None,
    })
}

fn opens(actions: &[HealthAction]) -> bool {
    has(actions, |action| *action == HealthAction::Gate(Gate::Open))
}

fn asks(actions: &[HealthAction], question: Question) -> bool {
    has(actions, |action| *action == HealthAction::Ask(question))
}

fn resets(actions: &[HealthAction], wanted: ResetLevel) -> bool {
    has(actions, |action| matches!(action, HealthAction::Reset { level, .. } if *level == wanted))
}

#[test]
fn one_bad_block_costs_that_block() {
    let mut bench = Bench::new();
    bench.see(Evidence::Smart(SmartReading::default()));
    let actions = bench.unreadable(64);
    assert!(asks(&actions, Question::Smart) && has(&actions, |a| *a == HealthAction::Hold(Ticket(64))), "{actions:?}");
    let actions = bench.see(Evidence::Smart(SmartReading { media_errors: 1, ..SmartReading::default() }));
    assert!(has(&actions, |a| *a == HealthAction::ReadAgain(Extent { lba: 64, blocks: 8 })), "{actions:?}");
    let actions = bench.stays_unreadable(64);
    assert!(opens(&actions), "{actions:?}");
    assert_eq!(verdict(&actions), Some(Verdict::BadBlocks));
    // Sent again when the gate opened, it is told to the tenant.
    let actions = bench.fail(Status::UNRECOVERED_READ_ERROR, 64, 2);
    assert!(has(&actions, |a| matches!(a, HealthAction::Deliver { .. })), "{actions:?}");
    assert_eq!(bench.health.gate(), Gate::Open);
    bench.see(Evidence::WrittenByHost(Extent { lba: 64, blocks: 8 }));
    assert_eq!(bench.health.bad_blocks().count(), 0);
}

#[test]
fn blocks_that_a_host_has_marked_are_no_evidence() {
    let mut bench = Bench::new();
    for lba in 0..1000 {
        bench.see(Evidence::MarkedByHost(Extent { lba: lba * 8, blocks: 8 }));
    }
    for lba in 0..1000 {
        let actions = bench.fail(Status::UNRECOVERED_READ_ERROR, lba * 8, 0);
        assert!(matches!(actions[..], [HealthAction::Deliver { .. }]), "{actions:?}");
    }
    assert_eq!(bench.health.report(), None);
    for status in
        [Status::COMPARE_FAILURE, Status::GUARD_CHECK_ERROR, Status::DEALLOCATED_BLOCK, Status::LBA_OUT_OF_RANGE]
    {
        let actions = bench.fail(status, 9, 0);
        assert!(matches!(actions[..], [HealthAction::Deliver { .. }]), "{status} {actions:?}");
    }
}

/// Brings a drive with that many unreadable blocks to where they are read again.
fn bring_to_verify(bench: &mut Bench, blocks: u64, smart: SmartReading) -> Vec<HealthAction> {
    bench.see(Evidence::Smart(SmartReading::default()));
    let mut actions = Vec::new();
    for lba in 0..blocks {
        // The first one stops the gate; what is in flight comes in beside it.
        actions.extend(if lba == 0 {
            bench.unreadable(0)
        } else {
            bench.fail(Status::UNRECOVERED_READ_ERROR, lba * 8, 1)
        });
    }
    actions.extend(bench.see(Evidence::Smart(smart)));
    actions
}

#[test]
fn a_warning_and_a_block_unreadable_again_isolate() {
    let mut bench = Bench::new();
    let actions = bring_to_verify(&mut bench, 1, WORN);
    assert!(resets(&actions, ResetLevel::Controller), "{actions:?}");
    assert!(asks(&bench.reset(ResetLevel::Controller), Question::Namespace));
    let actions = bench.present(IDENTITY);
    assert!(has(&actions, |a| *a == HealthAction::ReadAgain(Extent { lba: 0, blocks: 8 })), "{actions:?}");
    let actions = bench.stays_unreadable(0);
    assert_eq!(verdict(&actions), Some(Verdict::Media));
    assert!(has(&actions, |a| *a == HealthAction::Gate(Gate::Failing(FailReason::Media))));
    let actions = bench.fail(Status::INTERNAL_ERROR, 5, 0);
    let refused = HealthAction::Deliver { ticket: Ticket(5), status: Status::UNRECOVERED_READ_ERROR.dnr() };
    assert_eq!(actions, [refused]);
}

#[test]
fn a_warning_alone_does_not_isolate() {
    let mut bench = Bench::new();
    assert_eq!(verdict(&bench.see(Evidence::Smart(WORN))), Some(Verdict::WearWarning));
    assert_eq!(bench.health.gate(), Gate::Open);
    bring_to_verify(&mut bench, 1, WORN);
    bench.reset(ResetLevel::Controller);
    bench.present(IDENTITY);
    let actions = bench.see(Evidence::ReadAgain { lba: 0, status: Status::SUCCESS });
    assert!(opens(&actions) && verdict(&actions) == Some(Verdict::Controller), "{actions:?}");
}

#[test]
fn many_unreadable_blocks_without_the_drives_word_need_every_reset() {
    for heals in [false, true] {
        let mut bench = Bench::new();
        let blocks = u64::from(Policy::default().isolate_blocks);
        let actions = bring_to_verify(&mut bench, blocks, SmartReading::default());
        assert!(resets(&actions, ResetLevel::Controller), "{actions:?}");
        bench.reset(ResetLevel::Controller);
        assert_eq!(bench.present(IDENTITY).len() as u64, blocks + 1, "and SMART");
        let read_all = |bench: &mut Bench, readable| {
            let read = |lba| match readable {
                true => bench.see(Evidence::ReadAgain { lba: lba * 8, status: Status::SUCCESS }),
                false => bench.stays_unreadable(lba * 8),
            };
            (0..blocks).map(read).last().unwrap_or_default()
        };
        for level in [ResetLevel::Subsystem, ResetLevel::Function] {
            let actions = read_all(&mut bench, false);
            assert!(resets(&actions, level), "{actions:?}");
            bench.reset(level);
            bench.present(IDENTITY);
        }
        let actions = read_all(&mut bench, heals);
        assert_eq!(verdict(&actions), Some(if heals { Verdict::Controller } else { Verdict::Media }));
    }
}

#[test]
fn bad_blocks_after_a_confirmed_one_need_no_reset_each() {
    let mut bench = Bench::new();
    bring_to_verify(&mut bench, 1, SmartReading::default());
    bench.reset(ResetLevel::Controller);
    bench.present(IDENTITY);
    for level in [ResetLevel::Subsystem, ResetLevel::Function] {
        assert!(resets(&bench.stays_unreadable(0), level));
        bench.reset(level);
        bench.present(IDENTITY);
    }
    let actions = bench.stays_unreadable(0);
    assert_eq!(verdict(&actions), Some(Verdict::BadBlocks));
    for lba in 1..u64::from(Policy::default().isolate_blocks) - 1 {
        bench.unreadable(lba * 8);
        bench.see(Evidence::Smart(SmartReading::default()));
        (0..lba).for_each(|known| drop(bench.stays_unreadable(known * 8)));
        assert!(opens(&bench.stays_unreadable(lba * 8)), "{lba}");
    }
    // As many as that are looked at again.
    bench.unreadable(800);
    assert!(resets(&bench.see(Evidence::Smart(SmartReading::default())), ResetLevel::Controller));
}

#[test]
fn a_controller_that_failed_is_reset_as_far_as_it_takes() {
    let mut bench = Bench::new();
    assert!(asks(&bench.see(Evidence::Late(Ticket(1))), Question::Csts));
    let actions = bench.see(Evidence::Csts(1));
    assert!(
        has(&actions, |a| *a == HealthAction::Reset { level: ResetLevel::Abort, command: Some(Ticket(1)) }),
        "{actions:?}"
    );
    for (level, next) in ResetLevel::ALL.into_iter().zip(&ResetLevel::ALL[1..]) {
        // Neither an answer nor a failure: its time is over.
        let actions = if level == ResetLevel::Queue {
            bench.wait_until_due()
        } else {
            bench.see(Evidence::ResetEnded { level, worked: false })
        };
        assert!(resets(&actions, *next), "{level:?}: {actions:?}");
    }
    bench.see(Evidence::ResetEnded { level: ResetLevel::Function, worked: false });
    assert_eq!(bench.health.state(), State::Waiting(Awaited::Controller));
    assert!(resets(&bench.wait_until_due(), ResetLevel::Controller));
    bench.reset(ResetLevel::Controller);
    let actions = bench.present(IDENTITY);
    assert!(opens(&actions) && verdict(&actions) == Some(Verdict::Controller), "{actions:?}");
}

#[test]
fn a_fatal_status_is_a_reset_and_all_ones_is_a_lost_link() {
    let mut bench = Bench::new();
    assert!(resets(&bench.see(Evidence::Csts(0b11)), ResetLevel::Controller));
    let mut bench = Bench::new();
    let actions = bench.see(Evidence::Csts(u32::MAX));
    assert!(has(&actions, |a| *a == HealthAction::Reconnect) && bench.health.gate() == Gate::Paused, "{actions:?}");
    // The time that commands wait passes; they fail, and go on when the link is back.
    let actions = bench.wait_until_due();
    assert!(has(&actions, |a| *a == HealthAction::Gate(Gate::Failing(FailReason::Path))), "{actions:?}");
    assert_eq!(verdict(&actions), Some(Verdict::Link));
    assert!(resets(&bench.see(Evidence::LinkBack), ResetLevel::Controller));
    bench.reset(ResetLevel::Controller);
    assert!(opens(&bench.present(IDENTITY)));
}

#[test]
fn failures_of_the_controllers_are_retried_then_reset_then_delivered() {
    let mut bench = Bench::new();
    for retries in 0..3 {
        let actions = bench.fail(Status::INTERNAL_ERROR, 1, retries);
        assert!(has(&actions, |a| matches!(a, HealthAction::Retry { .. })), "{actions:?}");
    }
    let since = bench.now;
    let mut failure = Failure {
        ticket: Ticket(1),
        access: Access::Write,
        extent: Extent { lba: 1, blocks: 1 },
        status: Status::INTERNAL_ERROR,
        retry_delay: None,
        retries: 3,
        since,
    };
    let actions = bench.see(Evidence::Failed(failure));
    assert!(resets(&actions, ResetLevel::Controller), "{actions:?}");
    assert!(has(&actions, |a| *a == HealthAction::Hold(Ticket(1))), "{actions:?}");
    bench.reset(ResetLevel::Controller);
    assert!(opens(&bench.present(IDENTITY)));
    for level in [ResetLevel::Subsystem, ResetLevel::Function] {
        failure.retries += 1;
        bench.fails_at_all_blocks(failure);
        assert_eq!(bench.health.state(), State::Resetting(level));
        bench.reset(level);
        assert!(opens(&bench.present(IDENTITY)));
    }
    // Once more from the beginning, and then it is the command's own.
    failure.retries += 1;
    bench.fails_at_all_blocks(failure);
    assert!(resets(&bench.wait_until_due(), ResetLevel::Controller));
    bench.reset(ResetLevel::Controller);
    assert!(opens(&bench.present(IDENTITY)));
    failure.retries = 12;
    let actions = bench.see(Evidence::Failed(failure));
    assert!(has(&actions, |a| matches!(a, HealthAction::Deliver { .. })), "{actions:?}");
    assert_eq!(bench.health.gate(), Gate::Open);
    // Others that fail as well are retried for a while before there is another reset.
    let other = Failure { ticket: Ticket(2), since: bench.now, retries: 3, ..failure };
    let actions = bench.see(Evidence::Failed(other));
    assert!(has(&actions, |a| matches!(a, HealthAction::Retry { .. })), "{actions:?}");
    bench.now = bench.now.saturating_add(Policy::default().window);
    assert!(has(&bench.see(Evidence::Failed(other)), |a| matches!(a, HealthAction::Reset { .. })));
}

/// What Linux's target says where the drive behind it fails (`blk_to_nvme_status`, BLK_STS_IOERR).
const LINUX_IO_ERROR: Status = Status::INTERNAL_ERROR.dnr();

/// A read at which the controller fails, after the first reset.
fn bring_to_blame(bench: &mut Bench, lba: u64) -> Failure {
    let failure = Failure {
        ticket: Ticket(lba),
        access: Access::Read,
        extent: Extent { lba, blocks: 8 },
        status: LINUX_IO_ERROR,
        retry_delay: None,
        retries: 0,
        since: bench.now,
    };
    assert!(resets(&bench.see(Evidence::Failed(failure)), ResetLevel::Controller));
    bench.reset(ResetLevel::Controller);
    assert!(opens(&bench.present(IDENTITY)));
    Failure { retries: 1, ..failure }
}

#[test]
fn a_block_at_which_alone_the_controller_fails_costs_that_block() {
    let mut bench = Bench::new();
    let failure = bring_to_blame(&mut bench, 64);
    assert!(asks(&bench.see(Evidence::Failed(failure)), Question::Smart));
    bench.see(Evidence::Smart(SmartReading::default()));
    for level in [ResetLevel::Subsystem, ResetLevel::Function] {
        assert!(resets(&bench.fails_at(64), level));
        bench.reset(level);
        bench.present(IDENTITY);
    }
    let actions = bench.fails_at(64);
    assert_eq!((verdict(&actions), opens(&actions)), (Some(Verdict::BadBlocks), true), "{actions:?}");
    // From then on it is told at once, and nothing else waits for it.
    for retries in [2, 0, 0] {
        let actions = bench.see(Evidence::Failed(Failure { retries, ..failure }));
        assert_eq!(actions, [HealthAction::Deliver { ticket: Ticket(64), status: LINUX_IO_ERROR }]);
    }
    // Another one costs no reset.
    let actions = bench.fail(LINUX_IO_ERROR, 800, 0);
    assert!(asks(&actions, Question::Smart), "{actions:?}");
    bench.see(Evidence::Smart(SmartReading::default()));
    assert_eq!(verdict(&bench.fails_at(800)), Some(Verdict::BadBlocks));
    // What can be read again is well.
    bench.see(Evidence::ReadByHost(Extent { lba: 0, blocks: 4096 }));
    assert_eq!(bench.health.bad_blocks().count(), 0);
}

#[test]
fn a_controller_that_fails_now_and_then_is_reset_further() {
    let mut bench = Bench::new();
    let failure = bring_to_blame(&mut bench, 64);
    bench.see(Evidence::Failed(failure));
    bench.see(Evidence::Smart(SmartReading::default()));
    bench.reads_another(2);
    bench.see(Evidence::ReadAgain { lba: 64, status: Status::INTERNAL_ERROR });
    let actions = bench.see(Evidence::ReadAgain { lba: CONTROL, status: Status::INTERNAL_ERROR });
    assert!(resets(&actions, ResetLevel::Subsystem), "the other block fails at its third read: {actions:?}");
    assert_eq!(bench.health.bad_blocks().count(), 0);
}

#[test]
fn blocks_at_which_the_controller_fails_never_isolate() {
    let mut bench = Bench::new();
    let first = bring_to_blame(&mut bench, 64);
    for lba in 8..40 {
        let actions = match lba {
            8 => bench.see(Evidence::Failed(first)),
            _ => bench.fail(LINUX_IO_ERROR, lba * 8, 1),
        };
        let status = |at| if at == lba * 8 { LINUX_IO_ERROR } else { Status::SUCCESS };
        assert_eq!(bench.answer(actions, status), [Verdict::BadBlocks], "block {lba}");
    }
    assert_eq!(bench.health.bad_blocks().count(), 32);
}

#[test]
fn a_write_at_which_alone_the_controller_fails_is_delivered() {
    let mut bench = Bench::new();
    let failure = Failure { access: Access::Write, ..bring_to_blame(&mut bench, 64) };
    bench.see(Evidence::Failed(failure));
    bench.see(Evidence::Smart(SmartReading::default()));
    bench.reads_another(4);
    assert!(opens(&bench.see(Evidence::ReadAgain { lba: 64, status: Status::SUCCESS })), "it can be read");
    let actions = bench.see(Evidence::Failed(Failure { retries: 2, ..failure }));
    assert!(has(&actions, |a| matches!(a, HealthAction::Retry { .. })), "it has a few more tries: {actions:?}");
    let actions = bench.see(Evidence::Failed(Failure { retries: 6, ..failure }));
    assert_eq!(verdict(&actions), Some(Verdict::BadBlocks));
    assert!(has(&actions, |a| matches!(a, HealthAction::Deliver { .. })), "{actions:?}");
    let actions = bench.see(Evidence::Failed(Failure { retries: 0, ..failure }));
    assert!(matches!(actions[..], [HealthAction::Deliver { .. }]), "the next one at once: {actions:?}");
}

/// What Linux's target says where the drive behind it has a medium error.
#[test]
fn denied_blocks_are_bad_and_never_isolate() {
    let mut bench = Bench::new();
    for lba in 1..20 {
        assert!(has(&bench.fail(Status::ACCESS_DENIED, lba * 8, 0), |a| matches!(a, HealthAction::Retry { .. })));
        let actions = bench.fail(Status::ACCESS_DENIED, lba * 8, 1);
        assert_eq!(bench.answer(actions, |_| Status::ACCESS_DENIED), [Verdict::BadBlocks], "block {lba}");
        let delivered = bench.fail(Status::ACCESS_DENIED, lba * 8, 2);
        assert!(matches!(delivered[..], [HealthAction::Deliver { .. }]), "{delivered:?}");
    }
    assert_eq!(bench.health.bad_blocks().count(), 19);
}

#[test]
fn another_namespace_is_refused_until_the_former_is_back() {
    for other in
        [OTHER, DriveIdentity { capacity: 256 << 20, ..IDENTITY }, DriveIdentity { block_size: 4096, ..IDENTITY }]
    {
        let mut bench = Bench::new();
        assert!(asks(&bench.see(Evidence::NamespaceChanged), Question::Namespace));
        let actions = bench.present(other);
        assert_eq!(verdict(&actions), Some(Verdict::OtherDrive));
        assert!(has(&actions, |a| *a == HealthAction::Gate(Gate::Failing(FailReason::Path))));
        assert!(asks(&bench.wait_until_due(), Question::Namespace), "it is looked for");
        assert!(opens(&bench.present(IDENTITY)));
    }
}

#[test]
fn a_namespace_that_is_not_ready_is_waited_for() {
    let mut bench = Bench::new();
    assert!(asks(&bench.fail(Status::NAMESPACE_NOT_READY, 1, 0), Question::Namespace));
    for _ in 0..5 {
        bench.see(Evidence::Namespace(NamespaceAnswer::NotReady));
        assert!(asks(&bench.wait_until_due(), Question::Namespace));
    }
    let actions = bench.present(IDENTITY);
    assert!(opens(&actions) && verdict(&actions) == Some(Verdict::Namespace), "{actions:?}");
}

#[test]
fn write_faults_without_media_damage_are_retried_and_never_isolate() {
    let mut bench = Bench::new();
    bench.see(Evidence::Smart(SmartReading::default()));
    for lba in 0..100 {
        for retries in 0..3 {
            let actions = bench.fail(Status::WRITE_FAULT, lba * 8, retries);
            assert!(has(&actions, |a| matches!(a, HealthAction::Retry { .. })), "{actions:?}");
        }
    }
    assert_eq!(bench.health.gate(), Gate::Open);
    assert!(asks(&bench.fail(Status::WRITE_FAULT, 8, 3), Question::Smart));
    assert!(resets(&bench.see(Evidence::Smart(SmartReading::default())), ResetLevel::Controller));
    bench.reset(ResetLevel::Controller);
    bench.present(IDENTITY);
    assert_eq!(bench.see(Evidence::ReadAgain { lba: 8, status: Status::SUCCESS })[1], HealthAction::Gate(Gate::Open));
    let mut failure = Failure {
        ticket: Ticket(1),
        access: Access::Write,
        extent: Extent { lba: 0, blocks: 8 },
        status: Status::WRITE_FAULT,
        retry_delay: None,
        retries: 4,
        since: Nanos::from_secs(100),
    };
    let actions = bench.see(Evidence::Failed(failure));
    assert!(has(&actions, |a| matches!(a, HealthAction::Retry { .. })), "it may pass yet: {actions:?}");
    bench.now = bench.now.saturating_add(Policy::default().window);
    for lba in 0..100 {
        failure.extent.lba = lba * 8;
        let actions = bench.see(Evidence::Failed(failure));
        assert!(has(&actions, |a| matches!(a, HealthAction::Deliver { .. })), "{actions:?}");
    }
    assert_eq!(bench.health.gate(), Gate::Open);
    assert!(!has(&bench.see(Evidence::Time), |a| matches!(a, HealthAction::Gate(_))));
}

#[test]
fn a_read_only_drive_serves_reads() {
    let mut bench = Bench::new();
    let read_only = SmartReading { critical_warning: 1 << 3, ..SmartReading::default() };
    let actions = bench.fail(Status::NAMESPACE_WRITE_PROTECTED, 1, 0);
    assert!(
        has(&actions, |a| matches!(a, HealthAction::Deliver { .. })) && verdict(&actions) == Some(Verdict::ReadOnly)
    );
    bench.see(Evidence::Smart(read_only));
    assert!(bench.health.limits().read_only && bench.health.gate() == Gate::Open);
}

#[test]
fn a_drive_asks_for_time_and_gets_it() {
    let mut bench = Bench::new();
    let mut failure = Failure {
        ticket: Ticket(1),
        access: Access::Write,
        extent: Extent { lba: 0, blocks: 8 },
        status: Status::COMMAND_INTERRUPTED,
        retry_delay: Some(Nanos::from_millis(300)),
        retries: 0,
        since: bench.now,
    };
    let actions = bench.see(Evidence::Failed(failure));
    let at = bench.now.saturating_add(Nanos::from_millis(300));
    assert!(has(&actions, |a| *a == HealthAction::Retry { ticket: Ticket(1), at }), "{actions:?}");
    // What passes is told once it is over.
    bench.see(Evidence::Smart(SmartReading { critical_warning: 2, ..SmartReading::default() }));
    assert!(bench.health.limits().hot);
    failure.since = Nanos(0);
    let actions = bench.see(Evidence::Failed(failure));
    assert!(
        has(&actions, |a| matches!(a, HealthAction::Deliver { .. })),
        "over the time that commands wait: {actions:?}"
    );
}

#[test]
fn a_removed_drive_is_waited_for_as_the_operator_says() {
    for (removal, gate) in
        [(Removal::Error, Gate::Failing(FailReason::Path)), (Removal::Hold(Nanos::from_secs(30)), Gate::Paused)]
    {
        let mut bench = Bench::new();
        bench.health.policy.removal = removal;
        bench.see(Evidence::Removed);
        assert_eq!(bench.health.gate(), gate);
        assert!(resets(&bench.see(Evidence::Arrived), ResetLevel::Controller));
        bench.reset(ResetLevel::Controller);
        assert!(opens(&bench.present(IDENTITY)));
    }
}

#[test]
fn an_isolated_drive_stays_so_until_it_is_replaced() {
    let mut bench = Bench::new();
    bring_to_verify(&mut bench, 1, WORN);
    bench.reset(ResetLevel::Controller);
    bench.present(IDENTITY);
    bench.stays_unreadable(0);
    bench.see(Evidence::Removed);
    bench.see(Evidence::Arrived);
    bench.reset(ResetLevel::Controller);
    bench.present(IDENTITY);
    assert_eq!((bench.health.state(), bench.health.gate()), (State::Isolated, Gate::Failing(FailReason::Media)));
    bench.health.replace(bench.now, OTHER, &mut bench.out);
    assert!(resets(&core::mem::take(&mut bench.out), ResetLevel::Controller));
    bench.health.check();
    bench.reset(ResetLevel::Controller);
    assert!(opens(&bench.present(OTHER)));
}

/// Every kind of evidence, with the values that matter.
fn all_evidence() -> Vec<Evidence> {
    let failure = |status: Status, retries: u32| {
        let extent = Extent { lba: 8, blocks: 8 };
        let access = if retries % 2 == 0 { Access::Read } else { Access::Write };
        Evidence::Failed(Failure {
            ticket: Ticket(1),
            access,
            extent,
            status,
            retry_delay: None,
            retries,
            since: Nanos::from_secs(100),
        })
    };
    let mut all = vec![
        Evidence::Late(Ticket(2)),
        Evidence::Csts(1),
        Evidence::Csts(0b11),
        Evidence::Csts(u32::MAX),
        Evidence::Smart(SmartReading::default()),
        Evidence::Smart(WORN),
        Evidence::Smart(SmartReading { critical_warning: 1 << 3, ..SmartReading::default() }),
        Evidence::Unanswered,
        Evidence::ReadAgain { lba: 8, status: Status::SUCCESS },
        Evidence::ReadAgain { lba: 8, status: Status::UNRECOVERED_READ_ERROR },
        Evidence::ReadAgain { lba: 8, status: Status::ANA_INACCESSIBLE },
        Evidence::ReadAgain { lba: 8, status: Status::INTERNAL_ERROR },
        Evidence::ReadAgain { lba: CONTROL, status: Status::SUCCESS },
        Evidence::ReadAgain { lba: CONTROL, status: Status::INTERNAL_ERROR },
        Evidence::Namespace(NamespaceAnswer::Present(IDENTITY)),
        Evidence::Namespace(NamespaceAnswer::Present(OTHER)),
        Evidence::Namespace(NamespaceAnswer::NotReady),
        Evidence::Namespace(NamespaceAnswer::Absent),
        Evidence::NamespaceChanged,
        Evidence::LinkLost,
        Evidence::LinkBack,
        Evidence::Path(PathState::Usable),
        Evidence::Path(PathState::Inaccessible),
        Evidence::Path(PathState::PersistentLoss),
        Evidence::Removed,
        Evidence::Arrived,
        Evidence::MarkedByHost(Extent { lba: 800, blocks: 8 }),
        Evidence::WrittenByHost(Extent { lba: 8, blocks: 8 }),
        Evidence::ReadByHost(Extent { lba: 8, blocks: 8 }),
        Evidence::Slow(Slowness { percent: 500, die: None }),
        Evidence::AsFastAsModelled,
        Evidence::Time,
    ];
    for level in ResetLevel::ALL {
        all.extend([true, false].map(|worked| Evidence::ResetEnded { level, worked }));
    }
    for status in [
        Status::UNRECOVERED_READ_ERROR,
        Status::ACCESS_DENIED,
        Status::WRITE_FAULT,
        Status::INTERNAL_ERROR,
        Status::INTERNAL_ERROR.dnr(),
        Status::NAMESPACE_NOT_READY,
        Status::COMMAND_INTERRUPTED,
        Status::ANA_INACCESSIBLE,
        Status::ANA_PERSISTENT_LOSS,
        Status::NAMESPACE_WRITE_PROTECTED,
        Status::ABORT_REQUESTED,
        Status::LBA_OUT_OF_RANGE,
    ] {
        all.extend((0..4).map(|retries| failure(status, retries)));
    }
    all
}

/// A way into each state.
fn ways() -> Vec<(State, Vec<Evidence>)> {
    let unreadable = |retries| {
        let extent = Extent { lba: 8, blocks: 8 };
        let status = Status::UNRECOVERED_READ_ERROR;
        Evidence::Failed(Failure {
            ticket: Ticket(1),
            access: Access::Read,
            extent,
            status,
            retry_delay: None,
            retries,
            since: Nanos::from_secs(100),
        })
    };
    let worked = |level| Evidence::ResetEnded { level, worked: true };
    let failed = |level| Evidence::ResetEnded { level, worked: false };
    let present = |identity| Evidence::Namespace(NamespaceAnswer::Present(identity));
    let verifying = vec![
        Evidence::Smart(SmartReading::default()),
        unreadable(1),
        Evidence::Smart(WORN),
        worked(ResetLevel::Controller),
        present(IDENTITY),
    ];
    let mut isolated = verifying.clone();
    isolated.extend([Evidence::ReadAgain { lba: 8, status: Status::UNRECOVERED_READ_ERROR }; 4]);
    let mut all = vec![
        (State::Serving, vec![]),
        (State::Asking(Question::Smart), vec![unreadable(1)]),
        (State::Asking(Question::Csts), vec![Evidence::Late(Ticket(1))]),
        (State::Identifying, vec![Evidence::NamespaceChanged]),
        (State::Verifying, verifying),
        (State::Isolated, isolated),
        (State::OtherDrive, vec![Evidence::NamespaceChanged, present(OTHER)]),
        (State::Waiting(Awaited::Link), vec![Evidence::LinkLost]),
        (State::Waiting(Awaited::Drive), vec![Evidence::Removed]),
        (State::Waiting(Awaited::Path), vec![Evidence::Path(PathState::Inaccessible)]),
        (
            State::Waiting(Awaited::Namespace),
            vec![Evidence::NamespaceChanged, Evidence::Namespace(NamespaceAnswer::Absent)],
        ),
    ];
    let mut deeper = vec![Evidence::Late(Ticket(1)), Evidence::Csts(1)];
    for level in ResetLevel::ALL {
        all.push((State::Resetting(level), deeper.clone()));
        deeper.push(failed(level));
    }
    all.push((State::Waiting(Awaited::Controller), deeper));
    all
}

/// What a drive answers that has no fault any more.
fn heal(actions: &[HealthAction], identity: DriveIdentity) -> Vec<Evidence> {
    let answers = actions.iter().filter_map(|action| match action {
        HealthAction::Ask(Question::Csts) => Some(Evidence::Csts(1)),
        HealthAction::Ask(Question::Smart) => Some(Evidence::Smart(SmartReading::default())),
        HealthAction::Ask(Question::Namespace) => Some(Evidence::Namespace(NamespaceAnswer::Present(identity))),
        HealthAction::Ask(Question::Path) => Some(Evidence::Path(PathState::Usable)),
        HealthAction::ReadAgain(extent) => Some(Evidence::ReadAgain { lba: extent.lba, status: Status::SUCCESS }),
        HealthAction::Reset { level, .. } => Some(Evidence::ResetEnded { level: *level, worked: true }),
        HealthAction::Reconnect => Some(Evidence::LinkBack),
        _ => None,
    });
    answers.collect()
}

/// From wherever it is, a drive that answers serves again, unless it is isolated.
fn assert_recovers(mut bench: Bench, last: &[HealthAction]) {
    let mut todo = heal(last, IDENTITY);
    for _ in 0..60 {
        if bench.health.state() == State::Serving || bench.health.state() == State::Isolated {
            return;
        }
        let actions = match (todo.is_empty(), bench.health.state()) {
            (false, _) => bench.see(todo.remove(0)),
            (true, State::Waiting(Awaited::Drive)) => bench.see(Evidence::Arrived),
            (true, State::Waiting(Awaited::Link)) => bench.see(Evidence::LinkBack),
            (true, _) => bench.wait_until_due(),
        };
        todo.extend(heal(&actions, IDENTITY));
    }
    panic!("still {:?} with {:?}", bench.health.state(), bench.health.report());
}

/// A drive that the kernel drives: each failure is delivered and told once, and nothing is asked for or waits.
#[test]
fn failures_of_a_drive_that_the_kernel_drives_are_told_once() {
    let mut bench = Bench::new();
    bench.health = Health::new(Policy::of_kernel(), IDENTITY);
    let cases = [
        (Access::Read, Status::UNRECOVERED_READ_ERROR, Verdict::BadBlocks),
        (Access::Write, Status::CAPACITY_EXCEEDED, Verdict::Full),
        (Access::Write, Status::WRITE_FAULT, Verdict::ReadOnly),
    ];
    let extent = Extent { lba: 8, blocks: 4 };
    for (ticket, (access, status, verdict)) in (0..).zip(cases) {
        let (ticket, since) = (Ticket(ticket), bench.now);
        let failure = Failure { ticket, access, extent, status, retry_delay: None, retries: 0, since };
        let deliver = HealthAction::Deliver { ticket, status };
        let seen = bench.see(Evidence::Failed(failure));
        let [first, HealthAction::Report(report)] = &seen[..] else { panic!("{verdict}: {seen:?}") };
        assert_eq!((first, report.verdict, report.ended), (&deliver, verdict, Some(bench.now)));
        assert_eq!(report.seen, [Seen { at: bench.now, evidence: Evidence::Failed(failure) }]);
        assert_eq!(bench.see(Evidence::Failed(failure)), [deliver], "{verdict}: it is no news");
        assert_eq!((bench.health.state(), bench.health.gate()), (State::Serving, Gate::Open));
    }
    assert_eq!(bench.health.bad_blocks().collect::<Vec<_>>(), [extent]);
    assert!(bench.health.limits().full && bench.health.limits().read_only);
    bench.see(Evidence::WrittenByHost(extent));
    assert_eq!(bench.health.bad_blocks().count(), 0);
    assert!(!bench.health.limits().full && bench.health.limits().read_only, "a write shows that there is room");
    // Whatever else is seen, it serves.
    for evidence in all_evidence().into_iter().filter(|evidence| matches!(evidence, Evidence::Failed(_))) {
        let seen = bench.see(evidence);
        assert!(matches!(seen[0], HealthAction::Deliver { .. }), "{evidence}: {seen:?}");
        assert_eq!((bench.health.state(), bench.health.gate()), (State::Serving, Gate::Open), "{evidence}");
    }
}

#[test]
fn every_state_takes_all_evidence_and_comes_back() {
    for (state, way) in ways() {
        for evidence in all_evidence() {
            let mut bench = Bench::new();
            for step in &way {
                bench.see(*step);
            }
            assert_eq!(bench.health.state(), state, "the way into it");
            let actions = bench.see(evidence);
            if let Evidence::Failed(failure) = evidence {
                let answers = |a: &&HealthAction| match a {
                    HealthAction::Deliver { ticket, .. }
                    | HealthAction::Retry { ticket, .. }
                    | HealthAction::Hold(ticket) => *ticket == failure.ticket,
                    _ => false,
                };
                assert_eq!(actions.iter().filter(answers).count(), 1, "{state:?} {evidence:?} {actions:?}");
            }
            assert_recovers(bench, &actions);
        }
    }
}

proptest! {
    #[test]
    fn any_evidence_in_any_order(choices in proptest::collection::vec((0usize..200, 0u64..3_000_000_000), 1..60)) {
        let all = all_evidence();
        let mut bench = Bench::new();
        let mut last = Vec::new();
        for (choice, pause) in choices {
            bench.now = Nanos(bench.now.0 + pause);
            last = bench.see(all[choice % all.len()]);
        }
        assert_recovers(bench, &last);
    }
}
