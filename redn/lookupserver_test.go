package redn_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A recycled loop answers lookups in their first slot, their second slot and none, with values of any
// length and the immediate data of the slot; more of them than 16 bits count.
func TestLookupServer(t *testing.T) { testLookupServer(t, 0) }

// With RECV_ENABLE, the receives that were posted at first are used again and again.
func TestLookupServerReceives(t *testing.T) { testLookupServer(t, servedReceives) }

func testLookupServer(t *testing.T, receives int) {
	const lookups, keys, longest = 70_000, 3000, 40
	s := newLookupServer(t, 2, receives)
	rnd := rand.New(rand.NewPCG(5, 5))
	slot := func(i int) int { return s.place["beside"] + i*32 }
	value := func(i int) []byte { return bytes.Repeat([]byte{byte(i), byte(i >> 8)}, i%(longest/2)) }
	key := func(i int) redn.Operand { return redn.Operand(uint64(i+1) * 0x9e3779b97f4a7c15 % (1 << 48)) }
	free := keys // the slot of no key
	for i := range keys {
		at := s.place["values"] + i*longest
		copy(s.Memory[at:], value(i))
		copy(s.Memory[slot(i):], redn.AppendSlot(nil, key(i), uint32(i+1), s.Code.At(at, len(value(i)))))
	}
	for n := range lookups {
		i := rnd.IntN(keys)
		other := rnd.IntN(keys)
		places := [][]int{{i, free}, {other, i}, {other, free}}[n%3]
		if n%3 > 0 && other == i {
			continue
		}
		binary.LittleEndian.PutUint64(s.Memory[s.place["scratch"]:], uint64(n))
		var request []byte
		for _, p := range places {
			request = redn.AppendProbe(request, key(i), s.Code.Addr+uint64(slot(p)))
		}
		wcs := s.lookup(request)
		want := 1
		if n%3 == 2 {
			want = 0
		}
		if len(wcs) != want+1 || wcs[want].Imm != redn.Miss {
			t.Fatalf("lookup %d: answers %+v", n, wcs)
		}
		if note := binary.LittleEndian.Uint64(s.Memory[s.place["client"]+256:]); note != uint64(n) {
			t.Fatalf("lookup %d: the note is %d", n, note)
		}
		if want == 1 && (wcs[0].Imm != uint32(i+1) || !bytes.Equal(s.Memory[s.place["client"]:][:wcs[0].ByteLen], value(i))) {
			t.Fatalf("lookup %d of key %d: %+v", n, i, wcs[0])
		}
	}
	if n := s.NIC.Counters().RingRefused; n != 0 {
		t.Errorf("%d entries were refused", n)
	}
}

// lookupServer is a server with a recycled lookup.
type lookupServer struct {
	*served
	receive  []verbs.SGE
	receives int // posted at first; 0 means one for each lookup
}

func newLookupServer(t *testing.T, probes, receives int) *lookupServer {
	t.Helper()
	worker, answers := redn.LookupServerBlocks(probes)
	s := newServed(t, worker, answers, true)
	l := &redn.LookupServer{
		Worker: s.l.Worker, Answers: s.l.Answers, Received: s.l.Received, Receives: receives, Table: s.Code, Client: s.Code.At(s.place["client"], 256),
		Note: s.Code.At(s.place["scratch"], 8), Noted: s.Code.At(s.place["client"]+256, 8),
	}
	pool := s.pool()
	receive, err := l.Build(pool, probes)
	if err != nil {
		t.Fatal(err)
	}
	s.load(pool)
	l.Start(s.masterQueue)
	if err := redn.Verify(map[*redn.Counter]uint32{l.Received: 10}, s.masterQueue, l.Worker, l.Answers); err != nil {
		t.Fatal(err)
	}
	s.start(l.Worker, l.Answers)
	for range receives {
		s.receive(receive)
	}
	return &lookupServer{s, receive, receives}
}

// lookup sends a request and returns the answers.
func (s *lookupServer) lookup(request []byte) []verbs.WC {
	s.t.Helper()
	if s.receives == 0 {
		s.served.receive(s.receive)
	}
	for range 3 - s.spare {
		if err := s.client.PostRecv([]verbs.RecvWR{{}}); err != nil {
			s.t.Fatal(err)
		}
	}
	at := s.place["client"]
	copy(s.Memory[at+512:], request)
	if err := s.client.PostSend(s.Now, []verbs.SendWR{{Op: verbs.OpSend, SGL: []verbs.SGE{s.sge(at+512, len(request))}}}, &s.Out); err != nil {
		s.t.Fatal(err)
	}
	s.Settle()
	wcs := s.polled(s.inbox)
	s.spare = max(3, s.spare) - len(wcs)
	return wcs
}

func (s *lookupServer) sge(at, n int) verbs.SGE {
	return verbs.SGE{Addr: s.Code.Addr + uint64(at), Length: uint32(n), LKey: s.Code.LKey}
}

func (s *lookupServer) polled(c *engine.CQ) []verbs.WC {
	s.t.Helper()
	q, err := c.Queue()
	if err != nil {
		s.t.Fatal(err)
	}
	wcs := make([]verbs.WC, 16)
	return wcs[:q.Poll(wcs)]
}
