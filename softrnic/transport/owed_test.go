package transport

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The last place for an owed response is kept for the NAK that ends the connection; no other
// response takes it.
func TestPlaceOfTheFatalNak(t *testing.T) {
	for name, c := range map[string]struct {
		kind     responseKind
		syndrome wire.Syndrome
		room     bool
	}{
		"ACK":              {owedAck, wire.AckNoCredits, false},
		"RNR NAK":          {owedAck, wire.RNRNak | 3, false},
		"sequence NAK":     {owedAck, wire.NakPSNSequence, false},
		"atomic":           {owedAtomic, wire.NakInvalid, false},
		"READ":             {owedRead, wire.NakInvalid, false},
		"invalid request":  {owedAck, wire.NakInvalid, true},
		"access error":     {owedAck, wire.NakRemoteAccess, true},
		"operational fail": {owedAck, wire.NakRemoteOp, true},
	} {
		_, b := newPair(t)
		a := &b.qp.rsp.answers
		for i := range maxOwed(a.maxRdAtomic) - 1 {
			if a.owe(owedRead, wire.PSN(i), 0) == nil {
				t.Fatalf("no room for READ %d", i)
			}
		}
		if got := a.owe(c.kind, 1000, c.syndrome) != nil; got != c.room {
			t.Errorf("%s: room %v, want %v", name, got, c.room)
		}
		if c.room && a.owe(c.kind, 1000, c.syndrome) != nil {
			t.Errorf("%s: room for a second one", name)
		}
	}
}

// A queue pair that is used for another connection owes as many responses as the present depth
// allows, however deep the former connection was, and its last place is for the fatal NAK, too.
func TestOwedResponsesOfAReusedQueuePair(t *testing.T) {
	_, b := newPair(t)
	a := &b.qp.rsp.answers
	for _, depth := range []int{16, 1, 3, 0} {
		a.reset()
		a.start(depth)
		n := 0
		for a.owe(owedRead, wire.PSN(n), 0) != nil {
			if n++; n > 1000 {
				t.Fatal("there is no bound")
			}
		}
		if want := maxOwed(depth) - 1; n != want {
			t.Errorf("depth %d: room for %d READs, want %d", depth, n, want)
		}
		if a.owe(owedAck, 1000, wire.NakInvalid) == nil || a.owe(owedAck, 1000, wire.NakInvalid) != nil {
			t.Errorf("depth %d: there is no room for one fatal NAK", depth)
		}
	}
}

// Datagrams in one queue carry each its own data, from memory and inline, also behind one that is
// too long.
func TestDatagramsKeepTheirData(t *testing.T) {
	a, b := newUD(t, "a", 1, testQKey), newUD(t, "b", 2, testQKey)
	copy(a.buf, "01234567890123456789")
	const n = 3
	for range 2 * n {
		recvOf(t, b, 100)
	}
	a.qp.unr.at = 0 // the queue pair waits for its turn
	for i := range n {
		wr := datagramTo(b, a, 1)
		wr.SGL = []verbs.SGE{a.sge(i, 1)}
		post(t, a, wr)
		if i == 0 {
			long := datagramTo(b, a, 2000)
			post(t, a, long)
		}
		wr.Flags |= verbs.Inline
		wr.SGL, wr.Data = nil, []byte{byte('a' + i)}
		post(t, a, wr)
	}
	a.qp.Tick(0, &a.out)
	got := ""
	for i := range a.out.Tx {
		got += string(a.out.Tx[i].Packet.Payload)
	}
	if got != "0a1b2c" {
		t.Errorf("payloads %q", got)
	}
}
