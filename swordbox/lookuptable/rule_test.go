package lookuptable

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
	const base = "server=cn0 action=lookup "
	for text, want := range map[string]string{
		"table=ms0": "",
		"table=ms0,ms1 match=destination capacity=1 cells=1 cell=512 cache=0 miss=drop base=0x40 depth=1": "",
		"table=ms0 mode=published cell=512 capacity=16":                                                   "",
		"match=flow":                            "needs the key table",
		"table=ms9":                             `"ms9" is no host`,
		"table=ms0,ms0":                         `"ms0" is there twice`,
		"table=ms0 match=port":                  "use one of flow, destination",
		"table=ms0 miss=keep":                   "use one of forward, drop",
		"table=ms0 capacity=1073741825":         "no number from 1 to 1073741824",
		"table=ms0 cells=0":                     "no number from 1",
		"table=ms0 cell=100":                    "use one of 512, 1024, 2048, 4096",
		"table=ms0 cache=65537":                 "no number from 0 to 65536",
		"table=ms0 base=4":                      "use a multiple of 8",
		"table=ms0 mtu=1024":                    "longer than the path MTU of 1024",
		"table=ms0 mtu=256 cell=512":            "longer than the path MTU of 256",
		"table=ms0 range=0-8":                   "takes all packets of the host",
		"table=ms0 shards=2":                    "name several servers in table",
		"table=ms0 service=none":                "name their service",
		"table=ms0 mode=published cell=4096":    "",
		"table=ms0 rate=1Gbit":                  "rate",
		"table=a,b,c,d,e,f,g,h,i match=flow":    "9 servers; at most 8",
		"table=ms0 cell=512 mtu=512 depth=1":    "",
		"table=ms0 mode=published base=0x8 id=": "id",
	} {
		_, err := ruleSet(t, base+text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for _, tc := range []struct{ one, other, want string }{
		{"server=cn0 action=lookup table=ms0", "server=cn1 action=lookup table=ms1", ""},
		{"server=cn0 action=lookup table=ms0", "server=cn0 action=track", ""},
		{"server=cn0 action=lookup table=ms0", "server=cn0 action=lookup table=ms1", "takes all of its requests"},
		{"server=cn0 action=lookup table=ms0", "server=cn1 action=lookup table=ms1,ms0", "give one of them base=0x5001c0"},
		{"server=cn0 action=lookup table=ms0", "server=cn1 action=lookup table=ms1,ms0 base=0x5001c0", ""},
		{"server=cn0 action=lookup table=ms0 mode=published capacity=16", "server=cn1 action=lookup table=ms0", "give one of them base=0x5001c0"},
		{"server=cn0 action=lookup table=ms0 mode=published capacity=16", "server=cn1 action=lookup table=ms0 base=0x8000", ""},
	} {
		_, err := ruleSet(t, tc.one, tc.other)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s, %s: %v, want %q", tc.one, tc.other, err, tc.want)
		}
	}
}

// Each slot and each cell has its own place, within the bounds of its server.
func TestEverySlotHasItsPlace(t *testing.T) {
	for _, mode := range []string{"hardened", "published"} {
		set, err := ruleSet(t, "server=cn0 action=lookup table=ms0,ms1 capacity=5 cells=3 cell=512 base=16 mode="+mode)
		if err != nil {
			t.Fatal(err)
		}
		l := LayoutOf(&set.All()[0])
		end := uint64(16)
		take := func(what string, at uint64, n int) {
			if at != end {
				t.Errorf("%s: a %s is at %d, not at %d", mode, what, at, end)
			}
			end += uint64(n)
		}
		if mode == "published" {
			for i := range 5 {
				take("slot with its cell", l.At(i), 512)
			}
		} else {
			for i := range 5 + Probe - 1 {
				take("slot", l.At(i), SlotLen)
			}
			cells := l.Ring(1)
			for i := range uint64(3) {
				server, at := cells.Place(i)
				take("cell", at, 512)
				if server != 0 {
					t.Errorf("cell %d is in another server", i)
				}
			}
		}
		if l.End() != end {
			t.Errorf("%s: the end is %d, not %d", mode, l.End(), end)
		}
		for h := range uint64(1000) {
			if server, home := l.Place(h << 35); server >= 2 || home >= 5 {
				t.Errorf("hash %d: slot %d of server %d", h<<35, home, server)
			}
		}
	}
}
