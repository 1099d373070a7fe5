package lookuptable

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

const (
	ternarySize = "table=ms0 capacity=16 cells=8 cell=512 depth=4 match=ternary "
	ternary     = ternarySize + "masks=to+proto+dport,to/24+proto,any "
)

// slotOf returns a slot that slots.py has made, and its home slot among 16.
func slotOf(t *testing.T, name string) (home int, slot []byte) {
	t.Helper()
	text, err := os.ReadFile("testdata/slots.hex")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		var what, digits string
		if n, _ := fmt.Sscan(line, &what, &home, &digits); n == 3 && what == name {
			if slot, err = hex.DecodeString(digits); err != nil {
				t.Fatal(err)
			}
			return home, slot
		}
	}
	t.Fatalf("no slot %q", name)
	return 0, nil
}

// wants compares a slot in a server's memory with one of slots.py.
func (s *served) wants(name string) {
	s.t.Helper()
	home, want := slotOf(s.t, name)
	if got := s.server(0).memory[home*SlotLen:][:SlotLen]; !bytes.Equal(got, want) {
		s.t.Errorf("%s in slot %d\n%x, want\n%x", name, home, got, want)
	}
}

// The entries of all masks are in one table, in the bytes and places that a program outside of this
// project computes. The entry under the first mask that has one counts, whatever the order of writing.
func TestFirstMaskCounts(t *testing.T) {
	for _, cache := range []string{"cache=0", "cache=4"} {
		s := newServed(t, ternary+cache)
		s.attach()
		s.add(false, "mask=3 drop", "mask=2 to=10.0.0.0 proto=udp dscp=7 egress=port0", "mask=1 to=10.0.0.2 proto=udp dport=53 dscp=46",
			"mask=1 to=fd00::2 proto=udp dport=53 dst=[fd00::9]:5353")
		for _, name := range []string{"mask1", "mask2", "mask3", "mask1v6"} {
			s.wants(name)
		}
		for range 2 {
			s.left = nil
			s.send(ping(53, 1, 20), ping(54, 2, 20))
			far := ping(53, 3, 20)
			far[ethLen+18] = 1 // 10.0.1.2
			if s.send(far); len(s.left) != 3 {
				t.Fatalf("%s: %d frames have left", cache, len(s.left))
			}
			// The first one is flooded to two ports, because the switch does not know its destination.
			if s.left[0].Data[15] != 46<<2 || s.left[2].Data[15] != 7<<2 || s.left[2].Port != 0 {
				t.Errorf("%s: DSCPs %x and %x, port %d", cache, s.left[0].Data[15], s.left[2].Data[15], s.left[2].Port)
			}
		}
		st := s.m.Stats()
		if st.Frames != 6 || st.Denied != 2 || st.Hits+st.Cached != 6 || (st.Cached != 0) != (cache != "cache=0") {
			t.Errorf("%s: %+v", cache, st)
		}
	}
}

// Under each mask one READ asks for the slots, without waiting for the answer to the one before. If an
// entry under an earlier mask has come, the READs of later masks do not matter.
func TestReadsOfMasks(t *testing.T) {
	s := newServed(t, ternary+"cache=0 packets=recirculate")
	s.attach()
	s.add(false, "mask=1 to=10.0.0.2 proto=udp dport=53 egress=port0")
	before := s.server(0).count(wire.RCReadRequest)
	s.held = true
	s.send(ping(53, 1, 20))
	if n := s.server(0).count(wire.RCReadRequest) - before; n != 3 {
		t.Errorf("%d READs are in flight", n)
	}
	if s.deliver(1); len(s.left) != 1 || s.m.InFlight() != 0 {
		t.Errorf("%d frames have left, %d in flight", len(s.left), s.m.InFlight())
	}
	s.held = false
	s.send(ping(99, 2, 20)) // under no mask
	if st := s.m.Stats(); st.Hits != 1 || st.Misses != 1 || s.m.InFlight() != 0 {
		t.Errorf("%+v", st)
	}
}

// A change of any entry makes the cache forget all flows. A torn slot of an earlier mask is not passed
// over.
func TestChangesUnderMasks(t *testing.T) {
	s := newServed(t, ternary+"cache=8")
	s.attach()
	s.add(false, "mask=3 egress=port0")
	s.send(ping(53, 1, 20))
	s.send(ping(53, 2, 20))
	if st := s.m.Stats(); st.Hits != 1 || st.Cached != 1 {
		t.Fatalf("%+v", st)
	}
	s.add(false, "mask=1 to=10.0.0.2 proto=udp dport=53 drop")
	if s.send(ping(53, 3, 20)); s.m.Stats().Denied != 1 {
		t.Errorf("%+v", s.m.Stats())
	}
	s.add(true, "mask=1 to=10.0.0.2 proto=udp dport=53")
	if s.send(ping(53, 4, 20)); !bytes.Equal(s.ids(0), []byte{1, 2, 4}) {
		t.Errorf("%v leave", s.ids(0))
	}
	home, _ := slotOf(t, "mask1")
	s.server(0).memory[home*SlotLen]++
	s.m.ClearTable(cacheName)
	if s.send(ping(53, 5, 20)); s.m.Stats().Torn != 1 {
		t.Errorf("%+v", s.m.Stats())
	}
}

