package lookuptable

import (
	"bytes"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// With packets=recirculate a packet waits in the switch: the server gets one READ of slots for it and no
// WRITE, packets leave in the order of their arrival with their own entries, and the counters say how
// long they waited.
func TestPacketsWaitInTheSwitch(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=16 cells=4 cell=512 cache=0 depth=4 packets=recirculate")
	s.attach()
	s.add(false, pinged("80")+" egress=port0", pinged("81")+" drop")
	k := s.server(0)
	writes, reads := k.count(wire.RCWriteOnly), k.count(wire.RCReadRequest)
	s.held = true
	s.send(ping(80, 1, 100), ping(81, 2, 100), ping(80, 3, 700)) // the last one is longer than a cell
	if n := k.count(wire.RCReadRequest) - reads; n != 3 || s.m.InFlight() != 3 || s.m.tables[0].links[0].srv.Cells() != 3 {
		t.Errorf("%d READs, %d in flight", n, s.m.InFlight())
	}
	s.now = s.now.Add(3 * time.Microsecond)
	s.held = false
	s.send(ping(80, 4, 100))
	if got := s.ids(0); !bytes.Equal(got, []byte{1, 3, 4}) || len(s.left[1].Data) != 742 {
		t.Errorf("%v leave", got)
	}
	st := s.m.Stats()
	if st.Hits != 4 || st.Denied != 1 || st.Circled != 4 || st.CircledNS != 9000 || s.m.InFlight() != 0 || s.m.tables[0].links[0].srv.(*bouncer).circle.bytes != 0 {
		t.Errorf("%+v", st)
	}
	if n := k.count(wire.RCWriteOnly) - writes; n != 0 {
		t.Errorf("%d WRITEs", n)
	}
}

// The places and bytes of the switch are bounded. When the connection ends, the packets that wait are
// lost, and later ones are dropped until there is another connection.
func TestWaitingIsBounded(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=16 cells=2 cell=512 cache=0 packets=recirculate")
	s.send(ping(80, 1, 9))
	if st := s.m.Stats(); st.Blocked != 1 {
		t.Errorf("%+v", st)
	}
	s.attach()
	s.held = true
	s.send(ping(80, 1, 900), ping(80, 2, 100), ping(80, 3, 9), ping(80, 4, 9))
	if st := s.m.Stats(); st.Full != 2 || s.m.InFlight() != 2 { // too many bytes, then too many packets
		t.Errorf("%+v, %d in flight", st, s.m.InFlight())
	}
	l := s.m.Links.All[0]
	s.server(0).deaf = true
	s.run(time.Second)
	if st := s.m.Stats(); st.Lost != 2 || s.m.InFlight() != 0 || l.srv.Up() {
		t.Errorf("%+v, %d in flight, up %v", st, s.m.InFlight(), l.srv.Up())
	}
}
