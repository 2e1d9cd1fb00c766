//! What a status says of the drive rather than of the command.

use weir_spec::nvme::Status;

/// Says that the command can be carried out later: the namespace cannot be accessed, and will be (base 2.0, 8.1.3; Figure 100), or the command
/// was ended for a reason that is not its own. CRD does not count: hosts that do not enable it get none (base 2.0, 5.27.1.14).
pub fn is_later(status: Status) -> bool {
    let ana = [Status::ANA_INACCESSIBLE, Status::ANA_TRANSITION, Status::ANA_PERSISTENT_LOSS];
    let passing = [
        Status::NAMESPACE_NOT_READY,
        Status::ABORTED_SQ_DELETION,
        Status::COMMAND_INTERRUPTED,
        Status::TRANSIENT_TRANSPORT_ERROR,
        Status::HOST_ABORTED,
    ];
    let is_of = |codes: &[Status]| codes.iter().any(|code| status.same_code(*code));
    is_of(&ana) || is_of(&passing) && !status.is_dnr()
}
