package packetbuffer

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile/rules"
)

func ruleSet(t testing.TB, texts ...string) (*rules.Set, error) {
	t.Helper()
	hosts := map[string]netip.Addr{
		"cn0": netip.MustParseAddr("10.0.0.1"), "cn1": netip.MustParseAddr("10.0.0.2"), "ms0": netip.MustParseAddr("10.0.0.3"), "ms1": netip.MustParseAddr("10.0.0.4"),
	}
	var list []rules.Rule
	for _, text := range texts {
		r, err := rules.Parse(text)
		if err == nil {
			err = r.Resolve(func(name string) []netip.Addr {
				if a, ok := hosts[name]; ok {
					return []netip.Addr{a}
				}
				return nil
			})
		}
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return rules.NewSet(list)
}

func TestRules(t *testing.T) {
	const base = "server=cn0 action=buffer "
	for text, want := range map[string]string{
		"ring=ms0 rate=1Gbit": "",
		"ring=ms0,ms1 rate=10Mbit high=1 low=1 entries=1 entry=512 offset=0x40 depth=1 mode=published": "",
		"ring=ms0 rate=1Gbit entry=1552 mtu=2048":                                                      "",
		"ring=ms0 rate=1Tbit":                     "",
		"ring=ms0 rate=8Kbit":                     "",
		"ring=ms0 rate=2Tbit":                     "use 8Kbit to 1Tbit",
		"ring=ms0 rate=1Gbit entry=2048 mtu=2048": "",
		"rate=1Gbit":                              "needs the keys ring and rate",
		"ring=ms0":                                "needs the keys ring and rate",
		"ring=ms0 rate=fast":                      "rate",
		"ring=ms0 rate=1bit":                      "use 8Kbit to 1Tbit",
		"ring=ms9 rate=1Gbit":                     `"ms9" is no host`,
		"ring=ms0,ms0 rate=1Gbit":                 `"ms0" is there twice`,
		"ring=cn0 rate=1Gbit":                     "is the host whose port is limited",
		"ring=, rate=1Gbit":                       "neither a host's name nor an address",
		"ring=0.0.0.0 rate=1Gbit":                 "no address of a machine",
		"ring=a,b,c,d,e,f,g,h,i rate=1Gbit":       "9 servers; at most 8",
		"ring=ms0 rate=1Gbit low=9 high=8":        "low 9 is above high 8",
		"ring=ms0 rate=1Gbit high=0":              "no number from 1",
		"ring=ms0 rate=1Gbit entries=1073741825":  "no number from 1 to 1073741824",
		"ring=ms0 rate=1Gbit entry=1000":          "use one of 512, 1024, 1552, 2048, 4096",
		"ring=ms0 rate=1Gbit offset=4":            "use a multiple of 8",
		"ring=ms0 rate=1Gbit mtu=1024":            "longer than the path MTU of 1024",
		"ring=ms0 rate=1Gbit range=0-8":           "takes all frames to the host",
		"ring=ms0 rate=1Gbit shards=2":            "name several servers in ring",
		"ring=ms0 rate=1Gbit service=none":        "name their service",
		"ring=ms0 rate=1Gbit low=8 high=8 mtu=0":  "mtu",
	} {
		_, err := ruleSet(t, base+text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for _, tc := range []struct{ one, other, want string }{
		{"server=cn0 action=buffer ring=ms0 rate=1Gbit", "server=cn1 action=buffer ring=ms1 rate=1Gbit", ""},
		{"server=cn0 action=buffer ring=ms0 rate=1Gbit", "server=cn0 action=track", ""},
		{"server=cn0 action=buffer ring=ms0 rate=1Gbit", "server=cn0 action=buffer ring=ms1 rate=1Gbit", "takes all of its requests"},
		{"server=cn0 action=buffer ring=ms0 rate=1Gbit", "server=ms0 action=buffer ring=ms1 rate=1Gbit", "behind a port that the other rule limits"},
		{"server=cn0 action=buffer ring=ms0 rate=1Gbit", "server=cn1 action=buffer ring=ms1,ms0 rate=1Gbit", "give one of them offset=0x800000"},
		{"server=cn0 action=buffer ring=ms0 rate=1Gbit", "server=cn1 action=buffer ring=ms1,ms0 rate=1Gbit offset=0x800000", ""},
	} {
		_, err := ruleSet(t, tc.one, tc.other)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s, %s: %v, want %q", tc.one, tc.other, err, tc.want)
		}
	}
}

// No request matches a rule of action buffer, also if it is the only rule for the server.
func TestRequestsMatchNoBuffer(t *testing.T) {
	set, err := ruleSet(t, "server=cn0 action=buffer ring=ms0 rate=1Gbit")
	if err != nil {
		t.Fatal(err)
	}
	a := netip.MustParseAddr("10.0.0.1")
	if len(set.Lookup(a)) != 0 || len(set.Observing(a)) != 0 {
		t.Error("the rule is about requests")
	}
	again, err := ruleSet(t, set.All()[0].String())
	if err != nil || again.All()[0].String() != set.All()[0].String() {
		t.Errorf("%v: %v", set.All()[0], err)
	}
}

// Each entry has its own place, within the bounds of its server.
func TestEveryEntryHasItsPlace(t *testing.T) {
	set, err := ruleSet(t, "server=cn0 action=buffer ring=ms0,ms1 rate=1Gbit entries=9 entry=512 offset=16")
	if err != nil {
		t.Fatal(err)
	}
	l := LayoutOf(&set.All()[0])
	seen := make(map[[2]uint64]bool)
	for i := range uint64(9) {
		server, off := l.Place(i)
		at := [2]uint64{uint64(server), off}
		if seen[at] || server >= 2 || off < 16 || off+512 > l.End() || (off-16)%512 != 0 {
			t.Errorf("entry %d is at server %d, offset %d", i, server, off)
		}
		seen[at] = true
		if s, o := l.Place(i + 9); s != server || o != off {
			t.Errorf("entry %d is not entry %d", i+9, i)
		}
	}
}
