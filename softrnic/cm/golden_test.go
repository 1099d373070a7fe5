package cm

import (
	"encoding/binary"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// capture has the datagrams of the connection manager in a capture of two Linux kernels.
func capture(t *testing.T, name string) (frames []wire.Frame) {
	t.Helper()
	const fileHeader, recordHeader = 24, 16
	b, err := os.ReadFile("../wire/testdata/golden/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for b = b[fileHeader:]; len(b) > 0; {
		n := int(binary.LittleEndian.Uint32(b[8:]))
		var f wire.Frame
		if wire.ParseFrame(b[recordHeader:recordHeader+n], &f) == nil && f.BTH.DestQP == 1 {
			frames = append(frames, f)
		}
		b = b[recordHeader+n:]
	}
	return frames
}

func decode(t *testing.T, b []byte) (mad.Header, mad.Message) {
	t.Helper()
	var h mad.Header
	m, err := mad.Parse(b, &h)
	if err != nil {
		t.Fatal(err)
	}
	return h, m
}

// Our responder in the place of Linux's: for the REQ of Linux's initiator and the same choices of
// the application, it sends the same REP as Linux did, except for the numbers that a responder may
// choose. The RTU establishes the connection, and the DREQ is answered.
func TestResponderOfCapturedInitiator(t *testing.T) {
	for _, file := range []string{"cm_rping_v4.pcap", "cm_rping_v6.pcap", "cm_rping_mtu4096.pcap"} {
		frames := capture(t, file)
		if len(frames) != 5 {
			t.Fatalf("%s: %d datagrams", file, len(frames))
		}
		n := newNode(t, "b", 3, nil)
		if err := n.m.Listen(mad.PortService(mad.SpaceTCP, 7174), netip.Prefix{}, 9); err != nil {
			t.Fatal(err)
		}
		wantH, want := decode(t, frames[1].Payload)
		wantREP := want.(*mad.REP)
		a, b := frames[0].SrcAddr(), frames[0].DstAddr()
		n.m.Handle(0, Way{b, a, 0xffff}, frames[0].Payload, &n.out)
		if len(n.out.Events) != 1 || n.out.Events[0].Kind != EventRequest || len(n.out.Tx) != 0 {
			t.Fatalf("%s: REQ: %+v", file, n.out)
		}
		conn := n.out.Events[0].Conn
		n.out.Reset()
		choice := mad.REP{
			QPN: wantREP.QPN, PSN: wantREP.PSN, ResponderResources: wantREP.ResponderResources, InitiatorDepth: wantREP.InitiatorDepth,
			AckDelay: wantREP.AckDelay, RNRRetry: wantREP.RNRRetry,
		}
		if err := n.m.Accept(0, conn, choice, &n.out); err != nil {
			t.Fatal(err)
		}
		h, got := decode(t, n.out.Tx[0].MAD[:])
		if h != wantH || n.out.Tx[0].Local != b || n.out.Tx[0].Remote != a {
			t.Errorf("%s: header %+v, want %+v", file, h, wantH)
		}
		rep := *got.(*mad.REP)
		rep.LocalID, rep.LocalGUID = wantREP.LocalID, wantREP.LocalGUID // a responder may choose these
		if d := cmp.Diff(wantREP, &rep); d != "" {
			t.Errorf("%s: REP -want +got\n%s", file, d)
		}
		n.out.Reset()
		// The later datagrams were sent to Linux's communication ID; it is replaced by ours.
		deliver := func(f wire.Frame) {
			p := append([]byte(nil), f.Payload...)
			binary.BigEndian.PutUint32(p[mad.HeaderLen+4:], uint32(conn))
			n.m.Handle(0, Way{b, a, 0xffff}, p, &n.out)
		}
		deliver(frames[2])
		if len(n.out.Events) != 1 || n.out.Events[0].Kind != EventEstablished {
			t.Errorf("%s: RTU: %+v", file, n.out.Events)
		}
		n.out.Reset()
		for i := 3; i < len(frames); i++ {
			if h, _ := decode(t, frames[i].Payload); h.Attr != mad.AttrDREQ {
				continue
			}
			dreqH, _ := decode(t, frames[i].Payload)
			deliver(frames[i])
			h, m := decode(t, n.out.Tx[0].MAD[:])
			drep := m.(*mad.DREP)
			if len(n.out.Events) != 1 || n.out.Events[0].Kind != EventDisconnected || h.TID != dreqH.TID || drep.LocalID != conn {
				t.Errorf("%s: DREQ: %+v, answered %+v %+v", file, n.out.Events, h, drep)
			}
		}
	}
}

// Our initiator sends the same REQ as rping did, except for the numbers and times that an initiator
// may choose (A17.8).
func TestInitiatorAsCaptured(t *testing.T) {
	frames := capture(t, "cm_rping_v4.pcap")
	wantH, m := decode(t, frames[0].Payload)
	want := m.(*mad.REQ)
	n := newNode(t, "a", 3, func(c *Config) { c.GUID = want.LocalGUID; c.ResponseTimeout, c.OwnTimeout = 20, 20 })
	choice := mad.REQ{
		Service: want.Service, QPN: want.QPN, PSN: want.PSN, ResponderResources: want.ResponderResources, InitiatorDepth: want.InitiatorDepth,
		Retry: want.Retry, RNRRetry: want.RNRRetry, PKey: want.PKey, MTU: want.MTU, Private: want.Private,
		Primary: mad.Path{HopLimit: want.Primary.HopLimit, AckTimeout: want.Primary.AckTimeout, FlowLabel: want.Primary.FlowLabel},
	}
	if _, err := n.m.Connect(0, 1, frames[0].SrcAddr(), frames[0].DstAddr(), choice, &n.out); err != nil {
		t.Fatal(err)
	}
	h, m := decode(t, n.out.Tx[0].MAD[:])
	got := *m.(*mad.REQ)
	h.TID, got.LocalID = wantH.TID, want.LocalID
	if d := cmp.Diff(want, &got); d != "" || h != wantH {
		t.Errorf("REQ -want +got\n%s", d)
	}
}

// Without a listener, the REJ is the same as Linux's, byte for byte.
func TestRejectAsCaptured(t *testing.T) {
	frames := capture(t, "cm_reject.pcap")
	n := newNode(t, "b", 3, nil)
	n.m.Handle(0, Way{frames[0].DstAddr(), frames[0].SrcAddr(), 0xffff}, frames[0].Payload, &n.out)
	if len(n.out.Tx) != 1 || string(n.out.Tx[0].MAD[:]) != string(frames[1].Payload) {
		t.Errorf("answer\n%x, want\n%x", n.out.Tx[0].MAD, frames[1].Payload)
	}
}

// A thousand connections made and ended leave nothing behind, whether or not the DREP arrives.
func TestThousandConnections(t *testing.T) {
	a, b := newNode(t, "a", 1, nil), newNode(t, "b", 1, nil)
	s := &storm{
		t: t, nodes: [2]*node{a, b}, seen: map[mad.CommID][]EventKind{}, pairs: map[mad.CommID]wire.QPN{}, nextQPN: 0x100, quiet: true,
		rnd: newStorm(t, 5).rnd,
	}
	if err := b.m.Listen(testService, netip.Prefix{}, 9); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		s.nextQPN++
		id, err := a.connect(s.now, testService, s.nextQPN)
		if err != nil {
			t.Fatal(err)
		}
		s.pairs[id] = s.nextQPN
		s.pass(mad.Time(14))
		if a.m.State(id) == Established {
			if err := a.m.Disconnect(s.now, id, &a.out); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.pass(stormSettle)
	for _, n := range s.nodes {
		if live, ended := n.m.Conns(); live+ended != 0 || n.m.table.due.Len() != 0 {
			t.Errorf("%s: %d live, %d in time-wait", n.name, live, ended)
		}
	}
	if s.established < 700 { // one in ten is refused by either side
		t.Errorf("%d established", s.established)
	}
}
