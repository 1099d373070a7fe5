package lookuptable

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

const (
	virtualBase = "table=ms0 capacity=16 cells=8 cell=512 vip=cn1 vport=80 "
	virtual     = virtualBase + "pool=ms1 "
)

// segment makes a TCP packet of cn0 from a port to port 80 of the virtual address, with flags and data.
func segment(port uint16, flags, id byte) []byte {
	b := ping(80, id, 32)
	b[ethLen+9] = protoTCP
	sum := ^fold(sumOf(append(slices.Clone(b[ethLen:ethLen+10]), append([]byte{0, 0}, b[ethLen+12:ethLen+ip4Len]...)...)))
	b[ethLen+10], b[ethLen+11] = byte(sum>>8), byte(sum)
	l4 := b[ethLen+ip4Len:]
	clear(l4[4:20])
	l4[0], l4[1], l4[12], l4[13] = byte(port>>8), byte(port), 5<<4, flags
	var v view
	v.parse(b)
	sum = ^fold(sumOf(append(l4, b[ethLen+12:ethLen+ip4Len]...)) + protoTCP + uint32(len(l4)))
	l4[16], l4[17] = byte(sum>>8), byte(sum)
	return b
}

// backends returns the last byte of the destination of each frame that has left by port 0, and checks it.
func (s *served) backends() (list []byte) {
	s.t.Helper()
	for _, f := range s.left {
		if f.Port != 0 {
			continue
		}
		var v view
		if !v.parse(f.Data) || pseudo(f.Data, &v) != 0xffff || fold(sumOf(f.Data[ethLen:ethLen+ip4Len])) != 0xffff {
			s.t.Errorf("wrong checksum in %x", f.Data)
		}
		list = append(list, f.Data[ethLen+19])
	}
	return list
}

func (s *served) sends(want []byte, list ...[]byte) {
	s.t.Helper()
	s.left = nil
	s.send(list...)
	if got := s.backends(); !bytes.Equal(got, want) {
		s.t.Errorf("packets go to %v, want %v: %+v", got, want, s.m.Stats())
	}
}

// The first packet of a connection leaves when the server has its entry, with the bytes that a program
// outside of this project computes. Packets behind it wait, too.
func TestFirstPacketWaitsForItsEntry(t *testing.T) {
	s := newServed(t, virtual+"cache=0")
	s.attach()
	s.held = true
	s.sends(nil, segment(7, flagSYN, 1), segment(7, 0, 2))
	for range 20 {
		if s.server(0).count(wire.RCWriteOnly) == 3 {
			break
		}
		s.deliver(1)
	}
	s.wants("connection")
	s.sends(nil, segment(7, 0, 3))
	if s.m.Stats().Learnt != 0 || s.m.InFlight() != 3 {
		t.Errorf("%+v, %d in flight", s.m.Stats(), s.m.InFlight())
	}
	s.held = false
	s.sends([]byte{4, 4, 4, 4}, segment(7, 0, 4))
	if st := s.m.Stats(); st.Learnt != 1 || st.Hits != 4 || s.m.InFlight() != 0 {
		t.Errorf("%+v, %d in flight", st, s.m.InFlight())
	}
	if got := s.entries(); len(got) != 1 || got[0] != "from=10.0.0.1:7 to=10.0.0.2:80 proto=tcp dst=10.0.0.4" {
		t.Errorf("%q", got)
	}
}

// A connection stays with its host while the pool changes, also behind a crash of the switch, until the
// host is in neither list. Then a SYN chooses again, and other packets are dropped.
func TestConnectionsKeepTheirHosts(t *testing.T) {
	for _, cache := range []string{"cache=0", "cache=8"} {
		s := newServed(t, virtual+cache)
		s.attach()
		s.sends([]byte{4}, segment(7, flagSYN, 1))
		s.rule(virtualBase + "pool=ms0 drain=ms1 " + cache)
		s.sends([]byte{4, 4, 3}, segment(7, 0, 2), segment(8, flagSYN, 3), segment(7, flagSYN, 4))
		s.m.ClearTable(cacheName)
		s.sends([]byte{4, 3}, segment(7, 0, 2), segment(8, 0, 3))
		s.sends(nil, segment(9, 0, 1)) // of no connection
		s.rule(virtualBase + "pool=ms0 " + cache)
		s.sends(nil, segment(7, 0, 5))
		s.sends([]byte{3}, segment(7, flagSYN, 6))
		s.sends([]byte{3}, segment(7, 0, 7))
		if st := s.m.Stats(); st.Misses != 2 || st.Learnt != 3 {
			t.Errorf("%s: %+v", cache, st)
		}
	}
}

// A lookup that has read the slots before the entry was written uses the entry, though it is not in the
// cache and the pool has changed.
func TestLookupsBeforeTheEntry(t *testing.T) {
	s := newServed(t, virtual+"cache=0 depth=1")
	s.attach()
	s.held = true
	s.send(segment(7, flagSYN, 1), segment(7, 0, 2), segment(7, 0, 3))
	for range 100 {
		s.deliver(1)
		if s.m.Stats().Learnt == 1 {
			break
		}
	}
	s.rule(virtualBase + "pool=ms0 drain=ms1 cache=0 depth=1")
	s.held = false
	s.step(func(*pipeline.Ctx) {})
	if got := s.backends(); !bytes.Equal(got, []byte{4, 4, 4}) || s.m.Stats().Learnt != 1 {
		t.Errorf("packets go to %v: %+v", got, s.m.Stats())
	}
}

