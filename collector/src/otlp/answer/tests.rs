use hyper::header::HeaderValue;

use super::*;

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse().expect("a name"), HeaderValue::from_static(value))).collect()
}

fn http(status: u16, pairs: &[(&'static str, &'static str)], body: &[u8]) -> Answer {
    of_http("T", StatusCode::from_u16(status).expect("a status"), &headers(pairs), body)
}

fn grpc(pairs: &[(&'static str, &'static str)], body: &[u8]) -> Answer {
    let first = headers(&[("content-type", "application/grpc+proto")]);
    of_grpc("T", StatusCode::OK, &first, &headers(pairs), body)
}

/// What is said, and whether the request is sent again.
fn said(answer: Answer) -> (&'static str, bool, String) {
    match answer {
        Answer::Accepted { trouble, .. } => trouble.map_or(("", false, String::new()), |it| (it.kind, false, it.what)),
        Answer::Refused(trouble) => (trouble.kind, false, trouble.what),
        Answer::Later { trouble, .. } => (trouble.kind, true, trouble.what),
    }
}

const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");
const PARTIAL: [u8; 9] = [0x0a, 7, 0x08, 3, 0x12, 3, b'o', b'l', b'd'];

#[test]
fn over_http_every_status_means_what_the_standard_says() {
    assert_eq!(http(200, &[PROTOBUF], b""), Answer::Accepted { rejected: 0, trouble: None });
    assert_eq!(http(202, &[], b""), Answer::Accepted { rejected: 0, trouble: None });
    let Answer::Accepted { rejected: 3, trouble: Some(trouble) } = http(200, &[PROTOBUF], &PARTIAL) else { panic!() };
    assert_eq!((trouble.kind, trouble.what.contains("3 of a request: old")), ("rejected", true), "{}", trouble.what);
    for (status, kind, again) in [
        (429, "busy", true),
        (502, "busy", true),
        (503, "busy", true),
        (504, "busy", true),
        (400, "refused", false),
        (500, "refused", false),
        (301, "refused", false),
        (401, "credentials", false),
        (403, "credentials", false),
        (404, "no receiver", false),
    ] {
        let (found, is_again, what) = said(http(status, &[("content-type", "text/plain")], b"\n why\x07 \nmore"));
        assert_eq!((found, is_again), (kind, again), "{status}");
        assert!(what.contains(&format!("({status} ")) && what.contains(": why)"), "{what}");
    }
    let page = said(http(200, &[("content-type", "text/html")], b"<html>"));
    assert_eq!((page.0, page.1), ("no receiver", false));
    let Answer::Later { after, .. } = http(503, &[("retry-after", "7")], b"") else { panic!("it is sent again") };
    assert_eq!(after, Some(Duration::from_secs(7)));
}

#[test]
fn over_grpc_every_status_means_what_the_standard_says() {
    assert_eq!(grpc(&[("grpc-status", "0")], &[0; 5]), Answer::Accepted { rejected: 0, trouble: None });
    let body = [&[0, 0, 0, 0, 9][..], &PARTIAL].concat();
    assert_eq!(said(grpc(&[("grpc-status", "0")], &body)).0, "rejected");
    for (code, kind, again) in [
        ("1", "busy", true),
        ("3", "refused", false),
        ("4", "busy", true),
        ("7", "credentials", false),
        ("8", "refused", false),
        ("12", "no receiver", false),
        ("13", "refused", false),
        ("14", "busy", true),
        ("16", "credentials", false),
        ("x", "no receiver", false),
    ] {
        let found = said(grpc(&[("grpc-status", code), ("grpc-message", "so%20it%2")], b""));
        assert_eq!((found.0, found.1), (kind, again), "{code}: {}", found.2);
    }
    // A status with a detail of type `type.googleapis.com/google.rpc.RetryInfo`, and there a delay of 2.5 s.
    let details = "CAgaNgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIKCggIAhCAyrXuAQ";
    let exhausted = grpc(&[("grpc-status", "8"), ("grpc-status-details-bin", details)], b"");
    let Answer::Later { after: Some(after), .. } = exhausted else { panic!("{exhausted:?}") };
    assert_eq!(after, Duration::from_millis(2_500));
    let plain = of_grpc("T", StatusCode::OK, &headers(&[("content-type", "text/html")]), &HeaderMap::new(), b"<html>");
    assert_eq!(said(plain).0, "no receiver");
}
