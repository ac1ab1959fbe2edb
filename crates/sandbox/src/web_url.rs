//! URLs for cells, parsed by the `url` crate as browsers do.

use contract::limits::MAX_URL_BYTES;
use serde_json::{Value, json};
use url::{Url, quirks};

/// Answers `["parse", text, base | null]` or `["set", href, part, value]` with the URL's parts.
pub(crate) fn answer(request: &[u8]) -> Option<Vec<u8>> {
    if request.len() > MAX_URL_BYTES {
        return None;
    }
    let request = contract::json::read(std::str::from_utf8(request).ok()?).ok()?;
    let field = |position: usize| request.get(position).and_then(Value::as_str);
    let url = match field(0)? {
        "parse" => parse(field(1)?, field(2))?,
        "set" => set(field(1)?, field(2)?, field(3)?)?,
        _ => return None,
    };
    Some(parts(&url).to_string().into_bytes())
}

fn parse(text: &str, base: Option<&str>) -> Option<Url> {
    match base {
        Some(base) => Url::parse(base).ok()?.join(text).ok(),
        None => Url::parse(text).ok(),
    }
}

/// A part that rejects its new value keeps the old one, as on the web.
fn set(href: &str, part: &str, value: &str) -> Option<Url> {
    let mut url = Url::parse(href).ok()?;
    let taken = match part {
        "href" => return Url::parse(value).ok(),
        "protocol" => quirks::set_protocol(&mut url, value),
        "username" => quirks::set_username(&mut url, value),
        "password" => quirks::set_password(&mut url, value),
        "host" => quirks::set_host(&mut url, value),
        "hostname" => quirks::set_hostname(&mut url, value),
        "port" => quirks::set_port(&mut url, value),
        "pathname" => {
            quirks::set_pathname(&mut url, value);
            Ok(())
        }
        "search" => {
            quirks::set_search(&mut url, value);
            Ok(())
        }
        "hash" => {
            quirks::set_hash(&mut url, value);
            Ok(())
        }
        _ => Err(()),
    };
    taken.ok().map(|()| url)
}

fn parts(url: &Url) -> Value {
    json!({
        "href": quirks::href(url),
        "origin": quirks::origin(url),
        "protocol": quirks::protocol(url),
        "username": quirks::username(url),
        "password": quirks::password(url),
        "host": quirks::host(url),
        "hostname": quirks::hostname(url),
        "port": quirks::port(url),
        "pathname": quirks::pathname(url),
        "search": quirks::search(url),
        "hash": quirks::hash(url),
    })
}
