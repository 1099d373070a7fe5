package lookuptable

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
)

// conversation is a key of two machines, whatever the direction and the ports.
func conversation(k Key) Key {
	if bytes.Compare(k.Src[:], k.Dst[:]) > 0 {
		k.Src, k.Dst = k.Dst, k.Src
	}
	return Key{Src: k.Src, Dst: k.Dst}
}

// registered adds a hash until the test ends.
func registered(t *testing.T, h Hash) {
	t.Helper()
	t.Cleanup(RegisterHash(h))
}

// dscp sends a frame and returns the DSCP with which it leaves.
func (s *served) dscp(frame []byte) byte {
	s.t.Helper()
	s.left = nil
	if s.send(frame); len(s.left) == 0 {
		s.t.Fatal("no frame has left")
	}
	return s.left[0].Data[15] >> 2
}

// A rule may name a hash of another module: its entries are in the slots that this hash says, frames
// find them, and changes move them as it says.
func TestRegisteredHash(t *testing.T) {
	for _, packets := range []string{"deposit", "recirculate"} {
		t.Run(packets, func(t *testing.T) {
			registered(t, Hash{Name: "by-port", Of: func(k Key) uint64 { return uint64(k.DstPort) }})
			s := newServed(t, "table=ms0 capacity=16 cells=8 cell=512 depth=4 cache=4 hash=by-port packets="+packets)
			s.attach()
			s.add(false, pinged("53")+" dscp=46", pinged("21")+" dscp=7") // 53 and 21 modulo 16 are 5
			var e Entry
			for i, port := range []uint16{53, 21} {
				if slot := s.server(0).memory[(5+i)*SlotLen:]; !ReadSlot(slot, &e) || e.Key.DstPort != port {
					t.Errorf("slot %d has %v, want port %d", 5+i, &e, port)
				}
			}
			for range 2 {
				if a, b := s.dscp(ping(53, 1, 20)), s.dscp(ping(21, 2, 20)); a != 46 || b != 7 {
					t.Fatalf("DSCPs are %d and %d", a, b)
				}
			}
			if st := s.m.Stats(); st.Hits != 2 || st.Cached != 2 {
				t.Errorf("%+v", st)
			}
			s.add(true, pinged("53"))
			if a, b := s.dscp(ping(53, 3, 20)), s.dscp(ping(21, 4, 20)); a != 0 || b != 7 {
				t.Errorf("after the removal DSCPs are %d and %d", a, b)
			}
		})
	}
}

// A registered key function decides which frames share an entry: here all of two machines, in both directions.
func TestRegisteredKey(t *testing.T) {
	registered(t, Hash{Name: "conversation", Key: conversation})
	s := newServed(t, "table=ms0 capacity=16 cells=8 cell=512 depth=4 cache=4 hash=conversation")
	s.attach()
	s.add(false, "from=10.0.0.2:5 to=10.0.0.1:9 proto=tcp dscp=46") // stored as the key of both directions
	if a, b := s.dscp(ping(53, 1, 20)), s.dscp(ping(99, 2, 20)); a != 46 || b != 46 {
		t.Fatalf("DSCPs are %d and %d", a, b)
	}
	if st := s.m.Stats(); st.Hits != 1 || st.Cached != 1 {
		t.Errorf("%+v", st)
	}
	list := s.entries() // of the key that was made
	if s.add(true, list...); len(list) != 1 || len(s.entries()) != 0 {
		t.Errorf("listed: %q; after these were removed: %q", list, s.entries())
	}
	if got := (&Layout{Hash: hashOf("conversation")}).Hash.keyed(Key{V6: true, Mask: 3, Proto: 6}); got != (Key{V6: true, Mask: 3}) {
		t.Errorf("the key is %+v", got)
	}
}

// In mode published, too, the hash says which slot an entry has.
func TestHashOfPublishedTables(t *testing.T) {
	registered(t, Hash{Name: "last", Of: func(Key) uint64 { return 15 }, Key: conversation})
	set, err := ruleSet(t, "server=cn0 action=lookup table=ms0 capacity=16 cell=512 mode=published hash=last")
	if err != nil {
		t.Fatal(err)
	}
	l := LayoutOf(&set.All()[0])
	e, err := l.ParseEntry(pinged("53")+" drop", func(string) (netip.Addr, error) { return netip.Addr{}, nil }, nil)
	if _, home := l.Place(l.Hash.sum(&e.Key)); err != nil || home != 15 || e.Key.DstPort != 0 {
		t.Errorf("%v is in slot %d: %v", &e, home, err)
	}
}

// The reference is Python's zlib.crc32 of the same bytes.
func TestCRCOfKeys(t *testing.T) {
	k := Key{Src: [16]byte{10, 0, 0, 1}, Dst: [16]byte{10, 0, 0, 2}, SrcPort: 7, DstPort: 53, Proto: protoUDP}
	v6 := Key{Src: [16]byte{0xfd, 15: 1}, Dst: [16]byte{0xfd, 15: 2}, SrcPort: 7, DstPort: 53, Proto: protoUDP, V6: true}
	for want, k := range map[uint64]Key{0xc730c9b: k, 0xa2232bc8: v6} {
		if got := hashOf(CRC32).Of(k); got != want {
			t.Errorf("%+v: %#x, want %#x", k, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { crcOf(v6) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// What does not fit is refused, with the names that are known.
func TestHashesThatAreRefused(t *testing.T) {
	registered(t, Hash{Name: "conversation", Key: conversation})
	for text, want := range map[string]string{
		"hash=mix":          "",
		"hash=crc32":        "",
		"hash=crc":          "use one of conversation, crc32, mix",
		"hash=conversation": "",
		"hash=conversation match=ternary masks=to":    "makes keys of its own",
		"hash=conversation vip=ms1 vport=80 pool=cn1": "makes keys of its own",
		"hash=crc32 match=ternary masks=to":           "",
	} {
		_, err := ruleSet(t, "server=cn0 action=lookup table=ms0 "+text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for _, bad := range []Hash{{Name: "x"}, {Name: Mix, Of: crcOf}, {Name: "", Of: crcOf}, {Name: "Big", Of: crcOf}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q was registered", bad.Name)
				}
			}()
			RegisterHash(bad)
		}()
	}
}

// Another hash is another table: its entries are in other slots, so what waits for the former one is refused.
func TestTablesOfOtherHashes(t *testing.T) {
	var l [2]Layout
	for i, name := range []string{"mix", "crc32"} {
		set, err := ruleSet(t, "server=cn0 action=lookup table=ms0 hash="+name)
		if err != nil {
			t.Fatal(err)
		}
		l[i] = LayoutOf(&set.All()[0])
	}
	if l[0].sameSlots(&l[1]) || !l[0].sameSlots(&l[0]) {
		t.Error("tables of two hashes count as the same")
	}
}
