//! Stored outputs as resources, over HTTP and in every revision of the protocol.

use serde_json::json;

use super::clients::{Era, Served};
use super::place::Place;

const ADA: &str = "ada-0123456789abcdef0123456789abcdef";
const BOB: &str = "bob-0123456789abcdef0123456789abcdef";

#[test]
fn over_http_a_principal_reads_its_outputs_and_no_other_principal_does() {
    let place = Place::new(json!([]));
    std::fs::write(place.path("tokens"), format!("ada {ADA}\nbob {BOB}\n")).unwrap();
    std::fs::set_permissions(place.path("tokens"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let served = Served::start(&place, &["--tokens", &place.path("tokens")]);
    for era in Era::ALL {
        let mut ada = served.client_named(era, ADA, &format!("agent-{era:?}"));
        let stored = ada.exec("text('é'.repeat(50_000)); return 1");
        let handle = stored["output"][0]["handle"].as_str().unwrap_or_else(|| panic!("{stored}")).to_owned();
        let uri = format!("cellmate://out/{handle}");
        let listed = ada.send("resources/list", json!({})).answer();
        let resources = listed["result"]["resources"].as_array().unwrap_or_else(|| panic!("{listed}"));
        assert_eq!((resources.len(), &resources[0]["uri"]), (1, &json!(uri)), "{listed}");
        assert_eq!(listed["result"]["ttlMs"].is_number(), era.is_modern(), "{listed}");
        let read = ada.send("resources/read", json!({"uri": uri})).answer();
        assert_eq!(read["result"]["contents"][0]["text"], "é".repeat(50_000), "{era:?}");
        let part = ada.send("resources/read", json!({"uri": format!("{uri}?offset=3&length=4")})).answer();
        assert_eq!(part["result"]["contents"][0]["text"], "éé", "{part}");

        let mut bob = served.client_named(era, BOB, &format!("agent-{era:?}"));
        assert_eq!(bob.send("resources/list", json!({})).answer()["result"]["resources"], json!([]));
        let denied = bob.send("resources/read", json!({"uri": uri})).answer();
        let unknown = bob.send("resources/read", json!({"uri": "cellmate://out/out_cm_nobody_l1n0"})).answer();
        assert_eq!(denied["error"], unknown["error"]);
        assert_eq!(denied["error"]["code"], if era.is_modern() { -32602 } else { -32002 }, "{denied}");
    }
}