// Packets that are not for the virtual address and port are not looked up, and answers of a host get the
// virtual address as their source.
func TestAnswersOfHosts(t *testing.T) {
	s := newServed(t, virtualBase+"pool=ms0 drain=ms1 cache=0")
	s.attach()
	for _, b := range [][]byte{ping(81, 1, 20), make([]byte, 60)} {
		s.step(func(c *pipeline.Ctx) {
			if s.m.Take(c, portOfFrom, packetio.Frame{Data: b}) {
				t.Error("another packet is taken")
			}
		})
	}
	for last, want := range map[byte]byte{3: 2, 4: 2, 5: 5} {
		b := segment(7, 0, 1)
		ip := b[ethLen:]
		packetio.FixSum(ip[10:], packetio.SumGrows(ip[12:20], []byte{10, 0, 0, last, 10, 0, 0, 1}))
		fixSum(b[ethLen+ip4Len+16:], protoTCP, packetio.SumGrows(ip[12:20], []byte{10, 0, 0, last, 10, 0, 0, 1}))
		copy(ip[12:], []byte{10, 0, 0, last, 10, 0, 0, 1})
		ip[20], ip[21], ip[22], ip[23] = 0, 80, 0, 7
		s.left = nil
		taken := false
		s.step(func(c *pipeline.Ctx) { taken = s.m.Take(c, portOfFrom, packetio.Frame{Data: b}) })
		if taken != (want == 2) {
			t.Errorf("host %d: taken %v", last, taken)
		}
		if taken && (len(s.left) == 0 || s.left[0].Data[ethLen+15] != want || fold(sumOf(s.left[0].Data[ethLen:ethLen+ip4Len])) != 0xffff) {
			t.Errorf("host %d: %d frames have left", last, len(s.left))
		}
	}
	if st := s.m.Stats(); st.Returned != 2 || st.Frames != 0 {
		t.Errorf("%+v", st)
	}
}

// When a connection has ended, its entry is removed, later if packets follow, and not if its ports are
// used again.
func TestEntriesOfClosedConnections(t *testing.T) {
	s := newServed(t, virtual+"cache=0")
	s.attach()
	s.sends([]byte{4, 4, 4}, segment(7, flagSYN, 1), segment(8, flagSYN, 1), segment(9, flagSYN, 1))
	s.sends([]byte{4, 4, 4}, segment(7, flagFIN, 1), segment(8, flagRST, 1), segment(9, flagFIN, 1))
	s.run(linger / 2)
	s.sends([]byte{4, 4}, segment(7, 0, 1), segment(8, flagSYN, 1))
	s.run(linger/2 + time.Second)
	if got := s.entries(); len(got) != 2 {
		t.Errorf("%q", got)
	}
	s.run(linger)
	if got := s.entries(); len(got) != 1 || s.m.Stats().Removed != 2 {
		t.Errorf("%q %+v", got, s.m.Stats())
	}
	s.sends(nil, segment(7, 0, 1))
	s.sends([]byte{4}, segment(8, 0, 1))
}

// A table that is full, or more frames than the switch may keep, drop packets and count them.
func TestTooManyConnections(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=1 cells=32 cell=512 cache=0 vip=cn1 vport=80 pool=ms1")
	s.attach()
	for p := range uint16(Probe) {
		s.sends([]byte{4}, segment(7+p, flagSYN, 1))
	}
	s.sends(nil, segment(100, flagSYN, 1))
	if st := s.m.Stats(); st.Full != 1 || st.Learnt != Probe || st.Refused != 1 || len(s.m.tables[0].learning) > Probe {
		t.Errorf("%+v", st)
	}
	if s.m.InFlight() != 0 {
		t.Errorf("%d in flight", s.m.InFlight())
	}
}

// Rules with a virtual address that make no sense are refused.
func TestRulesWithAVirtualAddress(t *testing.T) {
	const base = "server=cn0 action=lookup table=ms0 "
	for text, want := range map[string]string{
		"vip=cn1 vport=80 pool=ms0,ms1 drain=ms0":           "",
		"vip=cn1,ms0 vport=80 pool=ms0":                     "vip is one address",
		"vip=cn1 pool=ms0":                                  "needs the keys vport and pool",
		"vip=cn1 vport=80":                                  "needs the keys vport and pool",
		"vip=cn1 vport=0 pool=ms0":                          "from 1 to 65535",
		"vip=cn1 vport=4791 pool=ms0":                       "RoCEv2",
		"vip=cn1 vport=80 pool=fd00::1":                     "IPv4 and IPv6",
		"vip=cn1 vport=80 pool=ms0 drain=fd00::1":           "IPv4 and IPv6",
		"vip=cn1 vport=80 pool=ms0 match=destination":       "needs match=flow",
		"vip=cn1 vport=80 pool=ms0 match=ternary masks=any": "needs match=flow",
		"vip=cn1 vport=80 pool=ms0 mode=published":          "mode hardened",
		"pool=ms0":                  "with the key vip alone",
		"drain=ms0":                 "with the key vip alone",
		"vport=80":                  "with the key vip alone",
		"vip=cn9 vport=80 pool=ms0": "no host",
	} {
		_, err := ruleSet(t, base+text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
