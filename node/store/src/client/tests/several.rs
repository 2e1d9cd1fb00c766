//! A client that has the addresses of several services.

use super::*;

fn options(deadline: Duration) -> ClientOptions {
    ClientOptions { name: "several".into(), allow_files: true, deadline, ..ClientOptions::default() }
}

#[test]
fn a_session_goes_on_at_the_next_address() {
    let service = RealService::new();
    let addresses = ["a", "s", "t"].map(|socket| service.address_of(socket)).join(",");
    let client = Client::connect(&addresses, options(LEASE)).unwrap();
    assert_eq!(client.address(), addresses);
    let file = client.create("/file", &CreateOptions::default()).unwrap();
    let mut model = Vec::new();
    for socket in ["t", "s", "a", "t"] {
        let data = bytes(&mut SplitMix64::new(model.len() as u64), 100_000);
        file.write_at(model.len() as u64, &data).unwrap();
        model.extend(data);
        service.moves(socket);
        file.flush().unwrap();
        compare(&file, &model, socket);
    }
    file.close().unwrap();
    let other = Client::connect(&addresses, options(LEASE)).unwrap();
    compare(&other.open("/file", OpenOptions::default()).unwrap(), &model, "another client");
}

/// It accepts connections, as a process that stands still does, and says nothing.
#[test]
fn a_service_that_is_silent_is_left_for_the_next_one() {
    let service = RealService::new();
    let silent = service.address_of("silent");
    let _listener = std::os::unix::net::UnixListener::bind(silent.trim_start_matches("unix:")).unwrap();
    let addresses = format!("{silent},{}", service.address());
    Client::connect(&addresses, options(LEASE)).unwrap().make_directory("/d", false, 0o755).unwrap();
}

#[test]
fn an_error_names_every_address_that_was_tried() {
    let connect = |addresses| Client::connect(addresses, options(Duration::from_secs(5))).unwrap_err();
    let error = connect("127.0.0.1:1,unix:/nowhere/at/all");
    assert!(matches!(error.kind(), ClientErrorKind::Unreachable(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("127.0.0.1:1: Connection refused") && text.contains("; unix:/nowhere/at/all: "), "{text}");
    let error = connect("127.0.0.1:1,nowhere");
    assert_eq!(error.to_string(), "\"nowhere\" is no address of a metadata service; it is HOST:PORT or unix:PATH");
}
