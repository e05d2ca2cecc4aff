"""Where hostile URLs lead: spellings of private addresses, and names that resolve to them."""

from __future__ import annotations

SITE = "127.0.0.2"  # the only address that is open: redirects come from it

# What stands for the private service in the names of the zone: how each of them resolves.
RECORDS: dict[str, list[list[str] | None]] = {
    "loopback.museum.org": [["127.0.0.1"]],
    "loopback6.museum.org": [["::1"]],
    "mapped.museum.org": [["::ffff:7f00:1"]],
    "nat64.museum.org": [["64:ff9b::7f00:1"]],
    "unspecified.museum.org": [["0.0.0.0"]],
    "unspecified6.museum.org": [["::"]],
    "metadata.museum.org": [["169.254.169.254"]],
    "private.museum.org": [["10.0.0.1"]],
    "both.museum.org": [[SITE, "127.0.0.1"]],
    "both6.museum.org": [[SITE, "::1"]],
    "xn--mnchen-3ya.museum.org": [["127.0.0.1"]],
}

HOSTS = [
    # usual spellings, and those that inet_aton, resolvers and browsers understand
    *("127.0.0.1", "127.0.0.1.", "127.1", "127.0.1", "127.000.000.001", "2130706433", "0x7f000001", "0X7F000001"),
    *("0x7f.0.0.1", "0x7f.1", "0177.0.0.1", "0177.1", "017700000001", "127.0.0.0x1", "%31%32%37.0.0.1"),
    *("127.0.0.1%00.museum.org", "１２７.０.０.１", "127。0。0。1", "127．0．0．1", "①②⑦.⓪.⓪.①"),
    "127%2e0%2e0%2e1",
    # other addresses of this machine and its network
    *("0.0.0.0", "0", "0x0", "127.0.0.3", "127.255.255.254"),
    *("10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1"),
    *("169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "224.0.0.1", "255.255.255.255"),
    # IPv6
    *("[::1]", "[0:0:0:0:0:0:0:1]", "[0000::0001]", "[::]"),
    *("[::127.0.0.1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"),
    *("[64:ff9b::127.0.0.1]", "[64:ff9b:1::1]", "[2002:7f00:1::]", "[fe80::1]", "[fe80::1%25lo]", "[fd00::1]"),
    *("[ff02::1]", "[fec0::1]", "[::ffff:169.254.169.254]"),
    # names
    *("localhost", "LOCALHOST", "localhost.", "a.localhost", "ip6-localhost", *RECORDS, "LoopBack.Museum.ORG."),
    *("münchen.museum.org", "MÜNCHEN.museum.org"),
    # what IDNA removes from a name (RFC 3454, table B.1): soft hyphen, zero width space
    *("127.0.0\u00ad.1", "2130706433\u00ad", "\u00ad0x7f.1", "0\u00ad177.0.0.1", "127\u200b.0.0.1"),
    "local\u00adhost",
]
ODD = [  # whole URLs that parsers disagree on
    "http://museum.org@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}#@museum.org/",
    "http://127.0.0.1:{port}?@museum.org/",
    "http://127.0.0.1:{port}\\@museum.org/",
    "http://museum.org\\@127.0.0.1:{port}/",
    "http:\\\\127.0.0.1:{port}/",
    "http:/127.0.0.1:{port}/",
    "http:127.0.0.1:{port}/",
    "http:///127.0.0.1:{port}/",
    "http://museum.org:80@127.0.0.1:{port}/",
    "http://[::ffff:127.0.0.1]@museum.org:{port}/",
    "https://127.0.0.1:{port}/",
    "HTTP://127.0.0.1:{port}/",
    "file:///etc/passwd",
    "ftp://127.0.0.1:{port}/a",
    "gopher://127.0.0.1:{port}/_a",
    "data:image/gif;base64,R0lGODlhAQABAAAAACw=",
    "s3://bucket/a",
]
