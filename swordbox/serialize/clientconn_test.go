package serialize

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
)

// The requests on the client's connection that have no answer are known by their distance to the newest
// one, also if there are more of them than the PSN map remembers.
func TestPSNsOfUnansweredRequests(t *testing.T) {
	const many = maxBehind + 10
	k := clientConn{acked: 100}
	k.psns.start(100, 8)
	k.psns.add(1, true)
	k.psns.add(many, false)
	if n := k.unanswered(); n != many || k.isAnswered() {
		t.Errorf("%d PSNs have no answer", n)
	}
	first := wire.PSN(101)
	for at, want := range map[int]where{-1: whereOld, 0: whereOwn, 1: whereOwn, many - 1: whereOwn, many: whereFuture} {
		w, own := k.find(first.Add(at))
		if w != want || w == whereOwn && own != wire.PSN(100).Add(at) {
			t.Errorf("request %d is at %v, PSN %v, want %v", at, w, own, want)
		}
	}
	for at, want := range map[int]bool{-1: false, 0: true, 1: true, many - 1: true, many: false} {
		client, shift, ok := k.clientPSN(wire.PSN(100).Add(at))
		if ok != want || ok && (client != first.Add(at) || shift != 1) {
			t.Errorf("request %d has PSN %v at the client, shift %d, %v", at, client, shift, ok)
		}
	}
	if k.acked = k.psns.own; !k.isAnswered() {
		t.Error("all are answered")
	}
	if k.msg = inMessage; k.isAnswered() {
		t.Error("the message has not ended")
	}
}

// operating is a connection with operations in flight that end before the PSNs 12, 13 and 14: on a
// word, on the words of a range, and one that proves a key.
func operating(m *Machine) (k *clientConn, one, ranged *atomiccache.Word) {
	k = &clientConn{s: &server{m: m}, ops: clientOps{max: 8}, acked: 10}
	one, ranged = m.words.Get(1, atomiccache.Key{VA: 64}), m.words.Get(1, atomiccache.Key{VA: 128})
	op := k.ops.add()
	op.end, op.word, op.decision = 12, one, one.Foreign(2)
	x := extent{12, 13, 128, 8}
	k.addAll(&x, m.words.ClientAll(2, 0, x.va, x.n))
	op = k.ops.add()
	op.end, op.prove, op.right, op.va, op.n, op.rkey = 14, true, rightRead, 4096, 8, 7
	return k, one, ranged
}

// An acknowledgement ends the operations whose last request it covers, and no others. An older one says
// nothing new.
func TestAcknowledgedOperations(t *testing.T) {
	m := New(Config{})
	k, one, ranged := operating(m)
	for _, c := range []struct {
		end         wire.PSN
		news        bool
		ops         uint32
		one, ranged int
	}{
		{9, false, 3, 1, 1}, {10, false, 3, 1, 1}, {11, true, 3, 1, 1}, {11, false, 3, 1, 1}, {12, true, 2, 0, 1}, {13, true, 1, 0, 0}, {14, true, 0, 0, 0},
	} {
		acked := max(k.acked, c.end)
		if got := k.ack(3, c.end); got != c.news || k.acked != acked {
			t.Errorf("all before %v: news %v, %v", c.end, got, k.acked)
		}
		if n := k.ops.tail - k.ops.head; n != c.ops || one.ClientPending() != c.one || ranged.ClientPending() != c.ranged {
			t.Errorf("all before %v: %d operations, the words wait for %d and %d", c.end, n, one.ClientPending(), ranged.ClientPending())
		}
		if got := k.s.keys.covers(7, rightRead, 4096, 8); got != (c.ops == 0) {
			t.Errorf("all before %v: the key is proven: %v", c.end, got)
		}
	}
	if k.s.keys.covers(7, rightWrite, 4096, 8) || k.s.keys.covers(7, rightRead, 4096, 9) {
		t.Error("more is proven than the request has shown")
	}
}

// When the server has refused a request, all operations have ended, and the key of the first one is not
// proven any more.
func TestOperationsOfARefusedConnection(t *testing.T) {
	for _, first := range []bool{false, true} {
		m := New(Config{})
		k, one, ranged := operating(m)
		k.s.keys.prove(7, rightRead, 4096, 8)
		if first {
			k.ops.head += 2
			one.Undone(3, k.ops.at(0).decision)
			m.words.EndAll(3, k.ops.at(1).decision, 0, 128, 8)
		}
		k.drop(3)
		if k.ops.head != k.ops.tail || one.ClientPending() != 0 || ranged.ClientPending() != 0 {
			t.Errorf("first %v: %d operations, the words wait for %d and %d", first, k.ops.tail-k.ops.head, one.ClientPending(), ranged.ClientPending())
		}
		if k.s.keys.covers(7, rightRead, 4096, 8) == first {
			t.Errorf("first %v: the key is proven: %v", first, !first)
		}
	}
}