// Entries of a table with masks are listed as they were written.
func TestTextUnderMasks(t *testing.T) {
	s := newServed(t, ternarySize+"masks=from/0.0.0.255+sport/0xff00,to/48+proto,from+to+proto+sport+dport,any cache=0")
	s.attach()
	list := []string{
		"mask=1 from=0.0.0.7 sport=256 dscp=1", "mask=2 to=10.0.0.1 proto=tcp dst=10.0.0.8:9 dscp=2", "mask=2 to=fd00:: proto=icmpv6 src=fd00::8",
		"mask=3 from=10.0.0.1 to=10.0.0.2 proto=89 sport=0 dport=65535 drop", "mask=4 egress=port1",
	}
	s.add(false, list...)
	got := s.entries()
	if slices.Sort(got); !slices.Equal(got, list) {
		t.Errorf("%q\nwant\n%q", got, list)
	}
	for text, want := range map[string]string{
		"to=10.0.0.1":                   "write mask=N, the number of its mask from 1 to 4",
		"mask=5":                        "no number up to 4",
		"mask=0":                        "no number up to 4",
		"mask=1 from=0.0.1.7 sport=256": "has bits outside of its mask",
		"mask=1 from=0.0.0.7 sport=257": "has bits outside of its mask",
		"mask=1 from=0.0.0.7 to=0.0.0.1 sport=256":      "has to, and the entry has not, or the other way round",
		"mask=1 sport=256":                              "has from, and the entry has not",
		"mask=1 from=fd00::7 sport=256":                 "", // no bits of IPv6
		"mask=2 to=10.0.0.0":                            "has proto",
		"mask=2 to=10.0.0.0 proto=tcp dst=fd00::1":      "mixes IPv4 and IPv6",
		"mask=4 dst=10.0.0.1":                           "rewrites addresses, and mask",
		"mask=4 sport=70000":                            "no number up to 65535",
		"mask=4 mask=4":                                 "twice",
		"mask=3 from=10.0.0.1 to=10.0.0.2:80 proto=tcp": "ok",
	} {
		_, err := s.m.Change(nil, handler.Entries{Rule: "r", Entries: []string{text, "wrong"}}, netip.ParseAddr)
		if want == "ok" {
			want = `"wrong" is unknown`
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := (&Layout{Flow: false}).ParseEntry("to=10.0.0.1 dport=7", netip.ParseAddr, nil); err == nil || !strings.Contains(err.Error(), "has no masks") {
		t.Errorf("%v", err)
	}
}

// A mask of one version of IP takes no packets of the other one.
func TestMasksOfOneVersion(t *testing.T) {
	list, err := ParseMasks("from/255.0.0.255,to/ffff::,dport/0x7,any")
	if err != nil {
		t.Fatal(err)
	}
	four := Key{Src: [16]byte{10, 1, 2, 3}, Dst: [16]byte{9}, SrcPort: 5, DstPort: 0xff, Proto: protoTCP}
	six := four
	six.V6 = true
	want := []Key{{Src: [16]byte{10, 0, 0, 3}, Mask: 1}, {}, {DstPort: 7, Mask: 3}, {Mask: 4}}
	want6 := []Key{{}, {Dst: [16]byte{9}, V6: true, Mask: 2}, {DstPort: 7, Mask: 3}, {Mask: 4}}
	for i := range list {
		k, ok := list[i].of(&four, i+1)
		k6, ok6 := list[i].of(&six, i+1)
		if ok != (i != 1) || ok && k != want[i] || ok6 != (i != 0) || ok6 && k6 != want6[i] {
			t.Errorf("mask %d: %v %+v, %v %+v", i+1, ok, k, ok6, k6)
		}
	}
	s := newServed(t, ternarySize+"masks=to/ffff:: cache=0")
	s.attach()
	if s.send(ping(53, 1, 20)); s.m.Stats().Misses != 1 || s.m.InFlight() != 0 {
		t.Errorf("%+v", s.m.Stats())
	}
	s.step(func(*pipeline.Ctx) {})
}

// Masks and rules with masks that make no sense are refused.
func TestRulesWithMasks(t *testing.T) {
	const base = "server=cn0 action=lookup table=ms0 "
	for text, want := range map[string]string{
		"match=ternary masks=any":                    "",
		"match=ternary":                              "needs the key masks",
		"masks=any":                                  "no other match has it",
		"match=ternary masks=any mode=published":     "leave out mode=published",
		"match=ternary masks=to,from,to":             "are the same",
		"match=ternary masks=to/129":                 "from 1 to 128",
		"match=ternary masks=to/0":                   "from 1 to 128",
		"match=ternary masks=proto/3":                "proto has no bits",
		"match=ternary masks=sport/0":                "from 1 to 0xffff",
		"match=ternary masks=any+to":                 "beside others",
		"match=ternary masks=to+to":                  "twice",
		"match=ternary masks=port":                   "is unknown",
		"match=ternary masks=to/1.2.3.4+from/ff::":   "use two masks",
		"match=ternary masks=a,b,c,d,e,f,g,h,i":      "at most 8",
		"match=ternary masks=any table=ms0,ms1 id=x": "table",
	} {
		_, err := ruleSet(t, base+text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := ruleSet(t, "server=cn0 action=lookup match=ternary masks=any table=ms0,ms1"); err == nil || !strings.Contains(err.Error(), "one server") {
		t.Errorf("%v", err)
	}
}
