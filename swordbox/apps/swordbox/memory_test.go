package swordbox_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	_ "github.com/rdmalab/rdmalab/swordbox/lookuptable"
	_ "github.com/rdmalab/rdmalab/swordbox/packetbuffer"
	_ "github.com/rdmalab/rdmalab/swordbox/statestore"
)

// Rules of different actions do not share bytes of a server, unless other services lend them. The
// error names the key to set, and with the value that it suggests the rules fit.
func TestRulesNeedTheirOwnMemory(t *testing.T) {
	const (
		count  = "id=c server=10.0.0.3 action=count store=10.0.0.1,10.0.0.2"
		buffer = "id=b server=10.0.0.4 action=buffer rate=1Gbit ring=10.0.0.2,10.0.0.5"
		lookup = "id=l server=10.0.0.4 action=lookup table=10.0.0.5,10.0.0.1"
	)
	for _, tc := range []struct{ one, other, key string }{
		{count, buffer, "offset=0x1000"},
		{buffer, count, "at=0x400000"},
		{count, lookup, "base=0x1000"},
		{buffer, lookup, "base=0x400000"},
		{lookup, buffer + " offset=8", "offset=0x5001c0"},
		{lookup, count + " mode=published", "at=0x5001c0"},
		{lookup, count + " service=other", ""},
		{count + " at=0x500000", lookup, "base=0x501000"},
		{count + " at=0x5001c0", lookup, ""},
		{count, strings.ReplaceAll(buffer, "10.0.0.2", "10.0.0.6"), ""},
		{"server=10.0.0.3 action=count", lookup, ""},
		{"server=10.0.0.3 action=move", lookup, ""},
	} {
		set := func(texts ...string) error {
			var list []rules.Rule
			for _, text := range texts {
				r, err := rules.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, r)
			}
			_, err := rules.NewSet(list)
			return err
		}
		err := set(tc.one, tc.other)
		if tc.key == "" {
			if err != nil {
				t.Errorf("%s; %s: %v", tc.one, tc.other, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "the same memory") || !strings.HasSuffix(err.Error(), " "+tc.key) {
			t.Errorf("%s; %s: %v, want %s", tc.one, tc.other, err, tc.key)
		}
		if err := set(tc.one, strings.TrimSuffix(tc.other, " offset=8")+" "+tc.key); err != nil {
			t.Errorf("%s; %s %s: %v", tc.one, tc.other, tc.key, err)
		}
	}
}

// The addresses of a host, of both families, name one server.
func TestAddressesOfOneServer(t *testing.T) {
	first, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	host := func(name string) []netip.Addr {
		if name == first.String() || name == other.String() {
			return []netip.Addr{first, other}
		}
		return nil
	}
	for want, texts := range map[string][]string{
		"the same memory": {"server=10.0.0.3 action=count store=10.0.0.1", "server=10.0.0.4 action=lookup table=fd00::1"},
		"is there twice":  {"server=10.0.0.4 action=lookup table=fd00::1,10.0.0.1"},
		"that overlap":    {"server=10.0.0.4 action=lookup table=fd00::1", "server=10.0.0.5 action=lookup table=10.0.0.1"},
	} {
		var list []rules.Rule
		for _, text := range texts {
			r, err := rules.Parse(text)
			if err == nil {
				err = r.Resolve(host)
			}
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, r)
		}
		if _, err := rules.NewSet(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", texts, err, want)
		}
	}
}