// A flow is proven for the present shared connection by the acknowledgement of a request that was
// sent for the first time since that one was attached, and once.
func TestProofOfAFlow(t *testing.T) {
	m := New(Config{})
	s := &server{m: m, incarnation: 3, breaks: 2}
	k := &clientConn{s: s}
	k.proves(60)
	if k.isProven() || !k.isSuspect() {
		t.Error("it is proven before it was asked for")
	}
	k.sends(50)
	k.sends(55)
	if k.proof.asked != 3 || k.proof.mark != 50 {
		t.Errorf("%+v", k.proof)
	}
	for end, want := range map[wire.PSN]bool{49: false, 50: false} {
		if k.proves(end); k.isProven() != want {
			t.Errorf("all before %v: proven %v", end, !want)
		}
	}
	for range 2 {
		if k.proves(51); !k.isProven() || k.isSuspect() || m.stats.Proofs != 1 {
			t.Errorf("%+v, %d proofs", k.proof, m.stats.Proofs)
		}
	}
	if k.sends(70); k.proof.mark != 50 {
		t.Errorf("a proven flow asks for a proof: %+v", k.proof)
	}
	s.incarnation++
	if k.proves(90); k.isProven() || k.isSuspect() {
		t.Errorf("a new connection beside another one: %+v", k.proof)
	}
	s.breaks++
	if !k.isSuspect() {
		t.Error("a connection was replaced")
	}
}

// The largest number of PSNs in flight decides how far behind a duplicate may be.
func TestReachOfAConnection(t *testing.T) {
	k := &clientConn{acked: 100, far: 3}
	for own, want := range map[wire.PSN]int32{100: 3, 102: 3, 103: 3} {
		k.psns.own = own
		if k.reaches(); k.far != want {
			t.Errorf("%v: %d", own, k.far)
		}
	}
	k.psns.own = 107
	if k.reaches(); k.far != 7 {
		t.Errorf("%d", k.far)
	}
	newest := wire.PSN(50_000)
	for back, want := range map[int]bool{0: false, slack: false, slack + 14: false, slack + 15: true} {
		if got := k.isFar(newest.Add(-back), newest); got != want {
			t.Errorf("%d behind: %v", back, got)
		}
	}
}

// A message names its bytes in its first packet. Of a later one, the switch knows them if it has
// kept them; otherwise it may change the whole memory.
func TestExtentsOfMessages(t *testing.T) {
	k := &clientConn{s: &server{m: New(Config{})}, ops: clientOps{max: 4}}
	f := new(wire.Frame)
	f.BTH.Opcode, f.RETH, f.Payload = wire.RCWriteFirst, wire.RETH{VA: 64, Length: 2500}, make([]byte, 1024)
	known := extent{20, 23, 64, 2500}
	if x := k.extentOf(f, 20); x != known || !x.isLong() {
		t.Errorf("%+v", x)
	}
	f.BTH.Opcode = wire.RCWriteMiddle
	if x := k.extentOf(f, 21); x != (extent{21, 22, 0, atomiccache.Everything}) || x.isLong() {
		t.Errorf("%+v", x)
	}
	if x := (extent{first: 20, end: 22}); !x.isLong() {
		t.Error("a message of two packets has no second one")
	}
	now := clock.Time(1)
	for range 2 {
		k.keep(now, &known)
		if x := k.extentOf(f, 21); x != known || !k.isKept(&known) || k.ops.tail != 1 {
			t.Errorf("%+v, %d operations", x, k.ops.tail)
		}
	}
	for _, other := range []extent{{19, 23, 64, 2500}, {20, 24, 64, 2500}, {20, 23, 72, 2500}, {20, 23, 64, 2501}, {30, 33, 64, 2500}} {
		if k.isKept(&other) {
			t.Errorf("%+v is kept", other)
		}
	}
	for i := range 5 {
		k.keep(now, &extent{wire.PSN(30 + 10*i), wire.PSN(32 + 10*i), 64, 2500})
	}
	if k.ops.tail != 4 || k.ops.head != 0 {
		t.Errorf("%d to %d of 4 operations", k.ops.head, k.ops.tail)
	}
}
