package cli

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile/rules"
)

// All rules with a virtual address get the new pool; the hosts of the former pools drain unless they are
// gone, and other rules stay.
func TestPoolOfRules(t *testing.T) {
	parse := func(text string) rules.Rule {
		r, err := rules.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	list := func() []rules.Rule {
		return []rules.Rule{
			parse("id=a server=10.0.0.1 action=lookup table=10.0.0.9 vip=10.0.0.8 vport=80 pool=10.0.0.2,10.0.0.3 drain=10.0.0.4"),
			parse("id=b server=10.0.0.9 action=track"),
		}
	}
	pool := []netip.Addr{netip.MustParseAddr("10.0.0.4"), netip.MustParseAddr("10.0.0.2")}
	for gone, want := range map[bool]string{
		false: "id=a server=10.0.0.1 action=lookup vip=10.0.0.8 vport=80 pool=10.0.0.4,10.0.0.2 drain=10.0.0.3 table=10.0.0.9",
		true:  "id=a server=10.0.0.1 action=lookup vip=10.0.0.8 vport=80 pool=10.0.0.4,10.0.0.2 table=10.0.0.9",
	} {
		in, drained := withPool(list(), pool, gone)
		if len(in.Rules) != 2 || in.Rules[0] != want || in.Rules[1] != "id=b server=10.0.0.9 action=track" || gone != (len(drained) == 0) || !gone && !slices.Equal(drained, []string{"10.0.0.3"}) {
			t.Errorf("gone %v: %q, %q", gone, in.Rules, drained)
		}
	}
	if in, _ := withPool(list()[1:], pool, false); in.Rules != nil {
		t.Errorf("%q", in.Rules)
	}
}
