package extmem

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// A list of servers is kept in one spelling, and refused if an entry cannot be a server.
func TestServersKey(t *testing.T) {
	f := ServersKey("ring", "ms0", "")
	for text, want := range map[string]string{
		"ms0": "ms0", "ms1,ms0": "ms1,ms0", "FD00:0::2": "fd00::2", "::ffff:10.0.0.1": "10.0.0.1",
		"az09-": "az09-", strings.Repeat("a", rules.MaxID): strings.Repeat("a", rules.MaxID),
		strings.Repeat("a", rules.MaxID+1): "", "fe80::1%eth0": "", "ff02::1": "", "::": "", "": "", ",": "", "A": "", "ms0,ms0": "",
		"fd00::2,FD00:0::2": "", "10.0.0.1,::ffff:10.0.0.1": "",
		"a,b,c,d,e,f,g,h": "a,b,c,d,e,f,g,h", "a,b,c,d,e,f,g,h,i": "",
	} {
		var r rules.Rule
		err := f.Set(&r, text)
		if (err == nil) != (want != "") || err == nil && r.Options["ring"] != want {
			t.Errorf("%q: %q, %v; want %q", text, r.Options["ring"], err, want)
		}
	}
	if got := Servers("ms0,10.0.0.1,fd00::2"); len(got) != 2 || got[1] != netip.MustParseAddr("fd00::2") {
		t.Error(got)
	}
}

// Offsets and numbers at their bounds are taken, those behind them are not.
func TestValues(t *testing.T) {
	if CheckOffset("0x40") != nil || CheckOffset("0xfffffffffff8") != nil || CheckOffset("4") == nil || CheckOffset("0x1000000000000") == nil || CheckOffset("-8") == nil {
		t.Error("bounds of offsets")
	}
	if Offset("0x40") != 64 || Offset("") != 0 {
		t.Error("value of an offset")
	}
	if check := Between(1, 9); check("1") != nil || check("9") != nil || check("0") == nil || check("10") == nil || check("x") == nil {
		t.Error("bounds of numbers")
	}
	if Number("", 5) != 5 || Number("6", 5) != 6 {
		t.Error("value of a number")
	}
	if check := OneOf("a", "b"); check("b") != nil || check("") == nil {
		t.Error("choice")
	}
}

// Each cell has its own place, and areas overlap if a server has cells of both in the same bytes.
func TestArea(t *testing.T) {
	ms := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")}
	a := Area{Servers: ms[:2], Offset: 16, Cells: 9, Size: 64}
	seen := make(map[[2]uint64]bool)
	for i := range uint64(9) {
		server, off := a.Place(i)
		at := [2]uint64{uint64(server), off}
		if seen[at] || server != int(i%2) || off < 16 || off+64 > a.End() {
			t.Errorf("cell %d is at %v", i, at)
		}
		seen[at] = true
		if s, o := a.Place(i + 9); s != server || o != off {
			t.Errorf("cell %d is not cell %d", i+9, i)
		}
	}
	if a.End() != 16+5*64 {
		t.Errorf("ends at %d", a.End())
	}
	for _, tc := range []struct {
		b    Area
		want bool
	}{
		{Area{ms[1:], 16 + 4*64, 1, 64}, true},
		{Area{ms[1:], 16 + 5*64, 1, 64}, false},
		{Area{ms[2:], 16, 9, 64}, false},
		{Area{ms[:1], 0, 2, 8}, false},
		{Area{ms[:1], 0, 3, 8}, true},
	} {
		if a.Overlaps(&tc.b) != tc.want || tc.b.Overlaps(&a) != tc.want {
			t.Errorf("%+v: overlaps is not %v", tc.b, tc.want)
		}
	}
	g := memgrant.Grant{Region: memgrant.Region{Addr: 1 << 20, RKey: 7, Len: int(a.End())}}
	s := switchconn.Shared{Answer: g.AppendTo([]byte{memgrant.Version, memgrant.Kind})}
	if got, err := a.Grant(&s); err != nil || got != g {
		t.Errorf("%+v: %v", got, err)
	}
	for _, b := range []Area{{ms[:1], 16, 9, 64}, {ms[:2], 24, 9, 64}, {ms[:2], 16, 8, 64}, {ms[:2], 16, 9, 32}} {
		if a.Same(&b) || b.Same(&a) {
			t.Errorf("%+v: other cells are the same", b)
		}
	}
	if !a.Same(&Area{ms[:2], 16, 9, 64}) {
		t.Error("the same cells are others")
	}
	a.Cells = 11
	if _, err := a.Grant(&s); err == nil || !strings.Contains(err.Error(), "0x190") {
		t.Error(err)
	}
	if _, err := a.Grant(&switchconn.Shared{Answer: []byte("hello")}); err == nil {
		t.Error("the answer of another service is taken")
	}
}

func TestNames(t *testing.T) {
	list := []Server{{netip.MustParseAddr("10.0.0.1"), true, ""}, {netip.MustParseAddr("10.0.0.2"), false, "gone"}}
	if got := Names(list, netip.Addr.String); got != "10.0.0.1, -10.0.0.2 (gone)" {
		t.Error(got)
	}
	if !slices.Equal([]string{Names(nil, nil)}, []string{""}) {
		t.Error("no server has a name")
	}
}
