//! Classes of network addresses, against server-side request forgery: which addresses only this machine or its network can
//! reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::limits::MAX_ADDRESSES;

/// Who can reach an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressClass {
    /// The machine of this process.
    Loopback,
    /// The hosts of a private network, or of a provider's network behind a shared address.
    Private,
    /// Addresses on the internet.
    Global,
    /// Link-local (where cloud providers serve credentials), multicast, unassigned and documentation addresses, and
    /// those that embed an arbitrary IPv4 address.
    Reserved,
}

impl AddressClass {
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => match address.to_ipv4_mapped() {
                Some(inner) => Self::of_v4(inner),
                None => Self::of_v6(address),
            },
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        match address.octets() {
            [127, ..] => Self::Loopback,
            [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Self::Private,
            [0, ..] | [169, 254, ..] | [198, 18..=19, ..] | [224..=255, ..] => Self::Reserved,
            // Protocol assignments and documentation, and relays of 6to4.
            [192, 0, 0 | 2, _] | [198, 51, 100, _] | [203, 0, 113, _] | [192, 88, 99, _] => Self::Reserved,
            _ => Self::Global,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        match address.segments() {
            _ if address.is_loopback() => Self::Loopback,
            _ if address.is_unspecified() || address.is_multicast() => Self::Reserved,
            [0xfc00..=0xfdff, ..] => Self::Private,
            // Addresses of 6to4 and Teredo embed an arbitrary IPv4 address.
            [0x2002, ..] | [0x2001, 0, ..] => Self::Reserved,
            // Other protocol assignments, benchmarks and documentation.
            [0x2001, 1..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Self::Reserved,
            // The only block from which global addresses are assigned. Outside are, among others, the addresses of
            // NAT64, which embed an IPv4 address.
            [0x2000..=0x3fff, ..] => Self::Global,
            _ => Self::Reserved,
        }
    }
}

/// Returns the addresses of a name that a client may connect to; `refusal` says why an address is not one of them. The
/// client must connect to these, and not resolve the name again: its owner may change the addresses at any time.
pub fn permitted<A>(
    found: impl IntoIterator<Item = A>,
    refusal: impl Fn(&A) -> Option<String>,
) -> Result<Vec<A>, String> {
    let (mut permitted, mut refused) = (Vec::new(), None);
    for address in found.into_iter().take(MAX_ADDRESSES) {
        match refusal(&address) {
            None => permitted.push(address),
            Some(why) => refused = Some(why),
        }
    }
    match permitted.is_empty() {
        true => Err(refused.unwrap_or_else(|| "the name has no address".to_owned())),
        false => Ok(permitted),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{AddressClass, permitted};
    use crate::limits::MAX_ADDRESSES;

    #[test]
    fn only_permitted_addresses_of_a_name_remain_and_not_too_many() {
        let private = |address: &IpAddr| {
            (AddressClass::of(*address) != AddressClass::Global).then(|| format!("{address} is not public"))
        };
        let select = |found: &[&str]| permitted(found.iter().map(|text| text.parse().unwrap()), private);
        assert_eq!(select(&["10.0.0.1", "93.184.216.34", "::1"]), Ok(vec![IpAddr::from([93, 184, 216, 34])]));
        assert_eq!(select(&["10.0.0.1"]), Err("10.0.0.1 is not public".to_owned()));
        assert_eq!(select(&[]), Err("the name has no address".to_owned()));
        let many = (0..=MAX_ADDRESSES).map(|_| IpAddr::from([93, 184, 216, 34]));
        assert_eq!(permitted(many, private).unwrap().len(), MAX_ADDRESSES);
    }

    #[test]
    fn addresses_have_a_class() {
        use AddressClass::{Global, Loopback, Private, Reserved};
        let cases = [
            ("127.0.0.1", Loopback),
            ("127.1.2.3", Loopback),
            ("::1", Loopback),
            ("::ffff:127.0.0.1", Loopback),
            ("10.0.0.1", Private),
            ("172.15.0.1", Global),
            ("172.16.0.1", Private),
            ("172.31.0.1", Private),
            ("172.32.0.1", Global),
            ("192.168.0.1", Private),
            ("100.64.0.1", Private),
            ("100.127.255.255", Private),
            ("100.128.0.1", Global),
            ("fd00::1", Private),
            ("fc00::1", Private),
            ("169.254.169.254", Reserved),
            ("::ffff:169.254.169.254", Reserved),
            ("::ffff:10.0.0.1", Private),
            ("::127.0.0.1", Reserved),
            ("fe80::1", Reserved),
            ("fec0::1", Reserved),
            ("ff02::1", Reserved),
            ("0.0.0.0", Reserved),
            ("0.1.2.3", Reserved),
            ("::", Reserved),
            ("224.0.0.1", Reserved),
            ("240.0.0.1", Reserved),
            ("255.255.255.255", Reserved),
            ("192.0.0.8", Reserved),
            ("192.0.2.1", Reserved),
            ("192.0.78.9", Global),
            ("198.18.0.1", Reserved),
            ("198.51.100.1", Reserved),
            ("203.0.113.1", Reserved),
            ("192.88.99.1", Reserved),
            ("2002:7f00:1::", Reserved),
            ("2001:0:7f00:1::", Reserved),
            ("2001:db8::1", Reserved),
            ("2001:20::1", Reserved),
            ("3fff::1", Reserved),
            ("64:ff9b::7f00:1", Reserved),
            ("64:ff9b:1::7f00:1", Reserved),
            ("100::1", Reserved),
            ("93.184.216.34", Global),
            ("2606:2800:220:1::1", Global),
            ("2001:4860:4860::8888", Global),
        ];
        for (address, class) in cases {
            assert_eq!(AddressClass::of(address.parse().unwrap()), class, "{address}");
        }
    }
}
